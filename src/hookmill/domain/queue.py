"""A factory's queue: which runs wait, why and in which order, which runs are running, and which workers are alive."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey
from hookmill.domain.run import Hold, Run
from hookmill.domain.run_policy import Priority

COUNTED_MAX: Final = 10_000
"""Runs are counted up to this number, so that the time to read a queue does not depend on its length."""
RUNNING_MAX: Final = 100
"""How many running runs a queue lists."""
HEARTBEAT_SECONDS_MAX: Final = 30
"""A queue shows a worker as dead if its last heartbeat is older than this. Workers send one at least every 5 seconds.

The runs of a dead worker are requeued by another rule: see `Heartbeats` in `runs/heartbeats.py`."""

_EXECUTOR: Final = re.compile(r"(?P<host>.+)-(?P<pid>[0-9]+)-[0-9a-f]+\Z", re.DOTALL)
_POSITION: Final = re.compile(r"(?P<part>ready|held)-(?P<rank>[0-9]{1,4})-(?P<key>[0-9a-f]{32})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCount:
    count: int
    is_capped: bool
    """Whether there may be more runs than `count`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """The number of a factory's runs in each part of the queue."""

    running: RunCount
    """Claimed by a worker."""
    ready: RunCount
    """Waiting for a free slot, or because of a limit of running runs."""
    held: Mapping[Hold, RunCount]
    """Held by a run policy, by reason."""
    oldest_ready_at: int | None
    """When the oldest ready run was created, in µs since 1970."""

    @property
    def waiting(self) -> RunCount:
        parts = (self.ready, *self.held.values())
        return RunCount(count=sum(part.count for part in parts), is_capped=any(part.is_capped for part in parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that performs runs of all factories. Times are µs since 1970, by the worker's clock."""

    executor: str
    started_at: int
    last_seen_at: int
    claimed_runs: int
    """The number of its slots that are in use."""

    def is_alive(self, now: int) -> bool:
        return is_recent_heartbeat(self.last_seen_at, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRun:
    """A run that a worker has claimed."""

    run: Run
    executor: str
    worker_last_seen_at: int | None
    """The time of its worker's last heartbeat; None if the worker is deregistered."""

    def has_live_worker(self, now: int) -> bool:
        return self.worker_last_seen_at is not None and is_recent_heartbeat(self.worker_last_seen_at, now)


class LimitedBy(StrEnum):
    """The owner of the `max_running` that keeps a ready run waiting."""

    AUTOMATION = "automation"
    FACTORY = "factory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedLimit:
    by: LimitedBy
    max_running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run that no worker has claimed."""

    run: Run
    priority: Priority
    waits_behind: RunKey | None = None
    """The oldest active run with the same policy key, if this run waits until that run ends."""
    reached_limit: ReachedLimit | None = None
    """The limit that keeps a ready run waiting."""

    @property
    def position(self) -> "QueuePosition":
        return QueuePosition(is_held=self.run.hold is not None, rank=self.priority.rank, run_key=self.run.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """A place in the order of waiting runs: ready ones by priority and age, then held ones by age."""

    is_held: bool
    rank: int
    """The rank of the run's priority."""
    run_key: RunKey

    def as_text(self) -> str:
        return f"{'held' if self.is_held else 'ready'}-{self.rank}-{self.run_key.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The position in a text that `as_text` returned. Raises `Invalid` for any other text."""
        parts = _POSITION.match(text)
        if parts is None:
            raise Invalid(f"{text[:80]!r} is not a position in the queue. Start at the first page.")
        return cls(
            is_held=parts["part"] == "held", rank=int(parts["rank"]), run_key=RunKey(bytes.fromhex(parts["key"]))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A factory's queue at one moment."""

    counts: QueueCounts
    running: Sequence[RunningRun]
    """At most `RUNNING_MAX`, oldest first."""
    workers: Sequence[Worker]
    waiting: Sequence[WaitingRun]
    """One page: ready runs by priority and age, then held runs by age."""
    read_at: int
    """When the queue was read, in µs since 1970."""

    @property
    def has_live_worker(self) -> bool:
        return any(worker.is_alive(self.read_at) for worker in self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledRuns:
    """The result of cancelling many runs."""

    cancelled: int
    """The number of runs that were queued, and have ended."""
    stopping: int
    """The number of running runs. Each ends as soon as its command has ended."""


def is_recent_heartbeat(last_seen_at: int, now: int) -> bool:
    return now - last_seen_at <= HEARTBEAT_SECONDS_MAX * 1_000_000


def host_and_pid(executor: str) -> tuple[str, int | None]:
    """The host name and the process id in an executor's id. If the id has another form: the whole id, and None."""
    parts = _EXECUTOR.match(executor)
    return (parts["host"], int(parts["pid"])) if parts is not None else (executor, None)
