"""A filter that was read, as rules that decide about values. This runs for every delivery.

A rule's `holds` takes any JSON value or `MISSING` and never raises. Its `test` is the same as a function and that
function's first argument: a rule calls those of the rules in it, which spares a call for each condition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

if TYPE_CHECKING:
    from hookmill.domain.filters.operators import Operator

Test: TypeAlias = tuple[Callable[[Any, Json], bool], Any]


class Condition:
    """One operator with its operand, on one value."""

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
    """Several rules on one value; all must hold."""

    __slots__ = ("_tests", "rules")

    def __init__(self, rules: "Sequence[Rule]") -> None:
        self.rules = tuple(rules)
        self._tests = tuple(rule.test for rule in rules)

    @property
    def test(self) -> Test:
        return AllOf.holds, self

    def holds(self, value: Json) -> bool:
        # Plain loops here and below: a generator doubles the time.
        for holds, operand in self._tests:  # noqa: SIM110
            if not holds(operand, value):
                return False
        return True


class ObjectRule:
    """A rule for each named field of one object; all must hold. Of an array, one element must be such an object."""

    __slots__ = ("_required", "_tests", "fields")

    def __init__(self, fields: "Mapping[str, Rule]") -> None:
        self.fields = fields
        self._tests = tuple((name, *rule.test) for name, rule in fields.items())
        self._required = frozenset(name for name, rule in fields.items() if not rule.holds(MISSING))

    @property
    def test(self) -> Test:
        return ObjectRule.holds, self

    def holds(self, value: Json) -> bool:
        if type(value) is dict:
            return self.holds_for(value)
        if type(value) is list:
            return any(self.holds_for(element) for element in value if type(element) is dict)
        return False

    def holds_for(self, found: dict[str, Json]) -> bool:
        if len(self._tests) <= len(found):
            for name, holds, operand in self._tests:  # noqa: SIM110
                if not holds(operand, found.get(name, MISSING)):
                    return False
            return True
        # More fields than keys: going by the keys keeps the work in proportion to the payload. What absence
        # means for the other fields was evaluated when the rule was made.
        if not found.keys() >= self._required:
            return False
        for name, value in found.items():  # noqa: SIM110
            if name in self.fields and not self.fields[name].holds(value):
                return False
        return True

    def held_count(self, found: dict[str, Json]) -> int:
        """How many of the fields hold for this object."""
        return sum(rule.holds(found.get(name, MISSING)) for name, rule in self.fields.items())


Rule: TypeAlias = Condition | AllOf | ObjectRule


def all_of(rules: Sequence[Rule]) -> Rule:
    """One rule that holds when all of these do."""
    return rules[0] if len(rules) == 1 else AllOf(rules)
