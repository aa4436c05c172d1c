"""The schedules of automations, and when each is due. `firing` adds their runs."""

from collections.abc import Mapping
from typing import Final

from hookmill.domain.automation import TRIGGERS_PART, Automation
from hookmill.domain.ids import AutomationId, FactoryId
from hookmill.domain.schedule import CLOCK_ERROR_US, next_time, resume_time
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.notifications import notify_workers

NextTimes = Mapping[str, int | None]
"""The next time of each of an automation's schedules, by name, in µs since 1970.

None if the automation is disabled, or if the schedule has no time within 50 years.
"""


def store(tx: Transaction, automation: Automation, now: int) -> None:
    """Store the automation's schedules. Unchanged schedules continue, but skip times that passed while disabled.
    If its triggers can't be read, nothing changes.

    `now` is in µs since 1970.
    """
    if TRIGGERS_PART in automation.unreadable_parts:
        return
    # The rows are locked, because a worker may be firing a schedule now: the same time must not start a second run.
    rows = tx.all(
        f"SELECT * FROM schedules WHERE automation_id = :automation {dialect.lock_clause(tx, 'FOR UPDATE')}",
        automation=automation.id,
    )
    stored_by_name = {row["name"]: row for row in rows}
    for name in stored_by_name.keys() - {schedule.name for schedule in automation.schedules}:
        tx.run("DELETE FROM schedules WHERE automation_id = :id AND name = :name", id=automation.id, name=name)
    for schedule in automation.schedules:
        before = stored_by_name.get(schedule.name)
        if before is not None and (before["cron"], before["timezone"]) == (schedule.cron, schedule.timezone):
            # Intervals (`@every`) count from the anchor.
            anchor = before["anchor"]
            # All times up to `last_at` have fired, or count as missed.
            considered_until = _time_to_continue_after(before, now) if automation.enabled else before["last_at"]
        else:
            anchor = considered_until = now
        tx.run(
            """
            INSERT INTO schedules (automation_id, name, cron, timezone, catch_up, anchor, last_at, next_at)
            VALUES (:automation, :name, :cron, :timezone, :catch_up, :anchor, :last_at, :next_at)
            ON CONFLICT (automation_id, name) DO UPDATE
            SET cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
                anchor = excluded.anchor, last_at = excluded.last_at, next_at = excluded.next_at
            """,
            automation=automation.id,
            name=schedule.name,
            cron=schedule.cron,
            timezone=schedule.timezone,
            catch_up=schedule.catch_up.value,
            anchor=anchor,
            last_at=considered_until,
            next_at=next_time(schedule, considered_until, anchor) if automation.enabled else None,
        )
    if automation.schedules:
        notify_workers(tx)


def _time_to_continue_after(row: Row, now: int) -> int:
    """The time after which an unchanged schedule continues.

    That is the latest time that a worker has considered, or `resume_time` if the schedule was disabled.
    """
    return int(row["last_at"]) if row["next_at"] is not None else resume_time(row["last_at"], now)


def delete(tx: Transaction, automation: AutomationId) -> None:
    tx.run("DELETE FROM schedules WHERE automation_id = :automation", automation=automation)


def next_times(tx: Transaction, factory: FactoryId) -> dict[AutomationId, dict[str, int | None]]:
    """The next times of the factory's schedules, by automation and name. Automations without schedules are omitted."""
    rows = tx.all(
        """
        SELECT s.automation_id, s.name, s.next_at
        FROM schedules s JOIN automations a ON a.id = s.automation_id
        WHERE a.factory_id = :factory
        """,
        factory=factory,
    )
    times: dict[AutomationId, dict[str, int | None]] = {}
    for row in rows:
        times.setdefault(row["automation_id"], {})[row["name"]] = row["next_at"]
    return times


def next_times_of(tx: Transaction, automation: AutomationId) -> dict[str, int | None]:
    """The next times of one automation's schedules."""
    rows = tx.all("SELECT name, next_at FROM schedules WHERE automation_id = :automation", automation=automation)
    return {row["name"]: row["next_at"] for row in rows}


def next_due_at(tx: Transaction, now: int) -> int | None:
    """When the next schedule is due, in µs since 1970.

    Returns `now` if a schedule must be corrected: its `last_at` is in the future, because the clock was wrong.
    """
    row = tx.one(f"SELECT {DUE_COLUMNS}")
    return None if row is None else due_at_of(row, now)


DUE_COLUMNS: Final = """
    (SELECT MIN(next_at) FROM schedules) AS next_at,
    (SELECT MAX(last_at) FROM schedules WHERE next_at IS NOT NULL) AS last_at
"""
"""The columns that `due_at_of` needs."""


def due_at_of(row: Row, now: int) -> int | None:
    """The result of `next_due_at` for a row with the `DUE_COLUMNS`."""
    if row["next_at"] is None:
        return None
    return now if row["last_at"] > now + CLOCK_ERROR_US else int(row["next_at"])
