"""A factory's queue, as JSON and in words."""

from typing import Annotated, Final, Self

from msgspec import Meta

from hookmill.domain.ids import run_id
from hookmill.domain.moment import iso, iso_or_none
from hookmill.domain.queue import (
    COUNTED_MAX,
    RUNNING_MAX,
    CancelledRuns,
    LimitedBy,
    Queue,
    QueueCounts,
    RunCount,
    RunningRun,
    WaitingRun,
    Worker,
    host_and_pid,
)
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Priority
from hookmill.presentation.run import RunView, hold_text
from hookmill.presentation.view import Timestamp, View

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


# For people


def count_text(count: RunCount) -> str:
    """`12`, or `10,000+` if there may be more."""
    return f"{count.count:,}{'+' if count.is_capped else ''}"


def duration_text(us: int) -> str:
    """A duration in its largest unit, rounded down: `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = max(0, us // 1_000_000)
    return next((f"{seconds // unit} {name}" for unit, name in _UNITS if seconds >= unit), f"{seconds} s")


def waiting_text(waiting_run: WaitingRun) -> str:
    """Why a queued run waits, for people."""
    if waiting_run.waits_behind is not None:
        shared = "has the same key" if waiting_run.run.options.has_key else "is of the same automation"
        return f"It waits until {run_id(waiting_run.waits_behind)} ends, which {shared}."
    if (limit := waiting_run.reached_limit) is not None:
        return (
            f"It waits until another run of its {limit.by} ends: only {limit.max_running:,} may run at the same time."
        )
    return hold_text(waiting_run.run) or "It waits for a free slot."


def worker_text(executor: str) -> str:
    """The host and the process of a worker, whose id is `executor`."""
    host, pid = host_and_pid(executor)
    return f"{host}, process {pid}" if pid is not None else host


def warning_text(queue: Queue) -> str | None:
    """What keeps all runs from starting, and what to do, for people. None with a live worker, or without runs."""
    if queue.has_live_worker or not (queue.counts.waiting.count or queue.counts.running.count):
        return None
    return (
        "No worker is alive, so no run starts. Start `hookmill serve`, or `hookmill worker` if the setting "
        "`performs_runs` is off, and see its log."
    )


# JSON


class RunCountView(View, frozen=True):
    count: int
    is_capped: Annotated[
        bool, Meta(description=f"Whether there may be more than `count`: at most {COUNTED_MAX:,} are counted.")
    ]

    @classmethod
    def of(cls, count: RunCount) -> Self:
        return cls(count=count.count, is_capped=count.is_capped)


class QueueCountsView(View, frozen=True):
    """How many runs are in each part of the queue."""

    running: Annotated[RunCountView, Meta(description="Runs that a worker has claimed.")]
    ready: Annotated[RunCountView, Meta(description="Runs that wait for a free slot, or because of `max_running`.")]
    new: Annotated[RunCountView, Meta(description="Runs that wait until a worker applies their policy.")]
    busy: Annotated[RunCountView, Meta(description="Runs that wait until a run with the same key ends.")]
    debounce: Annotated[RunCountView, Meta(description="Runs that wait for newer deliveries.")]
    retry: Annotated[RunCountView, Meta(description="Runs that wait for their next attempt.")]
    oldest_ready_at: Annotated[Timestamp | None, Meta(description="When the oldest ready run was created.")]

    @classmethod
    def of(cls, counts: QueueCounts) -> Self:
        return cls(
            running=RunCountView.of(counts.running),
            ready=RunCountView.of(counts.ready),
            new=RunCountView.of(counts.held[Hold.NEW]),
            busy=RunCountView.of(counts.held[Hold.BUSY]),
            debounce=RunCountView.of(counts.held[Hold.DEBOUNCE]),
            retry=RunCountView.of(counts.held[Hold.RETRY]),
            oldest_ready_at=iso_or_none(counts.oldest_ready_at),
        )


class WorkerView(View, frozen=True):
    """A process that performs runs of all factories."""

    executor: Annotated[str, Meta(description="The worker's id.")]
    host: str
    pid: int | None
    started_at: Timestamp
    last_seen_at: Annotated[Timestamp, Meta(description="Its last heartbeat, by its own clock.")]
    is_alive: Annotated[bool, Meta(description="Whether the last heartbeat is recent.")]
    claimed_runs: Annotated[int, Meta(description="How many runs it has claimed, of all factories.")]

    @classmethod
    def of(cls, worker: Worker, now: int) -> Self:
        host, pid = host_and_pid(worker.executor)
        return cls(
            executor=worker.executor,
            host=host,
            pid=pid,
            started_at=iso(worker.started_at),
            last_seen_at=iso(worker.last_seen_at),
            is_alive=worker.is_alive(now),
            claimed_runs=worker.claimed_runs,
        )


class RunningRunView(RunView, frozen=True):
    """A run that a worker has claimed, and the worker."""

    pid: Annotated[int | None, Meta(description="The worker's process.")]
    worker_is_alive: bool

    @classmethod
    def with_worker(cls, running_run: RunningRun, now: int) -> Self:
        _, pid = host_and_pid(running_run.executor)
        return RunView.of(running_run.run).extended(
            cls,
            pid=pid,
            worker_is_alive=running_run.has_live_worker(now),
        )


class WaitingRunView(RunView, frozen=True):
    """A run that waits, and why."""

    priority: Priority
    waiting_reason: Annotated[str, Meta(examples=["It waits for a free slot."])]
    waits_behind: Annotated[str | None, Meta(description="The active run with the same key that must end first.")]
    limited_by: Annotated[
        LimitedBy | None,
        Meta(description="The owner of the `max_running` that is reached, if the run waits because of it."),
    ]

    @classmethod
    def with_reason(cls, waiting_run: WaitingRun) -> Self:
        blocking_run = waiting_run.waits_behind
        return RunView.of(waiting_run.run).extended(
            cls,
            priority=waiting_run.priority,
            waiting_reason=waiting_text(waiting_run),
            waits_behind=run_id(blocking_run) if blocking_run is not None else None,
            limited_by=waiting_run.reached_limit.by if waiting_run.reached_limit is not None else None,
        )


class QueueView(View, frozen=True):
    """The queue without the waiting runs, which responses divide into pages."""

    counts: QueueCountsView
    warning: Annotated[str | None, Meta(description="What keeps all runs from starting, and what to do.")]
    running: Annotated[list[RunningRunView], Meta(description=f"Oldest first, at most {RUNNING_MAX}.")]
    workers: list[WorkerView]

    @classmethod
    def of(cls, queue: Queue) -> Self:
        return cls(
            counts=QueueCountsView.of(queue.counts),
            warning=warning_text(queue),
            running=[RunningRunView.with_worker(running_run, queue.read_at) for running_run in queue.running],
            workers=[WorkerView.of(worker, queue.read_at) for worker in queue.workers],
        )


class CancelledRunsView(View, frozen=True):
    cancelled: Annotated[int, Meta(description="How many queued runs were cancelled. They have ended.")]
    stopping: Annotated[
        int, Meta(description="How many running runs were asked to stop. Each ends as soon as its command has ended.")
    ]

    @classmethod
    def of(cls, result: CancelledRuns) -> Self:
        return cls(cancelled=result.cancelled, stopping=result.stopping)
