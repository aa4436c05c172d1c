"""No 202 before the disk has said yes: what the service asked of the kernel, in the order in which it asked."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.plant import serving_planted
from tests.support.service import default_factory

DELIVERIES = 20
CALLS = "execve,pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg"

_LINE = re.compile(r"(?P<pid>\d+) +(?P<call>.*)")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_UNFINISHED = " <unfinished ...>"


@dataclass(frozen=True, slots=True)
class Call:
    """One system call that has returned."""

    pid: int
    text: str

    @property
    def succeeded(self) -> bool:
        return not re.search(r"= -1 ", self.text)


def calls(trace: str) -> Iterator[Call]:
    """The calls in the order in which they returned: a sync counts when it is done, not when it is begun."""
    begun: dict[int, str] = {}
    for line in trace.splitlines():
        if not (found := _LINE.match(line)):
            continue
        pid, text = int(found["pid"]), found["call"]
        if text.endswith(_UNFINISHED):
            begun[pid] = text.removesuffix(_UNFINISHED)
        elif resumed := _RESUMED.match(text):
            yield Call(pid, begun.pop(pid, resumed["name"] + "(") + resumed["rest"])
        else:
            yield Call(pid, text)


def acceptances_without_a_sync(trace: str) -> tuple[int, int]:
    """How many deliveries were answered 202, and how many of them while the writer's last write was not yet synced."""
    writers: set[int] = set()
    wrote = synced = False
    answered = unsynced = 0
    for call in calls(trace):
        if call.text.startswith("execve(") and "hookmill.store.writer" in call.text and call.succeeded:
            writers.add(call.pid)
        elif call.pid in writers and call.text.startswith("pwrite64(") and "hookmill.db-wal>" in call.text:
            wrote, synced = True, False
        elif call.pid in writers and call.text.startswith(("fdatasync(", "fsync(")) and "hookmill.db-wal>" in call.text:
            synced = call.succeeded
        elif "HTTP/1.1 202" in call.text:
            answered += 1
            unsynced += not (wrote and synced)
            wrote = False
    return answered, unsynced


@pytest.fixture(scope="session")
def strace() -> str:
    """Path of the tracer. Root on a Debian gets it installed; elsewhere its absence is a failure."""
    if (path := shutil.which("strace")) is None:
        subprocess.run(["apt-get", "install", "-y", "-q", "strace"], check=True, stdin=subprocess.DEVNULL)
        path = shutil.which("strace")
    assert path is not None, "This test needs strace: install it with your system's package manager."
    return path


def traced_deliveries(strace: str, directory: Path, **planted: str) -> tuple[int, int]:
    trace = directory / "trace"
    command = f"{strace} -f -y -s 160 -e trace={CALLS} -e signal=none -o {trace}"
    with serving_planted(
        directory / "data", {"TRACE": command, **planted}, performs_runs=False, failed_authentications_per_minute=5
    ) as service:
        with service.management() as management:
            webhook = management.create_webhook(default_factory(management), "source")
        for number in range(DELIVERIES):
            assert service.post(webhook, b'{"number": %d}' % number).status == 202
    return acceptances_without_a_sync(trace.read_text(errors="replace"))


def test_a_sync_of_the_log_comes_before_every_202(strace: str, tmp_path: Path):
    answered, unsynced = traced_deliveries(strace, tmp_path)

    assert (answered, unsynced) == (DELIVERIES, 0)


def test_without_syncs_the_same_check_finds_every_202_unsynced(strace: str, tmp_path: Path):
    answered, unsynced = traced_deliveries(strace, tmp_path, PRAGMAS="PRAGMA synchronous = OFF")

    assert (answered, unsynced) == (DELIVERIES, DELIVERIES)
