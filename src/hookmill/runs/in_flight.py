"""Which runs this process performs now, and which other processes are alive."""

import threading
from collections.abc import Iterable, Mapping

from hookmill.domain.ids import RunKey
from hookmill.store.runs import ExecutorId


class InFlight:
    """The runs that threads of this process perform, or are about to. Shared by the threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[RunKey, int] = {}

    @property
    def count(self) -> int:
        with self._changed:
            return sum(self._runs.values())

    @property
    def keys(self) -> list[RunKey]:
        with self._changed:
            return list(self._runs)

    def add(self, key: RunKey) -> None:
        # A run that was lost and claimed again is there twice, until the thread that lost it notices.
        with self._changed:
            self._runs[key] = self._runs.get(key, 0) + 1

    def remove(self, key: RunKey) -> None:
        with self._changed:
            self._runs[key] -= 1
            if not self._runs[key]:
                del self._runs[key]
            self._changed.notify_all()

    def missing(self, keys: Iterable[RunKey]) -> set[RunKey]:
        """Those of `keys` that no thread performs."""
        with self._changed:
            return {key for key in keys if key not in self._runs}

    def wait_until_empty(self, seconds: float) -> bool:
        """False when it took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._runs, timeout=seconds)


class Heartbeats:
    """Finds dead processes: their heartbeats don't change by this process's own clock, the only one it trusts."""

    def __init__(self, dead_after_seconds: float) -> None:
        self._dead_after = dead_after_seconds
        self._seen: dict[ExecutorId, tuple[int, float]] = {}
        self._last_look: float | None = None

    def dead(self, beats: Mapping[ExecutorId, int], *, now: float) -> dict[ExecutorId, int]:
        """Those whose heartbeat did not change while this process looked for long enough. `now`: monotonic seconds."""
        if self._last_look is not None and now - self._last_look > self._dead_after / 2:
            # This process slept or could not reach the database, and the others may not have reached it either.
            self._seen.clear()
        self._last_look = now
        for executor, beat in beats.items():
            if self._seen.get(executor, (None,))[0] != beat:
                self._seen[executor] = (beat, now)
        return {executor: beat for executor, beat in beats.items() if now - self._seen[executor][1] >= self._dead_after}
