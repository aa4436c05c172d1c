"""The JSON Schemas of definition files, for editors: those in `schemas/`, with the fields that specs describe."""

import json
from importlib import resources
from typing import Any

from hookmill.definitions.keys import REFERENCE, WEBHOOK_FIELDS
from hookmill.domain import spec
from hookmill.domain.automation import AutomationWithoutPrompt
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.results import OPTIONAL_FIELDS, DeclaredResult
from hookmill.domain.webhook import WebhookSpec


def schema(kind: DefinitionKind) -> bytes:
    """The JSON Schema (2020-12) of a kind of file; for automations, of the front matter."""
    document = json.loads(resources.files(__package__).joinpath("schemas", f"{kind}.schema.json").read_bytes())
    if kind is DefinitionKind.WEBHOOK:
        fields, components = spec.schemas(WebhookSpec, ref_template="#/$defs/{name}")
        document["properties"] = {
            key: _without_null(fields[field]) | document["properties"].get(key, {})
            for key, field in WEBHOOK_FIELDS.items()
        }
        # Without the key, an existing webhook keeps its state.
        del document["properties"]["enabled"]["default"]
        document["$defs"] |= components
    if kind is DefinitionKind.AUTOMATION:
        fields, components = spec.schemas(
            AutomationWithoutPrompt,
            ref_template="#/$defs/{name}",
            schema_hook=lambda _: {"$ref": "#/$defs/payload"},
        )
        # Files have defaults of their own for the name and the state.
        document["properties"] = {
            name: _without_null(field) | document["properties"].get(name, {}) for name, field in fields.items()
        }
        uids = components["DeliveryFilter"]["properties"]["webhook_ids"]
        uids["items"]["pattern"] += f"|^{REFERENCE}."
        # As in payload filters, a list is short for `in`.
        condition = {"type": "object", "properties": {"in": uids}, "required": ["in"], "additionalProperties": False}
        components["DeliveryFilter"]["properties"]["webhook_ids"] = {"anyOf": [uids, condition]}
        components["Schedule"]["required"].remove("name")
        components["Schedule"]["properties"]["name"] = {
            **document["properties"]["name"],
            "description": "The name of the schedule, unique in the automation. Default: the automation's name.",
        }
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
