"""Timeouts of statements, locks and connections."""

from typing import Final

BUSY_SECONDS: Final = 2
"""The time that a statement waits for a lock. After this time, the store counts as unavailable."""
STATEMENT_SECONDS: Final = 5
"""The time that a statement of PostgreSQL may take. Also the time to wait for a connection, new or from the pool."""
IDLE_SECONDS: Final = 15
"""PostgreSQL rolls a transaction back, and so releases its locks, if it waits this long for the next statement."""
WORKER_IDLE_SECONDS: Final = 4
"""The same for workers. It is shorter than the time after which a worker without heartbeats counts as dead. So a frozen
worker holds no lock when another worker requeues its runs."""
RESPONSE_SECONDS: Final = 2.0 * STATEMENT_SECONDS
"""The time without a response after which a connection to PostgreSQL is closed. The server itself cancels a statement
much earlier."""
