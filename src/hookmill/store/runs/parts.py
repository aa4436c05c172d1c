"""The parts of the queue, as SQL conditions."""

from typing import Final

READY: Final = "finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"
"""In the backlog."""
HELD: Final = "finished_at IS NULL AND hold IS NOT NULL"
CLAIMED: Final = "finished_at IS NULL AND executor IS NOT NULL"
WITHOUT_DELIVERY: Final = 0
"""The webhook number of runs without a delivery."""
