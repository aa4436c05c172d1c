"""How much memory the processes of a sandbox use together."""

from collections.abc import Collection, Iterable
from typing import Final

_RESIDENT: Final = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
"""The memory of a process in /proc/PID/status. A shared page counts for each process that has it."""
_PROPORTIONAL: Final = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
"""The memory of a process in /proc/PID/smaps_rollup. The processes that share a page divide it among them."""


def memory_bytes(processes: Collection[int], bytes_max: int) -> int:
    """The memory of the processes together, without that of files.

    If the sum is above `bytes_max`, shared pages count once, unless smaps_rollup can't be read. Otherwise shared pages
    may count twice, because this sum is cheaper.
    """
    total = sum(map(_resident_bytes, processes))
    if total <= bytes_max:
        return total
    return sum(
        # Read again: a process that has ended since then has no memory.
        _resident_bytes(process) if (size := _sum(f"/proc/{process}/smaps_rollup", _PROPORTIONAL)) is None else size
        for process in processes
    )


def _resident_bytes(process: int) -> int:
    return _sum(f"/proc/{process}/status", _RESIDENT) or 0


def _sum(path: str, names: Iterable[bytes]) -> int | None:
    """The sum of the fields with these names, in bytes. None if the process has ended, or can't be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            lines = file.read().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines)
    return sum(int(field[1]) * 1_024 for field in fields if len(field) == 3 and field[0] in names)
