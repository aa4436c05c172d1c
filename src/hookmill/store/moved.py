"""The mark of a SQLite database whose data was moved to PostgreSQL, so that no process continues with the old data.

It is in the database's metadata, and is not moved itself.
"""

import json
from dataclasses import dataclass
from typing import Final

from hookmill.domain import moment
from hookmill.domain.errors import Conflict
from hookmill.store import metadata
from hookmill.store.database import Database, Transaction
from hookmill.store.revision import refuse_unknown_schema

SUCCESSOR: Final = "moved to"
"""The name of the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The database that replaced this one. `url` has no password; `moved_at` is in µs since 1970."""

    url: str
    moved_at: int


def refuse_unusable(database: Database) -> None:
    """Raises `Conflict` if another version has written the database, or if the data was moved to another one."""
    # A connection would create a missing file.
    if database.path is not None and not database.has_sqlite_file():
        return
    with database.read() as tx:
        refuse_unknown_schema(tx)
        if metadata.table_exists(tx):
            refuse_marked(tx)


def refuse_marked(tx: Transaction) -> None:
    """Raises `AlreadyMoved` if the data was moved elsewhere."""
    if (moved_to := successor(tx)) is not None:
        raise AlreadyMoved(moved_to)


class AlreadyMoved(Conflict):
    """The data of this SQLite database was moved."""

    def __init__(self, moved_to: Successor) -> None:
        super().__init__(
            f"The data of this SQLite database was moved to {moved_to.url} on {moment.utc(moved_to.moved_at)} UTC. "
            "Set HOOKMILL_DATABASE_URL to that database. To use the SQLite database again, without everything that "
            "PostgreSQL has recorded since, run `hookmill move --undo`. Nothing was changed."
        )


def successor(tx: Transaction) -> Successor | None:
    """The database that replaced this one; None if the data was not moved."""
    stored = metadata.value(tx, SUCCESSOR)
    if stored is None:
        return None
    fields = json.loads(stored)
    return Successor(url=fields["url"], moved_at=fields["moved_at"])


def set_successor(tx: Transaction, moved_to: Successor) -> None:
    """Mark the data as moved."""
    metadata.set_value(tx, SUCCESSOR, json.dumps({"url": moved_to.url, "moved_at": moved_to.moved_at}))


def remove_successor(tx: Transaction) -> None:
    metadata.remove_value(tx, SUCCESSOR)
