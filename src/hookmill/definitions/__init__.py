"""Definition files: webhooks and automations as files in git, planned, applied, and exported.

    folder.py     which files of a folder are definitions; nothing outside it is opened
    text.py       from bytes to text; unresolved merges, front matter
    nodes.py      the part of YAML that they may use, each value with its line and column
    mapping.py    mappings whose keys are known
    keys.py       those keys, and the fields that they stand for
    reading.py    from bytes to definitions, or to everything that is wrong with them
    planning.py   what applying them would change; pure
    applying.py   the plan, proven and taken: all of it or nothing
    rendering.py  a plan in words
    exporting.py  the way back: a factory as files
    schemas/      JSON Schemas, for editors

A webhook is known by its name, which is the file's unless a key `name` says another. It keeps its uid, and so its URL,
for as long as there is a definition of that name.
"""

from importlib import resources

from hookmill.definitions.applying import (
    Applied,
    ConsentNeeded,
    apply,
    backtest,
    definitions_for,
    plan,
    validated,
)
from hookmill.definitions.exporting import export, write
from hookmill.definitions.planning import Kind, Plan, PlannedAction, PlannedChange, Step
from hookmill.definitions.problem import Place, Problem, UnusableDefinitions
from hookmill.definitions.reading import AutomationDefinition, Definitions, WebhookDefinition
from hookmill.definitions.rendering import lines_of_plan, summary_of
from hookmill.domain.errors import NotFound

SCHEMAS = ("webhook", "automation")


def schema(kind: str) -> bytes:
    """The JSON Schema (2020-12) of a kind of file: `webhook`, or `automation` for its front matter."""
    if kind not in SCHEMAS:
        raise NotFound(f"There is no schema {kind[:40]!r}. Schemas are: {', '.join(SCHEMAS)}.")
    return resources.files(__name__).joinpath("schemas", f"{kind}.schema.json").read_bytes()


__all__ = [
    "SCHEMAS",
    "Applied",
    "AutomationDefinition",
    "ConsentNeeded",
    "Definitions",
    "Kind",
    "Place",
    "Plan",
    "PlannedAction",
    "PlannedChange",
    "Problem",
    "Step",
    "UnusableDefinitions",
    "WebhookDefinition",
    "apply",
    "backtest",
    "definitions_for",
    "export",
    "lines_of_plan",
    "plan",
    "schema",
    "summary_of",
    "validated",
    "write",
]
