"""Whether the role that connects to PostgreSQL has the rights that the service needs. Asked before anything is created,
so that the operator reads all that is missing at once."""

from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.store import dialect
from hookmill.store.database import Transaction

ENGINE_SCHEMA: Final = "hookmill_engine"
"""The durable engine creates it, and its tables in it."""


def refuse_missing_rights(tx: Transaction, *, creates_tables: bool, performs_runs: bool) -> None:
    """Raises `Conflict` that lists the missing rights as statements. SQLite has no roles."""
    if not dialect.has_roles(tx):
        return
    row = tx.one(
        """
        SELECT quote_ident(current_user) AS role,
               quote_ident(current_database()) AS database,
               -- A schema that the role may not use is none of its current ones.
               coalesce(quote_ident(current_schema()), 'public') AS schema,
               coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS creates_tables,
               has_database_privilege(current_database(), 'CREATE') AS creates_schemas,
               to_regnamespace(:engine) IS NOT NULL AS has_engine,
               has_schema_privilege(to_regnamespace(:engine)::oid, 'USAGE') AND (
                   SELECT coalesce(bool_and(
                       has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                       AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
                   ), true)
                   FROM pg_class
                   WHERE relnamespace = to_regnamespace(:engine)::oid AND relkind IN ('r', 'p')
               ) AS uses_engine
        """,
        engine=ENGINE_SCHEMA,
    )
    assert row is not None
    grants = []
    if creates_tables and not row["creates_tables"]:
        grants.append(f"USAGE, CREATE ON SCHEMA {row['schema']}")
    if performs_runs and not row["has_engine"] and not row["creates_schemas"]:
        grants.append(f"CREATE ON DATABASE {row['database']}")
    if performs_runs and row["has_engine"] and not row["uses_engine"]:
        grants += [f"USAGE, CREATE ON SCHEMA {ENGINE_SCHEMA}", f"ALL ON ALL TABLES IN SCHEMA {ENGINE_SCHEMA}"]
        grants.append(f"ALL ON ALL SEQUENCES IN SCHEMA {ENGINE_SCHEMA}")
    if grants:
        statements = " ".join(f"GRANT {grant} TO {row['role']};" for grant in grants)
        raise Conflict(
            f"The PostgreSQL role {row['role']} lacks rights in database {row['database']}. Nothing was changed. "
            f"Run this in that database as a superuser:\n{statements}"
        )
