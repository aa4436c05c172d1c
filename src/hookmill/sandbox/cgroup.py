"""The cgroup of one sandbox, which limits all its processes together.

Only the second version of cgroups is used. An account may create cgroups below those that were delegated to it.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Final

MOUNT: Final = "/sys/fs/cgroup"
OWN_NAME: Final = "hookmill-service"
"""The name of the service's own cgroup, if the cgroup above it is delegated to the service."""
DELEGATION: Final = "user.delegate"
"""The attribute with which systemd marks the cgroup of a unit with the setting Delegate."""
CONTROLLERS: Final = ("cpu", "memory")
MOVES_MAX: Final = 100
"""How often the list is read and its processes moved, at most."""
REMOVAL_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.01


def enter_own_cgroup() -> None:
    """If systemd has delegated the cgroup of this process, move the cgroup's processes into a cgroup below it.

    The kernel lets a cgroup limit those below it only if it has no processes itself.
    """
    own = _own_cgroup()
    if own is None or os.path.basename(own) == OWN_NAME:  # noqa: PTH119 - pathlib loads slowly
        return
    with contextlib.suppress(OSError):
        if os.getxattr(own, DELEGATION) == b"1" and os.access(f"{own}/cgroup.procs", os.W_OK):
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{own}/{OWN_NAME}")  # noqa: PTH102 - likewise
            # A process that is started meanwhile may be missing in the list.
            for _ in range(MOVES_MAX):
                processes = _read(f"{own}/cgroup.procs").split()
                if not processes:
                    return
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        _write(f"{own}/{OWN_NAME}/cgroup.procs", process)


def delegated_cgroup() -> str | None:
    """The directory of the cgroup in which this process may create others: the one above its own. None if there is
    none."""
    above, _, name = (_own_cgroup() or "").rpartition("/")
    if name != OWN_NAME or not os.access(f"{above}/cgroup.procs", os.W_OK):
        return None
    return above if set(CONTROLLERS) <= set(_read(f"{above}/cgroup.controllers").split()) else None


def _own_cgroup() -> str | None:
    lines = _read("/proc/self/cgroup").splitlines()
    return next((MOUNT + line.removeprefix("0::").rstrip("/") for line in lines if line.startswith("0::")), None)


def cgroup_limits(memory_bytes: int, cpus: float | None) -> dict[str, str]:
    """The files of a cgroup with these limits, and their contents."""
    period_us = 100_000
    return {
        "memory.max": str(memory_bytes),
        "memory.swap.max": "0",
        # If a few processes were killed, the command would go on without them, and nobody would learn the reason.
        "memory.oom.group": "1",
        **({"cpu.max": f"{max(1_000, round(cpus * period_us))} {period_us}"} if cpus is not None else {}),
    }


def create_cgroup(directory: str, limits: Mapping[str, str]) -> None:
    """Create a cgroup without processes. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        remove_cgroup(directory)
    _write(f"{os.path.dirname(directory)}/cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))  # noqa: PTH120 - pathlib loads slowly
    os.mkdir(directory)  # noqa: PTH102 - likewise
    for name, value in limits.items():
        # A kernel without support for swap lacks its limit.
        if name != "memory.swap.max" or os.path.exists(f"{directory}/{name}"):  # noqa: PTH110 - likewise
            _write(f"{directory}/{name}", value)


def enter_cgroup(directory: str) -> None:
    """Move this process, whose children will be there, too. Raises `OSError`."""
    _write(f"{directory}/cgroup.procs", "0")


def has_exceeded_memory(events: str) -> bool:
    """Whether the kernel killed processes because the cgroup reached its own limit. `events`: its memory.events."""
    counts = dict(line.split() for line in events.splitlines())
    # The kernel also kills processes of the cgroup if the host has no memory left. Then, oom is 0.
    return int(counts.get("oom", 0)) > 0 and int(counts.get("oom_kill", 0)) > 0


def memory_events(directory: str) -> str:
    return _read(f"{directory}/memory.events")


def remove_cgroup(directory: str) -> None:
    """Kill all processes of the cgroup, and remove it. Raises `OSError`, such as `FileNotFoundError`."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while True:
        with contextlib.suppress(FileNotFoundError):
            # Before Linux 5.14, there is no such file, and the guard kills the processes one by one.
            _write(f"{directory}/cgroup.kill", "1")
        try:
            os.rmdir(directory)  # noqa: PTH106 - pathlib loads slowly
        except FileNotFoundError:
            raise
        except OSError:
            # A killed process takes time to end.
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib loads slowly
            return file.read()
    except OSError:
        return ""


def _write(path: str, content: str) -> None:
    # The kernel creates these files, so a missing one must not be created.
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)
