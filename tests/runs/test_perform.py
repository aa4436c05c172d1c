"""One run's life, without the engine around it."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, RunState
from hookmill.runs.health import HostHealth, WaitingForHost
from hookmill.runs.package import Package
from hookmill.runs.perform import Performer
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction, Runner
from hookmill.runs.runners import PackageRunner
from hookmill.store.runs import attempts, claims, executors, reading
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds

US = ExecutorId("us")


@dataclass(frozen=True)
class Acting:
    """A runner that does what the test says."""

    act: Callable[[Package, NextInstruction], Ended | Abandoned]
    grace_seconds: float = 0

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        return self.act(package, next_instruction)


DONE = Ended(state=RunState.SUCCEEDED)


ATTEMPTS_MAX = 3


def performer(backlog: Backlog, failures: list[Any] | None = None, **runners: Runner) -> Performer:
    heard = failures if failures is not None else []
    return Performer(
        database=backlog.database,
        executor=US,
        packages=backlog.data / "runs",
        runners={"package": PackageRunner(), **runners},
        clock=microseconds,
        abandon_runs=threading.Event(),
        report_failure=lambda where, error: heard.append((where, error)),
        attempts_max=ATTEMPTS_MAX,
        health=HostHealth(
            backlog.data / "runs",
            report_failure=lambda where, error: heard.append((where, error)),
            report_recovery=ignore,
        ),
        forget_in_engine=lambda key: heard.append(key),
    )


def ignore(_where: str, _what: str) -> None: ...


def taken(backlog: Backlog, runner: str = "package", payload: bytes = b"{}") -> RunKey:
    """A run in our hands."""
    key = backlog.queue(backlog.automation(runner=runner), payload=payload)
    take(backlog)
    return key


def take(backlog: Backlog, executor: ExecutorId = US) -> None:
    with backlog.database.write() as tx:
        claims.claim(tx, executor=executor, at_most=9, after=FactoryId(""), now=1)


def take_back(backlog: Backlog, key: RunKey) -> None:
    with backlog.database.write() as tx:
        executors.requeue(tx, [key], attempts_max=9, now=1)


def test_a_run_is_performed_from_its_row_to_its_end(backlog):
    key = taken(backlog, payload=b"[1,  2]")

    performer(backlog).perform(key, backlog.run(key).attempt)

    run = backlog.run(key)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    assert run.started_at <= run.finished_at
    assert run.output_tail.startswith("The package is ready to be picked up in ")
    (package,) = (backlog.data / "runs").iterdir()
    assert (package / "event-payload.json").read_bytes() == b"[1,  2]"


def test_run_of_a_webhook_that_was_deleted_meanwhile_gets_its_payload(backlog):
    key = taken(backlog, payload=b"[1,  2]")
    with backlog.database.write() as tx:
        assert tx.run("UPDATE webhooks SET state = 'deleted', deleted_at = 1") == 1

    performer(backlog).perform(key, backlog.run(key).attempt)

    assert backlog.run(key).state is RunState.SUCCEEDED
    (package,) = (backlog.data / "runs").iterdir()
    assert (package / "event-payload.json").read_bytes() == b"[1,  2]"


def test_a_run_whose_runner_is_not_configured_fails_with_the_reason(on_sqlite):
    key = taken(on_sqlite, runner="agent")

    performer(on_sqlite).perform(key, on_sqlite.run(key).attempt)

    run = on_sqlite.run(key)
    assert run.state is RunState.FAILED
    assert (run.reason or "").startswith("The service started without a runner 'agent'.")


def test_a_run_without_its_payload_fails_with_the_reason(on_sqlite):
    key = taken(on_sqlite)
    with on_sqlite.database.write() as tx:
        tx.run("DELETE FROM payloads")

    performer(on_sqlite).perform(key, on_sqlite.run(key).attempt)

    assert on_sqlite.run(key).reason == "The delivery's payload is no longer stored."


def test_a_run_whose_package_cannot_be_written_goes_back_uncounted(backlog):
    key = taken(backlog)
    backlog.data.mkdir()
    (backlog.data / "runs").write_text("in the way")
    failures: list[Any] = []

    ended = performer(backlog, failures).perform(key, backlog.run(key).attempt)

    run = backlog.run(key)
    assert ended == Abandoned()
    assert (run.state, run.attempt, run.started_at, run.claimed_at) == (RunState.QUEUED, 0, None, None)
    (_, fault), forgotten = failures
    assert forgotten == key
    assert str(fault).startswith(f"A run's package could not be written to {backlog.data}/runs: File exists.")


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
def test_a_fault_of_the_host_gives_the_run_back_and_never_ends_it(on_sqlite, error, attempt):
    key = taken(on_sqlite, runner="acting")
    failures: list[Any] = []

    def act(*_: object) -> Ended:
        raise error

    performing = performer(on_sqlite, failures, acting=Acting(act))
    performing.perform(key, on_sqlite.run(key).attempt)

    run = on_sqlite.run(key)
    assert (run.state, run.attempt, run.reason) == (RunState.QUEUED, attempt, None)
    (_, fault), forgotten = failures
    assert isinstance(fault, WaitingForHost)
    assert forgotten == key
    assert performing.health.may_claim()
    assert list(performing.health.runners_at_fault()) == ["acting"]


def test_a_command_that_breaks_its_guard_each_time_ends_its_run(on_sqlite):
    key = taken(on_sqlite, runner="acting")

    def act(*_: object) -> Ended:
        raise HostFault("The process that guards a command ended with a fault.", counts_as_attempt=True)

    performing = performer(on_sqlite, acting=Acting(act))
    for _ in range(ATTEMPTS_MAX):
        assert on_sqlite.run(key).state is RunState.RUNNING
        performing.perform(key, on_sqlite.run(key).attempt)
        take(on_sqlite)

    run = on_sqlite.run(key)
    assert (run.state, run.attempt) == (RunState.INTERRUPTED, ATTEMPTS_MAX)
    assert run.reason == "The process that guards a command ended with a fault. It was attempt 3, the last."


def test_a_payload_is_read_as_soon_as_the_database_is_back(on_sqlite, monkeypatch):
    key = taken(on_sqlite)
    read, failed = reading.payload_of, []

    def read_at_last(*arguments: Any) -> bytes | None:
        if not failed:
            failed.append(True)
            raise StoreUnavailable("away")
        return read(*arguments)

    monkeypatch.setattr(reading, "payload_of", read_at_last)

    performer(on_sqlite).perform(key, on_sqlite.run(key).attempt)

    assert on_sqlite.run(key).state is RunState.SUCCEEDED


def test_a_runner_with_a_fault_fails_its_run_and_the_operator_hears_of_it(on_sqlite):
    key = taken(on_sqlite, runner="faulty")
    failures: list[Any] = []

    def fault(*_: object) -> Ended:
        raise ZeroDivisionError("a secret detail")

    performer(on_sqlite, failures, faulty=Acting(fault)).perform(key, on_sqlite.run(key).attempt)

    run = on_sqlite.run(key)
    assert run.state is RunState.FAILED
    assert run.reason == "The runner 'faulty' has a fault. See the service's log."
    assert [(where, type(error)) for where, error in failures] == [("runner faulty", ZeroDivisionError)]


def test_a_run_claimed_by_another_process_is_not_performed(backlog):
    key = backlog.queue(backlog.automation())
    take(backlog, ExecutorId("them"))

    assert performer(backlog).perform(key, backlog.run(key).attempt) is None

    assert backlog.run(key).state is RunState.RUNNING
    assert not (backlog.data / "runs").exists()


def test_a_runner_at_work_learns_that_its_run_was_cancelled(backlog):
    key = taken(backlog, runner="acting")
    told = []

    def act(_: Package, next_instruction: NextInstruction) -> Ended:
        told.append(next_instruction())
        backlog.request_cancel(key)
        told.append(next_instruction())
        return DONE

    performer(backlog, acting=Acting(act)).perform(key, backlog.run(key).attempt)

    assert told == [Instruction.CONTINUE, Instruction.CANCEL]


def test_a_runner_goes_on_while_its_run_cannot_be_read(on_sqlite, monkeypatch):
    key = taken(on_sqlite, runner="acting")
    failures: list[Any] = []

    def act(_: Package, next_instruction: NextInstruction) -> Ended:
        with monkeypatch.context() as patched:
            patched.setattr(attempts, "status", lambda *_, **__: 1 / 0)
            assert next_instruction() is Instruction.CONTINUE
        return DONE

    performer(on_sqlite, failures, acting=Acting(act)).perform(key, on_sqlite.run(key).attempt)

    assert on_sqlite.run(key).state is RunState.SUCCEEDED
    ((where, error),) = failures
    assert (where, type(error)) == ("runs", ZeroDivisionError)


def test_a_runner_declared_dead_is_stopped_without_effect(backlog):
    key = taken(backlog, runner="acting")
    told = []

    def act(_: Package, next_instruction: NextInstruction) -> Ended:
        take_back(backlog, key)
        told.append(next_instruction())
        take(backlog, ExecutorId("them"))
        told.append(next_instruction())
        return DONE

    ended = performer(backlog, acting=Acting(act)).perform(key, backlog.run(key).attempt)

    assert told == [Instruction.ABANDON, Instruction.ABANDON]
    assert ended == Abandoned()
    assert (backlog.run(key).state, backlog.run(key).attempt) == (RunState.RUNNING, 2)
    assert backlog.column(key, "executor") == "them"


def test_an_earlier_attempt_of_the_same_process_has_no_effect_either(backlog):
    key = taken(backlog, runner="acting")

    def act(_: Package, next_instruction: NextInstruction) -> Ended:
        if backlog.run(key).attempt == 1:
            take_back(backlog, key)
            take(backlog)
            assert performing.perform(key, backlog.run(key).attempt) == Ended(state=RunState.FAILED, reason="second")
            return Ended(state=RunState.SUCCEEDED, reason="first")
        return Ended(state=RunState.FAILED, reason="second")

    performing = performer(backlog, acting=Acting(act))
    ended = performing.perform(key, backlog.run(key).attempt)

    assert ended == Abandoned()
    assert (backlog.run(key).attempt, backlog.run(key).reason) == (2, "second")


def test_an_end_is_recorded_as_soon_as_the_database_is_back(on_sqlite):
    key = taken(on_sqlite, runner="acting")
    holder = sqlite3.connect(on_sqlite.url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    back = threading.Timer(2.2, lambda: holder.execute("ROLLBACK"))

    def act(_: Package, next_instruction: NextInstruction) -> Ended:
        holder.execute("BEGIN IMMEDIATE")
        back.start()
        return DONE

    performer(on_sqlite, acting=Acting(act)).perform(key, on_sqlite.run(key).attempt)

    back.join()
    holder.close()
    assert on_sqlite.run(key).state is RunState.SUCCEEDED


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_attempt_has_a_package_of_its_own(on_sqlite, attempt):
    key = taken(on_sqlite, runner="acting")
    seen = []

    def act(package: Package, _: NextInstruction) -> Ended | Abandoned:
        seen.append(sorted(path.name for path in package.directory.iterdir()))
        (package.directory / "left over").touch()
        return Abandoned()

    performing = performer(on_sqlite, acting=Acting(act))
    for _ in range(attempt):
        performing.perform(key, on_sqlite.run(key).attempt)
        take_back(on_sqlite, key)
        take(on_sqlite)

    assert seen == [["envelope.json", "envelope.txt", "event-payload.json", "prompt.md"]] * attempt
