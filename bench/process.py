"""Starts and stops a server under measurement, and reads its processor time and memory from /proc."""

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
OUTPUT_CHARACTERS_SHOWN = 2_000
REPOSITORY = Path(__file__).resolve().parent.parent

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ServerFailed(Exception):
    """A server under measurement did not start, ended too early, or did not stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A process under measurement, with its *family*: the process and its running descendants."""

    port: int
    """The port at which it accepts connections; 0 for a worker."""
    pid: int

    def cpu_seconds(self) -> float:
        """The processor time that the process family has used so far, on all cores."""
        return sum(_cpu_seconds(pid) for pid in family(self.pid))

    def memory_mib(self) -> float:
        """The memory of the process family. Memory that several processes share is counted once (PSS)."""
        return sum(memory_mib_of(pid) for pid in family(self.pid))


@contextmanager
def serving_process(
    command: Sequence[str],
    *,
    port: int,
    environment: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
) -> Iterator[Served]:
    """Run the command until the block ends. The block begins when the port accepts connections.

    Raises `ServerFailed` if that takes too long, or if the command does not stop.
    """
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
def running_process(command: Sequence[str], *, environment: Mapping[str, str], cwd: Path) -> Iterator[Served]:
    """Run a command without a port until the block ends. Raises `ServerFailed` if the command ends earlier."""
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
    """The process and its running descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    members = [pid]
    for member in members:
        members.extend(children.get(member, ()))
    return members


def _wait_for(process: subprocess.Popen[bytes], port: int, output: IO[str]) -> None:
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            sleep(0.05)
    output.seek(0)
    code = process.poll()
    problem = f"was not ready within {START_SECONDS:.0f} s" if code is None else f"ended with code {code}"
    raise ServerFailed(f"The server {problem}. Its output:\n{output.read()[-OUTPUT_CHARACTERS_SHOWN:]}")


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
    """The fields of /proc/<pid>/stat after the name, which may contain spaces; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND if fields else 0.0


def memory_mib_of(pid: int) -> float:
    """The memory of one process (PSS); 0 if it has ended."""
    # Only root can read the PSS of a protected process. For others, shared memory counts in each process (RSS).
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
            return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0) / 1024
    return 0.0
