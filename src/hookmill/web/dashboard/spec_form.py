"""A spec as the texts of a form. The name of a control is the JSON pointer of its field."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import inspect

from hookmill.domain.errors import Invalid
from hookmill.domain.json_pointer import steps_of
from hookmill.domain.spec import Spec, alternatives, described


def texts_of(spec: Spec) -> dict[str, str]:
    """The texts of all controls, by name. Lists have a line for each text, or numbers with commas."""
    return blank(type(spec)) | dict(_texts_of(spec, ""))


def _texts_of(spec: Spec, pointer: str) -> Iterator[tuple[str, str]]:
    for name in spec.__struct_fields__:
        value, place = getattr(spec, name), f"{pointer}/{name}"
        if isinstance(value, Spec):
            yield from _texts_of(value, place)
        elif isinstance(value, tuple):
            yield place, ("\n" if all(isinstance(item, str) for item in value) else ", ").join(map(str, value))
        elif value is not None:
            yield place, str(value)


def blank(kind: type[Spec]) -> dict[str, str]:
    """The texts of all controls of a new form. Choices have their default."""
    return dict(_blank(described(kind), ""))


def _blank(kind: inspect.Type, pointer: str) -> Iterator[tuple[str, str]]:
    struct = _struct_in(kind)
    for field in struct.fields if struct is not None else ():
        place = f"{pointer}/{field.name}"
        yield from _blank(field.type, place)
        if _has_text(field.type):
            yield place, str(field.default) if _is_choice(field) else ""


def json_of(kind: type[Spec], texts: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of the spec's fields, for its reader. A blank field is None.

    A text that is no number stays a text, which the reader refuses.
    """
    return {field.name: _json_of(field.type, texts, f"/{field.name}") for field in described(kind).fields}


def _json_of(kind: inspect.Type, texts: Mapping[str, str], pointer: str) -> Any:
    text = texts.get(pointer, "").strip()
    struct = _struct_in(kind)
    fields = struct.fields if struct is not None else ()
    values = {field.name: _json_of(field.type, texts, f"{pointer}/{field.name}") for field in fields}
    # A choice always has a value.
    if all(values[field.name] is None for field in fields if not _is_choice(field)):
        return _leaf(kind, text) if text else None
    if text:
        raise Invalid(f"Fill in one of the two fields for {steps_of(pointer)[-1]}, and not both.", pointer=pointer)
    return {name: value for name, value in values.items() if value is not None}


def _leaf(kind: inspect.Type, text: str) -> Any:
    items = next((each for each in alternatives(kind) if isinstance(each, inspect.VarTupleType)), None)
    if items is None:
        match next(alternatives(kind)):
            case inspect.IntType():
                return number_or_text(text)
            case inspect.BoolType():
                return True
            case inspect.DictType():
                return _object_or_text(text)
            case _:
                return text
    if isinstance(next(alternatives(items.item_type)), inspect.IntType):
        return [number_or_text(item.strip()) for item in text.split(",")]
    return [line.strip() for line in text.splitlines() if line.strip()]


def _struct_in(kind: inspect.Type) -> inspect.StructType | None:
    return next((each for each in alternatives(kind) if isinstance(each, inspect.StructType)), None)


def _has_text(kind: inspect.Type) -> bool:
    """Whether a text can be the value, or one of the alternatives."""
    return any(not isinstance(each, inspect.StructType | inspect.NoneType) for each in alternatives(kind))


def _is_choice(field: inspect.Field) -> bool:
    return isinstance(next(alternatives(field.type)), inspect.EnumType)


def _object_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def number_or_text(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
