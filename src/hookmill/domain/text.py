"""Escapes untrusted text for display, because names, ids and payloads may contain control characters.

Also suggests names instead of unknown ones.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

_NEXT_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def shown(text: str) -> str:
    """The text on one line. Invisible characters, and those that control the cursor or text direction, are escaped."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def shown_lines(text: str) -> str:
    """Like `shown`, but line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def printable(text: str) -> str:
    """The text with control and invisible characters replaced, except line breaks and tabs."""
    return "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    # The Unicode categories of control, format and unassigned characters begin with C.
    is_printable = character in "\n\t" or unicodedata.category(character)[0] != "C"
    return character if is_printable else "\N{REPLACEMENT CHARACTER}"


def trimmed_text(text: str) -> str:
    """The text without white space around it, and without a byte order mark, which editors on Windows put before it."""
    return text.strip().removeprefix("\ufeff").strip()


def snake_case(name: str) -> str:
    """A name in camelCase as snake_case: `auth_mode` for `authMode`."""
    return _NEXT_WORD.sub("_", name).lower()


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """The name among `names` that somebody probably meant, in whatever case. None if none is similar."""
    normalized = {candidate.lower().replace("_", ""): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower().replace("_", "").replace("-", "")[:40], normalized, n=1)
    return normalized[matches[0]] if matches else None


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
