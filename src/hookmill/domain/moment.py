"""Moments are whole microseconds since 1970, UTC: how they are read from a date, and how they are shown.

The calendar of Python ends with the years 1 and 9999. A moment outside is refused where somebody gives it, and shown as
the calendar's first or last one where it is stored already: no page may fail because of one value.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
FIRST_US: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _US
LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _US


class OutOfRange(ValueError):
    """A moment outside the years 1 to 9999 in UTC."""


def parse_iso(text: str) -> int:
    """The ISO 8601 date or time as µs since 1970; in UTC if it names no zone.

    Raises `OutOfRange` outside the calendar in UTC, and `ValueError` for any other text.
    """
    date = datetime.fromisoformat(text)
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return checked((aware - _EPOCH) // _US)


def checked(at_us: int) -> int:
    """The moment itself. Raises `OutOfRange` outside the calendar."""
    if not FIRST_US <= at_us <= LAST_US:
        raise OutOfRange(f"{at_us} µs since 1970 is not in the years 1 to 9999")
    return at_us


def date_of(at_us: int) -> datetime:
    """The moment as a date in UTC; the calendar's first or last one for what lies outside."""
    return _EPOCH + timedelta(microseconds=min(max(at_us, FIRST_US), LAST_US))


def iso(at_us: int) -> str:
    """As programs read it: RFC 3339, UTC, with all six digits."""
    return _plain(at_us).isoformat(timespec="microseconds") + "Z"


def iso_or_none(at_us: int | None) -> str | None:
    """As `iso`, of a moment that may not have come."""
    return None if at_us is None else iso(at_us)


def utc(at_us: int) -> str:
    """As people read it: `2026-11-21 09:12:36`, always UTC."""
    return _plain(at_us).isoformat(" ", "seconds")


def _plain(at_us: int) -> datetime:
    # Unlike `strftime`, `isoformat` gives every year four digits.
    return date_of(at_us).replace(tzinfo=None)
