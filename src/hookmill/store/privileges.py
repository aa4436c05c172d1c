"""Checks that the PostgreSQL role has the privileges that the service needs.

The check precedes all changes, so that one error message lists everything that is missing.
"""

from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.store import dialect
from hookmill.store.database import Transaction

ENGINE_SCHEMA: Final = "hookmill_engine"
"""The durable engine creates this schema and its tables."""


def refuse_missing_privileges(tx: Transaction, *, creates_tables: bool, performs_runs: bool) -> None:
    """Raises `Conflict` with the GRANT statements for the missing privileges. SQLite has no roles.

    `creates_tables` and `performs_runs` are what the caller will do.
    """
    if not dialect.has_roles(tx):
        return
    row = tx.one(
        """
        SELECT quote_ident(current_user) AS role,
               quote_ident(current_database()) AS database,
               -- `current_schema()` omits schemas that the role may not use.
               coalesce(quote_ident(current_schema()), 'public') AS schema,
               coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create_tables,
               has_database_privilege(current_database(), 'CREATE') AS may_create_schemas,
               to_regnamespace(:engine) IS NOT NULL AS has_engine_schema,
               has_schema_privilege(to_regnamespace(:engine)::oid, 'USAGE') AND (
                   SELECT coalesce(bool_and(
                       has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                       AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
                   ), true)
                   FROM pg_class
                   WHERE relnamespace = to_regnamespace(:engine)::oid AND relkind IN ('r', 'p')
               ) AS may_use_engine_schema
        """,
        engine=ENGINE_SCHEMA,
    )
    assert row is not None
    grants = []
    if creates_tables and not row["may_create_tables"]:
        grants.append(f"USAGE, CREATE ON SCHEMA {row['schema']}")
    if performs_runs and not row["has_engine_schema"] and not row["may_create_schemas"]:
        grants.append(f"CREATE ON DATABASE {row['database']}")
    if performs_runs and row["has_engine_schema"] and not row["may_use_engine_schema"]:
        grants += [f"USAGE, CREATE ON SCHEMA {ENGINE_SCHEMA}", f"ALL ON ALL TABLES IN SCHEMA {ENGINE_SCHEMA}"]
        grants.append(f"ALL ON ALL SEQUENCES IN SCHEMA {ENGINE_SCHEMA}")
    if grants:
        statements = " ".join(f"GRANT {grant} TO {row['role']};" for grant in grants)
        raise Conflict(
            f"The PostgreSQL role {row['role']} lacks privileges in database {row['database']}. Nothing was changed. "
            f"Run this in that database as a superuser:\n{statements}"
        )
