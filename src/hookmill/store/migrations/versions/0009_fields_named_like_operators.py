"""Names that start with `$` are operators of filters now. Stored filters keep their meaning: where such a name is a
field's, the object is written below `$fields`.
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
    # The revisions of webhooks stay: what a filter matches does not change, and a process of the version before would
    # read what is written here as the name of a field.
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
    """The triggers, meaning the same in the new language. What could not be read stays as it is, and unread."""
    try:
        triggers = json.loads(stored, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return stored
    if not isinstance(triggers, list):
        return stored
    rewritten = [_trigger(each) for each in triggers]
    return _text(rewritten) if rewritten != triggers else stored


class _Number(str):
    """A number as it is written: none is rounded on the way."""

    __slots__ = ()


class _Unreadable(Exception):
    """The filter matched nothing, because it could not be read. Rewritten, it might be read."""


def _trigger(trigger: Any) -> Any:
    if not isinstance(trigger, dict) or (trigger.get("provider"), trigger.get("event")) != ("webhook", "received"):
        return trigger
    chosen = trigger.get("filter")
    if not isinstance(chosen, dict) or not isinstance(chosen.get("payload"), dict):
        return trigger
    try:
        payload = _fields(chosen["payload"], 1)
    except _Unreadable:
        return trigger
    return {**trigger, "filter": {**chosen, "payload": payload}}


def _fields(source: dict[str, Any], level: int) -> dict[str, Any]:
    fields = {name: _field(wanted, level) for name, wanted in source.items()}
    return {"$fields": fields} if any(name.startswith("$") for name in fields) else fields


def _field(wanted: Any, level: int) -> Any:
    if level > _LEVELS_MAX:
        raise _Unreadable
    if not isinstance(wanted, dict) or wanted.keys() <= _OPERATORS:
        return wanted
    if any(name in _OPERATORS or _is_refused(name) for name in wanted):
        raise _Unreadable
    return _fields(wanted, level + 1)


def _is_refused(name: str) -> bool:
    """`$in`, `notIn`: below the top level these were taken for misspelt operators."""
    return name.lower() not in _OPERATORS and name.lower().translate(_WITHOUT_PUNCTUATION) in {"in", "notin", "exists"}


def _text(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_text(of)}" for name, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value)
