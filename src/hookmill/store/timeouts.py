"""Timeouts of statements, locks and connections."""

from typing import Final

BUSY_SECONDS: Final = 2
"""The time that a statement waits for a lock. After this time, the store counts as unavailable."""
STATEMENT_SECONDS: Final = 5
RESPONSE_SECONDS: Final = 2.0 * STATEMENT_SECONDS
"""The time without a response after which a connection to PostgreSQL is closed. The server itself cancels a statement
much earlier."""
