"""JSON values as a filter compares them: equal when kind and value are, and numbers ordered by exact value."""

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
"""The value of a field that is not there."""

ValueSet: TypeAlias = frozenset[tuple[str, Json]]
Number: TypeAlias = int | Decimal | VastNumber

# Python holds True equal to 1; the kind beside the value tells them apart. An int and a Decimal of one value
# are equal and hash alike, so they share a kind.
KINDS: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    type(None): "null",
    int: "number",
    Decimal: "number",
    VastNumber: "number",
}
NUMBERS: Final = frozenset(kind for kind, name in KINDS.items() if name == "number")
_NATIVE_BITS: Final = 63


def scalar(source: Json) -> tuple[str, Json] | None:
    """A filter's value as its kind and itself, None for what is no JSON scalar."""
    if type(source) is float:
        return ("number", Decimal(repr(source))) if math.isfinite(source) else None
    if type(source) is Decimal and not source.is_finite():
        return None
    kind = KINDS.get(type(source))
    return (kind, source) if kind else None


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that others are compared with."""

    number: int | Decimal | None
    """None for one that only its order can tell."""
    order: "_Order"

    def is_below(self, value: Number) -> bool:
        if self.number is None or type(value) is VastNumber:
            return self.order.is_below(_order(value))
        return self.number < value  # type: ignore[operator]

    def is_above(self, value: Number) -> bool:
        if self.number is None or type(value) is VastNumber:
            return _order(value).is_below(self.order)
        return self.number > value  # type: ignore[operator]


def threshold(source: Json) -> Threshold | None:
    """The number that a filter names, None for what is no finite number."""
    kind, number = scalar(source) or ("", None)
    if kind != "number" or number is None:
        return None
    if type(number) is VastNumber:
        return Threshold(None, _order(number))
    # A long int would be converted again for each Decimal that it is compared with.
    native = Decimal(number) if type(number) is int and number.bit_length() > _NATIVE_BITS else number
    return Threshold(native, _order(number))


@dataclass(frozen=True, slots=True)
class _Order:
    """A number's place among all numbers, its exponent never written out."""

    sign: int
    first_digit_at: Decimal | int
    """The power of ten of the first digit."""
    digits: str

    def is_below(self, other: "_Order") -> bool:
        if self.sign != other.sign:
            return self.sign < other.sign
        one, two = (self.first_digit_at, self.digits), (other.first_digit_at, other.digits)
        return one < two if self.sign > 0 else two < one


def _order(number: Number) -> _Order:
    if type(number) is VastNumber:
        return _Order(-1 if number.negative else 1, number.first_digit_at, number.digits)
    exact = Decimal(number) if type(number) is int else number
    assert isinstance(exact, Decimal), "a VastNumber is handled above"
    if exact.is_zero():
        return _Order(0, 0, "")
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return _Order(-1 if exact.is_signed() else 1, exact.adjusted(), digits)
