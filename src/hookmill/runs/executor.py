"""Performs attempts in threads of this process.

It stores nothing: the `runs` table is the queue. If an attempt fails unexpectedly, its run stays claimed by this
process, and is no longer in flight. The dispatcher requeues such runs.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from hookmill.domain.errors import ReportFailure
from hookmill.domain.ids import RunKey


class Executor:
    """The attempts in flight: those that threads of this process perform, or are about to perform.

    A thread that has ended an attempt waits for the next one. The caller limits the number of attempts.
    """

    def __init__(
        self,
        perform: Callable[[RunKey, int], object],
        *,
        report_failure: ReportFailure,
        slot_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """`perform` is called with each run and attempt, and `slot_freed` when an attempt is no longer in flight."""
        self._perform = perform
        self._report_failure = report_failure
        self._slot_freed = slot_freed
        self._changed = threading.Condition()
        self._in_flight: list[RunKey] = []
        """A run that was claimed again is in it twice, until the thread of the old attempt notices that."""
        self._thread_count = 0
        self._is_closed = False
        self._pending: SimpleQueue[tuple[RunKey, int] | None] = SimpleQueue()
        """Attempts that no thread performs yet. None ends a thread."""

    @property
    def count(self) -> int:
        """The number of attempts in flight, each of which occupies a slot."""
        return len(self._in_flight)

    @property
    def runs(self) -> set[RunKey]:
        """The runs in flight."""
        with self._changed:
            return set(self._in_flight)

    def start(self, run: RunKey, attempt: int) -> None:
        """Perform an attempt in a thread, unless the executor is closed.

        Raises `RuntimeError` if the host has no resources for another thread. The attempt is not in flight then.
        """
        with self._changed:
            if self._is_closed:
                return
            if self._thread_count == len(self._in_flight):
                # The interpreter does not wait for this thread when it ends: a thread may wait for a dead disk forever.
                threading.Thread(target=self._work, name="run", daemon=True).start()
                self._thread_count += 1
            self._in_flight.append(run)
            self._pending.put((run, attempt))

    def _work(self) -> None:
        """In a thread: perform attempts until the executor is closed."""
        while (pending := self._pending.get()) is not None:
            run, attempt = pending
            # No exception may end this thread, not even the `SystemExit` of a library.
            with suppress(BaseException):
                try:
                    self._perform(run, attempt)
                except BaseException as error:
                    self._report_failure("runs", error)
            with self._changed:
                self._in_flight.remove(run)
                self._changed.notify_all()
            self._slot_freed()

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no attempt is in flight. Returns False if `seconds` pass before that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_flight, timeout=seconds)

    def close(self) -> None:
        """Start no more attempts, and end each thread after its attempt."""
        with self._changed:
            self._is_closed = True
            for _ in range(self._thread_count):
                self._pending.put(None)
