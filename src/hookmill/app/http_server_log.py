"""Writes the HTTP server's log records as lines of the service's log."""

import logging
import re
from typing import Final

from hookmill.app import log


class ServerLogHandler(logging.Handler):
    """Logs the first line of each record. The other lines are tracebacks, which may quote sensitive data."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().split("\n")[0][:500]
        # Elsewhere, a worker performs runs.
        text = re.sub(r"\bworker-([0-9]+)", r"ingress process \1", message)
        text = text.replace("Worker crash", "Ingress process crash")
        if record.levelno >= logging.ERROR:
            log.error("ingress", text)
        else:
            log.event("http server", what=text)


LOGGING: Final = {"handlers": {"console": {"()": ServerLogHandler}, "access": {"()": logging.NullHandler}}}
"""What replaces the HTTP server's own handlers, for `logging.config.dictConfig`."""
