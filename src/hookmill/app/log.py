"""What the service says to its operator: JSON lines on standard error.

Events are named by us. No header, body, token or path of a request is ever in one.
"""

import logging
import sys
from contextlib import suppress

import structlog

from hookmill.app.at_fork import no_fork
from hookmill.domain.errors import HookmillError
from hookmill.settings import Settings


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
        structlog.get_logger().error("failed", where=where, why=why)


def failure(where: str, error: BaseException) -> None:
    # The text of any other error may quote what was being written.
    trouble(where, str(error) if isinstance(error, HookmillError) else f"a fault of type {type(error).__name__}")
