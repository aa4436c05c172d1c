"""Limits of running runs: of an automation and of a factory, also if several workers claim at the same time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_policy import Priority, RunPolicy
from hookmill.store import factories
from hookmill.store.runs import attempts, claims, executors
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds

WORKERS = [ExecutorId(f"worker-{number}") for number in range(6)]


@pytest.fixture
def backlog(store_url: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(store_url, tmp_path / "data") as backlog:
        with backlog.database.write() as tx:
            for worker in WORKERS:
                executors.heartbeat(tx, worker, 1)
        yield backlog


def claim(
    backlog: Backlog, *, most: int = 4, worker: ExecutorId = WORKERS[0], skipped: tuple[str, ...] = ()
) -> set[RunKey]:
    with backlog.database.write() as tx:
        claimed = claims.claim(
            tx, executor=worker, at_most=most, after=FactoryId(""), now=microseconds(), skipped_runners=skipped
        )
    return {each.run for each in claimed}


def end(backlog: Backlog, key: RunKey) -> None:
    attempt = backlog.run(key).attempt
    with backlog.database.write() as tx:
        assert attempts.finish(
            tx, key, Ended(state=RunState.SUCCEEDED), executor=WORKERS[0], attempt=attempt, now=microseconds()
        )


def limit_factory(backlog: Backlog, limit: int | None) -> None:
    backlog.webhook()
    with backlog.database.write() as tx:
        factories.set_max_running(tx, FactoryId("fac_one"), limit)


def test_an_automation_gets_as_many_slots_as_its_limit(backlog):
    limited = backlog.queue_many(backlog.automation(policy=RunPolicy(max_running=2)), 4)
    other = backlog.queue(backlog.automation())

    first = claim(backlog)
    second = claim(backlog)
    end(backlog, limited[0])

    # The limited automation's runs fill the first claim's page. The next claim passes over them.
    assert first == set(limited[:2])
    assert second == {other}
    assert claim(backlog) == {limited[2]}
    assert claim(backlog) == set()


def test_a_factory_gets_as_many_slots_as_its_limit(backlog):
    limit_factory(backlog, 3)
    keys = backlog.queue_many(backlog.automation(), 5)
    other = backlog.queue(backlog.automation("fac_two"), factory="fac_two")

    first = claim(backlog, most=8)
    nothing = claim(backlog, most=8)
    limit_factory(backlog, None)

    assert first == {*keys[:3], other}
    assert nothing == set()
    assert claim(backlog, most=8) == set(keys[3:])


def test_the_stricter_limit_applies(backlog):
    limit_factory(backlog, 3)
    policy = RunPolicy(max_running=2, priority=Priority.HIGH)
    preferred = backlog.queue_many(backlog.automation(policy=policy), 3)
    others = backlog.queue_many(backlog.automation(), 3)

    claimed = claim(backlog, most=8) | claim(backlog, most=8)

    assert claimed == {*preferred[:2], others[0]}


def test_a_limit_below_the_running_runs_stops_none_of_them(backlog):
    keys = backlog.queue_many(backlog.automation(), 4)
    claimed = claim(backlog, most=3)
    limit_factory(backlog, 1)

    assert claimed == set(keys[:3])
    assert claim(backlog) == set()


def test_limits_apply_beside_skipped_runners(backlog):
    backlog.queue_many(backlog.automation(runner="absent", policy=RunPolicy(max_running=1)), 3)
    keys = backlog.queue_many(backlog.automation(policy=RunPolicy(max_running=1)), 3)

    assert claim(backlog, skipped=("absent",)) == {keys[0]}


def test_a_deleted_automations_limit_no_longer_applies(backlog):
    automation = backlog.automation(policy=RunPolicy(max_running=1))
    keys = backlog.queue_many(automation, 3)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET deleted_at = 1 WHERE id = :id", id=automation)

    assert claim(backlog) == set(keys)


def test_workers_that_claim_at_the_same_time_respect_the_limits(backlog):
    limit_factory(backlog, 5)
    automations = [backlog.automation(policy=RunPolicy(max_running=3)) for _ in range(2)]
    keys = {automation: set(backlog.queue_many(automation, 20)) for automation in automations}

    with ThreadPoolExecutor(len(WORKERS)) as threads:
        rounds = [threads.submit(claim, backlog, worker=worker) for worker in WORKERS * 3]
        claimed: list[RunKey] = [key for each in rounds for key in each.result()]

    assert len(claimed) == len(set(claimed)) == 5
    assert all(len(keys[automation] & set(claimed)) <= 3 for automation in automations)
