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
    look: Callable[[], T | None],
    what: str | Callable[[], str] = "the condition holds",
    *,
    seconds: float = LONG_SECONDS,
    pause_seconds: float = 0.02,
) -> T:
    """Call `look` until its result is true, and return the result. Fails after `seconds`; `what` is the condition.

    `pause_seconds` is the time between two calls. Choose a longer one if a call takes much processor time.
    """
    deadline = time.monotonic() + seconds
    while True:
        if result := look():
            return result
        assert time.monotonic() < deadline, (
            f"not true within {seconds:g} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(pause_seconds)


@contextmanager
def stalls() -> Iterator[list[float]]:
    """Yields a list, to which each stall of the machine during the block is added, in seconds.

    A test subtracts these from times that it measured.
    """
    stalls_seconds: list[float] = []
    is_over = threading.Event()

    def nap():
        while not is_over.is_set():
            began = time.monotonic()
            is_over.wait(NAP_SECONDS)
            delay = time.monotonic() - began - NAP_SECONDS
            if delay > NAP_SECONDS:
                stalls_seconds.append(delay)

    napping = threading.Thread(target=nap)
    napping.start()
    try:
        yield stalls_seconds
    finally:
        is_over.set()
        napping.join()
