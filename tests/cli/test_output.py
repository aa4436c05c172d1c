"""What is printed of texts that may be anybody's."""

import random
import unicodedata

import pytest

from hookmill.cli import output


@pytest.mark.parametrize(
    ("text", "printed"),
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
def test_what_a_terminal_would_obey_is_spelled_out(text: str, printed: str):
    assert output.shown(text) == printed


def test_nothing_but_printable_characters_comes_out():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    text = "".join(chr(chosen.randrange(0x110000)) for _ in range(20_000))

    categories = {unicodedata.category(character) for character in output.shown(text)}

    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def test_lines_stay_lines_where_text_has_several():
    assert output.shown_lines("a\nb\tc\r\x1b") == "a\nb\tc\\u000d\\u001b"


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
    assert output.iso(at_us) == programs


@pytest.mark.parametrize(
    ("number", "printed"), [(0, "no deliveries"), (1, "1 delivery"), (2, "2 deliveries"), (1234, "1,234 deliveries")]
)
def test_counts_read_like_words(number: int, printed: str):
    assert output.count(number, "delivery") == printed


def test_json_is_one_line_of_ascii():
    assert output.json_line({"a": "ü\x9b\u2028\n"}) == '{"a": "\\u00fc\\u009b\\u2028\\n"}'
