"""Runs as rows, on both databases: whose they are, who may write them, and what a page of them holds."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill.domain.ids import FactoryId, RunKey, WebhookUid
from hookmill.domain.run import Ended, RunState
from hookmill.store.runs import attempts, cancellation, claims, executors, reading
from hookmill.store.runs.attempts import AttemptStatus
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog

US = ExecutorId("us")
THEM = ExecutorId("them")
DONE = Ended(state=RunState.SUCCEEDED, exit_status=0, output_tail="done")


@pytest.fixture
def backlog(store_url: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(store_url, tmp_path) as backlog:
        yield backlog


def take(backlog, most=10, *, after="", executor=US, skipped=()):
    with backlog.database.write() as tx:
        return claims.claim(tx, executor=executor, at_most=most, after=FactoryId(after), skipped_runners=skipped, now=5)


def is_anything_waiting(backlog, skipped=()):
    with backlog.database.read() as tx:
        return claims.has_backlog(tx, skipped_runners=skipped)


def finish(backlog, key, attempt, executor=US, ended=DONE):
    with backlog.database.write() as tx:
        return attempts.finish(tx, key, ended, executor=executor, attempt=attempt, now=7)


def cancel(backlog, key, factory=None):
    with backlog.database.write() as tx:
        return cancellation.request_cancel(tx, key, factory=factory, now=8)


def take_back(backlog, keys, attempts_max=3):
    with backlog.database.write() as tx:
        executors.requeue(tx, keys, attempts_max=attempts_max, now=9)


def begun(backlog, automation=None):
    """A run whose first attempt is ours."""
    key = backlog.queue(automation or backlog.automation())
    take(backlog)
    return key


# The backlog


def test_the_oldest_of_a_factory_comes_first(backlog):
    keys = backlog.queue_many(backlog.automation(), 5)

    assert [taken.run for taken in take(backlog, 3)] == keys[:3]


def test_runs_for_a_skipped_runner_hold_up_no_other(backlog):
    for factory in ("fac_a", "fac_b"):
        backlog.queue_many(backlog.automation(factory, runner="broken"), 3, factory=factory)
    keys = [
        *backlog.queue_many(backlog.automation("fac_b"), 1, factory="fac_b"),
        *backlog.queue_many(backlog.automation("fac_c", runner="other"), 2, factory="fac_c"),
    ]

    taken = take(backlog, 2, skipped=["broken"]) + take(backlog, 2, skipped=["broken"])

    assert [each.run for each in taken] == keys
    assert not is_anything_waiting(backlog, skipped=["broken"])
    assert is_anything_waiting(backlog)
    assert len(take(backlog)) == 6


def test_a_run_is_taken_once(backlog):
    backlog.queue_many(backlog.automation(), 5)

    first, second = take(backlog, 3), take(backlog, 3)

    assert len(first) == 3
    assert len(second) == 2
    assert take(backlog) == []


def test_taking_says_whose_it_is_and_since_when(backlog):
    key = backlog.queue(backlog.automation())

    take(backlog)

    assert backlog.run(key).claimed_at == 5
    assert backlog.column(key, "executor") == "us"


def test_a_factory_that_floods_does_not_keep_the_others_waiting(backlog):
    flood = backlog.queue_many(backlog.automation("fac_flood"), 50, factory="fac_flood")
    small = backlog.queue(backlog.automation("fac_small"), factory="fac_small")
    other = backlog.queue(backlog.automation("fac_other"), factory="fac_other")

    taken = [one.run for one in take(backlog, 4)]

    assert taken == [flood[0], other, small, flood[1]]


def test_factories_are_served_in_turn_from_the_last_one_on(backlog):
    for name in ("fac_a", "fac_b", "fac_c"):
        backlog.queue_many(backlog.automation(name), 3, factory=name)

    served: list[FactoryId] = []
    for _ in range(7):
        (one,) = take(backlog, 1, after=served[-1] if served else "")
        served.append(one.factory)

    assert served == ["fac_a", "fac_b", "fac_c", "fac_a", "fac_b", "fac_c", "fac_a"]


def test_workers_that_take_at_once_take_different_runs(backlog):
    keys = backlog.queue_many(backlog.automation(), 60)

    with ThreadPoolExecutor(6) as pool:
        rounds = pool.map(lambda n: take(backlog, 7, executor=ExecutorId(f"worker-{n % 6}")), range(24))
        taken = [one.run for one in (one for round_ in rounds for one in round_)]
    taken += [one.run for one in take(backlog, 60)]

    assert sorted(taken) == sorted(keys)


def test_finished_runs_do_not_wait(backlog):
    key = backlog.queue(backlog.automation())
    cancel(backlog, key)

    with backlog.database.read() as tx:
        assert not claims.has_backlog(tx)
    assert take(backlog) == []


# One attempt


def test_a_claim_begins_the_next_attempt(backlog):
    key = backlog.queue(backlog.automation())

    (claimed,) = take(backlog)

    run = backlog.run(key)
    assert (claimed.run, claimed.attempt) == (key, 1)
    assert (run.state, run.attempt, run.started_at) == (RunState.RUNNING, 1, 5)


def test_the_end_is_recorded(backlog):
    key = begun(backlog)

    assert finish(backlog, key, 1, ended=Ended(state=RunState.FAILED, reason="why", exit_status=3, output_tail="o"))

    run = backlog.run(key)
    assert (run.state, run.finished_at, run.reason) == (RunState.FAILED, 7, "why")
    assert (run.exit_status, run.output_tail) == (3, "o")


def test_a_run_ends_once(backlog):
    key = begun(backlog)
    finish(backlog, key, 1)

    assert not finish(backlog, key, 1, ended=Ended(state=RunState.FAILED))
    assert backlog.run(key).state is RunState.SUCCEEDED


def test_what_a_stale_worker_writes_has_no_effect(backlog):
    key = begun(backlog)
    take_back(backlog, [key])
    take(backlog, executor=THEM)

    assert not finish(backlog, key, 1)
    assert not finish(backlog, key, 2)
    assert backlog.run(key).state is RunState.RUNNING
    assert finish(backlog, key, 2, executor=THEM)


@pytest.mark.parametrize(
    ("attempt", "executor", "standing"),
    [(1, US, AttemptStatus.CURRENT), (2, US, AttemptStatus.OUTDATED), (1, THEM, AttemptStatus.OUTDATED)],
)
def test_whose_an_attempt_is_can_be_asked(backlog, attempt, executor, standing):
    key = begun(backlog)

    with backlog.database.read() as tx:
        assert attempts.status(tx, key, executor=executor, attempt=attempt) is standing


# Cancelling


def test_a_queued_run_is_cancelled_at_once(backlog):
    key = backlog.queue(backlog.automation())

    assert cancel(backlog, key) is RunState.CANCELLED

    assert backlog.run(key).finished_at == 8
    assert take(backlog) == []


def test_a_running_run_is_asked_to_end(backlog):
    key = begun(backlog)

    assert cancel(backlog, key) is RunState.RUNNING

    assert backlog.run(key).cancel_requested_at == 8
    with backlog.database.read() as tx:
        assert attempts.status(tx, key, executor=US, attempt=1) is AttemptStatus.CANCEL_REQUESTED


def test_cancelling_what_is_over_changes_nothing(backlog):
    key = begun(backlog)
    finish(backlog, key, 1)
    before = backlog.run(key)

    assert cancel(backlog, key) is RunState.SUCCEEDED
    assert backlog.run(key) == before


def test_there_is_no_cancelling_of_another_factorys_run(backlog):
    key = backlog.queue(backlog.automation())

    assert cancel(backlog, key, factory="fac_other") is None
    assert cancel(backlog, RunKey(b"-" * 16)) is None
    assert backlog.run(key).state is RunState.QUEUED


# Dead hands


def test_runs_of_a_live_executor_are_not_reclaimed(backlog):
    begun(backlog)

    with backlog.database.write() as tx:
        executors.heartbeat(tx, US, 1)
        assert executors.runs_of_dead_executors(tx) == []


def test_runs_of_a_deregistered_executor_are_reclaimed(backlog):
    key = begun(backlog)
    backlog.queue(backlog.automation())

    with backlog.database.write() as tx:
        executors.heartbeat(tx, US, 1)
        assert executors.deregister(tx, US, last_beat=1)
        assert executors.runs_of_dead_executors(tx) == [key]


def test_an_executor_that_was_heard_meanwhile_is_not_struck_off(backlog):
    with backlog.database.write() as tx:
        executors.heartbeat(tx, US, 1)
        executors.heartbeat(tx, US, 2)

        assert not executors.deregister(tx, US, last_beat=1)
        assert executors.last_heartbeats(tx) == {US: 2}


def test_a_lost_run_goes_back_into_the_backlog_for_another_attempt(backlog):
    key = begun(backlog)

    take_back(backlog, [key])

    run = backlog.run(key)
    assert (run.state, run.attempt, run.claimed_at) == (RunState.QUEUED, 1, None)
    assert [taken.attempt for taken in take(backlog, executor=THEM)] == [2]


def test_a_run_that_is_lost_too_often_is_interrupted_with_the_reason(backlog):
    key = begun(backlog)
    for _ in range(2):
        take_back(backlog, [key])
        take(backlog)

    take_back(backlog, [key])

    run = backlog.run(key)
    assert (run.state, run.attempt, run.finished_at) == (RunState.INTERRUPTED, 3, 9)
    assert run.reason == "Its worker died while it ran. After 3 such attempts, it is not started again."


def test_a_run_that_is_stopped_in_good_order_is_never_interrupted(backlog):
    key = begun(backlog)
    for _ in range(9):
        take_back(backlog, [key], attempts_max=None)
        take(backlog)

    assert backlog.run(key).state is RunState.RUNNING
    assert backlog.run(key).attempt == 10


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled(backlog):
    key = begun(backlog)
    cancel(backlog, key)

    take_back(backlog, [key])

    assert backlog.run(key).state is RunState.CANCELLED


def test_what_is_over_is_not_taken_back(backlog):
    key = begun(backlog)
    finish(backlog, key, 1)

    take_back(backlog, [key])

    assert backlog.run(key).state is RunState.SUCCEEDED


def test_the_runs_that_end_when_they_are_taken_back_are_named(backlog):
    lost, cancelled, poison = begun(backlog), begun(backlog), begun(backlog)
    cancel(backlog, cancelled)
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET attempt = 3 WHERE id = :id", id=poison)

    with backlog.database.write() as tx:
        ended = executors.requeue(tx, [lost, cancelled, poison], attempts_max=3, now=9)

    assert ended == [cancelled, poison]


# Given back


def give_back(backlog, key, attempt=1, executor=US, counts_as_attempt=False):
    with backlog.database.write() as tx:
        return attempts.release(tx, key, executor=executor, attempt=attempt, counts_as_attempt=counts_as_attempt, now=9)


def test_a_run_that_is_given_back_is_as_if_it_had_not_begun(backlog):
    key = begun(backlog)

    assert give_back(backlog, key)

    run = backlog.run(key)
    assert (run.state, run.attempt, run.started_at, run.claimed_at) == (RunState.QUEUED, 0, None, None)
    assert [taken.attempt for taken in take(backlog, executor=THEM)] == [1]


def test_an_attempt_that_may_have_acted_counts_when_its_run_is_given_back(backlog):
    key = begun(backlog)

    assert give_back(backlog, key, counts_as_attempt=True)

    assert (backlog.run(key).state, backlog.run(key).attempt) == (RunState.QUEUED, 1)


def test_a_run_that_is_given_back_is_never_interrupted(backlog):
    key = begun(backlog)
    for _ in range(9):
        give_back(backlog, key)
        take(backlog)

    take_back(backlog, [key], attempts_max=2)

    assert (backlog.run(key).state, backlog.run(key).attempt) == (RunState.QUEUED, 1)


def test_a_run_that_is_given_back_and_was_to_be_cancelled_is_cancelled(backlog):
    key = begun(backlog)
    cancel(backlog, key)

    give_back(backlog, key)

    assert (backlog.run(key).state, backlog.run(key).finished_at) == (RunState.CANCELLED, 9)


def test_a_stale_worker_gives_nothing_back_and_ends_nothing_that_was(backlog):
    key = begun(backlog)
    take_back(backlog, [key])
    take(backlog, executor=THEM)

    assert not give_back(backlog, key)
    assert give_back(backlog, key, attempt=2, executor=THEM)
    assert not give_back(backlog, key, attempt=2, executor=THEM)
    assert not finish(backlog, key, 1)
    assert not finish(backlog, key, 2, executor=THEM)
    assert backlog.run(key).state is RunState.QUEUED


# Reading


def test_a_run_knows_its_webhook_its_automation_and_its_delivery(backlog):
    backlog.webhook("fac_one", uid="wh_x", name="Alerts")
    key = backlog.queue(backlog.automation(prompt="Help.", name="Helper"), webhook="wh_x", payload=b"[1]")

    run = backlog.run(key)

    assert (run.webhook_uid, run.webhook_name) == ("wh_x", "Alerts")
    assert (run.automation_name, run.automation_version, run.prompt) == ("Helper", 1, "Help.")
    with backlog.database.read() as tx:
        assert reading.payload_of(tx, run) == b"[1]"


def test_another_factorys_run_is_no_run(backlog):
    key = backlog.queue(backlog.automation())

    with backlog.database.read() as tx:
        assert reading.run_by_key(tx, key, factory=FactoryId("fac_other")) is None


def test_a_page_holds_the_newest_of_that_factory_first(backlog):
    backlog.queue(backlog.automation("fac_two"), factory="fac_two")
    keys = backlog.queue_many(backlog.automation(), 5)

    first = backlog.page(limit=2)
    second = backlog.page(limit=9, before=first[-1].id)

    assert [run.id for run in first + second] == keys[::-1]


def test_a_page_can_be_of_one_webhook_one_state_or_one_delivery(backlog):
    automation = backlog.automation()
    backlog.webhook("fac_one", uid="wh_x", name="Alerts")
    elsewhere = backlog.queue(automation)
    there = backlog.queue(automation, webhook="wh_x")
    cancel(backlog, elsewhere)

    assert [run.id for run in backlog.page(webhook=WebhookUid("wh_x"))] == [there]
    assert [run.id for run in backlog.page(state=RunState.CANCELLED)] == [elsewhere]
    assert [run.id for run in backlog.page(delivery=backlog.run(there).delivery_key)] == [there]
    assert backlog.page(webhook=WebhookUid("wh_x"), state=RunState.CANCELLED) == []
