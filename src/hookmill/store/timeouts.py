"""How long the store waits for a database."""

from typing import Final

BUSY_SECONDS: Final = 2
"""How long a statement waits for another process's lock before it counts as unavailable."""
STATEMENT_SECONDS: Final = 5
SILENCE_SECONDS: Final = 2.0 * STATEMENT_SECONDS
"""After so long without a word PostgreSQL counts as gone. It ends a statement by itself much earlier."""
