"""Specs: what a person may set. A class describes each field once, with its type, its limits and its meaning.

From the annotations follow the reader of JSON and YAML values (`read`), its error texts, and the JSON Schema. Rules
that concern several fields are in `Spec.problems`, and defaults that depend on others in `__post_init__`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from hookmill.domain import json_pointer
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.text import closest_name

S = TypeVar("S", bound="Spec")
MERGED_LEVELS: Final = 20
"""More levels than any spec has. A body may have so many that the recursion would fail."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person may set of a resource or of a part of it.

    The annotation `Meta(extra={"phrase": "a JSON pointer"})` says what a value must be, if its type and limits don't.
    A field can also have a class of ours with the attribute `source`, which is its JSON, and the class method `read`,
    which returns the value or a list of its faults. It reads null, too. `Meta(extra={"usable": usable_networks})` of a
    field names the function that returns the field's value in its normal form, or raises `Invalid`.
    """

    def problems(self) -> Iterable[Fault]:
        """What the types don't exclude. The pointers begin at this spec."""
        return ()

    def as_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults. Inside them, only what is empty is left out, and defaults that
        depend on other fields, so that they follow a change of these.

        Inside a class with `omit_defaults`, all defaults are left out.
        """
        return {name: _plain(value) for name, value, default, _ in _fields_of(self) if value != default}


def read(spec: type[S], source: Any, pointer: str = "") -> S:
    """The spec in a JSON or YAML value at the pointer. Raises `Invalid` with every problem and its pointer."""
    reader = _Reader()
    value = reader.read(described(spec), source, pointer)
    if reader.faults:
        raise Invalid.at(reader.faults)
    assert isinstance(value, spec)
    return value


def merge_patch(target: Any, patch: Any, levels: int = MERGED_LEVELS) -> Any:
    """The JSON value after a JSON merge patch (RFC 7396): null removes a field, and an object changes its fields.

    Objects below `levels` are replaced.
    """
    if not isinstance(patch, Mapping) or not levels:
        return patch
    fields = target if isinstance(target, Mapping) else {}
    changed = {
        name: merge_patch(fields.get(name), value, levels - 1) for name, value in patch.items() if value is not None
    }
    return {name: value for name, value in fields.items() if name not in patch} | changed


@cache
def described(spec: type[Spec]) -> inspect.StructType:
    """The types of the fields of a spec."""
    info = inspect.type_info(spec)
    assert isinstance(info, inspect.StructType)
    return info


def _fields_of(spec: Spec) -> Iterator[tuple[str, Any, Any, bool]]:
    """The name, the value and the default of each field, and whether the default depends on other fields."""
    for field in msgspec.structs.fields(type(spec)):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        is_derived = field.default_factory is int
        if is_derived:
            default = getattr(msgspec.structs.replace(spec, **{field.name: default}), field.name)
        yield field.name, getattr(spec, field.name), default, is_derived


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        config = value.__struct_config__
        return ({config.tag_field: config.tag} if config.tag_field is not None else {}) | {
            name: _plain(each)
            for name, each, default, is_derived in _fields_of(value)
            if each not in ((), {}, None) and not ((config.omit_defaults or is_derived) and each == default)
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return source_of(value) if hasattr(value, "source") else msgspec.to_builtins(value)


def source_of(value: Any) -> Any:
    """The JSON of a value with a class of ours."""
    return value.source


def object_schema(_kind: type) -> dict[str, Any]:
    """The JSON Schema of a class of ours."""
    return {"type": "object"}


def schemas(
    *specs: type[Spec], ref_template: str, schema_hook: Callable[[type], dict[str, Any]] = object_schema
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schemas of all fields of the specs, by name, and the schemas that they refer to, by name."""
    _, components = msgspec.json.schema_components(specs, ref_template=ref_template, schema_hook=schema_hook)
    return {
        name: schema for spec in specs for name, schema in components.pop(spec.__name__)["properties"].items()
    }, components


def title(schemas: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """A field's label for people."""
    return str(schemas[name].get("title") or name.replace("_", " ").capitalize())


class _Reader:
    """Reads a value by its type, and collects the faults."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def read(self, kind: inspect.Type, source: Any, pointer: str, *, is_name: bool = False) -> Any:
        """The value. After a fault, it has no meaning. `is_name`: the source is a name of the object at the pointer."""
        found = _alternative(kind, source)
        match found:
            case inspect.StructType():
                return self._read_struct(found, source, pointer)
            case inspect.VarTupleType() if _has_length(found, len(source)):
                return tuple(
                    self.read(found.item_type, item, f"{pointer}/{number}") for number, item in enumerate(source)
                )
            case inspect.DictType() if _has_length(found, len(source)):
                return {
                    self.read(found.key_type, name, pointer, is_name=True): self.read(
                        found.value_type, item, f"{pointer}/{json_pointer.escape(str(name)[:40])}"
                    )
                    for name, item in source.items()
                }
            case inspect.EnumType() if source in list(found.cls):
                return found.cls(source)
            case inspect.IntType() if (found.ge or 0) <= source <= (source if found.le is None else found.le):
                return source
            case inspect.StrType() if _has_length(found, len(source)) and _matches(found.pattern, source):
                return source
            case inspect.BoolType() | inspect.NoneType() | inspect.AnyType():
                return source
            case inspect.LiteralType() if source in found.values:
                return source
            case inspect.CustomType():
                return self._read_custom(found.cls, source, pointer)
        subject = _subject(pointer)
        if is_name:
            subject = f"The name {str(source)[:40]!r} in {subject}"
        self.faults.append(Fault(pointer, f"{subject} must be {_phrase(kind)}."))
        return None

    def _read_custom(self, kind: Any, source: Any, pointer: str) -> Any:
        value = kind.read(source)
        if not isinstance(value, list):
            return value
        self.faults += [
            Fault(pointer + fault.pointer, f"{fault.pointer}: {fault.message}" if fault.pointer else fault.message)
            for fault in value
        ]
        return None

    def _read_struct(self, kind: inspect.StructType, source: dict[Any, Any], pointer: str) -> Any:
        fields = {field.name: field for field in kind.fields}
        known = (*((kind.tag_field,) if kind.tag_field is not None else ()), *fields)
        misspelt: set[str | None] = set()
        before = len(self.faults)
        for name in source:
            if name not in known:
                shown, likely = str(name)[:40], closest_name(str(name), known)
                misspelt.add(likely)
                hint = f"Did you mean {likely}?" if likely is not None else f"Known fields: {', '.join(known)}."
                self.faults.append(Fault(f"{pointer}/{json_pointer.escape(shown)}", f"Unknown field {shown!r}. {hint}"))
        values = {
            name: self._read_field(field.type, source.get(name), f"{pointer}/{name}")
            for name, field in fields.items()
            # Null stands for the default.
            if source.get(name) is not None
            or (field.required and name not in misspelt)
            or (name in source and _reads_null(field.type))
        }
        if len(self.faults) > before:
            return None
        spec = kind.cls(**values)
        assert isinstance(spec, Spec)
        self.faults += [Fault(pointer + fault.pointer, fault.message) for fault in spec.problems()]
        return spec

    def _read_field(self, kind: inspect.Type, source: Any, pointer: str) -> Any:
        before = len(self.faults)
        value = self.read(kind, source, pointer)
        usable = (kind.extra or {}).get("usable") if isinstance(kind, inspect.Metadata) else None
        if usable is None or len(self.faults) > before:
            return value
        try:
            return usable(value)
        except Invalid as error:
            self.faults += error.faults_at(pointer)
            return None


def _subject(pointer: str) -> str:
    """The value at the pointer, for people."""
    *before, last = json_pointer.steps_of(pointer) or ["The value"]
    return f"Each item of {before[-1]}" if last.isdigit() and before else last


_JSON_TYPES: Final[dict[type[inspect.Type], type | tuple[type, ...]]] = {
    inspect.StructType: dict,
    inspect.DictType: dict,
    inspect.VarTupleType: (list, tuple),
    inspect.EnumType: str,
    inspect.LiteralType: str,
    inspect.StrType: str,
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.NoneType: type(None),
    inspect.CustomType: object,
}


def _alternative(kind: inspect.Type, source: Any) -> inspect.Type | None:
    """The type among the alternatives whose JSON type is that of the source."""
    for each in alternatives(kind):
        if isinstance(each, inspect.AnyType):
            return each
        is_boolean = isinstance(source, bool)
        if isinstance(each, inspect.StructType) and each.tag is not None and isinstance(source, dict):
            if source.get(each.tag_field) == each.tag:
                return each
        elif isinstance(source, _JSON_TYPES[type(each)]) and is_boolean == isinstance(each, inspect.BoolType):
            return each
    return None


def alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The types of a union, or the type itself, without annotations."""
    if isinstance(kind, inspect.Metadata):
        yield from alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from alternatives(each)
    else:
        yield kind


def _reads_null(kind: inspect.Type) -> bool:
    return any(isinstance(each, inspect.CustomType) for each in alternatives(kind))


def _matches(pattern: str | None, text: str) -> bool:
    """Whether the pattern of a JSON Schema matches. Python's `$` would also match before a line feed at the end."""
    return pattern is None or re.search(re.sub(r"\$\Z", r"\\Z", pattern), text) is not None


def _has_length(kind: inspect.StrType | inspect.VarTupleType | inspect.DictType, length: int) -> bool:
    return (kind.min_length or 0) <= length <= (length if kind.max_length is None else kind.max_length)


def _phrase(kind: inspect.Type) -> str:
    """What a value of the type must be, for people: `a whole number from 1 to 20`."""
    match kind:
        case inspect.Metadata(extra={"phrase": text}):
            return str(text)
        case inspect.Metadata():
            return _phrase(kind.type)
        case inspect.UnionType():
            return ", or ".join(_phrase(each) for each in kind.types if not isinstance(each, inspect.NoneType))
        case inspect.StructType():
            return f"an object with {', '.join(field.name for field in kind.fields)}"
        case inspect.VarTupleType():
            return f"a list{_length_text(kind, 'items')}, each {_phrase(kind.item_type)}"
        case inspect.DictType():
            return f"an object{_length_text(kind, 'fields')}, each {_phrase(kind.value_type)}"
        case inspect.EnumType():
            *others, last = (str(member.value) for member in kind.cls)
            return f"{', '.join(others)} or {last}"
        case inspect.LiteralType():
            return " or ".join(map(str, kind.values))
        case inspect.IntType():
            return f"a whole number from {kind.ge:,} to {kind.le:,}"
        case inspect.BoolType():
            return "true or false"
    assert isinstance(kind, inspect.StrType)
    return f"a text{_length_text(kind, 'characters')}"


def _length_text(kind: inspect.StrType | inspect.VarTupleType | inspect.DictType, noun: str) -> str:
    return f" of up to {kind.max_length:,} {noun}" if kind.max_length is not None else ""
