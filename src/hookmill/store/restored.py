"""The mark of a database that was restored from a backup, in its metadata."""

import json
from dataclasses import asdict, dataclass, replace

from hookmill.store import metadata
from hookmill.store.database import Database, Transaction

_RESTORATION = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """When the backup was taken and restored, and when its newest delivery was received, in µs since 1970."""

    taken_at: int
    restored_at: int
    newest_delivery_at: int | None
    is_announced: bool = False
    """Whether a start of the service has said what the restore means."""


def restoration(tx: Transaction) -> Restoration | None:
    """None for a database that was not restored from a backup."""
    stored = metadata.value(tx, _RESTORATION)
    return Restoration(**json.loads(stored)) if stored is not None else None


def set_restoration(tx: Transaction, restored: Restoration) -> None:
    metadata.set_value(tx, _RESTORATION, json.dumps(asdict(restored)))


def take_announcement(database: Database) -> Restoration | None:
    """The restoration, if no start of the service has announced it yet. Marks it as announced."""
    with database.read() as tx:
        restored = restoration(tx)
    if restored is None or restored.is_announced:
        return None
    with database.write() as tx:
        set_restoration(tx, replace(restored, is_announced=True))
    return restored
