"""Waits for other threads and processes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["LONG_SECONDS", "stalls", "until"]

LONG_SECONDS = 60.0
"""The longest wait. A busy machine may stand still for several seconds, so a shorter one could fail a good test."""

NAP_SECONDS = 0.05
"""How long `stalls` sleeps at a time. It detects stalls that are longer."""

T = TypeVar("T")


def until(
    look: Callable[[], T | None], what: str | Callable[[], str] = "it is so", *, seconds: float = LONG_SECONDS
) -> T:
    """Call `look` until its result is true, and return the result. Fails after `seconds`; `what` is the condition."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, (
            f"not true within {seconds:g} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(0.02)


@contextmanager
def stalls() -> Iterator[list[float]]:
    """Yields a list, to which each stall of the machine during the block is added, in seconds.

    A test subtracts these from times that it measured.
    """
    found: list[float] = []
    leave = threading.Event()

    def nap() -> None:
        has_left = False
        while not has_left:
            began = time.monotonic()
            has_left = leave.wait(NAP_SECONDS)
            late = time.monotonic() - began - NAP_SECONDS
            if late > NAP_SECONDS:
                found.append(late)

    napping = threading.Thread(target=nap)
    napping.start()
    try:
        yield found
    finally:
        leave.set()
        napping.join()
