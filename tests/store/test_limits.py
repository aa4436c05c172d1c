"""Limits of the running runs of automations and factories, also when several workers claim at the same time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_policy import Priority, RunPolicy
from hookmill.store import factories
from hookmill.store.runs import attempts, claims, executors
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.support.stores import longer_timeouts

WORKERS = [ExecutorId(f"worker-{number}") for number in range(6)]


@pytest.fixture
def backlog(store_url, tmp_path):
    with longer_timeouts(), Backlog(store_url, tmp_path / "data") as backlog:
        with backlog.database.write() as tx:
            for worker in WORKERS:
                executors.heartbeat(tx, worker, 1)
        yield backlog


def claim(
    backlog: Backlog, *, at_most: int = 4, worker: ExecutorId = WORKERS[0], skipped_runners: tuple[str, ...] = ()
) -> set[RunKey]:
    claimed = claims.claim_and_beat(
        backlog.database,
        executor=worker,
        at_most=at_most,
        after=FactoryId(""),
        now=microseconds(),
        skipped_runners=skipped_runners,
    )
    return {claimed_run.run for claimed_run in claimed}


def end(backlog: Backlog, key: RunKey):
    attempt = backlog.run(key).attempt
    with backlog.database.write() as tx:
        assert attempts.finish(
            tx, key, Ended(state=RunState.SUCCEEDED), executor=WORKERS[0], attempt=attempt, now=microseconds()
        )


def limit_factory(backlog: Backlog, limit: int | None):
    backlog.webhook()
    with backlog.database.write() as tx:
        factories.set_max_running(tx, FactoryId("fac_one"), limit)


def test_running_runs_of_an_automation_stay_within_its_limit(backlog):
    limited = backlog.queue_many(backlog.automation(policy=RunPolicy(max_running=2)), 4)
    other = backlog.queue(backlog.automation())

    first = claim(backlog)
    second = claim(backlog)
    end(backlog, limited[0])

    # The query of the first claim returns only runs of the limited automation. The second claim excludes them.
    assert first == set(limited[:2])
    assert second == {other}
    assert claim(backlog) == {limited[2]}
    assert claim(backlog) == set()


def test_running_runs_of_a_factory_stay_within_its_limit(backlog):
    limit_factory(backlog, 3)
    keys = backlog.queue_many(backlog.automation(), 5)
    other = backlog.queue(backlog.automation("fac_two"), factory="fac_two")

    first = claim(backlog, at_most=8)
    second = claim(backlog, at_most=8)
    limit_factory(backlog, None)

    assert first == {*keys[:3], other}
    assert second == set()
    assert claim(backlog, at_most=8) == set(keys[3:])


def test_limits_of_automation_and_factory_both_apply(backlog):
    limit_factory(backlog, 3)
    policy = RunPolicy(max_running=2, priority=Priority.HIGH)
    limited = backlog.queue_many(backlog.automation(policy=policy), 3)
    others = backlog.queue_many(backlog.automation(), 3)

    claimed = claim(backlog, at_most=8) | claim(backlog, at_most=8)

    assert claimed == {*limited[:2], others[0]}


def test_limit_below_the_number_of_running_runs_stops_none(backlog):
    keys = backlog.queue_many(backlog.automation(), 4)
    claimed = claim(backlog, at_most=3)
    limit_factory(backlog, 1)

    assert claimed == set(keys[:3])
    assert claim(backlog) == set()


def test_limits_apply_while_runners_are_skipped(backlog):
    backlog.queue_many(backlog.automation(runner="absent", policy=RunPolicy(max_running=1)), 3)
    keys = backlog.queue_many(backlog.automation(policy=RunPolicy(max_running=1)), 3)

    assert claim(backlog, skipped_runners=("absent",)) == {keys[0]}


def test_limit_of_a_deleted_automation_no_longer_applies(backlog):
    automation = backlog.automation(policy=RunPolicy(max_running=1))
    keys = backlog.queue_many(automation, 3)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET deleted_at = 1 WHERE id = :id", id=automation)

    assert claim(backlog) == set(keys)


def test_workers_that_claim_at_the_same_time_stay_within_the_limits(backlog):
    limit_factory(backlog, 5)
    automations = [backlog.automation(policy=RunPolicy(max_running=3)) for _ in range(2)]
    keys = {automation: set(backlog.queue_many(automation, 20)) for automation in automations}

    with ThreadPoolExecutor(len(WORKERS)) as threads:
        futures = [threads.submit(claim, backlog, worker=worker) for worker in WORKERS * 3]
        claimed: list[RunKey] = [key for future in futures for key in future.result()]

    assert len(claimed) == len(set(claimed)) == 5
    assert all(len(keys[automation] & set(claimed)) <= 3 for automation in automations)
