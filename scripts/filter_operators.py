"""Writes two files from the table of filter operators: `python -m scripts.filter_operators`.

They are the table in docs/filters.md, and the part of the JSON Schema of automations that describes a payload filter.
"""

import json
from pathlib import Path
from typing import Any, Final

from hookmill.domain.filters import CONTRACT_OPERATORS, OPERATORS, SET_VALUES_MAX

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "filters.md"
SCHEMA: Final = ROOT / "src" / "hookmill" / "definitions" / "schemas" / "automation.schema.json"

FIRST: Final = "<!-- This table is written by `python -m scripts.filter_operators`. -->\n"
LAST: Final = "<!-- Here it ends. -->\n"

_ANY_FIELD: Final = {"$ref": "#/$defs/field"}


def page(text: str) -> str:
    """The text of the page, with the current table of operators between `FIRST` and `LAST`."""
    start, end = text.index(FIRST) + len(FIRST), text.index(LAST)
    rows = "".join(f"| `{each.name}` | `{each.example}` | {each.meaning} |\n" for each in OPERATORS.values())
    return f"{text[:start]}\n| Operator | Example | It matches if |\n|---|---|---|\n{rows}\n{text[end:]}"


def schema(whole: dict[str, Any]) -> dict[str, Any]:
    """The schema of automations, with the part about payload filters for the current operators."""
    others = {name: definition for name, definition in whole["$defs"].items() if name not in _filter()}
    return {**whole, "$defs": {**others, **_filter()}}


def _filter() -> dict[str, Any]:
    body_conditions = {
        each.name: _schema_for_bodies({**each.schema, "description": _described(each.name)})
        for each in OPERATORS.values()
        if each.may_take_body
    }
    return {
        "payload": {
            "description": "Which payloads start a run: an object that mirrors the body's shape. Every key must match. "
            "Without a filter, every payload starts a run.",
            "anyOf": [{"$ref": "#/$defs/bodyFields"}, {"$ref": "#/$defs/bodyConditions"}],
        },
        "bodyFields": {
            "type": "object",
            "propertyNames": {"not": {"pattern": "^\\$"}},
            "additionalProperties": _ANY_FIELD,
        },
        "bodyConditions": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": body_conditions,
        },
        "filter": {
            "description": "A filter with at least one condition.",
            "$ref": "#/$defs/payload",
            "minProperties": 1,
        },
        "field": {
            "description": "The values that the field may hold, conditions on it, or the fields of the object in it.",
            "anyOf": [{"$ref": "#/$defs/set"}, {"$ref": "#/$defs/conditions"}, {"$ref": "#/$defs/fields"}],
        },
        "set": {
            "type": "array",
            "maxItems": SET_VALUES_MAX,
            "items": {
                "description": "A value that the field may hold.",
                "type": ["string", "number", "boolean", "null"],
            },
        },
        "conditions": {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {
                each.name: {**each.schema, "description": _described(each.name)} for each in OPERATORS.values()
            },
            "not": {"required": ["in", "exists"], "properties": {"exists": {"const": False}}},
        },
        "fields": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"not": {"anyOf": [{"enum": list(CONTRACT_OPERATORS)}, {"pattern": "^\\$"}]}},
            "additionalProperties": _ANY_FIELD,
        },
        "named": {
            "description": "Fields by their names, whatever the names look like.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": _ANY_FIELD,
        },
    }


def _described(name: str) -> str:
    meaning = OPERATORS[name].meaning
    return f"{meaning[0].upper()}{meaning[1:]}."


def _schema_for_bodies(operand: dict[str, Any]) -> dict[str, Any]:
    """The schema of an operand at the top level: there, it contains filters of the body, not conditions on a field."""
    schema_of_bodies: dict[str, Any] = json.loads(json.dumps(operand).replace('"#/$defs/field"', '"#/$defs/filter"'))
    return schema_of_bodies


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    SCHEMA.write_text(json.dumps(schema(json.loads(SCHEMA.read_text())), indent=2, ensure_ascii=False) + "\n")
    print(f"{PAGE.name} and {SCHEMA.name} are written.")
