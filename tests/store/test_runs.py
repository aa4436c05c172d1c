"""Claims, attempts, cancellations and pages of runs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_outputs import OutputText
from hookmill.store.runs import attempts, cancellation, claims, executors, outputs, reading
from hookmill.store.runs.attempts import AttemptStatus
from hookmill.store.runs.cancellation import PartToCancel
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog

WORKER = ExecutorId("worker")
OTHER_WORKER = ExecutorId("other worker")
SUCCEEDED = Ended(state=RunState.SUCCEEDED, exit_status=0, output_tail="done")


@pytest.fixture
def backlog(store_url, tmp_path):
    with Backlog(store_url, tmp_path) as backlog:
        yield backlog


def claim(backlog, at_most=10, *, after="", executor=WORKER, skipped_runners=()):
    return claims.claim_and_beat(
        backlog.database,
        executor=executor,
        at_most=at_most,
        after=FactoryId(after),
        skipped_runners=skipped_runners,
        now=5,
    )


def has_backlog(backlog, skipped_runners=()):
    with backlog.database.read() as tx:
        return claims.has_backlog(tx, skipped_runners=skipped_runners)


def finish(backlog, key, attempt, executor=WORKER, result=SUCCEEDED):
    with backlog.database.write() as tx:
        return attempts.finish(tx, key, result, executor=executor, attempt=attempt, now=7)


def cancel(backlog, key, factory=None):
    with backlog.database.write() as tx:
        return cancellation.request_cancel(tx, key, factory=factory, now=8)


def requeue(backlog, keys, attempts_max=3):
    with backlog.database.write() as tx:
        executors.requeue(tx, keys, attempts_max=attempts_max, now=9)


def queue_and_claim(backlog):
    """Queue a run, and let `WORKER` claim it. Returns its key."""
    key = backlog.queue(backlog.automation())
    claim(backlog)
    return key


# The backlog


def test_oldest_runs_of_a_factory_are_claimed_first(backlog):
    keys = backlog.queue_many(backlog.automation(), 5)

    assert [claimed.run for claimed in claim(backlog, 3)] == keys[:3]


def test_runs_of_a_skipped_runner_delay_no_others(backlog):
    for factory in ("fac_a", "fac_b"):
        backlog.queue_many(backlog.automation(factory, runner="broken"), 3, factory=factory)
    keys = [
        *backlog.queue_many(backlog.automation("fac_b"), 1, factory="fac_b"),
        *backlog.queue_many(backlog.automation("fac_c", runner="other"), 2, factory="fac_c"),
    ]

    claimed = claim(backlog, 2, skipped_runners=["broken"]) + claim(backlog, 2, skipped_runners=["broken"])

    assert [claimed_run.run for claimed_run in claimed] == keys
    assert not has_backlog(backlog, skipped_runners=["broken"])
    assert has_backlog(backlog)
    assert len(claim(backlog)) == 6


def test_each_run_is_claimed_once(backlog):
    backlog.queue_many(backlog.automation(), 5)

    first, second = claim(backlog, 3), claim(backlog, 3)

    assert len(first) == 3
    assert len(second) == 2
    assert claim(backlog) == []


def test_claim_records_the_executor_and_the_time(backlog):
    key = backlog.queue(backlog.automation())

    claim(backlog)

    assert backlog.run(key).claimed_at == 5
    assert backlog.column(key, "executor") == "worker"


def test_factory_with_many_runs_does_not_delay_others(backlog):
    many = backlog.queue_many(backlog.automation("fac_many"), 50, factory="fac_many")
    small = backlog.queue(backlog.automation("fac_small"), factory="fac_small")
    other = backlog.queue(backlog.automation("fac_other"), factory="fac_other")

    claimed = claim(backlog, 4)

    assert [claimed_run.run for claimed_run in claimed] == [many[0], other, small, many[1]]


def test_factories_are_served_round_robin(backlog):
    for name in ("fac_a", "fac_b", "fac_c"):
        backlog.queue_many(backlog.automation(name), 3, factory=name)

    served: list[FactoryId] = []
    for _ in range(7):
        [claimed] = claim(backlog, 1, after=served[-1] if served else "")
        served.append(claimed.factory)

    assert served == ["fac_a", "fac_b", "fac_c", "fac_a", "fac_b", "fac_c", "fac_a"]


def test_workers_that_claim_at_the_same_time_claim_different_runs(backlog):
    keys = backlog.queue_many(backlog.automation(), 60)

    with ThreadPoolExecutor(6) as threads:
        claim_results = threads.map(
            lambda number: claim(backlog, 7, executor=ExecutorId(f"worker-{number % 6}")), range(24)
        )
        claimed = [claimed_run for result in claim_results for claimed_run in result]
    claimed += claim(backlog, 60)

    assert sorted(claimed_run.run for claimed_run in claimed) == sorted(keys)


def test_finished_runs_are_not_in_the_backlog(backlog):
    key = backlog.queue(backlog.automation())
    cancel(backlog, key)

    assert not has_backlog(backlog)
    assert claim(backlog) == []


# One attempt


def test_claim_begins_the_next_attempt(backlog):
    key = backlog.queue(backlog.automation())

    (claimed,) = claim(backlog)

    run = backlog.run(key)
    assert (claimed.run, claimed.attempt) == (key, 1)
    assert (run.state, run.attempt, run.started_at) == (RunState.RUNNING, 1, 5)


def test_end_of_an_attempt_is_recorded(backlog):
    key = queue_and_claim(backlog)

    assert finish(backlog, key, 1, result=Ended(state=RunState.FAILED, reason="why", exit_status=3, output_tail="o"))

    run = backlog.run(key)
    assert (run.state, run.finished_at, run.reason) == (RunState.FAILED, 7, "why")
    assert (run.exit_status, run.output_tail) == (3, "o")


def test_report_of_an_agent_is_stored_with_its_attempt(backlog):
    key = queue_and_claim(backlog)
    first = AgentReport(result="No.", is_result_cut=True, cost_microusd=2, input_tokens=10**12, output_tokens=0)
    second = AgentReport(result="Yes.")
    failed = Ended(state=RunState.FAILED, report=first)

    with backlog.database.write() as tx:
        assert attempts.retry(tx, backlog.run(key), failed, executor=WORKER, now=6, due_at=6, rule_attempts=2)
        tx.run("UPDATE runs SET hold = NULL")
    claim(backlog)
    late = Ended(state=RunState.SUCCEEDED, report=AgentReport(result="late"))
    assert not finish(backlog, key, 1, result=late)
    assert finish(backlog, key, 2, result=Ended(state=RunState.SUCCEEDED, report=second))

    with backlog.database.read() as tx:
        assert reading.attempt_reports(tx, key) == {1: first, 2: second}


def test_outputs_of_a_run_are_stored_with_its_end(backlog):
    key = queue_and_claim(backlog)
    texts = {"summary.md": OutputText(text="# Two bugs", is_cut=True)}

    assert not finish(backlog, key, 2, result=Ended(state=RunState.FAILED, outputs={"summary.md": OutputText(text="")}))
    assert finish(backlog, key, 1, result=Ended(state=RunState.FAILED, outputs=texts))

    with backlog.database.read() as tx:
        assert outputs.of_run(tx, key) == texts


def test_run_cannot_end_twice(backlog):
    key = queue_and_claim(backlog)
    finish(backlog, key, 1)

    assert not finish(backlog, key, 1, result=Ended(state=RunState.FAILED))
    assert backlog.run(key).state is RunState.SUCCEEDED


def test_result_of_a_stale_worker_has_no_effect(backlog):
    key = queue_and_claim(backlog)
    requeue(backlog, [key])
    claim(backlog, executor=OTHER_WORKER)

    assert not finish(backlog, key, 1)
    assert not finish(backlog, key, 2)
    assert backlog.run(key).state is RunState.RUNNING
    assert finish(backlog, key, 2, executor=OTHER_WORKER)


@pytest.mark.parametrize(
    ("attempt", "executor", "status"),
    [
        (1, WORKER, AttemptStatus.CURRENT),
        (2, WORKER, AttemptStatus.OUTDATED),
        (1, OTHER_WORKER, AttemptStatus.OUTDATED),
    ],
)
def test_attempt_is_current_only_for_its_executor_and_number(backlog, attempt, executor, status):
    key = queue_and_claim(backlog)

    with backlog.database.read() as tx:
        assert attempts.status(tx, key, executor=executor, attempt=attempt) is status


# Cancelling


def test_queued_run_is_cancelled_immediately(backlog):
    key = backlog.queue(backlog.automation())

    assert cancel(backlog, key) is RunState.CANCELLED

    assert backlog.run(key).finished_at == 8
    assert claim(backlog) == []


@pytest.mark.parametrize(
    ("has_begun", "reason"),
    [
        (False, "It was cancelled before it began."),
        (True, "It was cancelled while it waited for its next attempt."),
    ],
)
@pytest.mark.parametrize("with_others", [False, True])
def test_reason_of_a_cancelled_run_says_whether_it_had_begun(backlog, has_begun, reason, with_others):
    key = backlog.queue(backlog.automation())
    if has_begun:
        claim(backlog)
        requeue(backlog, [key])

    if with_others:
        with backlog.database.write() as tx:
            cancellation.request_cancel_of_batch(tx, [key], PartToCancel.READY, state=None, now=8)
    else:
        cancel(backlog, key)

    assert (backlog.run(key).state, backlog.run(key).reason) == (RunState.CANCELLED, reason)


def test_running_run_is_asked_to_stop(backlog):
    key = queue_and_claim(backlog)

    assert cancel(backlog, key) is RunState.RUNNING

    assert backlog.run(key).cancel_requested_at == 8
    with backlog.database.read() as tx:
        assert attempts.status(tx, key, executor=WORKER, attempt=1) is AttemptStatus.CANCEL_REQUESTED


def test_run_of_another_factory_cannot_be_cancelled(backlog):
    key = backlog.queue(backlog.automation())

    assert cancel(backlog, key, factory="fac_other") is None
    assert cancel(backlog, RunKey(b"-" * 16)) is None
    assert backlog.run(key).state is RunState.QUEUED


# Dead executors


def test_runs_of_a_live_executor_are_not_reclaimed(backlog):
    queue_and_claim(backlog)

    with backlog.database.write() as tx:
        executors.heartbeat(tx, WORKER, 1)
        assert executors.runs_of_dead_executors(tx) == []


def test_runs_of_a_deregistered_executor_are_reclaimed(backlog):
    key = queue_and_claim(backlog)
    backlog.queue(backlog.automation())

    with backlog.database.write() as tx:
        executors.heartbeat(tx, WORKER, 1)
        assert executors.deregister(tx, WORKER, last_beat=1)
        assert executors.runs_of_dead_executors(tx) == [key]


def test_executor_with_a_later_heartbeat_is_not_deregistered(backlog):
    with backlog.database.write() as tx:
        executors.heartbeat(tx, WORKER, 1)
        executors.heartbeat(tx, WORKER, 2)

        assert not executors.deregister(tx, WORKER, last_beat=1)
        assert executors.last_heartbeats(tx) == {WORKER: 2}


def test_run_of_a_dead_executor_is_requeued_for_another_attempt(backlog):
    key = queue_and_claim(backlog)

    requeue(backlog, [key])

    run = backlog.run(key)
    assert (run.state, run.attempt, run.claimed_at) == (RunState.QUEUED, 1, None)
    assert [claimed.attempt for claimed in claim(backlog, executor=OTHER_WORKER)] == [2]


def test_run_whose_workers_died_too_often_is_interrupted(backlog):
    key = queue_and_claim(backlog)
    for _ in range(2):
        requeue(backlog, [key])
        claim(backlog)

    requeue(backlog, [key])

    run = backlog.run(key)
    assert (run.state, run.attempt, run.finished_at) == (RunState.INTERRUPTED, 3, 9)
    assert run.reason == (
        "Its worker died while it ran. It is not started again, because a dead worker or a fault of the host ended 3 "
        "attempts."
    )


def test_run_of_orderly_stopped_workers_is_never_interrupted(backlog):
    key = queue_and_claim(backlog)
    for _ in range(9):
        requeue(backlog, [key], attempts_max=None)
        claim(backlog)

    assert backlog.run(key).state is RunState.RUNNING
    assert backlog.run(key).attempt == 10


def test_stopped_attempts_do_not_count_as_worker_deaths(backlog):
    key = queue_and_claim(backlog)
    for attempts_max in (None, 3, None, None, 3):
        requeue(backlog, [key], attempts_max=attempts_max)
        claim(backlog)
    running = backlog.run(key)

    requeue(backlog, [key], attempts_max=3)

    assert (running.state, running.attempt, running.counted_attempts) == (RunState.RUNNING, 6, 3)
    assert backlog.run(key).state is RunState.INTERRUPTED


def test_requeued_run_with_a_requested_cancellation_is_cancelled(backlog):
    key = queue_and_claim(backlog)
    cancel(backlog, key)

    requeue(backlog, [key])

    assert backlog.run(key).state is RunState.CANCELLED


def test_finished_run_is_not_requeued(backlog):
    key = queue_and_claim(backlog)
    finish(backlog, key, 1)

    requeue(backlog, [key])

    assert backlog.run(key).state is RunState.SUCCEEDED


def test_requeue_returns_the_runs_that_ended(backlog):
    requeued, cancelled, interrupted = queue_and_claim(backlog), queue_and_claim(backlog), queue_and_claim(backlog)
    cancel(backlog, cancelled)
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET attempt = 3 WHERE id = :id", id=interrupted)

    with backlog.database.write() as tx:
        ended = executors.requeue(tx, [requeued, cancelled, interrupted], attempts_max=3, now=9)

    assert ended == [cancelled, interrupted]


# Released runs


def release(backlog, key, attempt=1, executor=WORKER, counts_as_attempt=False):
    with backlog.database.write() as tx:
        return attempts.release(tx, key, executor=executor, attempt=attempt, counts_as_attempt=counts_as_attempt, now=9)


def test_released_run_is_queued_as_if_it_had_not_begun(backlog):
    key = queue_and_claim(backlog)

    assert release(backlog, key)

    run = backlog.run(key)
    assert (run.state, run.attempt, run.started_at, run.claimed_at) == (RunState.QUEUED, 0, None, None)
    assert [claimed.attempt for claimed in claim(backlog, executor=OTHER_WORKER)] == [1]


def test_attempt_that_may_have_acted_counts_when_it_is_released(backlog):
    key = queue_and_claim(backlog)

    assert release(backlog, key, counts_as_attempt=True)

    assert (backlog.run(key).state, backlog.run(key).attempt) == (RunState.QUEUED, 1)


def test_released_run_is_never_interrupted(backlog):
    key = queue_and_claim(backlog)
    for _ in range(9):
        release(backlog, key)
        claim(backlog)

    requeue(backlog, [key], attempts_max=2)

    assert (backlog.run(key).state, backlog.run(key).attempt) == (RunState.QUEUED, 1)


def test_released_run_with_a_requested_cancellation_is_cancelled(backlog):
    key = queue_and_claim(backlog)
    cancel(backlog, key)

    release(backlog, key)

    assert (backlog.run(key).state, backlog.run(key).finished_at) == (RunState.CANCELLED, 9)


def test_stale_worker_cannot_release_or_end_a_run(backlog):
    key = queue_and_claim(backlog)
    requeue(backlog, [key])
    claim(backlog, executor=OTHER_WORKER)

    assert not release(backlog, key)
    assert release(backlog, key, attempt=2, executor=OTHER_WORKER)
    assert not release(backlog, key, attempt=2, executor=OTHER_WORKER)
    assert not finish(backlog, key, 1)
    assert not finish(backlog, key, 2, executor=OTHER_WORKER)
    assert backlog.run(key).state is RunState.QUEUED


# Reading


def test_run_has_its_webhook_automation_and_payload(backlog):
    backlog.webhook("fac_one", uid="wh_x", name="Alerts")
    key = backlog.queue(backlog.automation(prompt="Help.", name="Helper"), webhook="wh_x", payload=b"[1]")

    run = backlog.run(key)

    assert (run.webhook_uid, run.webhook_name) == ("wh_x", "Alerts")
    assert (run.automation_name, run.automation_version, run.prompt) == ("Helper", 1, "Help.")
    with backlog.database.read() as tx:
        assert reading.payload_of(tx, run) == b"[1]"


def test_attempt_gets_its_run_until_it_is_outdated(backlog):
    key = backlog.queue(backlog.automation(), payload=b"[1]")
    claim(backlog)

    def read(attempt=1, executor=WORKER):
        with backlog.database.read_statement() as tx:
            return attempts.run_to_perform(tx, key, executor=executor, attempt=attempt)

    assert read() == (backlog.run(key), b"[1]", False)
    assert read(attempt=2) is None
    assert read(executor=OTHER_WORKER) is None
    with backlog.database.write() as tx:
        tx.run("DELETE FROM payloads")
    assert read() == (backlog.run(key), None, False)
    finish(backlog, key, 1)
    assert read() is None


def test_run_of_another_factory_is_not_found(backlog):
    key = backlog.queue(backlog.automation())

    with backlog.database.read() as tx:
        assert reading.run_by_key(tx, key, factory=FactoryId("fac_other")) is None
