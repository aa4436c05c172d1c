"""Write YAML: plain text only if every version of YAML reads it as text, otherwise in quotes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hookmill.domain.filters import filter_to_json
from hookmill.domain.payload import Json

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*\Z")
# YAML 1.1 reads these as booleans, null or numbers, and some parsers still follow it.
_WORDS: Final = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"}
_LINE_CHARACTERS_MAX: Final = 100


def lines_of(
    value: Mapping[str, Json], *, comments: Mapping[str, str] | None = None, indent: str = ""
) -> Iterator[str]:
    """The lines of a mapping. `comments` has comments for texts in lists; each follows its text."""
    for key, inner in value.items():
        yield from _entry(f"{indent}{_text(key)}:", inner, comments or {}, indent + "  ")


def _entry(head: str, value: Json, comments: Mapping[str, str], indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield head
        yield from lines_of(value, comments=comments, indent=indent)
    elif isinstance(value, list) and value and not _fits_one_line(head, value, comments):
        yield head
        for item in value:
            yield from _item(item, comments, indent)
    else:
        yield f"{head} {_flow(value)}"


def _item(item: Json, comments: Mapping[str, str], indent: str) -> Iterator[str]:
    if isinstance(item, dict) and item:
        inner = list(lines_of(item, comments=comments, indent=indent + "  "))
        yield f"{indent}- {inner[0].lstrip()}"
        yield from inner[1:]
    else:
        comment = comments.get(item) if isinstance(item, str) else None
        yield f"{indent}- {_flow(item)}{f'  # {comment}' if comment else ''}"


def _fits_one_line(head: str, value: list[Json], comments: Mapping[str, str]) -> bool:
    if any(isinstance(item, (dict, list)) or (isinstance(item, str) and item in comments) for item in value):
        return False
    return len(head) + len(_flow(value)) < _LINE_CHARACTERS_MAX


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    # Exact numbers, as stored in filters.
    return filter_to_json(value)


def _text(text: str) -> str:
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
