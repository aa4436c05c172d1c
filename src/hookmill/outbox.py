"""Sends the messages of an outbox, which a subclass reads and renders. Workers claim each message before they send it.

One thread claims messages, and another thread sends each of them, so that a slow destination delays no other. An outbox
gives out at most one message of each destination at a time.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hookmill.domain.errors import DestinationUnavailable, ReportFailure
from hookmill.store.database import Database, Transaction

Claimed = TypeVar("Claimed")

IDLE_SECONDS: Final = 2.0
"""The time between two searches for messages that are due."""
FAULT_SECONDS: Final = 30.0
"""The time to the next search after a fault of the database or of this code."""
SENDING_MAX: Final = 8
"""How many messages one worker sends at the same time."""


class OutboxSender(ABC, Generic[Claimed]):
    """The threads. `start` starts the first one. Tests call `send_next` instead."""

    def __init__(
        self, component: str, database: Database, now_us: Callable[[], int], report_failure: ReportFailure
    ) -> None:
        """`now_us`: the time in µs since 1970. `report_failure` is called for each message that is given up after an
        attempt, and for faults; `component` is its first argument."""
        self._component = component
        self._database = database
        self._now_us = now_us
        self._report_failure = report_failure
        self._last_fault = ""
        """The last reported fault, so that a persistent one is reported once."""
        self._is_closed = False
        self._wake = threading.Event()
        self._slots = threading.BoundedSemaphore(SENDING_MAX)
        self._thread = threading.Thread(target=self._run, name=component, daemon=True)

    @abstractmethod
    def _may_have_due(self, tx: Transaction, now: int) -> bool:
        """Whether a message may be due, so that `_claim` is worth a write transaction."""

    @abstractmethod
    def _claim(self, tx: Transaction, now: int) -> Claimed | None: ...

    @abstractmethod
    def _attempt(self, claimed: Claimed) -> str | None:
        """Send the message, and record the outcome. Returns why the message is given up; None if it is not."""

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for messages now. Any thread can call this at little cost."""
        self._wake.set()

    def close(self, seconds: float) -> bool:
        """Stop the threads. A message that takes longer than `seconds` ends with the process, and is sent again.

        Returns whether nothing is being sent any more.
        """
        ends_at = time.monotonic() + seconds
        self._is_closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        # When nothing is being sent, every slot is free.
        return all(self._slots.acquire(timeout=max(ends_at - time.monotonic(), 0)) for _ in range(SENDING_MAX))

    def send_next(self) -> bool:
        """Send one message that is due. Returns whether there was one."""
        claimed = self._claim_next()
        if claimed is None:
            return False
        self._send(claimed)
        return True

    def _claim_next(self) -> Claimed | None:
        now = self._now_us()
        with self._database.read() as tx:
            if not self._may_have_due(tx, now):
                return None
        with self._database.write() as tx:
            return self._claim(tx, now)

    def _send(self, claimed: Claimed) -> None:
        if (problem := self._attempt(claimed)) is not None:
            self._report_failure(self._component, DestinationUnavailable(problem))

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
                if (claimed := self._claim_next()) is not None:
                    # A daemon, so that a slow destination does not keep the process alive.
                    threading.Thread(
                        target=self._send_in_thread, args=(claimed,), name=self._component, daemon=True
                    ).start()
                    is_started = True
            finally:
                if not is_started:
                    self._slots.release()
            if not is_started:
                return

    def _send_in_thread(self, claimed: Claimed) -> None:
        try:
            self._send(claimed)
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
            self._report_failure(self._component, error)
