"""The threads that send the messages of the outbox of results.

One of them looks for messages. It wakes the others while there is more to send, so that a slow destination does not
delay the others. At most one message at a time is sent to each destination, over all workers.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from hookmill.domain.errors import DestinationUnavailable, ReportFailure, StoreUnavailable
from hookmill.domain.ids import run_id
from hookmill.store import results
from hookmill.store.database import Database
from hookmill.store.results import ClaimedResult, NotSent, Outcome
from hookmill.store.runs.executors import ExecutorId

THREADS: Final = 3
IDLE_SECONDS: Final = 2.0
"""The time between two searches for messages that are due."""
FAULT_SECONDS: Final = 30.0
"""The time to the next search after a fault of the database or of this code."""


class SendResult(Protocol):
    def __call__(self, claimed: ClaimedResult) -> Outcome: ...


class ResultSender:
    """The threads. `start` starts them. Tests call `send_next` instead."""

    def __init__(
        self,
        database: Database,
        send: SendResult,
        now_us: Callable[[], int],
        *,
        public_url: str,
        report_failure: ReportFailure,
    ) -> None:
        """`now_us`: the time in µs since 1970. `report_failure` is called when a message is given up after an attempt,
        and for faults. A message whose worker died in the last attempt is given up without a report.
        """
        self._database = database
        self._send = send
        self._now_us = now_us
        self._public_url = public_url
        self._report_failure = report_failure
        self._executor: ExecutorId | None = None
        """The worker that claims messages. Its claims are released when it is dead."""
        self._last_fault = ""
        """The last reported fault, so that a persistent one is reported once."""
        self._stop = threading.Event()
        self._has_work = threading.Event()
        self._more = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._look_for_messages, name="results", daemon=True),
            *(threading.Thread(target=self._help, name="results", daemon=True) for _ in range(THREADS - 1)),
        ]

    def start(self, executor: ExecutorId) -> None:
        self._executor = executor
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Look for messages now. Any thread can call this at little cost."""
        self._has_work.set()

    def close(self, seconds: float) -> None:
        """Stop the threads. A message that takes longer than `seconds` ends with the process, and is sent again."""
        self._stop.set()
        self._has_work.set()
        for _ in self._threads:
            self._more.release()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(seconds)
        if self._executor is not None and any(thread.is_alive() for thread in self._threads):
            with suppress(StoreUnavailable), self._database.write() as tx:
                results.release(tx, self._executor)

    def send_next(self) -> bool:
        """Send one message that is due. Returns whether there was one."""
        now = self._now_us()
        with self._database.read() as tx:
            if not results.may_have_due(tx, now):
                return False
        with self._database.write() as tx:
            claimed = results.claim(tx, now, public_url=self._public_url, executor=self._executor)
        if claimed is None:
            return False
        # Another thread may find a message for another destination.
        self._more.release()
        outcome = self._send(claimed)
        with self._database.write() as tx:
            is_recorded = results.finish(tx, claimed, outcome, self._now_us())
        if is_recorded and isinstance(outcome, NotSent) and (outcome.is_final or claimed.is_last_attempt):
            self._report_failure(
                "results",
                DestinationUnavailable(
                    f"The {claimed.kind.value} of {run_id(claimed.result.run)} for the destination "
                    f"{claimed.destination!r} was given up: {outcome.problem}"
                ),
            )
        return True

    def _look_for_messages(self) -> None:
        pause_seconds = IDLE_SECONDS
        while not self._stop.is_set():
            self._has_work.wait(pause_seconds)
            self._has_work.clear()
            pause_seconds = IDLE_SECONDS if self._send_all() else FAULT_SECONDS

    def _help(self) -> None:
        while True:
            self._more.acquire()
            if self._stop.is_set():
                return
            self._send_all()

    def _send_all(self) -> bool:
        """Send what is due. Returns False after a fault, which is reported."""
        try:
            while not self._stop.is_set() and self.send_next():
                continue
            self._last_fault = ""
        except Exception as error:
            # The claim expires, and the message is sent again.
            if repr(error) != self._last_fault:
                self._last_fault = repr(error)
                self._report_failure("results", error)
            return False
        return True
