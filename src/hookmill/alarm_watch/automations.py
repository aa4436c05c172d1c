"""The conditions of alarms about automations."""

from collections.abc import Iterator

from hookmill.domain.alarm import AlarmCondition, AlarmKind, AlarmSubject, AlarmThresholds, duration_text
from hookmill.domain.ids import AutomationId, RunKey, time_ordered_key
from hookmill.store import alarm_inputs, dialect
from hookmill.store.database import Database, Transaction

SECOND_US = 1_000_000


def failing_conditions(tx: Transaction, thresholds: AlarmThresholds) -> Iterator[AlarmCondition]:
    """The automations whose runs fail, or that the service has disabled because their runs failed."""
    for automation in alarm_inputs.failing_automations(tx, thresholds.failed_runs):
        summary = f"At least the last {thresholds.failed_runs} runs failed."
        if automation.pause_reason is not None:
            summary = f"The automation was disabled because of its failures. {automation.pause_reason}"
        yield AlarmCondition(
            kind=AlarmKind.RUNS_FAILING,
            subject=AlarmSubject(id=automation.id, name=automation.name, factory_id=automation.factory_id),
            summary=summary,
        )


class WaitingRuns:
    """Finds automations with runs that wait too long for a worker.

    A run that its policy has held, or that was started before, has an old key, but may have begun to wait just now. It
    counts if it already waited at the previous evaluation.
    """

    def __init__(self) -> None:
        self._previous: frozenset[RunKey] = frozenset()

    def conditions(self, database: Database, thresholds: AlarmThresholds, now: int) -> list[AlarmCondition]:
        """The conditions that hold at `now`, in µs since 1970."""
        created_before = time_ordered_key(max(now - thresholds.waiting_seconds * SECOND_US, 0), bytes(8))
        with database.read() as tx:
            dialect.force_custom_query_plans(tx)
            waiting = alarm_inputs.waiting_runs(tx, created_before)
            automations: set[AutomationId] = {
                run.automation_id for run in waiting if run.has_waited_since_creation or run.key in self._previous
            }
            names = alarm_inputs.automation_names(tx, automations)
        self._previous = frozenset(run.key for run in waiting)
        return [
            AlarmCondition(
                kind=AlarmKind.RUNS_WAITING,
                subject=AlarmSubject(id=automation, name=name, factory_id=factory),
                summary=f"A run has waited for a worker for more than {duration_text(thresholds.waiting_seconds)}.",
            )
            for automation, (name, factory) in names.items()
        ]
