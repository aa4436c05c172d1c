"""Formats a filter as readable JSON."""

import json

from hookmill.domain.filters import filter_to_json
from hookmill.domain.payload import Json


def format_filter(source: Json) -> str:
    """Readable JSON, with short objects on one line. Invisible characters and line breaks are escaped."""
    return _written(source, "", at_top=True)


def _written(source: Json, margin: str, *, at_top: bool = False) -> str:
    if type(source) not in (dict, list):
        return _scalar_written(source)
    flat = _flat(source)
    if not source or (not at_top and len(margin) + len(flat) <= 72):
        return flat
    deeper = margin + "  "
    if type(source) is dict:
        lines = [f"{deeper}{_scalar_written(name)}: {_written(of, deeper)}" for name, of in source.items()]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    return "[\n" + ",\n".join(deeper + _written(of, deeper) for of in source) + f"\n{margin}]"


def _flat(source: Json) -> str:
    if type(source) is dict:
        return "{" + ", ".join(f"{_scalar_written(name)}: {_flat(of)}" for name, of in source.items()) + "}"
    if type(source) is list:
        return "[" + ", ".join(map(_flat, source)) + "]"
    return _scalar_written(source)


def _scalar_written(value: Json) -> str:
    if type(value) is not str:
        return filter_to_json(value)
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in plain)
