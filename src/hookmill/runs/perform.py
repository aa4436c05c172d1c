"""One run's life in an executor's hands: begin an attempt, write the package, let the runner act, record the end."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run import Ended, Run, RunState
from hookmill.runs.package import write_package
from hookmill.runs.runner import Left, Runner, Verdict
from hookmill.runs.runners.guard import end_processes_of
from hookmill.store import runs as store
from hookmill.store.database import Database
from hookmill.store.runs import ExecutorId, Standing

PATIENCE_SECONDS: Final = 0.5
"""Between two tries to record an end while the database is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Performs runs that are in the hands of `executor`. Shared by the threads that do it."""

    database: Database
    executor: ExecutorId
    packages: Path
    runners: Mapping[str, Runner]
    clock: Callable[[], int]
    """Microseconds since 1970."""
    leaving: threading.Event
    """Set when the service stops and can't wait any longer."""
    failed: Callable[[str, BaseException], None]
    """Hears of what nobody foresaw."""

    def perform(self, key: RunKey) -> Ended | Left | None:
        """How it ended; `Left` when it is not over; None when it was not ours to begin.

        Its end stands in its row. Raises `StoreUnavailable` if the database was away before the runner was asked.
        """
        run = self._begin(key)
        if run is None:
            return None
        ended = self._act(run)
        if isinstance(ended, Left):
            return ended
        return ended if self._record(run, ended) else Left()

    def _begin(self, key: RunKey) -> Run | None:
        with self.database.write() as tx:
            attempt = store.begin_attempt(tx, key, executor=self.executor, now=self.clock())
            return None if attempt is None else store.run_of(tx, key)

    def _act(self, run: Run) -> Ended | Left:
        runner = self.runners.get(run.runner)
        if runner is None:
            return _failed(
                f"This service started without a runner {run.runner!r}. If hookmill.toml has it by now, start the "
                "service again; else add it there, or choose another one in the automation."
            )
        with self.database.read() as tx:
            payload = store.payload_of(tx, run.delivery_id)
        if payload is None:
            return _failed("The delivery's payload is no longer kept.")
        if run.attempt > 1:
            end_processes_of(run_id(run.id))
        try:
            package = write_package(self.packages, run, payload)
        except OSError as error:
            return _failed(f"The package could not be written: {error.strerror}.")
        try:
            return runner.run(package, lambda: self._verdict(run))
        except Exception as error:
            self.failed(f"runner {run.runner}", error)
            return _failed(f"The runner {run.runner!r} has a fault. The service's log says more.")

    def _verdict(self, run: Run) -> Verdict:
        if self.leaving.is_set():
            return Verdict.LEAVE
        try:
            with self.database.read() as tx:
                standing = store.standing_of(tx, run.id, executor=self.executor, attempt=run.attempt)
        except StoreUnavailable:
            return Verdict.GO_ON
        match standing:
            case Standing.OURS:
                return Verdict.GO_ON
            case Standing.CANCEL_REQUESTED:
                return Verdict.CANCEL
            case Standing.LOST:
                return Verdict.LEAVE
            case _:
                assert_never(standing)

    def _record(self, run: Run, ended: Ended) -> bool:
        """False when a later attempt counts, or the service stops before the database is back."""
        while True:
            try:
                with self.database.write() as tx:
                    return store.finish(
                        tx, run.id, ended, executor=self.executor, attempt=run.attempt, now=self.clock()
                    )
            except StoreUnavailable:
                if self.leaving.wait(PATIENCE_SECONDS):
                    return False


def _failed(reason: str) -> Ended:
    return Ended(state=RunState.FAILED, reason=reason)
