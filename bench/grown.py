"""Measures the service with a growing log, and with more webhooks. `plot` draws the figures as curves.

At each size of the log, it measures acceptance at a steady rate and flat out, pages of the dashboard, and memory. From
100,000 stored deliveries on, it compares acceptance with that of a fresh database in the same round.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median, quantiles
from typing import Any

from bench import load, pages, service
from bench.load import Body, Plan, Record
from bench.service import Installation, Service, Storage
from bench.table import Point, Row
from hookmill import app, maintenance
from hookmill.domain.delivery import IdentityKind, Label, RateLimit
from hookmill.domain.ids import time_ordered_key
from hookmill.maintenance import keep_segments
from hookmill.store import dialect
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database
from hookmill.store.identity_segments import SegmentCache

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
"""Numbers of stored deliveries."""
DEFAULT_SIZE_MAX = 1_000_000
"""Larger sizes are measured only on request."""
COMPARED_SIZE_MIN = 100_000
"""A smaller log grows too much while it is measured."""
WEBHOOKS = 200
NUMBERS_OF_WEBHOOKS = (100, 1_000, 10_000, 100_000)
CONNECTIONS = 256
STEADY_RATE_PER_SECOND = 1_000.0
WARM_UP_SECONDS = 1.0
PAGES = 30
OLD_DELIVERIES = 100_000
"""Retention removes nearly all of these in about 25 s."""
SHARE_OF_FRESH_MIN = 0.9
NO_LIMIT = {"HOOKMILL_DELIVERIES_PER_MINUTE": "100000"}
_LOG_US = 6 * 86_400_000_000
"""The time range of the longest log, which ends now. Retention removes nothing from it."""
_OLD_US = 9 * 86_400_000_000
_PAYLOAD = bytearray(b'{"id":"%b"}' % (b"x" * 90))

_DELIVERIES = RowStatement(
    f"""
    WITH stored (id, webhook_no, received_at, digest) AS ({{rows}})
    INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size, identity_kind, identity_digest)
    SELECT id, webhook_no, received_at, {Label.ACCEPTED:d}, {RateLimit.DELIVERIES:d}, 1000,
           {IdentityKind.BODY_SHA256:d}, digest
    FROM stored
    """,
    ("bytea", "int", "bigint", "bytea"),
)
_PAYLOADS = RowStatement("INSERT INTO payloads (delivery_id, body) {rows}", ("bytea", "bytea"))
_IDENTITIES = RowStatement(
    "INSERT INTO identities (webhook_no, segment, digest, delivery_id, kind, claimed_at) {rows}",
    ("int", "int", "bytea", "bytea", "smallint", "bigint"),
)


def measure_by_log_size(storage: Storage, *, size_max: int, rounds: int, seconds: float) -> Iterator[Row]:
    """Fill the log to each size up to `size_max`, and measure. `rounds` is the number of comparisons at each size."""
    stored = 0
    with service.installed(storage, webhooks=WEBHOOKS, environment=NO_LIMIT) as installation:
        for size in (size for size in SIZES if size <= size_max):
            store = app.open_store(installation.settings)
            fill(store.database, first=stored, count=size - stored)
            store.close()
            stored = size
            yield from _measure_at_size(storage, installation, size, rounds=rounds, seconds=seconds)


def _measure_at_size(
    storage: Storage, installation: Installation, size: int, *, rounds: int, seconds: float
) -> Iterator[Row]:
    scale = "stored deliveries"
    what = f"{storage.value}, {size:,} stored"
    if storage is Storage.POSTGRESQL:
        curve = f"{storage.value}, two ingress processes"
        with service.started(installation, "--processes", "2") as running:
            yield _measure_steady(running, f"{what}, two ingress processes", seconds, scale, curve, size)
    with service.started(installation) as running:
        yield _measure_steady(running, what, seconds, scale, storage.value, size)
        yield _measure_pages(running, what, storage.value, size)
        fresh: list[_FlatOut] = []
        if size < COMPARED_SIZE_MIN:
            grown = [_measure_flat_out(running, seconds)]
        else:
            grown, fresh = _measure_beside_fresh(storage, running, rounds=rounds, seconds=seconds)
    yield replace(_flat_out_row(what, grown, scale, storage, size), remark=_comparison(grown, fresh) if fresh else "")


def _flat_out_row(what: str, rounds: Sequence[_FlatOut], scale: str, storage: Storage, size: int) -> Row:
    rate = median(each.per_second for each in rounds)
    return Row(
        what=f"{what}, flat out",
        per_second=rate,
        server_cores=rate * median(each.cpu_us for each in rounds) / 1e6,
        points=(Point("Deliveries per second, flat out", scale, storage.value, size, rate),),
    )


def _measure_beside_fresh(
    storage: Storage, running: Service, *, rounds: int, seconds: float
) -> tuple[list[_FlatOut], list[_FlatOut]]:
    """Measure the service with its log, and a fresh one in the same round.

    Each begins in every other round, because the disk may still write what the first one has left.
    """
    grown: list[_FlatOut] = []
    fresh: list[_FlatOut] = []
    for number in range(rounds):
        if number % 2:
            grown.append(_measure_flat_out(running, seconds))
        with service.serving(storage, webhooks=WEBHOOKS, environment=NO_LIMIT) as fresh_service:
            fresh.append(_measure_flat_out(fresh_service, seconds))
        if not number % 2:
            grown.append(_measure_flat_out(running, seconds))
    return grown, fresh


def _comparison(grown: Sequence[_FlatOut], fresh: Sequence[_FlatOut]) -> str:
    rates = [one.per_second / other.per_second for one, other in zip(grown, fresh, strict=True)]
    times = [one.cpu_us / other.cpu_us for one, other in zip(grown, fresh, strict=True)]
    return (
        f"{median(rates):.2f} of a fresh database, wanted {SHARE_OF_FRESH_MIN} "
        f"(rounds: {', '.join(f'{rate:.2f}' for rate in rates)}), with {median(times):.2f} of its processor time"
    )


def measure_by_webhooks(storage: Storage, *, seconds: float) -> Iterator[Row]:
    """Measure a fresh database with each number of webhooks, all of which get deliveries."""
    for number in NUMBERS_OF_WEBHOOKS:
        what = f"{storage.value}, {number:,} webhooks"
        with service.serving(storage, webhooks=number, environment=NO_LIMIT) as running:
            yield _measure_steady(running, what, seconds, "webhooks", storage.value, number)
            yield _flat_out_row(what, [_measure_flat_out(running, seconds)], "webhooks", storage, number)


def measure_during_retention(storage: Storage, *, rounds: int, seconds: float) -> Iterator[Row]:
    """Measure steady acceptance while retention removes old deliveries, and with a fresh database in the same round."""
    what = f"{storage.value}, steady {STEADY_RATE_PER_SECOND:,.0f}/s"
    while_removing, fresh, removed_per_second = [], [], []
    for _ in range(rounds):
        with service.installed(storage, webhooks=WEBHOOKS, environment=NO_LIMIT) as installation:
            store = app.open_store(installation.settings)
            fill(store.database, first=0, count=OLD_DELIVERIES, begin=app.now_us() - _OLD_US)
            with service.started(installation) as running:
                time.sleep(maintenance.FIRST_PASS_SECONDS)
                # The first commits also checkpoint what `fill` has left in the WAL.
                load.run(plan(running, WARM_UP_SECONDS, STEADY_RATE_PER_SECOND))
                before = _count_old_deliveries(store.database)
                while_removing.append(load.run(plan(running, seconds, STEADY_RATE_PER_SECOND)))
                removed_per_second.append((before - _count_old_deliveries(store.database)) / seconds)
            store.close()
        with service.serving(storage, webhooks=WEBHOOKS, environment=NO_LIMIT) as running:
            time.sleep(maintenance.FIRST_PASS_SECONDS)
            load.run(plan(running, WARM_UP_SECONDS, STEADY_RATE_PER_SECOND))
            fresh.append(load.run(plan(running, seconds, STEADY_RATE_PER_SECOND)))
    for name, records, remark in (
        ("while retention removes", while_removing, f"{median(removed_per_second):,.0f} deliveries removed per second"),
        ("while it has nothing to remove", fresh, ""),
    ):
        yield Row(
            what=f"{what}, {name}",
            per_second=median(record.requests_per_second for record in records),
            p50_ms=median(record.p50_ms for record in records),
            p99_ms=median(record.p99_ms for record in records),
            remark=remark,
        )


def _count_old_deliveries(database: Database) -> int:
    with database.read() as tx:
        row = tx.one(
            "SELECT COUNT(*) AS count FROM deliveries WHERE received_at < :until", until=app.now_us() - _LOG_US
        )
    assert row is not None
    return int(row["count"])


def _measure_steady(running: Service, what: str, seconds: float, scale: str, curve: str, size: int) -> Row:
    load.run(plan(running, WARM_UP_SECONDS, STEADY_RATE_PER_SECOND))
    cpu_before = running.served.cpu_seconds()
    record = load.run(plan(running, seconds, STEADY_RATE_PER_SECOND))
    cpu_seconds = running.served.cpu_seconds() - cpu_before
    mib = running.served.memory_mib()
    return Row(
        what=f"{what}, steady {STEADY_RATE_PER_SECOND:,.0f}/s",
        per_second=record.requests_per_second,
        p50_ms=record.p50_ms,
        p99_ms=record.p99_ms,
        mib_after=mib,
        server_cores=cpu_seconds / record.seconds,
        points=(
            Point(f"p99 at {STEADY_RATE_PER_SECOND:,.0f}/s, ms", scale, curve, size, record.p99_ms),
            Point("Memory of the service, MiB", scale, curve, size, mib),
        ),
    )


def _measure_pages(running: Service, what: str, curve: str, size: int) -> Row:
    """Measure four pages, and return the row of the slowest one."""
    with pages.signed_in(running) as milliseconds:
        factory = pages.factory_url()
        durations_ms = {
            address: [milliseconds(factory + address) for _ in range(PAGES)]
            for address in ("", "/deliveries", "/deliveries?label=rejected_auth", "/runs")
        }
    slowest = max(durations_ms.values(), key=median)
    return Row(
        what=f"{what}, slowest of four pages",
        p50_ms=median(slowest),
        p99_ms=quantiles(slowest, n=100)[98],
        points=(Point("Slowest of four pages, median ms", "stored deliveries", curve, size, median(slowest)),),
    )


@dataclass(frozen=True, slots=True)
class _FlatOut:
    per_second: float
    cpu_us: float
    """The server's processor time for each delivery, in µs."""


def _measure_flat_out(running: Service, seconds: float) -> _FlatOut:
    load.run(plan(running, WARM_UP_SECONDS))
    cpu_before = running.served.cpu_seconds()
    record: Record = load.run(plan(running, seconds))
    cpu_seconds = running.served.cpu_seconds() - cpu_before
    return _FlatOut(record.requests_per_second, cpu_seconds / record.seconds / record.requests_per_second * 1e6)


def plan(running: Service, seconds: float, rate_per_second: float | None = None) -> Plan:
    """Bodies of 1 KB for all webhooks in turn. Without a rate, flat out."""
    return Plan(
        port=running.served.port,
        targets=running.webhooks,
        bodies=_bodies(),
        seconds=seconds,
        requests_per_target=1_000_000,
        rate_per_second=rate_per_second,
        connections=CONNECTIONS,
    )


def _bodies() -> Sequence[Body]:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    kinds = ["matching", *["other"] * 9]
    return [Body(before='{"id":"', after=f'","kind":"{kind:>8}","text":"{text}"}}') for kind in kinds]


def fill(database: Database, *, first: int, count: int, begin: int | None = None) -> None:
    """Add `count` accepted deliveries with their payloads and identities, from number `first` of the longest log on.

    The log begins at `begin` (in µs since 1970). Without `begin`, the longest log ends now.
    """
    chance = random.Random(first)
    segments = SegmentCache()
    now = app.now_us()
    keep_segments(database, now)
    with database.read() as tx:
        webhooks = [row["no"] for row in tx.all("SELECT no FROM webhooks")]
    step = _LOG_US // max(SIZES)
    numbers = iter(range(first, first + count))
    while batch := list(islice(numbers, 20_000)):
        deliveries: list[tuple[Any, ...]] = []
        for number in batch:
            at = (begin or now - _LOG_US) + number * step
            key = bytearray(time_ordered_key(at, os.urandom(8)))
            deliveries.append((key, chance.choice(webhooks), at, bytearray(chance.randbytes(16))))
        with database.write() as tx:
            _DELIVERIES.execute(tx, deliveries)
            _PAYLOADS.execute(tx, [(key, _PAYLOAD) for key, _, _, _ in deliveries])
            segments.refresh(tx)
            _IDENTITIES.execute(
                tx,
                [
                    (no, segments.open_segment, digest, key, int(IdentityKind.BODY_SHA256), at)
                    for key, no, at, digest in deliveries
                ],
            )
        keep_segments(database, now)
    # On PostgreSQL, the last closed segment gets its filter only after the previous transactions have ended.
    keep_segments(database, now)
    if not database.on_sqlite:
        with database.write() as tx:
            # The server itself does this about a minute after so many rows were added.
            dialect.allow_long_statements(tx, 600)
            tx.run("ANALYZE")
