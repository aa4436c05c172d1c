"""The JSON Schemas of definition files, for editors: those in `schemas/`, with the fields that specs describe."""

import json
from importlib import resources
from typing import Any

from hookmill.definitions.keys import AUTOMATION_KEYS
from hookmill.domain import spec
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.results import OPTIONAL_FIELDS, DeclaredResult
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import RunPolicy


def schema(kind: DefinitionKind) -> bytes:
    """The JSON Schema (2020-12) of a kind of file; for automations, of the front matter."""
    document = json.loads(resources.files(__package__).joinpath("schemas", f"{kind}.schema.json").read_bytes())
    if kind is DefinitionKind.AUTOMATION:
        fields, components = spec.schemas(RunPolicy, RunOptions, ref_template="#/$defs/{name}")
        properties = document["properties"] | {name: _without_null(field) for name, field in fields.items()}
        document["properties"] = {name: properties[name] for name in AUTOMATION_KEYS}
        components["DeclaredResult"]["allOf"] = [
            {
                "if": {"properties": {"kind": {"const": kind}}},
                "then": {"properties": dict.fromkeys(_other_fields(names), False)},
            }
            for kind, names in OPTIONAL_FIELDS.items()
        ]
        document["$defs"] |= components
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def _other_fields(names: tuple[str, ...]) -> set[str]:
    return set(DeclaredResult.__struct_fields__) - {"kind", "destination", *names}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field of a file, in which a missing key stands for null."""
    alternatives = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if schema.get("default") is None:
        schema.pop("default", None)
    if len(alternatives) == 1:
        del schema["anyOf"]
        schema |= alternatives[0]
    return schema
