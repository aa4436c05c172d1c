"""When schedules fire: cron expressions, intervals, and clock changes. Also which schedules are refused."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hookmill.domain.errors import Invalid
from hookmill.domain.moment import CALENDAR_END_US, iso, microseconds_of, parse_iso
from hookmill.domain.schedule import (
    CLOCK_ERROR_US,
    CatchUp,
    Schedule,
    latest_time,
    next_time,
    resume_time,
)
from hookmill.domain.spec import read

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def schedule(cron: str, timezone: str = "UTC") -> Schedule:
    return read(Schedule, {"name": "nightly", "cron": cron, "timezone": timezone})


def times(cron: str, timezone: str, after: str, *, count: int) -> list[str]:
    """The next times in UTC, to the minute."""
    following = []
    at: int | None = parse_iso(after)
    for _ in range(count):
        assert at is not None
        at = next_time(schedule(cron, timezone), at, 0)
        assert at is not None
        following.append(iso(at)[:16])
    return following


# Times


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 3 * * *", "2026-11-23T02:59:59Z", ["2026-11-23T03:00", "2026-11-24T03:00"]),
        ("0 3 * * *", "2026-11-23T03:00:00Z", ["2026-11-24T03:00"]),
        ("0 3 * * *", "2026-11-23T02:59:59.999999Z", ["2026-11-23T03:00"]),
        ("*/20 * * * *", "2026-11-23T03:00:00.000001Z", ["2026-11-23T03:20", "2026-11-23T03:40", "2026-11-23T04:00"]),
        ("0 9-10 * * MON-FRI", "2026-11-20T09:30:00Z", ["2026-11-20T10:00", "2026-11-23T09:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 13 * 5", "2026-11-01T00:00:00Z", ["2026-11-06T00:00", "2026-11-13T00:00", "2026-11-20T00:00"]),
        ("0 0 31 * *", "2026-01-31T00:00:00Z", ["2026-03-31T00:00", "2026-05-31T00:00"]),
        ("0 0 L * *", "2026-02-01T00:00:00Z", ["2026-02-28T00:00", "2026-03-31T00:00"]),
        ("@hourly", "2026-12-31T23:30:00Z", ["2027-01-01T00:00", "2027-01-01T01:00"]),
        ("@daily", "2026-12-31T23:30:00Z", ["2027-01-01T00:00", "2027-01-02T00:00"]),
        ("@midnight", "2026-12-31T23:30:00Z", ["2027-01-01T00:00"]),
        ("@weekly", "2026-11-23T00:00:00Z", ["2026-11-29T00:00", "2026-12-06T00:00"]),
        ("@monthly", "2026-11-23T00:00:00Z", ["2026-12-01T00:00", "2027-01-01T00:00"]),
        ("@yearly", "2026-11-23T00:00:00Z", ["2027-01-01T00:00", "2028-01-01T00:00"]),
        ("@annually", "2026-11-23T00:00:00Z", ["2027-01-01T00:00"]),
    ],
)
def test_cron_expression_has_these_times(cron, after, expected):
    assert times(cron, "UTC", after, count=len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "timezone", "after", "expected"),
    [
        # Berlin skips 02:00 to 03:00 on 2026-03-29, and repeats 02:00 to 03:00 on 2026-10-25.
        ("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", ["2026-03-28T01:30", "2026-03-29T01:00"]),
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", ["2026-10-26T01:30"]),
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", ["2026-03-29T00:30", "2026-03-29T01:30"]),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-24T23:45:00Z",
            ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
        ),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", ["2026-03-30T00:00", "2026-03-30T00:30"]),
        (
            "*/30 2 * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-26T01:00"],
        ),
        # New York skips 02:00 to 03:00 on 2026-03-08, and repeats 01:00 to 02:00 on 2026-11-01.
        ("15 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", ["2026-03-08T07:00", "2026-03-09T06:15"]),
        ("15 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", ["2026-11-01T05:15", "2026-11-02T06:15"]),
        ("15 */1 * * *", "America/New_York", "2026-11-01T05:00:00Z", ["2026-11-01T05:15", "2026-11-01T06:15"]),
        # Lord Howe repeats 01:30 to 02:00 on 2026-04-05, and skips 02:00 to 02:30 on 2026-10-04.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", ["2026-10-03T15:30", "2026-10-04T15:15"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", ["2026-04-04T14:45", "2026-04-05T15:15"]),
        (
            "*/15 2 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T12:00:00Z",
            ["2026-04-04T15:30", "2026-04-04T15:45", "2026-04-04T16:00", "2026-04-04T16:15", "2026-04-05T15:30"],
        ),
        ("0 */3 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", ["2026-04-04T16:30", "2026-04-04T19:30"]),
        ("@hourly", "Australia/Lord_Howe", "2026-10-03T14:00:00Z", ["2026-10-03T14:30", "2026-10-03T16:00"]),
        ("@daily", "Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-24T22:00", "2026-10-25T23:00"]),
    ],
)
def test_times_at_clock_changes_are_those_of_debians_cron(cron, timezone, after, expected):
    assert times(cron, timezone, after, count=len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "interval"),
    [
        ("@every 1m", MINUTE),
        ("@every 90m", 90 * MINUTE),
        ("@every 1h30m", 90 * MINUTE),
        ("@every 7d", 7 * DAY),
        ("@every 1d12h", 36 * HOUR),
        ("@every 366d", 366 * DAY),
    ],
)
def test_intervals_are_counted_from_the_anchor(cron, interval):
    anchor = parse_iso("2026-11-23T10:00:07Z")
    every = schedule(cron)

    assert next_time(every, anchor, anchor) == anchor + interval
    assert next_time(every, anchor + interval - 1, anchor) == anchor + interval
    assert next_time(every, anchor + 1000 * interval, anchor) == anchor + 1001 * interval
    # A clock that was set back can show a time before the anchor.
    assert next_time(every, anchor - 1, anchor) == anchor


@pytest.mark.parametrize("cron", ["0 3 * * *", "*/5 * * * *", "@yearly", "@every 1h"])
@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_no_time_follows_the_end_of_the_calendar(cron, timezone):
    assert next_time(schedule(cron, timezone), CALENDAR_END_US, 0) is None
    assert latest_time(schedule(cron, timezone), CALENDAR_END_US, CALENDAR_END_US + 1, 0) is None


# The latest time


@pytest.mark.parametrize("cron", ["* * * * *", "0 3 * * *", "*/7 */5 * * *", "0 0 29 2 *", "@every 1h30m"])
@pytest.mark.parametrize("until", ["2026-11-23T10:17:31Z", "2027-12-31T23:59:00Z"])
def test_latest_time_is_the_last_one_up_to_the_limit(cron, until):
    after, end = parse_iso("2026-11-22T10:17:31Z"), parse_iso(until)

    latest = latest_time(schedule(cron, "Europe/Berlin"), after, end, after)

    if latest is None:
        following = next_time(schedule(cron, "Europe/Berlin"), after, after)
        assert following is not None
        assert following > end
        return
    assert after < latest <= end
    following = next_time(schedule(cron, "Europe/Berlin"), latest, after)
    assert following is None or following > end


def test_time_at_the_limit_itself_counts_as_the_latest():
    after, until = parse_iso("2026-11-22T03:00:00Z"), parse_iso("2026-11-23T03:00:00Z")

    assert latest_time(schedule("0 3 * * *"), after, until, 0) == until
    assert latest_time(schedule("0 3 * * *"), after, until - 1, 0) is None


@pytest.mark.parametrize(
    ("ahead", "resumes"),
    [(-1, 0), (0, 0), (1, 1), (CLOCK_ERROR_US, CLOCK_ERROR_US), (CLOCK_ERROR_US + 1, 0)],
)
def test_schedule_repeats_times_only_after_a_large_clock_error(ahead, resumes):
    now = parse_iso("2026-11-23T10:00:00Z")

    assert resume_time(now + ahead, now) == now + resumes


# Properties


@dataclass(frozen=True)
class Field:
    """A field of a cron expression, with the values that it matches."""

    text: str
    values: frozenset[int]


def fields(limit: int) -> st.SearchStrategy[Field]:
    numbers = st.integers(0, limit - 1)
    return st.one_of(
        st.just(Field("*", frozenset(range(limit)))),
        st.integers(1, limit - 1).map(lambda step: Field(f"*/{step}", frozenset(range(0, limit, step)))),
        st.frozensets(numbers, min_size=1, max_size=4).map(lambda values: Field(",".join(map(str, values)), values)),
        st.tuples(numbers, numbers).map(
            lambda ends: Field(f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
        ),
    )


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Kathmandu"]
CHANGES = ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01", "2026-07-01"]


def every_minute(start: datetime) -> Iterable[datetime]:
    first = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return (first + timedelta(minutes=number) for number in range(4 * 24 * 60))


def first_match(minute: Field, hour: Field, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The next time, by trying every minute; for a fixed time of day, by trying every day."""
    if minute.text.startswith("*") or hour.text.startswith("*"):
        return next(
            (
                at
                for at in every_minute(after)
                if (local := at.astimezone(zone)).minute in minute.values and local.hour in hour.values
            ),
            None,
        )
    return min(
        (
            at
            for days in range(-1, 4)
            for h in hour.values
            for m in minute.values
            if (at := moment_of_local_time(after.astimezone(zone).date() + timedelta(days=days), h, m, zone)) > after
        ),
        default=None,
    )


def moment_of_local_time(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """The first moment at which a local clock shows this time or, if the time is skipped, a later one."""
    at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    while at.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at.replace(tzinfo=None):
        at += timedelta(minutes=1)
    return at.astimezone(UTC)


@given(
    minute=fields(60),
    hour=fields(24),
    zone=st.sampled_from(ZONES),
    change=st.sampled_from(CHANGES),
    seconds=st.integers(-36 * 3600, 36 * 3600),
)
@example(
    minute=Field("*/15", frozenset({0, 15, 30, 45})),
    hour=Field("2", frozenset({2})),
    zone="Australia/Lord_Howe",
    change="2026-04-05",
    seconds=-12 * 3600,
)
def test_next_time_is_the_first_time_that_matches(minute, hour, zone, change, seconds):
    after = datetime.fromisoformat(change).replace(tzinfo=UTC) + timedelta(seconds=seconds)

    next_at = next_time(schedule(f"{minute.text} {hour.text} * * *", zone), microseconds_of(after), 0)

    expected = first_match(minute, hour, ZoneInfo(zone), after)
    assert expected is not None
    assert next_at == microseconds_of(expected)
    assert next_at > microseconds_of(after)


@given(
    cron=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 */6 * * 1-5", "@weekly", "@every 7h"]),
    zone=st.sampled_from(ZONES),
    after=st.integers(parse_iso("2020-01-01"), parse_iso("2040-01-01")),
    length=st.integers(0, 400 * DAY),
)
def test_latest_time_agrees_with_the_next_time(cron, zone, after, length):
    latest = latest_time(schedule(cron, zone), after, after + length, 0)

    first = next_time(schedule(cron, zone), after, 0)
    assert first is not None
    assert (latest is None) == (first > after + length)
    if latest is not None:
        following = next_time(schedule(cron, zone), latest, 0)
        assert first <= latest <= after + length
        assert following is not None
        assert following > after + length


# Accepted and refused schedules


def test_omitted_fields_have_defaults():
    assert read(Schedule, {"name": " nightly ", "cron": " 0  3 * * * "}) == Schedule(
        name="nightly", cron="0 3 * * *", timezone="UTC", catch_up=CatchUp.ONCE
    )
    assert schedule("0 3 * * *").as_json() == {"name": "nightly", "cron": "0 3 * * *"}


def test_schedule_json_is_the_same_after_reading_and_writing():
    source = {"name": "größer", "cron": "@every 1h", "timezone": "Europe/Berlin", "catch_up": "none"}

    assert read(Schedule, source).as_json() == source


REFUSED: list[tuple[Any, str, str]] = [
    (None, "", "object with name, cron"),
    ([], "", "object with name, cron"),
    ({"name": "n", "cron": "@daily", "catchUp": "none"}, "/catchUp", "Did you mean catch_up?"),
    ({"name": "n", "cron": "@daily", "tz": "UTC"}, "/tz", "Known fields: name, cron, timezone, catch_up"),
    ({"cron": "@daily"}, "/name", "must be a text"),
    ({"name": 5, "cron": "@daily"}, "/name", "must be a text"),
    ({"name": " ", "cron": "@daily"}, "/name", "1 to 100 characters"),
    ({"name": "two\nlines", "cron": "@daily"}, "/name", "control character"),
    ({"name": "n" * 101, "cron": "@daily"}, "/name", "1 to 100 characters"),
    ({"name": "n"}, "/cron", "five fields"),
    ({"name": "n", "cron": 5}, "/cron", "five fields"),
    ({"name": "n", "cron": "@daily", "timezone": "Mars/Base"}, "/timezone", "IANA name"),
    ({"name": "n", "cron": "@daily", "timezone": 1}, "/timezone", "IANA name"),
    ({"name": "n", "cron": "@daily", "catch_up": "all"}, "/catch_up", "once or none"),
    ({"name": "n", "cron": "@daily", "catch_up": []}, "/catch_up", "once or none"),
]


@pytest.mark.parametrize(("source", "pointer", "message"), REFUSED)
def test_unusable_schedule_is_refused_with_its_pointer(source, pointer, message):
    with pytest.raises(Invalid, match=message) as refused:
        read(Schedule, source)

    assert [fault.pointer for fault in refused.value.faults] == [pointer]


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "0 * * * * *",
        "0 0 * * * * 2026",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "-1 * * * *",
        "1, * * * *",
        "0 0 * 2 MON#2/3",
        "0 0 * * MON#6",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "0 0 */40 2 MON#5",
        "@reboot",
        "@Daily",
        "@every",
        "@every 0m",
        "@every 59s",
        "@every 367d",
        "@every 9000h",
        "@every 1m1h",
        "@every -1h",
        "@every 1.5h",
        "@every 1h 30m",
        "0 3 * * * " + "0" * 200,
        "٣ * * * *",
        "0\x003 * * * *",
    ],
)
def test_cron_expression_that_is_invalid_or_never_fires_is_refused(cron):
    with pytest.raises(Invalid) as refused:
        schedule(cron)

    assert [fault.pointer for fault in refused.value.faults] == ["/cron"]


@pytest.mark.parametrize(
    "timezone",
    [
        "",
        "europe/Berlin ",
        "Europe",
        "Europe/",
        "/etc/localtime",
        "../../etc/passwd",
        "localtime",
        "posixrules",
        "Factory",
        "right/UTC",
        "posix/Europe/Berlin",
        "Europe/Berlin\x00",
        "A" * 65,
        "zone.tab",
    ],
)
def test_unknown_time_zone_is_refused(timezone):
    with pytest.raises(Invalid) as refused:
        schedule("@daily", timezone)

    assert [fault.pointer for fault in refused.value.faults] == ["/timezone"]


@given(st.text(max_size=40) | st.from_regex(r"[0-9*/,LW#@a-z -]{1,30}", fullmatch=True))
def test_any_cron_expression_is_refused_or_has_a_next_time(cron):
    try:
        accepted = schedule(cron)
    except Invalid:
        return
    now = parse_iso("2026-11-23T10:00:00Z")
    next_at = next_time(accepted, now, now)
    assert next_at is not None
    assert next_at > now
