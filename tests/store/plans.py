"""Query plans of what the store executes, on both databases."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
from sqlalchemy import event

from hookmill.store.database import Database, Transaction


def plans(database: Database, read: Callable[[Transaction], object]) -> list[str]:
    """The query plans of all statements that `read` executes, each with its statement."""
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "runs" in statement and statement.lstrip()[:6] in ("SELECT", "WITH  ", "UPDATE"):
            statements.append((statement, parameters))

    with database.write() as tx:
        engine = tx.connection.engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            read(tx)
        finally:
            event.remove(engine, "before_cursor_execute", note)
        explain = "EXPLAIN QUERY PLAN " if tx.on_sqlite else "EXPLAIN "
        return [
            statement
            + "\n"
            + "\n".join(str(row[-1]) for row in tx.connection.exec_driver_sql(explain + statement, values))
            for statement, values in statements
        ]


def gather_statistics(database: Database) -> None:
    """Make PostgreSQL plan for the present rows. Entries of changed rows make an index look
    more expensive, and a plain vacuum leaves their pages."""
    if not database.on_sqlite:
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("VACUUM (FULL, ANALYZE)")


def scans_many_runs(plan: str) -> bool:
    """Whether a plan reads runs by anything but their keys and the indexes of unfinished runs."""
    lines = plan.splitlines()
    # PostgreSQL has the condition of a scan in the line below it.
    scans = [
        f"{line} {below}"
        for line, below in pairwise([*lines, ""])
        if re.search(r"(SCAN|SEARCH|Scan) .*\b(runs|active|ended|waiting|pk_runs)\b", line)
    ]
    allowed = r"ix_runs_(claimed|backlog|held|due|key)\b|PRIMARY KEY \(id=\?\)|Index Cond: \(id = "
    return any(re.search(allowed, scan) is None for scan in scans)
