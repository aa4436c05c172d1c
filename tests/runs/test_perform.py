"""Attempts of single runs, performed without a dispatcher."""

import errno
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, Run, RunState
from hookmill.runs.health import HostHealth, WaitingForHost
from hookmill.runs.package import Package
from hookmill.runs.perform import Performer, RunSettings
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction, Runner
from hookmill.runs.runners import PackageRunner
from hookmill.store.runs import attempts, claims, executors
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds

OUR_EXECUTOR = ExecutorId("us")
OTHER_EXECUTOR = ExecutorId("them")
SUCCEEDED = Ended(state=RunState.SUCCEEDED)
ATTEMPTS_MAX = 3


@dataclass(frozen=True)
class FunctionRunner:
    """A runner that calls a function of the test."""

    act: Callable[[Package, NextInstruction], Ended | Abandoned]
    grace_seconds: float = 0
    error_of_earlier_attempts: OSError | None = None

    def end_earlier_attempts(self, run: Run):
        if self.error_of_earlier_attempts is not None:
            raise self.error_of_earlier_attempts

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        return self.act(package, next_instruction)


def new_performer(backlog: Backlog, failures: list[Any] | None = None, **runners: Runner) -> Performer:
    """`failures` receives each reported failure."""
    reports = failures if failures is not None else []
    return Performer(
        database=backlog.database,
        executor=OUR_EXECUTOR,
        settings=RunSettings(
            data=backlog.data, runners={"package": PackageRunner(), **runners}, attempts_max=ATTEMPTS_MAX
        ),
        clock=microseconds,
        abandon_runs=threading.Event(),
        report_failure=lambda component, error: reports.append((component, error)),
        health=HostHealth(
            backlog.data / "runs",
            report_failure=lambda component, error: reports.append((component, error)),
            report_recovery=ignore,
        ),
    )


def with_settings(performer: Performer, **settings: Any) -> Performer:
    return replace(performer, settings=replace(performer.settings, **settings))


def ignore(_component: str, _message: str): ...


def claimed_run(backlog: Backlog, runner: str = "package", payload: bytes = b"{}") -> RunKey:
    """A run that `OUR_EXECUTOR` has claimed."""
    key = backlog.queue(backlog.automation(runner=runner), payload=payload)
    claim(backlog)
    return key


def claim(backlog: Backlog, executor: ExecutorId = OUR_EXECUTOR):
    with backlog.database.write() as tx:
        claims.claim(tx, executor=executor, at_most=9, after=FactoryId(""), now=1)


def requeue(backlog: Backlog, key: RunKey):
    with backlog.database.write() as tx:
        executors.requeue(tx, [key], attempts_max=9, now=1)


def test_claimed_run_is_performed(backlog):
    key = claimed_run(backlog, payload=b"[1,  2]")

    new_performer(backlog).perform(key, backlog.run(key).attempt)

    run = backlog.run(key)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    assert run.started_at <= run.finished_at
    assert run.output_tail.startswith("Nothing was executed, because this runner only writes files. ")
    (package,) = (backlog.data / "runs").iterdir()
    assert (package / "event-payload.json").read_bytes() == b"[1,  2]"


def test_claim_start_and_end_of_a_run_take_one_round_trip_each(postgres_backlog, tmp_path):
    key = postgres_backlog.queue(postgres_backlog.automation())
    # The pool gives its most recently used connection to each statement.
    with postgres_backlog.database.read() as tx:
        connection: Any = tx.connection.connection.driver_connection
    with (tmp_path / "messages").open("w+b") as messages:
        connection.pgconn.trace(messages.fileno())
        [claimed] = claims.claim_and_beat(
            postgres_backlog.database, executor=OUR_EXECUTOR, at_most=4, after=FactoryId(""), now=1
        )
        result = new_performer(postgres_backlog).perform(key, claimed.attempt)
        connection.pgconn.untrace()
        messages.seek(0)
        responses = messages.read().count(b"ReadyForQuery")

    assert isinstance(result, Ended)
    assert responses == 3


def test_run_of_a_deleted_webhook_gets_its_payload(backlog):
    key = claimed_run(backlog, payload=b"[1,  2]")
    with backlog.database.write() as tx:
        assert tx.run("UPDATE webhooks SET state = 'deleted', deleted_at = 1") == 1

    new_performer(backlog).perform(key, backlog.run(key).attempt)

    assert backlog.run(key).state is RunState.SUCCEEDED
    (package,) = (backlog.data / "runs").iterdir()
    assert (package / "event-payload.json").read_bytes() == b"[1,  2]"


def test_run_with_options_that_cannot_be_read_is_interrupted(backlog):
    key = claimed_run(backlog)
    with backlog.database.write() as tx:
        assert tx.run("""UPDATE automation_versions SET options = '{"sandbox": "container"}'""") == 1

    new_performer(backlog).perform(key, backlog.run(key).attempt)

    run = backlog.run(key)
    assert run.state is RunState.INTERRUPTED
    assert "its stored run options can't be read: /sandbox: Unknown field 'sandbox'." in (run.reason or "")
    assert not (backlog.data / "runs").exists()


def test_run_with_an_unconfigured_runner_fails_with_the_reason(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="agent")

    new_performer(sqlite_backlog).perform(key, sqlite_backlog.run(key).attempt)

    run = sqlite_backlog.run(key)
    assert run.state is RunState.FAILED
    assert (run.reason or "").startswith("The service started without a runner 'agent'.")


def test_run_whose_payload_is_missing_fails_with_the_reason(sqlite_backlog):
    key = claimed_run(sqlite_backlog)
    with sqlite_backlog.database.write() as tx:
        tx.run("DELETE FROM payloads")

    new_performer(sqlite_backlog).perform(key, sqlite_backlog.run(key).attempt)

    assert sqlite_backlog.run(key).reason == "The delivery's payload is no longer stored."


def test_run_whose_package_cannot_be_written_is_requeued_uncounted(backlog):
    key = claimed_run(backlog)
    backlog.data.mkdir()
    (backlog.data / "runs").write_text("not a directory")
    failures: list[Any] = []

    ended = new_performer(backlog, failures).perform(key, backlog.run(key).attempt)

    run = backlog.run(key)
    assert ended == Abandoned()
    assert (run.state, run.attempt, run.started_at, run.claimed_at) == (RunState.QUEUED, 0, None, None)
    ((_, fault),) = failures
    assert str(fault).startswith(f"A run's package could not be written to {backlog.data}/runs: Not a directory.")


@pytest.mark.parametrize(
    ("error", "attempt"),
    [
        (HostFault("no disk"), 0),
        (HostFault("no disk", counts_as_attempt=True), 1),
        (OSError(5, "I/O error"), 1),
        (MemoryError(), 1),
    ],
    ids=["not begun", "begun", "OSError", "MemoryError"],
)
def test_host_fault_requeues_the_run(sqlite_backlog, error, attempt):
    key = claimed_run(sqlite_backlog, runner="function")
    failures: list[Any] = []

    def act(*_):
        raise error

    performer = new_performer(sqlite_backlog, failures, function=FunctionRunner(act))
    performer.perform(key, sqlite_backlog.run(key).attempt)

    run = sqlite_backlog.run(key)
    assert (run.state, run.attempt, run.reason) == (RunState.QUEUED, attempt, None)
    ((_, fault),) = failures
    assert isinstance(fault, WaitingForHost)
    assert performer.health.may_claim()
    assert list(performer.health.runners_at_fault()) == ["function"]


def test_run_that_breaks_its_guard_at_each_attempt_is_interrupted(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="function")

    def act(*_):
        raise HostFault("The process that guards a command ended with a fault.", counts_as_attempt=True)

    performer = new_performer(sqlite_backlog, function=FunctionRunner(act))
    for _ in range(ATTEMPTS_MAX):
        assert sqlite_backlog.run(key).state is RunState.RUNNING
        performer.perform(key, sqlite_backlog.run(key).attempt)
        claim(sqlite_backlog)

    run = sqlite_backlog.run(key)
    assert (run.state, run.attempt) == (RunState.INTERRUPTED, ATTEMPTS_MAX)
    assert run.reason == "The process that guards a command ended with a fault. It was attempt 3, the last."


def test_earlier_attempt_that_can_not_be_ended_pauses_its_runner_alone(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="function")
    requeue(sqlite_backlog, key)
    claim(sqlite_backlog)
    failures: list[Any] = []
    error = OSError(errno.ETIMEDOUT, "podman did not remove a container in time")
    runner = FunctionRunner(lambda *_: SUCCEEDED, error_of_earlier_attempts=error)
    performer = new_performer(sqlite_backlog, failures, function=runner)

    performer.perform(key, sqlite_backlog.run(key).attempt)

    assert sqlite_backlog.run(key).state is RunState.QUEUED
    assert "could not end an earlier attempt of a run: podman did not remove a container in time." in str(failures[0])
    assert performer.health.may_claim()
    assert list(performer.health.runners_at_fault()) == ["function"]


def test_payload_is_read_again_after_a_database_failure(sqlite_backlog, monkeypatch):
    key = claimed_run(sqlite_backlog)
    run_to_perform, failures = attempts.run_to_perform, []

    def fail_once(*arguments, **named_arguments):
        if not failures:
            failures.append(StoreUnavailable("unavailable"))
            raise failures[0]
        return run_to_perform(*arguments, **named_arguments)

    monkeypatch.setattr(attempts, "run_to_perform", fail_once)

    new_performer(sqlite_backlog).perform(key, sqlite_backlog.run(key).attempt)

    assert sqlite_backlog.run(key).state is RunState.SUCCEEDED


def test_exception_in_a_runner_fails_its_run_and_is_reported(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="faulty")
    failures: list[Any] = []

    def fault(*_):
        raise ZeroDivisionError("a secret detail")

    new_performer(sqlite_backlog, failures, faulty=FunctionRunner(fault)).perform(key, sqlite_backlog.run(key).attempt)

    run = sqlite_backlog.run(key)
    assert run.state is RunState.FAILED
    assert run.reason == "The runner 'faulty' has a fault. See the service's log."
    assert [(component, type(error)) for component, error in failures] == [("runner faulty", ZeroDivisionError)]


def test_run_claimed_by_another_executor_is_not_performed(backlog):
    key = backlog.queue(backlog.automation())
    claim(backlog, OTHER_EXECUTOR)

    assert new_performer(backlog).perform(key, backlog.run(key).attempt) is None

    assert backlog.run(key).state is RunState.RUNNING
    assert not (backlog.data / "runs").exists()


def test_runner_is_instructed_to_cancel_when_its_run_is_cancelled(backlog):
    key = claimed_run(backlog, runner="function")
    instructions = []

    def act(_, next_instruction):
        instructions.append(next_instruction())
        backlog.request_cancel(key)
        instructions.append(next_instruction())
        return SUCCEEDED

    new_performer(backlog, function=FunctionRunner(act)).perform(key, backlog.run(key).attempt)

    assert instructions == [Instruction.CONTINUE, Instruction.CANCEL]


def test_runner_continues_while_the_state_of_its_run_cannot_be_read(sqlite_backlog, monkeypatch):
    key = claimed_run(sqlite_backlog, runner="function")
    failures: list[Any] = []

    def act(_, next_instruction):
        with monkeypatch.context() as patch:
            patch.setattr(attempts, "status", lambda *_, **__: 1 / 0)
            assert next_instruction() is Instruction.CONTINUE
        return SUCCEEDED

    new_performer(sqlite_backlog, failures, function=FunctionRunner(act)).perform(key, sqlite_backlog.run(key).attempt)

    assert sqlite_backlog.run(key).state is RunState.SUCCEEDED
    ((component, error),) = failures
    assert (component, type(error)) == ("runs", ZeroDivisionError)


def test_runner_of_a_dead_executor_abandons_its_run(backlog):
    key = claimed_run(backlog, runner="function")
    instructions = []

    def act(_, next_instruction):
        requeue(backlog, key)
        instructions.append(next_instruction())
        claim(backlog, OTHER_EXECUTOR)
        instructions.append(next_instruction())
        return SUCCEEDED

    ended = new_performer(backlog, function=FunctionRunner(act)).perform(key, backlog.run(key).attempt)

    assert instructions == [Instruction.ABANDON, Instruction.ABANDON]
    assert ended == Abandoned()
    assert (backlog.run(key).state, backlog.run(key).attempt) == (RunState.RUNNING, 2)
    assert backlog.column(key, "executor") == "them"


def test_earlier_attempt_of_the_same_executor_overwrites_no_result(backlog):
    key = claimed_run(backlog, runner="function")

    def act(_, next_instruction):
        if backlog.run(key).attempt == 1:
            requeue(backlog, key)
            claim(backlog)
            assert performer.perform(key, backlog.run(key).attempt) == Ended(state=RunState.FAILED, reason="second")
            return Ended(state=RunState.SUCCEEDED, reason="first")
        return Ended(state=RunState.FAILED, reason="second")

    performer = new_performer(backlog, function=FunctionRunner(act))
    ended = performer.perform(key, backlog.run(key).attempt)

    assert ended == Abandoned()
    assert (backlog.run(key).attempt, backlog.run(key).reason) == (2, "second")


def test_end_of_a_run_is_recorded_once_the_database_is_available(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="function")
    locking_connection = sqlite3.connect(
        sqlite_backlog.url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False
    )
    unlock_timer = threading.Timer(2.2, lambda: locking_connection.execute("ROLLBACK"))

    def act(_, next_instruction):
        locking_connection.execute("BEGIN IMMEDIATE")
        unlock_timer.start()
        return SUCCEEDED

    new_performer(sqlite_backlog, function=FunctionRunner(act)).perform(key, sqlite_backlog.run(key).attempt)

    unlock_timer.join()
    locking_connection.close()
    assert sqlite_backlog.run(key).state is RunState.SUCCEEDED


def test_each_attempt_gets_a_new_package(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="function")
    file_names = []

    def act(package, _):
        file_names.append(sorted(path.name for path in package.directory.iterdir()))
        (package.directory / "left over").touch()
        return Abandoned()

    performer = new_performer(sqlite_backlog, function=FunctionRunner(act))
    for _ in range(2):
        performer.perform(key, sqlite_backlog.run(key).attempt)
        requeue(sqlite_backlog, key)
        claim(sqlite_backlog)

    assert file_names == [["envelope.json", "envelope.txt", "event-payload.json", "prompt.md"]] * 2


def test_success_resets_the_failures_in_a_row_before_it(backlog):
    """A usual success writes nothing to the automation, so the run must know of a failure before it."""
    automation = backlog.automation(runner="faulty")
    counts = []
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.FAILED, RunState.SUCCEEDED):
        key = backlog.queue(automation, payload=str(len(counts)).encode())
        claim(backlog)
        new_performer(backlog, faulty=FunctionRunner(lambda *_, state=state: Ended(state=state))).perform(key, 1)
        with backlog.database.read() as tx:
            counts.append(
                tx.one("SELECT failures_in_row FROM automations WHERE id = :id", id=automation)["failures_in_row"]
            )

    assert counts == [0, 1, 2, 0]
