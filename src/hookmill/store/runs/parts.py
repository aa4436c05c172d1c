"""SQL conditions for the parts of the queue, and the webhook number of runs without a delivery."""

from typing import Final

READY: Final = "finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"
"""The run is in the backlog: no worker has claimed it, and no policy holds it."""
HELD: Final = "finished_at IS NULL AND hold IS NOT NULL"
"""A policy holds the run."""
CLAIMED: Final = "finished_at IS NULL AND executor IS NOT NULL"
"""A worker has claimed the run."""
WITHOUT_DELIVERY: Final = 0
"""The webhook number of runs without a delivery."""
