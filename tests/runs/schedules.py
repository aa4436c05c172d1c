"""Automations with schedules, whose times tests move."""

from collections.abc import Sequence

from hookmill.domain.automation import Automation, ScheduleTrigger
from hookmill.domain.ids import AutomationId, FactoryId
from hookmill.domain.run import Run
from hookmill.domain.schedule import Schedule
from hookmill.store import automations
from hookmill.store.runs import reading
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
FACTORY = FactoryId("fac_one")


def scheduled_automation(
    backlog: Backlog, *, cron: str = "@every 1h", number: int = 0, runner: str = "package"
) -> AutomationId:
    """Create an automation with this schedule, and return its id."""
    backlog.webhook(FACTORY)
    now = microseconds()
    automation = Automation(
        id=AutomationId(f"aut_{number}"),
        factory_id=FACTORY,
        name=f"Report {number}",
        enabled=True,
        version=1,
        prompt="Report.",
        runner=runner,
        triggers=(ScheduleTrigger(event="cron_fired", schedule=Schedule(name="often", cron=cron)),),
        created_at=now,
        updated_at=now,
    )
    with backlog.database.write() as tx:
        automations.add(tx, automation)
    return automation.id


def move_schedules_back(backlog: Backlog, duration: int):
    """Move all times of the stored schedules back by `duration` in µs, as if this time had passed."""
    with backlog.database.write() as tx:
        tx.run(
            """
            UPDATE schedules
            SET anchor = anchor - :duration, last_at = last_at - :duration, next_at = next_at - :duration
            """,
            duration=duration,
        )


def all_runs(backlog: Backlog) -> Sequence[Run]:
    with backlog.database.read() as tx:
        return reading.oldest_runs(tx, factory=FACTORY)
