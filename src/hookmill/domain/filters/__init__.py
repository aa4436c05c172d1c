"""Which deliveries start a run? A payload filter mirrors the body's shape and lists what its fields may hold.

`{"action": ["opened"], "repository": {"private": {"not_in": [true]}}}`: every key must match. A key's value is an
array (any of these), an object of operators (all must hold) or an object of nested fields.

    operators.py    the operator table: every operator, and all that follows from it
    names.py        which keys are operators and which are fields
    reading.py      from a filter's source to its rule, or to all that is wrong with it
    rules.py        evaluation, which runs for every delivery
    shortcut.py     what must be in a body that passes, to be looked for before it is decoded
    explanation.py  why a payload passes, or does not
    values.py       equality and order of JSON values
    globs.py        patterns for strings
    rendering.py    a filter's values as text

docs/filters.md says what a filter means in each case.
"""

from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.errors import Fault
from hookmill.domain.filters.explanation import CLOSEST_OF, ConditionOutcome, Explanation, outcomes
from hookmill.domain.filters.globs import PATTERN_CHARACTERS_MAX
from hookmill.domain.filters.names import CONTRACT, fields_in, with_fields
from hookmill.domain.filters.operators import ALTERNATIVES_MAX, OPERATORS, SET_VALUES_MAX, Operator
from hookmill.domain.filters.reading import CONDITIONS_MAX, DEPTH_MAX, LOOKS_MAX, Position, Reader
from hookmill.domain.filters.rendering import SHOWN_CHARACTERS_MAX, filter_to_json, pointer_step
from hookmill.domain.filters.rules import Rule
from hookmill.domain.filters.shortcut import REQUIRED_MAX, required
from hookmill.domain.payload import Json, Parsed

SOURCE_CHARACTERS_MAX: Final = 72 * 1_024
"""Length of the filter as JSON in ASCII. It was 64 Ki before stored filters had to name some fields by `$fields`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFilter:
    """A filter that can be evaluated: in time linear in the payload, on a stack bounded by the filter."""

    source: Json = field(compare=False, repr=False)
    """The filter as it was given."""
    source_json: str
    """The same as JSON in ASCII, every number exact: the form to store."""
    beyond_contract: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """JSON pointers to the operators in it that the contract has not."""
    rule: Rule | None = field(compare=False, repr=False)
    """None takes every payload."""
    required: tuple[tuple[bytes, ...], ...] = field(default=(), compare=False, repr=False)
    """Groups of strings, as bodies spell them: of each group one must be in a body that passes."""

    def matches(self, payload: Parsed) -> bool:
        """Whether the payload passes."""
        if self.rule is None:
            return True
        for spellings in self.required:
            if payload.holds_none_of(spellings):
                return False
        return self.rule.holds(payload.value)

    def explain(self, payload: Parsed) -> Explanation:
        """Whether the payload passes, and why."""
        conditions = tuple(outcomes(self.rule, payload.value, at="")) if self.rule is not None else ()
        return Explanation(matched=self.matches(payload), conditions=conditions)


def compile_filter(source: Json) -> CompiledFilter | list[Fault]:
    """The filter, ready to evaluate, or all that is wrong with it. Takes any JSON or YAML value, never raises.

    A Python float stands for its shortest decimal spelling; `payload.parse` keeps longer ones exact.
    """
    reader = Reader()
    takes_all = type(source) is dict and not source
    rule = reader.rule(source, Position()) if not takes_all else None
    reader.refuse_what_costs_too_much()
    if reader.problems:
        return reader.problems
    source_json = filter_to_json(source)
    if len(source_json) > SOURCE_CHARACTERS_MAX:
        reader.refuse(Position(), f"The filter has more than {SOURCE_CHARACTERS_MAX:,} characters. Shorten it.")
        return reader.problems
    return CompiledFilter(
        source=source,
        source_json=source_json,
        beyond_contract=tuple(reader.beyond_contract),
        rule=rule,
        required=tuple(required(rule))[:REQUIRED_MAX] if rule is not None else (),
    )


__all__ = [
    "ALTERNATIVES_MAX",
    "CLOSEST_OF",
    "CONDITIONS_MAX",
    "CONTRACT",
    "DEPTH_MAX",
    "LOOKS_MAX",
    "OPERATORS",
    "PATTERN_CHARACTERS_MAX",
    "SET_VALUES_MAX",
    "SHOWN_CHARACTERS_MAX",
    "SOURCE_CHARACTERS_MAX",
    "CompiledFilter",
    "ConditionOutcome",
    "Explanation",
    "Operator",
    "compile_filter",
    "fields_in",
    "filter_to_json",
    "pointer_step",
    "with_fields",
]
