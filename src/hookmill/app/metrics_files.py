"""Passes the metrics of each process to the worker process: as files in the data directory.

A file is written beside its place and then renamed, so that a reader never sees a part of it. Only the service's
account can read the files.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

import msgspec

from hookmill.domain.errors import ReportFailure
from hookmill.metrics import CPU_SECONDS, MEMORY_BYTES, Metrics, ProcessUsage, Values, process_usage

PUBLISH_SECONDS: Final = 2.0
"""The time between two publications of a process."""
STALE_SECONDS: Final = 10.0
"""A file that is older than this belongs to a process that has ended, and is removed."""
FILES_MAX: Final = 1_000
"""How many files a reader looks at."""
FILE_BYTES_MAX: Final = 1 << 20
CLOSE_SECONDS: Final = 1.0


class ProcessMetrics(msgspec.Struct, frozen=True):
    """The metrics of one process, as published. `name` is its kind and its process id, such as `ingress-4711`."""

    name: str
    values: dict[str, Values]

    @classmethod
    def of_usage(cls, kind: str, usage: ProcessUsage) -> Self:
        """The metrics of a process of which only the usage is known."""
        return cls(
            f"{kind}-{usage.pid}",
            {CPU_SECONDS.name: [((), [usage.cpu_seconds])], MEMORY_BYTES.name: [((), [usage.memory_bytes])]},
        )


class _File(msgspec.Struct, frozen=True):
    processes: list[ProcessMetrics]


_decode: Final = msgspec.json.Decoder(_File).decode


def metrics_directory(data_dir: Path) -> Path:
    return data_dir / "metrics"


class MetricsPublisher:
    """Publishes the metrics of this process every `PUBLISH_SECONDS` in a thread, until `close`."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        metrics: Metrics,
        *,
        measure: Callable[[], None] = lambda: None,
        children: Callable[[], Sequence[ProcessMetrics]] = lambda: (),
        report_failure: ReportFailure,
    ) -> None:
        """`kind` is the kind of process. `measure` updates gauges that nothing else updates.

        `children` returns the metrics of processes that report to this one. `report_failure` is called for the first
        of several failures.
        """
        self._directory = directory
        self._metrics = metrics
        self._name = f"{kind}-{os.getpid()}"
        self._path = directory / f"{self._name}{_suffix()}"
        self._measure = measure
        self._children = children
        self._report_failure = report_failure
        self._has_failed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop publishing, and remove the file."""
        self._closing.set()
        # A thread that waits for a dead disk may never end.
        self._thread.join(CLOSE_SECONDS)
        with suppress(OSError):
            self._path.unlink()

    def _run(self) -> None:
        while True:
            try:
                self._publish()
                self._has_failed = False
            except Exception as error:
                if not self._has_failed:
                    self._report_failure("metrics", error)
                self._has_failed = True
            if self._closing.wait(PUBLISH_SECONDS):
                return

    def _publish(self) -> None:
        self._measure()
        usage = process_usage()
        self._metrics.number(CPU_SECONDS).value = usage.cpu_seconds
        self._metrics.number(MEMORY_BYTES).value = usage.memory_bytes
        processes = [ProcessMetrics(self._name, self._metrics.values()), *self._children()]
        content = msgspec.json.encode(_File(processes))
        self._directory.mkdir(mode=0o700, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}")
        # Another process can't have the same name. A draft of an earlier process with this id is overwritten.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        draft.replace(self._path)


def read_published(directory: Path) -> list[tuple[ProcessMetrics, float]]:
    """The metrics of the processes of this host, each with its age in seconds. Files of ended processes are removed.

    Files that can't be read are omitted.
    """
    published: list[tuple[ProcessMetrics, float]] = []
    with suppress(FileNotFoundError):
        for path in islice(directory.iterdir(), FILES_MAX):
            # The process that owns the file may replace or remove it at any moment.
            with suppress(OSError, msgspec.DecodeError):
                age = time.time() - path.stat().st_mtime
                if age > STALE_SECONDS:
                    path.unlink()
                elif path.name.endswith(_suffix()) and not path.name.startswith("."):
                    with path.open("rb") as file:
                        content = file.read(FILE_BYTES_MAX)
                    published += [(process, max(age, 0.0)) for process in _decode(content).processes]
    return published


def _suffix() -> str:
    # Containers with separate process ids may share a data directory.
    return f"@{socket.gethostname().replace('/', '_')}.json"
