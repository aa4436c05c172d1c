"""An accepted report of an agent platform ends its run, whatever happens before a worker reads the report."""

import threading
from hashlib import sha256
from typing import Any

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.platform_report import platform_report
from hookmill.domain.run import RunState
from hookmill.domain.run_policy import Concurrency, RunPolicy, WhenBusy
from hookmill.runs.runner import HostFault
from hookmill.store.runs import attempts, cancellation, executors, held, platform_attempts, reading
from hookmill.store.runs.cancellation import PartToCancel, RunFilter
from hookmill.store.runs.platform_attempts import Reception
from tests.runs.backlog import Backlog
from tests.runs.test_perform import ATTEMPTS_MAX, OUR_EXECUTOR, FunctionRunner, claim, new_performer
from tests.runs.test_platform import waiting_transactions
from tests.support.waiting import until

DONE = platform_report(succeeded=True, result="Two bugs.")
FAILED = platform_report(succeeded=False)
DIGEST = sha256(b"token").digest()
REPLACES = RunPolicy(concurrency=Concurrency(when_busy=WhenBusy.REPLACE))


def handed_over(backlog: Backlog, **automation: Any) -> RunKey:
    """A run whose first attempt a platform performs."""
    key = backlog.queue(backlog.automation(runner="http", **automation))
    decide(backlog)
    claim(backlog)
    with backlog.database.write() as tx:
        platform_attempts.begin(tx, key, 1, DIGEST, now=1)
    return key


def receive(backlog: Backlog, key: RunKey):
    with backlog.database.write() as tx:
        assert platform_attempts.receive(tx, key, 1, DIGEST, DONE) is Reception.ACCEPTED


def decide(backlog: Backlog):
    with backlog.database.write() as tx:
        held.decide(tx, 2)


def requeue(backlog: Backlog, key: RunKey, *, attempts_max: int = 1):
    """The worker has died, and another one requeues its run."""
    with backlog.database.write() as tx:
        executors.requeue(tx, [key], attempts_max=attempts_max, now=3)


def cancel_all(backlog: Backlog, key: RunKey):
    with backlog.database.write() as tx:
        for part in PartToCancel:
            run_filter = RunFilter(factory=FactoryId("fac_one"), newest=key)
            batch = cancellation.next_to_cancel(tx, run_filter, part, after=None)
            keys = [cursor.run_key for cursor in batch]
            cancellation.request_cancel_of_batch(tx, keys, part, state=None, now=4)


def test_next_attempt_ends_with_the_report_even_after_the_last_attempt(backlog):
    key = handed_over(backlog)
    receive(backlog, key)
    requeue(backlog, key, attempts_max=1)
    claim(backlog)

    # The settings no longer have the runner of the platform.
    new_performer(backlog).perform(key, 2)

    run = backlog.run(key)
    assert (run.state, run.reason, run.attempt) == (RunState.SUCCEEDED, None, 2)


def cancelled_before_the_requeue(backlog: Backlog, key: RunKey):
    backlog.request_cancel(key)
    requeue(backlog, key)


def cancelled_after_the_requeue(backlog: Backlog, key: RunKey):
    requeue(backlog, key)
    backlog.request_cancel(key)


def cancelled_with_all_runs(backlog: Backlog, key: RunKey):
    requeue(backlog, key)
    cancel_all(backlog, key)


def replaced_after_the_requeue(backlog: Backlog, key: RunKey):
    requeue(backlog, key)
    backlog.queue(backlog.run(key).automation_id)
    decide(backlog)


def cancelled_during_a_fault_of_the_host(backlog: Backlog, key: RunKey):
    backlog.request_cancel(key)
    with backlog.database.write() as tx:
        attempts.release(tx, key, executor=OUR_EXECUTOR, attempt=1, counts_as_attempt=True, now=4)


@pytest.mark.parametrize(
    "happens",
    [
        cancelled_before_the_requeue,
        cancelled_after_the_requeue,
        cancelled_with_all_runs,
        replaced_after_the_requeue,
        cancelled_during_a_fault_of_the_host,
    ],
)
def test_cancelled_run_ends_with_the_report_that_was_accepted_before(backlog, happens):
    key = handed_over(backlog, policy=REPLACES)
    receive(backlog, key)

    happens(backlog, key)

    run = backlog.run(key)
    assert (run.state, run.reason, run.finished_at is not None) == (RunState.SUCCEEDED, None, True)
    with backlog.database.read() as tx:
        assert reading.attempt_reports(tx, key) == {1: AgentReport(result="Two bugs.")}


def test_host_fault_in_the_last_attempt_does_not_lose_the_report(backlog):
    key = backlog.queue(backlog.automation(runner="faulty"))
    claim(backlog)
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET attempt = :attempt", attempt=ATTEMPTS_MAX)
        platform_attempts.begin(tx, key, ATTEMPTS_MAX, DIGEST, now=1)

    def fault(*_):
        with backlog.database.write() as tx:
            platform_attempts.receive(tx, key, ATTEMPTS_MAX, DIGEST, DONE)
        raise HostFault("No memory.", counts_as_attempt=True)

    new_performer(backlog, faulty=FunctionRunner(fault)).perform(key, ATTEMPTS_MAX)

    assert backlog.run(key).state is RunState.SUCCEEDED


@pytest.mark.parametrize("cancel", [Backlog.request_cancel, cancel_all])
def test_cancellation_waits_for_a_report_that_is_being_stored(postgres_backlog, cancel):
    """PostgreSQL: a cancellation must not look for reports before it has locked the run."""
    backlog = postgres_backlog
    key = handed_over(backlog)
    requeue(backlog, key, attempts_max=9)
    thread = threading.Thread(target=cancel, args=(backlog, key))
    with backlog.database.write() as tx:
        assert platform_attempts.receive(tx, key, 1, DIGEST, DONE) is Reception.ACCEPTED
        thread.start()
        until(lambda: waiting_transactions(backlog) == 1, "the cancellation waits for the row")
    thread.join(30)

    assert backlog.run(key).state is RunState.SUCCEEDED


@pytest.mark.parametrize(("second", "reception"), [(DONE, Reception.ACCEPTED), (FAILED, Reception.CONTRADICTED)])
def test_report_that_waits_for_another_one_never_replaces_it(postgres_backlog, second, reception):
    """PostgreSQL: after the wait for the lock, the row of the attempt is the one from before the wait."""
    backlog = postgres_backlog
    key = handed_over(backlog)
    receptions = []

    def receive_second():
        with backlog.database.write() as tx:
            receptions.append(platform_attempts.receive(tx, key, 1, DIGEST, second))

    thread = threading.Thread(target=receive_second)
    with backlog.database.write() as tx:
        assert platform_attempts.receive(tx, key, 1, DIGEST, DONE) is Reception.ACCEPTED
        thread.start()
        until(lambda: waiting_transactions(backlog) == 1, "the second report waits for the row")
    thread.join(30)

    assert receptions == [reception]
    with backlog.database.read() as tx:
        assert platform_attempts.accepted_report(tx, key) == DONE
