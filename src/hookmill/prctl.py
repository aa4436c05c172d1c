"""Calls of prctl(2) for this process. On other systems than Linux, they have no effect."""

import ctypes
from contextlib import suppress
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15


def protect_memory() -> None:
    """Protect the memory and environment of this process from other processes of the account, and from core dumps.

    Forked processes inherit the protection; executed programs don't. Root can still read the memory.
    """
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))


def set_process_name(name: str) -> None:
    """Set the name that `ps` and `top` show, of at most 15 bytes. A protected process can't set it through `/proc`."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def _prctl(option: int, value: ctypes.c_ulong | ctypes.c_char_p) -> None:
    with suppress(AttributeError, OSError):
        zero = ctypes.c_ulong(0)
        ctypes.CDLL(None).prctl(option, value, zero, zero, zero)
