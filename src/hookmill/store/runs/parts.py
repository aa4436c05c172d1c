"""SQL conditions for the parts of the queue, and the webhook number of runs without a delivery."""

from typing import Final

READY: Final = "finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"
"""The run is in the backlog: no worker has claimed it, and it has no `Hold`."""
HELD: Final = "finished_at IS NULL AND hold IS NOT NULL"
"""The run has a `Hold`: its policy does not let it start yet, or its next attempt is not due."""
CLAIMED: Final = "finished_at IS NULL AND executor IS NOT NULL"
"""A worker has claimed the run."""
WITHOUT_DELIVERY: Final = 0
"""The webhook number of runs without a delivery."""
