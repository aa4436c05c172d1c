"""Compares JSON values for filters. Values are equal if kind and value are equal; numbers are compared exactly."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final, TypeAlias

from hookmill.domain.payload import Json, VastNumber


class Missing(Enum):
    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""The value of an absent field."""

ValueSet: TypeAlias = frozenset[tuple[str, Json]]
Number: TypeAlias = int | Decimal | VastNumber

# In Python, True equals 1, so a value is compared together with its kind. An int and a Decimal with the same value are
# equal and have the same hash, so both have the kind "number".
KINDS_BY_TYPE: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    type(None): "null",
    int: "number",
    Decimal: "number",
    VastNumber: "number",
}
NUMBER_TYPES: Final = frozenset(json_type for json_type, kind in KINDS_BY_TYPE.items() if kind == "number")
_SHORT_INT_BITS: Final = 63


def typed_scalar(source: Json) -> tuple[str, Json] | None:
    """The kind and the value; None if the value is not a JSON scalar."""
    if type(source) is float:
        return ("number", Decimal(repr(source))) if math.isfinite(source) else None
    if type(source) is Decimal and not source.is_finite():
        return None
    kind = KINDS_BY_TYPE.get(type(source))
    return (kind, source) if kind else None


@dataclass(frozen=True, slots=True)
class Threshold:
    """The number in a filter with which a payload's numbers are compared."""

    number: int | Decimal | None
    """None for a VastNumber."""
    scientific: "_ScientificNumber"
    """The same number, for comparisons with a VastNumber."""

    def is_below(self, value: Number) -> bool:
        if self.number is None or type(value) is VastNumber:
            return self.scientific.is_below(_scientific(value))
        return self.number < value  # type: ignore[operator]

    def is_above(self, value: Number) -> bool:
        if self.number is None or type(value) is VastNumber:
            return _scientific(value).is_below(self.scientific)
        return self.number > value  # type: ignore[operator]


def threshold(source: Json) -> Threshold | None:
    """The threshold; None if the source is not a finite number."""
    kind, number = typed_scalar(source) or ("", None)
    if kind != "number" or number is None:
        return None
    if type(number) is VastNumber:
        return Threshold(None, _scientific(number))
    # Python converts an int for each comparison with a Decimal. For a long int, that is slow.
    is_long_int = type(number) is int and number.bit_length() > _SHORT_INT_BITS
    return Threshold(Decimal(number) if is_long_int else number, _scientific(number))


@dataclass(frozen=True, slots=True)
class _ScientificNumber:
    """A number as sign, exponent and digits, so that a huge exponent needs no expansion."""

    sign: int
    first_digit_power: Decimal | int
    """The power of ten of the first digit."""
    digits: str

    def is_below(self, other: "_ScientificNumber") -> bool:
        if self.sign != other.sign:
            return self.sign < other.sign
        # Digit strings without trailing zeros are in the same order as the numbers that they stand for.
        size, other_size = (self.first_digit_power, self.digits), (other.first_digit_power, other.digits)
        return size < other_size if self.sign > 0 else other_size < size


def _scientific(number: Number) -> _ScientificNumber:
    if type(number) is VastNumber:
        return _ScientificNumber(-1 if number.negative else 1, number.first_digit_power, number.digits)
    exact = Decimal(number) if type(number) is int else number
    assert isinstance(exact, Decimal), "a VastNumber is handled above"
    if exact.is_zero():
        return _ScientificNumber(0, 0, "")
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return _ScientificNumber(-1 if exact.is_signed() else 1, exact.adjusted(), digits)
