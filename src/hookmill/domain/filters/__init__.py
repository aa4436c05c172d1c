"""Payload filters select the deliveries that start a run. A filter has the structure of the payload that it matches.

`{"action": ["opened"], "repository": {"private": {"not_in": [true]}}}`: every key must match. A key's value is an
array (one of these values), an object of operators (all must hold) or an object of nested fields.

    operators.py    the operator table: defines every operator
    names.py        which keys are operators and which are fields
    compiler.py     compiles a filter to its rule, or reports every problem
    position.py     positions in a filter's source
    rules.py        evaluation, which runs for every delivery, and what an operator is
    shortcut.py     strings that every matching body contains; without them, the body is not decoded
    explanation.py  why a payload matches, or does not
    values.py       equality and order of JSON values
    globs.py        patterns for strings
    rendering.py    a filter's values as text

docs/filters.md describes the semantics.
"""

from typing import Final

from hookmill.domain.errors import Fault
from hookmill.domain.filters.compiler import (
    CONDITIONS_MAX,
    CONDITIONS_PER_FIELD_MAX,
    DEPTH_MAX,
    FilterCompiler,
)
from hookmill.domain.filters.explanation import CLOSEST_OBJECTS_MAX, ConditionOutcome, Explanation, outcomes
from hookmill.domain.filters.globs import PATTERN_CHARACTERS_MAX
from hookmill.domain.filters.names import CONTRACT_OPERATORS, fields_in, with_fields
from hookmill.domain.filters.operators import ALTERNATIVES_MAX, OPERATORS, SET_VALUES_MAX
from hookmill.domain.filters.position import Position
from hookmill.domain.filters.rendering import SHOWN_CHARACTERS_MAX, exact_json, pointer_step, text_of
from hookmill.domain.filters.rules import Rule
from hookmill.domain.filters.shortcut import REQUIRED_MAX, required_groups_of
from hookmill.domain.payload import Json, Parsed

SOURCE_CHARACTERS_MAX: Final = 64 * 1_024
"""The maximum length of a filter as JSON in ASCII."""


class CompiledFilter:
    """A filter that is ready for evaluation. Evaluation takes time linear in the payload, and a bounded stack.

    Filters are equal if their texts are. This is no dataclass, so that specs read it with `read`.
    """

    __slots__ = ("pointers_beyond_contract", "required_groups", "rule", "source", "source_json")

    def __init__(
        self, source: Json, source_json: str, pointers_beyond_contract: tuple[str, ...], rule: Rule | None
    ) -> None:
        self.source = source
        """The filter as the user wrote it."""
        self.source_json = source_json
        """The filter as JSON in ASCII with exact numbers, which is the stored form."""
        self.pointers_beyond_contract = pointers_beyond_contract
        """JSON pointers to the filter's operators that are not in the contract."""
        self.rule = rule
        """None if the filter has no conditions. Then every payload matches."""
        self.required_groups = tuple(required_groups_of(rule))[:REQUIRED_MAX] if rule is not None else ()
        """Groups of strings, as JSON spells them. A matching body contains at least one string of each group."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledFilter) and self.source_json == other.source_json

    def __hash__(self) -> int:
        return hash(self.source_json)

    def __repr__(self) -> str:
        return f"CompiledFilter({self.source_json})"

    @classmethod
    def read(cls, source: Json) -> "CompiledFilter | list[Fault]":
        """The filter of a spec."""
        return compile_filter(source)

    def matches(self, payload: Parsed) -> bool:
        """Whether the payload matches."""
        if self.rule is None:
            return True
        for spellings in self.required_groups:
            if payload.surely_contains_none_of(spellings):
                return False
        return self.rule.holds(payload.value)

    def explain(self, payload: Parsed) -> Explanation:
        """Whether the payload matches, and why."""
        conditions = tuple(outcomes(self.rule, payload.value, at="")) if self.rule is not None else ()
        return Explanation(matched=self.matches(payload), conditions=conditions)


def compile_filter(source: Json) -> CompiledFilter | list[Fault]:
    """The compiled filter, or every problem. `source` may be any JSON or YAML value. Never raises.

    A Python float counts as its shortest decimal form. `payload.parse` returns decimals exactly.
    """
    compiler = FilterCompiler()
    matches_all = type(source) is dict and not source
    rule = compiler.compile_rule(source, Position()) if not matches_all else None
    compiler.report_if_expensive()
    if compiler.problems:
        return compiler.problems
    source_json = exact_json(source)
    if len(source_json) > SOURCE_CHARACTERS_MAX:
        compiler.report(Position(), f"The filter has more than {SOURCE_CHARACTERS_MAX:,} characters. Shorten it.")
        return compiler.problems
    return CompiledFilter(source, source_json, tuple(compiler.pointers_beyond_contract), rule)


__all__ = [
    "ALTERNATIVES_MAX",
    "CLOSEST_OBJECTS_MAX",
    "CONDITIONS_MAX",
    "CONDITIONS_PER_FIELD_MAX",
    "CONTRACT_OPERATORS",
    "DEPTH_MAX",
    "OPERATORS",
    "PATTERN_CHARACTERS_MAX",
    "SET_VALUES_MAX",
    "SHOWN_CHARACTERS_MAX",
    "SOURCE_CHARACTERS_MAX",
    "CompiledFilter",
    "ConditionOutcome",
    "Explanation",
    "compile_filter",
    "exact_json",
    "fields_in",
    "pointer_step",
    "text_of",
    "with_fields",
]
