"""The service's log: lines on standard error. They are JSON, or text if that is a terminal.

Log lines never contain a header, body, token or path of a request.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog

from hookmill.app.at_fork import no_fork
from hookmill.app.log_output import LineWriter
from hookmill.app.outage import DatabaseOutage
from hookmill.domain.errors import DatabaseUnreachable, HookmillError, describe_fault
from hookmill.domain.text import shown
from hookmill.metrics import COMPONENTS, FAULTS, Metrics
from hookmill.settings import Settings
from hookmill.store.database import Database, unavailable_error
from hookmill.store.dialect import accepts_writes

REPEATS_LOGGED: Final = 5
"""The maximum number of equal error lines in `REPEATS_SECONDS`. The first later line has the number of suppressed
lines."""
REPEATS_SECONDS: Final = 10.0
_DISTINCT_ERRORS_MAX: Final = 256


class RepeatedErrorLimiter:
    """Limits equal error lines, so that a repeated error can't fill the log and hide other errors."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str], tuple[float, int]] = {}
        """By component and reason: the start of the window in monotonic seconds, and the lines in it."""

    def count_suppressed_lines(self, component: str, reason: str, now: float) -> int | None:
        """How many equal lines were suppressed before this one; None if this one must be suppressed too.

        `now` is in monotonic seconds.
        """
        since, count = self._recent.pop((component, reason), (now, 0))
        is_window_over = now - since >= REPEATS_SECONDS
        if len(self._recent) >= _DISTINCT_ERRORS_MAX:
            del self._recent[next(iter(self._recent))]
        self._recent[component, reason] = (now, 1) if is_window_over else (since, count + 1)
        if is_window_over:
            return max(0, count - REPEATS_LOGGED)
        return 0 if count < REPEATS_LOGGED else None


_limiter: Final = RepeatedErrorLimiter()
_metrics = Metrics()
_outage: DatabaseOutage | None = None


def configure(settings: Settings, metrics: Metrics | None = None) -> None:
    """Configure the log of this process. Its faults are counted in `metrics`.

    From now on, the process ends with a thread that panics.
    """
    threading.excepthook = _thread_ended
    global _metrics
    _metrics = metrics or Metrics()
    # The counters of all components begin with 0, so that the first fault is an increase.
    _metrics.number(FAULTS, "other")
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _text_line if os.isatty(2) else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: LineWriter(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _text_line(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> str:
    """The line for a person at a terminal, such as `16:46:49 warning: runner x: its commands have no sandbox`."""
    at, level, name = (str(fields.pop(key)) for key in ("timestamp", "level", "event"))
    details = [str(fields.pop(key)) for key in ("where", "why", "what") if key in fields]
    rest = [f"({key}: {value})" for key, value in fields.items()]
    # Without `why`, the name is the only text that says what happened.
    parts = details if level in ("warning", "error") else [name, *details]
    return shown(f"{at[11:19]} {level}: {' '.join([': '.join(parts), *rest])}")


def _thread_ended(thread: threading.ExceptHookArgs) -> None:
    """Log the exception that ended a thread.

    Threads catch each `Exception` that may not end them. The panics of libraries in Rust are none. What such a library
    has in memory may be broken, and the process would only seem to work without the thread. So it ends, and is started
    again.
    """
    if thread.exc_value is None:
        return
    failure(thread.thread.name if thread.thread is not None else "thread", thread.exc_value)
    if not isinstance(thread.exc_value, Exception):
        os._exit(1)


# These functions never raise, and never wait for long: a log on a full disk, or a stuck reader, must not stop the
# service.


def event(name: str, **details: str) -> None:
    """Log what the service did, at level info."""
    with suppress(OSError, ValueError), no_fork:
        structlog.get_logger().info(name, **details)


def error(component: str, reason: str) -> None:
    """Log a fault, unless an equal line was logged too often. The metrics count it in any case."""
    _metrics.number(FAULTS, _counted_component(component)).add()
    with suppress(OSError, ValueError), no_fork:
        if (suppressed_lines := _limiter.count_suppressed_lines(component, reason, time.monotonic())) is not None:
            more = {"left_out": suppressed_lines} if suppressed_lines else {}
            structlog.get_logger().error("failed", where=component, why=reason, **more)


def _counted_component(component: str) -> str:
    """The component without the name of an automation or runner: a metric has a limited number of components."""
    kind = component.partition(" ")[0]
    return component if component in COMPONENTS else kind if kind in COMPONENTS else "other"


def unusable_proxies() -> None:
    """Warn of proxies in the environment that can't be used. What needs no other host works without them."""
    # Imported here, because its modules take time and memory, and a process calls this once.
    from hookmill.outbound.proxies import proxies_in_environment

    for proxy, text in proxies_in_environment():
        if proxy is None:
            warning("proxies", text)


def warning(component: str, reason: str) -> None:
    """Log what the operator should change, although the service works: a setting, an unusable runner, a missing git."""
    with suppress(OSError, ValueError), no_fork:
        structlog.get_logger().warning("check this", where=component, why=reason)


def recovery(component: str, what: str) -> None:
    """Log that a fault has ended, at level info."""
    event("recovered", where=component, what=what)


def watch_outages(database: Database) -> None:
    """From now on, `failure` logs an outage of `database` once per component, and its end once."""
    global _outage
    _outage = DatabaseOutage(lambda: accepts_writes(database), report_recovery=recovery)


def failure(component: str, exception: BaseException) -> None:
    """Log an exception as a fault. Only the text of our own exceptions is logged: others may quote sensitive data.

    Errors of the database's driver are logged with the driver's reason, which has no statement and no parameters.
    """
    if not isinstance(exception, HookmillError):
        exception = unavailable_error(exception) or exception
    if isinstance(exception, DatabaseUnreachable) and _outage is not None and not _outage.begins_for(component):
        _metrics.number(FAULTS, _counted_component(component)).add()
        return
    is_ours = isinstance(exception, HookmillError)
    why = str(exception) if is_ours else f"{describe_fault(exception)}{_errno_text(exception)}"
    error(component, why)


def _errno_text(exception: BaseException) -> str:
    """`: No space left on device`; empty for an exception without a number of the operating system."""
    # Errors of libraries, such as `SSLError`, have numbers of their own.
    if isinstance(exception, OSError) and type(exception).__module__ == "builtins" and exception.errno:
        return f": {os.strerror(exception.errno)}"
    return ""
