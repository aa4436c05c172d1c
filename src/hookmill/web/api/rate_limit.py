"""Rate limits of the API, in memory. Each process counts on its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

WINDOW_US: Final = 60_000_000
CALLERS_MAX: Final = 10_000
"""The most callers that are counted at a time. One more replaces the oldest."""


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The state of a caller's rate limit after one more request."""

    limit: int
    remaining: int
    reset_seconds: int
    is_exceeded: bool

    def headers(self) -> Mapping[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_seconds),
        }


class RateLimiter:
    """Limits the requests of each caller to `per_minute`. A caller's first request begins a window of a minute."""

    def __init__(self, per_minute: int, now_us: Callable[[], int]) -> None:
        self._per_minute = per_minute
        self._now_us = now_us
        self._windows: dict[str, tuple[int, int]] = {}

    def count(self, caller: str) -> RateLimitStatus:
        """Count one request of a caller."""
        now = self._now_us()
        began, count = self._windows.pop(caller, (now, 0))
        # A clock that was set back must not lock a caller out.
        if not 0 <= now - began < WINDOW_US:
            began, count = now, 0
        if len(self._windows) >= CALLERS_MAX:
            del self._windows[next(iter(self._windows))]
        count += 1
        self._windows[caller] = began, count
        return RateLimitStatus(
            limit=self._per_minute,
            remaining=max(0, self._per_minute - count),
            reset_seconds=max(1, -(-(began + WINDOW_US - now) // 1_000_000)),
            is_exceeded=count > self._per_minute,
        )
