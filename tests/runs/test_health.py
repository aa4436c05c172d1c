"""Hosts that can't perform runs for a while: no run is the worse for it, and nobody has to do anything afterwards."""

import errno
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hookmill.domain.run import Ended, RunState
from hookmill.runs import health
from hookmill.runs.health import HostHealth, probe
from hookmill.runs.package import Package, write_package
from hookmill.runs.runner import HostFault
from hookmill.runs.runners import CommandRunner, PackageRunner
from tests.runs.backlog import Backlog, Worker
from tests.runs.samples import a_run, keep_going
from tests.support.waiting import until


@contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """A disk without a free inode in the directory's place; a file in the way, where nobody may mount one."""
    directory.mkdir(parents=True)
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=10", "hookmill-test", directory], stderr=subprocess.DEVNULL
    )
    if not mounted:
        directory.rmdir()
        directory.write_text("in the way")
    try:
        if mounted:
            for number in range(9):
                (directory / str(number)).touch()
        yield
    finally:
        if mounted:
            subprocess.check_call(["umount", "--lazy", directory])
        else:
            directory.unlink()
            directory.mkdir()


@contextmanager
def no_more_open_files() -> Iterator[None]:
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, files_max[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files_max)


# Workers


def test_a_worker_with_a_bad_disk_fails_no_run_and_recovers(on_postgres: Backlog, tmp_path: Path):
    automation = on_postgres.automation()
    bad = tmp_path / "bad" / "runs"

    with Worker(on_postgres, data=bad.parent, attempts_max=1) as sick:
        on_postgres.wait_for_end(on_postgres.queue(automation))
        for package in bad.iterdir():
            for file in package.iterdir():
                file.unlink()
            package.rmdir()
        bad.rmdir()
        bad.write_text("in the way")
        with Worker(on_postgres) as healthy:
            runs = on_postgres.wait_for_end(*on_postgres.queue_many(automation, 30))
            healthy.stop()
        waiting = on_postgres.queue(automation)
        bad.unlink()
        (later,) = on_postgres.wait_for_end(waiting)
        told = sick.stop()

    assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 1)}
    assert (later.state, later.attempt) == (RunState.SUCCEEDED, 1)
    assert on_postgres.column(waiting, "executor") == sick.executor
    (failure,) = told["failures"]
    assert "runs: WaitingForHost" in failure
    assert str(bad) in failure
    (recovery,) = told["recoveries"]
    assert str(bad) in recovery


def test_a_worker_that_starts_on_a_full_disk_waits_until_there_is_room(backlog: Backlog):
    key = backlog.queue(backlog.automation())

    with full_disk(backlog.data / "runs"):
        with Worker(backlog, attempts_max=1) as worker:
            time.sleep(0.3)
            waiting = backlog.run(key)
            told = worker.stop()
    with Worker(backlog, attempts_max=1):
        (run,) = backlog.wait_for_end(key)

    assert (waiting.state, waiting.attempt) == (RunState.QUEUED, 0)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    (failure,) = told["failures"]
    assert "Free disk space or inodes" in failure


def test_a_fault_of_one_runner_stops_no_other(backlog: Backlog):
    faulty = [backlog.queue(backlog.automation(runner="faulty")) for _ in range(6)]

    with Worker(backlog) as worker:
        until(lambda: any(backlog.column(key, "claimed_at") for key in faulty))
        others = backlog.wait_for_end(*backlog.queue_many(backlog.automation(), 20))
        told = worker.stop()

    assert {(run.state, run.attempt) for run in others} == {(RunState.SUCCEEDED, 1)}
    assert {(backlog.run(key).state, backlog.run(key).attempt) for key in faulty} == {(RunState.QUEUED, 0)}
    (failure,) = told["failures"]
    assert "No process left. This worker claims no run for the runner 'faulty' for a while" in failure


# Runners


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return write_package(tmp_path / "runs", a_run(), b"{}")


def test_a_guard_that_cannot_be_started_is_the_hosts_fault(package: Package):
    with no_more_open_files(), pytest.raises(HostFault, match="Too many open files"):
        CommandRunner(argv=("true",)).run(package, keep_going)


def test_an_output_file_that_cannot_be_opened_is_the_hosts_fault(package: Package):
    (package.directory / "output.log").mkdir()

    with pytest.raises(HostFault, match="could not be started: Is a directory") as raised:
        CommandRunner(argv=("true",)).run(package, keep_going)

    assert not raised.value.counts_as_attempt


def test_arguments_that_no_system_takes_are_the_commands_fault(package: Package):
    ended = CommandRunner(argv=("echo", "x" * 10_000_000)).run(package, keep_going)

    assert isinstance(ended, Ended)
    assert ended.state is RunState.FAILED
    assert ended.reason == "The command could not be started: Argument list too long."


def test_a_package_that_cannot_be_made_durable_is_the_hosts_fault(package: Package):
    with no_more_open_files(), pytest.raises(HostFault, match="Too many open files"):
        PackageRunner().run(package, keep_going)


# The probe


def test_a_probe_leaves_nothing_behind(tmp_path: Path):
    probe(tmp_path / "runs")

    assert list((tmp_path / "runs").iterdir()) == []


def test_a_probe_of_a_full_disk_fails_and_leaves_nothing_behind(tmp_path: Path):
    with full_disk(tmp_path / "runs"):
        with pytest.raises(OSError, match=r"No space left|exists"):
            probe(tmp_path / "runs")

        assert list((tmp_path / "runs").glob(".*")) == []


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Told:
    """A host's health, and what was said of it."""

    def __init__(self, packages: Path) -> None:
        self.said: list[str] = []
        self.health = HostHealth(
            packages,
            report_failure=lambda _where, error: self.said.append(str(error)),
            report_recovery=lambda _where, what: self.said.append(what),
        )

    def seconds_until_it_claims(self, clock: Clock) -> int:
        for seconds in range(1000):
            if self.health.may_claim():
                return seconds
            clock.now += 1
        raise AssertionError("it never claims again")


def test_a_fault_that_many_runs_meet_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, told = Clock(monkeypatch), Told(tmp_path)

    for _ in range(4):
        told.health.report_fault(HostFault("No space left."))

    assert not told.health.may_claim()
    assert told.said == ["No space left. This worker claims no runs until a test write succeeds."]
    assert told.seconds_until_it_claims(clock) == 1
    assert told.said[1:] == [f"A test write in {tmp_path} succeeded: this worker claims runs again."]


def test_runs_that_fail_after_good_probes_are_claimed_more_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, told = Clock(monkeypatch), Told(tmp_path)
    waits = []

    for _ in range(7):
        told.health.report_fault(HostFault("Over quota."))
        waits.append(told.seconds_until_it_claims(clock))
    told.health.report_performed("package")
    told.health.report_fault(HostFault("Over quota."))

    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert told.seconds_until_it_claims(clock) == 1
    assert len(told.said) == 4, "twice in a minute and a half"


def test_a_runner_with_faults_is_tried_more_slowly_until_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, told = Clock(monkeypatch), Told(tmp_path)
    waits = []

    for _ in range(7):
        told.health.report_fault(HostFault("No process left.", runner="agent"))
        began = clock.now
        while told.health.runners_at_fault():
            clock.now += 1
        waits.append(clock.now - began)
    told.health.report_performed("other")
    told.health.report_performed("agent")
    told.health.report_performed("agent")

    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert told.health.may_claim()
    *faults, recovery = told.said
    assert set(faults) == {
        "No process left. This worker claims no run for the runner 'agent' for a while, and then tries again."
    }
    assert len(faults) == 2, "twice in a minute and a half"
    assert recovery == "A run was performed with the runner 'agent': it works again."


def test_a_disk_that_stays_bad_is_probed_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, told = Clock(monkeypatch), Told(tmp_path)
    probed = []

    def refuse(_: Path) -> None:
        probed.append(clock.now)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(health, "probe", refuse)
    told.health.probe_disk()
    for _ in range(30):
        clock.now += 0.1
        told.health.may_claim()

    assert len(probed) in (3, 4)
    assert len(told.said) == 1
    assert "Input/output error" in told.said[0]
