"""Acceptance of a service whose log is long, beside the same service with a fresh database."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import Any

from bench import load, service
from bench.load import Body, Plan
from bench.service import NotMeasured, Service, Storage
from bench.table import Row
from hookmill import app
from hookmill.domain.delivery import IdentityKind, Label, RateLimit
from hookmill.domain.ids import time_ordered_key
from hookmill.maintenance import keep_segments
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database
from hookmill.store.identity_segments import SegmentCache

STORED = 1_000_000
"""Deliveries of the past week that the long log has."""
WEBHOOKS = 200
CONNECTIONS = 256
WARM_UP_SECONDS = 1.0
WANTED_OF_FRESH = 0.9
_NO_LIMIT = {"HOOKMILL_DELIVERIES_PER_MINUTE": "1000000"}
_WEEK_US = 7 * 86_400_000_000
_PAYLOAD = bytearray(b'{"id":"%b"}' % (b"x" * 980))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One round: the rate and the processor time per delivery (µs) of the long log, and of the fresh database."""

    long_rate: float
    long_cpu_us: float
    fresh_rate: float
    fresh_cpu_us: float


def measured(storage: Storage, *, stored: int, rounds: int, seconds: float) -> list[Row]:
    """Rounds in turn: a fresh database, then the long log."""
    what = f"{storage.value}, 1 KB, flat out, {stored:,} stored"
    pairs: list[_Pair] = []
    try:
        with ExitStack() as stack:
            grown = stack.enter_context(
                service.serving(
                    storage,
                    webhooks=WEBHOOKS,
                    fill=lambda store: fill(store.database, stored=stored, now=app.now_us()),
                    environment=_NO_LIMIT,
                )
            )
            for _ in range(rounds):
                with service.serving(storage, webhooks=WEBHOOKS, environment=_NO_LIMIT) as fresh:
                    fresh_rate, fresh_cpu_us = _rate(fresh, seconds)
                long_rate, long_cpu_us = _rate(grown, seconds)
                pairs.append(
                    _Pair(
                        long_rate=long_rate, long_cpu_us=long_cpu_us, fresh_rate=fresh_rate, fresh_cpu_us=fresh_cpu_us
                    )
                )
    except NotMeasured as reason:
        return [Row(what=what, remark=str(reason))]
    ratios = [pair.long_rate / pair.fresh_rate for pair in pairs]
    cpu_ratios = [pair.long_cpu_us / pair.fresh_cpu_us for pair in pairs]
    return [
        Row(
            what=what,
            per_second=median(pair.long_rate for pair in pairs),
            server_cores=median(pair.long_rate * pair.long_cpu_us / 1e6 for pair in pairs),
            remark=(
                f"{median(ratios):.2f} of a fresh database, wanted {WANTED_OF_FRESH} "
                f"(rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)}); "
                f"{median(cpu_ratios):.2f} of its processor time"
            ),
        )
    ]


def _rate(running: Service, seconds: float) -> tuple[float, float]:
    """Deliveries per second, and the server's processor time for each, in µs."""
    plan = Plan(
        port=running.served.port,
        targets=running.webhooks,
        bodies=_bodies(),
        seconds=seconds,
        requests_per_target=1_000_000,
        connections=CONNECTIONS,
    )
    load.run(replace(plan, seconds=WARM_UP_SECONDS))
    used = running.served.cpu_seconds()
    record = load.run(plan)
    used = running.served.cpu_seconds() - used
    return record.requests_per_second, used / record.seconds / record.requests_per_second * 1e6


def _bodies() -> Sequence[Body]:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    kinds = ["matching", *["other"] * 9]
    return [Body(before='{"id":"', after=f'","kind":"{kind:>8}","text":"{text}"}}') for kind in kinds]


def fill(database: Database, *, stored: int, now: int) -> None:
    """Accepted deliveries of the past week, with their payloads and identities."""
    chance = random.Random(5)
    segments = SegmentCache()
    keep_segments(database, now)
    with database.read() as tx:
        webhooks = [row["no"] for row in tx.all("SELECT no FROM webhooks")]
    step = _WEEK_US // stored
    numbers = iter(range(stored))
    while some := list(islice(numbers, 20_000)):
        deliveries: list[tuple[Any, ...]] = []
        for number in some:
            at = now - _WEEK_US + number * step
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
    # On PostgreSQL, the last closed segment gets its filter when the transaction before has ended.
    keep_segments(database, now)
    if not database.on_sqlite:
        with database.write() as tx:
            # The server does so by itself, a minute after so many rows.
            tx.set_timeouts(600)
            tx.run("ANALYZE")
