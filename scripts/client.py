"""Writes the client's operations and types from the API's OpenAPI document: `python -m scripts.client`."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hookmill.web.api import application
from hookmill.web.api.openapi import openapi_document

CLIENT: Final = Path(__file__).resolve().parent.parent / "src" / "hookmill" / "client"
OMITTED_TAGS: Final = {"Reference"}
OMITTED_OPERATIONS: Final = {"report_attempt"}
"""An agent platform performs it, with the token of an attempt."""
BASE_FIELDS_MIN: Final = 4
"""A type extends another one only if that has at least so many fields."""
DOCUMENT: Final = openapi_document(application())
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

OPERATIONS_HEAD: Final = '''\
"""The operations of the API. `python -m scripts.client` writes this file from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Literal, Unpack

from hookmill.client.requests import Requests

if TYPE_CHECKING:
    from hookmill.client import types


class ApiOperations(Requests):
    """One method for each operation. Lists are read page by page."""
'''
TYPES_HEAD: Final = '''\
"""The JSON of the API. `python -m scripts.client` writes this file from the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict
'''


def files() -> dict[Path, str]:
    """The text of each file, formatted."""
    operations, used_types = _operations(DOCUMENT)
    return {
        CLIENT / "operations.py": _formatted(OPERATIONS_HEAD + operations),
        CLIENT / "types.py": _formatted(TYPES_HEAD + _types(DOCUMENT["components"]["schemas"], used_types)),
    }


def _operations(document: dict[str, Any]) -> tuple[str, set[str]]:
    text, types = "", set[str]()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] not in OMITTED_OPERATIONS and not OMITTED_TAGS & set(operation["tags"]):
                text += _operation(method.upper(), path, operation, types, document["components"]["schemas"])
    return text, types


def _operation(method: str, path: str, operation: dict[str, Any], types: set[str], schemas: dict[str, Any]) -> str:
    parameters = operation.get("parameters", [])
    path_names = re.findall("{([a-z_]+)}", path)
    query = {p["name"]: p for p in parameters if p["in"] == "query" and p["name"] not in ("limit", "cursor")}
    is_list = any(parameter["name"] == "cursor" for parameter in parameters)
    arguments = ["self", *(f"{name}: str" for name in path_names), *(["/"] if path_names else [])]
    if query or is_list:
        arguments += ["*", *(f"{name}: {_optional(p['schema'], types)} = None" for name, p in query.items())]
        arguments += ["limit: int | None = None", "cursor: str | None = None"] if is_list else []
    body = _body_type(operation)
    if body is not None:
        types.add(body)
        arguments.append(f"**body: Unpack[types.{_name(body)}]")
    # The path's parameters are arguments of `str.format`.
    target = [f'"{re.sub("{[a-z_]+}", "{}", path.removeprefix("/api/v1/"))}"', *path_names]
    query_text = "{" + ", ".join(f'"{name}": {name}' for name in query) + "}"
    response = next(response for code, response in operation["responses"].items() if code.startswith("2"))
    content = response.get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if is_list:
        item = schemas[schema["$ref"].rpartition("/")[2]]["properties"]["items"]["items"]
        result = f"Iterator[{_type(item, types)}]"
        paging = [*([f"query={query_text}"] if query else []), "limit=limit", "cursor=cursor"]
        call = f"_pages({', '.join([*target, *paging])})"
    elif content and "$ref" not in schema:
        result, call = "BinaryIO", f"_download({', '.join(target)})"
    else:
        target += ["body=body"] if body is not None else []
        is_idempotent = any(parameter["name"] == "Idempotency-Key" for parameter in parameters)
        target += ["is_idempotent=True"] if is_idempotent else []
        result = _type(schema, types) if content else "None"
        call = f"_call({', '.join([repr(method), *target])})"
    return (
        f"\n    def {operation['operationId']}({', '.join(arguments)}) -> {result}:\n"
        f'        """{operation["summary"]}."""\n        {"return " if content else ""}self.{call}\n'
    )


def _optional(schema: dict[str, Any], types: set[str]) -> str:
    return f"{_type(schema, types).removesuffix(' | None')} | None"


def _body_type(operation: dict[str, Any]) -> str | None:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    schema = content["schema"]
    # An optional body may be null.
    reference: str = schema.get("$ref") or schema["anyOf"][0]["$ref"]
    return reference.rpartition("/")[2]


def _type(schema: dict[str, Any], types: set[str], prefix: str = "types.") -> str:
    """The Python type of a schema. Adds the names of the types that it needs to `types`."""
    if "$ref" in schema:
        name: str = schema["$ref"].rpartition("/")[2]
        types.add(name)
        return prefix + _name(name)
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(inner, types, prefix) for inner in schema["anyOf"]))
    match schema.get("type"):
        case "array":
            return f"list[{_type(schema.get('items', {}), types, prefix)}]"
        case "object":
            inner = schema.get("additionalProperties")
            return f"dict[str, {_type(inner if isinstance(inner, dict) else {}, types, prefix)}]"
        case str() as scalar:
            return _SCALARS[scalar]
        case _:
            return "Any"


def _name(schema_name: str) -> str:
    """The name of a schema's type. No other class of the package has it."""
    short_name = schema_name.removesuffix("View")
    return f"{schema_name if short_name in DOCUMENT['components']['schemas'] else short_name}Json"


def _types(schemas: dict[str, Any], used: set[str]) -> str:
    texts: dict[str, str] = {}
    while missing := sorted(used - set(texts)):
        for name in missing:
            texts[name] = _type_definition(name, schemas, used)
    # An alias and a base class are evaluated where they are used, so they precede that.
    order = {
        name: len(_bases(name, schemas, used)) if text.startswith("\n\nclass") else -1 for name, text in texts.items()
    }
    return "".join(texts[name] for name in sorted(texts, key=lambda name: (order[name], name)))


def _bases(name: str, schemas: dict[str, Any], used: set[str]) -> list[str]:
    """The types that the type extends, the largest first."""
    properties, required = schemas[name].get("properties", {}), set(schemas[name].get("required", ()))
    bases = [
        other
        for other in used
        if (fields := schemas[other].get("properties", {})).keys() < properties.keys()
        and len(fields) >= BASE_FIELDS_MIN
        and all(properties[field] == schema for field, schema in fields.items())
        and required & fields.keys() == set(schemas[other].get("required", ()))
    ]
    return sorted(bases, key=lambda other: (-len(schemas[other]["properties"]), other))


def _type_definition(name: str, schemas: dict[str, Any], used: set[str]) -> str:
    schema = schemas[name]
    properties = schema.get("properties")
    if properties is None or not all(re.fullmatch("[a-z_]+", field) for field in properties):
        return f"{_name(name)} = {_type({k: v for k, v in schema.items() if k != 'properties'}, used, '')}\n"
    required = set(schema.get("required", ()))
    bases = _bases(name, schemas, used)
    if bases:
        properties = {field: each for field, each in properties.items() if field not in schemas[bases[0]]["properties"]}
    is_partial = len(required & properties.keys()) < len(properties) / 2
    fields = "".join(_fields(properties, required, is_partial, used))
    base = _name(bases[0]) if bases else "TypedDict"
    return f"\n\nclass {_name(name)}({base}{', total=False' if is_partial else ''}):\n{fields}"


def _fields(properties: dict[str, Any], required: set[str], is_partial: bool, used: set[str]) -> Iterator[str]:
    for field, schema in properties.items():
        type_text = _type(schema, used, "")
        if (field in required) == is_partial:
            type_text = f"{'Required' if is_partial else 'NotRequired'}[{type_text}]"
        yield f"    {field}: {type_text}\n"


def _formatted(text: str) -> str:
    for arguments in (["check", "--fix-only", "--quiet", "--select", "F401,I,UP037,RUF"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(CLIENT / "operations.py"), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for file, content in files().items():
        file.write_text(content)
