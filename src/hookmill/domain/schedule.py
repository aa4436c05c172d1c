"""Schedules: the times at which an automation starts without a delivery.

An expression has five fields, as in Debian's cron, or is a name such as `@daily`, or an interval such as `@every 1h`.
Where clocks change, schedules follow Debian's cron:

- If the minute and the hour are fixed, a time that the clock skips comes right after the gap, and a time that the clock
  repeats comes once.
- If the minute or the hour begins with `*`, the schedule follows the elapsed time: there are no times in a skipped
  hour, and the times in a repeated hour come twice.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim
from msgspec import Meta
from msgspec.structs import force_setattr

from hookmill.domain import moment
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.name import usable_name
from hookmill.domain.spec import Spec

UTC_NAME: Final = "UTC"
CRON_CHARACTERS_MAX: Final = 200
TIMEZONE_CHARACTERS_MAX: Final = 64
INTERVAL_MINUTES_MIN: Final = 1
INTERVAL_DAYS_MAX: Final = 366
MISSED_AFTER_US: Final = 60_000_000
"""A time counts as missed if it is further in the past than this when a worker notices it."""
CLOCK_ERROR_US: Final = 3_600_000_000
"""If a schedule's last time is later than now by more than this, the clock was wrong at that time."""
_MINUTE_US: Final = 60_000_000
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_CRON_BY_NAME: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EVERY: Final = re.compile(r"@every (?=[0-9])(?:([0-9]{1,3})d)?(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?\Z")
_TIMEZONE_PATTERN: Final = "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"
_TIMEZONE_PHRASE: Final = "an IANA name, such as Europe/Berlin"
_CRON_PATTERN: Final = (
    r"^(\s*[^@\s]\S*(\s+\S+){4}\s*|@(hourly|daily|midnight|weekly|monthly|yearly|annually)"
    r"|@every (?=[0-9])([0-9]{1,3}d)?([0-9]{1,4}h)?([0-9]{1,6}m)?)$"
)
"""For editors. The reader's error texts say more."""
_CRON_PHRASE: Final = (
    "a text with five fields, such as 0 3 * * * (minute, hour, day of month, month, day of week), a name such as "
    "@daily, or an interval such as @every 1h"
)
_UNUSABLE_TIMEZONES: Final = re.compile(r"(?:posix|right)/|(?:localtime|posixrules|Factory)\Z")
"""Entries of the zone database that depend on the host, or count leap seconds."""
_SEARCH_START: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""An expression that matches no time after this date never fires."""


class CatchUp(StrEnum):
    """The treatment of times that were missed while no worker ran."""

    ONCE = "once"
    """All missed times start one run together."""
    NONE = "none"
    """Missed times start no run."""


class Schedule(Spec, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. It has no payload: the prompt alone starts the run."""

    name: Annotated[str, Meta(description="Unique in its automation.")]
    cron: Annotated[
        str,
        Meta(
            description="The times: five fields (minute, hour, day of month, month, day of week), a name such as "
            "@daily, or an interval such as @every 1h30m.",
            examples=["0 3 * * *"],
            extra_json_schema={"maxLength": CRON_CHARACTERS_MAX, "pattern": _CRON_PATTERN},
            extra={"phrase": _CRON_PHRASE},
        ),
    ]
    timezone: Annotated[
        str,
        Meta(
            max_length=TIMEZONE_CHARACTERS_MAX,
            description="The time zone, as an IANA name such as Europe/Berlin. Omitted: UTC.",
            extra_json_schema={"pattern": _TIMEZONE_PATTERN},
            extra={"phrase": _TIMEZONE_PHRASE},
        ),
    ] = UTC_NAME
    catch_up: Annotated[
        CatchUp, Meta(description="Whether times that were missed start one run, or none. Omitted: once.")
    ] = CatchUp.ONCE

    def __post_init__(self) -> None:
        # Equal schedules have equal values.
        force_setattr(self, "name", self.name.strip())
        force_setattr(self, "cron", _normalized_cron(self.cron))

    def problems(self) -> Iterator[Fault]:
        for name, check in (("name", _check_name), ("cron", _check_cron), ("timezone", _check_timezone)):
            try:
                check(getattr(self, name))
            except Invalid as error:
                yield Fault(f"/{name}", str(error))


def next_time(schedule: Schedule, after: int, anchor: int) -> int | None:
    """The first time of the schedule that is later than `after`. All times are in µs since 1970.

    The times of an interval are `anchor` plus a multiple of the interval, so they don't drift. Other schedules ignore
    `anchor`. None if a cron expression matches no time within 50 years, or if the calendar ends before.
    """
    if (interval := _interval(schedule.cron)) is not None:
        next_at = anchor + ((after - anchor) // interval + 1) * interval
        return next_at if next_at <= moment.CALENDAR_END_US else None
    cron = _CRON_BY_NAME.get(schedule.cron, schedule.cron)
    try:
        date = _next_date(cron, moment.date_of(after), _zone(schedule.timezone))
    except OverflowError:
        return None
    return moment.microseconds_of(date) if date is not None else None


def latest_time(schedule: Schedule, after: int, until: int, anchor: int) -> int | None:
    """The last time of the schedule that is later than `after`, and not later than `until`. None if there is none."""
    latest = next_time(schedule, after, anchor)
    if latest is None or latest > until:
        return None
    # A bisection, because a schedule can have half a million times in a year. `latest` is always a time of the
    # schedule, and the schedule has no time between `upper` and `until`.
    upper = until
    while (following := next_time(schedule, latest, anchor)) is not None and following <= until:
        latest = following
        middle = (latest + upper) // 2
        candidate = next_time(schedule, middle, anchor)
        if candidate is not None and candidate <= until:
            latest = candidate
        else:
            upper = middle
    return latest


def ambiguity_of(cron: str) -> str | None:
    """A warning about an expression that other programs read differently. None if all agree.

    If both day fields are restricted, either one suffices, unless one begins with `*`. Many programs make this
    exception only for a plain `*`, and not for `*/2`.
    """
    fields = cron.split()
    if len(fields) != 5:
        return None
    days = (fields[2], fields[4])
    if "*" in days or not any(field.startswith("*/") for field in days):
        return None
    return (
        f"{cron!r} fires on the days that both day fields select, as in Debian's cron. In some other programs, one of "
        "the fields suffices. For this, write 1-31/2 instead of */2, or 0-6/2 for the day of the week."
    )


def resume_time(last_at: int, now: int) -> int:
    """The time after which a schedule continues. Up to `last_at`, its times were already considered.

    If the clock was set back, times are not repeated. If `last_at` is ahead of the clock by more than `CLOCK_ERROR_US`,
    the schedule follows the corrected clock.
    """
    return last_at if now < last_at <= now + CLOCK_ERROR_US else now


# Times


def _next_date(cron: str, after: datetime, zone: tzinfo) -> datetime | None:
    minute, hour, *_ = cron.split()
    if zone is UTC:
        dates: Iterator[datetime] = CronSim(cron, after)
    elif minute.startswith("*") or hour.startswith("*"):
        return _next_by_elapsed_time(cron, after.replace(microsecond=0), zone)
    else:
        dates = CronSim(cron, after.astimezone(zone))
    # In a repeated hour, the library may return the first occurrence again.
    return next((date.astimezone(UTC) for date in dates if date.astimezone(UTC) > after), None)


def _next_by_elapsed_time(cron: str, after: datetime, zone: tzinfo) -> datetime | None:
    """The next date, searched separately in each period between two changes of the UTC offset.

    If the offset changes by half an hour, the library would skip times after the change.
    """
    start, offset = after, _offset(after, zone)
    local = start + offset
    while True:
        local_date = next(CronSim(cron, local), None)
        if local_date is None:
            return None
        date = local_date - offset
        change = _first_change(zone, start, date)
        if change is None:
            return date
        start, offset = change, _offset(change, zone)
        # The search excludes its start, but the moment of the change can be a time of the schedule.
        local = start + offset - _SECOND


def _offset(date: datetime, zone: tzinfo) -> timedelta:
    return date.astimezone(zone).utcoffset() or timedelta(0)


def _first_change(zone: tzinfo, start: datetime, until: datetime) -> datetime | None:
    """The first change of the zone's UTC offset that is later than `start` and not later than `until`."""
    offset, before = _offset(start, zone), start
    while before < until:
        after = min(before + _DAY, until)
        if _offset(after, zone) != offset:
            while after - before > _SECOND:
                middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
                before, after = (middle, after) if _offset(middle, zone) == offset else (before, middle)
            return after
        before = after
    return None


# Fields


def _check_name(name: str) -> None:
    usable_name("schedule", name)


def _normalized_cron(text: str) -> str:
    cron = " ".join(text.split())
    if cron.startswith("@") or len(fields := cron.split()) != 5:
        return cron
    # Other programs write a day field without a restriction as a question mark.
    minute, hour, day, month, weekday = fields
    return " ".join((minute, hour, day.replace("?", "*"), month, weekday.replace("?", "*")))


def _check_cron(cron: str) -> None:
    if cron.startswith("@"):
        if cron not in _CRON_BY_NAME and not _is_usable_interval(cron):
            raise Invalid(
                f"{cron[:80]!r} is not a schedule. Use {', '.join(_CRON_BY_NAME)}, or @every with an interval from 1m "
                f"to {INTERVAL_DAYS_MAX}d, such as @every 1h30m."
            )
        return
    fields = cron.split()
    if fields and fields[0].startswith(("TZ=", "CRON_TZ=")):
        zone = fields[0].partition("=")[2][:TIMEZONE_CHARACTERS_MAX]
        raise Invalid(f"cron can't contain the time zone. Write it as timezone: {zone}.")
    if len(fields) != 5 or len(cron) > CRON_CHARACTERS_MAX:
        raise Invalid(f"cron must be {_CRON_PHRASE}.")
    try:
        first = _next_date(cron, _SEARCH_START, UTC)
    except Exception as error:
        # For some invalid expressions, the library raises AssertionError without a text.
        reason = f" {error}." if str(error) else ""
        raise Invalid(f"{cron[:80]!r} is not a cron expression.{reason}") from None
    if first is None:
        raise Invalid(f"{cron[:80]!r} never fires.")


def _is_usable_interval(cron: str) -> bool:
    interval = _interval(cron)
    return interval is not None and INTERVAL_MINUTES_MIN <= interval // _MINUTE_US <= INTERVAL_DAYS_MAX * 24 * 60


def _interval(cron: str) -> int | None:
    """The interval of an `@every` expression in µs; None for another expression."""
    match = _EVERY.match(cron)
    if match is None:
        return None
    days, hours, minutes = (int(number or 0) for number in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * _MINUTE_US


def _check_timezone(timezone: str) -> None:
    if re.fullmatch(_TIMEZONE_PATTERN, timezone) and not _UNUSABLE_TIMEZONES.match(timezone):
        try:
            _zone(timezone)
            return
        except (LookupError, ValueError, OSError):
            pass
    raise Invalid(f"timezone must be {_TIMEZONE_PHRASE}; got {timezone[:80]!r}.")


def _zone(name: str) -> tzinfo:
    return UTC if name == UTC_NAME else ZoneInfo(name)
