"""The processes of a running service, told apart, so that one of them can be taken away alone."""

import contextlib
import os
from collections.abc import Iterator
from enum import StrEnum

import psutil

from tests.support.service import Service
from tests.support.waiting import until


class Part(StrEnum):
    SUPERVISOR = "supervisor"
    INGRESS = "ingress"
    WRITER = "writer"
    WORKER = "worker"
    FORKS = "forks"


def parts_of(service: Service) -> dict[Part, list[psutil.Process]]:
    """Every process of the service by what it is. Those that ended meanwhile are left out."""
    assert service.process is not None
    supervisor = service.process.pid
    found: dict[Part, list[psutil.Process]] = {part: [] for part in Part}
    for number in psutil.pids():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            # Its family would not do: what a fork server started stays when that one is gone.
            if os.getsid(number) == supervisor:
                process = psutil.Process(number)
                if still_running([process]) and (part := _part(process, supervisor)) is not None:
                    found[part].append(process)
    return found


def _part(process: psutil.Process, supervisor: int) -> Part | None:
    if process.pid == supervisor:
        return Part.SUPERVISOR
    name = process.name()
    if name.startswith("hookmill:"):
        return Part(name.removeprefix("hookmill:"))
    return Part.INGRESS if process.ppid() == supervisor else None


def kill_part(service: Service, part: Part) -> psutil.Process:
    """kill -9 to one process of this kind, once there is one."""

    def killed() -> psutil.Process | None:
        for process in parts_of(service)[part]:
            # It may end by itself between the look and the kill.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                return process
        return None

    return until(killed, f"the service has a {part}")


def wait_until_announced(service: Service, *, since: int = 0) -> None:
    """Until it has said that it is ready, after so many bytes of its log: from then on it stands a crash."""
    until(lambda: "is ready at" in service.log()[since:], "the service says that it is ready")


def everything_of(service: Service) -> list[psutil.Process]:
    return [process for processes in parts_of(service).values() for process in processes]


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """A zombie has ended: it only waits for somebody to ask how."""
    running = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


@contextlib.contextmanager
def taken_away_afterwards(processes: list[psutil.Process]) -> Iterator[None]:
    """Whatever the block finds out, these don't outlive it."""
    try:
        yield
    finally:
        for process in still_running(processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
