"""Reads a factory's queue.

An index scan for a count reads at most `COUNTED_MAX` + 1 entries, and a scan for a page at most as many as the page has
rows. So the time to read the queue does not depend on the number of runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from hookmill.domain.ids import AutomationId, FactoryId, time_of
from hookmill.domain.queue import (
    COUNTED_MAX,
    RUNNING_MAX,
    LimitedBy,
    Queue,
    QueueCounts,
    QueuePosition,
    ReachedLimit,
    RunCount,
    RunningRun,
    WaitingRun,
    Worker,
)
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Priority
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.runs import reading
from hookmill.store.runs.parts import CLAIMED, HELD, READY


def queue_of(tx: Transaction, factory: FactoryId, *, after: QueuePosition | None, limit: int, now: int) -> Queue:
    """The queue, with a page of waiting runs. `after` is the position of the previous page's last run."""
    dialect.force_custom_query_plans(tx)
    # There are at most as many claimed runs as all workers together have slots.
    claimed = tx.all(f"SELECT id, factory_id, automation_id, executor FROM runs WHERE {CLAIMED} ORDER BY executor")
    executors = tx.all("SELECT id, started_at, last_seen_at FROM executors ORDER BY id")
    own_claimed = sorted((row for row in claimed if row["factory_id"] == factory), key=lambda row: row["id"])
    return Queue(
        counts=_counts(tx, factory, running=len(own_claimed)),
        running=_running_runs(tx, own_claimed[:RUNNING_MAX], {row["id"]: row["last_seen_at"] for row in executors}),
        workers=_workers(executors, Counter(row["executor"] for row in claimed)),
        waiting=_waiting_runs(tx, factory, after, limit, _reached_limits(tx, factory, own_claimed)),
        read_at=now,
    )


def _counts(tx: Transaction, factory: FactoryId, *, running: int) -> QueueCounts:
    ready = tx.integer(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM runs WHERE factory_id = :factory AND {READY} LIMIT :most) AS r",
        factory=factory,
        most=COUNTED_MAX + 1,
    )
    # One scan for all values of `hold`: a separate scan for a rare value would read all entries.
    held = tx.all(
        f"""
        SELECT hold, COUNT(*) AS runs
        FROM (SELECT hold FROM runs WHERE factory_id = :factory AND {HELD} ORDER BY id LIMIT :most) AS h
        GROUP BY hold
        """,
        factory=factory,
        most=COUNTED_MAX + 1,
    )
    count_by_hold = {row["hold"]: int(row["runs"]) for row in held}
    is_capped = sum(count_by_hold.values()) > COUNTED_MAX
    return QueueCounts(
        running=_capped(running),
        ready=_capped(ready),
        held={
            hold: RunCount(count=min(count_by_hold.get(int(hold), 0), COUNTED_MAX), is_capped=is_capped)
            for hold in Hold
        },
        oldest_ready_at=oldest_ready_at(tx, factory),
    )


def _capped(count: int) -> RunCount:
    return RunCount(count=min(count, COUNTED_MAX), is_capped=count > COUNTED_MAX)


def oldest_ready_at(tx: Transaction, factory: FactoryId) -> int | None:
    """When the factory's oldest ready run was created, in µs since 1970; None if no run is ready."""
    oldest_keys = [
        tx.scalar(
            f"""
            SELECT id FROM runs
            WHERE factory_id = :factory AND priority = :rank AND {READY}
            ORDER BY id
            LIMIT 1
            """,
            factory=factory,
            rank=priority.rank,
        )
        for priority in Priority
    ]
    return min((time_of(key) for key in oldest_keys if key is not None), default=None)


def _running_runs(tx: Transaction, claimed: Sequence[Row], heartbeats: Mapping[str, int]) -> list[RunningRun]:
    executor_by_run = {row["id"]: row["executor"] for row in claimed}
    return [
        RunningRun(
            run=run, executor=executor_by_run[run.id], worker_last_seen_at=heartbeats.get(executor_by_run[run.id])
        )
        for run in reading.runs_by_keys(tx, list(executor_by_run))
    ]


def _workers(executors: Sequence[Row], claimed_counts: Mapping[str, int]) -> list[Worker]:
    return [
        Worker(
            executor=row["id"],
            started_at=row["started_at"],
            last_seen_at=row["last_seen_at"],
            claimed_runs=claimed_counts.get(row["id"], 0),
        )
        for row in executors
    ]


def _reached_limits(
    tx: Transaction, factory: FactoryId, claimed: Sequence[Row]
) -> Mapping[AutomationId | None, ReachedLimit]:
    """The reached limits, by automation. The factory's limit has the key None. `claimed` are its claimed runs."""
    limits = tx.all(
        """
        SELECT id AS automation, max_running FROM automations
        WHERE factory_id = :factory AND max_running IS NOT NULL AND deleted_at IS NULL
        UNION ALL
        SELECT NULL, max_running FROM factories WHERE id = :factory AND max_running IS NOT NULL
        """,
        factory=factory,
    )
    claimed_by_automation = Counter(row["automation_id"] for row in claimed)
    return {
        row["automation"]: ReachedLimit(
            by=LimitedBy.FACTORY if row["automation"] is None else LimitedBy.AUTOMATION,
            max_running=row["max_running"],
        )
        for row in limits
        if row["max_running"]
        <= (len(claimed) if row["automation"] is None else claimed_by_automation[row["automation"]])
    }


def _waiting_runs(
    tx: Transaction,
    factory: FactoryId,
    after: QueuePosition | None,
    limit: int,
    reached_limits: Mapping[AutomationId | None, ReachedLimit],
) -> list[WaitingRun]:
    rows: list[Row] = []
    if after is None or not after.is_held:
        rows += tx.all(
            f"""
            SELECT id, priority, NULL AS waits_behind
            FROM runs
            WHERE factory_id = :factory AND {READY} AND (priority, id) > (:rank, :after)
            ORDER BY priority, id
            LIMIT :limit
            """,
            factory=factory,
            rank=after.rank if after is not None else -1,
            after=after.run_key if after is not None else b"",
            limit=limit,
        )
    if len(rows) < limit:
        rows += tx.all(
            f"""
            SELECT id, priority, CASE WHEN hold = {Hold.BUSY:d} THEN COALESCE(
                {_oldest_with_policy_key("hold IS NULL")}, {_oldest_with_policy_key(f"hold = {Hold.RETRY:d}")}
            ) END AS waits_behind
            FROM runs
            WHERE factory_id = :factory AND {HELD} AND id > :after
            ORDER BY id
            LIMIT :limit
            """,
            factory=factory,
            after=after.run_key if after is not None and after.is_held else b"",
            limit=limit - len(rows),
        )
    rows_by_key = {row["id"]: row for row in rows}
    runs_by_key = {run.id: run for run in reading.runs_by_keys(tx, list(rows_by_key))}
    return [
        WaitingRun(
            run=runs_by_key[key],
            priority=list(Priority)[row["priority"]],
            waits_behind=row["waits_behind"],
            reached_limit=reached_limits.get(runs_by_key[key].automation_id, reached_limits.get(None))
            if runs_by_key[key].hold is None
            else None,
        )
        for key, row in rows_by_key.items()
    ]


def _oldest_with_policy_key(hold_condition: str) -> str:
    """A subquery for the oldest unfinished run with the policy key of a held run, and with a condition such as
    `hold IS NULL`.

    It reads one entry of an index. The caller combines two such subqueries, because a single one with OR could read all
    active runs with the policy key.
    """
    return f"""(
        SELECT active.id FROM runs active
        WHERE active.policy_key = runs.policy_key AND active.finished_at IS NULL AND active.{hold_condition}
        ORDER BY active.hold, active.id
        LIMIT 1
    )"""
