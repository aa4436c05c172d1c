"""The operator table, which defines every operator of filters.

Compilation, evaluation, explanations, error texts, the JSON Schema, the help of the dashboard's editor and the table in
docs/filters.md all use it. To add an operator, add an entry, and follow the other steps in CONTRIBUTING.md.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hookmill.domain.filters.globs import PATTERN_CHARACTERS_MAX, Glob, read_glob
from hookmill.domain.filters.position import Position
from hookmill.domain.filters.rules import Group, ObjectRule, OperandReader, Operator, Rule
from hookmill.domain.filters.shortcut import (
    group_for_equal,
    group_for_prefix,
    group_for_substring,
    group_for_suffix,
    required_group_of_any,
)
from hookmill.domain.filters.values import (
    KINDS_BY_TYPE,
    MISSING,
    NUMBER_TYPES,
    Number,
    Threshold,
    ValueSet,
    threshold,
    typed_scalar,
)
from hookmill.domain.payload import Json

SET_VALUES_MAX: Final = 32
ALTERNATIVES_MAX: Final = 10


# Sets


def _read_set(compiler: OperandReader, source: Json, at: Position) -> ValueSet | None:
    if type(source) is not list:
        compiler.report(at, 'Write an array of values, such as ["opened", "closed"].')
        return None
    if len(source) > SET_VALUES_MAX:
        compiler.report(at, f"{len(source)} values in one array. Keep to {SET_VALUES_MAX} or fewer.")
        return None
    values = [typed_scalar(value) for value in source]
    for index, value in enumerate(values):
        if value is None:
            compiler.report(at.element(index), "Write a string, a finite number, true, false or null.")
    return None if None in values else frozenset(value for value in values if value is not None)


def _in_set(expected: ValueSet, value: Json) -> bool:
    if type(value) is list:
        return any(
            (KINDS_BY_TYPE[type(element)], element) in expected for element in value if type(element) in KINDS_BY_TYPE
        )
    kind = KINDS_BY_TYPE.get(type(value))
    return kind is not None and (kind, value) in expected


def _not_in_set(expected: ValueSet, value: Json) -> bool:
    return not _in_set(expected, value)


def _required_group_of_set(expected: ValueSet) -> Group:
    return group_for_equal(value for _, value in expected) if all(kind == "string" for kind, _ in expected) else ()


# Presence


def _read_flag(compiler: OperandReader, source: Json, at: Position) -> bool | None:
    if type(source) is not bool:
        compiler.report(at, "Write true (the field must be present) or false (it must be absent).")
        return None
    return source


def _exists(expected: bool, value: Json) -> bool:
    return (value is not MISSING) is expected


# Strings


def _read_text(compiler: OperandReader, source: Json, at: Position) -> str | None:
    if type(source) is not str or not source:
        compiler.report(at, 'Write a string of one or more characters, such as "refs/heads/".')
        return None
    return source


def _read_glob(compiler: OperandReader, source: Json, at: Position) -> Glob | None:
    if type(source) is not str:
        compiler.report(at, 'Write a string, such as "release/*".')
        return None
    if len(source) > PATTERN_CHARACTERS_MAX:
        compiler.report(at, f"{len(source):,} characters in one pattern. Keep to {PATTERN_CHARACTERS_MAX} or fewer.")
        return None
    glob = read_glob(source)
    if glob is None:
        compiler.report(at, r"A backslash must precede *, ? or another backslash. To match a backslash, write two.")
    return glob


def _text_test(holds: Callable[[Any, str], bool]) -> Callable[[Any, Json], bool]:
    return _test_of(frozenset([str]), holds)


def _test_of(types: frozenset[type], holds: Callable[[Any, Any], bool]) -> Callable[[Any, Json], bool]:
    """A test of values of these types, and of arrays with such an element."""

    def holds_for_value(operand: Any, value: Json) -> bool:
        if type(value) is list:
            return any(type(element) in types and holds(operand, element) for element in value)
        return type(value) in types and holds(operand, value)

    return holds_for_value


def _required_group_of_glob(glob: Glob) -> Group:
    return group_for_substring(max(glob.literals(), key=len, default=""))


# Numbers


def _read_threshold(compiler: OperandReader, source: Json, at: Position) -> Threshold | None:
    limit = threshold(source)
    if limit is None:
        compiler.report(at, "Write a finite number, such as 100.")
    return limit


def _comparison(holds: Callable[[Threshold, Number], bool]) -> Callable[[Any, Json], bool]:
    return _test_of(NUMBER_TYPES, holds)


# Filters inside filters


def _read_any(compiler: OperandReader, source: Json, at: Position) -> tuple[Rule, ...] | None:
    if type(source) is not list or not source:
        compiler.report(at, f"Write an array of alternatives, such as {_EXAMPLES_OF_ANY[at.is_body]}.")
        return None
    if len(source) > ALTERNATIVES_MAX:
        compiler.report(at, f"{len(source)} alternatives in one array. Keep to {ALTERNATIVES_MAX} or fewer.")
        return None
    return tuple(compiler.compile_rule(alternative, at.nested(index)) for index, alternative in enumerate(source))


_EXAMPLES_OF_ANY: Final = {
    False: '[["opened"], {"$prefix": "re"}]',
    True: '[{"action": ["opened"]}, {"draft": [false]}]',
}


def _holds_for_any(alternatives: Sequence[Rule], value: Json) -> bool:
    for rule in alternatives:  # noqa: SIM110
        if rule.holds(value):
            return True
    return False


def _read_negated(compiler: OperandReader, source: Json, at: Position) -> Rule:
    return compiler.compile_rule(source, at.nested())


def _holds_not(rule: Rule, value: Json) -> bool:
    return not rule.holds(value)


def _read_fields(compiler: OperandReader, source: Json, at: Position) -> ObjectRule | None:
    if type(source) is not dict or not source:
        compiler.report(at, 'Write an object of one or more fields, such as {"in": ["x"]}.')
        return None
    return compiler.compile_fields(source, at)


def _operand_as_rule(_: Operator, operand: ObjectRule, __: Json) -> Rule:
    return operand


_SET_SCHEMA: Final = {"$ref": "#/$defs/set"}
_TEXT_SCHEMA: Final = {"type": "string", "minLength": 1}
_NUMBER_SCHEMA: Final = {"type": "number"}

OPERATORS: Final[Mapping[str, Operator]] = {
    operator.name: operator
    for operator in (
        Operator(
            name="in",
            example='{"action": {"in": ["opened", "closed"]}}',
            meaning="the field is one of these values; a bare array means the same",
            schema=_SET_SCHEMA,
            read=_read_set,
            holds=_in_set,
            required_group=_required_group_of_set,
        ),
        Operator(
            name="not_in",
            example='{"action": {"not_in": ["closed"]}}',
            meaning="the field is none of these values, or is missing",
            schema=_SET_SCHEMA,
            read=_read_set,
            holds=_not_in_set,
        ),
        Operator(
            name="exists",
            example='{"milestone": {"exists": true}}',
            meaning="the field is present, even if it is null; with false, if it is missing",
            schema={"type": "boolean"},
            read=_read_flag,
            holds=_exists,
        ),
        Operator(
            name="$prefix",
            example='{"ref": {"$prefix": "refs/tags/"}}',
            meaning="the field is a string that starts with this",
            schema=_TEXT_SCHEMA,
            read=_read_text,
            holds=_text_test(lambda prefix, text: text.startswith(prefix)),
            required_group=group_for_prefix,
        ),
        Operator(
            name="$suffix",
            example='{"email": {"$suffix": "@example.com"}}',
            meaning="the field is a string that ends with this",
            schema=_TEXT_SCHEMA,
            read=_read_text,
            holds=_text_test(lambda suffix, text: text.endswith(suffix)),
            required_group=group_for_suffix,
        ),
        Operator(
            name="$glob",
            example='{"ref": {"$glob": "refs/heads/release-*"}}',
            meaning="the field is a string that fits the pattern: * is any text, ? one character",
            schema={"type": "string", "maxLength": PATTERN_CHARACTERS_MAX, "pattern": r"^([^\\]|\\[*?\\])*$"},
            read=_read_glob,
            holds=_text_test(Glob.matches),
            required_group=_required_group_of_glob,
        ),
        Operator(
            name="$gt",
            example='{"amount": {"$gt": 100}}',
            meaning="the field is a number that is greater",
            schema=_NUMBER_SCHEMA,
            read=_read_threshold,
            holds=_comparison(lambda limit, value: limit.is_below(value)),
        ),
        Operator(
            name="$gte",
            example='{"amount": {"$gte": 100}}',
            meaning="the field is a number that is greater or equal",
            schema=_NUMBER_SCHEMA,
            read=_read_threshold,
            holds=_comparison(lambda limit, value: not limit.is_above(value)),
        ),
        Operator(
            name="$lt",
            example='{"amount": {"$lt": 100}}',
            meaning="the field is a number that is less",
            schema=_NUMBER_SCHEMA,
            read=_read_threshold,
            holds=_comparison(lambda limit, value: limit.is_above(value)),
        ),
        Operator(
            name="$lte",
            example='{"amount": {"$lte": 100}}',
            meaning="the field is a number that is less or equal",
            schema=_NUMBER_SCHEMA,
            read=_read_threshold,
            holds=_comparison(lambda limit, value: not limit.is_below(value)),
        ),
        Operator(
            name="$any",
            example='{"state": {"$any": [["open"], {"$prefix": "re"}]}}',
            meaning="at least one of the alternatives matches",
            schema={
                "type": "array",
                "minItems": 1,
                "maxItems": ALTERNATIVES_MAX,
                "items": {"$ref": "#/$defs/field"},
            },
            read=_read_any,
            holds=_holds_for_any,
            required_group=required_group_of_any,
            parts=lambda alternatives: alternatives,
            may_take_body=True,
        ),
        Operator(
            name="$not",
            example='{"title": {"$not": {"$prefix": "WIP"}}}',
            meaning="the condition inside does not match",
            schema={"$ref": "#/$defs/field"},
            read=_read_negated,
            holds=_holds_not,
            parts=lambda rule: (rule,),
            may_take_body=True,
        ),
        Operator(
            name="$fields",
            example='{"rule": {"$fields": {"in": ["x"], "$ref": ["y"]}}}',
            meaning="the field is an object with these fields, even if they are named like operators",
            schema={"$ref": "#/$defs/named"},
            read=_read_fields,
            holds=ObjectRule.holds,
            make_rule=_operand_as_rule,
            may_take_body=True,
        ),
    )
}
