"""The service under measurement: started with thousands of webhooks, on the storage that is asked for.

This is the only module of the bench that knows Hookmill; everything else speaks HTTP to a port.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bench.load import Target
from bench.process import Served

SERVER_SETTINGS: Mapping[str, Any] = {
    "interface": "asgi",
    "workers": 1,
    "loop": "uvloop",
    "http": "1",
    "runtime_mode": "mt",
    "runtime_threads": 1,
    "websockets": False,
    "backlog": 2048,
    "backpressure": 8192,
    "log_access": False,
    "log_level": "warning",
    "http1_settings": {"header_read_timeout": 10_000, "keep_alive": True, "max_buffer_size": 32_768},
}
"""What the service gives to Granian; the yardstick is served with the very same."""


class NotMeasured(Exception):
    """This part cannot be measured here; the text says why."""


class Storage(Enum):
    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The running service, and where its webhooks are: path and credential of each, all of them enabled.

    Every webhook is selected by one automation, whose payload filter holds for `"kind": "matching"` only.
    """

    served: Served
    webhooks: Sequence[Target]


@contextmanager
def serving(storage: Storage, *, webhooks: int) -> Iterator[Service]:
    """`hookmill serve` in a fresh data directory or a fresh PostgreSQL database, until the block ends.

    Before it starts, the webhooks (20 to a factory, mode `token`) and one automation per factory are created
    in bulk. Its runner ends at once, so that runs cost what the service spends on them and nothing else.
    Afterwards the directory or database is gone.
    """
    raise NotMeasured(f"durable acceptance on {storage.value} is not wired up yet")
    yield


def filter_evaluations_per_second() -> float:
    """How often one core decides a filter of three leaves, one of them nested, on a parsed body of 1 KB."""
    raise NotMeasured("filter evaluation is not wired up yet")


def seconds_to_run_start(service: Service, *, deliveries: int) -> Sequence[float]:
    """For each of so many matching deliveries, sent one by one: from its 202 to the start of its run."""
    raise NotMeasured("run start is not wired up yet")
