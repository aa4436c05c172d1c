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
    resident = {process: _sum(f"/proc/{process}/status", _RESIDENT) for process in processes}
    total = sum(size or 0 for size in resident.values())
    if total <= bytes_max:
        return total
    return sum(
        (resident[process] or 0) if (size := _sum(f"/proc/{process}/smaps_rollup", _PROPORTIONAL)) is None else size
        for process in processes
    )


def _sum(path: str, names: Iterable[bytes]) -> int | None:
    """The sum of the fields with these names, in bytes. None if the process has ended, or can't be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            lines = file.read().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines)
    return sum(int(field[1]) * 1_024 for field in fields if len(field) == 3 and field[0] in names)
