"""Measures the dashboard's pages with a log of a million deliveries, over HTTP, as a browser requests them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import islice
from statistics import median, quantiles
from typing import Any

from bench.load import LoadFailed
from bench.service import Service, Storage, serving
from bench.table import Row, too_high
from hookmill import app
from hookmill.domain.delivery import IdentityKind, Label, RateLimit
from hookmill.domain.ids import delivery_id, time_ordered_key
from hookmill.management import Management
from hookmill.store import dialect
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database
from hookmill.store.identity_segments import FIRST_SEGMENT
from hookmill.web.dashboard.access import cookie_name
from hookmill.web.dashboard.urls import url

DELIVERIES = 1_000_000
WEBHOOKS = 20
DAYS = 7
FACTORY = "factory 0"
P95_MAX_MS = 100.0
DUPLICATE = "event-0"
"""The event id of every Duplicate."""
RARE = 3
"""The number of deliveries that were too large, and of interrupted runs. They are among the oldest."""
DELIVERIES_PER_RUN = 10
"""One in about so many accepted deliveries has a run."""
EMAIL = "bench@example.com"
PASSWORD = "correct horse battery staple"

_DELIVERIES = RowStatement(
    """
    WITH stored (id, webhook_no, received_at, label, rate_limit, size, kind, identity, digest, original, blank, event)
        AS ({rows})
    INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size,
                            identity_kind, identity, identity_digest, duplicate_of, event)
    SELECT id, webhook_no, received_at, label, rate_limit, size,
           NULLIF(kind, 0), NULLIF(identity, ''), NULLIF(digest, blank), NULLIF(original, blank), NULLIF(event, '')
    FROM stored
    """,
    ("bytea", "int", "bigint", "smallint", "smallint", "int", "smallint", "text", "bytea", "bytea", "bytea", "text"),
)
_IDENTITIES = RowStatement(
    f"""
    INSERT INTO identities (segment, webhook_no, digest, delivery_id, kind, claimed_at)
    SELECT {FIRST_SEGMENT:d}, stored.* FROM ({{rows}}) AS stored
    """,
    ("int", "bytea", "bytea", "smallint", "bigint"),
)
_RUNS = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt,
                      created_at, finished_at)
    {rows}
    """,
    ("bytea", "bytea", "int", "text", "text", "int", "text", "int", "bigint", "bigint"),
)
_BLANK = bytearray(b"blank")
"""Stands for NULL in `_DELIVERIES`."""


def fill(database: Database, *, deliveries: int = DELIVERIES, now: int) -> None:
    """Add a week's deliveries of the first factory's webhooks, with various labels, and their identities and runs."""
    chance = random.Random(5)
    with database.read() as tx:
        webhooks = [row["no"] for row in tx.all("SELECT no FROM webhooks ORDER BY no LIMIT :most", most=WEBHOOKS)]
    step = DAYS * 86_400_000_000 // deliveries
    originals: dict[int, bytearray] = {}
    numbers = iter(range(deliveries))
    while batch := list(islice(numbers, 50_000)):
        rows: list[Sequence[Any]] = []
        claims: list[Sequence[Any]] = []
        runs: list[Sequence[Any]] = []
        for number in batch:
            at = now - (deliveries - number) * step
            key = bytearray(time_ordered_key(at, chance.randbytes(8)))
            # The last webhook has few deliveries.
            no = webhooks[-1] if number % 10_000 == 0 else chance.choice(webhooks[:-1])
            label = Label.REJECTED_TOO_LARGE if number in range(1_000, 1_000 + RARE) else _label(chance)
            rate_limit = RateLimit.FAILED_AUTHENTICATIONS if label is Label.REJECTED_AUTH else RateLimit.DELIVERIES
            identity = DUPLICATE if label is Label.DUPLICATE or number < WEBHOOKS * 10 else f"event-{number}"
            digest = bytearray(sha256(b"sender\0" + identity.encode()).digest()[:16])
            has_identity = label in (Label.ACCEPTED, Label.DUPLICATE)
            if identity == DUPLICATE and has_identity:
                original = originals.setdefault(no, key)
                label = Label.ACCEPTED if original is key else Label.DUPLICATE
            rows.append(
                (
                    key, no, at, int(label), int(rate_limit), 1_000, int(IdentityKind.SENDER) if has_identity else 0,
                    identity if has_identity else "", digest if has_identity else _BLANK,
                    originals[no] if label is Label.DUPLICATE else _BLANK, _BLANK,
                    "release" if label is Label.REJECTED_TOO_LARGE else "push" if has_identity else "",
                )
            )  # fmt: skip
            if label is Label.ACCEPTED:
                claims.append((no, digest, key, int(IdentityKind.SENDER), at))
                if number % DELIVERIES_PER_RUN == 0:
                    state = "interrupted" if number < DELIVERIES_PER_RUN * RARE else "succeeded"
                    runs.append((key, key, no, "fac_0", "aut_fac_0", 1, state, 1, at, at))
        with database.write() as tx:
            for statement, values in ((_DELIVERIES, rows), (_IDENTITIES, claims), (_RUNS, runs)):
                statement.execute(tx, [tuple(value) for value in values])
    if not database.on_sqlite:
        with database.write() as tx:
            # The server itself does this about a minute after so many rows were added.
            dialect.allow_long_statements(tx, 60)
            tx.run("ANALYZE")


def _label(chance: random.Random) -> Label:
    return chance.choices(
        [Label.ACCEPTED, Label.DUPLICATE, Label.REJECTED_AUTH, Label.REJECTED_INVALID_JSON], [88, 5, 6, 1]
    )[0]


def paths(management: Management, now: int) -> Mapping[str, str]:
    """The paths of the pages to measure, by a name for the table."""
    may = management.access.operator(FACTORY)
    webhooks = management.webhooks.all(may)
    oldest = management.log.oldest(may, limit=1)[0]
    middle = management.log.newest(may, until=now - DAYS * 43_200_000_000, limit=1)[0]
    rare = management.log.newest(may, label=Label.REJECTED_TOO_LARGE, limit=1)[0]
    factory = factory_url()
    first_day = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(oldest.received_at // 10**6 + 86_400))
    return {
        "the factory's home": factory,
        "a webhook": f"{factory}/webhooks/{webhooks[0].uid}",
        "newest deliveries": f"{factory}/deliveries",
        "deliveries of one webhook": f"{factory}/deliveries?webhook={webhooks[0].uid}",
        "deliveries of a quiet webhook": f"{factory}/deliveries?webhook={webhooks[-1].uid}",
        "deliveries with a rare label": f"{factory}/deliveries?label=rejected_too_large",
        "deliveries with a frequent event type": f"{factory}/deliveries?event=push",
        "deliveries with a rare event type": f"{factory}/deliveries?event=release",
        "deliveries of the first day": f"{factory}/deliveries?until={first_day}",
        "deliveries from the middle on": f"{factory}/deliveries?before={delivery_id(middle.key)}",
        "deliveries of an event sent 50,000 times": f"{factory}/deliveries?identity={DUPLICATE}",
        "one delivery": f"{factory}/deliveries/{delivery_id(rare.key)}",
        "runs": f"{factory}/runs",
        "runs in a rare state": f"{factory}/runs?state=interrupted",
        "runs of one automation": f"{factory}/runs?automation=aut_fac_0",
        "automations": f"{factory}/automations",
        "one automation": f"{factory}/automations/aut_fac_0",
    }


def measure(storage: Storage, *, times: int) -> Iterator[Row]:
    """Measure each page `times` times with the session of a signed-in member."""
    with serving(storage, webhooks=WEBHOOKS, fill=lambda store: fill(store.database, now=app.now_us())) as running:
        store = app.open_store(running.settings)
        named_paths = paths(app.build_management(running.settings, store), app.now_us())
        store.close()
        with signed_in(running) as milliseconds:
            for name, path in named_paths.items():
                durations_ms = [milliseconds(path) for _ in range(times)]
                p95 = quantiles(durations_ms, n=20)[18]
                yield Row(
                    what=f"Page of a million deliveries, {storage.value}, {name}",
                    p50_ms=median(durations_ms),
                    p99_ms=quantiles(durations_ms, n=100)[98],
                    remark=f"p95 {p95:.1f} ms, wanted under {P95_MAX_MS:.0f}",
                    shortfall=too_high("p95 in ms", p95, P95_MAX_MS),
                )


def factory_url() -> str:
    """The path of the first factory's home."""
    return url("f", FACTORY)


@contextmanager
def signed_in(running: Service) -> Iterator[Callable[[str], float]]:
    """A function that gets a page as the first member, and returns how long it took in milliseconds."""
    store = app.open_store(running.settings)
    try:
        management = app.build_management(running.settings, store)
        if (link := management.sessions.create_first_link()) is not None:
            session = management.sessions.accept_link(
                link.reveal(), password=PASSWORD, email=EMAIL, name="Bench", client=None
            )
        else:
            new_session = management.sessions.sign_in(EMAIL, PASSWORD, client=None)
            assert new_session is not None
            session = new_session
        cookie = {"Cookie": f"{cookie_name(False)}={session.reveal()}"}
        connection = HTTPConnection("127.0.0.1", running.served.port, timeout=30)
        yield lambda path: _milliseconds(connection, path, cookie)
        connection.close()
    finally:
        store.close()


def _milliseconds(connection: HTTPConnection, path: str, headers: Mapping[str, str]) -> float:
    started_at = time.perf_counter()
    connection.request("GET", path, headers=dict(headers))
    response = connection.getresponse()
    response.read()
    seconds = time.perf_counter() - started_at
    if response.status != HTTPStatus.OK:
        raise LoadFailed(f"{path} was answered {response.status}.")
    return seconds * 1000
