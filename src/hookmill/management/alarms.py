"""Operations on alarms: list, snooze and wake them. The service raises and resolves them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain import ids
from hookmill.domain.alarm import Alarm
from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.factory import Factory
from hookmill.domain.ids import FactoryId
from hookmill.domain.permission import Caller, MayAdminister, MayManage, MayView
from hookmill.management.installation import Operations
from hookmill.store import alarms
from hookmill.store.database import Transaction

SNOOZE_HOURS_MAX: Final = 720
"""The longest snooze: 30 days."""
HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAlarms:
    """Whether alarms are open and not snoozed."""

    factory: bool = False
    installation: bool = False


class Alarms(Operations):
    """The alarms of the factory of a permission, or those of the installation for a `MayAdminister`."""

    def newest(
        self,
        may: MayView | MayAdminister,
        *,
        is_open: bool | None = None,
        before: bytes | None = None,
        limit: int = 50,
    ) -> Sequence[Alarm]:
        """A page of alarms, newest first. `before` is the key of the previous page's last alarm.

        With `is_open`, only open alarms, including snoozed ones, or only resolved ones.
        """
        with self._installation.reading() as tx:
            return alarms.page(tx, _factory_of(may), is_open=is_open, before=before, limit=limit)

    def get(self, may: MayView | MayAdminister, alarm_id: str) -> Alarm:
        """The alarm with this id. Raises `NotFound`, and `Invalid` for an invalid id."""
        with self._installation.reading() as tx:
            return _alarm_of(tx, may, alarm_id)

    def open_for(self, caller: Caller, factory: Factory | None) -> OpenAlarms:
        """Whether alarms are open and not snoozed that the caller may view: of this factory, and of the installation.

        The caller may view the factory.
        """
        now = self._installation.now()
        with self._installation.reading() as tx:
            return OpenAlarms(
                factory=factory is not None and caller.may_know_of(factory) and alarms.has_open(tx, factory.id, now),
                installation=caller.is_admin and alarms.has_open(tx, None, now),
            )

    def snooze(
        self, may: MayManage | MayAdminister, alarm_id: str, *, hours: int | None = None, until: int | None = None
    ) -> Alarm:
        """Send no messages that an open alarm was raised, for some hours or until a time in µs since 1970.

        If such a message was sent before, the message that the alarm was resolved is still sent. The snooze also
        applies to the next alarms of the kind and subject. Raises `Conflict` if the alarm is resolved. Raises `Invalid`
        unless exactly one of `hours` and `until` is given, and it is within the next 30 days.
        """
        if (hours is None) == (until is None):
            raise Invalid("Set either hours or until, and not both.", pointer="")
        with self._installation.changing(may, needs_disk_space=False) as change:
            alarm = _open_alarm_of(change.tx, may, alarm_id)
            if hours is not None:
                until = change.now + hours * HOUR_US
            if until is None or not change.now < until <= change.now + SNOOZE_HOURS_MAX * HOUR_US:
                raise Invalid(
                    f"A snooze must end within the next {SNOOZE_HOURS_MAX} hours. Choose an earlier or later time.",
                    pointer="/hours" if hours is not None else "/until",
                )
            alarms.snooze(change.tx, alarm.key, until)
            change.record("snooze", "alarm", alarm_id, alarm.subject.name, kind=alarm.kind.value, until_at=until)
            return _alarm_of(change.tx, may, alarm_id)

    def wake(self, may: MayManage | MayAdminister, alarm_id: str) -> Alarm:
        """End the snooze of an open alarm. Raises `Conflict` if the alarm is resolved."""
        with self._installation.changing(may, needs_disk_space=False) as change:
            alarm = _open_alarm_of(change.tx, may, alarm_id)
            if not alarm.is_snoozed(change.now):
                change.skip_audit()
                return alarm
            # The end of the snooze is stored, so that destinations get a notice again.
            alarms.snooze(change.tx, alarm.key, change.now)
            change.record("wake", "alarm", alarm_id, alarm.subject.name, kind=alarm.kind.value)
            return _alarm_of(change.tx, may, alarm_id)

    def now(self) -> int:
        """The time of the service, by which an alarm is snoozed, in µs since 1970."""
        return self._installation.now()


def _factory_of(may: MayView | MayAdminister) -> FactoryId | None:
    return may.factory.id if isinstance(may, MayView) else None


def _alarm_of(tx: Transaction, may: MayView | MayAdminister, alarm_id: str) -> Alarm:
    alarm = alarms.by_key(tx, _factory_of(may), ids.alarm_key(alarm_id))
    if alarm is None:
        if isinstance(may, MayView):
            owner, elsewhere = f"Factory {may.factory.name!r}", "belong to another factory or to the installation"
        else:
            owner, elsewhere = "The installation", "belong to a factory"
        raise NotFound(f"{owner} has no alarm {alarm_id}. It may {elsewhere}, or was removed because it is old.")
    return alarm


def _open_alarm_of(tx: Transaction, may: MayManage | MayAdminister, alarm_id: str) -> Alarm:
    alarm = _alarm_of(tx, may, alarm_id)
    if alarm.resolved_at is not None:
        raise Conflict(f"Alarm {alarm_id} is resolved. Only an open alarm can be snoozed.")
    return alarm
