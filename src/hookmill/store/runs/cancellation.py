"""Cancels one run, or many runs of a factory, batch by batch.

The runs of a batch are selected outside the transaction that cancels them. Their selection may read many other runs,
and on SQLite, deliveries wait until a transaction that writes has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from hookmill.domain.ids import AutomationId, FactoryId, RunKey
from hookmill.domain.queue import CancelledRuns
from hookmill.domain.run import Hold, RunState
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.runs import held, platform_attempts, reading
from hookmill.store.runs.parts import CLAIMED, HELD, READY

BATCH_RUNS: Final = 500
"""How many runs one transaction cancels, so that it stays short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which of a factory's unfinished runs to cancel: all, or those that meet every condition."""

    factory: FactoryId
    newest: RunKey
    """The newest run to cancel. Runs that were created later are not cancelled."""
    automation: AutomationId | None = None
    webhook_no: int | None = None
    state: RunState | None = None
    """`QUEUED` or `RUNNING`."""

    def condition(self) -> str:
        """The SQL condition. Its values are `parameters`."""
        # `|| ''` and `+` keep SQLite from using the indexes by automation and by webhook, which also have ended runs.
        return " AND ".join(
            [
                "factory_id = :factory AND id <= :newest",
                *(["automation_id || '' = :automation"] if self.automation is not None else []),
                *(["+webhook_no = :webhook_no"] if self.webhook_no is not None else []),
                *([f"state = '{self.state}'"] if self.state is not None else []),
            ]
        )

    def parameters(self) -> dict[str, Any]:
        return {
            "factory": self.factory,
            "newest": self.newest,
            "automation": self.automation,
            "webhook_no": self.webhook_no,
        }


class PartToCancel(Enum):
    """A part of the queue, in the order in which its runs are cancelled.

    Held runs are cancelled first. Otherwise, the end of a cancelled run would start the held run that waits for it.
    """

    HELD = auto()
    AWAITING_RETRY = auto()
    """Held after a failed attempt. These count as active (see `held`), so their end lets another run start."""
    READY = auto()
    CLAIMED = auto()


_CONDITION_BY_PART: Final = {
    PartToCancel.HELD: f"{HELD} AND hold <> {Hold.RETRY:d}",
    PartToCancel.AWAITING_RETRY: f"{HELD} AND hold = {Hold.RETRY:d}",
    PartToCancel.READY: READY,
    # With the conditions of `CLAIMED` alone, SQLite would scan the whole table in the order of its keys.
    PartToCancel.CLAIMED: f"cancel_requested_at IS NULL AND id IN (SELECT id FROM runs WHERE {CLAIMED})",
}
_QUEUED_REASON: Final = """
    CASE WHEN attempt = 0 THEN 'It was cancelled before it began.'
    ELSE 'It was cancelled while it waited for its next attempt.' END
"""
"""SQL for the reason of a queued run that is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCursor:
    """The place of a run in the order of `next_to_cancel`."""

    rank: int
    """The rank of the run's priority."""
    run_key: RunKey


def parts_with(state: RunState | None) -> Sequence[PartToCancel]:
    """The parts that can contain runs in this state, or in any if it is None."""
    match state:
        case RunState.RUNNING:
            return (PartToCancel.CLAIMED,)
        case RunState.QUEUED:
            return (PartToCancel.HELD, PartToCancel.AWAITING_RETRY, PartToCancel.READY)
        case _:
            return tuple(PartToCancel)


def newest_run(tx: Transaction) -> RunKey | None:
    """The key of the newest run of all factories; None if there is no run."""
    return tx.scalar("SELECT id FROM runs ORDER BY id DESC LIMIT 1")


def count_to_cancel(tx: Transaction, run_filter: RunFilter) -> int:
    """How many runs match the filter, without running ones whose cancellation was requested."""
    dialect.force_custom_query_plans(tx)
    return sum(
        tx.integer(
            f"SELECT COUNT(*) FROM runs WHERE {_CONDITION_BY_PART[part]} AND {run_filter.condition()}",
            **run_filter.parameters(),
        )
        for part in parts_with(run_filter.state)
    )


def next_to_cancel(
    tx: Transaction, run_filter: RunFilter, part: PartToCancel, *, after: BatchCursor | None
) -> list[BatchCursor]:
    """At most `BATCH_RUNS` runs of this part of the queue. `after` is the last run of the previous batch."""
    order = "priority, id" if part is PartToCancel.READY else "id"
    dialect.force_custom_query_plans(tx)
    rows = tx.all(
        f"""
        SELECT id, priority
        FROM runs
        WHERE {_CONDITION_BY_PART[part]} AND {run_filter.condition()}
            AND {"(priority, id) > (:rank, :after)" if part is PartToCancel.READY else "id > :after"}
        ORDER BY {order}
        LIMIT {BATCH_RUNS}
        """,
        after=after.run_key if after is not None else b"",
        rank=after.rank if after is not None else -1,
        **run_filter.parameters(),
    )
    return [BatchCursor(rank=row["priority"], run_key=row["id"]) for row in rows]


def request_cancel_of_batch(
    tx: Transaction, keys: Sequence[RunKey], part: PartToCancel, *, state: RunState | None, now: int
) -> CancelledRuns:
    """Cancel the queued runs of a batch, and ask the executors of its running runs to stop them.

    With `state`, only runs that are still in this state are cancelled. With `PartToCancel.HELD`, a run that is no
    longer held is left to a later batch: it may be active now, and its end must let another run start.
    """
    if not keys:
        return CancelledRuns(cancelled=0, stopping=0)
    held.lock_decisions(tx)
    runs = list(keys)
    # The planner must look the runs up by their keys. If a condition implied the WHERE of a partial index, it might
    # read that index instead.
    unfinished_in_batch = "id IN :runs AND finished_at IS NULL"
    # A run that is no longer held has NULL. It is excluded, as is one that waits for its next attempt.
    held_condition = f"AND COALESCE(hold, {Hold.RETRY:d}) <> {Hold.RETRY:d}" if part is PartToCancel.HELD else ""
    cancelled_rows: Sequence[Row] = ()
    if state is not RunState.RUNNING:
        if part is not PartToCancel.HELD:
            _end_with_reports(tx, unfinished_in_batch, runs, now)
        cancelled_rows = tx.all(
            f"""
            UPDATE runs
            SET state = 'cancelled', finished_at = :now, cancel_requested_at = :now, hold = NULL, due_at = NULL,
                reason = {_QUEUED_REASON}
            WHERE {unfinished_in_batch} AND state = 'queued' {held_condition}
            RETURNING id, policy_key
            """,
            now=now,
            runs=runs,
        )
    if part is not PartToCancel.HELD:
        # The cancelled runs were active, so runs that wait for them can start. One reconsidered run per key suffices:
        # `held.decide` then starts as many as the limit allows.
        run_by_policy_key = {row["policy_key"]: row["id"] for row in cancelled_rows if row["policy_key"] is not None}
        for key in run_by_policy_key.values():
            held.reconsider(tx, key)
    stopping = 0
    if part is PartToCancel.CLAIMED and state is not RunState.QUEUED:
        stopping = tx.run(
            f"""
            UPDATE runs
            SET cancel_requested_at = :now
            WHERE {unfinished_in_batch} AND state = 'running' AND cancel_requested_at IS NULL
            """,
            now=now,
            runs=runs,
        )
    return CancelledRuns(cancelled=len(cancelled_rows), stopping=stopping)


def _end_with_reports(tx: Transaction, condition: str, runs: list[RunKey], now: int) -> None:
    """For queued runs with an accepted report: end them with the report's result, so that no report is lost."""
    queued = tx.scalars(
        f"""
        SELECT id
        FROM runs
        WHERE {condition} AND state = 'queued'
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
        """,
        runs=runs,
    )
    if not queued:
        return
    for key in platform_attempts.runs_with_accepted_report(tx, queued):
        platform_attempts.end_with_report(tx, key, now=now)
        held.reconsider(tx, key)


def request_cancel(tx: Transaction, key: RunKey, *, factory: FactoryId | None = None, now: int) -> RunState | None:
    """Cancel a queued run immediately, or ask the executor of a running one to stop it.

    A queued run about which a platform's report was accepted ends with this report instead.

    Returns the run's state afterwards: a running run is still `running`, and an ended run keeps its state. None if the
    factory has no such run.
    """
    held.lock_decisions(tx)
    dialect.lock_row(tx, "runs", key, "FOR NO KEY UPDATE")
    run = reading.run_by_key(tx, key, factory=factory)
    if run is None or run.state.is_final:
        return run.state if run is not None else None
    if run.state is RunState.RUNNING:
        tx.run(
            "UPDATE runs SET cancel_requested_at = :now WHERE id = :id AND cancel_requested_at IS NULL", id=key, now=now
        )
        return RunState.RUNNING
    state = platform_attempts.end_with_report(tx, key, now=now)
    if state is None:
        state = RunState.CANCELLED
        tx.run(
            f"""
            UPDATE runs
            SET state = 'cancelled', finished_at = :now, cancel_requested_at = :now, hold = NULL, due_at = NULL,
                reason = {_QUEUED_REASON}
            WHERE id = :id
            """,
            id=key,
            now=now,
        )
    if run.hold in (None, Hold.RETRY):
        # The run was active. The end of another one lets no waiting run start.
        held.reconsider(tx, key)
    return state


def end_unperformed(tx: Transaction, key: RunKey, *, replaced_by: bytes | None, now: int) -> RunState:
    """End a run whose cancellation was requested, and which no worker performs any more. Returns its state.

    The caller has called `held.lock_decisions`, and has locked the run's row. `replaced_by`: the run that replaces it.
    """
    state = platform_attempts.end_with_report(tx, key, now=now)
    if state is None:
        state, reason = RunState.CANCELLED, "It was cancelled while no worker performed it."
        if replaced_by is not None:
            state = RunState.REPLACED
            reason = held.reason_for(state, RunKey(bytes(replaced_by)))
        tx.run(
            "UPDATE runs SET state = :state, finished_at = :now, reason = :reason WHERE id = :id",
            id=key,
            state=state,
            now=now,
            reason=reason,
        )
    held.reconsider(tx, key)
    return state
