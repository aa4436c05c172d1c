"""The operator table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hookmill.domain.filters.shortcut import Group, spelled_whole
from hookmill.domain.filters.values import KINDS, MISSING, ValueSet, scalar
from hookmill.domain.payload import Json

if TYPE_CHECKING:
    from hookmill.domain.filters.reading import Reader

SET_VALUES_MAX: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One line of the operator table."""

    name: str
    read: "Callable[[Reader, Json, str], Any]"
    """The operand that stands there, checked; None once the problems are noted."""
    holds: Callable[[Any, Json], bool]
    """Whether a field's value, which may be `MISSING`, satisfies the operand. Never raises."""
    required: Callable[[Any], Group] = lambda _: ()
    """Strings of which a body must hold one for the operator to hold; none where that can't be known."""


# Sets


def _read_set(reader: "Reader", source: Json, at: str) -> ValueSet | None:
    if type(source) is not list:
        reader.refuse(at, 'Write an array of values, such as ["opened", "closed"].')
        return None
    if not source:
        reader.refuse(at, "An empty array matches no value. List at least one, or leave the field out.")
        return None
    if len(source) > SET_VALUES_MAX:
        reader.refuse(at, f"{len(source)} values in one array. Keep to {SET_VALUES_MAX} or fewer.")
        return None
    values = [scalar(value) for value in source]
    for index, value in enumerate(values):
        if value is None:
            reader.refuse(f"{at}/{index}", "Write a string, a finite number, true, false or null.")
    return None if None in values else frozenset(value for value in values if value is not None)


def _in_set(expected: ValueSet, value: Json) -> bool:
    if type(value) is list:
        return any((KINDS[type(one)], one) in expected for one in value if type(one) in KINDS)
    kind = KINDS.get(type(value))
    return kind is not None and (kind, value) in expected


def _not_in_set(expected: ValueSet, value: Json) -> bool:
    return not _in_set(expected, value)


def _required_of_set(expected: ValueSet) -> Group:
    return spelled_whole(value for _, value in expected) if all(kind == "string" for kind, _ in expected) else ()


# Presence


def _read_flag(reader: "Reader", source: Json, at: str) -> bool | None:
    if type(source) is not bool:
        reader.refuse(at, "Write true (the field must be present) or false (it must be absent).")
        return None
    return source


def _exists(expected: bool, value: Json) -> bool:
    return (value is not MISSING) is expected


OPERATORS: Final[Mapping[str, Operator]] = {
    operator.name: operator
    for operator in (
        Operator(name="in", read=_read_set, holds=_in_set, required=_required_of_set),
        Operator(name="not_in", read=_read_set, holds=_not_in_set),
        Operator(name="exists", read=_read_flag, holds=_exists),
    )
}
"""To add an operator, add a line here and its cases to the tests."""
