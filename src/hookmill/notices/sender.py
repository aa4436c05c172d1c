"""The thread that sends the messages of the outbox. Each worker has one; a message is claimed by one of them."""

import threading
from collections.abc import Callable
from typing import Final, Protocol

from hookmill.domain.alarm_destination import Target
from hookmill.domain.alarm_message import AlarmMessage
from hookmill.domain.errors import DestinationUnavailable, ReportFailure
from hookmill.store import alarm_destinations, notices
from hookmill.store.database import Database
from hookmill.store.keys.sealing import MasterKeys, WrongKey
from hookmill.store.notices import ClaimedMessage

IDLE_SECONDS: Final = 3.0
"""The time between two searches for messages that are due."""
FAULT_SECONDS: Final = 30.0
"""The time to the next search after a fault of the database or of this code."""


class SendMessage(Protocol):
    def __call__(self, target: Target, message: AlarmMessage) -> None:
        """Send the message. Raises `DestinationUnavailable`."""


class NoticeSender:
    """The thread. `start` starts it. Tests call `send_next` instead."""

    def __init__(
        self,
        database: Database,
        master_keys: MasterKeys,
        send: SendMessage,
        now_us: Callable[[], int],
        *,
        report_failure: ReportFailure,
    ) -> None:
        """`now_us`: the time in µs since 1970. `report_failure` is called for each message that is given up."""
        self._database = database
        self._master_keys = master_keys
        self._send = send
        self._now_us = now_us
        self._report_failure = report_failure
        self._last_fault = ""
        """The last reported fault, so that a persistent one is reported once."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alarm notices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Stop the thread. A message that takes longer than `seconds` ends with the process, and is sent again."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def send_next(self) -> bool:
        """Send one message that is due. Returns whether there was one."""
        now = self._now_us()
        with self._database.read() as tx:
            if not notices.next_due(tx, now):
                return False
        with self._database.write() as tx:
            claimed = notices.claim(tx, now)
        if claimed is None:
            return False
        problem = self._attempt(claimed)
        with self._database.write() as tx:
            is_recorded = notices.finish(tx, claimed, self._now_us(), problem)
        if is_recorded and problem is not None and claimed.is_last_attempt:
            self._report_failure(
                "alarm destinations",
                DestinationUnavailable(
                    f"A message to {claimed.shown_target} was given up after {claimed.attempt} attempts: {problem}"
                ),
            )
        return True

    def _attempt(self, claimed: ClaimedMessage) -> str | None:
        """Send the message. Returns why this failed; None if it did not."""
        try:
            with self._database.read() as tx:
                target = alarm_destinations.target(tx, claimed.destination_id, self._master_keys)
            if target is not None:
                self._send(target, claimed.message)
        except (DestinationUnavailable, WrongKey) as error:
            return str(error)
        return None

    def _run(self) -> None:
        pause_seconds = IDLE_SECONDS
        while not self._stop.wait(pause_seconds):
            pause_seconds = IDLE_SECONDS
            try:
                while self.send_next() and not self._stop.is_set():
                    continue
                self._last_fault = ""
            except Exception as error:
                # Later messages must be sent even if one has a fault. Its claim expires, and it is sent again.
                pause_seconds = FAULT_SECONDS
                if repr(error) != self._last_fault:
                    self._last_fault = repr(error)
                    self._report_failure("alarm destinations", error)
