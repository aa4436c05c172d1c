"""The time within which a webhook expects a delivery: its forms and its limits."""

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.expect_every import expect_every_seconds, usable_expect_every


@pytest.mark.parametrize(
    ("text", "normal", "seconds"),
    [
        ("5m", "5m", 300),
        ("60m", "1h", 3_600),
        ("1h", "1h", 3_600),
        ("36h", "1d12h", 129_600),
        ("1d0h5m", "1d5m", 86_700),
        ("30d", "30d", 2_592_000),
    ],
)
def test_time_gets_one_form(text, normal, seconds):
    assert usable_expect_every(text) == normal
    assert expect_every_seconds(text) == expect_every_seconds(normal) == seconds


@pytest.mark.parametrize("text", ["", "1", "1 h", "h", "1H", "-1h", "1h\n", "1m1h", "1.5h", "1s", "١h", "9" * 30 + "m"])
def test_text_that_is_no_time_is_refused_with_examples(text):
    with pytest.raises(Invalid, match="such as 1h, 30m or 1d12h"):
        expect_every_seconds(text)


@pytest.mark.parametrize("text", ["0m", "4m", "30d1m", "999d"])
def test_time_outside_the_limits_is_refused_with_both_limits(text):
    with pytest.raises(Invalid, match="between 5m and 30d"):
        expect_every_seconds(text)
