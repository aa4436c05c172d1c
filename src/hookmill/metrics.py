"""The metrics of the service: their definitions, and the numbers that a process counts.

Counting changes a number in memory. It needs no lock and no I/O, because each delivery counts. `app/metrics_files.py`
passes the numbers of each process to the worker process, and `app/metrics_server.py` serves all of them to Prometheus.
"""

import os
import resource
import sys
import threading
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from hookmill.domain.alarm import AlarmKind

Labels = tuple[str, ...]
"""The values of a metric's labels, in the order of its definition."""
Values = list[tuple[Labels, list[float]]]
"""The values of one metric: for each combination of labels, one number, or a histogram's counts and its sum."""


class MetricKind(StrEnum):
    """The type of a metric, as Prometheus defines it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric. A label never has the name of a user's object as its value, so the number of values is bounded."""

    name: str
    kind: MetricKind
    meaning: str
    labels: Mapping[str, tuple[str, ...]]
    """The labels, and the known values of each. A label without known values has those of the settings."""
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets, in ascending order. A further bucket has no upper bound."""

    @property
    def initial_labels(self) -> list[Labels]:
        """The combinations of labels that exist from the start, so that a counter's first increase is visible."""
        match list(self.labels.values()):
            case []:
                return [()]
            case [values]:
                return [(value,) for value in values]
            case _:
                return []


def _counter(name: str, meaning: str, **labels: tuple[str, ...]) -> MetricDefinition:
    return MetricDefinition(name, MetricKind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, **labels: tuple[str, ...]) -> MetricDefinition:
    return MetricDefinition(name, MetricKind.GAUGE, meaning, labels)


def _histogram(name: str, meaning: str, bounds: tuple[float, ...], **labels: tuple[str, ...]) -> MetricDefinition:
    return MetricDefinition(name, MetricKind.HISTOGRAM, meaning, labels, bounds)


OUTCOMES: Final = (
    "accepted",
    "duplicate",
    "handshake",
    "rejected_auth",
    "rejected_invalid_json",
    "rejected_too_large",
    "rate_limited",
    "not_found",
    "unavailable",
    "cut_short",
    "too_slow",
    "evicted",
    "malformed",
    "method_not_allowed",
)
COMPONENTS: Final = (
    "admission",
    "alarms",
    "api",
    "automation",
    "connections",
    "dashboard",
    "disk",
    "fork server",
    "identities",
    "ingress",
    "live log",
    "mcp",
    "metrics",
    "other",
    "retention",
    "run files",
    "runner",
    "runs",
    "snapshot",
    "start",
    "supervisor",
    "traces",
    "worker",
    "worker watch",
    "writer",
)
ATTEMPT_RESULTS: Final = ("succeeded", "failed", "cancelled", "abandoned", "host_fault")

_REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RUN_SECONDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
_BATCH_SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

DELIVERIES: Final = _counter(
    "hookmill_deliveries_total",
    "Requests to the URLs of webhooks, by outcome.",
    outcome=OUTCOMES,
)
DELIVERY_SECONDS: Final = _histogram(
    "hookmill_delivery_seconds",
    "Time from the header lines of an accepted or duplicate delivery to its response. It includes the time "
    "that the sender needs for the body.",
    _REQUEST_SECONDS,
)
DROPPED_ATTEMPTS: Final = _counter(
    "hookmill_dropped_attempts_total",
    "Attempts without a row in the log: over one of the two rate limits, or to a disabled or deleted webhook.",
    kind=("rate_limited", "failed_authentications", "not_found"),
)
COMMIT_SECONDS: Final = _histogram(
    "hookmill_commit_seconds",
    "Duration of the transactions that admit deliveries.",
    _REQUEST_SECONDS,
)
COMMIT_DELIVERIES: Final = _histogram(
    "hookmill_commit_deliveries",
    "Deliveries in one such transaction.",
    _BATCH_SIZES,
)
FAILED_COMMITS: Final = _counter(
    "hookmill_failed_commits_total",
    "Transactions of deliveries that failed. The senders got a 503.",
)
WRITER_RESTARTS: Final = _counter(
    "hookmill_writer_restarts_total",
    "Writer processes that ended unexpectedly.",
)
DELIVERIES_WAITING: Final = _gauge(
    "hookmill_deliveries_waiting",
    "Deliveries that wait for their transaction.",
)
SNAPSHOT_WEBHOOKS: Final = _gauge(
    "hookmill_snapshot_webhooks",
    "Webhooks in the memory of an ingress process.",
)
SNAPSHOT_AGE: Final = _gauge(
    "hookmill_snapshot_age_seconds",
    "Time since an ingress process last read webhooks from the database. It does so at its start, after a "
    "change, and before it answers 404 or 429 without a transaction. A high age is normal: the transaction of each "
    "delivery detects a changed webhook.",
)
ATTEMPTS: Final = _counter(
    "hookmill_attempts_total",
    "Attempts at runs that have ended.",
    runner=(),
    result=ATTEMPT_RESULTS,
)
ATTEMPT_SECONDS: Final = _histogram(
    "hookmill_attempt_seconds",
    "Duration of attempts at runs.",
    _RUN_SECONDS,
    runner=(),
)
RUN_WAIT_SECONDS: Final = _histogram(
    "hookmill_run_wait_seconds",
    "Time from the creation of a run to the start of its first attempt. It includes the time in which a run "
    "policy holds the run.",
    _RUN_SECONDS,
)
RUNS_IN_FLIGHT: Final = _gauge(
    "hookmill_runs_in_flight",
    "Runs that a worker performs.",
)
RUN_SLOTS: Final = _gauge(
    "hookmill_run_slots",
    "Runs that a worker can perform at the same time.",
)
RETENTION_ROWS: Final = _counter(
    "hookmill_retention_removed_deliveries_total",
    "Deliveries that retention has removed from the log.",
)
RETENTION_PASS: Final = _gauge(
    "hookmill_retention_last_pass_timestamp_seconds",
    "When the last successful pass of retention began, in seconds since 1970; 0 before the first one.",
)
FAULTS: Final = _counter(
    "hookmill_faults_total",
    "Faults of the service, including repeated ones that are not logged.",
    component=COMPONENTS,
)
SPANS: Final = _counter(
    "hookmill_spans_total",
    "Spans of traces. `failed`: the collector did not accept them. `dropped`: too many waited.",
    result=("sent", "failed", "dropped"),
)
CPU_SECONDS: Final = _counter(
    "hookmill_process_cpu_seconds_total",
    "Processor time of a process.",
)
MEMORY_BYTES: Final = _gauge(
    "hookmill_process_resident_memory_bytes",
    "Memory of a process in RAM, including memory that it shares with others.",
)
PUBLISHED_AGE: Final = _gauge(
    "hookmill_process_metrics_age_seconds",
    "Age of the metrics of a process. Each process updates them every 2 seconds.",
)

PROCESS_METRICS: Final = (
    DELIVERIES,
    DELIVERY_SECONDS,
    DROPPED_ATTEMPTS,
    COMMIT_SECONDS,
    COMMIT_DELIVERIES,
    FAILED_COMMITS,
    WRITER_RESTARTS,
    DELIVERIES_WAITING,
    SNAPSHOT_WEBHOOKS,
    SNAPSHOT_AGE,
    ATTEMPTS,
    ATTEMPT_SECONDS,
    RUN_WAIT_SECONDS,
    RUNS_IN_FLIGHT,
    RUN_SLOTS,
    RETENTION_ROWS,
    RETENTION_PASS,
    FAULTS,
    SPANS,
    CPU_SECONDS,
    MEMORY_BYTES,
    PUBLISHED_AGE,
)
"""The metrics of processes. They have the label `process` in addition to their own labels."""

DATABASE_UP: Final = _gauge(
    "hookmill_database_up",
    "Whether the database has answered the worker. If it is 0, the other metrics of the installation are missing.",
)
RUNS_READY: Final = _gauge(
    "hookmill_runs_ready",
    "Runs that wait for a free slot, or because of a limit of running runs. At most 10,000 are counted.",
)
RUNS_HELD: Final = _gauge(
    "hookmill_runs_held",
    "Runs that a run policy holds, by reason. `new`: no worker has applied the policy yet. At most 10,000 are counted.",
    reason=("new", "busy", "debounce", "retry"),
)
RUNS_RUNNING: Final = _gauge(
    "hookmill_runs_running",
    "Runs that a worker has claimed.",
)
OLDEST_READY_RUN_AGE: Final = _gauge(
    "hookmill_oldest_ready_run_age_seconds",
    "Age of the oldest run in `hookmill_runs_ready`; 0 if there is none.",
)
WORKERS: Final = _gauge(
    "hookmill_workers",
    "Workers that perform runs and have sent a heartbeat in the last 30 seconds.",
)
PENDING_UPLOADS: Final = _gauge(
    "hookmill_pending_uploads",
    "Files of runs that are not in the object store yet. At most 10,000 are counted.",
)
OPEN_ALARMS: Final = _gauge(
    "hookmill_open_alarms",
    "Open alarms, also snoozed ones, by kind. At most 10,000 are counted.",
    kind=tuple(AlarmKind),
)
DATABASE_BYTES: Final = _gauge(
    "hookmill_database_bytes",
    "Size of the database. With SQLite, `wal` is the write-ahead log; with PostgreSQL, `main` is the whole database.",
    part=("main", "wal"),
)

INSTALLATION_METRICS: Final = (
    DATABASE_UP,
    RUNS_READY,
    RUNS_HELD,
    RUNS_RUNNING,
    OLDEST_READY_RUN_AGE,
    WORKERS,
    PENDING_UPLOADS,
    OPEN_ALARMS,
    DATABASE_BYTES,
)
"""The metrics that the worker reads from the database. Every host has the same values."""

DISK_FREE_BYTES: Final = _gauge(
    "hookmill_disk_free_bytes",
    "Free space for the data directory.",
)
DISK_FREE_BYTES_MIN: Final = _gauge(
    "hookmill_disk_free_bytes_min",
    "The setting `free_space_min_mb`, in bytes.",
)
DISK_FREE_INODES: Final = _gauge(
    "hookmill_disk_free_inodes",
    "Free inodes for the data directory. Missing if its file system has no inode table.",
)
DISK_FULL: Final = _gauge(
    "hookmill_disk_full",
    "Whether deliveries get a 503, because the data directory has too little space or too few inodes.",
)
BUILD_INFO: Final = _gauge(
    "hookmill_build_info",
    "Always 1. The labels have the version of Hookmill, the build with which the service was started, the "
    "version of Python, and the kind of database.",
    version=(),
    build=(),
    python=(),
    database=("sqlite", "postgresql"),
)

HOST_METRICS: Final = (
    DISK_FREE_BYTES,
    DISK_FREE_BYTES_MIN,
    DISK_FREE_INODES,
    DISK_FULL,
    BUILD_INFO,
)
"""The metrics of the host on which the worker runs."""


class Number:
    """The value of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0
        """If only one thread changes the number, it may assign this directly."""

    def add(self, amount: float = 1) -> None:
        """Any thread may call this."""
        with _lock:
            self.value += amount


class Histogram:
    """The number of observed values in each bucket, and the sum of all values."""

    __slots__ = ("_bounds", "counts_and_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts_and_sum = [0.0] * (len(bounds) + 2)
        """The counts of the buckets, then that of values above the last bound, then the sum."""

    def observe(self, value: float) -> None:
        """Only one thread may call this."""
        self.counts_and_sum[bisect_left(self._bounds, value)] += 1
        self.counts_and_sum[-1] += value

    def observe_safely(self, value: float) -> None:
        """Like `observe`, for any thread."""
        with _lock:
            self.observe(value)


_lock: Final = threading.Lock()


class Metrics:
    """The numbers that one process has counted since its start."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[Labels, Number]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def number(self, definition: MetricDefinition, *labels: str) -> Number:
        """The value of a counter or gauge for these labels, which is created if it is missing."""
        numbers = self._numbers.get(definition.name)
        if numbers is None:
            initial = {each: Number() for each in definition.initial_labels}
            numbers = self._numbers.setdefault(definition.name, initial)
        return numbers.get(labels) or numbers.setdefault(labels, Number())

    def histogram(self, definition: MetricDefinition, *labels: str) -> Histogram:
        """The histogram for these labels, which is created if it is missing."""
        histograms = self._histograms.setdefault(definition.name, {})
        return histograms.get(labels) or histograms.setdefault(labels, Histogram(definition.bounds))

    def values(self) -> dict[str, Values]:
        """A copy of all values, by the metrics' names."""
        # `list` copies a dictionary's items in one step, so other threads may add items meanwhile.
        numbers = {
            name: [(labels, [number.value]) for labels, number in list(by_labels.items())]
            for name, by_labels in list(self._numbers.items())
        }
        histograms = {
            name: [(labels, list(histogram.counts_and_sum)) for labels, histogram in list(by_labels.items())]
            for name, by_labels in list(self._histograms.items())
        }
        return numbers | histograms


class ProcessUsage(msgspec.Struct, frozen=True, array_like=True):
    """The processor time and the memory in RAM of a process."""

    pid: int
    cpu_seconds: float
    memory_bytes: int


def process_usage() -> ProcessUsage:
    """The usage of the calling process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    memory_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # `ru_maxrss` is the highest value so far. Linux also has the present one.
    with suppress(OSError), Path("/proc/self/statm").open("rb") as file:
        memory_bytes = int(file.read().split()[1]) * resource.getpagesize()
    return ProcessUsage(os.getpid(), usage.ru_utime + usage.ru_stime, memory_bytes)
