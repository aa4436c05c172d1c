"""Moments: the calendar's years in UTC, and nothing that fails to be shown."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookmill.domain import moment

DAY = timedelta(hours=23, minutes=59)


@pytest.mark.parametrize(
    ("date", "us"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime.fromisoformat("1970-01-01"), 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime.min.replace(tzinfo=UTC), moment.FIRST_US),
        (datetime.max.replace(tzinfo=UTC), moment.LAST_US),
    ],
)
def test_date_is_in_utc_unless_it_names_a_zone(date: datetime, us: int):
    assert moment.us_of(date) == us


@pytest.mark.parametrize(
    "date", [datetime.max.replace(tzinfo=timezone(-DAY)), datetime.min.replace(tzinfo=timezone(DAY))]
)
def test_date_that_leaves_the_calendar_in_utc_is_refused(date: datetime):
    with pytest.raises(ValueError, match="years 1 to 9999"):
        moment.us_of(date)


@given(st.integers())
def test_every_number_is_shown_with_a_year_of_four_digits(at: int):
    assert len(moment.iso(at)) == len("2026-11-21T09:12:36.000000Z")
    assert len(moment.utc(at)) == len("2026-11-21 09:12:36")
    assert moment.us_of(datetime.fromisoformat(moment.iso(at))) == min(max(at, moment.FIRST_US), moment.LAST_US)


def test_shown_as_programs_and_as_people_read_it():
    assert moment.iso(1_795_252_356_000_001) == "2026-11-21T09:12:36.000001Z"
    assert moment.utc(1_795_252_356_999_999) == "2026-11-21 09:12:36"
