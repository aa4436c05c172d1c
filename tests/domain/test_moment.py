"""Times are in the years 1 to 9999 in UTC, and every number can be shown as a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookmill.domain import moment


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01", 0),
        ("1970-01-01 00:00", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("0001-01-01T00:00:00Z", moment.CALENDAR_START_US),
        ("9999-12-31T23:59:59.999999Z", moment.CALENDAR_END_US),
    ],
)
def test_time_is_in_utc_unless_it_names_a_zone(text, us):
    assert moment.parse_iso(text) == us


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_time_that_is_outside_the_years_1_to_9999_in_utc_is_refused(text):
    with pytest.raises(moment.OutOfRange, match="years 1 to 9999"):
        moment.parse_iso(text)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "10000-01-01"])
def test_text_that_is_not_a_time_is_refused(text):
    with pytest.raises(ValueError, match=r"^(?!.*years 1 to 9999)"):
        moment.parse_iso(text)


@given(st.integers())
def test_every_number_is_shown_with_a_year_of_four_digits(at):
    assert len(moment.iso(at)) == len("2026-11-21T09:12:36.000000Z")
    assert len(moment.utc(at)) == len("2026-11-21 09:12:36")
    assert moment.parse_iso(moment.iso(at)) == min(max(at, moment.CALENDAR_START_US), moment.CALENDAR_END_US)


def test_iso_has_microseconds_and_utc_has_seconds():
    assert moment.iso(1_795_252_356_000_001) == "2026-11-21T09:12:36.000001Z"
    assert moment.utc(1_795_252_356_999_999) == "2026-11-21 09:12:36"
