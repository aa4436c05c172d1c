"""The cgroup of one sandbox, which limits all its processes together.

Both versions of cgroups are supported. With version 2, an account may create cgroups below those that were delegated to
it; a host without systemd delegates what it lets the account write to. With version 1, this process creates a cgroup
below its own one of the memory controller, and the kernel limits only the memory.
"""

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from typing import Final

MOUNT: Final = "/sys/fs/cgroup"
OWN_NAME: Final = "hookmill-service"
"""The name of the service's own cgroup, if the cgroup above it is delegated to the service."""
DELEGATION: Final = "user.delegate"
"""The attribute with which systemd marks the cgroup of a unit with the setting Delegate."""
SYSTEMD: Final = "/run/systemd/system"
"""Exists if systemd manages the cgroups."""
CONTROLLERS: Final = ("cpu", "memory")
MOVES_MAX: Final = 100
"""How often the list is read and its processes moved, at most."""
REMOVAL_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.01
VERSION_1_LIMIT: Final = "memory.limit_in_bytes"
_NOT_EVERYWHERE: Final = ("memory.swap.max", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes")
"""Limits that some kernels lack, for example because they don't support swap."""
_TCP_SHARE: Final = 8
"""Version 1 counts buffers of TCP separately. They may have this part of the memory in addition."""


def enter_own_cgroup() -> None:
    """If a cgroup of version 2 was delegated to this process, move its processes into a cgroup below it.

    The kernel lets a cgroup limit those below it only if it has no processes itself.
    """
    own = _own_cgroup()
    if own is None or os.path.basename(own) == OWN_NAME or _is_root(own):  # noqa: PTH119 - pathlib loads slowly
        return
    with contextlib.suppress(OSError):
        if _is_delegated(own) and os.access(f"{own}/cgroup.procs", os.W_OK):
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


def _is_delegated(own: str) -> bool:
    # systemd would undo changes to cgroups that it has not delegated.
    return not os.path.isdir(SYSTEMD) or os.getxattr(own, DELEGATION) == b"1"  # noqa: PTH112 - likewise


def _is_root(cgroup: str) -> bool:
    """Whether it is the host's first cgroup, whose processes need not be moved."""
    return not os.path.exists(f"{cgroup}/cgroup.type")  # noqa: PTH110 - likewise


def usable_cgroup() -> str | None:
    """The directory of the cgroup in which this process can create others that limit memory. None if there is none."""
    own = _own_cgroup()
    if own is not None:
        above, _, name = own.rpartition("/")
        if name != OWN_NAME:
            above = own if _is_root(own) and not os.path.isdir(SYSTEMD) else ""  # noqa: PTH112 - likewise
        if above and os.access(f"{above}/cgroup.procs", os.W_OK) and "memory" in _controllers(above):
            return above
    own = _own_cgroup_of_version_1()
    return own if own is not None and os.access(own, os.W_OK) and _is_version_1(own) else None


def limits_processors(above: str | None) -> bool:
    """Whether cgroups in this one can limit processors."""
    return above is not None and "cpu" in _controllers(above)


def _controllers(cgroup: str) -> list[str]:
    available = _read(f"{cgroup}/cgroup.controllers").split()
    return [name for name in CONTROLLERS if name in available]


def _own_cgroup() -> str | None:
    lines = _read("/proc/self/cgroup").splitlines()
    return next((MOUNT + line.removeprefix("0::").rstrip("/") for line in lines if line.startswith("0::")), None)


def _own_cgroup_of_version_1() -> str | None:
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return f"{MOUNT}/memory{path.rstrip('/')}"
    return None


def _is_version_1(directory: str) -> bool:
    return os.path.exists(f"{directory}/{VERSION_1_LIMIT}")  # noqa: PTH110 - pathlib loads slowly


def cgroup_limits(above: str, memory_bytes: int, cpus: float | None) -> dict[str, str]:
    """The files of a cgroup with these limits, and their contents. `above`: the cgroup in which it will be."""
    if _is_version_1(above):
        return {
            VERSION_1_LIMIT: str(memory_bytes),
            "memory.memsw.limit_in_bytes": str(memory_bytes),
            "memory.kmem.tcp.limit_in_bytes": str(memory_bytes // _TCP_SHARE),
        }
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
    above = os.path.dirname(directory)  # noqa: PTH120 - pathlib loads slowly
    if VERSION_1_LIMIT not in limits:
        _write(f"{above}/cgroup.subtree_control", " ".join(f"+{name}" for name in _controllers(above)))
    os.mkdir(directory)  # noqa: PTH102 - likewise
    for name, value in limits.items():
        if name not in _NOT_EVERYWHERE or os.path.exists(f"{directory}/{name}"):  # noqa: PTH110 - likewise
            _write(f"{directory}/{name}", value)


def enter_cgroup(directory: str) -> None:
    """Move this process, whose children will be there, too. Raises `OSError`."""
    _write(f"{directory}/cgroup.procs", "0")


def has_exceeded_memory(directory: str) -> bool:
    """Whether the kernel killed processes because the cgroup reached its own limit.

    The kernel also kills processes of the cgroup if the host has no memory left.
    """
    if _is_version_1(directory):
        limit, peak = (
            int(_read(f"{directory}/{name}") or 0) for name in (VERSION_1_LIMIT, "memory.max_usage_in_bytes")
        )
        # The kernel charges memory in portions.
        return _numbers(f"{directory}/memory.oom_control").get("oom_kill", 0) > 0 and peak > limit * 15 // 16
    counts = _numbers(f"{directory}/memory.events")
    return counts.get("oom", 0) > 0 and counts.get("oom_kill", 0) > 0


def memory_usage(directory: str) -> int | None:
    """The memory of the cgroup, without that which the kernel can free: contents of files. None if it is missing."""
    is_version_1 = _is_version_1(directory)
    used = _read(f"{directory}/{'memory.usage_in_bytes' if is_version_1 else 'memory.current'}")
    if not used:
        return None
    details = _numbers(f"{directory}/memory.stat")
    prefix = "total_" if is_version_1 else ""
    return int(used) - sum(details.get(f"{prefix}{name}_file", 0) for name in ("active", "inactive"))


def remove_cgroup(directory: str) -> None:
    """Kill all processes of the cgroup, and remove it. Raises `OSError`, such as `FileNotFoundError`."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while True:
        try:
            _write(f"{directory}/cgroup.kill", "1")
        except OSError:
            # Version 1, and Linux before 5.14, lack this file.
            for process in _read(f"{directory}/cgroup.procs").split():
                with contextlib.suppress(OSError):
                    os.kill(int(process), signal.SIGKILL)
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


def _numbers(path: str) -> dict[str, int]:
    """The names and numbers in the lines of a file. Empty if it is missing."""
    return {name: int(number) for name, number in (line.split() for line in _read(path).splitlines())}


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
