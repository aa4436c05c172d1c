"""Counts attempts at runs for the metrics."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from hookmill.domain.run import Ended, Run
from hookmill.metrics import ATTEMPT_RESULTS, ATTEMPT_SECONDS, ATTEMPTS, RUN_WAIT_SECONDS, Metrics
from hookmill.runs.runner import Abandoned, HostFault

MISSING_RUNNER: Final = "missing"
"""The label of attempts whose runner the settings no longer have."""


class RunObserver:
    """Observes the attempts of this process. Any thread may call its methods."""

    def __init__(self, runner_names: Iterable[str] = (), *, metrics: Metrics | None = None) -> None:
        """`runner_names` are those of the settings."""
        self._runner_names = frozenset(runner_names)
        self._metrics = metrics or Metrics()
        # The first increase of a counter is visible only if the counter has existed before.
        self._wait_seconds = self._metrics.histogram(RUN_WAIT_SECONDS)
        for runner in self._runner_names:
            self._metrics.histogram(ATTEMPT_SECONDS, runner)
            for result in ATTEMPT_RESULTS:
                self._metrics.number(ATTEMPTS, runner, result)

    def observe_attempt(self, run: Run, perform: Callable[[], Ended | Abandoned]) -> Ended | Abandoned:
        """Call `perform`, which performs the run's present attempt, and return its result."""
        if run.attempt == 1 and run.started_at is not None:
            wait_seconds = max(run.started_at - run.created_at, 0) / 1_000_000
            self._wait_seconds.observe_safely(wait_seconds)
        began_at = time.monotonic()
        try:
            result = perform()
        except HostFault as fault:
            self._attempt_ended(run, fault, time.monotonic() - began_at)
            raise
        self._attempt_ended(run, result, time.monotonic() - began_at)
        return result

    def _attempt_ended(self, run: Run, result: Ended | Abandoned | HostFault, seconds: float) -> None:
        result_name = _result_name(result)
        runner = run.runner if run.runner in self._runner_names else MISSING_RUNNER
        self._metrics.number(ATTEMPTS, runner, result_name).add()
        self._metrics.histogram(ATTEMPT_SECONDS, runner).observe_safely(seconds)


def _result_name(result: Ended | Abandoned | HostFault) -> str:
    """One of `ATTEMPT_RESULTS`."""
    match result:
        case Ended(state=state):
            return state.value
        case Abandoned():
            return "abandoned"
        case HostFault():
            return "host_fault"
