"""Checks that the PostgreSQL role may create tables. The check precedes all changes."""

from hookmill.domain.errors import Conflict
from hookmill.store.database import Transaction


def refuse_missing_privilege(tx: Transaction) -> None:
    """Raises `Conflict` with a GRANT statement if the role may not create tables. SQLite has no roles."""
    if tx.on_sqlite:
        return
    row = tx.one(
        """
        SELECT quote_ident(current_user) AS role,
               quote_ident(current_database()) AS database,
               -- `current_schema()` omits schemas that the role may not use.
               coalesce(quote_ident(current_schema()), 'public') AS schema,
               coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create_tables
        """
    )
    assert row is not None
    if not row["may_create_tables"]:
        raise Conflict(
            f"The PostgreSQL role {row['role']} may not create tables in database {row['database']}. Nothing was "
            "changed. Run this in that database as a superuser:\n"
            f"GRANT USAGE, CREATE ON SCHEMA {row['schema']} TO {row['role']};"
        )
