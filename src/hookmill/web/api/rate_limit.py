"""Rate limits of the API, in memory. Each process counts only its own requests.

A caller is an API key, or the network of clients without a valid key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

WINDOW_US: Final = 60_000_000
CALLERS_MAX: Final = 10_000
"""The maximum number of callers in memory. A further caller replaces the caller whose last request is oldest."""


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The state of a caller's rate limit after a request. `reset_seconds`: until the window ends, at least 1."""

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
    """Limits each caller to `per_minute` requests in a window of a minute, which the caller's first request starts."""

    def __init__(self, per_minute: int, now_us: Callable[[], int]) -> None:
        self._per_minute = per_minute
        self._now_us = now_us
        self._windows: dict[str, tuple[int, int]] = {}
        """The start and the number of requests of each caller's window, by caller. Ordered by the last request."""

    def count(self, caller: str) -> RateLimitStatus:
        """Count one request of a caller, and return the state of the caller's limit."""
        now = self._now_us()
        started_at, count = self._windows.pop(caller, (now, 0))
        # A window in the future means that the clock was set back. Such a window must not lock the caller out.
        if not 0 <= now - started_at < WINDOW_US:
            started_at, count = now, 0
        if len(self._windows) >= CALLERS_MAX:
            del self._windows[next(iter(self._windows))]
        count += 1
        # `pop` removed the caller, so this adds it at the end of the dictionary.
        self._windows[caller] = started_at, count
        return RateLimitStatus(
            limit=self._per_minute,
            remaining=max(0, self._per_minute - count),
            reset_seconds=max(1, -(-(started_at + WINDOW_US - now) // 1_000_000)),
            is_exceeded=count > self._per_minute,
        )
