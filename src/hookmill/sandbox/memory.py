"""How much memory the processes of a sandbox use together."""

import os
import stat
from collections.abc import Collection, Iterable
from typing import Final

from hookmill.sandbox.disk import BLOCK_BYTES, open_files

SOCKET_BYTES: Final = 212_992
"""What can wait in the kernel for each socket: the usual limit (`net.core.wmem_max`)."""
PIPE_BYTES: Final = 65_536
INODE_BYTES: Final = 1_024
"""What the kernel needs for each file of a tmpfs, besides its content."""

_PRIVATE: Final = (b"RssAnon:", b"VmSwap:")
_SHARED: Final = (b"RssShmem:",)
_PAGE_TABLES: Final = (b"VmPTE:",)
"""The memory of a process in /proc/PID/status. A shared page counts for each process that has it."""
_PROPORTIONAL_PRIVATE: Final = (b"Pss_Anon:", b"SwapPss:")
_PROPORTIONAL_SHARED: Final = (b"Pss_Shmem:",)
"""The memory of a process in /proc/PID/smaps_rollup. The processes that share a page divide it among them."""


def memory_bytes(processes: Collection[int], bytes_max: int) -> int:
    """The memory of the processes together, without that of files on a disk. Sockets count with what they can hold.

    If the sum is above `bytes_max`, shared pages count once, unless smaps_rollup can't be read. Otherwise shared pages
    may count twice, because this sum is cheaper.
    """
    in_kernel, memfd = _bytes_of_descriptors(processes)
    in_kernel += sum(map(_bytes_of_page_tables, processes))

    def total(sizes: Iterable[tuple[int, int]]) -> int:
        private = shared = 0
        for private_bytes, shared_bytes in sizes:
            private, shared = private + private_bytes, shared + shared_bytes
        # A memfd may be mapped, and then its pages are also shared ones.
        return in_kernel + private + max(shared, memfd)

    quick = total(map(_resident_bytes, processes))
    if quick <= bytes_max:
        return quick
    return total(_proportional_bytes(process) or _resident_bytes(process) for process in processes)


def _bytes_of_descriptors(processes: Iterable[int]) -> tuple[int, int]:
    """What sockets and pipes can hold in the kernel, and the size of files in memory (memfd). Each counts once."""
    in_kernel: dict[tuple[int, int], int] = {}
    memfd: dict[int, int] = {}
    for process in processes:
        for path, status in open_files(process):
            if stat.S_ISSOCK(status.st_mode):
                in_kernel[status.st_dev, status.st_ino] = SOCKET_BYTES
            elif stat.S_ISFIFO(status.st_mode):
                in_kernel[status.st_dev, status.st_ino] = PIPE_BYTES
            elif status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and _is_memfd(path):
                memfd[status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sum(in_kernel.values()), sum(memfd.values())


def _is_memfd(path: str) -> bool:
    try:
        return os.readlink(path).startswith("/memfd:")  # noqa: PTH115 - pathlib loads slowly
    except OSError:
        return False


def tmpfs_inode_bytes(process: int) -> int:
    """What the kernel needs for the files in the /tmp and /dev/shm of a sandbox with this process."""
    total = 0
    for directory in ("tmp", "dev/shm"):
        try:
            status = os.statvfs(f"/proc/{process}/root/{directory}")
        except OSError:
            continue
        total += (status.f_files - status.f_ffree) * INODE_BYTES
    return total


def _bytes_of_page_tables(process: int) -> int:
    sizes = _sums(f"/proc/{process}/status", _PAGE_TABLES, ())
    return sizes[0] if sizes is not None else 0


def _resident_bytes(process: int) -> tuple[int, int]:
    return _sums(f"/proc/{process}/status", _PRIVATE, _SHARED) or (0, 0)


def _proportional_bytes(process: int) -> tuple[int, int] | None:
    return _sums(f"/proc/{process}/smaps_rollup", _PROPORTIONAL_PRIVATE, _PROPORTIONAL_SHARED)


def _sums(path: str, private: Collection[bytes], shared: Collection[bytes]) -> tuple[int, int] | None:
    """The sums of the fields with these names, in bytes. None if the process has ended, or can't be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            lines = file.read().splitlines()
    except OSError:
        return None
    fields = {field[0]: int(field[1]) * 1_024 for field in (line.split() for line in lines) if field[2:] == [b"kB"]}
    return sum(fields.get(name, 0) for name in private), sum(fields.get(name, 0) for name in shared)
