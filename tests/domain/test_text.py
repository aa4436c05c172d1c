"""What is shown of words that may be anybody's."""

import random
import unicodedata

import pytest

from hookmill.domain import text


@pytest.mark.parametrize(
    ("words", "printed"),
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
    ids=["letters", "escape", "C1", "delete and NUL", "line breaks", "turning", "separator", "tag", "half a pair"],
)
def test_what_a_terminal_would_obey_is_spelled_out(words: str, printed: str):
    assert text.shown(words) == printed


def test_nothing_but_printable_characters_comes_out():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    words = "".join(chr(chosen.randrange(0x110000)) for _ in range(20_000))

    categories = {unicodedata.category(character) for character in text.shown(words)}

    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def test_lines_stay_lines_where_text_has_several():
    assert text.shown_lines("a\nb\tc\r\x1b") == "a\nb\tc\\u000d\\u001b"
