"""The scenarios: each has a name, and a function that measures and returns rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench import (
    capacity,
    connections,
    databases,
    disk,
    grown,
    load,
    machine,
    noop,
    observed,
    pages,
    runs,
    service,
    window,
)
from bench.load import SERIAL_LENGTH, Body, Plan, Record, Target
from bench.observed import Observed
from bench.process import Served
from bench.service import DELIVERIES_PER_WEBHOOK, NotMeasured, Service, Storage
from bench.table import Row

DELIVERIES_PER_MATCH = 10
"""One in so many deliveries matches an automation."""

SMALL_BODY = 1_000
MEDIUM_BODY = 10_000
"""The capacity model is not fitted to this size, but predicts it."""
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
    """Another checkout, which the scenario `runs` also measures."""
    log_size_max: int = grown.DEFAULT_SIZE_MAX
    """Deliveries in the longest log of the scenario `grown`."""


QUICK = Effort(seconds=2.0, rounds=2, rounds_of_busiest=2)
THOROUGH = Effort(seconds=5.0, rounds=3, rounds_of_busiest=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    measure: Callable[[Effort], Iterable[Row]]


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
    serving: Callable[[int], AbstractContextManager[Service]]
    per_second_max: float


@contextmanager
def _serving_noop(webhooks: int) -> Iterator[Service]:
    targets = [
        Target(path=f"/webhooks/w/wh_{number:022d}", headers={"Authorization": f"Bearer {number:043d}"})
        for number in range(webhooks)
    ]
    with noop.serving(service.SERVER_SETTINGS) as served:
        yield Service(served=served, webhooks=targets)


YARDSTICK = Contender(name="(a) no-op app", serving=_serving_noop, per_second_max=100_000)
ON_SQLITE = Contender(
    name="(b) SQLite",
    serving=lambda webhooks: service.serving(Storage.SQLITE, webhooks=webhooks),
    per_second_max=30_000,
)
ON_POSTGRESQL = Contender(
    name="(c) PostgreSQL",
    serving=lambda webhooks: service.serving(Storage.POSTGRESQL, webhooks=webhooks),
    per_second_max=30_000,
)
CONTENDERS = (YARDSTICK, ON_SQLITE, ON_POSTGRESQL)


def bodies(size: int) -> list[Body]:
    """`DELIVERIES_PER_MATCH` JSON bodies of exactly `size` bytes. One of them matches."""
    return [_body(size, "matching" if number == 0 else "other") for number in range(DELIVERIES_PER_MATCH)]


def _body(size: int, kind: str) -> Body:
    before = '{"id":"'
    after = f'","kind":"{kind}","repository":{{"name":"hookmill","private":false}},"number":7,"text":"'
    end = '"}'
    padding = size - len(before) - SERIAL_LENGTH - len(after) - len(end)
    text = "The quick brown fox jumps over the lazy dog. " * (padding // 45 + 1)
    return Body(before=before, after=after + text[:padding] + end)


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
    with contender.serving(webhook_count + warm_up_webhook_count) as running:
        mib_at_rest = running.served.memory_mib()
        warm_up = _plan(running.served, running.webhooks[webhook_count:], traffic, WARM_UP_SECONDS)
        load.run(warm_up)
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


def _compare(effort: Effort, traffic: Traffic) -> list[Row]:
    """Measure each contender once in every round, so that a change of the machine's speed affects all of them.

    `of_yardstick` is the median of the ratios of each round, not the ratio of medians.
    """
    rounds: dict[str, list[_Round]] = {contender.name: [] for contender in CONTENDERS}
    reasons: dict[str, str] = {}
    for _ in range(effort.rounds):
        for contender in CONTENDERS:
            if contender.name in reasons:
                continue
            try:
                rounds[contender.name].append(_round(contender, traffic, effort.seconds))
            except NotMeasured as reason:
                reasons[contender.name] = str(reason)
    return [
        _row(contender, traffic, rounds[contender.name], rounds[YARDSTICK.name])
        if contender.name not in reasons
        else Row(what=f"{contender.name}, {traffic.title}", remark=reasons[contender.name])
        for contender in CONTENDERS
    ]


def _row(
    contender: Contender,
    traffic: Traffic,
    rounds: Sequence[_Round],
    yardstick: Sequence[_Round],
) -> Row:
    # At a steady rate, all servers that keep up have the same throughput, so a ratio has no meaning.
    is_compared = traffic.rate_per_second is None and contender is not YARDSTICK
    ratios = [
        own.record.requests_per_second / other.record.requests_per_second
        for own, other in zip(rounds, yardstick, strict=True)
    ]
    return replace(
        _figures(f"{contender.name}, {traffic.title}", rounds),
        of_yardstick=median(ratios) if is_compared else None,
        of_yardstick_wanted=SHARE_OF_YARDSTICK_MIN if contender is ON_SQLITE and traffic == BUSIEST else None,
        remark=f"rounds: {min(ratios):.2f} to {max(ratios):.2f} of (a)" if is_compared else "",
    )


def _figures(what: str, rounds: Sequence[_Round]) -> Row:
    """The medians of the rounds."""
    return Row(
        what=what,
        per_second=median(one.record.requests_per_second for one in rounds),
        p50_ms=median(one.record.p50_ms for one in rounds),
        p99_ms=median(one.record.p99_ms for one in rounds),
        mib_at_rest=median(one.mib_at_rest for one in rounds),
        mib_after=median(one.mib_after for one in rounds),
        server_cores=median(one.server_cores for one in rounds),
        load_cores=median(one.record.generator_cpu_share for one in rounds),
        other_cores=median(one.other_cores for one in rounds),
    )


def _flat_out_small(effort: Effort) -> Sequence[Row]:
    busiest = replace(effort, rounds=effort.rounds_of_busiest)
    return [*_compare(busiest, BUSIEST), *_compare(effort, Traffic(size=SMALL_BODY))]


def _flat_out_large(effort: Effort) -> Sequence[Row]:
    # The rounds are half as long, because a minute of large bodies takes gigabytes of disk.
    return _compare(replace(effort, seconds=effort.seconds / 2), Traffic(size=LARGE_BODY))


def _observed(effort: Effort) -> Iterator[Row]:
    # A round has at least one scrape.
    seconds = max(2 * effort.seconds, observed.SCRAPE_SECONDS)
    for storage in Storage:
        yield from _compare_observed(storage, rounds=effort.rounds, seconds=seconds)


def _compare_observed(storage: Storage, *, rounds: int, seconds: float) -> Sequence[Row]:
    """Measure the service without metrics and traces, and with each choice of them, once each in every round."""
    traffic = Traffic(size=SMALL_BODY)
    plain = ON_SQLITE if storage is Storage.SQLITE else ON_POSTGRESQL
    what = f"{plain.name}, {traffic.title}"
    without: list[_Round] = []
    with_choice: dict[Observed, list[_Round]] = {choice: [] for choice in Observed}
    shares_sent: dict[Observed, list[float]] = {choice: [] for choice in Observed}
    try:
        for _ in range(rounds):
            without.append(_round(plain, traffic, seconds))
            for choice in Observed:
                with_choice[choice].append(
                    _round(_observed_contender(plain, storage, choice, shares_sent[choice]), traffic, seconds)
                )
    except NotMeasured as reason:
        return [Row(what=f"{what}, metrics and traces", remark=str(reason))]
    return [
        _figures(f"{what}, neither metrics nor traces", without),
        *(
            replace(
                _figures(f"{what}, {choice.value}", with_choice[choice]),
                remark=_remark_on_observed(with_choice[choice], without, shares_sent[choice]),
            )
            for choice in Observed
        ),
    ]


def _observed_contender(plain: Contender, storage: Storage, choice: Observed, shares_sent: list[float]) -> Contender:
    return replace(
        plain, serving=lambda webhooks: observed.serving(storage, choice, webhooks=webhooks, shares_sent=shares_sent)
    )


def _remark_on_observed(rounds: Sequence[_Round], without: Sequence[_Round], shares_sent: Sequence[float]) -> str:
    ratios = [
        own.record.requests_per_second / other.record.requests_per_second
        for own, other in zip(rounds, without, strict=True)
    ]
    remark = f"{median(ratios):.2f} of the rate without them, rounds: {min(ratios):.2f} to {max(ratios):.2f}"
    return f"{remark}; {median(shares_sent):.0%} of the spans were sent" if shares_sent else remark


def _steady(effort: Effort) -> Sequence[Row]:
    return _compare(effort, Traffic(size=SMALL_BODY, rate_per_second=STEADY_RATE_PER_SECOND))


def _filters(effort: Effort) -> Sequence[Row]:
    what = "Filter evaluations, one core"
    try:
        return [Row(what=what, per_second=service.filter_evaluations_per_second())]
    except NotMeasured as reason:
        return [Row(what=what, remark=str(reason))]


SCHEME_OF_PRIMITIVE = {
    "hmac-sha256": "github",
    "hmac-sha256, header with a list and a timestamp (Stripe)": "stripe",
    "hmac-sha256, signed id, time and body (Standard Webhooks)": "standard_webhooks",
    "hmac-sha1": "vercel",
    "hmac-sha512": "paystack",
    "token": "hugging_face",
    "jwt-hs256": "netlify",
    "hash-sha1": "cloudinary",
    "ed25519": "discord",
    "ecdsa-p256-sha256": "sendgrid",
    "rsa-pkcs1-sha256": "wise",
}
"""A scheme for each primitive, and for the formats of a signature that take longest to parse."""

SIGNED_BODY_SIZES = (1_000, 262_144)


def _signatures(effort: Effort) -> Sequence[Row]:
    rows = []
    for size in SIGNED_BODY_SIZES:
        for primitive, scheme in SCHEME_OF_PRIMITIVE.items():
            what = f"Verification, {primitive}, {size // 1000} KB"
            try:
                # One whole core, so that the column "server µs each" shows the time of one verification.
                rows.append(Row(what=what, per_second=service.verifications_per_second(scheme, size), server_cores=1.0))
            except NotMeasured as reason:
                rows.append(Row(what=what, remark=str(reason)))
    return rows


def _runs(effort: Effort) -> Sequence[Row]:
    return [
        row
        for storage in Storage
        for row in [
            *runs.measure(runs.setups_for(storage, effort.against), rounds=effort.rounds),
            *runs.measure_behind_queue(storage),
        ]
    ]


def _pages(effort: Effort) -> Sequence[Row]:
    return [
        row for storage in Storage for row in pages.measure(storage, times=effort.rounds * REQUESTS_PER_PAGE_AND_ROUND)
    ]


def _capacity(effort: Effort) -> Sequence[Row]:
    small = _compare(effort, Traffic(size=SMALL_BODY))
    large = _compare(replace(effort, seconds=effort.seconds / 2), Traffic(size=LARGE_BODY))
    medium = _compare(effort, Traffic(size=MEDIUM_BODY))
    return [
        row
        for rows in zip(CONTENDERS, small, medium, large, strict=True)
        for row in capacity.compare_with_measurement(rows[0].name, small=rows[1], medium=rows[2], large=rows[3])
    ]


def _grown(effort: Effort) -> Iterator[Row]:
    for storage in Storage:
        yield from grown.measure_by_log_size(
            storage, size_max=effort.log_size_max, rounds=effort.rounds_of_busiest, seconds=effort.seconds
        )
        yield from grown.measure_by_webhooks(storage, seconds=effort.seconds)
        yield from grown.measure_during_retention(storage, rounds=effort.rounds, seconds=effort.seconds)


def _window(effort: Effort) -> Sequence[Row]:
    return [
        row
        for storage in Storage
        for row in window.measure(storage, rounds=max(1, effort.rounds // 2), seconds=effort.seconds)
    ]


def _connections(effort: Effort) -> Sequence[Row]:
    seconds = connections.SECONDS if effort.rounds >= THOROUGH.rounds else connections.SECONDS_QUICK
    return [row for storage in Storage for row in connections.measure(storage, seconds=seconds)]


def _disk(effort: Effort) -> Iterator[Row]:
    for storage in Storage:
        yield from disk.measure(storage)


SCENARIOS = (
    Scenario(name="small", measure=_flat_out_small),
    Scenario(name="large", measure=_flat_out_large),
    Scenario(name="observed", measure=_observed),
    Scenario(name="steady", measure=_steady),
    Scenario(name="filters", measure=_filters),
    Scenario(name="signatures", measure=_signatures),
    Scenario(name="runs", measure=_runs),
    Scenario(name="pages", measure=_pages),
    Scenario(name="grown", measure=_grown),
    Scenario(name="window", measure=_window),
    Scenario(name="connections", measure=_connections),
    Scenario(name="capacity", measure=_capacity),
    Scenario(name="disk", measure=_disk),
    Scenario(name="databases", measure=lambda effort: databases.simulate()),
)
