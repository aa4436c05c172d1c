"""Adds the runs of due schedules. Each scheduled time adds at most one run, however many workers there are.

A transaction locks the schedule's row, and stores both the run and the schedule's next time.
"""

from collections.abc import Callable
from typing import Final

from hookmill.domain.automation import TRIGGERS_PART, Automation
from hookmill.domain.ids import RunKey
from hookmill.domain.run import BySchedule
from hookmill.domain.schedule import (
    CLOCK_ERROR_US,
    MISSED_AFTER_US,
    CatchUp,
    Schedule,
    latest_time,
    next_time,
)
from hookmill.domain.spec import read
from hookmill.store import automations, dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.runs import adding

SCHEDULES_MAX: Final = 50
"""The maximum number of due schedules in one transaction, so that it stays short."""
UNREADABLE_RETRY_US: Final = 30_000_000
"""The time until workers look again at a schedule that can't be read."""


def fire_due(tx: Transaction, now: int, new_key: Callable[[], RunKey]) -> int:
    """Add the runs of up to `SCHEDULES_MAX` due schedules, and return how many were due. `now` is in µs since 1970.

    Schedules that other workers have locked are skipped. Schedules whose `last_at` is wrong count as due.
    """
    rows = tx.all(
        f"""
        SELECT automation_id, name, cron, timezone, catch_up, anchor, last_at
        FROM schedules
        WHERE next_at IS NOT NULL AND (next_at <= :now OR last_at > :latest_plausible)
        ORDER BY next_at
        LIMIT {SCHEDULES_MAX}
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """,
        now=now,
        latest_plausible=now + CLOCK_ERROR_US,
    )
    for row in rows:
        try:
            schedule = read(Schedule, {key: row[key] for key in Schedule.__struct_fields__})
        except Exception:
            # An unreadable schedule must not stop the other schedules.
            _store_times(tx, row, considered_until=row["last_at"], next_at=now + UNREADABLE_RETRY_US)
            continue
        _fire_schedule(tx, row, schedule, now, new_key)
    return len(rows)


def _fire_schedule(tx: Transaction, row: Row, schedule: Schedule, now: int, new_key: Callable[[], RunKey]) -> None:
    """Add a run for the latest time that has passed, unless it was missed and is not caught up. Set the next time."""
    automation = automations.live_by_id(tx, row["automation_id"])
    if automation is None or not automation.enabled:
        _store_times(tx, row, considered_until=row["last_at"], next_at=None)
        return
    if TRIGGERS_PART in automation.unreadable_parts:
        _store_times(tx, row, considered_until=row["last_at"], next_at=now + UNREADABLE_RETRY_US)
        return
    # Intervals (`@every`) count from the anchor. All times up to `considered_until` have fired, or count as missed.
    anchor, considered_until = row["anchor"], row["last_at"]
    if considered_until > now + CLOCK_ERROR_US:
        # The clock was ahead, and was corrected. Without this, nothing would fire until the clock reaches that time.
        considered_until = now
    elif (scheduled_at := latest_time(schedule, considered_until, now, anchor)) is not None:
        considered_until = scheduled_at
        if schedule.catch_up is CatchUp.ONCE or scheduled_at >= now - MISSED_AFTER_US:
            _add_run(tx, automation, schedule, scheduled_at, now, new_key())
    _store_times(tx, row, considered_until=considered_until, next_at=next_time(schedule, considered_until, anchor))


def _add_run(
    tx: Transaction, automation: Automation, schedule: Schedule, scheduled_at: int, now: int, key: RunKey
) -> None:
    adding.add(
        tx,
        key,
        automation=automation,
        started_by=BySchedule(name=schedule.name, scheduled_at=scheduled_at, timezone=schedule.timezone),
        now=now,
    )


def _store_times(tx: Transaction, row: Row, *, considered_until: int, next_at: int | None) -> None:
    tx.run(
        """
        UPDATE schedules
        SET last_at = :last_at, next_at = :next_at
        WHERE automation_id = :automation AND name = :name
        """,
        automation=row["automation_id"],
        name=row["name"],
        last_at=considered_until,
        next_at=next_at,
    )
