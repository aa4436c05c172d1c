"""Runs that use up the host: the largest one is ended before the host lacks what deliveries need."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import Package, allow_traversal, list_files, write_package
from hookmill.runs.reserve import ReserveWatch, WatchedCommand
from hookmill.runs.runner import HostFault
from hookmill.runs.runners import CommandSettings, RunnerContext
from hookmill.sandbox import cgroup
from hookmill.sandbox.cgroup import usable_cgroup
from hookmill.sandbox.reserve import HostReserve, Resource
from tests.runs.samples import always_continue, sample_run
from tests.support.bubblewrap import bubblewrap_in_path
from tests.support.python_programs import python
from tests.support.waiting import until

MIB: Final = 1_048_576
ACCOUNT: Final = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
SANDBOX: Final[dict[str, Any]] = {
    "sandbox": "bubblewrap",
    "bubblewrap": {"limits": "approximate", "memory_mb": 32_768, "disk_mb": 32_768},
}
CGROUPS: Final = ["no cgroup", *(["cgroup"] if usable_cgroup() is not None else [])]
NO_SANDBOX: Final[dict[str, Any]] = {"sandbox": "none"}


@pytest.fixture(scope="module", autouse=True)
def sandboxes():
    with bubblewrap_in_path():
        yield


@pytest.fixture
def data():
    """A data directory that other accounts can pass."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o711)
    try:
        (top / "data").mkdir()
        yield top / "data"
    finally:
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def small_disk(directory: Path) -> Iterator[HostReserve]:
    """A file system of 1 GiB with 50,000 inodes at the directory, with a reserve of 102 MiB and 6,000 inodes. 300 MiB
    are free. Without the right to mount, so much of the present file system may be used; then inodes are not scarce."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1g,nr_inodes=50000", "hookmill-test", str(directory)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        if is_mounted:
            directory.chmod(0o711)
            with (directory / "filler").open("wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, 724 * MIB)
            yield HostReserve(directory, 0, 0)
        else:
            yield HostReserve(directory, shutil.disk_usage(directory).free - 300 * MIB, 0)
    finally:
        if is_mounted:
            until(lambda: not subprocess.run(["umount", str(directory)]).returncode, "the disk is unmounted")


def output_of(package: Package) -> str:
    path = package.directory / "output.log"
    return path.read_text() if path.exists() else ""


class Runs:
    """Performs commands at the same time, each in a thread."""

    def __init__(self, data: Path, watch: ReserveWatch):
        self._packages = data / "runs"
        self._watch = watch
        self._threads: list[threading.Thread] = []
        self.results: dict[str, Any] = {}
        """What has become of each: `Ended` or `HostFault`."""

    def start(self, name: str, script: str, **settings: Any) -> Package:
        package = write_package(self._packages, sample_run(), b"{}")
        allow_traversal(self._packages)
        command = CommandSettings(
            argv=(python(), "-I", "-S", "-c", script), user=ACCOUNT, time_limit_seconds=1_000, **settings
        ).create_runner(RunnerContext(reserve_watch=self._watch))

        def perform():
            try:
                self.results[name] = replace(command, grace_seconds=1).run(package, always_continue)
            except HostFault as fault:
                self.results[name] = fault

        self._threads.append(threading.Thread(target=perform))
        self._threads[-1].start()
        return package

    def wait(self):
        for thread in self._threads:
            thread.join()


@contextmanager
def watching(reserve: HostReserve, failures: list[BaseException] | None = None) -> Iterator[ReserveWatch]:
    def report(_: str, error: BaseException):
        (failures if failures is not None else []).append(error)

    watch = ReserveWatch(reserve, report_failure=report)
    watch.start()
    try:
        yield watch
    finally:
        watch.close()


WAITS_FOR_A_FILE: Final = (
    "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('continue'): time.sleep(0.05)"
)
# As fast as a quick disk. The memory, where tests have their files, is quicker.
FILLS_THE_DISK: Final = """
import time
with open("large", "wb") as file:
    while True:
        file.write(bytes(1048576))
        time.sleep(0.005)
"""
GREEDY: Final = {
    "file": FILLS_THE_DISK,
    "hidden directory": f"import os\nos.mkdir('hidden'); os.chdir('hidden'); os.chmod('.', 0o300)\n{FILLS_THE_DISK}",
    "deleted file": """
import os, time
file = open("large", "wb", buffering=0)
os.unlink("large")
while True:
    file.write(bytes(1048576))
    time.sleep(0.005)
""",
    "files in a socket": """
import os, socket, time
near, far = socket.socketpair()
while True:
    file = os.open("large", os.O_CREAT | os.O_WRONLY)
    os.unlink("large")
    for _ in range(4):
        os.write(file, bytes(1048576))
        time.sleep(0.005)
    socket.send_fds(near, [b"x"], [file])
    os.close(file)
""",
    "allocated space": """
import os, time
for number in range(1000):
    os.posix_fallocate(os.open(str(number), os.O_CREAT | os.O_WRONLY), 0, 8 * 1048576)
    time.sleep(0.04)
""",
    "empty files": """
import itertools, time
for number in itertools.count():
    open(f"{number}", "w").close()
    if number % 20 == 0: time.sleep(0.001)
""",
}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [*((kind, SANDBOX) for kind in GREEDY), ("deleted file", NO_SANDBOX), ("allocated space", NO_SANDBOX)],
    ids=[*(f"{kind}, bubblewrap" for kind in GREEDY), "deleted file, none", "allocated space, none"],
)
def test_run_that_fills_the_disk_is_ended_and_others_go_on(data, kind, settings):
    failures: list[BaseException] = []
    with small_disk(data) as reserve, watching(reserve, failures) as watch:
        runs = Runs(data, watch)
        others = [runs.start(f"other {number}", WAITS_FOR_A_FILE, **settings) for number in range(2)]
        # If nobody can tell which run fills the disk, the newest one is ended.
        until(lambda: all((package.directory / "begun").exists() for package in others), "the others have begun")
        lowest = LowestFree(data)
        greedy = runs.start("greedy", "import sys\nprint('begun', flush=True)\n" + GREEDY[kind], **settings)
        with lowest:
            until(lambda: "greedy" in runs.results, "the greedy run has ended")
        until(lambda: watch.shortage is None, "the host has its reserve again")
        kept, _ = list_files(data / "runs", greedy.run.id)
        for package in others:
            (package.directory / "continue").touch()
        runs.wait()

    others_ended = [runs.results[f"other {number}"] for number in range(2)]
    assert all(isinstance(each, Ended) and each.state is RunState.SUCCEEDED for each in others_ended), others_ended
    result = runs.results["greedy"]
    assert (result.state, result.output_tail) == (RunState.FAILED, "begun\n")
    resource = Resource.INODES if kind == "empty files" else Resource.DISK
    assert (result.reason or "").startswith(f"The run was ended because it used the most {resource} of this host (")
    assert "runs must leave" in (result.reason or "")
    # Deliveries are refused below 1,000 inodes, and here below 0 bytes. Without a sandbox, a command can reserve any
    # amount in a moment.
    assert lowest.inodes > 1_000
    assert lowest.bytes > 0 or (kind == "allocated space" and settings is NO_SANDBOX)
    assert len(failures) == 1
    assert [name for name, _ in kept] == [
        "prompt.md",
        "envelope.json",
        "event-payload.json",
        "envelope.txt",
        "output.log",
    ]


def available_memory() -> int:
    [available] = re.findall(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(available) * 1024


TAKES_MEMORY: Final = {
    "files in memory": """
import os
for number in range(300):
    os.write(os.memfd_create("x"), bytes(16 * 1048576))
""",
    "files in memory in a socket": """
import os, socket, signal
near, far = socket.socketpair()
for number in range(50):
    file = os.memfd_create("x")
    os.posix_fallocate(file, 0, 64 * 1048576)
    socket.send_fds(near, [b"x"], [file])
    os.close(file)
signal.pause()
""",
    "page tables": """
import mmap, os, signal
for child in range(40):
    if os.fork() == 0:
        memory = mmap.mmap(-1, 1 << 34, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for place in range(0, 1 << 34, 1 << 21):
            memory[place]
        signal.pause()
signal.pause()
""",
    "buffers of sockets": """
import os, signal, socket
keep = []
for child in range(30):
    if os.fork() == 0:
        try:
            while True:
                keep += socket.socketpair()
                for end in keep[-2:]:
                    end.setblocking(False)
                    try:
                        while True: end.send(bytes(65536))
                    except BlockingIOError: pass
        except OSError:
            signal.pause()
signal.pause()
""",
}


@pytest.mark.parametrize("cgroups", CGROUPS)
@pytest.mark.parametrize("kind", TAKES_MEMORY)
def test_run_that_takes_the_memory_is_ended_and_others_go_on(data, kind, cgroups, monkeypatch):
    if cgroups == "no cgroup":
        monkeypatch.setattr(cgroup, "MOUNT", "/nonexistent")
    hides_its_use = (kind, cgroups) == ("files in memory in a socket", "no cgroup")
    # If another program of this machine takes or returns hundreds of megabytes meanwhile, either run may be found not
    # to be to blame, or the other one may. That does not happen three times in a row.
    result = other_result = None
    for number in range(3):
        (data / str(number)).mkdir()
        result, other_result = _results_of_greedy_and_other_run(data / str(number), kind)
        if not isinstance(result, HostFault) and _is_innocent(other_result, may_be_suspected=hides_its_use):
            break
    assert _is_innocent(other_result, may_be_suspected=hides_its_use)
    if hides_its_use and isinstance(result, HostFault):
        return
    assert isinstance(result, Ended)
    assert (result.state, (result.reason or "")[:62]) == (
        RunState.FAILED, "The run was ended because it used the most memory of this host"
    )  # fmt: skip


def _results_of_greedy_and_other_run(data: Path, kind: str) -> tuple[Any, Any]:
    # Only this much of the memory may be used.
    reserve = HostReserve(data, 0, available_memory() - 512 * MIB)
    with watching(reserve) as watch:
        runs = Runs(data, watch)
        other = runs.start("other", WAITS_FOR_A_FILE, **SANDBOX)
        runs.start("greedy", TAKES_MEMORY[kind], **SANDBOX)
        until(lambda: "greedy" in runs.results, "the greedy run has ended")
        (other.directory / "continue").touch()
        runs.wait()
    return runs.results["greedy"], runs.results["other"]


def _is_innocent(result: Any, *, may_be_suspected: bool) -> bool:
    return may_be_suspected if isinstance(result, HostFault) else result.state is RunState.SUCCEEDED


def test_run_that_hides_what_it_uses_costs_no_other_run_its_result(data):
    """The one with the most visible files, and the newest one, are not to blame."""
    with small_disk(data) as reserve, watching(reserve) as watch:
        runs = Runs(data, watch)
        writes = "open('visible', 'wb').write(bytes(33 * 1048576))\nprint('written', flush=True)\n"
        older = runs.start("older", writes + WAITS_FOR_A_FILE, **SANDBOX)
        until(lambda: "written" in output_of(older), "the older run has written its file")
        runs.start("greedy", GREEDY["files in a socket"], **SANDBOX)
        newer = runs.start("newer", writes + WAITS_FOR_A_FILE, **SANDBOX)
        until(lambda: "greedy" in runs.results, "the greedy run has ended")
        until(lambda: watch.shortage is None, "the host has its reserve again")
        for package in (older, newer):
            (package.directory / "continue").touch()
        runs.wait()

    result = runs.results["greedy"]
    assert (result.state, (result.reason or "")[:66]) == (
        RunState.FAILED, "The run was ended because it used the most disk space of this host"
    )  # fmt: skip
    assert runs.results["older"].state is RunState.SUCCEEDED
    newer_result = runs.results["newer"]
    assert isinstance(newer_result, HostFault) or newer_result.state is RunState.SUCCEEDED


def test_command_that_the_thread_no_longer_watches_has_no_fault(tmp_path):
    """The thread may have ended it between two statements. Here, all of the disk is the reserve."""
    watch = ReserveWatch(HostReserve(tmp_path, shutil.disk_usage(tmp_path).total, 0))

    assert watch.fault_of(WatchedCommand(directories=[str(tmp_path)])) is None


class LowestFree:
    """Measures the lowest free space and number of inodes in a thread."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.bytes = self.inodes = 2**63

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_: object):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.002):
            disk = os.statvfs(self._directory)
            self.bytes = min(self.bytes, disk.f_bavail * disk.f_frsize)
            self.inodes = min(self.inodes, disk.f_favail)
