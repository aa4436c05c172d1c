"""Retries of failed attempts: how many, when, for which exit codes, and what is stored of each."""

from typing import Any

import pytest

from hookmill.domain.run import Hold, RunState
from hookmill.domain.run_policy import Concurrency, Retry, RunPolicy
from hookmill.store.runs import reading
from tests.runs.backlog import Backlog, Worker
from tests.runs.worker import microseconds
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.waiting import until

RETRY_SOON = Retry(attempts=3, backoff_seconds=1, max_backoff_seconds=1)
RETRY_IN_AN_HOUR = Retry(attempts=3, backoff_seconds=3_600)


def queued_run(backlog: Backlog, retry: Retry | None, **policy: Any) -> Any:
    automation = backlog.automation(runner="command", policy=RunPolicy(retry=retry, **policy))
    return backlog.queue(automation)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def failed_attempts(backlog: Backlog, key: Any) -> list[Any]:
    with backlog.database.read() as tx:
        return reading.failed_attempts(tx, key)


@ON_POSTGRES_IN_PROOF
def test_failed_attempts_are_retried_up_to_the_limit(backlog):
    key = queued_run(backlog, RETRY_SOON)

    with Worker(backlog, command=shell("echo attempt $HOOKMILL_ATTEMPT; exit 3")):
        (run,) = backlog.wait_for_end(key)

    failed = failed_attempts(backlog, key)
    assert (run.state, run.attempt, run.failures, run.exit_status) == (RunState.FAILED, 3, 2, 3)
    assert [(each.attempt, each.exit_status, each.output_tail) for each in failed] == [
        (1, 3, "attempt 1\n"),
        (2, 3, "attempt 2\n"),
    ]
    assert run.output_tail == "attempt 3\n"
    assert all(each.started_at <= each.finished_at for each in failed)
    assert run.started_at is not None
    assert run.started_at - failed[1].finished_at >= 1_000_000


@ON_POSTGRES_IN_PROOF
def test_retry_can_succeed(backlog):
    key = queued_run(backlog, RETRY_SOON)

    with Worker(backlog, command=shell('test "$HOOKMILL_ATTEMPT" = 2')):
        (run,) = backlog.wait_for_end(key)

    assert (run.state, run.attempt, run.reason) == (RunState.SUCCEEDED, 2, None)
    assert len(failed_attempts(backlog, key)) == 1


@pytest.mark.parametrize(("code", "attempts"), [(3, 2), (4, 1)])
def test_only_listed_exit_codes_are_retried(sqlite_backlog, code, attempts):
    key = queued_run(sqlite_backlog, Retry(attempts=2, backoff_seconds=1, exit_codes=(3, 5)))

    with Worker(sqlite_backlog, command=shell(f"exit {code}")):
        (run,) = sqlite_backlog.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.FAILED, attempts)


def test_retry_rule_of_an_automation_overrides_that_of_its_runner(sqlite_backlog):
    by_runner, by_automation = queued_run(sqlite_backlog, None), queued_run(sqlite_backlog, Retry(attempts=1))

    with Worker(sqlite_backlog, command=shell("exit 1"), retry_rules={"command": Retry(attempts=2, backoff_seconds=1)}):
        runs = sqlite_backlog.wait_for_end(by_runner, by_automation)

    assert [run.attempt for run in runs] == [2, 1]


@ON_POSTGRES_IN_PROOF
def test_run_that_waits_for_a_retry_can_be_cancelled(backlog):
    key = queued_run(backlog, RETRY_IN_AN_HOUR)

    with Worker(backlog, command=shell("exit 1")):
        until(lambda: backlog.run(key).hold is Hold.RETRY)
        waiting_run = backlog.run(key)
        backlog.request_cancel(key)
        (run,) = backlog.wait_for_end(key)

    assert waiting_run.state is RunState.QUEUED
    assert waiting_run.reason == "Attempt 1 of 3 failed. The command exited with status 1."
    assert waiting_run.due_at is not None
    assert run.state is RunState.CANCELLED


@ON_POSTGRES_IN_PROOF
def test_run_that_waits_for_a_retry_keeps_its_concurrency_key(backlog):
    first = queued_run(backlog, RETRY_IN_AN_HOUR, concurrency=Concurrency())
    second = backlog.queue(backlog.run(first).automation_id)

    with Worker(backlog, command=shell("exit 1")):
        until(lambda: backlog.run(first).hold is Hold.RETRY)
        until(lambda: backlog.run(second).hold is Hold.BUSY)
        backlog.request_cancel(first)
        until(lambda: backlog.run(second).hold is Hold.RETRY)


def test_another_worker_performs_the_retry(postgres_backlog):
    key = queued_run(postgres_backlog, RETRY_IN_AN_HOUR)
    command = shell('test "$HOOKMILL_ATTEMPT" = 2')

    with Worker(postgres_backlog, command=command) as killed:
        until(lambda: postgres_backlog.run(key).hold is Hold.RETRY)
        killed.kill()
    with postgres_backlog.database.write() as tx:
        tx.run("UPDATE runs SET due_at = :now", now=microseconds())
    with Worker(postgres_backlog, command=command):
        (run,) = postgres_backlog.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_failed_attempts_do_not_count_as_worker_deaths(sqlite_backlog):
    key = queued_run(sqlite_backlog, Retry(attempts=3, backoff_seconds=1, max_backoff_seconds=1))
    command = shell('test "$HOOKMILL_ATTEMPT" != 3 || sleep 60; test "$HOOKMILL_ATTEMPT" = 4')

    with Worker(sqlite_backlog, command=command, attempts_max=2) as killed:
        until(lambda: sqlite_backlog.run(key).attempt == 3 and sqlite_backlog.run(key).state is RunState.RUNNING)
        killed.kill()
    with Worker(sqlite_backlog, command=command, attempts_max=2):
        (run,) = sqlite_backlog.wait_for_end(key)

    assert (run.state, run.attempt, run.failures) == (RunState.SUCCEEDED, 4, 2)
