"""Many runs are cancelled: which ones, in which order, and what becomes of those that wait for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hookmill.domain.ids import RunKey
from hookmill.domain.queue import CancelledRuns, QueuePosition
from hookmill.domain.run import RunState
from hookmill.store.database import Transaction
from hookmill.store.runs import cancellation
from hookmill.store.runs.cancellation import Part, RunFilter
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.plans import plans, scans_many_runs
from tests.store.queueing import FACTORY, SERIAL, arrive, claim, decide, fill, register_worker

NEWEST = RunKey(b"\xff" * 16)
EVERY_RUN = RunFilter(factory=FACTORY, newest=NEWEST)


@pytest.fixture
def backlog(store_url: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(store_url, tmp_path / "data") as backlog:
        register_worker(backlog)
        yield backlog


def cancel(backlog: Backlog, run_filter: RunFilter = EVERY_RUN, part: Part | None = None) -> CancelledRuns:
    """One pass over the queue, as the operation does it, or over one part of it."""
    cancelled = stopping = 0
    for each in [part] if part is not None else cancellation.parts_with(run_filter.state):
        with backlog.database.read() as tx:
            batch = cancellation.next_to_cancel(tx, run_filter, each, after=None)
        with backlog.database.write() as tx:
            keys = [position.run_key for position in batch]
            result = cancellation.request_cancel_of_batch(tx, keys, each, state=run_filter.state, now=microseconds())
        cancelled, stopping = cancelled + result.cancelled, stopping + result.stopping
    return CancelledRuns(cancelled=cancelled, stopping=stopping)


def test_all_waiting_runs_end_and_running_ones_are_asked_to_stop(backlog):
    automation = backlog.automation()
    running = backlog.queue(automation)
    assert claim(backlog, 1) == [running]
    ready = backlog.queue_many(automation, 3)
    elsewhere = backlog.queue(backlog.automation("fac_two"), factory="fac_two")

    assert cancel(backlog) == CancelledRuns(cancelled=3, stopping=1)

    assert {backlog.run(key).state for key in ready} == {RunState.CANCELLED}
    assert all(backlog.run(key).finished_at is not None for key in ready)
    assert backlog.run(running).cancel_requested_at is not None
    assert backlog.run(elsewhere).state is RunState.QUEUED
    assert cancel(backlog) == CancelledRuns(cancelled=0, stopping=0)


@pytest.mark.parametrize(
    ("state", "result"),
    [
        (RunState.QUEUED, CancelledRuns(cancelled=2, stopping=0)),
        (RunState.RUNNING, CancelledRuns(cancelled=0, stopping=1)),
    ],
)
def test_only_runs_in_the_state_are_cancelled(backlog, state, result):
    backlog.queue_many(backlog.automation(), 3)
    claim(backlog, 1)

    assert cancel(backlog, RunFilter(factory=FACTORY, newest=NEWEST, state=state)) == result


def test_only_runs_of_the_automation_and_the_webhook_are_cancelled(backlog):
    one, other = backlog.automation(), backlog.automation()
    backlog.webhook(uid="wh_other", name="Other")
    wanted = backlog.queue(one)
    rest = [backlog.queue(other), backlog.queue(one, webhook="wh_other")]

    narrow = RunFilter(factory=FACTORY, newest=NEWEST, automation=backlog.run(wanted).automation_id, webhook_no=1)

    assert cancel(backlog, narrow) == CancelledRuns(cancelled=1, stopping=0)
    assert backlog.run(wanted).state is RunState.CANCELLED
    assert {backlog.run(key).state for key in rest} == {RunState.QUEUED}


def test_runs_that_arrive_later_are_not_cancelled(backlog):
    automation = backlog.automation()
    first = backlog.queue(automation)
    with backlog.database.read() as tx:
        newest = cancellation.newest_run(tx)
    later = backlog.queue(automation)

    assert newest is not None
    assert newest == first
    assert cancel(backlog, RunFilter(factory=FACTORY, newest=newest)) == CancelledRuns(cancelled=1, stopping=0)
    assert backlog.run(later).state is RunState.QUEUED


def test_no_run_of_a_key_starts_while_all_of_them_are_cancelled(backlog):
    keys = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 1)
    decide(backlog)

    for part in Part:
        cancel(backlog, part=part)
        decide(backlog)
        assert [key for key in keys[1:] if backlog.run(key).hold is None and not backlog.run(key).state.is_final] == []

    assert {backlog.run(key).state for key in keys} == {RunState.CANCELLED}
    assert claim(backlog, 5) == []


def test_a_run_outside_the_bulk_starts_when_the_active_run_of_its_key_is_cancelled(backlog):
    automation = backlog.automation(policy=SERIAL)
    first, second = arrive(backlog, automation, 1, 1)
    decide(backlog)
    with backlog.database.read() as tx:
        newest = cancellation.newest_run(tx)
    assert newest is not None
    (later,) = arrive(backlog, automation, 1)
    decide(backlog)

    cancel(backlog, RunFilter(factory=FACTORY, newest=newest))
    decide(backlog)

    assert [backlog.run(key).state for key in (first, second)] == [RunState.CANCELLED] * 2
    assert claim(backlog, 5) == [later]


def test_a_run_that_started_meanwhile_is_left_for_its_new_part(backlog):
    first, second = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1)
    decide(backlog)
    with backlog.database.read() as tx:
        batch = cancellation.next_to_cancel(tx, EVERY_RUN, Part.HELD, after=None)
    backlog.request_cancel(first)
    decide(backlog)

    with backlog.database.write() as tx:
        keys = [each.run_key for each in batch]
        result = cancellation.request_cancel_of_batch(tx, keys, Part.HELD, state=None, now=microseconds())

    assert [each.run_key for each in batch] == [second]
    assert result.cancelled == 0
    assert cancel(backlog, part=Part.READY).cancelled == 1


def test_cancelling_scans_no_other_runs(backlog):
    fill(backlog)
    of_automation = backlog.page(limit=1)[0].automation_id
    narrow = RunFilter(factory=FACTORY, newest=NEWEST, automation=of_automation, webhook_no=1, state=RunState.QUEUED)
    position = QueuePosition(is_held=False, rank=1, run_key=RunKey(b"\x01" * 16))

    def cancel_all(tx: Transaction) -> None:
        for run_filter in (EVERY_RUN, narrow):
            cancellation.count_to_cancel(tx, run_filter)
            for part in Part:
                cancellation.next_to_cancel(tx, run_filter, part, after=position)
                batch = cancellation.next_to_cancel(tx, run_filter, part, after=None)
                keys = [each.run_key for each in batch]
                cancellation.request_cancel_of_batch(tx, keys, part, state=run_filter.state, now=1)

    executed = plans(backlog.database, cancel_all)

    assert len(executed) > 20
    assert [plan for plan in executed if scans_many_runs(plan)] == []
