"""Distinguishes the operators from the fields among a filter's keys."""

from collections.abc import Mapping
from typing import Any, Final

from hookmill.domain.payload import Json

CONTRACT_OPERATORS: Final = ("in", "not_in", "exists")
"""The contract's operators. The names of all other operators start with `$`, so that they can't be mistaken for
fields."""
FIELDS_OPERATOR: Final = "$fields"
"""The operator whose operand contains only fields."""


def is_operator_name(key: Any, *, is_body: bool) -> bool:
    """Whether the key stands for an operator. Every key with `$` does, even if no operator has this name.

    `is_body`: at the filter's top level, where the contract's names are fields.
    """
    return type(key) is str and (key.startswith("$") or (key in CONTRACT_OPERATORS and not is_body))


def is_misspelt_operator(key: str) -> bool:
    """Whether the key is an operator of the contract with wrong punctuation or capitals, such as `not-in` or `notIn`.

    `IN` counts as a field, because it is also the code of a country and of a state.
    """
    return key.lower() not in CONTRACT_OPERATORS and letters_of(key) in _CONTRACT_LETTERS


def letters_of(key: str) -> str:
    """The key in lower case, without punctuation."""
    return key.lower().translate(_WITHOUT_PUNCTUATION)


_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", "$_- ")
_CONTRACT_LETTERS: Final = frozenset(map(letters_of, CONTRACT_OPERATORS))


def fields_in(source: Mapping[str, Json], *, is_body: bool) -> Mapping[str, Json] | None:
    """The fields in this object of a filter; None if it contains only operators."""
    if FIELDS_OPERATOR in source:
        fields: Mapping[str, Json] = source[FIELDS_OPERATOR]
        return fields
    if any(is_operator_name(key, is_body=is_body) for key in source):
        return None
    return source


def with_fields(source: Mapping[str, Json], fields: Mapping[str, Json], *, is_body: bool) -> dict[str, Json]:
    """The object with these fields instead of its own fields. If necessary, the fields are in `$fields`."""
    operators = {
        key: operand
        for key, operand in source.items()
        if key != FIELDS_OPERATOR and is_operator_name(key, is_body=is_body)
    }
    if not fields:
        return operators
    if operators or FIELDS_OPERATOR in source or any(_needs_fields_operator(name, is_body=is_body) for name in fields):
        return {**operators, FIELDS_OPERATOR: dict(fields)}
    return dict(fields)


def _needs_fields_operator(name: str, *, is_body: bool) -> bool:
    return is_operator_name(name, is_body=is_body) or (not is_body and is_misspelt_operator(name))
