"""SQL for the parts of the queue, and the webhook number of runs without a delivery."""

from typing import Final

READY: Final = "finished_at IS NULL AND claimed_at IS NULL AND hold IS NULL"
"""The run is in the backlog: no worker has claimed it, and it has no `Hold`."""
HELD: Final = "finished_at IS NULL AND hold IS NOT NULL"
"""The run has a `Hold`: its policy does not let it start yet, or its next attempt is not due."""
CLAIMED: Final = "finished_at IS NULL AND executor IS NOT NULL"
"""A worker has claimed the run."""
FACTORIES_IN_BACKLOG: Final = f"""
    WITH RECURSIVE backlog (factory_id) AS (
        SELECT min(factory_id) FROM runs WHERE {READY} AND factory_id > :after
        UNION ALL
        SELECT (
            SELECT min(factory_id) FROM runs WHERE {READY} AND factory_id > backlog.factory_id
        )
        FROM backlog
        WHERE backlog.factory_id IS NOT NULL
    )
"""
"""The table `backlog` of the factories with ready runs, by id, from the one after `:after`. Its last row is NULL.

It is a loose index scan: it reads one entry of each factory, however many runs the factory has."""
WITHOUT_DELIVERY: Final = 0
"""The webhook number of runs without a delivery."""
