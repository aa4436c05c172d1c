"""Notices that no worker is left, and sends the alarm about that. This watch runs in every ingress process.

A worker evaluates all other alarms and sends their messages, so only another process can report its end. As long as a
worker evaluates, the watch needs one small query a minute.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from hookmill.app import Store, now_us
from hookmill.app.alarm_destinations import AlarmPost
from hookmill.domain.alarm import WORKER_SILENT_SECONDS
from hookmill.domain.errors import ReportFailure
from hookmill.settings import Settings
from hookmill.store import alarms

CHECK_SECONDS: Final = 60.0


class WorkerWatch:
    """The thread. `start` starts it. Tests call `check` instead."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        report_failure: ReportFailure,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._report_failure = report_failure
        self._monotonic = monotonic
        self._last_evaluation: str | None = None
        self._changed_at = monotonic()
        """When this process last saw a new evaluation. The clock is monotonic, so setting the host's clock raises no
        alarm."""
        self._last_fault = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Stop the thread. A message that takes longer than `seconds` ends with the process, and is sent again."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def check(self) -> bool:
        """If no worker is left, raise the alarm, and send the messages that wait. Returns whether this is so."""
        with self._store.database.read() as tx:
            last_evaluation = alarms.last_evaluation(tx)
        if last_evaluation != self._last_evaluation:
            self._last_evaluation = last_evaluation
            self._changed_at = self._monotonic()
        if self._monotonic() - self._changed_at <= WORKER_SILENT_SECONDS:
            return False
        self._report()
        return True

    def _report(self) -> None:
        # Imported here, because a service whose worker lives needs none of it in its ingress processes.
        from hookmill.alarm_watch import AlarmConfig, AlarmEvaluator
        from hookmill.notices.sender import NoticeSender

        config = AlarmConfig(public_url=self._settings.public_url(), thresholds=self._settings.alarm_thresholds)
        AlarmEvaluator(self._store.database, config, now_us).report_stopped_worker()
        sender = NoticeSender(
            self._store.database,
            self._store.master_keys,
            AlarmPost(self._settings, now_us),
            now_us,
            report_failure=self._report_failure,
        )
        while not self._stop.is_set() and sender.send_next():
            continue

    def _run(self) -> None:
        while not self._stop.wait(CHECK_SECONDS):
            try:
                self.check()
                self._last_fault = ""
            except Exception as error:
                # Later checks must run even if one fails.
                if repr(error) != self._last_fault:
                    self._last_fault = repr(error)
                    self._report_failure("worker watch", error)
