"""Compiles a filter's source to a rule, and reports every problem in it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.domain.errors import Fault
from hookmill.domain.filters.names import is_misspelt_operator, is_operator_name, letters_of
from hookmill.domain.filters.operators import OPERATORS
from hookmill.domain.filters.position import Position
from hookmill.domain.filters.rendering import display_text
from hookmill.domain.filters.rules import AllOf, Condition, ObjectRule, Operator, Rule, all_of
from hookmill.domain.filters.values import MISSING, typed_scalar
from hookmill.domain.payload import Json

DEPTH_MAX: Final = 10
"""The maximum number of levels from the top to a condition: fields, `$any` and `$not`."""
CONDITIONS_MAX: Final = 64
"""The maximum number of operators in one filter. A bare array counts as one operator; `$fields` does not count."""
CONDITIONS_PER_FIELD_MAX: Final = 10
"""The maximum number of conditions on one field. Each may scan a long array, so the maximum limits evaluation time."""
_CONDITIONS_AND_PROBLEMS_MAX: Final = 1_000
"""Compilation stops when there are more conditions and problems. Such a filter is over a limit, or has problems."""
_NAME_SHOWN_MAX: Final = 40

PLACEHOLDER_RULE: Final = AllOf(())
"""Stands for a rule that can't be compiled, and for the fields of an object that has no fields."""


@dataclass(slots=True, kw_only=True)
class FilterCompiler:
    """Compiles a filter's source to rules, and collects every problem."""

    problems: list[Fault] = field(default_factory=list)
    condition_count: int = 0
    pointers_beyond_contract: list[str] = field(default_factory=list)
    """Pointers to the operators that are not in the contract."""
    positions_by_field: dict[tuple[str, ...], list[Position]] = field(default_factory=lambda: defaultdict(list))
    """The positions of the conditions on each field, by the field's path."""

    def report(self, at: Position, message: str) -> None:
        self.problems.append(Fault(at.pointer, message))

    def compile_rule(self, source: Json, at: Position) -> Rule:
        """The rule for one value: the body, or a field."""
        if self.condition_count + len(self.problems) > _CONDITIONS_AND_PROBLEMS_MAX:
            return PLACEHOLDER_RULE
        if at.depth > DEPTH_MAX:
            self.report(at, f"A filter nests at most {DEPTH_MAX} levels deep. Choose a field further up.")
            return PLACEHOLDER_RULE
        if type(source) is list and not at.is_body:
            return self._compile_conditions({"in": source}, {"in": at}, at)
        if type(source) is not dict:
            self.report(at, _NOT_A_FILTER if at.is_body else f"{_NOT_AN_ARRAY}{_operator_hint(at)}")
            return PLACEHOLDER_RULE
        if not source:
            self.report(at, 'An empty object contains no condition. Add a field, or write {"exists": true}.')
            return PLACEHOLDER_RULE
        return self._compile_object(source, at)

    def compile_fields(self, source: Mapping[Any, Json], at: Position) -> ObjectRule:
        """The rule for an object with these fields. Every key is the name of a field."""
        rules: dict[str, Rule] = {}
        for name, condition in source.items():
            if type(name) is str:
                rules[name] = self.compile_rule(condition, at.nested_field(name))
            else:
                self.report(at, f"Field names are strings. Put {display_text(name)} in quotes.")
        # An object counts as one condition on its field, because it may scan a long array of objects.
        self.positions_by_field[at.field_path].append(at)
        return ObjectRule(rules)

    def _compile_object(self, source: Mapping[Any, Json], at: Position) -> Rule:
        operators = {key: operand for key, operand in source.items() if is_operator_name(key, is_body=at.is_body)}
        fields = {key: condition for key, condition in source.items() if key not in operators}
        usable_operators = {name: operand for name, operand in operators.items() if self._is_usable_operator(name, at)}
        if usable_operators and fields:
            self.report(
                at,
                f"`{next(iter(usable_operators))}` is an operator and {display_text(next(iter(fields)))} is a field. "
                'An object contains only operators or only fields. To use both, put the fields into {"$fields": {…}}.',
            )
        # Even if operators and fields are mixed, the fields are compiled, so that their problems are reported.
        object_rule = self._compile_usable_fields(fields, at) if fields else PLACEHOLDER_RULE
        if not usable_operators:
            return object_rule
        positions = {name: at.operand(name) for name in usable_operators}
        return self._compile_conditions(usable_operators, positions, at)

    def _compile_usable_fields(self, fields: dict[Any, Json], at: Position) -> Rule:
        """The rule for the fields. A misspelt operator is reported and left out."""
        remaining = dict(fields)
        for name in fields:
            if type(name) is str and not at.is_body and is_misspelt_operator(name):
                self.report(at.nested_field(name), f"Unknown operator. {_OPERATORS_ARE}{_fields_hint(name)}")
                del remaining[name]
        return self.compile_fields(remaining, at)

    def _is_usable_operator(self, name: str, at: Position) -> bool:
        """Whether the operator exists and is allowed here. If not, the problem is reported."""
        operator = OPERATORS.get(name)
        if operator is None:
            self.report(at.nested_field(name), f"{_unknown_operator_message(name, at)}{_fields_hint(name)}")
            return False
        if at.is_body and not operator.may_take_body:
            message = f"`{name}` applies to one field. Write it below the field's name, as in {operator.example}."
            self.report(at.operand(name), f"{message}{_fields_hint(name)}")
            return False
        return True

    def _compile_conditions(
        self, operators: Mapping[str, Json], positions: Mapping[str, Position], at: Position
    ) -> Rule:
        rules: dict[str, Rule] = {}
        for name, source in operators.items():
            rule = self._compile_condition(OPERATORS[name], source, positions[name])
            if rule is not None:
                rules[name] = rule
        self._report_contradictions(rules, at)
        return all_of(list(rules.values()))

    def _compile_condition(self, operator: Operator, source: Json, at: Position) -> Rule | None:
        if not operator.is_of_contract:
            self.pointers_beyond_contract.append(at.pointer)
        first_new_index = len(self.problems)
        operand = operator.read(self, source, at)
        if len(self.problems) > first_new_index and not operator.is_of_contract and type(source) in (list, dict):
            self._add_fields_hint(first_new_index, operator.name, at)
        rule = operator.make_rule(operator, operand, source) if operand is not None else None
        # For the limit of the whole filter, each operator counts, also `$any`, `$not` and those inside them, but not
        # `$fields`. For the limit of one field, `$any` and `$not` don't count themselves, only the operators inside.
        if not isinstance(rule, ObjectRule):
            self.condition_count += 1
            if rule is not None and not operator.parts(operand):
                self.positions_by_field[at.field_path].append(at)
        return rule

    def report_if_expensive(self) -> None:
        """Report a filter that is too expensive to evaluate. Call this after compiling the whole filter."""
        if self.condition_count > CONDITIONS_MAX:
            self.report(Position(), f"The filter has more than {CONDITIONS_MAX} conditions. Remove some.")
        for path, positions in self.positions_by_field.items():
            if len(positions) > CONDITIONS_PER_FIELD_MAX:
                target = f"field {display_text('.'.join(path)[:_NAME_SHOWN_MAX])}" if path else "body"
                self.report(
                    positions[CONDITIONS_PER_FIELD_MAX],
                    f"More than {CONDITIONS_PER_FIELD_MAX} conditions on the {target}. "
                    "Use several triggers instead of one.",
                )

    def _add_fields_hint(self, index: int, name: str, at: Position) -> None:
        """Add a hint to the problem at `index`: the user may have meant a field with the operator's name."""
        problem = self.problems[index]
        if _is_at_operand_or_element(problem, at) and '{"$fields"' not in problem.message:
            self.problems[index] = Fault(problem.pointer, f"{problem.message}{_fields_hint(name)}")

    def _report_contradictions(self, rules: Mapping[str, Rule], at: Position) -> None:
        exists = rules.get("exists")
        if isinstance(exists, Condition) and exists.operand is False:
            for name, rule in rules.items():
                is_empty_set = isinstance(rule, Condition) and not rule.source and name == "in"
                if rule is not exists and not rule.holds(MISSING) and not is_empty_set:
                    self.report(
                        at.operand("exists"), f"`{name}` fails for an absent field. Remove `exists` or `{name}`."
                    )
                    break
        in_values, not_in_values = rules.get("in"), rules.get("not_in")
        if isinstance(in_values, Condition) and isinstance(not_in_values, Condition):
            for index, value in enumerate(not_in_values.source):
                if typed_scalar(value) in in_values.operand:
                    position = at.operand("not_in").element(index)
                    self.report(position, "`in` and `not_in` both contain this value. Remove one of them.")


_OPERATORS_ARE: Final = f"Operators are {', '.join(OPERATORS)}."
_NOT_A_FILTER: Final = 'A filter is an object such as {"action": ["opened"]}.'
_NOT_AN_ARRAY: Final = 'Write the values as an array, such as ["opened"], or an object for nested fields.'


def _is_at_operand_or_element(problem: Fault, operand: Position) -> bool:
    """Whether the problem is at the operand or directly in it, not in a nested filter."""
    return problem.pointer.count("/") <= operand.pointer.count("/") + 1


def _operator_hint(at: Position) -> str:
    """A hint for a user who wrote a plain value, perhaps as the operand of an operator."""
    if at.depth == 1:
        # At the top level, every name is a field's.
        return ""
    name = at.pointer.rpartition("/")[2]
    return f" For the operator write `${name}`." if f"${name}" in OPERATORS else f" {_OPERATORS_ARE}"


def _unknown_operator_message(name: str, at: Position) -> str:
    # Imported here, because it is rarely needed and would delay the start of every command.
    from difflib import get_close_matches

    usable = [other for other, operator in OPERATORS.items() if operator.may_take_body or not at.is_body]
    operator_by_letters = {letters_of(other): other for other in usable}
    suggestion = operator_by_letters.get(letters_of(name)) or next(
        iter(get_close_matches(name[:_NAME_SHOWN_MAX], usable, n=1, cutoff=0.75)), None
    )
    hint = f" Did you mean `{suggestion}`?" if suggestion is not None else ""
    return f"Unknown operator.{hint} Operators allowed here are {', '.join(usable)}."


def _fields_hint(name: str) -> str:
    """How to write a condition on a field with this name, if the user may have meant a field."""
    return f' For a field of this name write {{"$fields": {{{display_text(name[:_NAME_SHOWN_MAX])}: …}}}}.'
