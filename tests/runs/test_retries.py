"""Retries of failed attempts: how many, when, for which exit codes, and what is stored of each."""

from typing import Any

import pytest

from hookmill.domain.run import Hold, RunState
from hookmill.domain.run_policy import Concurrency, Retry, RunPolicy
from hookmill.store.runs import reading
from tests.runs.backlog import Backlog, Worker
from tests.support.waiting import until

SOON = Retry(attempts=3, backoff_seconds=1, max_backoff_seconds=1)
LATER = Retry(attempts=3, backoff_seconds=3_600)


def queued(backlog: Backlog, retry: Retry | None, **policy: Any) -> Any:
    automation = backlog.automation(runner="command", policy=RunPolicy(retry=retry, **policy))
    return backlog.queue(automation)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def failed_attempts(backlog: Backlog, key: Any) -> list[Any]:
    with backlog.database.read() as tx:
        return reading.failed_attempts(tx, key)


def test_a_failed_attempt_is_followed_by_others_until_the_last(backlog):
    key = queued(backlog, SOON)

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


def test_a_later_attempt_may_succeed(backlog):
    key = queued(backlog, SOON)

    with Worker(backlog, command=shell('test "$HOOKMILL_ATTEMPT" = 2')):
        (run,) = backlog.wait_for_end(key)

    assert (run.state, run.attempt, run.reason) == (RunState.SUCCEEDED, 2, None)
    assert len(failed_attempts(backlog, key)) == 1


@pytest.mark.parametrize(("code", "attempts"), [(3, 2), (4, 1)])
def test_only_the_listed_exit_codes_are_retried(on_sqlite, code, attempts):
    key = queued(on_sqlite, Retry(attempts=2, backoff_seconds=1, exit_codes=(3, 5)))

    with Worker(on_sqlite, command=shell(f"exit {code}")):
        (run,) = on_sqlite.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.FAILED, attempts)


def test_the_runners_rule_applies_unless_the_automation_has_one(on_sqlite):
    by_runner, by_automation = queued(on_sqlite, None), queued(on_sqlite, Retry(attempts=1))

    with Worker(on_sqlite, command=shell("exit 1"), retry_rules={"command": Retry(attempts=2, backoff_seconds=1)}):
        runs = on_sqlite.wait_for_end(by_runner, by_automation)

    assert [run.attempt for run in runs] == [2, 1]


def test_a_waiting_attempt_can_be_cancelled(backlog):
    key = queued(backlog, LATER)

    with Worker(backlog, command=shell("exit 1")):
        until(lambda: backlog.run(key).hold is Hold.RETRY)
        waiting = backlog.run(key)
        backlog.request_cancel(key)
        (run,) = backlog.wait_for_end(key)

    assert waiting.state is RunState.QUEUED
    assert waiting.reason == "Attempt 1 of 3 failed. The command exited with status 1."
    assert waiting.due_at is not None
    assert run.state is RunState.CANCELLED


def test_a_run_that_waits_for_its_next_attempt_keeps_its_key(backlog):
    first = queued(backlog, LATER, concurrency=Concurrency())
    second = backlog.queue(backlog.run(first).automation_id)

    with Worker(backlog, command=shell("exit 1")):
        until(lambda: backlog.run(first).hold is Hold.RETRY)
        until(lambda: backlog.run(second).hold is Hold.BUSY)
        backlog.request_cancel(first)
        until(lambda: backlog.run(second).hold is Hold.RETRY)


def test_another_worker_starts_the_next_attempt(on_postgres):
    key = queued(on_postgres, Retry(attempts=2, backoff_seconds=2))
    command = shell('test "$HOOKMILL_ATTEMPT" = 2')

    with Worker(on_postgres, command=command) as killed:
        until(lambda: on_postgres.run(key).hold is Hold.RETRY)
        killed.kill()
    with Worker(on_postgres, command=command):
        (run,) = on_postgres.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_failed_attempts_do_not_count_as_deaths_of_workers(on_sqlite):
    key = queued(on_sqlite, Retry(attempts=3, backoff_seconds=1, max_backoff_seconds=1))
    command = shell('test "$HOOKMILL_ATTEMPT" != 3 || sleep 60; test "$HOOKMILL_ATTEMPT" = 4')

    with Worker(on_sqlite, command=command, attempts_max=2) as killed:
        until(lambda: on_sqlite.run(key).attempt == 3 and on_sqlite.run(key).state is RunState.RUNNING)
        killed.kill()
    with Worker(on_sqlite, command=command, attempts_max=2):
        (run,) = on_sqlite.wait_for_end(key)

    assert (run.state, run.attempt, run.failures) == (RunState.SUCCEEDED, 4, 2)
