"""Claims runs of the backlog for an executor."""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from typing import Final

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.parts import CLAIMED, READY

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
