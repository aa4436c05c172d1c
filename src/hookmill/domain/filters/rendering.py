"""A filter's values as text: exact for storage; shortened and printable for display."""

import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Final

from hookmill.domain import json_pointer
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json

SHOWN_CHARACTERS_MAX: Final = 200
"""The maximum length of a value in an explanation. Longer values are cut and end with an ellipsis."""


def exact_json(source: Json, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """Any JSON value as JSON in ASCII, with exact numbers. From a compiled filter's source, an equal filter can be
    compiled.

    `indent` and `separators` are those of `json.dumps`; without either, the text has no spaces.
    """
    return text_of(source, _exact_scalar, indent=indent, separators=separators)


def text_of(
    source: Json,
    scalar_text: Callable[[Json], str],
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    has_sorted_names: bool = False,
) -> str:
    """A JSON value as text in ASCII. `scalar_text` renders what is neither an object nor an array.

    `separators` are those of `json.dumps`. The function is not recursive: a payload may be nested 512 levels deep, and
    the caller's stack may be small.
    """
    comma, colon = separators or (",", ": " if indent is not None else ":")
    texts: list[str] = []
    # For each level that is open: its items, and the text after the last item.
    levels: list[tuple[Iterator[tuple[str, Json]], str]] = [(iter([("", source)]), "")]
    while levels:
        items, end = levels[-1]
        for start, value in items:
            texts.append(start)
            if type(value) is not dict and type(value) is not list and type(value) is not tuple:
                texts.append(scalar_text(value))
                continue
            opening, closing = ("{", "}") if type(value) is dict else ("[", "]")
            texts.append(opening)
            if not value:
                texts.append(closing)
                continue
            names = (sorted(value) if has_sorted_names else value) if type(value) is dict else None
            line_start = "\n" + " " * (indent * len(levels)) if indent is not None else ""
            levels.append((_items(value, names, comma, colon, line_start), line_start[: -(indent or 1)] + closing))
            break
        else:
            levels.pop()
            texts.append(end)
    return "".join(texts)


def _items(
    value: Json, names: Iterable[str] | None, comma: str, colon: str, line_start: str
) -> Iterator[tuple[str, Json]]:
    """The members of an object with these names, or the elements of an array, each after the text that precedes it."""
    separator = line_start
    if names is None:
        for element in value:
            yield separator, element
            separator = comma + line_start
        return
    for name in names:
        yield f"{separator}{json.dumps(name)}{colon}", value[name]
        separator = comma + line_start


def _exact_scalar(value: Json) -> str:
    return json.dumps(value) if type(value) is str else _plain_text(value)


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
