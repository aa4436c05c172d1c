"""The type of the event that a delivery reports, such as `push` or `invoice.paid`: what the sender says happened.

A provider puts it into a header or into the body. It counts as signed only where the signature covers that place.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from hookmill.domain.delivery import Attempt
from hookmill.domain.payload import Parsed
from hookmill.domain.signatures.reading import value_at

EVENT_CHARACTERS_MAX: Final = 200
"""A longer text is not taken for an event type."""


class EventType(NamedTuple):
    """`is_signed`: whether nobody could change it without the sender's secret."""

    name: str
    is_signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """Where a webhook's deliveries say what happened: in a header, or at a path in the body."""

    header: bytes | None = None
    """In lower case, as header names arrive."""
    path: tuple[str, ...] = ()
    is_signed: bool = False

    @classmethod
    def at(cls, where: str, *, is_signed: bool) -> Self:
        """`header:NAME` or `json:PATH`."""
        kind, _, name = where.partition(":")
        if kind == "header":
            return cls(header=name.lower().encode(), is_signed=is_signed)
        return cls(path=tuple(name.split(".")), is_signed=is_signed)


def event_type(source: EventSource, attempt: Attempt, body: Parsed | None) -> EventType | None:
    """The event type of this attempt. None where there is none, or none that can be used: never a reason to refuse.

    `body` is None where it is no JSON, or was not read.
    """
    name = _in_header(source.header, attempt) if source.header is not None else _in_body(source.path, body)
    return EventType(name, source.is_signed) if name is not None and is_event_type(name) else None


def is_event_type(name: str) -> bool:
    """Whether the text may be one: 1 to 200 printable characters, not all of them spaces."""
    return len(name) <= EVENT_CHARACTERS_MAX and name.isprintable() and bool(name.strip())


def _in_header(header: bytes, attempt: Attempt) -> str | None:
    # Of two different values nobody can say which one the sender meant.
    if header in attempt.conflicting:
        return None
    try:
        return attempt.headers.get(header, b"").strip(b" \t").decode()
    except UnicodeDecodeError:
        return None


def _in_body(path: tuple[str, ...], body: Parsed | None) -> str | None:
    value = value_at(body.value, path) if body is not None else None
    return value if type(value) is str else None
