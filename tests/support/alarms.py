"""Alarms for tests that need one, whatever its cause."""

import os

from hookmill.domain.alarm import AlarmCondition, AlarmKind, AlarmSubject
from hookmill.domain.ids import FactoryId, alarm_id, time_ordered_key
from hookmill.store import alarms
from hookmill.store.database import Database
from tests.support.world import START_US


def add_alarm(
    database: Database,
    factory: FactoryId | None,
    subject_id: str,
    *,
    name: str = "source",
    at: int = START_US,
    resolved_at: int | None = None,
) -> str:
    """Raise an alarm, as an evaluation does, and return its id. Without a factory, it is about the installation."""
    kind = AlarmKind.AUTHENTICATION_FAILING if factory is not None else AlarmKind.DISK_LOW
    condition = AlarmCondition(
        kind=kind, subject=AlarmSubject(id=subject_id, name=name, factory_id=factory), summary="Something is wrong."
    )
    with database.write() as tx:
        alarm = alarms.add(tx, time_ordered_key(at, os.urandom(8)), condition, at)
        assert alarm is not None, "an alarm about the subject is open"
        if resolved_at is not None:
            alarms.set_resolved(tx, alarm.key, resolved_at)
    return alarm_id(alarm.key)
