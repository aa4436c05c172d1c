"""What attempts of runs leave in the metrics and in traces."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hookmill.domain.ids import RunKey
from hookmill.domain.run import Ended, RunState
from hookmill.domain.trace import Span, Tracing, attempt_span_id, delivery_span_id, run_span_id
from hookmill.metrics import ATTEMPT_SECONDS, ATTEMPTS, RUN_WAIT_SECONDS, Metrics
from hookmill.runs.dispatcher import Dispatcher
from hookmill.runs.observation import MISSING_RUNNER, RunObserver
from hookmill.runs.perform import Performer, RunSettings
from hookmill.runs.runner import Abandoned, HostFault
from hookmill.runs.runners import PackageRunner
from hookmill.store.runs import executors
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.test_perform import FunctionRunner, claim, claimed_run, new_performer
from tests.runs.worker import microseconds

SENDERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Observed:
    """A performer with one runner, `acting`, and what its observer has counted and recorded."""

    def __init__(self, backlog: Backlog, act: Callable[..., Ended | Abandoned], *, sample_ratio: float = 1.0):
        self.metrics = Metrics()
        self.spans: list[Span] = []
        tracing = Tracing(record=self.spans.append, clock=microseconds, sample_ratio=sample_ratio)
        observer = RunObserver(["acting", "package"], metrics=self.metrics, tracing=tracing)
        self.performer: Performer = replace(new_performer(backlog, acting=FunctionRunner(act)), observer=observer)
        self._backlog = backlog

    def perform(self, key: RunKey):
        self.performer.perform(key, self._backlog.run(key).attempt)

    def counted(self) -> dict[tuple[str, ...], float]:
        """The attempts that are not zero, by runner and result."""
        return {labels: count for labels, [count] in self.metrics.values()[ATTEMPTS.name] if count}


def ends(state: RunState, exit_status: int | None = None) -> Callable[..., Ended]:
    return lambda *_: Ended(state=state, exit_status=exit_status)


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
def test_ended_attempt_is_counted_with_its_result(sqlite_backlog, state):
    observed = Observed(sqlite_backlog, ends(state))

    observed.perform(claimed_run(sqlite_backlog, runner="acting"))

    assert observed.counted() == {("acting", state.value): 1}
    assert sum(observed.metrics.histogram(ATTEMPT_SECONDS, "acting").counts_and_sum[:-1]) == 1
    assert sum(observed.metrics.histogram(RUN_WAIT_SECONDS).counts_and_sum[:-1]) == 1


def test_attempt_without_a_result_is_counted(sqlite_backlog):
    observed = Observed(sqlite_backlog, lambda *_: Abandoned())

    observed.perform(claimed_run(sqlite_backlog, runner="acting"))

    assert observed.counted() == {("acting", "abandoned"): 1}
    assert [span.name for span in observed.spans] == ["attempt"]


def test_fault_of_the_host_is_counted_and_is_no_failure(sqlite_backlog):
    def fail(*_):
        raise HostFault("no disk")

    observed = Observed(sqlite_backlog, fail)

    observed.perform(claimed_run(sqlite_backlog, runner="acting"))

    assert observed.counted() == {("acting", "host_fault"): 1}
    assert [(span.name, span.attributes["hookmill.result"]) for span in observed.spans] == [("attempt", "host_fault")]


def test_runner_that_the_settings_no_longer_have_is_counted_as_missing(sqlite_backlog):
    observed = Observed(sqlite_backlog, ends(RunState.SUCCEEDED))

    observed.perform(claimed_run(sqlite_backlog, runner="an-old-name"))

    assert observed.counted() == {(MISSING_RUNNER, "failed"): 1}


def test_every_result_of_a_runner_begins_with_zero(sqlite_backlog):
    observed = Observed(sqlite_backlog, ends(RunState.SUCCEEDED))

    labels = {labels for labels, _ in observed.metrics.values()[ATTEMPTS.name]}

    assert ("acting", "failed") in labels
    assert ("package", "host_fault") in labels


def test_spans_of_a_run_belong_to_the_trace_of_its_delivery(backlog):
    observed = Observed(backlog, ends(RunState.FAILED, 3))
    key = claimed_run(backlog, runner="acting")

    observed.perform(key)

    run = backlog.run(key)
    attempt, whole = observed.spans
    assert {span.trace.trace_id for span in observed.spans} == {run.delivery_key}
    assert (whole.span_id, whole.parent_span_id) == (run_span_id(key), delivery_span_id(run.delivery_key))
    assert (attempt.span_id, attempt.parent_span_id) == (attempt_span_id(key, 1), run_span_id(key))
    assert (attempt.attributes["hookmill.exit_status"], whole.attributes["hookmill.state"]) == (3, "failed")
    assert attempt.is_failed
    assert whole.is_failed
    assert whole.started_at == run.created_at


def test_run_continues_the_trace_of_the_sender(backlog):
    packages = []

    def act(package, _instruction):
        packages.append(package)
        return Ended(state=RunState.SUCCEEDED)

    observed = Observed(backlog, act)
    key = claimed_run(backlog, runner="acting")
    with backlog.database.write() as tx:
        tx.run(
            """
            INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size, traceparent)
            VALUES (:id, 1, 1, 1, 1, 2, :traceparent)
            """,
            id=backlog.run(key).delivery_key,
            traceparent=SENDERS,
        )

    observed.perform(key)

    trace_id = SENDERS.split("-")[1]
    assert {span.trace.trace_id.hex() for span in observed.spans} == {trace_id}
    assert packages[0].traceparent == f"00-{trace_id}-{attempt_span_id(key, 1).hex()}-01"


def test_trace_that_is_not_sampled_has_no_spans_but_is_passed_on(sqlite_backlog):
    packages = []

    def act(package, _instruction):
        packages.append(package)
        return Ended(state=RunState.SUCCEEDED)

    observed = Observed(sqlite_backlog, act, sample_ratio=0.0)

    observed.perform(claimed_run(sqlite_backlog, runner="acting"))

    assert observed.spans == []
    assert packages[0].traceparent.endswith("-00")


def test_command_gets_no_trace_while_tracing_is_off(sqlite_backlog):
    packages = []

    def act(package, _instruction):
        packages.append(package)
        return Ended(state=RunState.SUCCEEDED)

    key = claimed_run(sqlite_backlog, runner="acting")
    new_performer(sqlite_backlog, acting=FunctionRunner(act)).perform(key, sqlite_backlog.run(key).attempt)

    assert [package.traceparent for package in packages] == [None]


def test_run_that_is_cancelled_during_a_fault_of_the_host_has_a_span(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="acting")

    def fail(*_):
        sqlite_backlog.request_cancel(key)
        raise HostFault("No disk.")

    observed = Observed(sqlite_backlog, fail)

    observed.perform(key)

    assert [(span.name, span.attributes.get("hookmill.state")) for span in observed.spans] == [
        ("attempt", None),
        ("run", "cancelled"),
    ]


def test_run_that_ends_because_its_workers_died_has_a_span(sqlite_backlog):
    key = claimed_run(sqlite_backlog, runner="acting")
    claim(sqlite_backlog)
    with sqlite_backlog.database.write() as tx:
        executors.deregister(tx, ExecutorId("us"))
    spans: list[Span] = []
    dispatcher = Dispatcher(
        sqlite_backlog.database,
        RunSettings(data=sqlite_backlog.data, runners={"package": PackageRunner()}, attempts_max=1),
        microseconds,
        tracing=Tracing(record=spans.append, clock=microseconds),
    )

    dispatcher.launch()
    dispatcher.shutdown(0)

    assert sqlite_backlog.run(key).state is RunState.INTERRUPTED
    assert [(span.name, span.span_id, span.attributes["hookmill.state"]) for span in spans] == [
        ("run", run_span_id(key), "interrupted")
    ]
