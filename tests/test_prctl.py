"""Protection of the service's processes: other processes of the account can't read their environment and memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from hookmill.prctl import protect_memory, set_process_name
from tests.faults.parts import Part, all_processes_of, kill_part, parts_of, wait_until_announced
from tests.support.loaded import Forked
from tests.support.ports import free_port
from tests.support.service import Service
from tests.support.waiting import LONG_SECONDS, until

UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
"""The tests may run as root, which can read every process. Without capabilities, it can read only unprotected ones."""


def has_readable_environment(pid: int) -> bool:
    command = [*UNPRIVILEGED, "cat", f"/proc/{pid}/environ"]
    return bool(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60).stdout)


@contextmanager
def started(*command: str, service: Service) -> Iterator[None]:
    with service.log_path.open("wb") as output:
        process = subprocess.Popen(
            [*UNPRIVILEGED, *command],
            env=service.environment(),
            cwd=service.data_dir,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    service.process = process  # type: ignore[assignment]
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(LONG_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_environment_of_an_unprotected_process_is_readable():
    with subprocess.Popen([*UNPRIVILEGED, "sleep", "60"]) as process:
        try:
            until(lambda: psutil.Process(process.pid).name() == "sleep", "the command has started")
            until(lambda: has_readable_environment(process.pid), "its environment is readable")
        finally:
            process.kill()


def test_environments_of_the_service_processes_are_unreadable(tmp_path):
    service = Service(tmp_path, port=free_port())
    with started(sys.executable, "-m", "hookmill", "serve", service=service):
        until(lambda: "is ready at" in service.log(), service.log)
        assert [part for part in Part if not parts_of(service)[part]] == []

        readable = [process for process in all_processes_of(service) if has_readable_environment(process.pid)]

    assert readable == []


OPEN_MEMORY = """
import os, select, sys
session, names = int(sys.argv[1]), set()
print("watching", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(number)) == session:
                os.close(os.open(f"/proc/{number}/mem", os.O_RDONLY))
                names.add(open(f"/proc/{number}/comm").read().strip())
        except OSError:
            pass
print(*sorted(names))
"""
"""Repeatedly tries to open the memory of each process in a session. Prints the names of those that it opened."""


@pytest.mark.proof
def test_memory_of_restarted_service_processes_is_unreadable(tmp_path):
    service = Service(tmp_path, port=free_port())
    with started(sys.executable, "-m", "hookmill", "serve", service=service):
        wait_until_announced(service)
        assert service.process is not None
        watcher = subprocess.Popen(
            [*UNPRIVILEGED, sys.executable, "-c", OPEN_MEMORY, str(service.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"watching\n"

        for part in (Part.INGRESS, Part.WRITER, Part.WORKER, Part.FORKS, Part.WRITER):
            killed = kill_part(service, part)
            until(lambda: set(parts_of(service)[part]) - {killed}, f"there is another {part}")  # noqa: B023

        names, _ = watcher.communicate(timeout=LONG_SECONDS)

    assert names == b"\n"


def stay_protected() -> None:
    protect_memory()
    set_process_name("hookmill:test")
    time.sleep(60)


def test_protected_process_can_set_its_name(tmp_path):
    process = Forked(stay_protected, (), os.environ, tmp_path, tmp_path / "output")
    try:
        until(lambda: psutil.Process(process.pid).name() == "hookmill:test", "the process has its name")
    finally:
        process.kill()
        process.wait(LONG_SECONDS)


REPORT_PROTECTION_AT_IMPORT = """
import ctypes, sys
from hookmill.cli import main

PR_GET_DUMPABLE = 3

class Reporter:
    def find_spec(self, name, path=None, target=None):
        if name == "hookmill.settings":
            print("dumpable:", ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)

sys.meta_path.insert(0, Reporter())
main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_service_is_protected_before_it_loads_its_modules(command, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOOKMILL_DATA_DIR": str(tmp_path), "HOOKMILL_PORT": "no number"}

    output = subprocess.run(
        [sys.executable, "-c", REPORT_PROTECTION_AT_IMPORT, command],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=LONG_SECONDS,
    ).stdout

    assert output == b"dumpable: 0\n"
