"""Counts attempts at runs for the metrics, and records the spans of runs and attempts."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from hookmill.domain.ids import run_id
from hookmill.domain.run import ByDelivery, Ended, Run, RunState
from hookmill.domain.trace import AttributeValue, Span, Trace, Tracing, attempt_span_id, delivery_span_id, run_span_id
from hookmill.metrics import ATTEMPT_RESULTS, ATTEMPT_SECONDS, ATTEMPTS, RUN_WAIT_SECONDS, Metrics
from hookmill.runs.runner import Abandoned, HostFault
from hookmill.runs.workspaces.checkouts import WorkspaceRefused, WorkspaceUnavailable

MISSING_RUNNER: Final = "missing"
"""The label of attempts whose runner the settings no longer have."""


class RunObserver:
    """Observes the attempts of this process. Any thread may call its methods."""

    def __init__(
        self, runner_names: Iterable[str] = (), *, metrics: Metrics | None = None, tracing: Tracing | None = None
    ) -> None:
        """`runner_names` are those of the settings. Without `tracing`, no spans are recorded."""
        self._runner_names = frozenset(runner_names)
        self._metrics = metrics or Metrics()
        self._tracing = tracing
        # The first increase of a counter is visible only if the counter has existed before.
        self._wait_seconds = self._metrics.histogram(RUN_WAIT_SECONDS)
        for runner in self._runner_names:
            self._metrics.histogram(ATTEMPT_SECONDS, runner)
            for result in ATTEMPT_RESULTS:
                self._metrics.number(ATTEMPTS, runner, result)

    @property
    def is_tracing(self) -> bool:
        return self._tracing is not None

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
        except (WorkspaceRefused, WorkspaceUnavailable):
            self._attempt_ended(run, Ended(state=RunState.FAILED), time.monotonic() - began_at)
            raise
        self._attempt_ended(run, result, time.monotonic() - began_at)
        return result

    def _attempt_ended(self, run: Run, result: Ended | Abandoned | HostFault, seconds: float) -> None:
        result_name = _result_name(result)
        runner = run.runner if run.runner in self._runner_names else MISSING_RUNNER
        self._metrics.number(ATTEMPTS, runner, result_name).add()
        self._metrics.histogram(ATTEMPT_SECONDS, runner).observe_safely(seconds)
        if self._tracing is None or not (trace := self._trace_of(run, self._tracing)).is_sampled:
            return
        attributes: dict[str, AttributeValue] = {
            "hookmill.run_id": run_id(run.id),
            "hookmill.attempt": run.attempt,
            "hookmill.runner": runner,
            "hookmill.result": result_name,
        }
        if isinstance(result, Ended) and result.exit_status is not None:
            attributes["hookmill.exit_status"] = result.exit_status
        ended_at = self._tracing.clock()
        self._tracing.record(
            Span(
                name="attempt",
                trace=trace,
                span_id=attempt_span_id(run.id, run.attempt),
                parent_span_id=run_span_id(run.id),
                started_at=ended_at - int(seconds * 1_000_000),
                ended_at=ended_at,
                attributes=attributes,
                is_failed=result_name in ("failed", "host_fault"),
            )
        )

    def run_ended(self, run: Run, state: RunState) -> None:
        """Record the span of a run that has ended in the `state` now."""
        if self._tracing is None or not (trace := self._trace_of(run, self._tracing)).is_sampled:
            return
        delivery_key = run.delivery_key
        self._tracing.record(
            Span(
                name="run",
                trace=trace,
                span_id=run_span_id(run.id),
                parent_span_id=delivery_span_id(delivery_key) if delivery_key is not None else None,
                started_at=run.created_at,
                ended_at=self._tracing.clock(),
                attributes={
                    "hookmill.run_id": run_id(run.id),
                    "hookmill.automation_id": run.automation_id,
                    "hookmill.attempts": run.attempt,
                    "hookmill.state": state.value,
                },
                is_failed=state in (RunState.FAILED, RunState.INTERRUPTED),
            )
        )

    def traceparent(self, run: Run) -> str | None:
        """The span of the run's present attempt, for its command; None while tracing is off."""
        if self._tracing is None:
            return None
        return self._trace_of(run, self._tracing).traceparent(attempt_span_id(run.id, run.attempt))

    def _trace_of(self, run: Run, tracing: Tracing) -> Trace:
        started_by = run.started_by
        if isinstance(started_by, ByDelivery):
            return tracing.trace_of(started_by.traceparent, started_by.delivery_key)
        return tracing.trace_of(None, run.id)


def _result_name(result: Ended | Abandoned | HostFault) -> str:
    """One of `ATTEMPT_RESULTS`."""
    match result:
        case Ended(state=state):
            return state.value
        case Abandoned():
            return "abandoned"
        case HostFault():
            return "host_fault"
