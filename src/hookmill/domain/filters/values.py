"""JSON values as a filter compares them: equal when kind and value are."""

import math
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Final, TypeAlias

from hookmill.domain.payload import Json, VastNumber


class Missing(Enum):
    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""The value of a field that is not there."""

ValueSet: TypeAlias = frozenset[tuple[str, Json]]

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


def scalar(source: Json) -> tuple[str, Json] | None:
    """A filter's value as its kind and itself, None for what is no JSON scalar."""
    if type(source) is float:
        return ("number", Decimal(repr(source))) if math.isfinite(source) else None
    if type(source) is Decimal and not source.is_finite():
        return None
    kind = KINDS.get(type(source))
    return (kind, source) if kind else None
