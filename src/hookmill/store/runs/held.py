"""Held runs: those of automations with a run policy. Workers decide when they start, or that they don't.

Admission only stores the policy key and `Hold.NEW`, so a policy takes no lock in the path of a delivery. `decide` then
decides about all new and due runs in one transaction. On PostgreSQL, one advisory lock serializes these transactions
and those that end a run with a key. Therefore the counts of active runs are exact.

A run is *active* if it has not ended and is not held: it is in the backlog, or a worker has claimed it. A run that
waits for its next attempt is active, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run import Hold, RunState
from hookmill.domain.run_policy import Debounce, RunPolicy, WhenBusy, stored_policy
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.notifications import notify_workers

DECISIONS_MAX: Final = 500
"""New and due runs in one transaction, so that it stays short."""
_LOCK_NUMBER: Final = 7_246_001


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldRun:
    id: RunKey
    created_at: int
    latest_due_at: int | None
    policy: RunPolicy


def lock_decisions(tx: Transaction) -> None:
    """Keep decisions in other transactions waiting until this one ends.

    Call it before a run with a key is locked or ends.
    """
    dialect.lock(tx, _LOCK_NUMBER)


def needs_decision(tx: Transaction, now: int) -> bool:
    """Whether `decide` has work."""
    return tx.one(f"SELECT 1 FROM runs WHERE {_UNDECIDED} LIMIT 1", now=now) is not None


def next_due_at(tx: Transaction) -> int | None:
    """When the next held run is due, in µs since 1970."""
    row = tx.one(
        f"SELECT MIN(due_at) AS due_at FROM runs WHERE finished_at IS NULL AND {_TIMED}",
    )
    return None if row is None else row["due_at"]


_TIMED: Final = f"hold IN ({Hold.DEBOUNCE:d}, {Hold.RETRY:d})"
_UNDECIDED: Final = (
    f"finished_at IS NULL AND hold IS NOT NULL AND (hold = {Hold.NEW:d} OR ({_TIMED} AND due_at <= :now))"
)


def decide(tx: Transaction, now: int) -> None:
    """Decide about new and due runs: each starts, waits, or ends. `now` is in µs since 1970."""
    lock_decisions(tx)
    # A run that is retried is active all the time, so its key needs no decision.
    if tx.run(
        f"""
        UPDATE runs
        SET hold = NULL, due_at = NULL
        WHERE id IN (
            SELECT id FROM runs
            WHERE finished_at IS NULL AND hold = {Hold.RETRY:d} AND due_at <= :now
            ORDER BY due_at
            LIMIT {DECISIONS_MAX}
        )
        """,
        now=now,
    ):
        notify_workers(tx)
    rows = tx.all(
        f"SELECT policy_key FROM runs WHERE {_UNDECIDED} AND hold <> {Hold.RETRY:d} ORDER BY id LIMIT {DECISIONS_MAX}",
        now=now,
    )
    for policy_key in sorted({bytes(row["policy_key"]) for row in rows}):
        _decide_key(tx, policy_key, now)


def reconsider(tx: Transaction, run: RunKey) -> None:
    """Let `decide` look at the key of a run that ends in this transaction. Call `lock_decisions` first."""
    tx.run(
        f"""
        UPDATE runs
        SET hold = {Hold.NEW:d}
        WHERE id = (
            SELECT waiting.id
            FROM runs waiting
            WHERE waiting.policy_key = (SELECT ended.policy_key FROM runs ended WHERE ended.id = :run)
                AND waiting.finished_at IS NULL AND waiting.hold = {Hold.BUSY:d}
            ORDER BY waiting.id
            LIMIT 1
        )
        """,
        run=run,
    )


def reconsider_all(tx: Transaction) -> None:
    """Let `decide` look at all keys with waiting runs and no active one, in case that an end was missed."""
    lock_decisions(tx)
    # A loose index scan: it reads one entry of each key.
    rows = tx.all(
        f"""
        WITH RECURSIVE waiting_keys (policy_key) AS (
            SELECT (SELECT policy_key FROM runs WHERE {_WAITING} ORDER BY policy_key LIMIT 1)
            UNION ALL
            SELECT (
                SELECT policy_key FROM runs
                WHERE {_WAITING} AND policy_key > waiting_keys.policy_key
                ORDER BY policy_key
                LIMIT 1
            )
            FROM waiting_keys
            WHERE waiting_keys.policy_key IS NOT NULL
        )
        SELECT policy_key
        FROM waiting_keys
        WHERE policy_key IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM runs active
            WHERE active.policy_key = waiting_keys.policy_key AND active.finished_at IS NULL
                AND (active.hold IS NULL OR active.hold = {Hold.RETRY:d})
        )
        """
    )
    for row in rows:
        for run in _held(tx, bytes(row["policy_key"]), Hold.BUSY, limit=1):
            tx.run(f"UPDATE runs SET hold = {Hold.NEW:d} WHERE id = :id", id=run.id)


_WAITING: Final = f"policy_key IS NOT NULL AND finished_at IS NULL AND hold = {Hold.BUSY:d}"


def _decide_key(tx: Transaction, policy_key: bytes, now: int) -> None:
    candidates = _held(tx, policy_key, Hold.NEW, Hold.DEBOUNCE, limit=DECISIONS_MAX)
    if not candidates:
        return
    # The policy of the newest waiting run applies to all runs with the key.
    policy = _held(tx, policy_key, Hold.NEW, Hold.DEBOUNCE, Hold.BUSY, limit=1, newest_first=True)[0].policy
    if policy.debounce is not None:
        candidates = _debounced(tx, policy.debounce, candidates, now)
    if policy.concurrency is None:
        for run in candidates:
            _start(tx, run)
        return
    limit = policy.concurrency.limit
    free = limit - _active(tx, policy_key, limit)
    match policy.concurrency.when_busy:
        case WhenBusy.QUEUE:
            _start_oldest(tx, policy_key, candidates, free)
        case WhenBusy.SKIP:
            for run in candidates[max(free, 0) :]:
                _end(tx, run.id, RunState.SKIPPED, _active_run(tx, policy_key) or candidates[0].id, now)
            for run in candidates[: max(free, 0)]:
                _start(tx, run)
        case WhenBusy.REPLACE:
            kept = _replace_older(tx, policy_key, candidates, limit, now)
            if not kept:
                return
            _start_oldest(tx, policy_key, kept, free)
            for active in _oldest_active(tx, policy_key, len(kept) - max(free, 0)):
                _stop(tx, active, replaced_by=kept[-1].id, now=now)


def _debounced(tx: Transaction, debounce: Debounce, candidates: Sequence[_HeldRun], now: int) -> list[_HeldRun]:
    """Supersede all but the newest run. Returns it if it is due; otherwise it waits."""
    *older, newest = candidates
    latest_due_at = min(
        [run.latest_due_at for run in candidates if run.latest_due_at is not None]
        or [candidates[0].created_at + debounce.max_seconds * 1_000_000]
    )
    due_at = min(newest.created_at + debounce.seconds * 1_000_000, latest_due_at)
    for run in older:
        _end(tx, run.id, RunState.SUPERSEDED, newest.id, now)
    if due_at <= now:
        return [newest]
    tx.run(
        f"UPDATE runs SET hold = {Hold.DEBOUNCE:d}, due_at = :due_at, due_at_most = :due_at_most WHERE id = :id",
        id=newest.id,
        due_at=due_at,
        due_at_most=latest_due_at,
    )
    return []


def _start_oldest(tx: Transaction, policy_key: bytes, candidates: Sequence[_HeldRun], free: int) -> None:
    """Queue the candidates behind the runs that wait already, and start as many of the oldest as are free."""
    for run in candidates:
        tx.run(f"UPDATE runs SET hold = {Hold.BUSY:d}, due_at = NULL WHERE id = :id", id=run.id)
    if free > 0:
        for run in _held(tx, policy_key, Hold.BUSY, limit=free):
            _start(tx, run)


def _replace_older(
    tx: Transaction, policy_key: bytes, candidates: Sequence[_HeldRun], limit: int, now: int
) -> list[_HeldRun]:
    """End all but the newest `limit` held runs. Returns the runs that it keeps.

    If too many runs wait, it ends some of them and returns nothing. The candidates stay new for the next decision.
    """
    waiting = _held(tx, policy_key, Hold.BUSY, limit=DECISIONS_MAX)
    held = sorted([*waiting, *candidates], key=lambda run: run.id)
    for run in held[:-limit]:
        _end(tx, run.id, RunState.REPLACED, held[-1].id, now)
    return held[-limit:] if len(waiting) < DECISIONS_MAX else []


def _held(tx: Transaction, policy_key: bytes, *holds: Hold, limit: int, newest_first: bool = False) -> list[_HeldRun]:
    """Up to `limit` held runs with the key, in the order of their creation."""
    rows = tx.all(
        f"""
        SELECT runs.id, runs.created_at, runs.due_at_most, automation_versions.policy
        FROM runs
        JOIN automation_versions
            ON automation_versions.automation_id = runs.automation_id
            AND automation_versions.version = runs.automation_version
        WHERE runs.policy_key = :policy_key AND runs.finished_at IS NULL
            AND runs.hold IN ({", ".join(str(int(hold)) for hold in holds)})
        ORDER BY runs.id {"DESC" if newest_first else ""}
        LIMIT :limit
        """,
        policy_key=policy_key,
        limit=limit,
    )
    return [_held_run(row) for row in rows]


def _held_run(row: Row) -> _HeldRun:
    return _HeldRun(
        id=RunKey(bytes(row["id"])),
        created_at=row["created_at"],
        latest_due_at=row["due_at_most"],
        policy=stored_policy(row["policy"]),
    )


_ACTIVE: Final = f"policy_key = :policy_key AND finished_at IS NULL AND (hold IS NULL OR hold = {Hold.RETRY:d})"


def _active(tx: Transaction, policy_key: bytes, most: int) -> int:
    """How many runs with the key are active, counted up to `most`."""
    row = tx.one(
        f"SELECT COUNT(*) AS active FROM (SELECT 1 FROM runs WHERE {_ACTIVE} LIMIT :most) AS counted",
        policy_key=policy_key,
        most=most,
    )
    return 0 if row is None else int(row["active"])


def _active_run(tx: Transaction, policy_key: bytes) -> RunKey | None:
    row = tx.one(f"SELECT id FROM runs WHERE {_ACTIVE} ORDER BY id LIMIT 1", policy_key=policy_key)
    return None if row is None else RunKey(bytes(row["id"]))


def _oldest_active(tx: Transaction, policy_key: bytes, count: int) -> list[RunKey]:
    """The oldest active runs. They include runs that are being stopped, so each new run stops at most one."""
    if count <= 0:
        return []
    rows = tx.all(f"SELECT id FROM runs WHERE {_ACTIVE} ORDER BY id LIMIT :count", policy_key=policy_key, count=count)
    return [RunKey(bytes(row["id"])) for row in rows]


def _start(tx: Transaction, run: _HeldRun) -> None:
    tx.run("UPDATE runs SET hold = NULL, due_at = NULL, due_at_most = NULL WHERE id = :id", id=run.id)
    notify_workers(tx)


def _end(tx: Transaction, run: RunKey, state: RunState, other: RunKey, now: int) -> None:
    """End a held run because of another one."""
    tx.run(
        """
        UPDATE runs
        SET state = :state, finished_at = :now, hold = NULL, due_at = NULL, replaced_by = :other, reason = :reason
        WHERE id = :id AND finished_at IS NULL
        """,
        id=run,
        state=state,
        now=now,
        other=other,
        reason=reason_for(state, other),
    )


def _stop(tx: Transaction, run: RunKey, *, replaced_by: RunKey, now: int) -> None:
    """End an active run that has not begun, or ask its worker to stop it."""
    values: dict[str, Any] = {"id": run, "now": now, "other": replaced_by}
    has_ended = tx.run(
        """
        UPDATE runs
        SET state = 'replaced', finished_at = :now, hold = NULL, due_at = NULL, replaced_by = :other, reason = :reason
        WHERE id = :id AND state = 'queued' AND finished_at IS NULL
        """,
        reason=reason_for(RunState.REPLACED, replaced_by),
        **values,
    )
    if has_ended:
        reconsider(tx, run)
        return
    tx.run(
        """
        UPDATE runs
        SET cancel_requested_at = COALESCE(cancel_requested_at, :now), replaced_by = :other
        WHERE id = :id AND state = 'running' AND finished_at IS NULL
        """,
        **values,
    )


def reason_for(state: RunState, other: RunKey) -> str:
    """Why a run did not perform, for people."""
    match state:
        case RunState.SKIPPED:
            return f"Skipped, because {run_id(other)} with the same key was active."
        case RunState.SUPERSEDED:
            return f"Superseded by {run_id(other)}, which is newer and has the same key."
        case _:
            return f"Replaced by {run_id(other)}, which has the same key."
