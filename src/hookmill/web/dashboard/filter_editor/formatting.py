"""Formats a filter as readable JSON."""

import json

from hookmill.domain.filters import exact_json
from hookmill.domain.payload import Json


def format_filter(source: Json) -> str:
    """Readable JSON, with short objects on one line. Invisible characters and line breaks are escaped."""
    return _format(source, "", at_top=True)


def _format(source: Json, margin: str, *, at_top: bool = False) -> str:
    if type(source) not in (dict, list):
        return _format_scalar(source)
    one_line = _format_on_one_line(source)
    if not source or (not at_top and len(margin) + len(one_line) <= 72):
        return one_line
    child_margin = margin + "  "
    if type(source) is dict:
        lines = [
            f"{child_margin}{_format_scalar(name)}: {_format(child, child_margin)}" for name, child in source.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    return "[\n" + ",\n".join(child_margin + _format(child, child_margin) for child in source) + f"\n{margin}]"


def _format_on_one_line(source: Json) -> str:
    if type(source) is dict:
        return (
            "{"
            + ", ".join(f"{_format_scalar(name)}: {_format_on_one_line(child)}" for name, child in source.items())
            + "}"
        )
    if type(source) is list:
        return "[" + ", ".join(map(_format_on_one_line, source)) + "]"
    return _format_scalar(source)


def _format_scalar(value: Json) -> str:
    if type(value) is not str:
        return exact_json(value)
    json_text = json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in json_text)
