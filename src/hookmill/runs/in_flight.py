"""Keeps track of the runs that this process performs, and detects dead processes."""

import threading
from collections.abc import Iterable, Mapping

from hookmill.domain.ids import RunKey
from hookmill.store.runs.executors import ExecutorId


class InFlight:
    """The runs that threads of this process perform or are about to perform. Safe for use by several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count_by_run: dict[RunKey, int] = {}
        self._not_begun: set[tuple[RunKey, int]] = set()
        """Runs, and their attempts, that no thread performs yet."""

    @property
    def count(self) -> int:
        """The number of attempts, each of which occupies a slot."""
        with self._changed:
            return sum(self._count_by_run.values())

    @property
    def keys(self) -> list[RunKey]:
        with self._changed:
            return list(self._count_by_run)

    def add(self, key: RunKey, attempt: int) -> None:
        # A run that was requeued and claimed again counts twice, until the thread of the old attempt notices that.
        with self._changed:
            self._count_by_run[key] = self._count_by_run.get(key, 0) + 1
            self._not_begun.add((key, attempt))

    def begin(self, key: RunKey, attempt: int) -> bool:
        """Whether the calling thread shall perform the attempt. True only for the first call after `add`."""
        with self._changed:
            if (key, attempt) not in self._not_begun:
                return False
            self._not_begun.remove((key, attempt))
            return True

    def discard(self, key: RunKey, attempt: int) -> None:
        """Remove an attempt that could not be started. If a thread has begun it after all, that thread removes it."""
        if self.begin(key, attempt):
            self.remove(key)

    def remove(self, key: RunKey) -> None:
        """Remove an attempt that has begun."""
        with self._changed:
            self._count_by_run[key] -= 1
            if not self._count_by_run[key]:
                del self._count_by_run[key]
            self._changed.notify_all()

    def keys_not_in_flight(self, keys: Iterable[RunKey]) -> set[RunKey]:
        """Those of the `keys` whose runs are not in flight."""
        with self._changed:
            return {key for key in keys if key not in self._count_by_run}

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no run is in flight. Returns False if `seconds` pass before that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count_by_run, timeout=seconds)


class Heartbeats:
    """Detects dead processes: their heartbeats stop changing. It uses only the monotonic clock of this process."""

    def __init__(self, dead_after_seconds: float) -> None:
        self._dead_after_seconds = dead_after_seconds
        self._last_changes: dict[ExecutorId, tuple[int, float]] = {}
        """The last heartbeat of each executor, and when this process first read it, in monotonic seconds."""
        self._last_check: float | None = None

    def dead_executors(self, beats: Mapping[ExecutorId, int], *, now: float) -> dict[ExecutorId, int]:
        """The processes whose heartbeat has not changed for `dead_after_seconds`, each with this heartbeat.

        `beats` has the last heartbeat of each registered executor. `now` is in monotonic seconds.
        """
        if self._last_check is not None and now - self._last_check > self._dead_after_seconds / 2:
            # This process slept, or could not reach the database. Perhaps other processes could not reach it, either.
            self._last_changes.clear()
        self._last_check = now
        for executor, beat in beats.items():
            if self._last_changes.get(executor, (None,))[0] != beat:
                self._last_changes[executor] = (beat, now)
        return {
            executor: beat
            for executor, beat in beats.items()
            if now - self._last_changes[executor][1] >= self._dead_after_seconds
        }
