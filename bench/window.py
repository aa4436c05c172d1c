"""Measures the cost of a high rate limit: acceptance with an empty and with a full sliding window."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from bench import grown, load, service
from bench.load import Plan
from bench.service import NotMeasured, Service, Storage
from bench.table import Row
from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.store.admission.window_counts import COMPLETE_AFTER_SECONDS

WEBHOOKS = 40
RATE_PER_SECOND = 3_000.0
"""4,500 deliveries for each webhook fill the window."""
RATIO_MAX = 1.2


def measure(storage: Storage, *, rounds: int, seconds: float) -> Iterator[Row]:
    """Measure a fresh service in each round: first with the empty window, then with the full one, at the same rate."""
    what = f"{storage.value}, steady {RATE_PER_SECOND:,.0f}/s, limit 100,000 per minute"
    empty, full = [], []
    try:
        for _ in range(rounds):
            with service.serving(storage, webhooks=WEBHOOKS, environment=grown.NO_LIMIT) as running:
                # A new writer process counts rows until its counts of periods are complete.
                time.sleep(COMPLETE_AFTER_SECONDS)
                empty.append(_cpu_us(running, seconds))
                load.run(_plan(running, WINDOW_SECONDS))
                full.append(_cpu_us(running, seconds))
    except NotMeasured as reason:
        yield Row(what=what, remark=str(reason))
        return
    ratio = median(with_full / with_empty for with_full, with_empty in zip(full, empty, strict=True))
    for name, values, remark in (
        ("empty window", empty, ""),
        ("full window", full, f"{ratio:.2f} of the empty window's processor time, wanted under {RATIO_MAX}"),
    ):
        yield Row(
            what=f"{what}, {name}",
            per_second=RATE_PER_SECOND,
            server_cores=median(values) * RATE_PER_SECOND / 1e6,
            remark=remark,
        )


def _cpu_us(running: Service, seconds: float) -> float:
    """The server's processor time for each delivery, in µs."""
    cpu_before = running.served.cpu_seconds()
    record = load.run(_plan(running, seconds))
    return (running.served.cpu_seconds() - cpu_before) / record.seconds / record.requests_per_second * 1e6


def _plan(running: Service, seconds: float) -> Plan:
    return grown.plan(running, seconds, RATE_PER_SECOND)
