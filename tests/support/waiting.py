"""Waiting for what other threads and processes do."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["LONG_SECONDS", "stalls", "until"]

LONG_SECONDS = 60.0
"""What never comes is told as surely after a minute as after five seconds, for which a busy machine may stand still."""

NAP_SECONDS = 0.05

T = TypeVar("T")


def until(
    look: Callable[[], T | None], what: str | Callable[[], str] = "it is so", *, seconds: float = LONG_SECONDS
) -> T:
    """What `look` finds, as soon as it finds anything. Fails with `what` in words when it does not in time."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, (
            f"within {seconds:g} s it did not happen that {what if isinstance(what, str) else what()}"
        )
        time.sleep(0.02)


@contextmanager
def stalls() -> Iterator[list[float]]:
    """How many seconds the machine stood still while the block ran, each time: nobody else is to blame for these."""
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
