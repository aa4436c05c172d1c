"""Sends the messages about alarms."""

from collections.abc import Callable
from typing import Protocol

from hookmill.domain.alarm_destination import Target
from hookmill.domain.alarm_message import AlarmMessage
from hookmill.domain.errors import DestinationUnavailable, ReportFailure
from hookmill.outbox import OutboxSender
from hookmill.store import alarm_destinations, notices
from hookmill.store.database import Database, Transaction
from hookmill.store.keys.sealing import KeyRing, WrongKey
from hookmill.store.notices import ClaimedMessage


class SendMessage(Protocol):
    def __call__(self, target: Target, message: AlarmMessage) -> None:
        """Send the message. Raises `DestinationUnavailable`."""


class NoticeSender(OutboxSender[ClaimedMessage]):
    def __init__(
        self,
        database: Database,
        master_keys: KeyRing,
        send: SendMessage,
        now_us: Callable[[], int],
        *,
        report_failure: ReportFailure,
    ) -> None:
        super().__init__("alarm destinations", database, now_us, report_failure)
        self._master_keys = master_keys
        self._send_message = send

    def _may_have_due(self, tx: Transaction, now: int) -> bool:
        return notices.may_have_due(tx, now)

    def _claim(self, tx: Transaction, now: int) -> ClaimedMessage | None:
        return notices.claim(tx, now)

    def _attempt(self, claimed: ClaimedMessage) -> str | None:
        problem = None
        try:
            with self._database.read() as tx:
                target = alarm_destinations.target(tx, claimed.destination_id, self._master_keys)
            if target is not None:
                self._send_message(target, claimed.message)
        except (DestinationUnavailable, WrongKey) as error:
            problem = str(error)
        with self._database.write() as tx:
            is_recorded = notices.finish(tx, claimed, self._now_us(), problem)
        if not is_recorded or problem is None or not claimed.is_last_attempt:
            return None
        return f"A message to {claimed.shown_target} was given up after {claimed.attempt} attempts: {problem}"
