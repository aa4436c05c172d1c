"""A filter's values as text: exact for storage; shortened and printable for display."""

import json
from decimal import Decimal
from typing import Final

from hookmill.domain import json_pointer
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

SHOWN_CHARACTERS_MAX: Final = 200
"""The maximum length of a value in an explanation. Longer values are cut and end with an ellipsis."""


def exact_json(source: Json) -> str:
    """Any JSON value as JSON in ASCII, with exact numbers. From a compiled filter's source, an equal filter can be
    compiled."""
    if type(source) is dict:
        return "{" + ",".join(f"{json.dumps(name)}:{exact_json(value)}" for name, value in source.items()) + "}"
    if type(source) is list:
        return "[" + ",".join(map(exact_json, source)) + "]"
    return json.dumps(source) if type(source) is str else _plain_text(source)


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
