"""Finds the processes of a running service by kind, so that a test can kill one of them."""

import contextlib
import os
from collections.abc import Iterator
from enum import StrEnum

import psutil

from tests.support.service import Service
from tests.support.waiting import until


class Part(StrEnum):
    """A kind of process of the service."""

    SUPERVISOR = "supervisor"
    INGRESS = "ingress"
    WRITER = "writer"
    WORKER = "worker"
    FORKS = "forks"


def parts_of(service: Service) -> dict[Part, list[psutil.Process]]:
    """All running processes of the service, by kind."""
    assert service.process is not None
    supervisor = service.process.pid
    processes: dict[Part, list[psutil.Process]] = {part: [] for part in Part}
    for pid in psutil.pids():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            # Forks outlive their fork server, so a search for children would not find them.
            if os.getsid(pid) == supervisor:
                process = psutil.Process(pid)
                if still_running([process]) and (part := _part(process, supervisor)) is not None:
                    processes[part].append(process)
    return processes


def _part(process: psutil.Process, supervisor: int) -> Part | None:
    if process.pid == supervisor:
        return Part.SUPERVISOR
    name = process.name()
    if name.startswith("hookmill:"):
        return Part(name.removeprefix("hookmill:"))
    return Part.INGRESS if process.ppid() == supervisor else None


def kill_part(service: Service, part: Part) -> psutil.Process:
    """Wait for a process of this kind, and kill it with SIGKILL. Returns it when it has ended."""

    def kill_one() -> psutil.Process | None:
        for process in parts_of(service)[part]:
            # It may just have ended by itself.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                return process
        return None

    killed = until(kill_one, f"the service has a process of the kind {part}")
    until(lambda: not still_running([killed]), "the killed process has ended")
    return killed


def wait_until_announced(service: Service, *, since: int = 0):
    """Wait until the service has logged that it is ready. From then on, it restarts processes that crash.

    `since` is a position in its log, in characters.
    """
    until(lambda: "is ready at" in service.log()[since:], "the service has logged that it is ready")


def all_processes_of(service: Service) -> list[psutil.Process]:
    return [process for processes in parts_of(service).values() for process in processes]


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that have not ended. A zombie has ended."""
    running = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


@contextlib.contextmanager
def killed_afterwards(processes: list[psutil.Process]) -> Iterator[None]:
    """Kill the processes that are still running when the block ends."""
    try:
        yield
    finally:
        for process in still_running(processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
