"""A factory's queue: its counts, its order and its workers."""

from typing import Any

import pytest

from hookmill.domain.ids import RunKey
from hookmill.domain.queue import LimitedBy, Queue, QueuePosition, ReachedLimit
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Debounce, Priority, RunPolicy
from hookmill.store import factories
from hookmill.store.runs import executors, queue
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.query_plans import query_plans, scans_many_runs
from tests.store.queueing import FACTORY, SERIAL, WORKER, arrive, claim, decide, fill, register_worker


@pytest.fixture
def backlog(store_url, tmp_path):
    with Backlog(store_url, tmp_path / "data") as backlog:
        register_worker(backlog)
        yield backlog


def read_queue(backlog: Backlog, **arguments: Any) -> Queue:
    with backlog.database.read() as tx:
        return queue.queue_of(tx, FACTORY, **{"after": None, "limit": 50, "now": microseconds(), **arguments})


def waiting_keys(backlog: Backlog, **arguments: Any) -> list[RunKey]:
    return [waiting.run.id for waiting in read_queue(backlog, **arguments).waiting]


# Counts and workers


def test_each_run_counts_in_one_part_of_the_queue(backlog):
    serial = backlog.automation(policy=SERIAL)
    first, *_ = arrive(backlog, serial, 1, 1, 1)
    arrive(backlog, backlog.automation(policy=RunPolicy(debounce=Debounce(seconds=60, max_seconds=600))), 1)
    decide(backlog)
    assert claim(backlog, 1) == [first]
    arrive(backlog, serial, 2)
    backlog.queue_many(backlog.automation(), 4)
    backlog.queue(backlog.automation("fac_two"), factory="fac_two")

    counts = read_queue(backlog).counts

    assert (counts.running.count, counts.ready.count) == (1, 4)
    assert {hold.name: count.count for hold, count in counts.held.items()} == {
        "NEW": 1,
        "BUSY": 2,
        "DEBOUNCE": 1,
        "RETRY": 0,
    }
    assert counts.waiting.count == 8
    assert not counts.waiting.is_capped


def test_count_stops_at_a_maximum(backlog, monkeypatch):
    monkeypatch.setattr(queue, "COUNTED_MAX", 3)
    backlog.queue_many(backlog.automation(), 4)
    arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 1)

    counts = read_queue(backlog).counts

    assert (counts.ready.count, counts.ready.is_capped) == (3, True)
    assert (counts.held[Hold.NEW].count, counts.held[Hold.NEW].is_capped) == (3, False)


def test_oldest_ready_run_is_found_behind_newer_ones_of_high_priority(backlog):
    oldest = backlog.queue(backlog.automation(policy=RunPolicy(priority=Priority.LOW)))
    backlog.queue(backlog.automation(policy=RunPolicy(priority=Priority.HIGH)))

    oldest_ready_at = read_queue(backlog).counts.oldest_ready_at

    assert oldest_ready_at is not None
    assert abs(oldest_ready_at - backlog.run(oldest).created_at) < 1_000_000


def test_empty_queue_has_only_workers(backlog):
    empty = read_queue(backlog)

    assert (empty.counts.waiting.count, empty.counts.oldest_ready_at) == (0, None)
    assert (empty.running, empty.waiting) == ([], [])
    assert [(worker.executor, worker.claimed_runs) for worker in empty.workers] == [(WORKER, 0)]
    assert empty.has_live_worker


def test_worker_of_a_running_run_counts_its_runs_of_all_factories(backlog):
    own, other = backlog.queue(backlog.automation()), backlog.queue(backlog.automation("fac_two"), factory="fac_two")
    assert set(claim(backlog, 2)) == {own, other}

    current = read_queue(backlog)

    assert [(running.run.id, running.executor) for running in current.running] == [(own, WORKER)]
    assert current.running[0].has_live_worker(current.read_at)
    assert [worker.claimed_runs for worker in current.workers] == [2]


def test_worker_without_a_recent_heartbeat_is_not_alive(backlog):
    backlog.queue(backlog.automation())
    claim(backlog, 1)

    later = read_queue(backlog, now=microseconds() + 31_000_000)
    with backlog.database.write() as tx:
        executors.deregister(tx, WORKER)
    deregistered = read_queue(backlog)

    assert not later.has_live_worker
    assert not later.running[0].has_live_worker(later.read_at)
    assert not deregistered.running[0].has_live_worker(deregistered.read_at)
    assert deregistered.workers == []


# The waiting runs


def test_waiting_runs_are_listed_in_the_order_in_which_they_start(backlog):
    low, normal, high = (
        backlog.automation(policy=RunPolicy(priority=priority))
        for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    )
    keys = [backlog.queue(automation) for automation in (low, normal, high, normal, high)]

    listed = waiting_keys(backlog)

    assert listed == [keys[index] for index in (2, 4, 1, 3, 0)]
    assert claim(backlog, 5) == listed


def test_pages_contain_each_waiting_run_once(backlog):
    for priority in (Priority.NORMAL, Priority.HIGH):
        backlog.queue_many(backlog.automation(policy=RunPolicy(priority=priority)), 3)
    arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 2)
    decide(backlog)
    all_waiting = waiting_keys(backlog)

    pages: list[RunKey] = []
    after: QueuePosition | None = None
    while page := read_queue(backlog, after=after, limit=2).waiting:
        pages += [waiting.run.id for waiting in page]
        after = QueuePosition.parse(page[-1].position.as_text())

    assert pages == all_waiting
    assert len(all_waiting) == len(set(all_waiting)) == 9


def test_page_continues_after_a_run_that_has_started(backlog):
    keys = backlog.queue_many(backlog.automation(), 5)
    [*_, last] = read_queue(backlog, limit=2).waiting

    claim(backlog, 3)

    assert waiting_keys(backlog, after=last.position) == keys[3:]


def test_run_that_waits_for_its_key_shows_the_active_run(backlog):
    first, second, other = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 2)
    decide(backlog)
    claim(backlog, 2)

    [only] = read_queue(backlog).waiting

    assert (only.run.id, only.run.hold, only.waits_behind) == (second, Hold.BUSY, first)
    assert other != first


def test_run_that_waits_for_a_retried_run_shows_that_run(backlog):
    first, second = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1)
    decide(backlog)
    claim(backlog, 1)
    with backlog.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = 'queued', hold = 4, due_at = :due, claimed_at = NULL, executor = NULL"
            " WHERE id = :id",
            id=first,
            due=microseconds() + 60_000_000,
        )

    waiting_by_key = {waiting.run.id: waiting for waiting in read_queue(backlog).waiting}

    assert waiting_by_key[second].waits_behind == first
    assert waiting_by_key[first].waits_behind is None


def limit_factory(backlog: Backlog, limit: int):
    with backlog.database.write() as tx:
        factories.set_max_running(tx, FACTORY, limit)


def reached_limits(backlog: Backlog) -> list[ReachedLimit | None]:
    return [waiting.reached_limit for waiting in read_queue(backlog).waiting]


def test_ready_run_shows_the_reached_limit(backlog):
    limited, other = backlog.automation(policy=RunPolicy(max_running=1)), backlog.automation()
    backlog.queue_many(limited, 2)
    backlog.queue(other)
    before = reached_limits(backlog)

    claim(backlog, 1)
    with_automation_limit = reached_limits(backlog)
    limit_factory(backlog, 1)
    with_both_limits = reached_limits(backlog)

    of_automation = ReachedLimit(by=LimitedBy.AUTOMATION, max_running=1)
    assert before == [None] * 3
    assert with_automation_limit == [of_automation, None]
    assert with_both_limits == [of_automation, ReachedLimit(by=LimitedBy.FACTORY, max_running=1)]


# Query plans


def test_reading_the_queue_scans_no_other_runs(backlog):
    fill(backlog)
    position = QueuePosition(is_held=False, rank=1, run_key=RunKey(b"\x01" * 16))

    def read_pages(tx):
        for after in (None, position):
            queue.queue_of(tx, FACTORY, after=after, limit=50, now=1)

    executed = query_plans(backlog.database, read_pages)

    assert len(executed) > 15
    assert [plan for plan in executed if scans_many_runs(plan)] == []
