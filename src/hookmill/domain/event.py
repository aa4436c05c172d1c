"""The event type of a delivery, such as `push` or `invoice.paid`.

A provider puts it into a header or into the body. It counts as signed only if the signature covers that place.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from hookmill.domain.delivery import Attempt
from hookmill.domain.payload import Parsed
from hookmill.domain.signatures.reading import value_at

EVENT_CHARACTERS_MAX: Final = 200
"""The maximum length of an event type."""


class EventType(NamedTuple):
    """An event type. `is_signed`: whether the signature covers it."""

    name: str
    is_signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """The location of the event type in a webhook's deliveries: a header, or a path in the body."""

    header: bytes | None = None
    """In lower case, as header names arrive."""
    path: tuple[str, ...] = ()
    is_signed: bool = False

    @classmethod
    def parse(cls, source: str, *, is_signed: bool) -> Self:
        """`source` is `header:NAME` or `json:PATH`, where PATH has dots between the names of nested fields."""
        kind, _, name = source.partition(":")
        if kind == "header":
            return cls(header=name.lower().encode(), is_signed=is_signed)
        return cls(path=tuple(name.split(".")), is_signed=is_signed)


def event_type(source: EventSource, attempt: Attempt, body: Parsed | None) -> EventType | None:
    """The event type of the attempt; None if it is missing or unusable, which is no reason to reject the attempt.

    `body` is None if it is not JSON, or was not read.
    """
    name = _name_in_header(source.header, attempt) if source.header is not None else _name_in_body(source.path, body)
    return EventType(name, source.is_signed) if name is not None and is_event_type(name) else None


def is_event_type(name: str) -> bool:
    """Whether the text is a valid event type: 1 to 200 printable characters, not all of them spaces."""
    return len(name) <= EVENT_CHARACTERS_MAX and name.isprintable() and bool(name.strip())


def _name_in_header(header: bytes, attempt: Attempt) -> str | None:
    # With two different values, the sender's intention is unknown.
    if header in attempt.conflicting_headers:
        return None
    value = attempt.headers.get(header)
    if value is None:
        return None
    try:
        return value.strip(b" \t").decode()
    except UnicodeDecodeError:
        return None


def _name_in_body(path: tuple[str, ...], body: Parsed | None) -> str | None:
    value = value_at(body.value, path) if body is not None else None
    return value if type(value) is str else None
