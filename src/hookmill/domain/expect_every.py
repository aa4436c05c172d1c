"""How often a webhook expects a delivery: a time such as `1h`, `30m` or `1d12h`."""

import re
from typing import Final

from hookmill.domain.errors import Invalid

SECONDS_MIN: Final = 300
SECONDS_MAX: Final = 30 * 86_400
CHARACTERS_MAX: Final = 20
_TIME: Final = re.compile(r"(?=[0-9])(?:([0-9]{1,3})d)?(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?\Z")


def expect_every_seconds(text: str) -> int:
    """The time in seconds. Raises `Invalid`."""
    match = _TIME.match(text)
    if match is None:
        raise Invalid(
            f"{text[:CHARACTERS_MAX]!r} is not a time. Write days, hours and minutes, such as 1h, 30m or 1d12h."
        )
    days, hours, minutes = (int(digits or 0) for digits in match.groups())
    seconds = (days * 24 + hours) * 3_600 + minutes * 60
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise Invalid(
            f"{text!r} is not between {expect_every_text(SECONDS_MIN)} and {expect_every_text(SECONDS_MAX)}, which are "
            "the shortest and the longest time in which a webhook can expect a delivery."
        )
    return seconds


def expect_every_text(seconds: int) -> str:
    """The time in its normal form, in which `1d` stands for `24h`."""
    minutes = seconds // 60
    parts = ((minutes // 1_440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def usable_expect_every(text: str) -> str:
    """The time in its normal form. Raises `Invalid`."""
    return expect_every_text(expect_every_seconds(text))
