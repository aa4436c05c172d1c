"""What runs must leave of this host: a reserve of disk space, inodes and memory, with which deliveries are accepted.

The reserve is larger than what a delivery needs (`free_space_min_mb`), so that a run which fills the disk is ended
before a delivery is refused.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from hookmill.sandbox.disk import UNMEASURABLE, DiskUse

FREE_INODES_MIN: Final = 1_000
"""The minimum number of free inodes. A delivery may start several runs, and each run has about eight files."""
SHARE: Final = 10
"""A reserve is this part of the disk or the memory: a tenth, at most ..."""
DISK_BYTES_MAX: Final = 512 * 1024 * 1024
INODES_MAX: Final = 100_000
MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
MEMORY_ABOVE_FLOOR: Final = 512 * 1024 * 1024
"""How much of the reserve of memory is above the floor, at most."""
NEAR_RESERVES: Final = 2
"""With less than the space for deliveries and this many reserves, mirrors of repositories and then packages of ended
runs are removed, and no workspace is made. So Git ends long before a run is ended for what Git has used."""
FAR_RESERVES: Final = 3
"""They are removed until the disk has as much as this."""

_MIB: Final = 1024 * 1024


class Resource(StrEnum):
    """What can become scarce."""

    DISK = "disk space"
    INODES = "inodes"
    MEMORY = "memory"


SIZE_MIN: Final = {Resource.DISK: 32 * 1024 * 1024, Resource.INODES: 2_000, Resource.MEMORY: 32 * 1024 * 1024}
"""What uses less is not the reason for a shortage."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """The host has less than its reserve."""

    resource: Resource
    free: int
    reserve: int
    floor: int
    """With less free, deliveries are refused, or the kernel may soon end processes."""

    @property
    def is_urgent(self) -> bool:
        """Whether half of the reserve above the floor is used."""
        return self.free < (self.reserve + self.floor) // 2

    def __str__(self) -> str:
        free, reserve = (amount_text(self.resource, number) for number in (self.free, self.reserve))
        return f"{free} free, and runs must leave {reserve}"


def amount_text(resource: Resource, number: int) -> str:
    return f"{number:,} files" if resource is Resource.INODES else f"{number // _MIB:,} MiB"


@dataclass(frozen=True, slots=True)
class HostReserve:
    """The reserve of the disk of a directory, and of the memory."""

    directory: Path
    delivery_bytes_min: int
    """With less free space, deliveries are refused."""
    memory_bytes_min: int | None = None
    """None: a tenth of the memory, at most `MEMORY_BYTES_MAX`."""

    def shortage(self) -> Shortage | None:
        """What is scarce. None if nothing is, or if the system does not tell."""
        return self.disk_shortage() or self.memory_shortage()

    def disk_shortage(self, *, reserves: int = 1) -> Shortage | None:
        """Whether disk space or inodes are scarce. With more `reserves`, they are scarce earlier."""
        try:
            free, reserve = self._free_and_reserve(reserves)
        except OSError:
            return None
        if free.bytes < reserve.bytes:
            return Shortage(Resource.DISK, free.bytes, reserve.bytes, self.delivery_bytes_min)
        if free.files < reserve.files:
            return Shortage(Resource.INODES, free.files, reserve.files, FREE_INODES_MIN)
        return None

    def free(self) -> dict[Resource, int]:
        """What is free now, as far as the system tells."""
        free = {}
        with suppress(OSError):
            disk, _ = self._free_and_reserve(1)
            free = {Resource.DISK: disk.bytes, Resource.INODES: disk.files}
        if (memory := _memory()) is not None:
            free[Resource.MEMORY] = memory[1]
        return free

    def room_for_workspace(self) -> DiskUse:
        """What a workspace may use of the disk. Not positive if it may use nothing. Raises `OSError`."""
        free, reserve = self._free_and_reserve(NEAR_RESERVES)
        return DiskUse(free.bytes - reserve.bytes, free.files - reserve.files)

    def _free_and_reserve(self, reserves: int) -> tuple[DiskUse, DiskUse]:
        disk = os.statvfs(self.directory)
        share_bytes = min(DISK_BYTES_MAX, disk.f_blocks * disk.f_frsize // SHARE)
        reserve = DiskUse(
            self.delivery_bytes_min + reserves * share_bytes,
            FREE_INODES_MIN + reserves * min(INODES_MAX, disk.f_files // SHARE),
        )
        # Some file systems have no inode table and report zero inodes.
        return DiskUse(disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else UNMEASURABLE.files), reserve

    def problem(self) -> str | None:
        """Why this host can never have its reserve of memory, and what to do; None if it can."""
        memory = _memory()
        if memory is None or self.memory_bytes_min is None or self.memory_bytes_min < memory[0]:
            return None
        return (
            f"This host has {memory[0] // _MIB:,} MiB of memory. It can never have {self.memory_bytes_min // _MIB:,} "
            "MiB (free_memory_min_mb) available, and no run would start. Lower free_memory_min_mb."
        )

    def memory_shortage(self) -> Shortage | None:
        """Whether memory is scarce."""
        memory = _memory()
        if memory is None:
            return None
        total, available = memory
        reserve = min(MEMORY_BYTES_MAX, total // SHARE) if self.memory_bytes_min is None else self.memory_bytes_min
        floor = max(0, reserve - MEMORY_ABOVE_FLOOR)
        return Shortage(Resource.MEMORY, available, reserve, floor) if available < reserve else None


def _memory() -> tuple[int, int] | None:
    """The host's memory, and what the kernel could give to programs. None on systems that don't tell."""
    try:
        lines = Path("/proc/meminfo").read_bytes().splitlines()[:3]
        total, _, available = (int(line.split()[1]) * 1_024 for line in lines)
    except (OSError, ValueError, IndexError):
        return None
    return total, available
