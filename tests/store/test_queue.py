"""A factory's queue: its counts, its order and its workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.ids import RunKey
from hookmill.domain.queue import LimitedBy, Queue, QueuePosition, ReachedLimit
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Debounce, Priority, RunPolicy
from hookmill.store import factories
from hookmill.store.database import Transaction
from hookmill.store.runs import executors, queue
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.plans import plans, scans_many_runs
from tests.store.queueing import FACTORY, SERIAL, WORKER, arrive, claim, decide, fill, register_worker


@pytest.fixture
def backlog(store_url: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(store_url, tmp_path / "data") as backlog:
        register_worker(backlog)
        yield backlog


def queue_now(backlog: Backlog, **choices: Any) -> Queue:
    with backlog.database.read() as tx:
        return queue.queue_of(tx, FACTORY, **{"after": None, "limit": 50, "now": microseconds(), **choices})


def waiting(backlog: Backlog, **choices: Any) -> list[RunKey]:
    return [each.run.id for each in queue_now(backlog, **choices).waiting]


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

    counts = queue_now(backlog).counts

    assert (counts.running.count, counts.ready.count) == (1, 4)
    assert {hold.name: count.count for hold, count in counts.held.items()} == {
        "NEW": 1,
        "BUSY": 2,
        "DEBOUNCE": 1,
        "RETRY": 0,
    }
    assert counts.waiting.count == 8
    assert not counts.waiting.is_capped


def test_counting_stops_at_a_maximum(backlog, monkeypatch):
    monkeypatch.setattr(queue, "COUNTED_MAX", 3)
    backlog.queue_many(backlog.automation(), 4)
    arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 1)

    counts = queue_now(backlog).counts

    assert (counts.ready.count, counts.ready.is_capped) == (3, True)
    assert (counts.held[Hold.NEW].count, counts.held[Hold.NEW].is_capped) == (3, False)


def test_the_oldest_ready_run_is_found_behind_newer_ones_of_a_higher_priority(backlog):
    oldest = backlog.queue(backlog.automation(policy=RunPolicy(priority=Priority.LOW)))
    backlog.queue(backlog.automation(policy=RunPolicy(priority=Priority.HIGH)))

    oldest_ready_at = queue_now(backlog).counts.oldest_ready_at

    assert oldest_ready_at is not None
    assert abs(oldest_ready_at - backlog.run(oldest).created_at) < 1_000_000


def test_an_empty_queue_has_its_workers_only(backlog):
    found = queue_now(backlog)

    assert (found.counts.waiting.count, found.counts.oldest_ready_at) == (0, None)
    assert (found.running, found.waiting) == ([], [])
    assert [(worker.executor, worker.claimed_runs) for worker in found.workers] == [(WORKER, 0)]
    assert found.has_live_worker


def test_a_running_run_shows_its_worker_and_the_worker_its_runs_of_all_factories(backlog):
    own, other = backlog.queue(backlog.automation()), backlog.queue(backlog.automation("fac_two"), factory="fac_two")
    assert set(claim(backlog, 2)) == {own, other}

    found = queue_now(backlog)

    assert [(running.run.id, running.executor) for running in found.running] == [(own, WORKER)]
    assert found.running[0].has_live_worker(found.read_at)
    assert [worker.claimed_runs for worker in found.workers] == [2]


def test_a_worker_without_a_recent_heartbeat_is_not_alive(backlog):
    backlog.queue(backlog.automation())
    claim(backlog, 1)

    later = queue_now(backlog, now=microseconds() + 31_000_000)
    with backlog.database.write() as tx:
        executors.deregister(tx, WORKER)
    deregistered = queue_now(backlog)

    assert not later.has_live_worker
    assert not later.running[0].has_live_worker(later.read_at)
    assert not deregistered.running[0].has_live_worker(deregistered.read_at)
    assert deregistered.workers == []


# The waiting runs


def test_waiting_runs_are_listed_in_the_order_in_which_they_start(backlog):
    low, normal, high = (
        backlog.automation(policy=RunPolicy(priority=rank)) for rank in (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    )
    arrived = [backlog.queue(automation) for automation in (low, normal, high, normal, high)]

    listed = waiting(backlog)

    assert listed == [arrived[index] for index in (2, 4, 1, 3, 0)]
    assert claim(backlog, 5) == listed


def test_pages_contain_each_waiting_run_once(backlog):
    for priority in (Priority.NORMAL, Priority.HIGH):
        backlog.queue_many(backlog.automation(policy=RunPolicy(priority=priority)), 3)
    arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 2)
    decide(backlog)
    whole = waiting(backlog)

    pages: list[RunKey] = []
    after: QueuePosition | None = None
    while page := queue_now(backlog, after=after, limit=2).waiting:
        pages += [each.run.id for each in page]
        after = QueuePosition.parse(page[-1].position.as_text())

    assert pages == whole
    assert len(whole) == len(set(whole)) == 9


def test_a_page_continues_behind_a_run_that_has_started(backlog):
    keys = backlog.queue_many(backlog.automation(), 5)
    [*_, last] = queue_now(backlog, limit=2).waiting

    claim(backlog, 3)

    assert waiting(backlog, after=last.position) == keys[3:]


def test_a_run_that_waits_for_its_key_shows_the_active_run(backlog):
    first, second, other = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 2)
    decide(backlog)
    claim(backlog, 2)

    [only] = queue_now(backlog).waiting

    assert (only.run.id, only.run.hold, only.waits_behind) == (second, Hold.BUSY, first)
    assert other != first


def test_a_run_behind_one_that_is_retried_shows_that_one(backlog):
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

    found = {each.run.id: each for each in queue_now(backlog).waiting}

    assert found[second].waits_behind == first
    assert found[first].waits_behind is None


def limit_factory(backlog: Backlog, limit: int) -> None:
    with backlog.database.write() as tx:
        factories.set_max_running(tx, FACTORY, limit)


def test_a_ready_run_shows_the_limit_that_it_waits_for(backlog):
    limited, other = backlog.automation(policy=RunPolicy(max_running=1)), backlog.automation()
    backlog.queue_many(limited, 2)
    backlog.queue(other)
    before = [each.reached_limit for each in queue_now(backlog).waiting]

    claim(backlog, 1)
    of_automation = [each.reached_limit for each in queue_now(backlog).waiting]
    limit_factory(backlog, 1)
    of_factory = [each.reached_limit for each in queue_now(backlog).waiting]

    own = ReachedLimit(by=LimitedBy.AUTOMATION, max_running=1)
    assert before == [None] * 3
    assert of_automation == [own, None]
    assert of_factory == [own, ReachedLimit(by=LimitedBy.FACTORY, max_running=1)]


# The time to read


def test_reading_the_queue_scans_no_other_runs(backlog):
    fill(backlog)
    position = QueuePosition(is_held=False, rank=1, run_key=RunKey(b"\x01" * 16))

    def read_pages(tx: Transaction) -> None:
        for after in (None, position):
            queue.queue_of(tx, FACTORY, after=after, limit=50, now=1)

    read = plans(backlog.database, read_pages)

    assert len(read) > 15
    assert [plan for plan in read if scans_many_runs(plan)] == []
