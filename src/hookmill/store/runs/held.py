"""Held runs: their run policy does not let them start yet, or their next attempt is not due. Workers decide when each
starts or ends.

Admission only stores the policy key and `Hold.NEW`, so a policy takes no lock in the path of a delivery. `decide` then
decides about new and due runs. On PostgreSQL, an advisory lock serializes the transactions that
decide, and those that end a run with a policy key. On SQLite, all transactions that write are serialized. Therefore the
counts of active runs are exact.

A run is *active* if it has not ended, and is in the backlog, claimed by a worker, or waiting for its next attempt
(`Hold.RETRY`). A run that waits for the end of an active run has `Hold.BUSY`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.ids import RunKey, run_id, time_of
from hookmill.domain.run import Hold, RunState
from hookmill.domain.run_policy import Debounce, RunPolicy, WhenBusy, policy_from_stored
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.notifications import notify_workers
from hookmill.store.runs import platform_attempts

DECISIONS_MAX: Final = 500
"""The maximum number of runs that each query of a decision returns, so that the transaction stays short."""
_DECISIONS_LOCK: Final = 7_246_001
"""The number of PostgreSQL's advisory lock for decisions."""
CLOCK_TOLERANCE_SECONDS: Final = 30
"""How much later the id of a run may be than that of a run that was recorded after it, if the clocks are right.

A greater difference means that the clock of a host is wrong, or that a process was frozen while it recorded a
delivery.
"""
_PAST_DEBOUNCE: Final = 0
"""A value of `due_at_most`: see `_HeldRun.latest_due_at`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldRun:
    id: RunKey
    created_at: int
    latest_due_at: int | None
    """`due_at_most`: the latest due time of a debounced run, or None if it is not decided yet. 0 marks a run that has
    waited for the end of an active run, debounced or not."""
    policy: RunPolicy

    @property
    def has_waited(self) -> bool:
        """Whether the run is not debounced again, because it has waited for the end of an active run."""
        return self.latest_due_at == _PAST_DEBOUNCE


def lock_decisions(tx: Transaction) -> None:
    """Make other transactions that decide or end runs wait until this one ends.

    Call it before a run with a policy key is locked or ends.
    """
    dialect.lock(tx, _DECISIONS_LOCK)


def needs_decision(tx: Transaction, now: int) -> bool:
    """Whether `decide` has work."""
    return tx.one(f"{NEEDS_DECISION_QUERY} LIMIT 1", now=now) is not None


def next_due_at(tx: Transaction) -> int | None:
    """When the next held run is due, in µs since 1970; None if no held run has a due time."""
    return tx.scalar(NEXT_DUE_QUERY)


# The constants whose names begin with _HAS, _NEEDS or _IS are SQL conditions on a run.
_HAS_DUE_TIME: Final = f"hold IN ({Hold.DEBOUNCE:d}, {Hold.RETRY:d})"
_NEEDS_DECISION: Final = (
    f"finished_at IS NULL AND hold IS NOT NULL AND (hold = {Hold.NEW:d} OR ({_HAS_DUE_TIME} AND due_at <= :now))"
)
NEEDS_DECISION_QUERY: Final = f"SELECT 1 FROM runs WHERE {_NEEDS_DECISION}"
NEXT_DUE_QUERY: Final = f"SELECT MIN(due_at) AS due_at FROM runs WHERE finished_at IS NULL AND {_HAS_DUE_TIME}"


def decide(tx: Transaction, now: int) -> None:
    """Decide about new and due runs: each starts, waits, or ends. `now` is in µs since 1970."""
    lock_decisions(tx)
    # A run that waits for its next attempt is active already, so it starts without a decision about its key.
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
    policy_keys = tx.scalars(
        f"""
        SELECT policy_key
        FROM runs
        WHERE {_NEEDS_DECISION} AND hold <> {Hold.RETRY:d}
        ORDER BY id
        LIMIT {DECISIONS_MAX}
        """,
        now=now,
    )
    for policy_key in sorted(set(policy_keys)):
        _decide_key(tx, policy_key, now)


def reconsider(tx: Transaction, run: RunKey) -> None:
    """Let `decide` look again at the policy key of `run`, an active run that ends in this transaction.

    Call `lock_decisions` first. Don't call it for a run that stays active, or that was not active: `decide` would apply
    the policy of the newest held run to a run that waits already, and might skip it.

    The oldest run that waits for the key becomes new again. Without such a run, nothing changes.
    """
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
    """Let `decide` look again at all policy keys with waiting runs but no active run.

    This is a precaution against a transaction that ended an active run without calling `reconsider`.
    """
    lock_decisions(tx)
    # A loose index scan: it reads one entry of each key.
    policy_keys = tx.scalars(
        f"""
        WITH RECURSIVE waiting_keys (policy_key) AS (
            SELECT (SELECT policy_key FROM runs WHERE {_IS_WAITING} ORDER BY policy_key LIMIT 1)
            UNION ALL
            SELECT (
                SELECT policy_key FROM runs
                WHERE {_IS_WAITING} AND policy_key > waiting_keys.policy_key
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
    for policy_key in policy_keys:
        _decide_again(tx, policy_key)


def _decide_again(tx: Transaction, policy_key: bytes) -> None:
    """Make the oldest run that waits for the key new again, if there is one."""
    for run in _held_runs_with_key(tx, policy_key, Hold.BUSY, limit=1):
        tx.run(f"UPDATE runs SET hold = {Hold.NEW:d} WHERE id = :id", id=run.id)


_IS_WAITING: Final = f"policy_key IS NOT NULL AND finished_at IS NULL AND hold = {Hold.BUSY:d}"


def _decide_key(tx: Transaction, policy_key: bytes, now: int) -> None:
    """Decide about the runs with the policy key that are new or debounced."""
    candidates = _held_runs_with_key(tx, policy_key, Hold.NEW, Hold.DEBOUNCE, limit=DECISIONS_MAX)
    if not candidates:
        return
    # The policy of the newest held run applies to all runs with the key.
    policy_holds = (Hold.NEW, Hold.DEBOUNCE, Hold.BUSY)
    [newest_held_run] = _held_runs_with_key(tx, policy_key, *policy_holds, limit=1, newest_first=True)
    policy = newest_held_run.policy
    if policy.reason_against_runs is not None:
        for run in candidates:
            _end_held_run(tx, run.id, RunState.INTERRUPTED, None, now, policy.reason_against_runs)
        return
    if policy.debounce is not None:
        waited = [run for run in candidates if run.has_waited]
        arrived = [run for run in candidates if not run.has_waited]
        candidates = sorted([*waited, *_debounced(tx, policy.debounce, arrived, now)], key=lambda run: run.id)
    if policy.concurrency is None:
        for run in candidates:
            _start_held_run(tx, run)
        return
    limit = policy.concurrency.limit
    free_capacity = limit - _count_active(tx, policy_key, limit)
    match policy.concurrency.when_busy:
        case WhenBusy.QUEUE:
            _start_oldest(tx, policy_key, candidates, free_capacity)
        case WhenBusy.SKIP:
            for run in candidates[max(free_capacity, 0) :]:
                _end_held_run(tx, run.id, RunState.SKIPPED, _oldest_active_run(tx, policy_key) or candidates[0].id, now)
            for run in candidates[: max(free_capacity, 0)]:
                _start_held_run(tx, run)
        case WhenBusy.REPLACE:
            _replace_older(tx, policy_key, candidates, limit, free_capacity, now)


def _debounced(tx: Transaction, debounce: Debounce, candidates: Sequence[_HeldRun], now: int) -> list[_HeldRun]:
    """Supersede all candidates but the newest one. Returns the newest one if it is due; otherwise it stays held."""
    if not candidates:
        return []
    undecided = [run for run in candidates if run.latest_due_at is None]
    order = _order_of_arrival(undecided)
    *older, newest = sorted(candidates, key=lambda run: order(run.id))
    latest_due_at = min(
        [
            candidates[0].created_at + debounce.max_seconds * 1_000_000,
            *(run.latest_due_at for run in candidates if run.latest_due_at is not None),
        ]
    )
    due_at = min(newest.created_at + debounce.seconds * 1_000_000, latest_due_at)
    for run in older:
        _end_held_run(tx, run.id, RunState.SUPERSEDED, newest.id, now)
    if due_at <= now:
        return [newest]
    tx.run(
        f"UPDATE runs SET hold = {Hold.DEBOUNCE:d}, due_at = :due_at, due_at_most = :due_at_most WHERE id = :id",
        id=newest.id,
        due_at=due_at,
        due_at_most=latest_due_at,
    )
    return []


def _start_oldest(tx: Transaction, policy_key: bytes, candidates: Sequence[_HeldRun], free_capacity: int) -> None:
    """Let the candidates wait behind the runs that wait already. Then start the oldest ones, up to `free_capacity`."""
    for run in candidates:
        tx.run(
            f"UPDATE runs SET hold = {Hold.BUSY:d}, due_at = NULL, due_at_most = {_PAST_DEBOUNCE} WHERE id = :id",
            id=run.id,
        )
    if free_capacity > 0:
        for run in _held_runs_with_key(tx, policy_key, Hold.BUSY, limit=free_capacity):
            _start_held_run(tx, run)


def _replace_older(
    tx: Transaction, policy_key: bytes, candidates: Sequence[_HeldRun], limit: int, free_capacity: int, now: int
) -> None:
    """Keep the newest `limit` of the candidates, waiting and active runs. The newest of all replaces the others.

    Active runs that are being stopped keep their place until they end, but are not among the runs to keep. If too many
    runs wait for one transaction, it ends only some of them, and the next one decides again.
    """
    waiting_at_most = limit + DECISIONS_MAX
    waiting = _held_runs_with_key(tx, policy_key, Hold.BUSY, limit=waiting_at_most)
    held = [*waiting, *candidates]
    active = _newest_active_runs(tx, policy_key, limit + DECISIONS_MAX)
    runs = sorted([*(run.id for run in held), *active], key=_order_of_arrival(candidates))
    kept = set(runs[-limit:])
    for run in held:
        if run.id not in kept:
            _end_held_run(tx, run.id, RunState.REPLACED, runs[-1], now)
    if len(waiting) == waiting_at_most:
        _decide_again(tx, policy_key)
        return
    _start_oldest(tx, policy_key, [run for run in held if run.id in kept], free_capacity)
    for active_run in active:
        if active_run not in kept:
            _stop_active_run(tx, active_run, replaced_by=runs[-1], now=now)


def _order_of_arrival(arrived: Sequence[_HeldRun]) -> Callable[[RunKey], tuple[bool, RunKey]]:
    """The key that sorts runs by age, oldest first, while the runs `arrived` are decided.

    Processes may record deliveries in another order than they received them, so ids determine the order. But a run
    whose id is much later than those of all runs that have arrived since is older: the clock of its host was ahead.
    """
    arrived_at = max((time_of(run.id) for run in arrived), default=None)

    def key(run: RunKey) -> tuple[bool, RunKey]:
        clock_was_ahead = arrived_at is not None and time_of(run) > arrived_at + CLOCK_TOLERANCE_SECONDS * 1_000_000
        return not clock_was_ahead, run

    return key


def _held_runs_with_key(
    tx: Transaction, policy_key: bytes, *holds: Hold, limit: int, newest_first: bool = False
) -> list[_HeldRun]:
    """Up to `limit` runs with the policy key and one of the `holds`, oldest or newest first."""
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
    return [_held_run_from_row(row) for row in rows]


def _held_run_from_row(row: Row) -> _HeldRun:
    return _HeldRun(
        id=row["id"],
        created_at=row["created_at"],
        latest_due_at=row["due_at_most"],
        policy=policy_from_stored(row["policy"]),
    )


_IS_ACTIVE_WITH_KEY: Final = (
    f"policy_key = :policy_key AND finished_at IS NULL AND (hold IS NULL OR hold = {Hold.RETRY:d})"
)


def _count_active(tx: Transaction, policy_key: bytes, at_most: int) -> int:
    """How many runs with the key are active, counted up to `at_most`."""
    return tx.integer(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM runs WHERE {_IS_ACTIVE_WITH_KEY} LIMIT :at_most) AS counted",
        policy_key=policy_key,
        at_most=at_most,
    )


def _oldest_active_run(tx: Transaction, policy_key: bytes) -> RunKey | None:
    return tx.scalar(f"SELECT id FROM runs WHERE {_IS_ACTIVE_WITH_KEY} ORDER BY id LIMIT 1", policy_key=policy_key)


def _newest_active_runs(tx: Transaction, policy_key: bytes, at_most: int) -> list[RunKey]:
    """The newest active runs that are not being stopped, newest first."""
    return tx.scalars(
        f"""
        SELECT id FROM runs
        WHERE {_IS_ACTIVE_WITH_KEY} AND cancel_requested_at IS NULL
        ORDER BY id DESC
        LIMIT :at_most
        """,
        policy_key=policy_key,
        at_most=at_most,
    )


def _start_held_run(tx: Transaction, run: _HeldRun) -> None:
    """Move the run to the backlog."""
    tx.run("UPDATE runs SET hold = NULL, due_at = NULL, due_at_most = NULL WHERE id = :id", id=run.id)
    notify_workers(tx)


def _end_held_run(
    tx: Transaction, run: RunKey, state: RunState, other: RunKey | None, now: int, reason: str | None = None
) -> None:
    """End a held run because of the run `other`, or for this reason."""
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
        reason=reason_for(state, other) if other is not None else reason,
    )


def _stop_active_run(tx: Transaction, run: RunKey, *, replaced_by: RunKey, now: int) -> None:
    """End an active run that is queued, or ask the worker that performs an active run to stop it."""
    values: dict[str, Any] = {"id": run, "now": now, "other": replaced_by}
    state = tx.scalar(
        f"SELECT state FROM runs WHERE id = :id AND finished_at IS NULL {dialect.lock_clause(tx, 'FOR NO KEY UPDATE')}",
        id=run,
    )
    if state is None:
        return
    if state == RunState.RUNNING:
        tx.run(
            """
            UPDATE runs
            SET cancel_requested_at = COALESCE(cancel_requested_at, :now), replaced_by = :other
            WHERE id = :id
            """,
            **values,
        )
        return
    if platform_attempts.end_with_report(tx, run, now=now) is None:
        tx.run(
            """
            UPDATE runs
            SET state = 'replaced', finished_at = :now, hold = NULL, due_at = NULL, replaced_by = :other,
                reason = :reason
            WHERE id = :id
            """,
            reason=reason_for(RunState.REPLACED, replaced_by),
            **values,
        )
    reconsider(tx, run)


def reason_for(state: RunState, other: RunKey) -> str:
    """Why the run `other` replaced a run, or kept it from starting, as a sentence for people."""
    match state:
        case RunState.SKIPPED:
            return f"Skipped, because {run_id(other)} with the same key was active."
        case RunState.SUPERSEDED:
            return f"Superseded by {run_id(other)}, which is newer and has the same key."
        case _:
            return f"Replaced by {run_id(other)}, which has the same key."
