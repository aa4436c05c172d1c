"""Parses and formats moments, which are whole microseconds since 1970 in UTC.

Python's calendar has the years 1 to 9999. An input outside these years is refused. A stored moment outside them is
shown as the calendar's first or last moment, so that no page fails because of one value.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
CALENDAR_START_US: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
CALENDAR_END_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class OutOfRange(ValueError):
    """A moment outside the years 1 to 9999 in UTC."""


def parse_iso(text: str) -> int:
    """An ISO 8601 date or time as µs since 1970. Without a time zone, it is in UTC.

    Raises `OutOfRange` if only the conversion to UTC leaves the years 1 to 9999, and another `ValueError` for a text
    that is no date, such as one of the year 10000.
    """
    date = datetime.fromisoformat(text)
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return require_in_calendar(microseconds_of(aware))


def is_in_calendar(at_us: int) -> bool:
    """Whether the moment is in the years 1 to 9999."""
    return CALENDAR_START_US <= at_us <= CALENDAR_END_US


def require_in_calendar(at_us: int) -> int:
    """The same moment. Raises `OutOfRange` if it is outside the calendar."""
    if not is_in_calendar(at_us):
        raise OutOfRange(f"{at_us} µs since 1970 is not in the years 1 to 9999")
    return at_us


def date_of(at_us: int) -> datetime:
    """The moment as a date in UTC. For a moment outside the calendar, the calendar's first or last moment."""
    return _EPOCH + timedelta(microseconds=min(max(at_us, CALENDAR_START_US), CALENDAR_END_US))


def microseconds_of(date: datetime) -> int:
    """An aware date as µs since 1970."""
    return (date - _EPOCH) // _MICROSECOND


def iso(at_us: int) -> str:
    """The moment for programs: RFC 3339, in UTC, with microseconds."""
    return _date_without_zone(at_us).isoformat(timespec="microseconds") + "Z"


def iso_or_none(at_us: int | None) -> str | None:
    """`iso` of the moment, or None for None."""
    return None if at_us is None else iso(at_us)


def utc(at_us: int) -> str:
    """The moment for people: `2026-11-21 09:12:36`, always in UTC."""
    return _date_without_zone(at_us).isoformat(" ", "seconds")


def _date_without_zone(at_us: int) -> datetime:
    # `isoformat` gives every year four digits, unlike `strftime`. Without a time zone, `isoformat` adds no offset.
    return date_of(at_us).replace(tzinfo=None)
