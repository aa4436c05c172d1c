"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LONG_SECONDS", "until"]

LONG_SECONDS = 60.0
"""What never comes is told as surely after a minute as after five seconds, for which a busy machine may stand still."""

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
