"""What runs must leave of this host: a reserve of disk space, inodes and memory, with which deliveries are accepted.

The reserve is larger than what a delivery needs (`free_space_min_mb`), so that a run which fills the disk is ended
before a delivery is refused.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

FREE_INODES_MIN: Final = 1_000
"""The minimum number of free inodes. A delivery may start several runs, and each run has about eight files."""
SHARE: Final = 10
"""A reserve is this part of the disk or the memory: a tenth, at most ..."""
DISK_BYTES_MAX: Final = 512 * 1024 * 1024
INODES_MAX: Final = 100_000
MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024


class Resource(StrEnum):
    """What can become scarce."""

    DISK = "disk space"
    INODES = "inodes"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Shortage:
    """The host has less than its reserve."""

    resource: Resource
    free: int
    reserve: int


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
        return self.disk_shortage() or self._memory_shortage()

    def disk_shortage(self, *, reserves: int = 1) -> Shortage | None:
        """Whether disk space or inodes are scarce. With more `reserves`, they are scarce earlier."""
        try:
            disk = os.statvfs(self.directory)
        except OSError:
            return None
        free = disk.f_bavail * disk.f_frsize
        reserve = self.delivery_bytes_min + reserves * min(DISK_BYTES_MAX, disk.f_blocks * disk.f_frsize // SHARE)
        if free < reserve:
            return Shortage(Resource.DISK, free, reserve)
        # Some file systems have no inode table and report zero inodes.
        reserve = FREE_INODES_MIN + reserves * min(INODES_MAX, disk.f_files // SHARE)
        if disk.f_files and disk.f_favail < reserve:
            return Shortage(Resource.INODES, disk.f_favail, reserve)
        return None

    def _memory_shortage(self) -> Shortage | None:
        memory = _memory()
        if memory is None:
            return None
        total, available = memory
        reserve = min(MEMORY_BYTES_MAX, total // SHARE) if self.memory_bytes_min is None else self.memory_bytes_min
        return Shortage(Resource.MEMORY, available, reserve) if available < reserve else None


def _memory() -> tuple[int, int] | None:
    """The host's memory, and what the kernel could give to programs. None on systems that don't tell."""
    try:
        lines = Path("/proc/meminfo").read_bytes().splitlines()[:3]
        total, _, available = (int(line.split()[1]) * 1_024 for line in lines)
    except (OSError, ValueError, IndexError):
        return None
    return total, available
