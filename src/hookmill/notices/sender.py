"""Sends the messages of the outbox. Each worker has one sender; a message is claimed by one of them.

One thread claims messages, and another thread sends each of them, so that a slow destination delays no other. The
outbox gives out at most one message of each destination at a time.
"""

import threading
import time
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
SENDING_MAX: Final = 8
"""How many messages one worker sends at the same time."""


class SendMessage(Protocol):
    def __call__(self, target: Target, message: AlarmMessage) -> None:
        """Send the message. Raises `DestinationUnavailable`."""


class NoticeSender:
    """The threads. `start` starts the first one. Tests call `send_next` instead."""

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
        self._is_closed = False
        self._wake = threading.Event()
        """Set when a message may be due, because another one was sent, and when the sender is closed."""
        self._slots = threading.BoundedSemaphore(SENDING_MAX)
        self._thread = threading.Thread(target=self._run, name="alarm notices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Stop the threads. A message that takes longer than `seconds` ends with the process, and is sent again."""
        ends_at = time.monotonic() + seconds
        self._is_closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        # When nothing is being sent, every slot is free.
        for _ in range(SENDING_MAX):
            if not self._slots.acquire(timeout=max(ends_at - time.monotonic(), 0)):
                return

    def send_next(self) -> bool:
        """Send one message that is due. Returns whether there was one."""
        claimed = self._claim()
        if claimed is None:
            return False
        self._send_claimed(claimed)
        return True

    def _claim(self) -> ClaimedMessage | None:
        now = self._now_us()
        with self._database.read() as tx:
            if not notices.next_due(tx, now):
                return None
        with self._database.write() as tx:
            return notices.claim(tx, now)

    def _send_claimed(self, claimed: ClaimedMessage) -> None:
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

    # The threads

    def _run(self) -> None:
        pause_seconds = IDLE_SECONDS
        while True:
            self._wake.wait(pause_seconds)
            self._wake.clear()
            if self._is_closed:
                return
            try:
                self._start_sending()
                pause_seconds = IDLE_SECONDS
            except Exception as error:
                pause_seconds = FAULT_SECONDS
                self._report_fault(error)

    def _start_sending(self) -> None:
        """Start a thread for each message that is due, while there are free slots."""
        while not self._is_closed and self._slots.acquire(blocking=False):
            is_started = False
            try:
                if (claimed := self._claim()) is not None:
                    # A daemon, so that a slow destination does not keep the process alive.
                    threading.Thread(
                        target=self._send_in_thread, args=(claimed,), name="alarm notice", daemon=True
                    ).start()
                    is_started = True
            finally:
                if not is_started:
                    self._slots.release()
            if not is_started:
                return

    def _send_in_thread(self, claimed: ClaimedMessage) -> None:
        try:
            self._send_claimed(claimed)
            self._last_fault = ""
        except Exception as error:
            # The claim expires, and the message is sent again.
            self._report_fault(error)
        finally:
            self._slots.release()
            self._wake.set()

    def _report_fault(self, error: Exception) -> None:
        if repr(error) != self._last_fault:
            self._last_fault = repr(error)
            self._report_failure("alarm destinations", error)
