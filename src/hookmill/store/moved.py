"""The marks of a move from SQLite to PostgreSQL, in the metadata of both databases.

While a move is unfinished, PostgreSQL has a mark, so that nothing else uses the incomplete data. At the end, SQLite
gets a mark, so that no process continues with the old data. The marks themselves are not moved.
"""

import json
from dataclasses import dataclass
from typing import Final

from hookmill.domain import moment
from hookmill.domain.errors import Conflict
from hookmill.store import metadata
from hookmill.store.database import Database, Transaction
from hookmill.store.revision import refuse_unknown_schema

UNFINISHED: Final = "unfinished move"
"""The name of PostgreSQL's mark. Its value is the position of the move."""
_SUCCESSOR: Final = "moved to"
"""The name of SQLite's mark."""
MARKS: Final = (UNFINISHED, _SUCCESSOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The database that replaced this one. `url` has no password; `moved_at` is in µs since 1970."""

    url: str
    moved_at: int


def refuse_unusable(database: Database) -> None:
    """Raises `Conflict` if another version has written the database, if the data was moved to another one, or if a move
    into this one is unfinished."""
    # A connection would create a missing file.
    if database.path is not None and not database.has_sqlite_file():
        return
    with database.read() as tx:
        refuse_unknown_schema(tx)
        if metadata.table_exists(tx):
            refuse_marked(tx)


def refuse_marked(tx: Transaction) -> None:
    """Raises `AlreadyMoved` if the data was moved elsewhere, and `Conflict` if a move into this one is unfinished."""
    if (moved_to := successor(tx)) is not None:
        raise AlreadyMoved(moved_to)
    if metadata.value(tx, UNFINISHED) is not None:
        raise Conflict(
            "The PostgreSQL database in HOOKMILL_DATABASE_URL holds an unfinished move from SQLite, so its data is "
            "incomplete. To finish the move, unset HOOKMILL_DATABASE_URL and run the same `hookmill move` again. To "
            "stay with SQLite, unset HOOKMILL_DATABASE_URL and start the service. Nothing was changed."
        )


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
    stored = metadata.value(tx, _SUCCESSOR)
    if stored is None:
        return None
    fields = json.loads(stored)
    return Successor(url=fields["url"], moved_at=fields["moved_at"])


def set_successor(tx: Transaction, moved_to: Successor) -> None:
    """Mark the data as moved."""
    metadata.set_value(tx, _SUCCESSOR, json.dumps({"url": moved_to.url, "moved_at": moved_to.moved_at}))


def remove_successor(tx: Transaction) -> None:
    metadata.remove_value(tx, _SUCCESSOR)
