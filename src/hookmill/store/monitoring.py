"""Reads the state of the whole installation for its metrics.

An index scan for a count reads at most `COUNTED_MAX` entries, so the time does not depend on the number of runs.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hookmill.domain.alarm import AlarmKind
from hookmill.domain.ids import time_of
from hookmill.domain.queue import COUNTED_MAX, is_recent_heartbeat
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Priority
from hookmill.store import alarms, dialect
from hookmill.store.database import Transaction
from hookmill.store.runs import executors
from hookmill.store.runs.claims import FACTORIES_MAX
from hookmill.store.runs.parts import CLAIMED, FACTORIES_IN_BACKLOG, HELD, READY


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationState:
    """The state at one moment. A count of `COUNTED_MAX` means that there may be more."""

    ready_runs: int
    held_runs: Mapping[Hold, int]
    running_runs: int
    oldest_ready_at: int | None
    """When the oldest ready run was created, in µs since 1970. Searched in the first `FACTORIES_MAX` factories."""
    live_workers: int
    pending_uploads: int
    open_alarms: Mapping[AlarmKind, int]
    """The number of open alarms of each kind, also of snoozed ones."""
    bytes_by_part: Mapping[str, int]
    """The size of each part of the database in bytes."""


def installation_state(tx: Transaction, now: int, files: Mapping[str, Path]) -> InstallationState:
    """The state of the installation. `now` is in µs since 1970.

    `files` are the files of the database, by the names of the parts in the metrics; on PostgreSQL, there are none.
    """
    dialect.force_custom_query_plans(tx)
    return InstallationState(
        ready_runs=_count(tx, "runs", READY),
        held_runs={hold: _count(tx, "runs", f"{HELD} AND hold = {hold:d}") for hold in Hold},
        running_runs=_count(tx, "runs", CLAIMED),
        oldest_ready_at=_oldest_ready_at(tx),
        live_workers=sum(is_recent_heartbeat(at, now) for at in executors.last_heartbeats(tx).values()),
        pending_uploads=_count(tx, "run_files", "is_upload_pending"),
        open_alarms=alarms.count_open(tx),
        bytes_by_part=_bytes_by_part(tx, files),
    )


def _count(tx: Transaction, table: str, condition: str) -> int:
    return tx.integer(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT :most) AS counted", most=COUNTED_MAX
    )


def _oldest_ready_at(tx: Transaction) -> int | None:
    # The index is by factory, priority and id, so the oldest run of each factory and priority is its first entry.
    oldest = ", ".join(
        f"""(
            SELECT runs.id FROM runs
            WHERE runs.factory_id = backlog.factory_id AND runs.priority = {priority.rank:d} AND {READY}
            ORDER BY runs.id
            LIMIT 1
        ) AS oldest_{priority.rank:d}"""
        for priority in Priority
    )
    rows = tx.all(
        f"{FACTORIES_IN_BACKLOG} SELECT {oldest} FROM backlog WHERE factory_id IS NOT NULL LIMIT :at_most",
        after="",
        at_most=FACTORIES_MAX,
    )
    return min((time_of(bytes(key)) for row in rows for key in row.values() if key is not None), default=None)


def _bytes_by_part(tx: Transaction, files: Mapping[str, Path]) -> dict[str, int]:
    if not tx.on_sqlite:
        return {"main": dialect.database_bytes(tx)}
    sizes = {}
    for part, path in files.items():
        # A file may not exist yet.
        with suppress(OSError):
            sizes[part] = path.stat().st_size
    return sizes
