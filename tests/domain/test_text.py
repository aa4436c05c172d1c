"""How untrusted text is displayed."""

import random
import unicodedata

import pytest

from hookmill.domain import text


@pytest.mark.parametrize(
    ("untrusted", "displayed"),
    [
        ("plain, ünïcode, 漢字, 🙂", "plain, ünïcode, 漢字, 🙂"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\x9b2J", "\\u009b2J"),
        ("\x7f\x00", "\\u007f\\u0000"),
        ("a\nb\tc\r", "a\\u000ab\\u0009c\\u000d"),
        ("\u202eabc", "\\u202eabc"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud83d", "\\ud83d"),
    ],
    ids=["printable", "ESC", "C1", "DEL and NUL", "line breaks", "bidi", "separator", "tag", "lone surrogate"],
)
def test_characters_that_control_a_terminal_are_escaped(untrusted, displayed):
    assert text.shown(untrusted) == displayed


def test_displayed_text_contains_only_printable_characters():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    untrusted = "".join(chr(chance.randrange(0x110000)) for _ in range(20_000))

    categories = {unicodedata.category(character) for character in text.shown(untrusted)}

    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def test_shown_lines_keeps_line_feeds_and_tabs():
    assert text.shown_lines("a\nb\tc\r\x1b") == "a\nb\tc\\u000d\\u001b"
