"""Which deliveries start a run? A payload filter mirrors the body's shape and lists what its fields may hold.

`{"action": ["opened"], "repository": {"private": {"not_in": [true]}}}`: every key must match. A key's value
is an array (any of these), operators (`in`, `not_in`, `exists`: all must hold) or an object (nested fields).

- A missing field fails `in` and passes `not_in`. A present `null` exists. A nested object asks for an object
  to be there, so `{"a": {"b": {"exists": false}}}` does not match `{}`.
- A field that holds an array: `in` asks for one element in the set, `not_in` for none, a nested object for
  one element that satisfies all of it. Arrays inside that array stay closed: neither values nor objects.
- The body itself is such a field: an array matches by one of its objects. A scalar, or an array without an
  object, matches only `{}`, which matches everything.
- Values are equal when kind and value are: strings by code point, numbers by exact value, `true` is not `1`.
  An object or an array is in no set.
- The filter's own top level names fields only, so `{"in": ["x"]}` reads a field called `in`. Below it, a
  field named like an operator can't be reached.

    operators.py    the operator table
    reading.py      from a filter's source to its rule, or to all that is wrong with it
    rules.py        evaluation, which runs for every delivery
    shortcut.py     what must be in a body that passes, to be looked for before it is decoded
    explanation.py  why a payload passes, or does not
    values.py       equality of JSON values
    rendering.py    a filter's values as text
"""

from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.errors import Fault
from hookmill.domain.filters.explanation import CLOSEST_OF, ConditionOutcome, Explanation, outcomes
from hookmill.domain.filters.operators import OPERATORS, SET_VALUES_MAX, Operator
from hookmill.domain.filters.reading import CONDITIONS_MAX, DEPTH_MAX, Reader
from hookmill.domain.filters.rendering import SHOWN_CHARACTERS_MAX, filter_to_json
from hookmill.domain.filters.rules import Rule
from hookmill.domain.filters.shortcut import REQUIRED_MAX, required
from hookmill.domain.payload import Json, Parsed

SOURCE_CHARACTERS_MAX: Final = 65_536
"""Length of the filter as JSON in ASCII."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFilter:
    """A filter that can be evaluated: in time linear in the payload, on a stack bounded by the filter."""

    source: Json = field(compare=False, repr=False)
    """The filter as it was given."""
    source_json: str
    """The same as JSON in ASCII, every number exact: the form to store."""
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
    if type(source) is not dict:
        return [Fault("", 'A filter is an object such as {"action": ["opened"]}.')]
    reader = Reader()
    rule = reader.object_rule(source, at="", depth=0) if source else None
    if reader.conditions > CONDITIONS_MAX:
        reader.refuse("", f"The filter has more than {CONDITIONS_MAX} conditions. Drop some.")
    if reader.problems:
        return reader.problems
    source_json = filter_to_json(source)
    if len(source_json) > SOURCE_CHARACTERS_MAX:
        reader.refuse("", f"The filter has more than {SOURCE_CHARACTERS_MAX:,} characters. Shorten it.")
        return reader.problems
    return CompiledFilter(
        source=source,
        source_json=source_json,
        rule=rule,
        required=tuple(required(rule))[:REQUIRED_MAX] if rule is not None else (),
    )


__all__ = [
    "CLOSEST_OF",
    "CONDITIONS_MAX",
    "DEPTH_MAX",
    "OPERATORS",
    "SET_VALUES_MAX",
    "SHOWN_CHARACTERS_MAX",
    "SOURCE_CHARACTERS_MAX",
    "CompiledFilter",
    "ConditionOutcome",
    "Explanation",
    "Operator",
    "compile_filter",
    "filter_to_json",
]
