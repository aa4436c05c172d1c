"""Measures deliveries while thousands of connections are idle and hundreds are slow: their latency, and memory."""

from __future__ import annotations

import json
import math
import resource
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import load, service
from bench.grown import NO_LIMIT
from bench.idle_clients import FILES_RESERVED as FILES_OF_CLIENTS
from bench.idle_clients import Attendance, Crowd, CrowdFailed, Kind, running
from bench.load import Body, LoadFailed, Plan, Target
from bench.process import Served, family, memory_mib_of
from bench.service import NotMeasured, Service, Storage
from bench.table import Row
from hookmill.app.connections import CROWDED_SHARE
from hookmill.app.open_files import FILES_RESERVED

IDLE = 10_000
IDLE_AFTER_DELIVERY = 1_000
"""The number of idle clients that have sent a delivery, and keep their connections for another one."""
SLOW = 200
SECONDS = 30.0
"""Longer than the time limits of idle and slow clients, so that every connection is closed and replaced."""
SECONDS_QUICK = 12.0
REUSED_CONNECTIONS = 32
REUSED_PER_SECOND = 100.0
NEW_PER_SECOND = 20.0
"""The rate of deliveries on new connections."""
WEBHOOKS = 20
WARM_UP_SECONDS = 2.0
ANSWER_SECONDS = 30.0
CONNECTS_PER_SECOND = 2_000
"""The service closes fewer connections per second, so the clients stay connected."""
CONNECTS_PER_SECOND_AT_ONCE = 100_000
"""All clients connect at nearly the same moment, so their time limits end at the same moment, too."""
P99_MAX_MS = 500.0
MIB_GROWTH_MAX = (IDLE + SLOW) * 42 / 1024
"""The maximum growth of all processes together. A connection whose header lines have the maximum size takes 42 KiB."""
OPEN_SHARE_MIN = 0.8
SAMPLE_SECONDS = 1.0
SERVICE_FILES = 200
"""Open files of an ingress process besides the clients' connections, with a reserve."""
FILES_NEEDED = math.ceil((IDLE + SLOW + REUSED_CONNECTIONS + SERVICE_FILES) / CROWDED_SHARE) + FILES_RESERVED
"""With a lower limit, the service would be crowded, and close silent connections after 2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latencies:
    p50_ms: float
    p99_ms: float


def measure(storage: Storage, *, seconds: float) -> list[Row]:
    """Measure deliveries without and with the crowd, and the memory of the service's processes."""
    crowded = f"{IDLE:,} idle, {SLOW} slow connections, {storage.value}"
    if problem := _too_few_files():
        return [Row(what=crowded, remark=problem)]
    try:
        with service.serving(storage, webhooks=WEBHOOKS, environment=NO_LIMIT) as serving:
            alone = _deliver(serving, seconds)
            memory_before = _memory_by_process(serving.served)
            spread, spread_attendance, spread_memory = _measure_with_crowd(serving, CONNECTS_PER_SECOND, seconds)
            together, together_attendance, together_memory = _measure_with_crowd(
                serving, CONNECTS_PER_SECOND_AT_ONCE, seconds
            )
    except NotMeasured as reason:
        return [Row(what=crowded, remark=str(reason))]
    except CrowdFailed as problem:
        raise LoadFailed(str(problem)) from None
    if spread_attendance.open_mean < OPEN_SHARE_MIN * (IDLE + SLOW):
        raise LoadFailed(f"Only {spread_attendance.open_mean:,.0f} of {IDLE + SLOW:,} connections stayed open.")
    return [
        *_latency_rows(f"No other connections, {storage.value}", alone),
        *_latency_rows(crowded, spread, p99_wanted_ms=P99_MAX_MS, remark=_description(spread_attendance)),
        _memory_row(crowded, memory_before, spread_memory),
        *_latency_rows(f"{crowded}, closed together", together, remark=_description(together_attendance)),
        _memory_row(f"{crowded}, closed together", memory_before, together_memory),
    ]


def _measure_with_crowd(
    serving: Service, connects_per_second: int, seconds: float
) -> tuple[Mapping[str, _Latencies], Attendance, Mapping[str, float]]:
    """Send deliveries while the crowd is connected. Returns their latencies, the attendance, and the highest memory."""
    crowd = Crowd(
        port=serving.served.port,
        kinds=_kinds(serving.webhooks[0]),
        connects_per_second=connects_per_second,
        seconds_max=seconds * 2 + 120,
    )
    with running(crowd) as clients, _sampled_memory(serving.served) as samples:
        latencies = _deliver(serving, seconds)
        attendance = clients.leave()
    return latencies, attendance, max(samples, key=lambda sample: sum(sample.values()))


def _too_few_files() -> str | None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(FILES_NEEDED, IDLE + SLOW + FILES_OF_CLIENTS)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return None
    return (
        f"not measured: {IDLE + SLOW:,} connections need a hard limit of {needed:,} open files, and it is {hard:,}. "
        f"As root, run `ulimit -Hn {needed}`, or set LimitNOFILE={needed}"
    )


def _kinds(webhook: Target) -> Sequence[Kind]:
    """Idle clients have sent nothing, part of a request, or a delivery. Slow clients send header lines, or the body of
    a delivery with the correct credential."""
    credential = "".join(f"{name}: {value}\r\n" for name, value in webhook.headers.items())
    delivery = f"POST {webhook.path} HTTP/1.1\r\nHost: localhost\r\n{credential}"
    incomplete = (IDLE - IDLE_AFTER_DELIVERY) // 2
    return [
        Kind(count=IDLE - IDLE_AFTER_DELIVERY - incomplete),
        Kind(count=incomplete, first=delivery),
        Kind(count=IDLE_AFTER_DELIVERY, first=f"{delivery}Content-Length: 2\r\n\r\n{{}}"),
        Kind(count=SLOW // 2, first=delivery, drip="X-A: b\r\n"),
        Kind(count=SLOW - SLOW // 2, first=f"{delivery}Content-Length: 1000\r\n\r\n", drip=" "),
    ]


def _deliver(serving: Service, seconds: float) -> Mapping[str, _Latencies]:
    """Send deliveries at steady rates, on reused connections and on new ones at the same time."""
    body = Body(before='{"id":"', after='","text":"' + "x" * 947 + '"}')
    plan = Plan(
        port=serving.served.port,
        targets=serving.webhooks,
        bodies=[body],
        seconds=seconds,
        requests_per_target=1_000_000,
        rate_per_second=REUSED_PER_SECOND,
        connections=REUSED_CONNECTIONS,
        answer_within_seconds=ANSWER_SECONDS,
    )
    _deliver_on_new_connections(serving.served.port, serving.webhooks, WARM_UP_SECONDS)
    records: list[load.Record | Exception] = []

    def drive() -> None:
        try:
            records.append(load.run(plan))
        except LoadFailed as problem:
            records.append(problem)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        new_latencies = _deliver_on_new_connections(serving.served.port, serving.webhooks, seconds)
    finally:
        thread.join()
    record = records[0]
    if isinstance(record, Exception):
        raise record
    return {"reused": _Latencies(p50_ms=record.p50_ms, p99_ms=record.p99_ms), "new": new_latencies}


def _deliver_on_new_connections(port: int, targets: Sequence[Target], seconds: float) -> _Latencies:
    """Send deliveries one after the other. A latency is the time from when a delivery was due until its answer."""
    latencies_ms = []
    began = time.monotonic()
    for number in range(int(seconds * NEW_PER_SECOND)):
        due = began + number / NEW_PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))
        status = _post_once(port, targets[number % len(targets)], json.dumps({"at": time.time_ns(), "text": "x" * 960}))
        if status != b"202":
            raise LoadFailed(f"A delivery on a new connection was answered {status.decode() or 'nothing'}.")
        latencies_ms.append((time.monotonic() - due) * 1000)
    latencies_ms.sort()
    return _Latencies(
        p50_ms=latencies_ms[math.ceil(0.5 * len(latencies_ms)) - 1],
        p99_ms=latencies_ms[math.ceil(0.99 * len(latencies_ms)) - 1],
    )


def _post_once(port: int, target: Target, body: str) -> bytes:
    """Send one request. Returns the status of its answer; empty if there was none."""
    lines = [
        f"POST {target.path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        *(f"{name}: {value}" for name, value in target.headers.items()),
        f"Content-Length: {len(body)}",
    ]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
            received = b""
            while data := connection.recv(4096):
                received += data
    except OSError as problem:
        raise LoadFailed(f"A delivery on a new connection got no answer: {problem}.") from None
    return received[9:12]


@contextmanager
def _sampled_memory(served: Served) -> Iterator[Sequence[Mapping[str, float]]]:
    """Samples of the processes' memory, which are complete at the end of the block."""
    samples = [_memory_by_process(served)]
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(SAMPLE_SECONDS):
            samples.append(_memory_by_process(served))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        is_over.set()
        sampler.join()


def _memory_by_process(served: Served) -> dict[str, float]:
    """MiB of each process of the service, with pages that several of them share counted once (PSS)."""
    memory: dict[str, float] = {}
    for pid in family(served.pid):
        name = _name_of(pid, served.pid)
        memory[name] = memory.get(name, 0.0) + memory_mib_of(pid)
    return memory


def _name_of(pid: int, supervisor_pid: int) -> str:
    if pid == supervisor_pid:
        return "supervisor"
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
    return name.partition(":")[2] or "ingress"


def _description(attendance: Attendance) -> str:
    return f"{attendance.open_mean:,.0f} open on average, {attendance.replaced:,} replaced"


def _latency_rows(
    what: str, latencies: Mapping[str, _Latencies], *, p99_wanted_ms: float | None = None, remark: str = ""
) -> list[Row]:
    if p99_wanted_ms is not None:
        remark = f"{remark}; p99 wanted under {p99_wanted_ms:.0f} ms"
    return [
        Row(
            what=f"{what}, {label}",
            p50_ms=latencies[kind].p50_ms,
            p99_ms=latencies[kind].p99_ms,
            p99_wanted_ms=p99_wanted_ms,
            remark=remark if kind == "reused" else "",
        )
        for kind, label in (
            ("reused", f"{REUSED_PER_SECOND:.0f}/s"),
            ("new", f"{NEW_PER_SECOND:.0f}/s on new connections"),
        )
    ]


def _memory_row(what: str, before: Mapping[str, float], peak: Mapping[str, float]) -> Row:
    return Row(
        what=f"{what}, memory",
        mib_at_rest=sum(before.values()),
        mib_after=sum(peak.values()),
        mib_growth_wanted=MIB_GROWTH_MAX,
        remark=", ".join(f"{name} {before.get(name, 0.0):.0f} to {mib:.0f}" for name, mib in peak.items()),
    )
