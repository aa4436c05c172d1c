"""The query plans of statements about a table, on SQLite and on PostgreSQL."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
from sqlalchemy import event

from hookmill.store.database import Database, Transaction
from hookmill.store.schema import metadata


def query_plans(database: Database, work: Callable[[Transaction], object]) -> list[str]:
    """The plans of all statements about runs that `work` executes. Each begins with its statement."""
    statements: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any):
        if "runs" in statement and statement.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
            statements.append((statement, parameters))

    with database.write() as tx:
        engine = tx.connection.engine
        event.listen(engine, "before_cursor_execute", record)
        try:
            work(tx)
        finally:
            event.remove(engine, "before_cursor_execute", record)
        explain = "EXPLAIN QUERY PLAN " if tx.on_sqlite else "EXPLAIN "
        return [
            statement
            + "\n"
            + "\n".join(str(row[-1]) for row in tx.connection.exec_driver_sql(explain + statement, values))
            for statement, values in statements
        ]


def gather_statistics(database: Database):
    """Let PostgreSQL plan for the present rows.

    The index entries of changed rows make an index look more expensive, and a plain VACUUM leaves their pages.
    """
    if not database.on_sqlite:
        with psycopg.connect(database.url, autocommit=True) as connection:
            # Without names, it would also lock the catalogs that all databases of the server share.
            connection.execute(f"VACUUM (FULL, ANALYZE) {', '.join(metadata.tables)}")


def scans_many_runs(plan: str) -> bool:
    """Whether a plan reads runs other than by their keys or by an index of unfinished runs."""
    lines = plan.splitlines()
    # PostgreSQL prints the condition of a scan in the next line.
    scans = [
        f"{line} {next_line}"
        for line, next_line in pairwise([*lines, ""])
        if re.search(r"(SCAN|SEARCH|Scan) .*\b(runs|active|ended|waiting|pk_runs)\b", line)
    ]
    allowed = r"ix_runs_(claimed|backlog|held|due|key)\b|PRIMARY KEY \(id=\?\)|(Index|Recheck) Cond: \(id = "
    return any(re.search(allowed, scan) is None for scan in scans)
