"""The scenarios: each has a name, and a function that measures and returns rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from bench import connections, grown, load, machine, noop, observed, pages, runs, service, signatures
from bench.load import SERIAL_LENGTH, Body, Plan, Record, Target
from bench.observed import Observed
from bench.process import Served
from bench.service import DELIVERIES_PER_WEBHOOK, Service, Storage
from bench.table import Row

DELIVERIES_PER_MATCH = 10
"""One in so many deliveries matches an automation."""

SMALL_BODY = 1_000
LARGE_BODY = 100_000
LARGE_BODY_RATE_SHARE_MAX = 0.2
"""With the large body, no server answers more than this share of the rate with the small one."""

CONNECTIONS = 256
"""Senders that are served at the same time."""
CONNECTIONS_MAX = 1_024
"""With more connections, no server answers more requests. With fewer, each server sometimes waits for its senders."""

STEADY_RATE_PER_SECOND = 500.0
SHARE_OF_YARDSTICK_MIN = 0.35
"""The minimum rate of durable acceptance on SQLite with `BUSIEST` traffic, as a share of the yardstick's rate."""

REQUESTS_PER_PAGE_AND_ROUND = 40
WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure: the seconds of load in a round, and the number of rounds. Figures are their medians."""

    seconds: float
    rounds: int
    rounds_of_busiest: int
    """The number of rounds of figures that have a minimum, so that their medians are more reliable: with `BUSIEST`
    traffic, and with a grown log."""
    against: Path | None = None
    """Another checkout, whose acceptance and runs are also measured."""
    log_size_max: int = grown.DEFAULT_SIZE_MAX
    """Deliveries in the longest log of the scenario `grown`."""


QUICK = Effort(seconds=2.0, rounds=2, rounds_of_busiest=2)
THOROUGH = Effort(seconds=5.0, rounds=3, rounds_of_busiest=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The requests of a measurement: the size of their bodies in bytes, and their connections. No rate: flat out."""

    size: int
    connections: int = CONNECTIONS
    rate_per_second: float | None = None

    @property
    def title(self) -> str:
        rate = "flat out" if self.rate_per_second is None else f"steady {self.rate_per_second:,.0f}/s"
        over = f", {self.connections:,} connections" if self.connections != CONNECTIONS else ""
        return f"{self.size // 1000} KB, {rate}{over}"


BUSIEST = Traffic(size=SMALL_BODY, connections=CONNECTIONS_MAX)
"""The traffic for which `SHARE_OF_YARDSTICK_MIN` is the minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A server in a comparison. `serving` starts it with a number of webhooks.

    `per_second_max` is a rate that it can't reach. It determines the number of webhooks.
    """

    name: str
    serving: Callable[..., AbstractContextManager[Service]]
    per_second_max: float = 30_000


@contextmanager
def _serving_noop(*, webhooks: int) -> Iterator[Service]:
    targets = [
        Target(path=f"/webhooks/w/wh_{number:022d}", headers={"Authorization": f"Bearer {number:043d}"})
        for number in range(webhooks)
    ]
    with noop.serving(service.SERVER_SETTINGS) as served:
        yield Service(served=served, webhooks=targets)


YARDSTICK = Contender(name="(a) no-op app", serving=_serving_noop, per_second_max=100_000)
ON_SQLITE = Contender(name="(b) SQLite", serving=partial(service.serving, Storage.SQLITE))
ON_POSTGRESQL = Contender(name="(c) PostgreSQL", serving=partial(service.serving, Storage.POSTGRESQL))


def _contenders(against: Path | None) -> Sequence[Contender]:
    others = [
        Contender(name=f"{own.name}, the code in --against", serving=partial(own.serving, checkout=against))
        for own in (ON_SQLITE, ON_POSTGRESQL)
        if against is not None
    ]
    return [YARDSTICK, ON_SQLITE, ON_POSTGRESQL, *others]


def bodies(size: int) -> list[Body]:
    """`DELIVERIES_PER_MATCH` JSON bodies of exactly `size` bytes. One of them matches."""
    return [_body(size, "matching" if number == 0 else "other") for number in range(DELIVERIES_PER_MATCH)]


def _body(size: int, kind: str) -> Body:
    before = '{"id":"'
    after = f'","kind":"{kind}","repository":{{"name":"hookmill","private":false}},"number":7,"text":"'
    padding = size - len(before) - SERIAL_LENGTH - len(after) - len('"}')
    text = "The quick brown fox jumps over the lazy dog. " * (padding // 45 + 1)
    return Body(before=before, after=after + text[:padding] + '"}')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    record: Record
    server_cores: float
    other_cores: float
    mib_at_rest: float
    mib_after: float


def _round(contender: Contender, traffic: Traffic, seconds: float) -> _Round:
    """One measurement on a new server. Before it, a warm-up sends to other webhooks than the measurement."""
    share = LARGE_BODY_RATE_SHARE_MAX if traffic.size >= LARGE_BODY else 1.0
    per_second_max = traffic.rate_per_second or contender.per_second_max * share
    webhook_count = _webhooks_needed(per_second_max, seconds)
    warm_up_webhook_count = _webhooks_needed(per_second_max, WARM_UP_SECONDS)
    with contender.serving(webhooks=webhook_count + warm_up_webhook_count) as running:
        mib_at_rest = running.served.memory_mib()
        load.run(_plan(running.served, running.webhooks[webhook_count:], traffic, WARM_UP_SECONDS))
        machine_cpu_before, server_cpu_before = machine.busy_cpu_seconds(), running.served.cpu_seconds()
        record = load.run(_plan(running.served, running.webhooks[:webhook_count], traffic, seconds))
        server_cpu = running.served.cpu_seconds() - server_cpu_before
        machine_cpu = machine.busy_cpu_seconds() - machine_cpu_before
        return _Round(
            record=record,
            server_cores=server_cpu / record.seconds,
            other_cores=max(0.0, machine_cpu - server_cpu - record.generator_cpu_seconds) / record.seconds,
            mib_at_rest=mib_at_rest,
            mib_after=running.served.memory_mib(),
        )


def _webhooks_needed(per_second: float, seconds: float) -> int:
    return load.targets_needed(
        requests_per_second=per_second, seconds=seconds, requests_per_target=DELIVERIES_PER_WEBHOOK
    )


def _plan(served: Served, webhooks: Sequence[Target], traffic: Traffic, seconds: float) -> Plan:
    return Plan(
        port=served.port,
        targets=webhooks,
        bodies=bodies(traffic.size),
        seconds=seconds,
        requests_per_target=DELIVERIES_PER_WEBHOOK,
        rate_per_second=traffic.rate_per_second,
        connections=traffic.connections,
    )


def _compare(effort: Effort, traffic: Traffic, contenders: Sequence[Contender] = ()) -> Iterator[Row]:
    """Measure each contender once in every round, so that a change of the machine's speed affects all of them.

    `of_yardstick` is the median of the ratios of each round to the first contender, not the ratio of medians. At a
    steady rate, all servers that keep up have the same throughput, so a ratio has no meaning.
    """
    contenders = contenders or _contenders(effort.against)
    rounds: list[list[_Round]] = [[] for _ in contenders]
    for _ in range(effort.rounds):
        for contender, own in zip(contenders, rounds, strict=True):
            own.append(_round(contender, traffic, effort.seconds))
    for contender, own in zip(contenders, rounds, strict=True):
        row = Row(
            what=f"{contender.name}, {traffic.title}",
            per_second=median(one.record.requests_per_second for one in own),
            p50_ms=median(one.record.p50_ms for one in own),
            p99_ms=median(one.record.p99_ms for one in own),
            mib_at_rest=median(one.mib_at_rest for one in own),
            mib_after=median(one.mib_after for one in own),
            server_cores=median(one.server_cores for one in own),
            load_cores=median(one.record.generator_cpu_share for one in own),
            other_cores=median(one.other_cores for one in own),
        )
        if traffic.rate_per_second is None and own is not rounds[0]:
            rates = zip(own, rounds[0], strict=True)
            ratios = [one.record.requests_per_second / first.record.requests_per_second for one, first in rates]
            first_name = contenders[0].name[:3]
            row = replace(
                row,
                of_yardstick=median(ratios),
                remark=f"rounds: {min(ratios):.2f} to {max(ratios):.2f} of {first_name}",
            )
            if contender is ON_SQLITE and traffic == BUSIEST and median(ratios) < SHARE_OF_YARDSTICK_MIN:
                row = replace(row, shortfall=f"{median(ratios):.3f} of (a), wanted {SHARE_OF_YARDSTICK_MIN}")
        yield row


def _flat_out_small(effort: Effort) -> Iterator[Row]:
    yield from _compare(replace(effort, rounds=effort.rounds_of_busiest), BUSIEST)
    yield from _compare(effort, Traffic(size=SMALL_BODY))


def _flat_out_large(effort: Effort) -> Iterator[Row]:
    # The rounds are half as long, because a minute of large bodies takes gigabytes of disk.
    return _compare(replace(effort, seconds=effort.seconds / 2), Traffic(size=LARGE_BODY))


def _steady(effort: Effort) -> Iterator[Row]:
    return _compare(effort, Traffic(size=SMALL_BODY, rate_per_second=STEADY_RATE_PER_SECOND))


def _observed(effort: Effort) -> Iterator[Row]:
    """Compare the service without metrics and traces to each choice of them."""
    # A round has at least one scrape.
    effort = replace(effort, seconds=max(2 * effort.seconds, observed.SCRAPE_SECONDS))
    for plain, storage in ((ON_SQLITE, Storage.SQLITE), (ON_POSTGRESQL, Storage.POSTGRESQL)):
        with_choice = [
            Contender(name=f"{plain.name}, {choice.value}", serving=partial(observed.serving, storage, choice))
            for choice in Observed
        ]
        yield from _compare(effort, Traffic(size=SMALL_BODY), [plain, *with_choice])


def _runs(effort: Effort) -> Iterator[Row]:
    for storage in Storage:
        yield from runs.measure(runs.setups_for(storage, effort.against), rounds=effort.rounds)
        yield runs.measure_behind_queue(storage)


def _pages(effort: Effort) -> Iterator[Row]:
    for storage in Storage:
        yield from pages.measure(storage, times=effort.rounds * REQUESTS_PER_PAGE_AND_ROUND)


def _grown(effort: Effort) -> Iterator[Row]:
    for storage in Storage:
        yield from grown.measure_by_log_size(
            storage, size_max=effort.log_size_max, rounds=effort.rounds_of_busiest, seconds=effort.seconds
        )
        yield from grown.measure_by_webhooks(storage, seconds=effort.seconds)
        yield from grown.measure_during_retention(storage, rounds=effort.rounds, seconds=effort.seconds)


def _connections(effort: Effort) -> Iterator[Row]:
    for storage in Storage:
        yield from connections.measure(storage, seconds=min(connections.SECONDS, 6 * effort.seconds))


SCENARIOS: dict[str, Callable[[Effort], Iterable[Row]]] = {
    "small": _flat_out_small,
    "large": _flat_out_large,
    "observed": _observed,
    "steady": _steady,
    "filters": lambda effort: signatures.measure_filters(),
    "signatures": lambda effort: signatures.measure_signatures(),
    "runs": _runs,
    "pages": _pages,
    "grown": _grown,
    "connections": _connections,
}
