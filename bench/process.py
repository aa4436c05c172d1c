"""A server under measurement: started, waited for, watched through /proc, and stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

START_SECONDS = 30.0
STOP_SECONDS = 20.0
OUTPUT_SHOWN = 2_000
REPOSITORY = Path(__file__).resolve().parent.parent

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ServerFailed(Exception):
    """A server under measurement did not start, or did not stop when asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that takes requests: its port, and the process whose family does the work."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """What the whole process family has used so far, on all cores."""
        return sum(_cpu_seconds(pid) for pid in family(self.pid))

    def memory_mib(self) -> float:
        """What the process family holds, with pages that several of them share counted once (PSS)."""
        return sum(_memory_kib(pid) for pid in family(self.pid)) / 1024


@contextmanager
def serving_process(
    command: Sequence[str],
    *,
    port: int,
    environment: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
) -> Iterator[Served]:
    """Runs the command until the block ends; the block begins when the port takes connections."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(process, port, output)
            yield Served(port=port, pid=process.pid)
        finally:
            _stop(process)


@contextmanager
def starting_process(command: Sequence[str], *, environment: Mapping[str, str], cwd: Path) -> Iterator[Served]:
    """Runs a command that serves no port until the block ends. Raises `ServerFailed` if it ended before."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Served(port=0, pid=process.pid)
        if process.poll() is not None:
            raise ServerFailed(f"{' '.join(command[1:])} ended with code {process.returncode}.")
    finally:
        _stop(process)


def family(pid: int) -> list[int]:
    """The process and everything it started that is still running."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def _wait_for(process: subprocess.Popen[bytes], port: int, output: IO[str]) -> None:
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            sleep(0.05)
    output.seek(0)
    said = output.read()[-OUTPUT_SHOWN:]
    raise ServerFailed(f"The server was not ready within {START_SECONDS:.0f} s. It said:\n{said}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    members = family(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        raise ServerFailed(f"The server did not stop within {STOP_SECONDS:.0f} s of SIGTERM.") from None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name (which may hold spaces); empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND if fields else 0.0


def _memory_kib(pid: int) -> int:
    # Only root may read how much of a protected process is shared; for others, shared memory counts in each process.
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
            return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)
    return 0
