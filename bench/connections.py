"""Measures deliveries while thousands of connections are idle and hundreds are slow: their latency, and memory."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bench import load, service
from bench.grown import NO_LIMIT, plan
from bench.load import LoadFailed, Record, Target
from bench.process import REPOSITORY
from bench.service import Service, Storage
from bench.table import Row, too_high
from hookmill.app.connections import CROWDED_SHARE
from hookmill.app.open_files import FILES_RESERVED

IDLE = 10_000
IDLE_AFTER_DELIVERY = 1_000
"""The number of idle clients that have sent a delivery, and keep their connections for another one."""
SLOW = 200
SECONDS = 30.0
"""Longer than the time limits of idle and slow clients, so that every connection is closed and replaced."""
REUSED_PER_SECOND = 100.0
NEW_PER_SECOND = 20.0
"""The rate of deliveries on new connections."""
WEBHOOKS = 20
P99_MAX_MS = 500.0
MIB_GROWTH_MAX = (IDLE + SLOW) * 42 / 1024
"""The maximum growth of all processes together. A connection whose header lines have the maximum size takes 42 KiB."""
OPEN_SHARE_MIN = 0.8
FILES_NEEDED = math.ceil((IDLE + SLOW + 300) / CROWDED_SHARE) + FILES_RESERVED
"""With a lower limit, the service would be crowded, and close silent connections after 2 s. 300 are for its files."""


def measure(storage: Storage, *, seconds: float) -> Iterator[Row]:
    """Measure deliveries without and with the crowd, and the memory of the service's processes."""
    crowded = f"{IDLE:,} idle, {SLOW} slow connections, {storage.value}"
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files not in (resource.RLIM_INFINITY, max(files, FILES_NEEDED)):
        yield Row(what=crowded, remark=f"not measured: set the hard limit of open files to {FILES_NEEDED:,}")
        return
    with service.serving(storage, webhooks=WEBHOOKS, environment=NO_LIMIT) as running:
        yield from _rows(f"No other connections, {storage.value}", _deliver(running, seconds))
        mib_before = running.served.memory_mib()
        with _crowd(running) as process:
            records = _deliver(running, seconds)
            mib = running.served.memory_mib()
            output, _ = process.communicate("")
    attendance = json.loads(output)
    if attendance["open_mean"] < OPEN_SHARE_MIN * (IDLE + SLOW):
        raise LoadFailed(f"Only {attendance['open_mean']:,.0f} of {IDLE + SLOW:,} connections stayed open.")
    remark = f"{attendance['open_mean']:,.0f} open on average, {attendance['replaced']:,} replaced"
    yield from _rows(crowded, records, p99_max_ms=P99_MAX_MS, remark=remark)
    yield Row(
        what=f"{crowded}, memory",
        mib_at_rest=mib_before,
        mib_after=mib,
        shortfall=too_high("MiB more", mib - mib_before, MIB_GROWTH_MAX),
    )


@contextmanager
def _crowd(running: Service) -> Iterator[subprocess.Popen[str]]:
    """The process of the clients. It prints its attendance when its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-I", str(REPOSITORY / "bench" / "idle_clients.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([running.served.port, _kinds(running.webhooks[0])]) + "\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise LoadFailed(f"{IDLE + SLOW:,} clients could not be connected.")
        yield process
    finally:
        process.kill()
        process.wait()


def _kinds(webhook: Target) -> Sequence[tuple[int, str, str]]:
    """The number of clients of each kind, what they send first, and what they send every second. Idle clients have
    sent nothing, part of a request, or a delivery. Slow clients send header lines, or the body of a delivery with the
    correct credential."""
    credential = "".join(f"{name}: {value}\r\n" for name, value in webhook.headers.items())
    delivery = f"POST {webhook.path} HTTP/1.1\r\nHost: localhost\r\n{credential}"
    incomplete = (IDLE - IDLE_AFTER_DELIVERY) // 2
    return [
        (IDLE - IDLE_AFTER_DELIVERY - incomplete, "", ""),
        (incomplete, delivery, ""),
        (IDLE_AFTER_DELIVERY, f"{delivery}Content-Length: 2\r\n\r\n{{}}", ""),
        (SLOW // 2, delivery, "X-A: b\r\n"),
        (SLOW - SLOW // 2, f"{delivery}Content-Length: 1000\r\n\r\n", " "),
    ]


def _deliver(running: Service, seconds: float) -> Sequence[tuple[str, Record]]:
    """Send deliveries at steady rates: first on reused connections, then each on a new one."""
    new = [replace(target, headers={**target.headers, "Connection": "close"}) for target in running.webhooks]
    return [
        (name, load.run(replace(plan(running, seconds, rate), targets=targets, connections=32)))
        for name, rate, targets in (
            (f"{REUSED_PER_SECOND:.0f}/s", REUSED_PER_SECOND, running.webhooks),
            (f"{NEW_PER_SECOND:.0f}/s on new connections", NEW_PER_SECOND, new),
        )
    ]


def _rows(
    what: str, records: Sequence[tuple[str, Record]], *, p99_max_ms: float = math.inf, remark: str = ""
) -> Iterator[Row]:
    for name, record in records:
        yield Row(
            what=f"{what}, {name}",
            p50_ms=record.p50_ms,
            p99_ms=record.p99_ms,
            remark=remark,
            shortfall=too_high("p99 in ms", record.p99_ms, p99_max_ms),
        )
