"""What is printed, and how it is laid out."""

import pytest

from hookmill.cli import output
from hookmill.domain.moment import iso_or_none


@pytest.mark.parametrize(
    ("at_us", "people", "programs"),
    [
        (1_795_252_356_000_000, "2026-11-21 09:12:36", "2026-11-21T09:12:36.000000Z"),
        (1_795_252_356_999_999, "2026-11-21 09:12:36", "2026-11-21T09:12:36.999999Z"),
        (0, "1970-01-01 00:00:00", "1970-01-01T00:00:00.000000Z"),
        (None, "-", None),
    ],
)
def test_times_are_utc(at_us: int | None, people: str, programs: str | None):
    assert output.utc(at_us) == people
    assert iso_or_none(at_us) == programs


@pytest.mark.parametrize(
    ("number", "printed"), [(0, "no deliveries"), (1, "1 delivery"), (2, "2 deliveries"), (1234, "1,234 deliveries")]
)
def test_counts_read_like_words(number: int, printed: str):
    assert output.count(number, "delivery") == printed


def test_json_is_one_line_of_ascii():
    assert output.json_line({"a": "ü\x9b\u2028\n"}) == '{"a": "\\u00fc\\u009b\\u2028\\n"}'
