"""Times as people hand them to a command."""

import pytest
import time_machine
import typer

from hookmill.cli import given
from tests.cli.conftest import START_US

SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-11-21T09:12:36Z", START_US),
        ("2026-11-21T09:12:36.000001Z", START_US + 1),
        ("2026-11-21T10:12:36+01:00", START_US),
        ("2026-11-21 09:12:36", START_US),
        ("2026-11-21 09:12", START_US - 36 * SECOND_US),
        (" 2026-11-21 ", START_US - (9 * 3600 + 12 * 60 + 36) * SECOND_US),
        ("90s", START_US - 90 * SECOND_US),
        ("30m", START_US - 30 * 60 * SECOND_US),
        ("2h", START_US - 2 * 3600 * SECOND_US),
        ("7d", START_US - 7 * 86_400 * SECOND_US),
        ("1w", START_US - 7 * 86_400 * SECOND_US),
    ],
)
@time_machine.travel(START_US / SECOND_US, tick=False)
def test_a_time_is_utc_unless_it_says_otherwise_or_so_long_ago(written: str, meant: int):
    assert given.moment(written, "--since") == meant


@pytest.mark.parametrize(
    "written", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+00:01", "0001-01-01 00:00+23:59", "999999w"]
)
def test_time_outside_the_calendar_is_refused(written: str):
    with pytest.raises(typer.BadParameter, match="years 1 to 9999"):
        given.moment(written, "--since")


@pytest.mark.parametrize("written", ["", "yesterday", "09:12", "2026-13-01", "2 h", "-2h", "1.5h", "2h\u001b[31m"])
def test_what_is_no_time_is_refused_with_how_to_write_one(written: str):
    with pytest.raises(typer.BadParameter, match="is no time") as refused:
        given.moment(written, "--since")

    assert "\x1b" not in str(refused.value)
