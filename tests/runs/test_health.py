"""Hosts that can't perform runs for a while: no run fails because of that, and the workers recover by themselves."""

import errno
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hookmill.domain.run import Ended, RunState
from hookmill.runs import health
from hookmill.runs.health import HostHealth, probe
from hookmill.runs.package import write_package
from hookmill.runs.runner import HostFault
from hookmill.runs.runners import CommandRunner, PackageRunner
from tests.runs.backlog import Worker
from tests.runs.samples import always_continue, sample_run
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.waiting import until


@contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """Mount a file system without free inodes at the directory. If mounts are forbidden, put a file in its place."""
    directory.mkdir(parents=True)
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=10", "hookmill-test", directory], stderr=subprocess.DEVNULL
    )
    if not mounted:
        directory.rmdir()
        directory.write_text("not a directory")
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
def exhausted_file_descriptors(left: int = 0) -> Iterator[None]:
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + left, files_max[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files_max)


# Workers


def test_worker_with_a_faulty_disk_fails_no_run_and_recovers(postgres_backlog, tmp_path):
    automation = postgres_backlog.automation()
    packages = tmp_path / "faulty" / "runs"

    with Worker(postgres_backlog, data=packages.parent, attempts_max=1) as faulty_worker:
        postgres_backlog.wait_for_end(postgres_backlog.queue(automation))
        for package in packages.iterdir():
            for file in package.iterdir():
                file.unlink()
            package.rmdir()
        packages.rmdir()
        packages.write_text("not a directory")
        with Worker(postgres_backlog) as healthy_worker:
            runs = postgres_backlog.wait_for_end(*postgres_backlog.queue_many(automation, 30))
            healthy_worker.stop()
        key = postgres_backlog.queue(automation)
        packages.unlink()
        (later_run,) = postgres_backlog.wait_for_end(key)
        report = faulty_worker.stop()

    assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 1)}
    assert (later_run.state, later_run.attempt) == (RunState.SUCCEEDED, 1)
    assert postgres_backlog.column(key, "executor") == faulty_worker.executor
    (failure,) = report["failures"]
    assert "runs: WaitingForHost" in failure
    assert str(packages) in failure
    (recovery,) = report["recoveries"]
    assert str(packages) in recovery


@ON_POSTGRES_IN_PROOF
def test_worker_started_on_a_full_disk_leaves_runs_queued(backlog):
    key = backlog.queue(backlog.automation())

    with full_disk(backlog.data / "runs"):
        with Worker(backlog, attempts_max=1) as worker:
            time.sleep(0.3)
            queued_run = backlog.run(key)
            report = worker.stop()
    with Worker(backlog, attempts_max=1):
        (run,) = backlog.wait_for_end(key)

    assert (queued_run.state, queued_run.attempt) == (RunState.QUEUED, 0)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    (failure,) = report["failures"]
    assert "Free disk space or inodes" in failure


@ON_POSTGRES_IN_PROOF
def test_fault_of_one_runner_does_not_delay_runs_of_other_runners(backlog):
    faulty = [backlog.queue(backlog.automation(runner="faulty")) for _ in range(6)]

    with Worker(backlog) as worker:
        until(lambda: any(backlog.column(key, "claimed_at") for key in faulty))
        others = backlog.wait_for_end(*backlog.queue_many(backlog.automation(), 20))
        report = worker.stop()

    assert {(run.state, run.attempt) for run in others} == {(RunState.SUCCEEDED, 1)}
    assert {(backlog.run(key).state, backlog.run(key).attempt) for key in faulty} == {(RunState.QUEUED, 0)}
    (failure,) = report["failures"]
    assert "No process left. This worker claims no run for the runner 'faulty' for a while" in failure


# Runners


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path / "runs", sample_run(), b"{}")


def test_failure_to_start_the_guard_is_a_host_fault(package):
    with exhausted_file_descriptors(), pytest.raises(HostFault, match="Too many open files"):
        CommandRunner(argv=("true",)).run(package, always_continue)


def test_program_that_a_guard_needs_is_named(package, own_guards, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(HostFault, match=f"could not be started: {re.escape(str(python))}: Permission denied"):
        CommandRunner(argv=("true",)).run(package, always_continue)


def test_failure_to_open_the_output_file_is_a_host_fault(package):
    (package.directory / "output.log").mkdir()

    with pytest.raises(HostFault, match="could not be started: Is a directory") as raised:
        CommandRunner(argv=("true",)).run(package, always_continue)

    assert not raised.value.counts_as_attempt


def test_command_with_too_long_arguments_fails_its_run(package):
    ended = CommandRunner(argv=("echo", "x" * 10_000_000)).run(package, always_continue)

    assert isinstance(ended, Ended)
    assert ended.state is RunState.FAILED
    assert ended.reason == "The command 'echo' could not be started: Argument list too long."


def test_failure_to_sync_the_package_is_a_host_fault(package):
    with exhausted_file_descriptors(), pytest.raises(HostFault, match="Too many open files"):
        PackageRunner().run(package, always_continue)


# The probe


def test_probe_leaves_no_files(tmp_path):
    probe(tmp_path / "runs")

    assert list((tmp_path / "runs").iterdir()) == []


def test_probe_of_a_full_disk_fails_and_leaves_no_files(tmp_path):
    with full_disk(tmp_path / "runs"):
        with pytest.raises(OSError, match=r"No space left|exists"):
            probe(tmp_path / "runs")

        assert list((tmp_path / "runs").glob(".*")) == []


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class ObservedHost:
    """A host's health, and the messages that it reported."""

    def __init__(self, packages: Path):
        self.messages: list[str] = []
        self.health = HostHealth(
            packages,
            report_failure=lambda _component, error: self.messages.append(str(error)),
            report_recovery=lambda _component, message: self.messages.append(message),
        )

    def seconds_until_claims_are_allowed(self, clock: Clock) -> int:
        for seconds in range(1000):
            if self.health.may_claim():
                return seconds
            clock.now += 1
        raise AssertionError("claims stay forbidden")


def test_host_fault_of_many_runs_is_logged_once(tmp_path, monkeypatch):
    clock, host = Clock(monkeypatch), ObservedHost(tmp_path)

    for _ in range(4):
        host.health.report_fault(HostFault("No space left."))

    assert not host.health.may_claim()
    assert host.messages == ["No space left. This worker claims no runs until a test write succeeds."]
    assert host.seconds_until_claims_are_allowed(clock) == 1
    assert host.messages[1:] == [f"A test write in {tmp_path} succeeded: this worker claims runs again."]


def test_worker_claims_less_often_if_runs_fail_after_successful_probes(tmp_path, monkeypatch):
    clock, host = Clock(monkeypatch), ObservedHost(tmp_path)
    pauses = []

    for _ in range(7):
        host.health.report_fault(HostFault("Over quota."))
        pauses.append(host.seconds_until_claims_are_allowed(clock))
    host.health.report_performed("package")
    host.health.report_fault(HostFault("Over quota."))

    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert host.seconds_until_claims_are_allowed(clock) == 1
    assert len(host.messages) == 4, "each message is logged twice in a minute and a half"


def test_faulty_runner_is_retried_less_often_until_it_works(tmp_path, monkeypatch):
    clock, host = Clock(monkeypatch), ObservedHost(tmp_path)
    pauses = []

    for _ in range(7):
        host.health.report_fault(HostFault("No process left.", runner="agent"))
        began = clock.now
        while host.health.runners_at_fault():
            clock.now += 1
        pauses.append(clock.now - began)
    host.health.report_performed("other")
    host.health.report_performed("agent")
    host.health.report_performed("agent")

    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert host.health.may_claim()
    *faults, recovery = host.messages
    assert set(faults) == {
        "No process left. This worker claims no run for the runner 'agent' for a while, and then tries again."
    }
    assert len(faults) == 2, "each message is logged twice in a minute and a half"
    assert recovery == "A run was performed with the runner 'agent': it works again."


def test_faulty_disk_is_probed_once_a_second(tmp_path, monkeypatch):
    clock, host = Clock(monkeypatch), ObservedHost(tmp_path)
    probed_at = []

    def fail(_):
        probed_at.append(clock.now)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(health, "probe", fail)
    host.health.probe_disk()
    for _ in range(30):
        clock.now += 0.1
        host.health.may_claim()

    assert len(probed_at) in (3, 4)
    assert len(host.messages) == 1
    assert "Input/output error" in host.messages[0]
