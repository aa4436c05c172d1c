"""Reads and updates runs, and claims them for executors.

An unfinished run is held (see `held_runs`), in the backlog, or claimed by the executor that its row names. Only that
executor can begin an attempt, and only the latest attempt can finish the run. So writes of a stale worker have no
effect.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain, islice, product, zip_longest
from typing import Final, NewType

from hookmill.domain.automation import Automation
from hookmill.domain.event import EventType
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId, RunKey, WebhookUid, time_ordered_key
from hookmill.domain.limits import LOG_DAYS_KEPT, LOG_ROWS_KEPT
from hookmill.domain.payload import Parsed
from hookmill.domain.run import (
    ByDelivery,
    ByPerson,
    BySchedule,
    Ended,
    FailedAttempt,
    Hold,
    Run,
    RunState,
    StartedBy,
)
from hookmill.domain.run_policy import stored_policy
from hookmill.store import automations, dialect, held_runs
from hookmill.store.database import Row, Transaction
from hookmill.store.notifications import notify_workers

DAY_US: Final = 86_400_000_000

ExecutorId = NewType("ExecutorId", str)
"""Identifies a process that performs runs. A restarted process has a new id."""

# The parts of the queue. Each repeats the WHERE of a partial index; otherwise, the index is not used.
READY: Final = "finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"
"""In the backlog."""
HELD: Final = "finished_at IS NULL AND hold IS NOT NULL"
CLAIMED: Final = "finished_at IS NULL AND executor IS NOT NULL"

_RUN: Final = """
    SELECT
        runs.id, runs.delivery_id, runs.factory_id, runs.automation_id, runs.automation_version, runs.state,
        runs.attempt, runs.created_at, runs.claimed_at, runs.started_at, runs.finished_at,
        runs.cancel_requested_at, runs.exit_status, runs.output_tail, runs.reason, runs.replay,
        runs.policy_key, runs.hold, runs.due_at, runs.replaced_by, runs.failures,
        runs.schedule, runs.schedule_timezone, runs.scheduled_at, runs.started_by,
        CASE WHEN runs.started_by IS NULL THEN 0 ELSE (
            SELECT COUNT(*) FROM payloads WHERE payloads.delivery_id = runs.delivery_id
        ) END AS own_payloads,
        webhooks.uid AS webhook_uid, webhooks.name AS webhook_name, deliveries.event, deliveries.event_signed,
        automation_versions.name AS automation_name, automation_versions.prompt, automation_versions.runner,
        automation_versions.policy
    FROM runs
    LEFT JOIN webhooks ON webhooks.no = runs.webhook_no
    JOIN automation_versions
        ON automation_versions.automation_id = runs.automation_id
        AND automation_versions.version = runs.automation_version
    LEFT JOIN deliveries ON deliveries.id = runs.delivery_id
"""


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def run_of(tx: Transaction, key: RunKey, *, factory: FactoryId | None = None) -> Run | None:
    """The run; None if there is none, or if it belongs to another factory than `factory`."""
    row = tx.one(_RUN + "WHERE runs.id = :id", id=key)
    if row is None or (factory is not None and row["factory_id"] != factory):
        return None
    return _run(row)


def runs_by_keys(tx: Transaction, keys: Sequence[RunKey]) -> list[Run]:
    """These runs, oldest first. Keys that no run has are omitted."""
    if not keys:
        return []
    names = {f"run_{number}": key for number, key in enumerate(keys)}
    rows = tx.all(f"{_RUN} WHERE runs.id IN ({', '.join(f':{name}' for name in names)}) ORDER BY runs.id", **names)
    return [_run(row) for row in rows]


def page_of_runs(
    tx: Transaction,
    *,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    automation: AutomationId | None = None,
    delivery: DeliveryKey | None = None,
    state: RunState | None = None,
    before: RunKey | None = None,
    limit: int = 50,
) -> list[Run]:
    """A page of a factory's runs, newest first. `before` is the last run of the previous page.

    The other arguments restrict it. The page is a UNION of index scans that read at most `limit` rows each, so its time
    does not depend on the number of runs.
    """
    scans = [
        f"SELECT id FROM (SELECT id FROM runs WHERE {index_range.where} AND {condition} AND id < :before "
        f"ORDER BY {index_range.order} LIMIT :limit) AS scan_{number}"
        for number, (index_range, condition) in enumerate(
            product(
                _index_ranges(tx, factory, webhook, automation, delivery, state),
                _STATE_CONDITIONS[state] if state is not None else ["1 = 1"],
            )
        )
    ]
    runs: list[Run] = []
    dialect.force_custom_query_plans(tx)
    for start in range(0, len(scans), _SCANS_PER_QUERY):
        batch = scans[start : start + _SCANS_PER_QUERY]
        rows = tx.all(
            f"""
            {_RUN}
            JOIN (
                SELECT id FROM ({" UNION ".join(batch)}) AS scanned
                ORDER BY id DESC LIMIT :limit
            ) AS page ON page.id = runs.id
            ORDER BY runs.id DESC
            """,
            before=before or b"\xff" * 16,
            limit=limit,
            **({"factory": factory} if any(":factory" in scan for scan in batch) else {}),
            **({"automation": automation} if automation is not None else {}),
            **({"delivery": delivery} if delivery is not None else {}),
        )
        runs += map(_run, rows)
    return sorted(runs, key=lambda run: run.id, reverse=True)[:limit]


WITHOUT_DELIVERY: Final = 0
"""The webhook number of runs without a delivery."""
_SCANS_PER_QUERY: Final = 100
_UNFINISHED: Final = (RunState.QUEUED, RunState.RUNNING)
_STATE_CONDITIONS: Final[dict[RunState, list[str]]] = {
    # Each condition must repeat the WHERE of a partial index. Otherwise, the index is not used.
    **{
        state: [
            f"state = '{state}' AND {READY}",
            f"state = '{state}' AND {HELD}",
            f"state = '{state}' AND id IN (SELECT id FROM runs WHERE {CLAIMED})",
        ]
        for state in _UNFINISHED
    },
    RunState.SUCCEEDED: ["state = 'succeeded'"],
    **{
        state: [f"state = '{state}' AND state NOT IN ('queued', 'running', 'succeeded')"]
        for state in RunState
        if state not in (RunState.QUEUED, RunState.RUNNING, RunState.SUCCEEDED)
    },
}


@dataclass(frozen=True, slots=True)
class _IndexRange:
    """A range of an index, as a WHERE condition and the ORDER BY that reads it newest first."""

    where: str
    order: str = "id DESC"


def _index_ranges(
    tx: Transaction,
    factory: FactoryId,
    webhook: WebhookUid | None,
    automation: AutomationId | None,
    delivery: DeliveryKey | None,
    state: RunState | None,
) -> list[_IndexRange]:
    """The index ranges with the requested runs: of one delivery, of the factory's unfinished runs, of each webhook, or
    of each webhook and one automation. Without a requested webhook, runs without a delivery are included."""
    rows = tx.all("SELECT no, uid FROM webhooks WHERE factory_id = :factory ORDER BY no", factory=factory)
    numbers = [row["no"] for row in rows if webhook in (None, row["uid"])]
    if webhook is None and delivery is None:
        numbers.append(WITHOUT_DELIVERY)
    if delivery is None and state not in _UNFINISHED:
        if automation is not None:
            return [_automation_range(tx, no, state) for no in numbers]
        return [
            _IndexRange(f"webhook_no = {no:d}") if no != WITHOUT_DELIVERY else _range_without_delivery(tx, state)
            for no in numbers
        ]
    condition = "delivery_id = :delivery" if delivery is not None else "factory_id = :factory"
    # `|| ''` and `+webhook_no` keep SQLite from scanning all runs of an automation or a webhook instead.
    by_automation = "automation_id || '' = :automation AND " if automation is not None else ""
    if not numbers:
        return []
    return [_IndexRange(f"{condition} AND {by_automation}+webhook_no IN ({', '.join(map(str, numbers))})")]


def _range_without_delivery(tx: Transaction, state: RunState | None) -> _IndexRange:
    """The index range of a factory's runs without a delivery."""
    leading_columns = {"factory_id": ":factory"}
    if state not in (None, RunState.SUCCEEDED):
        leading_columns["state"] = f"'{state}'"
    where, order = dialect.index_range(tx, leading_columns, "id", ":before")
    return _IndexRange(f"webhook_no = {WITHOUT_DELIVERY} AND {where}", order)


def _automation_range(tx: Transaction, no: int, state: RunState | None) -> _IndexRange:
    """The index range of one automation's runs from one webhook."""
    leading_columns = {"automation_id": ":automation", "webhook_no": str(int(no))}
    if state not in (None, RunState.SUCCEEDED):
        leading_columns["state"] = f"'{state}'"
    return _IndexRange(*dialect.index_range(tx, leading_columns, "id", ":before"))


def newest_by_automation(tx: Transaction, factory: FactoryId) -> dict[AutomationId, Run]:
    """The newest run of each of the factory's automations that has one."""
    # A loose index scan: it skips from one webhook to the next, and reads the last entry of each.
    rows = tx.all(
        """
        WITH RECURSIVE pairs (automation_id, webhook_no) AS (
            SELECT a.id, (SELECT MIN(r.webhook_no) FROM runs r WHERE r.automation_id = a.id)
            FROM automations a
            WHERE a.factory_id = :factory AND a.deleted_at IS NULL
            UNION ALL
            SELECT p.automation_id, (
                SELECT MIN(r.webhook_no) FROM runs r
                WHERE r.automation_id = p.automation_id AND r.webhook_no > p.webhook_no
            )
            FROM pairs p
            WHERE p.webhook_no IS NOT NULL
        )
        SELECT p.automation_id, (
            SELECT r.id FROM runs r
            WHERE (r.automation_id, r.webhook_no) <= (p.automation_id, p.webhook_no)
            ORDER BY r.automation_id DESC, r.webhook_no DESC, r.id DESC
            LIMIT 1
        ) AS id
        FROM pairs p
        WHERE p.webhook_no IS NOT NULL
        """,
        factory=factory,
    )
    newest: dict[str, bytes] = {}
    for row in rows:
        newest[row["automation_id"]] = max(bytes(row["id"]), newest.get(row["automation_id"], b""))
    return {run.automation_id: run for run in runs_by_keys(tx, [RunKey(key) for key in newest.values()])}


def oldest_runs(
    tx: Transaction,
    *,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    after: RunKey | None = None,
    limit: int = 1000,
) -> list[Run]:
    """A page of a factory's runs, or of one webhook's, oldest first. `after` is the last run of the previous page."""
    rows = tx.all(
        _RUN
        + f"""
        WHERE runs.factory_id = :factory AND runs.id > :after
            {"AND webhooks.uid = :webhook" if webhook is not None else ""}
        ORDER BY runs.id
        LIMIT :limit
        """,
        factory=factory,
        after=after or b"",
        limit=limit,
        **({"webhook": webhook} if webhook is not None else {}),
    )
    return [_run(row) for row in rows]


def counts_by_delivery(
    tx: Transaction, deliveries: Collection[DeliveryKey], *, factory: FactoryId
) -> dict[DeliveryKey, int]:
    """The number of runs of each delivery, including replays. Deliveries without runs are omitted."""
    if not deliveries:
        return {}
    keys = {f"delivery_{number}": key for number, key in enumerate(deliveries)}
    rows = tx.all(
        f"""
        SELECT delivery_id, COUNT(*) AS runs
        FROM runs
        WHERE delivery_id IN ({", ".join(f":{name}" for name in keys)}) AND factory_id = :factory
        GROUP BY delivery_id
        """,
        factory=factory,
        **keys,
    )
    return {DeliveryKey(bytes(row["delivery_id"])): row["runs"] for row in rows}


def payload_of(tx: Transaction, run: Run) -> bytes | None:
    """The run's payload, byte for byte; None if it has none, or if retention has pruned it."""
    # A run without a delivery has its own id in place of the delivery's.
    row = tx.one("SELECT body FROM payloads WHERE delivery_id = :delivery", delivery=run.delivery_id or run.id)
    return None if row is None else bytes(row["body"])


def _started_by(row: Row) -> StartedBy:
    if row["schedule"] is not None:
        return BySchedule(name=row["schedule"], scheduled_at=row["scheduled_at"], timezone=row["schedule_timezone"])
    if row["started_by"] is not None:
        return ByPerson(name=row["started_by"], has_payload=row["own_payloads"] > 0)
    return ByDelivery(
        delivery_id=DeliveryKey(bytes(row["delivery_id"])),
        webhook_uid=WebhookUid(row["webhook_uid"]),
        webhook_name=row["webhook_name"],
        event=EventType(row["event"], bool(row["event_signed"])) if row["event"] is not None else None,
    )


def _run(row: Row) -> Run:
    return Run(
        id=RunKey(bytes(row["id"])),
        started_by=_started_by(row),
        factory_id=FactoryId(row["factory_id"]),
        automation_id=AutomationId(row["automation_id"]),
        automation_name=row["automation_name"],
        automation_version=row["automation_version"],
        prompt=row["prompt"],
        runner=row["runner"],
        state=RunState(row["state"]),
        attempt=row["attempt"],
        created_at=row["created_at"],
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        cancel_requested_at=row["cancel_requested_at"],
        exit_status=row["exit_status"],
        output_tail=row["output_tail"],
        reason=row["reason"],
        replay=row["replay"],
        failures=row["failures"],
        policy=stored_policy(row["policy"]),
        policy_key=bytes(row["policy_key"]) if row["policy_key"] is not None else None,
        hold=Hold(row["hold"]) if row["hold"] is not None else None,
        due_at=row["due_at"],
        replaced_by=RunKey(bytes(row["replaced_by"])) if row["replaced_by"] is not None else None,
    )


def add(
    tx: Transaction,
    key: RunKey,
    *,
    automation: Automation,
    started_by: BySchedule | ByPerson,
    now: int,
    payload: Parsed | None = None,
    body: bytes | None = None,
) -> None:
    """Add a run without a delivery. Like every run, it starts when the automation's policy allows.

    `payload` is the parsed `body`.
    """
    policy_key = automation.policy.policy_key(automation.id, payload)
    if body is not None:
        tx.run("INSERT INTO payloads (delivery_id, body) VALUES (:id, :body)", id=key, body=body)
    schedule = started_by if isinstance(started_by, BySchedule) else None
    tx.run(
        """
        INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt,
                          created_at, priority, policy_key, hold, schedule, schedule_timezone, scheduled_at, started_by)
        VALUES (:id, :id, 0, :factory, :automation, :version, :queued, 0,
                :now, :priority, :policy_key, :hold, :schedule, :timezone, :scheduled_at, :started_by)
        """,
        id=key,
        factory=automation.factory_id,
        automation=automation.id,
        version=automation.version,
        queued=RunState.QUEUED.value,
        now=now,
        priority=automation.policy.priority.rank,
        policy_key=policy_key,
        hold=int(Hold.NEW) if policy_key is not None else None,
        schedule=schedule.name if schedule is not None else None,
        timezone=schedule.timezone if schedule is not None else None,
        scheduled_at=schedule.scheduled_at if schedule is not None else None,
        started_by=started_by.name if isinstance(started_by, ByPerson) else None,
    )
    notify_workers(tx)


def add_replay(
    tx: Transaction,
    key: RunKey,
    *,
    delivery: DeliveryKey,
    factory: FactoryId,
    automation: Automation,
    policy_key: bytes | None,
    now: int,
) -> None:
    """Add a run that replays a stored delivery. Like every run, it starts when the automation's policy allows."""
    tx.run(
        f"""
        INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                          state, attempt, created_at, priority, policy_key, hold, replay)
        SELECT :id, d.id, d.webhook_no, :factory, :automation, :version, :queued, 0, :now,
               :priority, CAST(:policy_key AS {dialect.bytes_type(tx)}), CAST(:hold AS smallint),
               (SELECT COALESCE(MAX(r.replay), 0) + 1 FROM runs r
                WHERE r.delivery_id = d.id AND r.automation_id = :automation)
        FROM deliveries d
        WHERE d.id = :delivery
        """,
        id=key,
        delivery=delivery,
        factory=factory,
        automation=automation.id,
        version=automation.version,
        queued=RunState.QUEUED.value,
        priority=automation.policy.priority.rank,
        policy_key=policy_key,
        hold=int(Hold.NEW) if policy_key is not None else None,
        now=now,
    )
    notify_workers(tx)


# ── Retention ────────────────────────────────────────────────────────────────────────────────────────────────


def automations_with_old_runs(tx: Transaction, now: int) -> list[AutomationId]:
    """The automations with runs without a delivery that are older than `LOG_DAYS_KEPT`. `now` is in µs since 1970."""
    rows = tx.all(
        f"""
        SELECT a.id
        FROM automations a
        WHERE EXISTS (
            SELECT 1 FROM runs r
            WHERE r.automation_id = a.id AND r.webhook_no = {WITHOUT_DELIVERY} AND r.id < :cutoff
        )
        ORDER BY a.id
        """,
        cutoff=_cutoff(now),
    )
    return [AutomationId(row["id"]) for row in rows]


def prune_without_delivery(tx: Transaction, automation: AutomationId, now: int, at_most: int) -> int:
    """Remove up to `at_most` of the automation's runs without a delivery, and return how many were removed.

    It keeps those younger than `LOG_DAYS_KEPT`, the newest `LOG_ROWS_KEPT`, and unfinished ones. Retention of the log
    prunes the other runs with their deliveries.
    """
    dialect.force_custom_query_plans(tx)
    rows = tx.all(
        f"""
        SELECT id
        FROM runs
        WHERE automation_id = :automation AND webhook_no = {WITHOUT_DELIVERY} AND id < :cutoff
          AND id < COALESCE((
              SELECT newer.id
              FROM runs newer
              WHERE newer.automation_id = :automation AND newer.webhook_no = {WITHOUT_DELIVERY}
              ORDER BY newer.id DESC
              LIMIT 1 OFFSET {LOG_ROWS_KEPT - 1}
          ), :none)
          AND finished_at IS NOT NULL
        ORDER BY id
        LIMIT :at_most
        """,
        automation=automation,
        cutoff=_cutoff(now),
        none=b"",
        at_most=at_most,
    )
    for row in rows:
        tx.run("DELETE FROM payloads WHERE delivery_id = :id", id=row["id"])
        tx.run("DELETE FROM failed_attempts WHERE run_id = :id", id=row["id"])
        tx.run("DELETE FROM runs WHERE id = :id", id=row["id"])
    return len(rows)


def _cutoff(now: int) -> bytes:
    """The first key of a run that is younger than `LOG_DAYS_KEPT`."""
    return time_ordered_key(max(now - LOG_DAYS_KEPT * DAY_US, 0), bytes(8))


# ── The backlog ──────────────────────────────────────────────────────────────────────────────────────────────

FACTORIES_MAX: Final = 1_000
"""How many factories a claim searches while runners are skipped, or limits exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that `claim` assigned to the executor."""

    run: RunKey
    factory: FactoryId


def has_backlog(tx: Transaction, *, skipped: Collection[str] = ()) -> bool:
    """Whether the backlog has runs of runners other than the `skipped` ones."""
    condition, runners = _for_other_runners(skipped)
    return tx.one(f"SELECT 1 FROM runs WHERE {READY} {condition} LIMIT 1", **runners) is not None


def claim(
    tx: Transaction,
    *,
    executor: ExecutorId,
    most: int,
    after: FactoryId,
    now: int,
    skipped: Collection[str] = (),
) -> list[ClaimedRun]:
    """Claim up to `most` runs of the backlog for the executor: round robin by factory, and by priority and age in each.

    `after` is the factory that was served last; the next one in order is served first. A run stays in
    the backlog if its runner is in `skipped`, or if the limit of its automation or factory leaves no room.
    """
    free = _free_by_factory(tx)
    # All runs of a factory may have to stay in the backlog, so more factories must be searched.
    factories = _factories_in_backlog(tx, after=after, most=FACTORIES_MAX if skipped or free else most)
    by_factory = filter(
        None, (_startable(tx, factory, most, skipped, free.get(factory, _Free())) for factory in factories)
    )
    round_robin = chain.from_iterable(zip_longest(*islice(by_factory, most)))
    interleaved = [claimed_run for claimed_run in round_robin if claimed_run is not None]
    for claimed_run in interleaved[:most]:
        tx.run(
            "UPDATE runs SET claimed_at = :now, executor = :executor WHERE id = :id",
            id=claimed_run.run,
            executor=executor,
            now=now,
        )
    return interleaved[:most]


def _factories_in_backlog(tx: Transaction, *, after: FactoryId, most: int) -> list[FactoryId]:
    # A loose index scan: it reads one entry of each factory, however many runs the factory has.
    scan = f"""
        WITH RECURSIVE waiting (factory_id) AS (
            SELECT min(factory_id) FROM runs WHERE {READY} AND factory_id > :after
            UNION ALL
            SELECT (
                SELECT min(factory_id) FROM runs WHERE {READY} AND factory_id > waiting.factory_id
            )
            FROM waiting
            WHERE waiting.factory_id IS NOT NULL
        )
        SELECT factory_id FROM waiting WHERE factory_id IS NOT NULL LIMIT :most
    """
    next_factories = [FactoryId(row["factory_id"]) for row in tx.all(scan, after=after, most=most)]
    if len(next_factories) == most:
        return next_factories
    first_factories = [FactoryId(row["factory_id"]) for row in tx.all(scan, after="", most=most - len(next_factories))]
    return next_factories + [factory for factory in first_factories if factory <= after]


def _for_other_runners(skipped: Collection[str]) -> tuple[str, dict[str, str]]:
    """An SQL condition that excludes runs of the `skipped` runners, with its parameters."""
    if not skipped:
        return "", {}
    runners = {f"skipped_{number}": runner for number, runner in enumerate(skipped)}
    condition = f"""
        AND NOT EXISTS (
            SELECT 1 FROM automation_versions
            WHERE automation_versions.automation_id = runs.automation_id
                AND automation_versions.version = runs.automation_version
                AND automation_versions.runner IN ({", ".join(f":{name}" for name in runners)})
        )
    """
    return condition, runners


_LIMITS_LOCK: Final = 7_246_002


@dataclass(frozen=True, slots=True)
class _Free:
    """How many more runs of a factory, and of its limited automations, may run."""

    runs: int | float = math.inf
    by_automation: dict[str, int] = field(default_factory=dict)


def _free_by_factory(tx: Transaction) -> dict[FactoryId, _Free]:
    """What the limits leave free. It has only the factories with limits.

    If there are any, on PostgreSQL other claims wait until this transaction ends, so that the counts stay exact.
    """
    limits = tx.all(
        """
        SELECT factory_id, id, max_running FROM automations WHERE max_running IS NOT NULL AND deleted_at IS NULL
        UNION ALL
        SELECT id, NULL, max_running FROM factories WHERE max_running IS NOT NULL
        """
    )
    if not limits:
        return {}
    dialect.lock(tx, _LIMITS_LOCK)
    running: Counter[str] = Counter()
    for row in tx.all(f"SELECT automation_id, factory_id FROM runs WHERE {CLAIMED}"):
        running.update((row["automation_id"], row["factory_id"]))
    free: dict[FactoryId, _Free] = {}
    for row in limits:
        factory = FactoryId(row["factory_id"])
        before = free.get(factory, _Free())
        left = row["max_running"] - running[row["id"] or factory]
        if row["id"] is None:
            free[factory] = replace(before, runs=left)
        else:
            free[factory] = replace(before, by_automation={**before.by_automation, row["id"]: left})
    return free


def _startable(
    tx: Transaction, factory: FactoryId, most: int, skipped: Collection[str], free: _Free
) -> list[ClaimedRun]:
    """The first runs of a factory's backlog, without those of the `skipped` runners, and no more than are `free`."""
    if free.runs <= 0:
        return []
    condition, parameters = _for_other_runners(skipped)
    if full := [automation for automation, count in free.by_automation.items() if count <= 0]:
        names = {f"full_{number}": automation for number, automation in enumerate(full)}
        condition += f" AND automation_id NOT IN ({', '.join(f':{name}' for name in names)})"
        parameters |= names
    rows = tx.all(
        f"""
        SELECT id, automation_id
        FROM runs
        WHERE {READY} AND factory_id = :factory {condition}
        ORDER BY priority, id
        LIMIT :most
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """,
        factory=factory,
        most=min(most, free.runs),
        **parameters,
    )
    counts: Counter[str] = Counter()
    runs = []
    for row in rows:
        automation = row["automation_id"]
        counts[automation] += 1
        if counts[automation] <= free.by_automation.get(automation, most):
            runs.append(ClaimedRun(run=RunKey(bytes(row["id"])), factory=factory))
    return runs


# ── One attempt ──────────────────────────────────────────────────────────────────────────────────────────────


class AttemptStatus(Enum):
    """The stored status of an attempt, for the executor that performs it."""

    CURRENT = auto()
    CANCEL_REQUESTED = auto()
    OUTDATED = auto()
    """The run has ended, another executor has claimed it, or a later attempt has begun. Writes have no effect."""


def begin_attempt(tx: Transaction, key: RunKey, *, executor: ExecutorId, now: int) -> int | None:
    """Begin the next attempt, and return its number; None if the run is not queued and claimed by this executor."""
    row = tx.one(
        """
        UPDATE runs
        SET state = 'running', attempt = attempt + 1, started_at = :now, reason = NULL
        WHERE id = :id AND executor = :executor AND state = 'queued' AND finished_at IS NULL
        RETURNING attempt
        """,
        id=key,
        executor=executor,
        now=now,
    )
    return None if row is None else int(row["attempt"])


def attempt_status(tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int) -> AttemptStatus:
    row = tx.one(
        """
        SELECT cancel_requested_at
        FROM runs
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
    )
    if row is None:
        return AttemptStatus.OUTDATED
    return AttemptStatus.CURRENT if row["cancel_requested_at"] is None else AttemptStatus.CANCEL_REQUESTED


def finish(
    tx: Transaction,
    key: RunKey,
    ended: Ended,
    *,
    executor: ExecutorId,
    attempt: int,
    now: int,
    policy_key: bytes | None = None,
    counts_failures: bool = False,
) -> bool:
    """Finish the run with the attempt's result. Returns False and writes nothing if the attempt is outdated.

    If `policy_key` is given, a run that waits for this run's end may start. If `counts_failures`, a failure adds to the
    automation's failures in a row, and a success resets them.
    """
    if policy_key is not None:
        held_runs.lock_decisions(tx)
    updated = tx.run(
        """
        UPDATE runs
        SET state = CASE WHEN replaced_by IS NOT NULL AND :state = 'cancelled' THEN 'replaced' ELSE :state END,
            finished_at = :now, exit_status = :exit_status, output_tail = :output_tail,
            reason = :reason
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        now=now,
        state=ended.state,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=ended.reason,
    )
    if updated and policy_key is not None:
        held_runs.reconsider(tx, key)
    if updated and counts_failures and ended.state in _RESULTS:
        automations.record_result(tx, key, failed=ended.state is not RunState.SUCCEEDED)
    return updated == 1


_RESULTS: Final = (RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED)
"""The states that count as an automation's success or failure. A cancelled or replaced run is neither."""


def retry(
    tx: Transaction, run: Run, ended: Ended, *, executor: ExecutorId, now: int, due_at: int, attempts: int
) -> bool:
    """Store the failed attempt, and let the next one start at `due_at`.

    Returns False and writes nothing if the attempt is outdated, or the run shall be cancelled.
    """
    updated = tx.run(
        f"""
        UPDATE runs
        SET state = 'queued', hold = {Hold.RETRY:d}, due_at = :due_at, failures = failures + 1, claimed_at = NULL,
            executor = NULL, exit_status = :exit_status, output_tail = :output_tail, reason = :reason
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
            AND cancel_requested_at IS NULL
        """,
        id=run.id,
        executor=executor,
        attempt=run.attempt,
        due_at=due_at,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=f"Attempt {run.failures + 1} of {attempts} failed. {ended.reason or ''}".strip(),
    )
    if not updated:
        return False
    tx.run(
        """
        INSERT INTO failed_attempts (run_id, attempt, started_at, finished_at, exit_status, output_tail, reason)
        VALUES (:run, :attempt, :started_at, :now, :exit_status, :output_tail, :reason)
        """,
        run=run.id,
        attempt=run.attempt,
        started_at=run.started_at,
        now=now,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=ended.reason,
    )
    notify_workers(tx)
    return True


def failed_attempts(tx: Transaction, key: RunKey) -> list[FailedAttempt]:
    """The attempts of a run that failed and were followed by another one, oldest first."""
    rows = tx.all("SELECT * FROM failed_attempts WHERE run_id = :run ORDER BY attempt", run=key)
    return [
        FailedAttempt(
            attempt=row["attempt"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
            exit_status=row["exit_status"],
            output_tail=row["output_tail"],
            reason=row["reason"],
        )
        for row in rows
    ]


def release(
    tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int, attempt_counts: bool, now: int
) -> bool:
    """Requeue a run that the executor's host can't perform, or cancel it if that was requested.

    If the attempt does not count, the next attempt has the same number. The old executor can't write any more, because
    it loses its claim in the same statement. Returns False and writes nothing if the attempt is outdated.
    """
    held_runs.lock_decisions(tx)
    notify_workers(tx)
    updated = tx.run(
        """
        UPDATE runs
        SET state = CASE
                WHEN cancel_requested_at IS NULL THEN 'queued'
                WHEN replaced_by IS NULL THEN 'cancelled'
                ELSE 'replaced'
            END,
            finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE :now END,
            reason = CASE
                WHEN cancel_requested_at IS NULL THEN NULL ELSE 'It was cancelled while no worker performed it.'
            END,
            attempt = CASE WHEN :attempt_counts THEN attempt ELSE attempt - 1 END,
            started_at = CASE WHEN :attempt_counts OR attempt > 1 THEN started_at END,
            claimed_at = NULL,
            executor = NULL
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND state = 'running' AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        attempt_counts=attempt_counts,
        now=now,
    )
    held_runs.reconsider(tx, key)
    return updated == 1


def request_cancel(tx: Transaction, key: RunKey, *, factory: FactoryId | None = None, now: int) -> RunState | None:
    """Cancel a queued run immediately, or ask the executor of a running one to stop it.

    Returns the run's new state, which for a running run is still `running`; None if the factory has no such run.
    """
    held_runs.lock_decisions(tx)
    run = run_of(tx, key, factory=factory)
    if run is None:
        return None
    cancelled = tx.run(
        """
        UPDATE runs
        SET state = 'cancelled', finished_at = :now, cancel_requested_at = :now, hold = NULL, due_at = NULL,
            reason = 'It was cancelled before it began.'
        WHERE id = :id AND state = 'queued' AND finished_at IS NULL
        """,
        id=key,
        now=now,
    )
    if cancelled:
        held_runs.reconsider(tx, key)
        return RunState.CANCELLED
    tx.run(
        """
        UPDATE runs
        SET cancel_requested_at = :now
        WHERE id = :id AND state = 'running' AND finished_at IS NULL AND cancel_requested_at IS NULL
        """,
        id=key,
        now=now,
    )
    row = tx.one("SELECT state FROM runs WHERE id = :id", id=key)
    return None if row is None else RunState(row["state"])


# ── Executors ────────────────────────────────────────────────────────────────────────────────────────────────


def heartbeat(tx: Transaction, executor: ExecutorId, now: int) -> None:
    """Register the executor, or record that it is alive. `now` is in µs since 1970."""
    tx.run(
        """
        INSERT INTO executors (id, started_at, last_seen_at)
        VALUES (:id, :now, :now)
        ON CONFLICT (id) DO UPDATE SET last_seen_at = :now
        """,
        id=executor,
        now=now,
    )


def last_heartbeats(tx: Transaction) -> dict[ExecutorId, int]:
    """The last heartbeat of each executor, in µs since 1970 by the executor's clock."""
    return {ExecutorId(row["id"]): row["last_seen_at"] for row in tx.all("SELECT * FROM executors")}


def deregister(tx: Transaction, executor: ExecutorId, *, last_beat: int | None = None) -> bool:
    """Deregister the executor, so that its runs can be requeued. Returns whether it was registered.

    With `last_beat`, the executor is deregistered only if that is still its last heartbeat.
    """
    return tx.run(
        """
        DELETE FROM executors
        WHERE id = :id AND (last_seen_at = :last_beat OR :any_beat)
        """,
        id=executor,
        last_beat=last_beat if last_beat is not None else 0,
        any_beat=last_beat is None,
    ) == 1  # fmt: skip


def runs_of_dead_executors(tx: Transaction) -> list[RunKey]:
    """Unfinished runs of deregistered executors. They stay locked until the transaction ends."""
    # Take this lock before the row locks, in the same order as decisions about held runs.
    held_runs.lock_decisions(tx)
    rows = tx.all(
        f"""
        SELECT id
        FROM runs
        WHERE finished_at IS NULL AND executor IS NOT NULL AND executor NOT IN (SELECT id FROM executors)
        ORDER BY id
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """
    )
    return [RunKey(bytes(row["id"])) for row in rows]


def runs_claimed_by(tx: Transaction, executor: ExecutorId) -> list[RunKey]:
    """Unfinished runs that the executor has claimed."""
    rows = tx.all(
        """
        SELECT id
        FROM runs
        WHERE finished_at IS NULL AND executor = :executor
        ORDER BY id
        """,
        executor=executor,
    )
    return [RunKey(bytes(row["id"])) for row in rows]


def requeue(tx: Transaction, keys: Sequence[RunKey], *, attempts_max: int | None, now: int) -> list[RunKey]:
    """Requeue runs. Runs with a requested cancellation are cancelled, and runs with too many attempts interrupted.

    Returns the runs that ended, so that the caller can kill their commands. `attempts_max` applies to runs whose
    worker died. It is None if the worker was stopped, because restarts must never end a run.
    """
    held_runs.lock_decisions(tx)
    notify_workers(tx)
    ended = []
    for key in keys:
        ended_rows = tx.run(
            """
            UPDATE runs
            SET state = CASE WHEN replaced_by IS NULL THEN 'cancelled' ELSE 'replaced' END, finished_at = :now,
                reason = 'It was cancelled while no worker performed it.'
            WHERE id = :id AND finished_at IS NULL AND cancel_requested_at IS NOT NULL
            """,
            id=key,
            now=now,
        )
        if attempts_max is not None:
            interrupted_rows = tx.run(
                """
                UPDATE runs
                SET state = 'interrupted', finished_at = :now, reason = :reason
                WHERE id = :id AND finished_at IS NULL AND state = 'running' AND attempt - failures >= :attempts_max
                """,
                id=key,
                now=now,
                attempts_max=attempts_max,
                reason=f"Its worker died while it ran. After {attempts_max} attempts it is not retried.",
            )
            if interrupted_rows:
                automations.record_result(tx, key, failed=True)
            ended_rows += interrupted_rows
        if ended_rows:
            held_runs.reconsider(tx, key)
            ended.append(key)
            continue
        tx.run(
            """
            UPDATE runs
            SET state = 'queued', claimed_at = NULL, executor = NULL
            WHERE id = :id AND finished_at IS NULL
            """,
            id=key,
        )
    return ended
