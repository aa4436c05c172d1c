"""Write YAML: plain text only if every version of YAML reads it as text, otherwise in quotes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hookmill.domain.filters import exact_json
from hookmill.domain.payload import Json

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*\Z")
# YAML 1.1 reads these words as booleans, null or numbers, and some parsers still follow YAML 1.1.
_WORDS_TO_QUOTE: Final = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"}
_LINE_CHARACTERS_MAX: Final = 100


def lines_of(
    mapping: Mapping[str, Json], *, comment_by_text: Mapping[str, str] | None = None, indent: str = ""
) -> Iterator[str]:
    """The lines of a mapping. `comment_by_text` has comments for texts in lists; each comment follows its text."""
    for key, value in mapping.items():
        yield from _entry(f"{indent}{_text(key)}:", value, comment_by_text or {}, indent + "  ")


def _entry(head: str, value: Json, comment_by_text: Mapping[str, str], indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield head
        yield from lines_of(value, comment_by_text=comment_by_text, indent=indent)
    elif isinstance(value, list) and value and not _fits_one_line(head, value, comment_by_text):
        yield head
        for item in value:
            yield from _item(item, comment_by_text, indent)
    else:
        yield f"{head} {_in_flow_style(value)}"


def _item(item: Json, comment_by_text: Mapping[str, str], indent: str) -> Iterator[str]:
    if isinstance(item, dict) and item:
        lines = list(lines_of(item, comment_by_text=comment_by_text, indent=indent + "  "))
        yield f"{indent}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        comment = comment_by_text.get(item) if isinstance(item, str) else None
        yield f"{indent}- {_in_flow_style(item)}{f'  # {comment}' if comment else ''}"


def _fits_one_line(head: str, value: list[Json], comment_by_text: Mapping[str, str]) -> bool:
    if any(isinstance(item, (dict, list)) or (isinstance(item, str) and item in comment_by_text) for item in value):
        return False
    return len(head) + len(_in_flow_style(value)) < _LINE_CHARACTERS_MAX


def _in_flow_style(value: Any) -> str:
    """The value on one line, with YAML's brackets and braces."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_in_flow_style(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_in_flow_style, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    # `exact_json` writes exact numbers, as filters store them.
    return exact_json(value)


def _text(text: str) -> str:
    if _PLAIN.match(text) and text.lower() not in _WORDS_TO_QUOTE:
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
