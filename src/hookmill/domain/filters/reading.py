"""From a filter's source to its rule, or to everything that is wrong with it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hookmill.domain.errors import Fault
from hookmill.domain.filters.names import is_misspelt_operator, is_operator_name, letters_of
from hookmill.domain.filters.operators import OPERATORS, Operator
from hookmill.domain.filters.rendering import pointer_step, shown
from hookmill.domain.filters.rules import AllOf, Condition, ObjectRule, Rule, all_of
from hookmill.domain.filters.values import MISSING, scalar
from hookmill.domain.payload import Json

DEPTH_MAX: Final = 10
"""Levels on the way from the top to a condition: fields, `$any` and `$not`."""
CONDITIONS_MAX: Final = 64
"""Operators in one filter: a bare array counts as one, `$fields` as none."""
LOOKS_MAX: Final = 10
"""Conditions on the same field. Each of them reads all of a long array, so this bounds the time of a filter."""
_READ_MAX: Final = 1_000
"""Conditions and problems after which the rest of a hopeless filter is left unread."""
_NAME_SHOWN_MAX: Final = 40

NOTHING: Final = AllOf(())
"""Stands where a rule can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where in the filter something stands."""

    pointer: str = ""
    depth: int = 0
    field_path: tuple[str, ...] = ()
    """The field that it is about. Empty: the whole body."""

    @property
    def is_body(self) -> bool:
        return not self.field_path

    def step(self, step: str | int) -> "Position":
        """On the same level: an operator's operand, or a value in it."""
        return replace(self, pointer=f"{self.pointer}/{step}")

    def inside(self, index: int | None = None) -> "Position":
        """A level deeper, about the same value: what `$any` and `$not` contain."""
        pointer = self.pointer if index is None else f"{self.pointer}/{index}"
        return replace(self, pointer=pointer, depth=self.depth + 1)

    def field(self, name: str) -> "Position":
        """A level deeper, about a field."""
        return Position(
            pointer=f"{self.pointer}/{pointer_step(name)}", depth=self.depth + 1, field_path=(*self.field_path, name)
        )


@dataclass(slots=True, kw_only=True)
class Reader:
    """Turns a filter's source into rules, and notes every problem on the way."""

    problems: list[Fault] = field(default_factory=list)
    conditions: int = 0
    beyond_contract: list[str] = field(default_factory=list)
    """Pointers to the operators that the contract has not."""
    looks: dict[tuple[str, ...], list[Position]] = field(default_factory=lambda: defaultdict(list))
    """For each field, where the conditions on it stand."""

    def refuse(self, at: Position, message: str) -> None:
        self.problems.append(Fault(at.pointer, message))

    def rule(self, source: Json, at: Position) -> Rule:
        """The rule on one value: on the body, or on a field."""
        if self.conditions + len(self.problems) > _READ_MAX:
            return NOTHING
        if at.depth > DEPTH_MAX:
            self.refuse(at, f"A filter nests at most {DEPTH_MAX} levels deep. Choose a field further up.")
            return NOTHING
        if type(source) is list and not at.is_body:
            return self._conditions({"in": source}, {"in": at}, at)
        if type(source) is not dict:
            self.refuse(at, _NOT_A_FILTER if at.is_body else f"{_NOT_AN_ARRAY}{_meant(at)}")
            return NOTHING
        if not source:
            self.refuse(at, 'An empty object asks for nothing. Name a field, or write {"exists": true}.')
            return NOTHING
        return self._object(source, at)

    def fields(self, source: Mapping[Any, Json], at: Position) -> ObjectRule:
        """The rule on an object that has these fields. Every key is a field's name."""
        rules: dict[str, Rule] = {}
        for name, wanted in source.items():
            if type(name) is str:
                rules[name] = self.rule(wanted, at.field(name))
            else:
                self.refuse(at, f"Field names are strings. Put {shown(name)} in quotes.")
        self.looks[at.field_path].append(at)
        return ObjectRule(rules)

    def _object(self, source: Mapping[Any, Json], at: Position) -> Rule:
        operators = {key: of for key, of in source.items() if is_operator_name(key, at_top=at.is_body)}
        fields = {key: of for key, of in source.items() if key not in operators}
        known = {name: of for name, of in operators.items() if self._is_known(name, at)}
        if known and fields:
            self.refuse(
                at,
                f"`{next(iter(known))}` is an operator and {shown(next(iter(fields)))} is none. An object holds only "
                'operators or only fields. To ask for both, put the fields into {"$fields": {…}}.',
            )
        nested = self._fields_without_misspelt_operators(fields, at) if fields else NOTHING
        return self._conditions(known, {name: at.step(name) for name in known}, at) if known else nested

    def _fields_without_misspelt_operators(self, fields: dict[Any, Json], at: Position) -> Rule:
        known = dict(fields)
        for name in fields:
            if type(name) is str and not at.is_body and is_misspelt_operator(name):
                self.refuse(at.field(name), f"Unknown operator. {_OPERATORS_ARE}{_as_field(name)}")
                del known[name]
        return self.fields(known, at)

    def _is_known(self, name: str, at: Position) -> bool:
        operator = OPERATORS.get(name)
        if operator is None:
            self.refuse(at.field(name), f"{_unknown(name, at)}{_as_field(name)}")
            return False
        if at.is_body and not operator.may_take_body:
            message = f"`{name}` is about one field. Write it below the field's name, as in {operator.example}."
            self.refuse(at.step(name), f"{message}{_as_field(name)}")
            return False
        return True

    def _conditions(self, operators: Mapping[str, Json], places: Mapping[str, Position], at: Position) -> Rule:
        rules: dict[str, Rule] = {}
        for name, source in operators.items():
            rule = self._condition(OPERATORS[name], source, places[name])
            if rule is not None:
                rules[name] = rule
        self._refuse_contradictions(rules, at)
        return all_of(list(rules.values()))

    def _condition(self, operator: Operator, source: Json, at: Position) -> Rule | None:
        if not operator.is_of_contract:
            self.beyond_contract.append(at.pointer)
        before = len(self.problems)
        operand = operator.read(self, source, at)
        if len(self.problems) > before and not operator.is_of_contract and type(source) in (list, dict):
            self._suggest_field(operator.name, self.problems[before], before, at)
        rule = operator.rule(operator, operand, source) if operand is not None else None
        if not isinstance(rule, ObjectRule):
            self.conditions += 1
            if rule is not None and not operator.parts(operand):
                self.looks[at.field_path].append(at)
        return rule

    def refuse_what_costs_too_much(self) -> None:
        """For a filter that was read to its end."""
        if self.conditions > CONDITIONS_MAX:
            self.refuse(Position(), f"The filter has more than {CONDITIONS_MAX} conditions. Drop some.")
        for path, places in self.looks.items():
            if len(places) > LOOKS_MAX:
                of = f"field {shown('.'.join(path)[:_NAME_SHOWN_MAX])}" if path else "body"
                self.refuse(
                    places[LOOKS_MAX],
                    f"More than {LOOKS_MAX} conditions on the {of}. Use several triggers instead of one.",
                )

    def _suggest_field(self, name: str, problem: Fault, place: int, at: Position) -> None:
        """What can't be the operator's operand may have been written below a field of that name."""
        if problem.pointer.count("/") <= at.pointer.count("/") + 1 and '{"$fields"' not in problem.message:
            self.problems[place] = Fault(problem.pointer, f"{problem.message}{_as_field(name)}")

    def _refuse_contradictions(self, rules: Mapping[str, Rule], at: Position) -> None:
        exists = rules.get("exists")
        if isinstance(exists, Condition) and exists.operand is False:
            for name, rule in rules.items():
                if rule is not exists and not rule.holds(MISSING):
                    self.refuse(at.step("exists"), f"`{name}` fails for an absent field. Drop `exists` or `{name}`.")
                    break
        wanted, unwanted = rules.get("in"), rules.get("not_in")
        if isinstance(wanted, Condition) and isinstance(unwanted, Condition):
            for index, value in enumerate(unwanted.source):
                if scalar(value) in wanted.operand:
                    place = at.step("not_in").step(index)
                    self.refuse(place, "`in` and `not_in` both hold this value. Drop one.")


_OPERATORS_ARE: Final = f"Operators are {', '.join(OPERATORS)}."
_NOT_A_FILTER: Final = 'A filter is an object such as {"action": ["opened"]}.'
_NOT_AN_ARRAY: Final = 'Write the values as an array, such as ["opened"], or an object for nested fields.'


def _meant(at: Position) -> str:
    """What somebody may have meant who wrote a plain value."""
    if at.depth == 1:
        return ""
    name = at.pointer.rpartition("/")[2]
    return f" For the operator write `${name}`." if f"${name}" in OPERATORS else f" {_OPERATORS_ARE}"


def _unknown(name: str, at: Position) -> str:
    # It is seldom needed, and every start of a command would load it.
    from difflib import get_close_matches

    usable = [other for other, operator in OPERATORS.items() if operator.may_take_body or not at.is_body]
    letters = {letters_of(other): other for other in usable}
    close = letters.get(letters_of(name)) or next(
        iter(get_close_matches(name[:_NAME_SHOWN_MAX], usable, n=1, cutoff=0.75)), None
    )
    meant = f" Did you mean `{close}`?" if close is not None else ""
    return f"Unknown operator.{meant} Here operators are {', '.join(usable)}."


def _as_field(name: str) -> str:
    """How to ask for a field of this name. It says so wherever the name may have been meant as a field's."""
    return f' For a field of this name write {{"$fields": {{{shown(name[:_NAME_SHOWN_MAX])}: …}}}}.'
