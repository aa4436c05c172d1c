"""Definition files: webhooks and automations as files in git, planned, applied, and exported.

    folder.py     finds the definition files of a folder, and opens nothing outside it
    text.py       decodes a file's text; finds unresolved merges and the front matter
    nodes.py      parses the supported part of YAML; each value has its line and column
    mapping.py    reads mappings with a fixed set of keys
    keys.py       defines the keys of definition files, and the fields that the keys set
    reading.py    turns files into definitions, or into a list of all problems
    planning.py   computes what applying the definitions would change; pure
    applying.py   checks a plan by applying it to a copy in memory, or applies it, all or nothing
    rendering.py  prints a plan as text
    exporting.py  writes a factory as files
    schemas/      JSON Schemas, for editors

A webhook is identified by its name: the key `name`, or else the file's name. It keeps its uid and URL as long as there
is a definition of that name.
"""

import json
from importlib import resources
from typing import Any

from hookmill.definitions.applying import (
    ApplyResult,
    ConsentNeeded,
    apply,
    backtest,
    definitions_for,
    plan,
    validated_definitions,
)
from hookmill.definitions.exporting import export, write
from hookmill.definitions.keys import AUTOMATION_KEYS
from hookmill.definitions.planning import Plan, PlannedAction
from hookmill.definitions.problem import Problem, UnusableDefinitions
from hookmill.definitions.reading import Definitions
from hookmill.definitions.rendering import lines_of_plan, summary_of
from hookmill.domain import spec
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.results import OPTIONAL_FIELDS, DeclaredResult
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import RunPolicy


def schema(kind: DefinitionKind) -> bytes:
    """The JSON Schema (2020-12) of a kind of file; for automations, of the front matter."""
    document = json.loads(resources.files(__name__).joinpath("schemas", f"{kind}.schema.json").read_bytes())
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


__all__ = [
    "ApplyResult",
    "ConsentNeeded",
    "Definitions",
    "Plan",
    "PlannedAction",
    "Problem",
    "UnusableDefinitions",
    "apply",
    "backtest",
    "definitions_for",
    "export",
    "lines_of_plan",
    "plan",
    "schema",
    "summary_of",
    "validated_definitions",
    "write",
]
