"""A filter's values as text: exact for storage; shortened and printable for display."""

import json
from decimal import Decimal
from typing import Final

from hookmill.domain import json_pointer
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

SHOWN_CHARACTERS_MAX: Final = 200
"""The maximum length of a value in an explanation. Longer values are cut and end with an ellipsis."""


def exact_json(source: Json, *, indent: int | None = None, level: int = 0) -> str:
    """Any JSON value as JSON in ASCII, with exact numbers. From a compiled filter's source, an equal filter can be
    compiled.

    With `indent`, objects and arrays are laid out as by `json.dumps`. `level` is the number of objects and arrays
    around the value.
    """
    if type(source) is dict:
        colon = ":" if indent is None else ": "
        members = [
            f"{json.dumps(name)}{colon}{exact_json(value, indent=indent, level=level + 1)}"
            for name, value in source.items()
        ]
        return "{" + _laid_out(members, indent, level) + "}"
    if type(source) is list:
        return (
            "["
            + _laid_out([exact_json(value, indent=indent, level=level + 1) for value in source], indent, level)
            + "]"
        )
    return json.dumps(source) if type(source) is str else _plain_text(source)


def _laid_out(items: list[str], indent: int | None, level: int) -> str:
    """The items of an object or array, separated by commas and, with `indent`, each on a line of its own."""
    if indent is None or not items:
        return ",".join(items)
    line_start = "\n" + " " * (indent * (level + 1))
    return line_start + f",{line_start}".join(items) + "\n" + " " * (indent * level)


def pointer_step(name: str) -> str:
    """A field's name as a step of a JSON pointer, with escapes for what can't be printed."""
    return _printable(json_pointer.escape(name))


def display_text(value: Json) -> str:
    """A value for display: JSON, shortened, without the content of inner objects and arrays."""
    if value is MISSING:
        return "missing"
    if type(value) is not list:
        return _cut(_display_text_of_one(value))
    # Every element takes more than one character, so elements after these would be cut anyway.
    text = ", ".join(_display_text_of_one(element) for element in value[:SHOWN_CHARACTERS_MAX])
    return f"[{text}]" if len(text) + 2 <= SHOWN_CHARACTERS_MAX else f"[{text[: SHOWN_CHARACTERS_MAX - 3]}…]"


def _printable(text: str) -> str:
    # Control characters and direction overrides garble pages and terminals; lone surrogates can't be encoded.
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"


def _display_text_of_one(value: Json) -> str:
    if type(value) is dict:
        return "{…}" if value else "{}"
    if type(value) is list:
        return "[…]" if value else "[]"
    if type(value) is str:
        return _printable(json.dumps(value[:SHOWN_CHARACTERS_MAX], ensure_ascii=False))
    return _plain_text(value)


def _plain_text(value: Json) -> str:
    """A number, true, false or null as JSON."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return str(Decimal(repr(value)))
    # Decimal, because the interpreter may refuse to convert a long int to text.
    return str(Decimal(value) if type(value) is int else value)
