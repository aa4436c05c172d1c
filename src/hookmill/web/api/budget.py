"""How many requests in a minute: in memory, each process for itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

WINDOW_US: Final = 60_000_000
KNOWN_MAX: Final = 10_000
"""How many callers are counted at a time. Then the one that came first is forgotten."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Where a caller stands after one more request."""

    limit: int
    remaining: int
    reset_seconds: int
    is_over: bool

    def headers(self) -> Mapping[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_seconds),
        }


class Budget:
    """So many in each minute, for each of many callers. A minute begins with a caller's first request."""

    def __init__(self, per_minute: int, now_us: Callable[[], int]) -> None:
        self._per_minute = per_minute
        self._now_us = now_us
        self._windows: dict[str, tuple[int, int]] = {}

    def spend(self, whose: str) -> Spent:
        now = self._now_us()
        began, count = self._windows.pop(whose, (now, 0))
        # A clock that was set back must not shut anybody out.
        if not 0 <= now - began < WINDOW_US:
            began, count = now, 0
        if len(self._windows) >= KNOWN_MAX:
            del self._windows[next(iter(self._windows))]
        count += 1
        self._windows[whose] = began, count
        return Spent(
            limit=self._per_minute,
            remaining=max(0, self._per_minute - count),
            reset_seconds=max(1, -(-(began + WINDOW_US - now) // 1_000_000)),
            is_over=count > self._per_minute,
        )
