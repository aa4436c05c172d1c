"""The rules of a compiled filter, which are evaluated for every delivery.

A rule's `holds` accepts any JSON value or `MISSING`, and never raises. Its `test` is a pair: a function, and the
function's first argument. With a value as the second argument, the function returns the same as `holds`. A rule stores
the tests of its inner rules, which saves one call for each condition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

if TYPE_CHECKING:
    from hookmill.domain.filters.operators import Operator

Test: TypeAlias = tuple[Callable[[Any, Json], bool], Any]


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


def all_of(rules: Sequence[Rule]) -> Rule:
    """One rule that holds if all of these rules hold."""
    return rules[0] if len(rules) == 1 else AllOf(rules)
