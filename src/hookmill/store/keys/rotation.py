"""Rotates the master key while the service runs: opens each row with its old key, and seals it with the new key.

A rotation can be interrupted at any step, and continued later:

1. Add the new key to the key file, durably, before anything is sealed with it.
2. Store the new key's id in the database. From then on, every process seals with it (`binding.sealing_key`).
3. Open every row, and reseal it unless the new key opens it.
4. Record in the database that the old keys are no longer needed.
5. Remove the old keys from the key file.

A process that reads an unknown key's id from a row reads the key file again, so no process must be notified.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.store.database import Database, Row, Transaction, retry
from hookmill.store.keys import binding
from hookmill.store.keys.binding import KeysInUse
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.sealing import KeyRing, MasterKey, WrongKey, new_master_key

SEALED_TABLES: Final = ("secret_versions", "alarm_destinations", "idempotency_keys")
"""The tables with sealed values. Their columns are `id`, `key_id` and `sealed`; a value is bound to its row's id."""

PAGE_ROWS: Final = 100
ATTEMPTS: Final = 10
"""How often a write is tried while the database is unavailable."""
PAUSE_FACTOR: Final = 2.0
"""On SQLite: the pause after each write, as a multiple of its duration. Meanwhile, deliveries have the write lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationPlan:
    """The keys of a rotation: `new_key` seals, and `old_keys` are retired at the end."""

    new_key: MasterKey
    old_keys: tuple[MasterKey, ...]
    in_use: KeysInUse

    @property
    def starts_rotation(self) -> bool:
        """Whether the plan starts a rotation, instead of continuing an interrupted one."""
        return self.new_key.id != self.in_use.sealing_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationResult:
    """The result of a rotation."""

    key_id: str
    """The new key."""
    has_begun_rotation: bool
    """Whether this call started the rotation, instead of continuing an interrupted one."""
    resealed_rows: int
    unreadable_rows: tuple[str, ...]
    """Rows that no available key opens, such as `secret_versions sec_….1`. The rotation leaves these rows unchanged."""
    retired_key_ids: tuple[str, ...]


def plan(in_use: KeysInUse, keys: Sequence[MasterKey]) -> RotationPlan | None:
    """The rotation to the newest of `keys`, which are newest first. None if that key is the only one, and in use.

    Raises `WrongKey` if a key that is in use is missing.
    """
    binding.check_keys_in_use(in_use, KeyRing(keys))
    position = [key.id for key in keys].index(in_use.sealing_id)
    # The newest key is first. If it is not the key that seals, it was added to replace that key.
    new_key = keys[0]
    old_keys = tuple(key for key in keys if key != new_key)
    if position == 0 and not old_keys and not in_use.retiring_ids:
        return None
    return RotationPlan(new_key=new_key, old_keys=old_keys, in_use=in_use)


def add_key(file: KeyFile, in_use: KeysInUse) -> tuple[MasterKey, bool]:
    """The next key, and whether this call created it. If the file already has a next key, that one is returned.

    Call it inside `KeyFile.locked`.
    """
    keys = file.read()
    binding.check_keys_in_use(in_use, KeyRing(keys))
    if keys[0].id != in_use.sealing_id:
        return keys[0], False
    new_key = new_master_key()
    file.write([new_key, *keys])
    return new_key, True


def begin(tx: Transaction, planned: RotationPlan) -> bool:
    """Step 2. Returns False if it is already done. Raises `Conflict` if another rotation has begun."""
    if binding.sealing_key_id(tx) == planned.new_key.id:
        return False
    binding.begin_rotation(tx, planned.in_use.sealing_id, planned.new_key.id)
    return True


def finish(
    database: Database, planned: RotationPlan, advance: Callable[[int], None] = lambda _rows: None
) -> RotationResult:
    """Steps 3 and 4. `advance` is called with the number of rows of each page."""
    resealed_rows, unreadable_rows = 0, []
    for table in SEALED_TABLES:
        for page in _pages(database, table):
            changes = []
            for row in page:
                opening_key = _opening_key(row, planned)
                if opening_key is None:
                    unreadable_rows.append(f"{table} {row['id']}")
                elif opening_key != planned.new_key or row["key_id"] != planned.new_key.id:
                    changes.append((row, planned.new_key.reseal(row["sealed"], row["id"], opening_key)))
            if changes:
                resealed_rows += _write_resealed(database, table, planned, changes)
            advance(len(page))
    _write_with_retries(database, lambda tx: _end_rotation(tx, planned))
    return RotationResult(
        key_id=planned.new_key.id,
        has_begun_rotation=planned.starts_rotation,
        resealed_rows=resealed_rows,
        unreadable_rows=tuple(unreadable_rows),
        retired_key_ids=tuple(key.id for key in planned.old_keys),
    )


def count_rows(tx: Transaction) -> int:
    """The number of rows that `finish` checks."""
    return sum(row_counts_by_key(tx).values())


def row_counts_by_key(tx: Transaction) -> dict[str, int]:
    """The number of rows that each key has sealed, by the key's id."""
    counts: dict[str, int] = {}
    for table in SEALED_TABLES:
        for row in tx.all(f"SELECT key_id, COUNT(*) AS number FROM {table} GROUP BY key_id"):
            counts[row["key_id"]] = counts.get(row["key_id"], 0) + row["number"]
    return counts


def _end_rotation(tx: Transaction, planned: RotationPlan) -> None:
    _refuse_if_superseded(tx, planned)
    binding.end_rotation(tx)


def _refuse_if_superseded(tx: Transaction, planned: RotationPlan) -> None:
    """Raises `Conflict` if another rotation has changed the key that seals."""
    if binding.sealing_key_id(tx) != planned.new_key.id:
        raise Conflict("Another rotation is in progress. It finishes the remaining rows.")


def _pages(database: Database, table: str) -> Iterator[Sequence[Row]]:
    """All rows of the table, page by page. Rows that are added meanwhile are already sealed with the new key."""
    last = ""
    while True:
        with database.read() as tx:
            rows = tx.all(
                f"SELECT id, key_id, sealed FROM {table} WHERE id > :last ORDER BY id LIMIT :page_rows",
                last=last,
                page_rows=PAGE_ROWS,
            )
        if not rows:
            return
        yield rows
        last = rows[-1]["id"]


def _opening_key(row: Row, planned: RotationPlan) -> MasterKey | None:
    """The key that opens the row; None if there is none. The row's `key_id` may be wrong, so all keys are tried."""
    for key in sorted((planned.new_key, *planned.old_keys), key=lambda key: key.id != row["key_id"]):
        try:
            key.open(row["sealed"], row["id"])
        except WrongKey:
            continue
        return key
    return None


def _write_resealed(database: Database, table: str, planned: RotationPlan, changes: Sequence[tuple[Row, bytes]]) -> int:
    def write(tx: Transaction) -> int:
        _refuse_if_superseded(tx, planned)
        return sum(
            tx.run(
                f"UPDATE {table} SET key_id = :key, sealed = :sealed WHERE id = :id AND sealed = :before",
                key=planned.new_key.id,
                sealed=sealed,
                id=row["id"],
                before=row["sealed"],
            )
            for row, sealed in changes
        )

    start = time.monotonic()
    rows_written = _write_with_retries(database, write)
    if database.on_sqlite:
        time.sleep(PAUSE_FACTOR * (time.monotonic() - start))
    return rows_written


def _write_with_retries(database: Database, work: Callable[[Transaction], int | None]) -> int:
    def write() -> int:
        with database.write() as tx:
            return work(tx) or 0

    return retry(write, attempts=ATTEMPTS)
