"""Which keys of a filter are operators and which are fields, and where an object's fields stand."""

from collections.abc import Mapping
from typing import Any, Final

from hookmill.domain.payload import Json

CONTRACT: Final = ("in", "not_in", "exists")
"""The operators that the contract names. Every further one starts with `$`, so that it can be no stored field."""
FIELDS: Final = "$fields"
"""The operator whose operand holds nothing but fields."""


def is_operator_name(key: Any, *, at_top: bool) -> bool:
    """Whether the key stands for an operator there. At the filter's top level the contract's names are fields."""
    return type(key) is str and (key.startswith("$") or (key in CONTRACT and not at_top))


def is_misspelt_operator(key: str) -> bool:
    """`not-in`, `notIn`: an operator of the contract but for punctuation. `IN` may be a field, such as a state's.

    Other operators have no part in this: they came later, when fields of such names were in filters already.
    """
    return key.lower() not in CONTRACT and letters_of(key) in _LETTERS


def letters_of(key: str) -> str:
    """What is left of a name when case and punctuation don't count."""
    return key.lower().translate(_WITHOUT_PUNCTUATION)


_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", "$_- ")
_LETTERS: Final = frozenset(map(letters_of, CONTRACT))


def fields_in(source: Mapping[str, Json], *, at_top: bool) -> Mapping[str, Json] | None:
    """The fields that this object of a filter asks for, None where it has operators only."""
    if FIELDS in source:
        fields: Mapping[str, Json] = source[FIELDS]
        return fields
    if any(is_operator_name(key, at_top=at_top) for key in source):
        return None
    return source


def with_fields(source: Mapping[str, Json], fields: Mapping[str, Json], *, at_top: bool) -> dict[str, Json]:
    """The object with these fields in place of those that it had. They are written below `$fields` where they must."""
    operators = {key: of for key, of in source.items() if key != FIELDS and is_operator_name(key, at_top=at_top)}
    if not fields:
        return operators
    if operators or FIELDS in source or any(_is_no_plain_field(name, at_top=at_top) for name in fields):
        return {**operators, FIELDS: dict(fields)}
    return dict(fields)


def _is_no_plain_field(name: str, *, at_top: bool) -> bool:
    return is_operator_name(name, at_top=at_top) or (not at_top and is_misspelt_operator(name))
