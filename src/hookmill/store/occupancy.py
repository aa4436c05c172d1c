"""Finds tables and rows in a PostgreSQL database that must be empty before a move or a restore."""

from collections.abc import Sequence
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.domain.text import shown
from hookmill.store import schema
from hookmill.store.database import Transaction
from hookmill.store.rows.tables import TABLES

OWN_TABLES: Final = frozenset({*schema.metadata.tables, "alembic_version"})
"""The names of this version's tables."""
NAMES_SHOWN_MAX: Final = 5


def relations(tx: Transaction) -> Sequence[tuple[str, str]]:
    """The schema and the name of each table and view, except those of PostgreSQL and of extensions."""
    rows = tx.all(
        """
        SELECT n.nspname AS schema, c.relname AS name
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
            AND n.nspname <> 'information_schema' AND left(n.nspname, 3) <> 'pg_'
            AND NOT EXISTS (
                SELECT 1 FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
            )
        ORDER BY 1, 2
        """
    )
    return [(row["schema"], row["name"]) for row in rows]


def tables_with_rows(tx: Transaction) -> list[str]:
    """The names of those of this version's tables, all of which exist, that have rows."""
    checks = " UNION ALL ".join(
        f"SELECT '{table.name}' AS name WHERE EXISTS (SELECT 1 FROM {table.quoted})" for table in TABLES
    )
    return tx.scalars(checks)


def not_empty_error(names: Sequence[str]) -> Conflict:
    """The error for a database that holds tables with these names."""
    listed = shown(", ".join(names[:NAMES_SHOWN_MAX])) + (", …" if len(names) > NAMES_SHOWN_MAX else "")
    return Conflict(
        f"The PostgreSQL database is not empty: it holds {listed}. Create an empty one "
        "with CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0. Nothing was changed."
    )
