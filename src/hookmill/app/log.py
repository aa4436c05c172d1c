"""What the service says to its operator: JSON lines on standard error.

Events are named by us. No header, body, token or path of a request is ever in one.
"""

import logging
import sys
import time
from contextlib import suppress
from typing import Final

import structlog

from hookmill.app.at_fork import no_fork
from hookmill.domain.errors import HookmillError
from hookmill.settings import Settings

REPEATS_LOGGED: Final = 5
"""Equal lines about a fault that are logged within `REPEATS_SECONDS`. The next one says how many were left out."""
REPEATS_SECONDS: Final = 10.0
_KNOWN_MAX: Final = 256


class Repeats:
    """Keeps one fault that happens again and again from filling the log and hiding the others."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[float, int]] = {}

    def left_out(self, where: str, why: str, now: float) -> int | None:
        """How many equal lines were left out before this one; None where it is left out too. `now` is monotonic."""
        since, count = self._known.pop((where, why), (now, 0))
        is_over = now - since >= REPEATS_SECONDS
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[where, why] = (now, 1) if is_over else (since, count + 1)
        if is_over:
            return max(0, count - REPEATS_LOGGED)
        return 0 if count < REPEATS_LOGGED else None


_repeats: Final = Repeats()


def configure(settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def event(name: str, **facts: str) -> None:
    """Tell the operator what the service did. Never raises, for the same reason as `trouble`."""
    with suppress(OSError, ValueError), no_fork:
        structlog.get_logger().info(name, **facts)


def trouble(where: str, why: str) -> None:
    """Tell the operator of a fault. Never raises: a log on a full disk must not stop what heals by itself."""
    with suppress(OSError, ValueError), no_fork:
        if (left_out := _repeats.left_out(where, why, time.monotonic())) is not None:
            more = {"left_out": left_out} if left_out else {}
            structlog.get_logger().error("failed", where=where, why=why, **more)


def warning(where: str, why: str) -> None:
    """Tell the operator of what should be changed, though everything works. Never raises, as above."""
    with suppress(OSError, ValueError), no_fork:
        structlog.get_logger().warning("check this", where=where, why=why)


def failure(where: str, error: BaseException) -> None:
    # The text of any other error may quote what was being written.
    trouble(where, str(error) if isinstance(error, HookmillError) else f"a fault of type {type(error).__name__}")
