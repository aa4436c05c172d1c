"""Rows that contradict themselves, or refer to nothing, can't be stored. The declared schema has the constraints."""

from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import IntegrityError

from hookmill.domain.delivery import IdentityKind, Label, RateLimit
from hookmill.domain.permission import ActorKind, Channel
from hookmill.domain.run import Hold, RunState
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.store.schema import metadata

ROWS: dict[str, list[dict[str, Any]]] = {
    "teams": [{"id": "t", "name": "t"}],
    "factories": [{"id": "f", "team_id": "t", "name": "f"}],
    "secrets": [{"id": key, "team_id": "t", "factory_id": "f", "name": key} for key in ("s1", "s2")],
    "secret_versions": [
        {"id": key, "secret_id": secret, "version": 1, "key_id": "k", "sealed": b"k"}
        for key, secret in (("v1", "s1"), ("v2", "s2"))
    ],
    "webhooks": [
        {
            "no": 1, "uid": "w", "factory_id": "f", "name": "w", "auth_mode": "token", "state": "enabled",
            "secret_id": "s1", "secret_version_id": "v1", "revision": 1,
        }
    ],
    "deliveries": [{"id": b"k" * 16, "webhook_no": 1, "label": 1, "rate_limit": 1}],
    "runs": [
        {
            "id": b"k" * 16, "delivery_id": b"k" * 16, "webhook_no": 1, "factory_id": "f", "automation_id": "a",
            "automation_version": 1, "state": "queued",
        }
    ],
    "audit_log": [{"id": b"k" * 16, "team_id": "t", "actor_kind": "operator", "channel": "cli", "details": "{}"}],
}  # fmt: skip
"""Valid rows. The other columns that need a value have zero, false or an empty text."""
REFUSED = (
    "UPDATE webhooks SET state = 'gone'",
    "UPDATE webhooks SET auth_mode = 'none'",
    "UPDATE webhooks SET deleted_at = 1",
    "UPDATE webhooks SET state = 'deleted'",
    "UPDATE webhooks SET secret_version_id = NULL",
    "UPDATE webhooks SET secret_version_id = 'v2'",
    "UPDATE webhooks SET revision = 0",
    "UPDATE deliveries SET label = 9",
    "UPDATE deliveries SET rate_limit = 3",
    "UPDATE deliveries SET identity_kind = 6",
    "UPDATE deliveries SET label = 2",
    "UPDATE deliveries SET duplicate_of = id",
    "UPDATE runs SET state = 'done'",
    "UPDATE runs SET finished_at = 1",
    "UPDATE runs SET state = 'cancelled'",
    "UPDATE runs SET state = 'running', attempt = 1, executor = 'x'",
    "UPDATE runs SET executor = 'x', claimed_at = 1",
    "UPDATE runs SET hold = 5",
    "UPDATE runs SET hold = 1, state = 'cancelled', finished_at = 1",
    "UPDATE runs SET policy_key = :short",
    "UPDATE runs SET failures = 1",
    "UPDATE runs SET stopped_attempts = 1",
    "UPDATE runs SET webhook_no = 0, delivery_id = :other",
    "UPDATE audit_log SET actor_kind = 'nobody'",
    "UPDATE audit_log SET channel = 'door'",
    "UPDATE audit_log SET team_id = 'u'",
)
VALUES = {"other": b"l" * 16, "short": b"k"}


@pytest.fixture
def declared(empty_database_url):
    """A database with the declared schema, and a row of each table with constraints."""
    engine = create_engine(empty_database_url.replace("postgresql://", "postgresql+psycopg://"))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    metadata.create_all(engine)
    with engine.connect() as connection:
        for name, rows in ROWS.items():
            table = metadata.tables[name]
            needed = {column.name: column.type.python_type() for column in table.columns if not column.nullable}
            connection.execute(table.insert(), [{**needed, **row} for row in rows])
        yield connection
    engine.dispose()


def run(connection: Connection, statement: str):
    connection.execute(text(statement), {name: value for name, value in VALUES.items() if f":{name}" in statement})


def test_contradictory_rows_are_refused(declared):
    accepted = []
    for statement in REFUSED:
        change = declared.begin_nested()
        try:
            run(declared, statement)
            accepted.append(statement)
        except IntegrityError:
            pass
        change.rollback()

    assert accepted == []


def test_every_value_of_the_code_is_accepted(declared):
    columns: dict[str, list[Any]] = {
        "deliveries SET identity_kind": list(IdentityKind),
        "deliveries SET rate_limit": list(RateLimit),
        "deliveries SET duplicate_of = :other, label": [Label.DUPLICATE],
        "deliveries SET duplicate_of = NULL, label": [label for label in Label if label is not Label.DUPLICATE],
        "runs SET hold": list(Hold),
        "runs SET hold = NULL, attempt = 1, executor = 'x', claimed_at = 1, state": [RunState.RUNNING],
        "runs SET finished_at = 1, state": [state for state in RunState if state.is_final],
        "webhooks SET auth_mode": list(AuthMode),
        "webhooks SET state": [WebhookState.DISABLED, WebhookState.ENABLED],
        "webhooks SET deleted_at = 1, state": [WebhookState.DELETED],
        "audit_log SET actor_kind": list(ActorKind),
        "audit_log SET channel": list(Channel),
    }
    for column, values in columns.items():
        for value in values:
            literal = f"'{value}'" if isinstance(value, str) else int(value)
            run(declared, f"UPDATE {column} = {literal}")
