"""What Linux is told about this process, with prctl(2). On other systems nothing happens."""

import ctypes
from contextlib import suppress
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15


def protect_memory() -> None:
    """Keep the memory and the environment of this process from others of the same account, and from core dumps.

    What is forked from it is protected too, and what it executes is not. Root is not kept out.
    """
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))


def set_process_name(name: str) -> None:
    """As `ps` and `top` show it; 15 bytes at most. A protected process can't do so through `/proc`."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def _prctl(option: int, value: ctypes.c_ulong | ctypes.c_char_p) -> None:
    with suppress(AttributeError, OSError):
        zero = ctypes.c_ulong(0)
        ctypes.CDLL(None).prctl(option, value, zero, zero, zero)
