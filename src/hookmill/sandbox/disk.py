"""How much of a disk the files of a run use."""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""
FILES_MAX: Final = 1_000_000
"""A run with more files and directories is ended."""


class DiskUse(NamedTuple):
    """The space and the number of files and directories."""

    bytes: int
    files: int

    def is_within(self, bytes_max: int) -> bool:
        return self.bytes <= bytes_max and self.files <= FILES_MAX


UNMEASURABLE: Final = DiskUse(2**63, 2**63)
"""The use of a directory that only a hostile command makes: one with too long a path."""


def disk_use(
    directories: Sequence[str],
    *,
    bytes_max: int = UNMEASURABLE.bytes,
    changed_since_ns: int | None = None,
    repairs: bool = False,
) -> DiskUse:
    """What the files in these directories use. Counts only until `bytes_max` or `FILES_MAX` is exceeded.

    `changed_since_ns`: only files that were changed since this time count. No link is followed. A directory that this
    account can't list does not count, because tests of programs make such directories, and containers those of other
    accounts. With `repairs`, this account makes its own directories readable.
    """
    used, files = 0, 0
    waiting = list(directories)
    while waiting:
        directory = waiting.pop()
        try:
            if repairs:
                _make_readable(directory)
            with os.scandir(directory) as listing:
                for entry in listing:
                    status = entry.stat(follow_symlinks=False)
                    if changed_since_ns is None or status.st_ctime_ns >= changed_since_ns:
                        used += status.st_blocks * BLOCK_BYTES
                        files += 1
                    if used > bytes_max or files > FILES_MAX:
                        return DiskUse(used, files)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # The command may remove anything at any time.
            continue
        except OSError:
            # The path is longer than the system allows.
            return UNMEASURABLE
    return DiskUse(used, files)


def _make_readable(directory: str) -> None:
    # Root can read everything. Another account could replace the directory by a link.
    if (user := os.geteuid()) == 0:
        return
    status = os.lstat(directory)
    if status.st_uid == user and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(directory, stat.S_IRWXU)  # noqa: PTH101 - pathlib loads slowly


def deleted_bytes(processes: Collection[int], directory: str) -> int:
    """The space of files that were deleted while the processes use them, on the disk of the directory.

    A file counts that is open, or mapped into memory. Of one that is only mapped, the mapped length counts.
    """
    try:
        device = os.stat(directory).st_dev  # noqa: PTH116 - likewise
    except OSError:
        return 0
    bytes_by_inode: dict[int, int] = {}
    for process in processes:
        for inode, end in _deleted_mappings(process, device):
            bytes_by_inode[inode] = max(end, bytes_by_inode.get(inode, 0))
    for process in processes:
        for _, status in open_files(process):
            if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
                bytes_by_inode[status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sum(bytes_by_inode.values())


def _deleted_mappings(process: int, device: int) -> Iterator[tuple[int, int]]:
    """The inodes of deleted files that the process has mapped, each with the end of the mapped part in bytes."""
    name = b"%02x:%02x" % (os.major(device), os.minor(device))
    try:
        with open(f"/proc/{process}/maps", "rb") as lines:  # noqa: PTH123 - likewise
            for line in lines:
                if not line.endswith(b" (deleted)\n"):
                    continue
                addresses, _, offset, mapped_device, inode, _ = line.split(None, 5)
                if mapped_device == name:
                    start, end = (int(address, 16) for address in addresses.split(b"-"))
                    yield int(inode), int(offset, 16) + end - start
    except OSError:
        return


def open_files(process: int) -> Collection[tuple[str, os.stat_result]]:
    """The paths and states of what the process has open. Empty if it has ended, or can't be read."""
    directory = f"/proc/{process}/fd"
    found = []
    try:
        for name in os.listdir(directory):  # noqa: PTH208 - likewise
            path = f"{directory}/{name}"
            try:
                found.append((path, os.stat(path)))  # noqa: PTH116 - likewise
            except OSError:
                continue
    except OSError:
        return ()
    return found
