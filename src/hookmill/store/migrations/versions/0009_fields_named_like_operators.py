"""In filters, names that start with `$` become operators.

Stored filters keep their meaning: an object with such a field name is moved below `$fields`.
"""

import json
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_OPERATORS: Final = frozenset({"in", "not_in", "exists"})
_LEVELS_MAX: Final = 10
_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", "$_- ")


def upgrade() -> None:
    # The revisions of webhooks stay, because the filters match the same payloads. A process of the previous version
    # would read `$fields` as the name of a field.
    connection = op.get_bind()
    rows = connection.execute(
        sa.text("SELECT automation_id, version, triggers FROM automation_versions WHERE triggers LIKE '%$%'")
    ).all()
    for row in rows:
        triggers = with_named_fields(row.triggers)
        if triggers != row.triggers:
            connection.execute(
                sa.text(
                    "UPDATE automation_versions SET triggers = :triggers "
                    "WHERE automation_id = :automation AND version = :version"
                ),
                {"triggers": triggers, "automation": row.automation_id, "version": row.version},
            )


def with_named_fields(stored: str) -> str:
    """The triggers with the same meaning in the new language. Unreadable triggers stay unchanged."""
    try:
        triggers = json.loads(stored, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return stored
    if not isinstance(triggers, list):
        return stored
    rewritten = [_trigger(trigger) for trigger in triggers]
    return _text(rewritten) if rewritten != triggers else stored


class _Number(str):
    """A number as text, so that it is not rounded."""

    __slots__ = ()


class _Unreadable(Exception):
    """The filter can't be read, so it matches nothing. A rewritten filter might match payloads."""


def _trigger(trigger: Any) -> Any:
    if not isinstance(trigger, dict) or (trigger.get("provider"), trigger.get("event")) != ("webhook", "received"):
        return trigger
    trigger_filter = trigger.get("filter")
    if not isinstance(trigger_filter, dict) or not isinstance(trigger_filter.get("payload"), dict):
        return trigger
    try:
        payload = _fields(trigger_filter["payload"], 1)
    except _Unreadable:
        return trigger
    return {**trigger, "filter": {**trigger_filter, "payload": payload}}


def _fields(source: dict[str, Any], level: int) -> dict[str, Any]:
    fields = {name: _field(condition, level) for name, condition in source.items()}
    return {"$fields": fields} if any(name.startswith("$") for name in fields) else fields


def _field(condition: Any, level: int) -> Any:
    if level > _LEVELS_MAX:
        raise _Unreadable
    if not isinstance(condition, dict) or condition.keys() <= _OPERATORS:
        return condition
    if any(name in _OPERATORS or _is_misspelt(name) for name in condition):
        raise _Unreadable
    return _fields(condition, level + 1)


def _is_misspelt(name: str) -> bool:
    """Whether the previous version rejected the name below the top level as a misspelt operator: `$in`, `notIn`."""
    return name.lower() not in _OPERATORS and name.lower().translate(_WITHOUT_PUNCTUATION) in {"in", "notin", "exists"}


def _text(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_text(of)}" for name, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value)
