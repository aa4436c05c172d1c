"""Detects dead processes that performed runs: their heartbeats stop changing."""

from collections.abc import Mapping

from hookmill.store.runs.executors import ExecutorId


class Heartbeats:
    """Detects dead processes. It uses only the monotonic clock of this process."""

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
