"""Rows that contradict themselves, or refer to nothing, can't be stored. The declared schema has the constraints."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import IntegrityError

from hookmill.domain.delivery import IdentityKind, Label, RateLimit
from hookmill.domain.permission import ActorKind, Channel
from hookmill.domain.run import Hold, RunState
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.store.schema import metadata

ROWS = (
    "INSERT INTO teams (id, name, created_at) VALUES ('t', 't', 1)",
    "INSERT INTO factories (id, team_id, name, created_at, defined_by_files) VALUES ('f', 't', 'f', 1, :no)",
    "INSERT INTO secrets (id, team_id, name, created_at) VALUES ('s1', 't', 'A', 1), ('s2', 't', 'B', 1)",
    "INSERT INTO secret_versions (id, secret_id, version, key_id, sealed, created_at) "
    "VALUES ('v1', 's1', 1, 'k', :bytes, 1), ('v2', 's2', 1, 'k', :bytes, 1)",
    "INSERT INTO webhooks (no, uid, factory_id, name, auth_mode, state, secret_id, secret_version_id, revision, "
    "created_at) VALUES (1, 'w', 'f', 'w', 'token', 'enabled', 's1', 'v1', 1, 1)",
    "INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size) VALUES (:bytes, 1, 1, 1, 1, 2)",
    "INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt, "
    "created_at) VALUES (:bytes, :bytes, 1, 'f', 'a', 1, 'queued', 0, 1)",
    "INSERT INTO audit_log (id, team_id, at, actor_kind, actor_id, actor_name, channel, action, subject_kind, "
    "subject_id, subject_name, details) VALUES (:bytes, 't', 1, 'operator', '', '', 'cli', 'a', 's', '', '', '{}')",
)
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
VALUES = {"no": False, "bytes": b"k" * 16, "other": b"l" * 16, "short": b"k"}


@pytest.fixture
def declared(empty_database_url: str) -> Iterator[Connection]:
    """A database with the declared schema, and a row of each table with constraints."""
    engine = create_engine(empty_database_url.replace("postgresql://", "postgresql+psycopg://"))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    metadata.create_all(engine)
    with engine.connect() as connection:
        for statement in ROWS:
            run(connection, statement)
        yield connection
    engine.dispose()


def run(connection: Connection, statement: str) -> None:
    connection.execute(text(statement), {name: value for name, value in VALUES.items() if f":{name}" in statement})


def test_contradictory_rows_are_refused(declared: Connection):
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


def test_every_value_of_the_code_is_accepted(declared: Connection):
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
