"""Which runs this process has in hand, and which other processes still give signs of life."""

import threading
from collections.abc import Iterable, Mapping

from hookmill.domain.ids import RunKey
from hookmill.store.runs import ExecutorId


class Hands:
    """The runs that threads of this process have. Shared by all of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[RunKey, int] = {}

    @property
    def held(self) -> int:
        with self._changed:
            return sum(self._held.values())

    @property
    def keys(self) -> list[RunKey]:
        with self._changed:
            return list(self._held)

    def hold(self, key: RunKey) -> None:
        # A run that was lost and taken again is held twice, until the thread that lost it notices.
        with self._changed:
            self._held[key] = self._held.get(key, 0) + 1

    def let_go(self, key: RunKey) -> None:
        with self._changed:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
            self._changed.notify_all()

    def missing(self, keys: Iterable[RunKey]) -> set[RunKey]:
        """Those of `keys` that no thread has."""
        with self._changed:
            return {key for key in keys if key not in self._held}

    def wait_until_empty(self, seconds: float) -> bool:
        """False when it took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held, timeout=seconds)


class Heartbeats:
    """Judges who is dead by watching heartbeats stand still, by this process's own clock: others' prove nothing."""

    def __init__(self, dead_after_seconds: float) -> None:
        self._dead_after = dead_after_seconds
        self._seen: dict[ExecutorId, tuple[int, float]] = {}
        self._last_look: float | None = None

    def dead(self, beats: Mapping[ExecutorId, int], *, now: float) -> dict[ExecutorId, int]:
        """Those whose heartbeat stood still while this process looked on for long enough. `now`: monotonic seconds."""
        if self._last_look is not None and now - self._last_look > self._dead_after / 2:
            # Whoever slept or could not reach the database saw nothing, and others may have suffered the same.
            self._seen.clear()
        self._last_look = now
        for executor, beat in beats.items():
            if self._seen.get(executor, (None,))[0] != beat:
                self._seen[executor] = (beat, now)
        return {executor: beat for executor, beat in beats.items() if now - self._seen[executor][1] >= self._dead_after}
