"""The rules of a compiled filter, which are evaluated for every delivery, and what an operator is.

A rule's `holds` accepts any JSON value or `MISSING`, and never raises. Its `test` is a pair: a function, and the
function's first argument. With a value as the second argument, the function returns the same as `holds`. A rule stores
the tests of its inner rules, which saves one call for each condition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from hookmill.domain.filters.position import Position
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

Test: TypeAlias = tuple[Callable[[Any, Json], bool], Any]
Group: TypeAlias = tuple[bytes, ...]
"""Strings, as JSON spells them. A matching body contains at least one of them."""


class Condition:
    """One operator with its operand, for one value."""

    __slots__ = ("operand", "operator", "source")

    def __init__(self, operator: "Operator", operand: Any, source: Json) -> None:
        self.operator = operator
        self.operand = operand
        self.source = source

    @property
    def test(self) -> Test:
        return self.operator.holds, self.operand

    def holds(self, value: Json) -> bool:
        return self.operator.holds(self.operand, value)


class AllOf:
    """Several rules for one value. All must hold."""

    __slots__ = ("_tests", "rules")

    def __init__(self, rules: "Sequence[Rule]") -> None:
        self.rules = tuple(rules)
        self._tests = tuple(rule.test for rule in rules)

    @property
    def test(self) -> Test:
        return AllOf.holds, self

    def holds(self, value: Json) -> bool:
        # Here and below, a loop takes half the time of a generator.
        for holds, operand in self._tests:  # noqa: SIM110
            if not holds(operand, value):
                return False
        return True


class ObjectRule:
    """Rules for the fields of an object. All must hold. In an array, all must hold for at least one element."""

    __slots__ = ("_required_fields", "_tests", "fields")

    def __init__(self, fields: "Mapping[str, Rule]") -> None:
        self.fields = fields
        self._tests = tuple((name, *rule.test) for name, rule in fields.items())
        self._required_fields = frozenset(name for name, rule in fields.items() if not rule.holds(MISSING))

    @property
    def test(self) -> Test:
        return ObjectRule.holds, self

    def holds(self, value: Json) -> bool:
        if type(value) is dict:
            return self.holds_for_object(value)
        if type(value) is list:
            return any(self.holds_for_object(element) for element in value if type(element) is dict)
        return False

    def holds_for_object(self, candidate: dict[str, Json]) -> bool:
        if len(self._tests) <= len(candidate):
            for name, holds, operand in self._tests:  # noqa: SIM110
                if not holds(operand, candidate.get(name, MISSING)):
                    return False
            return True
        # The rule has more fields than the object. Iterating over the object keeps the time linear in the payload. The
        # constructor has computed which fields must be present.
        if not candidate.keys() >= self._required_fields:
            return False
        for name, value in candidate.items():
            if name in self.fields and not self.fields[name].holds(value):
                return False
        return True

    def count_matching_fields(self, candidate: dict[str, Json]) -> int:
        return sum(rule.holds(candidate.get(name, MISSING)) for name, rule in self.fields.items())


Rule: TypeAlias = Condition | AllOf | ObjectRule


class OperandReader(Protocol):
    """What an operator needs of the compiler to read its operand."""

    def report(self, at: Position, message: str) -> None: ...

    def compile_rule(self, source: Json, at: Position) -> Rule: ...

    def compile_fields(self, source: Mapping[Any, Json], at: Position) -> ObjectRule: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One entry of the operator table in operators.py."""

    name: str
    example: str
    """A filter with the operator, as JSON."""
    meaning: str
    """The end of a sentence that begins with "It matches if"."""
    schema: Mapping[str, Json]
    """The JSON Schema of the operand."""
    read: Callable[[OperandReader, Json, Position], Any]
    """Validates and compiles the operand. If the operand is invalid, reports that to the compiler and returns None."""
    holds: Callable[[Any, Json], bool]
    """Whether a field's value, which may be `MISSING`, satisfies the operand. Never raises."""
    required_group: Callable[[Any], Group] = lambda _: ()
    """Strings of which a matching body contains at least one; empty if no such strings can be determined."""
    parts: Callable[[Any], Sequence[Rule]] = lambda _: ()
    """The rules in the operand. An explanation shows each of them."""
    make_rule: "Callable[[Operator, Any, Json], Rule]" = Condition
    """Makes the rule from the operator, the compiled operand and the operand's source."""
    may_take_body: bool = False
    """Whether the operator is allowed at the filter's top level, where it applies to the whole body."""

    @property
    def is_of_contract(self) -> bool:
        return not self.name.startswith("$")


def all_of(rules: Sequence[Rule]) -> Rule:
    """One rule that holds if all of these rules hold."""
    return rules[0] if len(rules) == 1 else AllOf(rules)
