"""Definition files: webhooks and automations as files in git, planned, applied, and exported.

    folder.py       finds the definition files of a folder, and opens nothing outside it
    text.py         decodes a file's text; finds unresolved merges and the front matter
    nodes.py        parses the supported part of YAML; each value has its line and column
    mapping.py      reads mappings with a fixed set of keys
    keys.py         defines the keys of definition files, and the fields that the keys set
    reading.py      turns files into definitions, or into a list of all problems
    planning.py     computes what applying the definitions would change; pure
    applying.py     checks a plan by applying it to a copy in memory, or applies it, all or nothing
    rendering.py    prints a plan as text
    exporting.py    writes a factory as files
    file_schema.py  the JSON Schemas for editors: those in schemas/, with the fields that specs describe

A webhook is identified by its name: the key `name`, or else the file's name. It keeps its uid and URL as long as there
is a definition of that name.
"""

from hookmill.definitions.applying import (
    ApplyResult,
    ConsentNeeded,
    apply,
    backtest,
    definitions_for,
    plan,
    require_usable,
    validated_definitions,
)
from hookmill.definitions.exporting import export, write
from hookmill.definitions.file_schema import schema
from hookmill.definitions.folder import files_of, read_folder
from hookmill.definitions.planning import Plan, PlannedAction
from hookmill.definitions.problem import Problem, UnusableDefinitions
from hookmill.definitions.reading import Definitions
from hookmill.definitions.rendering import lines_of_plan, summary_of

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
    "files_of",
    "lines_of_plan",
    "plan",
    "read_folder",
    "require_usable",
    "schema",
    "summary_of",
    "validated_definitions",
    "write",
]
