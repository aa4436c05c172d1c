"""Prunes runs without a delivery, and what deleted automations have left.

`store.log_retention` removes other runs with their deliveries.
"""

from typing import Final

from hookmill.domain.ids import AutomationId, time_ordered_key
from hookmill.domain.limits import LOG_DAYS_KEPT, LOG_ROWS_KEPT
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.runs.parts import WITHOUT_DELIVERY
from hookmill.store.runs.removal import remove_runs

DAY_US: Final = 86_400_000_000


def automations_to_prune(tx: Transaction, now: int) -> list[AutomationId]:
    """The automations that have runs without a delivery from before the last `LOG_DAYS_KEPT` days, or were deleted
    before that. `now` is in µs since 1970."""
    return tx.scalars(
        f"""
        SELECT a.id
        FROM automations a
        WHERE a.deleted_at < :deleted_before OR EXISTS (
            SELECT 1 FROM runs r
            WHERE r.automation_id = a.id AND r.webhook_no = {WITHOUT_DELIVERY} AND r.id < :cutoff
        )
        ORDER BY a.id
        """,
        cutoff=_cutoff(now),
        deleted_before=now - LOG_DAYS_KEPT * DAY_US,
    )


def prune(tx: Transaction, automation: AutomationId, now: int, at_most: int) -> int:
    """Remove up to `at_most` of the automation's runs without a delivery, and return how many were removed.

    It keeps runs younger than `LOG_DAYS_KEPT`, the newest `LOG_ROWS_KEPT` runs, and unfinished runs. Of an automation
    that was deleted `LOG_DAYS_KEPT` ago, it keeps only unfinished runs, and removes runs of deliveries, too. After its
    last run, the automation itself is removed with its prompts.
    """
    if _was_deleted_before(tx, automation, now - LOG_DAYS_KEPT * DAY_US):
        return _prune_deleted(tx, automation, at_most)
    dialect.force_custom_query_plans(tx)
    runs = tx.scalars(
        f"""
        SELECT id
        FROM runs
        WHERE automation_id = :automation AND webhook_no = {WITHOUT_DELIVERY} AND id < :cutoff
          AND id < COALESCE((
              SELECT newer.id
              FROM runs newer
              WHERE newer.automation_id = :automation AND newer.webhook_no = {WITHOUT_DELIVERY}
              ORDER BY newer.id DESC
              LIMIT 1 OFFSET {LOG_ROWS_KEPT - 1}
          ), :smallest_key)
          AND finished_at IS NOT NULL
        ORDER BY id
        LIMIT :at_most
        """,
        automation=automation,
        cutoff=_cutoff(now),
        # No key is less: with fewer than `LOG_ROWS_KEPT` runs, none is removed.
        smallest_key=b"",
        at_most=at_most,
    )
    remove_runs(tx, runs)
    return len(runs)


def _was_deleted_before(tx: Transaction, automation: AutomationId, time: int) -> bool:
    query = "SELECT 1 FROM automations WHERE id = :id AND deleted_at < :time"
    return tx.one(query, id=automation, time=time) is not None


def _prune_deleted(tx: Transaction, automation: AutomationId, at_most: int) -> int:
    runs = tx.scalars(
        "SELECT id FROM runs WHERE automation_id = :automation AND finished_at IS NOT NULL LIMIT :at_most",
        automation=automation,
        at_most=at_most,
    )
    remove_runs(tx, runs)
    if tx.one("SELECT 1 FROM runs WHERE automation_id = :id LIMIT 1", id=automation) is None:
        tx.run("DELETE FROM automation_versions WHERE automation_id = :id", id=automation)
        tx.run("DELETE FROM automations WHERE id = :id", id=automation)
    return len(runs)


def _cutoff(now: int) -> bytes:
    """The first key of a run that is younger than `LOG_DAYS_KEPT`."""
    return time_ordered_key(max(now - LOG_DAYS_KEPT * DAY_US, 0), bytes(8))
