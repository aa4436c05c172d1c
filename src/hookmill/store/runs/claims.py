"""Claims runs of the backlog for an executor."""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from typing import Final

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.store import dialect
from hookmill.store.database import Database, Transaction
from hookmill.store.runs import executors
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.parts import CLAIMED, FACTORIES_IN_BACKLOG, READY

FACTORIES_MAX: Final = 1_000
"""How many factories a claim searches if it skips something, or if a factory or an automation has a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that `claim` assigns to the executor, and the attempt that begins."""

    run: RunKey
    attempt: int
    factory: FactoryId


def has_backlog(
    tx: Transaction, *, skipped_runners: Collection[str] = (), skipped_automations: Collection[str] = ()
) -> bool:
    """Whether the backlog has runs of other runners and automations than those that are skipped."""
    condition, parameters = _excluding(skipped_runners, skipped_automations)
    return tx.one(f"SELECT 1 FROM runs WHERE {READY} {condition} LIMIT 1", **parameters) is not None


def claim_and_beat(
    database: Database,
    *,
    executor: ExecutorId,
    at_most: int,
    after: FactoryId,
    now: int,
    skipped_runners: Collection[str] = (),
    skipped_automations: Collection[str] = (),
) -> list[ClaimedRun]:
    """Claim runs like `claim`, in a transaction of its own. With a claim, the executor also sends a heartbeat.

    On PostgreSQL, it is a single statement unless there are limits, or something is skipped.
    """
    if not database.on_sqlite and not skipped_runners and not skipped_automations:
        with database.write_statement() as tx:
            claimed = _claim_without_limits(tx, executor=executor, at_most=at_most, after=after, now=now)
        if claimed is not None:
            return claimed
    if skipped_runners or skipped_automations:
        # This query is slow, and must not delay deliveries.
        with database.read_statement() as tx:
            if not has_backlog(tx, skipped_runners=skipped_runners, skipped_automations=skipped_automations):
                return []
    with database.write() as tx:
        claimed = claim(
            tx,
            executor=executor,
            at_most=at_most,
            after=after,
            now=now,
            skipped_runners=skipped_runners,
            skipped_automations=skipped_automations,
        )
        if claimed:
            # Without a claim, this transaction must write nothing: its own commit would wake the caller.
            executors.heartbeat(tx, executor, now)
    return claimed


def claim(
    tx: Transaction,
    *,
    executor: ExecutorId,
    at_most: int,
    after: FactoryId,
    now: int,
    skipped_runners: Collection[str] = (),
    skipped_automations: Collection[str] = (),
) -> list[ClaimedRun]:
    """Claim up to `at_most` runs of the backlog for the executor: round robin by factory, and by priority and age in
    each factory. A claim begins the run's next attempt.

    `after` is the factory that was served last; the next factory in order is served first. A run stays in the backlog
    if its runner or automation is skipped, or if the limit of its automation or its factory is reached.
    """
    capacities = _capacity_by_factory(tx)
    excluding = _excluding(skipped_runners, skipped_automations)
    # All runs of a factory may have to stay in the backlog, so more factories must be searched.
    factories = _factories_in_backlog(tx, after=after, at_most=FACTORIES_MAX if excluding[0] or capacities else at_most)
    runs_of_factories = filter(
        None,
        (
            _startable(tx, factory, at_most, excluding, capacities.get(factory, _FreeCapacity()))
            for factory in factories
        ),
    )
    round_robin = chain.from_iterable(zip_longest(*islice(runs_of_factories, at_most)))
    interleaved = [claimed_run for claimed_run in round_robin if claimed_run is not None]
    claimed = interleaved[:at_most]
    if claimed:
        tx.run(
            """
            UPDATE runs
            SET state = 'running', attempt = attempt + 1, claimed_at = :now, started_at = :now, executor = :executor,
                reason = NULL, package_webhook_name = NULL, has_more_files = NULL
            WHERE id IN :runs
            """,
            executor=executor,
            now=now,
            runs=[claimed_run.run for claimed_run in claimed],
        )
    return claimed


_CLAIM_WITHOUT_LIMITS: Final = f"""
    {FACTORIES_IN_BACKLOG},
    backlog_from_start (factory_id) AS (
        SELECT min(factory_id) FROM runs WHERE {READY}
        UNION ALL
        SELECT (
            SELECT min(factory_id) FROM runs WHERE {READY} AND factory_id > backlog_from_start.factory_id
        )
        FROM backlog_from_start
        WHERE backlog_from_start.factory_id <= :after
    ),
    limits (exist) AS MATERIALIZED (
        SELECT EXISTS (SELECT 1 FROM automations WHERE max_running IS NOT NULL AND deleted_at IS NULL)
            OR EXISTS (SELECT 1 FROM factories WHERE max_running IS NOT NULL)
    ),
    served (factory_id, turn) AS MATERIALIZED (
        SELECT factory_id, row_number() OVER (ORDER BY factory_id <= :after, factory_id)
        FROM (
            SELECT factory_id FROM backlog WHERE factory_id IS NOT NULL
            UNION ALL
            SELECT factory_id FROM backlog_from_start WHERE factory_id <= :after
            LIMIT :at_most
        ) AS next_factories
        WHERE NOT (SELECT exist FROM limits)
    ),
    ready AS MATERIALIZED (
        SELECT served.turn, run.id, run.priority
        FROM served CROSS JOIN LATERAL (
            SELECT id, priority
            FROM runs
            WHERE {READY} AND factory_id = served.factory_id
            ORDER BY priority, id
            LIMIT :at_most
            FOR UPDATE SKIP LOCKED
        ) AS run
    ),
    chosen AS MATERIALIZED (
        SELECT id, turn, row_number() OVER (PARTITION BY turn ORDER BY priority, id) AS round
        FROM ready
        ORDER BY round, turn
        LIMIT :at_most
    ),
    beat AS (
        INSERT INTO executors (id, started_at, last_seen_at)
        SELECT CAST(:executor AS text), CAST(:now AS bigint), CAST(:now AS bigint) WHERE EXISTS (SELECT 1 FROM chosen)
        ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at
    ),
    claimed AS (
        UPDATE runs
        SET state = 'running', attempt = attempt + 1, claimed_at = :now, started_at = :now, executor = :executor,
            reason = NULL, package_webhook_name = NULL, has_more_files = NULL
        WHERE id = ANY (ARRAY(SELECT id FROM chosen))
        RETURNING id, attempt, factory_id
    )
    SELECT limits.exist AS has_limits, claimed.id, claimed.attempt, claimed.factory_id
    FROM limits LEFT JOIN (claimed JOIN chosen ON chosen.id = claimed.id) ON TRUE
    ORDER BY chosen.round, chosen.turn
"""
"""For PostgreSQL. It locks, orders and updates the same runs as `claim` does in several statements.

The factories take turns, beginning behind `:after`. `backlog` has the factories from there to the last one, and
`backlog_from_start` those from the first one to `:after`.
"""


def _claim_without_limits(
    tx: Transaction, *, executor: ExecutorId, at_most: int, after: FactoryId, now: int
) -> list[ClaimedRun] | None:
    """Claim runs and send a heartbeat in a single statement of PostgreSQL. Returns None, and claims none, if there are
    limits."""
    rows = tx.all(_CLAIM_WITHOUT_LIMITS, executor=executor, at_most=at_most, after=after, now=now)
    if rows[0]["has_limits"]:
        return None
    return [
        ClaimedRun(run=row["id"], attempt=row["attempt"], factory=row["factory_id"])
        for row in rows
        if row["id"] is not None
    ]


def _factories_in_backlog(tx: Transaction, *, after: FactoryId, at_most: int) -> list[FactoryId]:
    """The factories with runs in the backlog, by id: those after `after` first, then the others."""
    scan = f"{FACTORIES_IN_BACKLOG} SELECT factory_id FROM backlog WHERE factory_id IS NOT NULL LIMIT :at_most"
    next_factories: list[FactoryId] = tx.scalars(scan, after=after, at_most=at_most)
    if len(next_factories) == at_most:
        return next_factories
    first_factories = tx.scalars(scan, after="", at_most=at_most - len(next_factories))
    return next_factories + [factory for factory in first_factories if factory <= after]


_Condition = tuple[str, dict[str, list[str]]]
"""An SQL condition, which may be empty, and its parameters."""


def _excluding(runners: Collection[str], automations: Collection[str]) -> _Condition:
    """A condition that excludes runs of these runners and automations."""
    condition = ""
    values = {}
    if runners:
        values["skipped_runners"] = list(runners)
        condition = """
            AND NOT EXISTS (
                SELECT 1 FROM automation_versions
                WHERE automation_versions.automation_id = runs.automation_id
                    AND automation_versions.version = runs.automation_version
                    AND automation_versions.runner IN :skipped_runners
            )
        """
    if automations:
        values["skipped_automations"] = list(automations)
        condition += " AND automation_id NOT IN :skipped_automations"
    return condition, values


_LIMITS_LOCK: Final = 7_246_002


@dataclass(frozen=True, slots=True)
class _FreeCapacity:
    """How many more runs of a factory, and of each of its automations with a limit, can run now."""

    runs: int | float = math.inf
    by_automation: dict[str, int] = field(default_factory=dict)


def _capacity_by_factory(tx: Transaction) -> dict[FactoryId, _FreeCapacity]:
    """The free capacity of each factory that has a limit, or an automation with a limit. Other factories are omitted.

    If there are limits, on PostgreSQL other claims wait until this transaction ends, so that the counts stay exact.
    """
    limits = tx.all(
        """
        SELECT factory_id, id AS automation_id, max_running
        FROM automations
        WHERE max_running IS NOT NULL AND deleted_at IS NULL
        UNION ALL
        SELECT id, NULL, max_running FROM factories WHERE max_running IS NOT NULL
        """
    )
    if not limits:
        return {}
    dialect.lock(tx, _LIMITS_LOCK)
    claimed_by_owner: Counter[str] = Counter()
    """The number of claimed runs by the id of their automation, and by the id of their factory."""
    for row in tx.all(f"SELECT automation_id, factory_id FROM runs WHERE {CLAIMED}"):
        claimed_by_owner.update((row["automation_id"], row["factory_id"]))
    capacities: dict[FactoryId, _FreeCapacity] = {}
    for row in limits:
        factory = row["factory_id"]
        automation = row["automation_id"]
        free = row["max_running"] - claimed_by_owner[automation or factory]
        capacity = capacities.get(factory, _FreeCapacity())
        if automation is None:
            capacities[factory] = replace(capacity, runs=free)
        else:
            capacities[factory] = replace(capacity, by_automation={**capacity.by_automation, automation: free})
    return capacities


def _startable(
    tx: Transaction, factory: FactoryId, at_most: int, excluding: _Condition, capacity: _FreeCapacity
) -> list[ClaimedRun]:
    """The first runs of a factory's backlog, without excluded ones, and no more than its free capacity."""
    if capacity.runs <= 0:
        return []
    full_automations = [automation for automation, count in capacity.by_automation.items() if count <= 0]
    full_condition = "AND automation_id NOT IN :full_automations" if full_automations else ""
    rows = tx.all(
        f"""
        SELECT id, automation_id, attempt
        FROM runs
        WHERE {READY} AND factory_id = :factory {excluding[0]} {full_condition}
        ORDER BY priority, id
        LIMIT :at_most
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """,
        factory=factory,
        at_most=min(at_most, capacity.runs),
        **excluding[1],
        **({"full_automations": full_automations} if full_automations else {}),
    )
    count_by_automation: Counter[str] = Counter()
    runs = []
    for row in rows:
        automation = row["automation_id"]
        count_by_automation[automation] += 1
        if count_by_automation[automation] <= capacity.by_automation.get(automation, at_most):
            runs.append(ClaimedRun(run=row["id"], attempt=row["attempt"] + 1, factory=factory))
    return runs
