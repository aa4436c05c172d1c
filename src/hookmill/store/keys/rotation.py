"""Rotation of the master key, under a running service: everything sealed is opened with its old key and sealed with the
new one.

The order makes it safe to be cut off anywhere, and to be begun again:

1. the new key is in the key file, on the disk, before anything is sealed with it;
2. the database names it, and from then on everybody seals with it (`binding.sealing_key`);
3. every row is opened, and sealed again unless the new key opens it;
4. the database forgets that the old key was needed;
5. the old key leaves the key file.

Processes read the key file again when they meet a key that they don't know, so none has to be told.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.store.database import Database, Row, Transaction, retried
from hookmill.store.keys import binding
from hookmill.store.keys.binding import KeysInUse
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.sealing import KeyRing, MasterKey, WrongKey, new_master_key

SEALED: Final = ("secret_versions", "idempotency_keys")
"""Every table with something sealed in it. Each has `id`, `key_id` and `sealed`, and is sealed to the row's id."""

ROWS_AT_ONCE: Final = 100
TRIES: Final = 10
"""How often a few rows are tried to be written while others hold the database."""
REST: Final = 2.0
"""After each write, as a multiple of the time that it took: SQLite's one writing place belongs to the deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationPlan:
    """What a rotation is to do: `new` seals, and `old` are no longer needed when it is done."""

    new: MasterKey
    old: tuple[MasterKey, ...]
    in_use: KeysInUse

    @property
    def begins(self) -> bool:
        """Whether this is a new rotation, and not the rest of one that was cut off."""
        return self.new.id != self.in_use.sealing


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationResult:
    """What came of a rotation. All keys are named by their ids."""

    key_id: str
    began: bool
    sealed_again: int
    unreadable: tuple[str, ...]
    """Rows that no available key opens, such as `secret_versions sec_….1`. They are unchanged."""
    retired: tuple[str, ...]


def plan(in_use: KeysInUse, keys: Sequence[MasterKey]) -> RotationPlan | None:
    """What there is to do with these keys, newest first. None when the newest seals, and no other is there or needed.

    Raises `WrongKey` when one that is in use is missing.
    """
    binding.check_master_key(in_use, KeyRing(keys))
    place = [key.id for key in keys].index(in_use.sealing)
    # What stands before the key in use was put there to follow it.
    new = keys[0]
    old = tuple(key for key in keys if key != new)
    if place == 0 and not old and not in_use.retiring:
        return None
    return RotationPlan(new=new, old=old, in_use=in_use)


def add_key(file: KeyFile, in_use: KeysInUse) -> tuple[MasterKey, bool]:
    """The key that is to follow, and whether this call made it: one that waits already is not added to.

    For who holds the file.
    """
    keys = file.read()
    binding.check_master_key(in_use, KeyRing(keys))
    if keys[0].id != in_use.sealing:
        return keys[0], False
    new = new_master_key()
    file.write([new, *keys])
    return new, True


def begin(tx: Transaction, planned: RotationPlan) -> bool:
    """Step 2. False when it was done before. Raises `Conflict` when another rotation was faster."""
    if binding.sealing_key_id(tx) == planned.new.id:
        return False
    binding.begin_rotation(tx, planned.in_use.sealing, planned.new.id)
    return True


def finish(
    database: Database, planned: RotationPlan, advance: Callable[[int], None] = lambda _rows: None
) -> RotationResult:
    """Steps 3 and 4. `advance` hears how many rows more were seen."""
    sealed_again, unreadable = 0, []
    for table in SEALED:
        for page in _pages(database, table):
            changes = []
            for row in page:
                opening = _opening(row, planned)
                if opening is None:
                    unreadable.append(f"{table} {row['id']}")
                elif opening != planned.new or row["key_id"] != planned.new.id:
                    changes.append((row, planned.new.seal_again(bytes(row["sealed"]), row["id"], opening)))
            if changes:
                sealed_again += _seal_again(database, table, planned, changes)
            advance(len(page))
    _write(database, lambda tx: _end(tx, planned))
    return RotationResult(
        key_id=planned.new.id,
        began=planned.begins,
        sealed_again=sealed_again,
        unreadable=tuple(unreadable),
        retired=tuple(key.id for key in planned.old),
    )


def rows(tx: Transaction) -> int:
    """How many rows `finish` looks at."""
    return sum(rows_by_key(tx).values())


def rows_by_key(tx: Transaction) -> dict[str, int]:
    """How many rows each key has sealed, by its id."""
    counts: dict[str, int] = {}
    for table in SEALED:
        for row in tx.all(f"SELECT key_id, COUNT(*) AS number FROM {table} GROUP BY key_id"):
            counts[row["key_id"]] = counts.get(row["key_id"], 0) + row["number"]
    return counts


def _end(tx: Transaction, planned: RotationPlan) -> None:
    _refuse_if_overtaken(tx, planned)
    binding.end_rotation(tx)


def _refuse_if_overtaken(tx: Transaction, planned: RotationPlan) -> None:
    if binding.sealing_key_id(tx) != planned.new.id:
        raise Conflict("Another rotation is in progress. It finishes the remaining rows.")


def _pages(database: Database, table: str) -> Iterator[Sequence[Row]]:
    """All rows. One that is added behind this reading's back is sealed with the new key by whoever adds it."""
    last = ""
    while True:
        with database.read() as tx:
            rows = tx.all(
                f"SELECT id, key_id, sealed FROM {table} WHERE id > :last ORDER BY id LIMIT :most",
                last=last,
                most=ROWS_AT_ONCE,
            )
        if not rows:
            return
        yield rows
        last = rows[-1]["id"]


def _opening(row: Row, planned: RotationPlan) -> MasterKey | None:
    """The key that really opens the row, whatever the row says: no key may go that is still needed."""
    for key in sorted((planned.new, *planned.old), key=lambda key: key.id != row["key_id"]):
        try:
            key.open(bytes(row["sealed"]), row["id"])
        except WrongKey:
            continue
        return key
    return None


def _seal_again(database: Database, table: str, planned: RotationPlan, changes: Sequence[tuple[Row, bytes]]) -> int:
    def write(tx: Transaction) -> int:
        _refuse_if_overtaken(tx, planned)
        return sum(
            tx.run(
                f"UPDATE {table} SET key_id = :key, sealed = :sealed WHERE id = :id AND sealed = :was",
                key=planned.new.id,
                sealed=sealed,
                id=row["id"],
                was=bytes(row["sealed"]),
            )
            for row, sealed in changes
        )

    began = time.monotonic()
    written = _write(database, write)
    if database.on_sqlite:
        time.sleep(REST * (time.monotonic() - began))
    return written


def _write(database: Database, work: Callable[[Transaction], int | None]) -> int:
    def written() -> int:
        with database.write() as tx:
            return work(tx) or 0

    return retried(written, times=TRIES)
