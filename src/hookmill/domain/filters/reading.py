"""From a filter's source to its rule, or to everything that is wrong with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.domain.errors import Fault
from hookmill.domain.filters.operators import OPERATORS
from hookmill.domain.filters.rendering import shown, token
from hookmill.domain.filters.rules import AllOf, Condition, ObjectRule, Rule, all_of
from hookmill.domain.filters.values import scalar
from hookmill.domain.payload import Json

DEPTH_MAX: Final = 10
"""Field names on the way from the top to a condition."""
CONDITIONS_MAX: Final = 64
"""Operators in one filter, a bare array counting as one."""
_READ_MAX: Final = 1_000
"""Conditions and problems after which the rest of a hopeless filter is left unread."""


@dataclass(slots=True, kw_only=True)
class Reader:
    """Turns a filter's source into rules, and notes every problem on the way."""

    problems: list[Fault] = field(default_factory=list)
    conditions: int = 0

    def refuse(self, pointer: str, message: str) -> None:
        self.problems.append(Fault(pointer, message))

    def object_rule(self, source: dict[Any, Json], at: str, depth: int) -> ObjectRule:
        fields: dict[str, Rule] = {}
        for name, wanted in source.items():
            if type(name) is not str:
                self.refuse(at, f"Field names are strings. Put {shown(name)} in quotes.")
                continue
            place = f"{at}/{token(name)}"
            if depth > 0 and _is_misspelt_operator(name):
                self.refuse(place, f"Unknown operator. {_OPERATORS_ARE}")
            else:
                fields[name] = self.field_rule(wanted, place, depth + 1)
        return ObjectRule(fields)

    def field_rule(self, wanted: Json, at: str, depth: int) -> Rule:
        if self.conditions + len(self.problems) > _READ_MAX:
            return _NO_CONDITIONS
        if depth > DEPTH_MAX:
            self.refuse(at, f"A filter reaches at most {DEPTH_MAX} fields deep. Choose a field further up.")
            return _NO_CONDITIONS
        if type(wanted) is list:
            return self.value_rule({"in": wanted}, at, lambda _: at)
        if type(wanted) is not dict:
            self.refuse(at, _NOT_AN_ARRAY if depth == 1 else f"{_NOT_AN_ARRAY} {_OPERATORS_ARE}")
            return _NO_CONDITIONS
        if not wanted:
            self.refuse(at, 'An empty object asks for nothing. Name a field, or write {"exists": true}.')
            return _NO_CONDITIONS
        operators = {key: of for key, of in wanted.items() if key in OPERATORS}
        fields = {key: of for key, of in wanted.items() if key not in OPERATORS}
        if operators and fields:
            mixed = f"`{next(iter(operators))}` is an operator and {shown(next(iter(fields)))} is none."
            self.refuse(at, f"{mixed} An object holds only operators or only fields. {_OPERATORS_ARE}")
        nested = self.object_rule(fields, at, depth) if fields else _NO_CONDITIONS
        return self.value_rule(operators, at, lambda name: f"{at}/{name}") if operators else nested

    def value_rule(self, operators: Mapping[str, Json], at: str, place_of: Callable[[str], str]) -> Rule:
        conditions: dict[str, Condition] = {}
        for name, source in operators.items():
            operand = OPERATORS[name].read(self, source, place_of(name))
            self.conditions += 1
            if operand is not None:
                conditions[name] = Condition(OPERATORS[name], operand, source)
        self._refuse_contradictions(conditions, at)
        return all_of(list(conditions.values()))

    def _refuse_contradictions(self, conditions: Mapping[str, Condition], at: str) -> None:
        wanted, unwanted, exists = (conditions.get(name) for name in ("in", "not_in", "exists"))
        if wanted and exists and exists.operand is False:
            self.refuse(f"{at}/exists", "An absent field is in no set. Drop `exists` or `in`.")
        if wanted and unwanted:
            for index, value in enumerate(unwanted.source):
                if scalar(value) in wanted.operand:
                    self.refuse(f"{at}/not_in/{index}", "`in` and `not_in` both hold this value. Drop one.")


_OPERATORS_ARE: Final = f"Operators are {', '.join(OPERATORS)}."
_NOT_AN_ARRAY: Final = 'Write the values as an array, such as ["opened"], or an object for nested fields.'
_NO_CONDITIONS: Final = AllOf(())

_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", "$_- ")
_OPERATOR_LETTERS: Final = frozenset(name.translate(_WITHOUT_PUNCTUATION) for name in OPERATORS)


def _is_misspelt_operator(key: str) -> bool:
    """`$in`, `not-in`, `notIn`: an operator but for punctuation. `IN` may be a field, such as a state's."""
    lowered = key.lower()
    return lowered not in OPERATORS and lowered.translate(_WITHOUT_PUNCTUATION) in _OPERATOR_LETTERS
