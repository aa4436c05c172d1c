"""An outage of the database's server, as one process sees it."""

import threading
from collections.abc import Callable
from typing import Final

CHECK_SECONDS: Final = 1.0


class DatabaseOutage:
    """Decides which components have already reported the outage, and reports its end.

    The first report starts a thread, which ends when `is_over` returns True.
    """

    def __init__(
        self,
        is_over: Callable[[], bool],
        *,
        report_recovery: Callable[[str, str], None],
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """`is_over` is called every `check_seconds` during an outage. It may raise."""
        self._is_over = is_over
        self._report_recovery = report_recovery
        self._check_seconds = check_seconds
        self._components: set[str] = set()
        self._lock = threading.Lock()

    def begins_for(self, component: str) -> bool:
        """Whether this is the component's first report in the outage."""
        with self._lock:
            if component in self._components:
                return False
            if not self._components:
                threading.Thread(target=self._watch, name="database outage", daemon=True).start()
            self._components.add(component)
            return True

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._check_seconds)
            try:
                is_over = self._is_over()
            except Exception:  # noqa: S112 - any error means that the outage continues
                continue
            if is_over:
                with self._lock:
                    self._components.clear()
                self._report_recovery("database", "The database accepts transactions again.")
                return
