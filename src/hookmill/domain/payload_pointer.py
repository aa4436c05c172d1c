"""JSON pointers into payloads: which ones an automation may use, and the value that one selects."""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

POINTER_CHARACTERS_MAX: Final = 200
Pointer = Annotated[
    str,
    Meta(
        pattern="^/",
        max_length=POINTER_CHARACTERS_MAX,
        extra={
            "phrase": f"a JSON pointer: a text of up to {POINTER_CHARACTERS_MAX} characters that begins with a slash"
        },
        examples=["/pull_request/number"],
    ),
]


def value_at(value: Json, steps: Sequence[str]) -> Json:
    """The value inside `value` at these unescaped steps of a pointer; `MISSING` if there is none."""
    for step in steps:
        if type(value) is dict:
            value = value.get(step, MISSING)
        elif type(value) is list and step.isascii() and step.isdigit() and len(step) < 6:
            index = int(step)
            value = value[index] if index < len(value) else MISSING
        else:
            return MISSING
    return value
