"""The texts of problems in settings: one line each, with the name of the variable, or of the file and the key.

They contain no values, which may be secrets.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel

_UNKNOWN_KEY: Final = "extra_forbidden"
_NOT_INTEGERS: Final = {"int_parsing", "int_type", "int_from_float"}
_NOT_LISTS: Final = {"list_type", "tuple_type"}
_UNKNOWN_KIND: Final = "union_tag_invalid"


def suggestion(name: str, names: Iterable[str], *, variables: bool = False) -> str:
    """The end of an error text for an unknown name: the known name that is similar, if there is one."""
    similar = get_close_matches(name, list(names), n=1)
    if not similar:
        return ""
    return f"; did you mean {f'HOOKMILL_{similar[0].upper()}' if variables else similar[0]}?"


def describe_problem(
    settings: type[BaseModel], details: Mapping[str, Any], path: Path, environment: Mapping[str, str]
) -> str:
    """One line for an error that pydantic found; for settings that contradict each other, one for each.

    `settings`: the model of all settings. `path`: that of the file.
    """
    keys, models = _resolved(settings, [str(part) for part in details["loc"]])
    if not keys:
        lines = str(details["msg"]).removeprefix("Value error, ").splitlines()
        return "\n".join(_with_source(line, path, environment) for line in lines)
    variable = f"HOOKMILL_{keys[0].upper()}"
    source = variable if variable in environment else str(path)
    if details["type"] == _UNKNOWN_KEY and len(keys) > 1:
        *table, key = keys
        known = sorted({name for model in models for name in model.model_fields})
        if key in settings.model_fields:
            place = "above the first table" if source != variable else f"into HOOKMILL_{key.upper()}"
            hint = f"; as a setting, it belongs {place}"
        else:
            hint = suggestion(key, known) or f"; known keys: {', '.join(known)}"
        return f"{source}: unknown key {key!r} in the table {'.'.join(table)}{hint}"
    message = str(details["msg"]).removeprefix("Value error, ")
    if details["type"] == _UNKNOWN_KIND:
        message = f"kind must be one of: {details['ctx']['expected_tags'].replace(chr(39), '')}"
    if details["type"] in _NOT_INTEGERS:
        # A number is no secret, but a text in its place may be one.
        message = "must be a whole number"
    if details["type"] in _NOT_LISTS:
        message = 'must be a list, such as ["one", "two"]'
    below = keys[1:] if source == variable else keys
    return ": ".join([source, *([".".join(below)] if below else []), message])


def _with_source(problem: str, path: Path, environment: Mapping[str, str]) -> str:
    """The problem `NAME: …` with the setting's variable, or the file, in front, if one of them has the setting."""
    name, colon, reason = problem.partition(": ")
    variable = f"HOOKMILL_{name.upper()}"
    if colon and variable in environment:
        return f"{variable}: {reason}"
    return f"{path}: {problem}" if path.exists() else problem


def _resolved(settings: type[BaseModel], location: Sequence[str]) -> tuple[list[str], Sequence[type[BaseModel]]]:
    """The keys of a location, without the kinds that pydantic adds; and the models of the table with the last key.

    The table has several models if its kind is unknown.
    """
    keys: list[str] = []
    models: Sequence[type[BaseModel]] = [settings]
    parts = list(location)
    while parts:
        key = parts.pop(0)
        keys.append(key)
        field = next((model.model_fields[key] for model in models if key in model.model_fields), None)
        if not parts or field is None:
            return keys + parts, models
        models = _models_in(field.annotation)
        if get_origin(field.annotation) is dict:
            keys.append(parts.pop(0))
        if parts and len(models) > 1:
            of_kind = [model for model in models if parts[0] in _kinds_of(model)]
            if of_kind:
                models = of_kind
                del parts[0]
    return keys, models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        parts = parts[:1]
    return [model for part in parts for model in _models_in(part)]


def _kinds_of(model: type[BaseModel]) -> tuple[str, ...]:
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
