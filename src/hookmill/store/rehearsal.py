"""Copies a factory's configuration into memory, to try operations without changing or locking anything.

The copy is a SQLite database, whatever the kind of the original. It has no deliveries and runs: operations on webhooks
and automations read none.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Engine, StaticPool, Table, create_engine, insert, select, true, tuple_

from hookmill.domain.ids import FactoryId
from hookmill.store import schema
from hookmill.store.database import Transaction


def copy_configuration(tx: Transaction, factory: FactoryId) -> Engine:
    """A copy of the factory's webhooks and automations, and of what operations compare them with, such as secrets and
    other factories' webhooks. The caller disposes of it."""
    copy = create_engine("sqlite://", poolclass=StaticPool)
    with copy.begin() as connection:
        conditions = _conditions(factory)
        # Without the tables that a change only adds rows to, it could not be tried.
        schema.metadata.create_all(connection, tables=[*conditions, schema.audit_log], checkfirst=False)
        for table, condition in conditions.items():
            rows = tx.connection.execute(select(table).where(condition)).mappings().all()
            if rows:
                connection.execute(insert(table), [dict(row) for row in rows])
    return copy


@contextmanager
def rehearsal(copy: Engine) -> Iterator[Transaction]:
    """A transaction on the copy, which is never committed."""
    with copy.connect() as connection:
        yield Transaction(connection)


def _conditions(factory: FactoryId) -> dict[Table, ColumnElement[bool]]:
    """The tables to copy, each with the condition for the rows that operations on the factory read."""
    automations, versions = schema.automations, schema.automation_versions
    is_live = (automations.c.factory_id == factory) & automations.c.deleted_at.is_(None)
    live_ids = select(automations.c.id).where(is_live)
    latest_versions = select(automations.c.id, automations.c.version).where(is_live)
    return {
        schema.installation_metadata: true(),
        schema.teams: true(),
        schema.factories: true(),
        schema.secrets: true(),
        schema.secret_versions: true(),
        schema.webhooks: (schema.webhooks.c.factory_id == factory) | (schema.webhooks.c.state != "deleted"),
        automations: is_live,
        versions: tuple_(versions.c.automation_id, versions.c.version).in_(latest_versions),
        schema.automation_webhooks: schema.automation_webhooks.c.automation_id.in_(live_ids),
        schema.schedules: schema.schedules.c.automation_id.in_(live_ids),
    }
