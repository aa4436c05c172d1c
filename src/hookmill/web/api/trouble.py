"""What the operator hears of. While the store is away every request fails in the same way: once a second is enough."""

from collections.abc import Callable
from typing import Final

from hookmill.domain.errors import StoreUnavailable

QUIET_US: Final = 1_000_000


class Trouble:
    def __init__(self, failed: Callable[[str, BaseException], None], now_us: Callable[[], int]) -> None:
        self._failed = failed
        self._now_us = now_us
        self._told_at: int | None = None

    def tell(self, error: BaseException) -> None:
        if isinstance(error, StoreUnavailable):
            now = self._now_us()
            # A clock that was set back must not keep anything quiet.
            if self._told_at is not None and 0 <= now - self._told_at < QUIET_US:
                return
            self._told_at = now
        self._failed("api", error)
