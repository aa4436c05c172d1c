"""Runs that take the host's disk or memory, or let Git take it, while an honest sender delivers."""

import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from hookmill.domain.run import Run, RunState
from hookmill.management import WebhookWithSecret
from hookmill.sandbox import cgroup
from hookmill.sandbox.cgroup import usable_cgroup
from tests.faults.small_disk import ext4_disk
from tests.support.automations import automation_created
from tests.support.debian import program
from tests.support.git_server import GitServer, SourceRepository, serve_over_http, tree_entry
from tests.support.loaded import Forked, hookmill
from tests.support.ports import free_port
from tests.support.python_programs import python
from tests.support.service import Service, operator
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import stalls, until

MIB: Final = 1_048_576
FREE_SPACE_MIN_MB: Final = 256
DISK_MB: Final = 2_600
MEMORY_MB: Final = 3_000
"""How much of the memory the runs may take. The rest of the machine may be used by others."""
CGROUPS: Final = ["no cgroup", *(["cgroup"] if usable_cgroup() is not None else [])]
SECONDS_BETWEEN_DELIVERIES: Final = 0.05

HIDES_ON_DISK: Final = """
import os
os.mkdir("hidden"); os.chdir("hidden"); os.chmod(".", 0o300); os.chmod("..", 0o300)
deleted, kept = open("deleted", "wb"), open("kept", "wb")
os.unlink("deleted")
while True:
    deleted.write(bytes(1048576))
    kept.write(bytes(1048576))
"""
TAKES_MEMORY: Final = """
import os, signal, socket
keep = []
for child in range(40):
    if os.fork() == 0:
        try:
            while True:
                os.write(os.memfd_create("x"), bytes(4 * 1048576))
                keep += socket.socketpair()
                for end in keep[-2:]:
                    end.setblocking(False)
                    try:
                        while True: end.send(bytes(65536))
                    except BlockingIOError: pass
        except OSError:
            signal.pause()
signal.pause()
"""


def serve_without_cgroup():
    cgroup.MOUNT = "/nonexistent"  # type: ignore[misc]
    hookmill("serve")


def serve():
    hookmill("serve")


@pytest.fixture
def host(tmp_path_factory):
    """The directory of the service, on a small disk that other accounts can pass."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o711)
    (top / "bin").mkdir()
    shutil.copy(program("bwrap", package="bubblewrap"), top / "bin")
    try:
        # Twice as large as one that a run once filled.
        with ext4_disk(top / "disk", megabytes=DISK_MB):
            (top / "disk").chmod(0o711)
            yield top
    finally:
        shutil.rmtree(top)


def available_memory() -> int:
    [available] = re.findall(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(available) * 1024


@contextmanager
def git_bomb(directory: Path) -> Iterator[GitServer]:
    """A repository with a commit of 20^20 files: each of twenty trees has the previous one twenty times."""
    source = SourceRepository.create(directory)
    source.commit(f="x")
    mode, entry = "100644", source.git("rev-parse", "HEAD:f")
    for _ in range(20):
        entry = source.store("tree", b"".join(tree_entry(mode, chr(97 + number), entry) for number in range(20)))
        mode = "40000"
    source.branch("bomb", entry)
    with serve_over_http(directory / ".git") as server:
        yield server


@contextmanager
def serving_on(host: Path, repository: str, *, has_cgroup: bool, memory_min_mb: int) -> Iterator[Service]:
    limits = {"limits": "approximate", "memory_mb": 65_536, "disk_mb": 65_536}
    common = {"user": "nobody", "sandbox": "bubblewrap", "bubblewrap": limits, "time_limit_seconds": 100}
    good = "print('done')"
    scripts = {"disk": HIDES_ON_DISK, "memory": TAKES_MEMORY, "git": good, "good": good}
    runners = {
        name: {"kind": "command", "argv": [python(), "-I", "-S", "-c", script], **common}
        for name, script in scripts.items()
    }
    data = host / "disk" / "data"
    data.mkdir(mode=0o700)
    service = Service(
        data,
        settings={
            "RUNNERS": json.dumps(runners),
            "REPOSITORIES": json.dumps({"app": {"url": repository}}),
            "FREE_SPACE_MIN_MB": str(FREE_SPACE_MIN_MB),
            "FREE_MEMORY_MIN_MB": str(memory_min_mb),
            "DELIVERIES_PER_MINUTE": "10000",
            "RUNS_AT_ONCE": "4",
        },
        port=free_port(),
    )
    shutil.copyfile(migrated_sqlite_file(), data / "hookmill.db")
    environment = service.environment()
    environment["PATH"] = f"{host / 'bin'}{os.pathsep}{environment['PATH']}"
    function = serve if has_cgroup else serve_without_cgroup
    service.process = Forked(function, (), environment, data, service.log_path)  # type: ignore[assignment]
    try:
        until(lambda: is_ready(service), "the service is ready")
        yield service
    finally:
        service.kill()


def is_ready(service: Service) -> bool:
    try:
        return service.request("GET", "/readyz").status == 200
    except OSError:
        return False


def automated_webhook(
    service: Service, runner: str, options: dict[str, Any] | None = None, **delivery_filter: Any
) -> WebhookWithSecret:
    with service.management() as management:
        may = operator(management)
        webhook = management.webhooks.create(may, {"name": runner})
        trigger = {
            "provider": "webhook",
            "event": "received",
            "filter": {"webhook_ids": [webhook.webhook.uid], **delivery_filter},
        }
        automation_created(management, may, runner, runner=runner, triggers=[trigger], options=options)
        return webhook


def runs_of(service: Service, runner: str) -> list[Run]:
    with service.management() as management:
        return [run for run in management.runs.newest(operator(management), limit=200) if run.runner == runner]


class HonestSender:
    """Delivers 20 times a second, and measures what the host has left. Each 20th delivery starts a run."""

    def __init__(self, service: Service, webhook: WebhookWithSecret):
        self._service, self._webhook = service, webhook
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._measure)]
        self.answers: list[tuple[int, float]] = []
        self.free_bytes = self.memory_bytes = 2**63

    def __enter__(self) -> "HonestSender":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self):
        while not self._stop.wait(SECONDS_BETWEEN_DELIVERIES):
            number = len(self.answers)
            began = time.monotonic()
            body = json.dumps({"number": number, "starts": number % 20 == 0}).encode()
            with stalls() as stall_seconds:
                status = self._service.post(self._webhook, body).status
                seconds = time.monotonic() - began
            self.answers.append((status, seconds - sum(stall_seconds)))

    def _measure(self):
        while not self._stop.wait(0.005):
            status = os.statvfs(self._service.data_dir)
            self.free_bytes = min(self.free_bytes, status.f_bavail * status.f_frsize)
            self.memory_bytes = min(self.memory_bytes, available_memory())


@pytest.mark.proof
@pytest.mark.parametrize("cgroups", CGROUPS)
@pytest.mark.parametrize("resource", ["disk", "memory", "git"])
def test_hostile_runs_stop_neither_deliveries_nor_other_runs(host, resource, cgroups):
    available = available_memory()
    memory_min_mb = available // MIB - MEMORY_MB if resource == "memory" else 1
    with (
        git_bomb(host / "source") as repository,
        serving_on(host, repository.url, has_cgroup=cgroups == "cgroup", memory_min_mb=memory_min_mb) as service,
    ):
        options = {"workspace": {"repository": "app", "ref": "bomb"}} if resource == "git" else None
        hostile = automated_webhook(service, resource, options)
        good = automated_webhook(service, "good", payload={"starts": {"in": [True]}})
        with HonestSender(service, good) as sender:
            until(lambda: len(sender.answers) > 40, "the sender has begun")
            for number in range(2):
                assert service.post(hostile, b"%d" % number).status == 202
            until(
                lambda: len(runs := runs_of(service, resource)) == 2 and all(run.state.is_final for run in runs),
                "the hostile runs have ended",
            )
            sent = len(sender.answers)
            until(lambda: len(sender.answers) > sent + 60, "the sender has continued")
        until(lambda: all(run.state.is_final for run in runs_of(service, "good")), "the good runs have ended")
        hostile_runs, good_runs = runs_of(service, resource), runs_of(service, "good")
        figures = {
            "deliveries": len(sender.answers),
            "slowest": round(max(seconds for _, seconds in sender.answers), 2),
            "lowest free MiB": sender.free_bytes // MIB,
            "taken memory MiB": (available - sender.memory_bytes) // MIB,
            "good runs": len(good_runs),
        }
        print(figures, [run.reason for run in hostile_runs])

        assert {status for status, _ in sender.answers} == {202}
        assert max(seconds for _, seconds in sender.answers) < 2
        assert {run.state for run in good_runs} == {RunState.SUCCEEDED}
        assert {run.state for run in hostile_runs} == {RunState.FAILED}
        for run in hostile_runs:
            expected = "needs more than" if resource == "git" else "The run was ended because it used the most "
            assert expected in (run.reason or "")
        assert sender.free_bytes > FREE_SPACE_MIN_MB * MIB
        assert sender.memory_bytes > available - 2 * MEMORY_MB * MIB
