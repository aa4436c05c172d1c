"""Cancellation of many runs: which runs are cancelled, in which order, and when runs that wait for them start."""

import pytest

from hookmill.domain.ids import RunKey
from hookmill.domain.queue import CancelledRuns
from hookmill.domain.run import RunState
from hookmill.store.runs import cancellation
from hookmill.store.runs.cancellation import BatchCursor, PartToCancel, RunFilter
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.query_plans import query_plans, scans_many_runs
from tests.store.queueing import FACTORY, SERIAL, arrive, claim, decide, fill, register_worker

NEWEST = RunKey(b"\xff" * 16)
WEBHOOK_NO = 1
"""The number of the first webhook of a backlog."""
EVERY_RUN = RunFilter(factory=FACTORY, newest=NEWEST)


@pytest.fixture
def backlog(store_url, tmp_path):
    with Backlog(store_url, tmp_path / "data") as backlog:
        register_worker(backlog)
        yield backlog


def cancel(backlog: Backlog, run_filter: RunFilter = EVERY_RUN, part: PartToCancel | None = None) -> CancelledRuns:
    """Cancel one batch of each part of the queue, or of one part only."""
    cancelled = stopping = 0
    parts = [part] if part is not None else cancellation.parts_with(run_filter.state)
    for current_part in parts:
        with backlog.database.read() as tx:
            batch = cancellation.next_to_cancel(tx, run_filter, current_part, after=None)
        with backlog.database.write() as tx:
            keys = [cursor.run_key for cursor in batch]
            result = cancellation.request_cancel_of_batch(
                tx, keys, current_part, state=run_filter.state, now=microseconds()
            )
        cancelled, stopping = cancelled + result.cancelled, stopping + result.stopping
    return CancelledRuns(cancelled=cancelled, stopping=stopping)


def test_queued_runs_are_cancelled_and_running_ones_are_asked_to_stop(backlog):
    automation = backlog.automation()
    running = backlog.queue(automation)
    assert claim(backlog, 1) == [running]
    ready = backlog.queue_many(automation, 3)
    of_other_factory = backlog.queue(backlog.automation("fac_two"), factory="fac_two")

    assert cancel(backlog) == CancelledRuns(cancelled=3, stopping=1)

    assert {backlog.run(key).state for key in ready} == {RunState.CANCELLED}
    assert all(backlog.run(key).finished_at is not None for key in ready)
    assert backlog.run(running).cancel_requested_at is not None
    assert backlog.run(of_other_factory).state is RunState.QUEUED
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


def test_queued_runs_are_not_searched_among_those_that_workers_have_claimed():
    assert PartToCancel.CLAIMED not in cancellation.parts_with(RunState.QUEUED)


def test_only_runs_of_the_automation_and_the_webhook_are_cancelled(backlog):
    one, other = backlog.automation(), backlog.automation()
    backlog.webhook(uid="wh_other", name="Other")
    matching = backlog.queue(one)
    others = [backlog.queue(other), backlog.queue(one, webhook="wh_other")]

    run_filter = RunFilter(
        factory=FACTORY, newest=NEWEST, automation=backlog.run(matching).automation_id, webhook_no=WEBHOOK_NO
    )

    assert cancel(backlog, run_filter) == CancelledRuns(cancelled=1, stopping=0)
    assert backlog.run(matching).state is RunState.CANCELLED
    assert {backlog.run(key).state for key in others} == {RunState.QUEUED}


def test_runs_that_arrived_later_are_not_cancelled(backlog):
    automation = backlog.automation()
    first = backlog.queue(automation)
    with backlog.database.read() as tx:
        newest = cancellation.newest_run(tx)
    later = backlog.queue(automation)

    assert newest is not None
    assert newest == first
    assert cancel(backlog, RunFilter(factory=FACTORY, newest=newest)) == CancelledRuns(cancelled=1, stopping=0)
    assert backlog.run(later).state is RunState.QUEUED


def test_no_held_run_starts_while_all_runs_of_its_key_are_cancelled(backlog):
    keys = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1, 1)
    decide(backlog)

    for part in PartToCancel:
        cancel(backlog, part=part)
        decide(backlog)
        for run in map(backlog.run, keys[1:]):
            assert run.state is RunState.CANCELLED or run.hold is not None

    assert {backlog.run(key).state for key in keys} == {RunState.CANCELLED}
    assert claim(backlog, 5) == []


def test_held_run_outside_the_filter_starts_after_the_cancellation(backlog):
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


def test_run_that_leaves_its_part_is_cancelled_in_the_new_part(backlog):
    first, second = arrive(backlog, backlog.automation(policy=SERIAL), 1, 1)
    decide(backlog)
    with backlog.database.read() as tx:
        batch = cancellation.next_to_cancel(tx, EVERY_RUN, PartToCancel.HELD, after=None)
    backlog.request_cancel(first)
    decide(backlog)

    with backlog.database.write() as tx:
        keys = [cursor.run_key for cursor in batch]
        result = cancellation.request_cancel_of_batch(tx, keys, PartToCancel.HELD, state=None, now=microseconds())

    assert keys == [second]
    assert result.cancelled == 0
    assert cancel(backlog, part=PartToCancel.READY).cancelled == 1


def test_cancelling_scans_no_other_runs(backlog):
    fill(backlog)
    automation = backlog.page(limit=1)[0].automation_id
    narrow_filter = RunFilter(
        factory=FACTORY, newest=NEWEST, automation=automation, webhook_no=WEBHOOK_NO, state=RunState.QUEUED
    )
    first_cursor = BatchCursor(rank=1, run_key=RunKey(b"\x01" * 16))

    def cancel_all(tx):
        # The narrow filter comes first: afterwards, no run is left.
        for run_filter in (narrow_filter, EVERY_RUN):
            cancellation.count_to_cancel(tx, run_filter)
            for part in PartToCancel:
                cancellation.next_to_cancel(tx, run_filter, part, after=first_cursor)
                batch = cancellation.next_to_cancel(tx, run_filter, part, after=None)
                keys = [cursor.run_key for cursor in batch]
                cancellation.request_cancel_of_batch(tx, keys, part, state=run_filter.state, now=1)

    executed = query_plans(backlog.database, cancel_all)

    # A count, and three statements for each part, with each of the two filters.
    assert len(executed) >= 2 * (1 + 3 * len(PartToCancel))
    assert [plan for plan in executed if scans_many_runs(plan)] == []
