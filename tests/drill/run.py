"""Runs the drill on one kind of database: deliveries and faults, then the remaining runs, then the audit."""

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.drill.aged_log import AgedLog
from tests.drill.changing_webhook import ChangingWebhook
from tests.drill.faults import FAULTS, SLOW, EndedFault, FaultContext
from tests.drill.site import RUNNER, DatabaseKind, Site, running_site
from tests.faults.audit import audit, audit_attempts, is_intact, wait_until_runs_have_ended
from tests.faults.senders import Event, LoadGenerator
from tests.faults.sources import create_sources
from tests.support.service import operator
from tests.support.waiting import until

RECOVERY_SECONDS_MAX: Final = 60.0
DRAIN_SECONDS_MAX: Final = 120.0
RUNS_SECONDS_MAX: Final = 600.0
URGENT_SHARE: Final = 0.04
REPEATED_SHARE: Final = 0.03
COPIED_SHARE: Final = 0.03
FILLER_BYTES: Final = (*([0] * 8), *([100] * 8), 1_000, 1_000, 1_000, 20_000)
"""The sizes of the fillers in bodies. A size that occurs more often is chosen more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """What a drill should do. Its load ends after `seconds` at the latest, even if that is incomplete."""

    faults: int
    deliveries: int
    seconds: float
    seed: int
    per_second: float = 400.0
    senders: int = 24
    fault_seconds_max: float = 2.0
    with_slow_faults: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    kind: DatabaseKind
    plan: DrillPlan
    seconds: float
    recoveries: Mapping[str, Sequence[float]]
    """By fault, for each time that it happened: the seconds until every affected service accepted a delivery again."""
    answers: Mapping[str, int]
    """The number of answers by status, and as `none` the number of requests without an answer."""
    events: int
    accepted: int
    runs: int
    violations: Mapping[str, int]
    """Counts that must be 0, by name."""
    unexpected_answers: Sequence[str] = field(repr=False)
    """The first few of them."""

    @property
    def faults(self) -> int:
        return sum(len(seconds) for seconds in self.recoveries.values())

    @property
    def is_complete(self) -> bool:
        return self.faults >= self.plan.faults and self.accepted >= self.plan.deliveries

    @property
    def is_clean(self) -> bool:
        return not any(self.violations.values())


def run_drill(kind: DatabaseKind, plan: DrillPlan, directory: Path) -> DrillResult:
    """Raises `AssertionError` if the service does not recover from a fault, or does not finish its work at the end."""
    chance = random.Random(plan.seed)
    began_at = time.monotonic()
    deadline = began_at + plan.seconds
    with running_site(kind, directory) as site:
        with site.management() as management:
            sources = create_sources(management, runner=RUNNER)
            may = operator(management)
            changing_webhook = ChangingWebhook(management.webhooks.create(may, {"name": "changing"}), site.ports)
            aged_log = AgedLog(site.url, management.webhooks.create(may, {"name": "aged"}).webhook, directory)

        def new_event(chance: random.Random, number: int) -> Event:
            return chance.choice(sources).new_event(chance, number, urgent=URGENT_SHARE, fillers=FILLER_BYTES)

        with LoadGenerator(
            site.ports,
            new_event,
            chance,
            senders=plan.senders,
            per_second=plan.per_second,
            repeats=REPEATED_SHARE,
            copies=COPIED_SHARE,
        ) as load:
            chance_of_faults = random.Random(plan.seed)
            context = FaultContext(site, load, chance_of_faults, plan.fault_seconds_max, changing_webhook, aged_log)
            recoveries = _inject(context, plan, deadline)
            _wait_for_deliveries(load, plan.deliveries, deadline)
            load.drain(DRAIN_SECONDS_MAX)
        site.require_hosts()
        wait_until_runs_have_ended(site.url, seconds=RUNS_SECONDS_MAX)
        wrong_rows = aged_log.count_wrong_rows()
        unclean_stops = context.unclean_stops + site.stop()

        audit_result = audit(site.url, [*load.events, *changing_webhook.events])
        runs, run_violations = audit_attempts(site.url, site.notes, sources[0].when_urgent)
        violations = {
            **audit_result.counts(),
            **run_violations,
            "accepted_outdated": changing_webhook.accepted_outdated,
            "refused_current": changing_webhook.refused_current,
            "retention_wrong": wrong_rows,
            "unexpected_answers": len(load.unexpected_answers),
            "unclean_stops": unclean_stops,
            "damaged_files": _count_damaged_files(site),
        }
    return DrillResult(
        kind=kind,
        plan=plan,
        seconds=time.monotonic() - began_at,
        recoveries=recoveries,
        answers=dict(load.answers),
        events=len(load.events) + len(changing_webhook.events),
        accepted=audit_result.accepted,
        runs=runs,
        violations=violations,
        unexpected_answers=load.unexpected_answers[:10],
    )


def _inject(context: FaultContext, plan: DrillPlan, deadline: float) -> Mapping[str, Sequence[float]]:
    """Inject one fault after the other, spread over the deliveries. Returns the recovery times by fault."""
    recoveries: defaultdict[str, list[float]] = defaultdict(list)
    faults = FAULTS[context.site.kind]
    names = _in_random_order([name for name in faults if plan.with_slow_faults or name not in SLOW], context.chance)
    for number in range(plan.faults):
        _wait_for_deliveries(context.load, number * plan.deliveries // plan.faults, deadline)
        time.sleep(context.chance.uniform(0.05, 0.25) * context.fault_seconds_max)
        if time.monotonic() > deadline:
            break
        context.site.require_hosts()
        name = next(names)
        recoveries[name].append(_recovery_seconds(context, name, faults[name](context)))
    return dict(recoveries)


def _wait_for_deliveries(load: LoadGenerator, deliveries: int, deadline: float):
    while load.accepted < deliveries and time.monotonic() < deadline:
        time.sleep(0.02)


def _in_random_order(names: Sequence[str], chance: random.Random) -> Iterator[str]:
    """All names in random order, then all in another order, and so on."""
    while True:
        yield from chance.sample(names, len(names))


def _recovery_seconds(context: FaultContext, name: str, fault: EndedFault) -> float:
    accepted_at = context.load.last_accepted_at
    until(
        lambda: all(accepted_at[port] > fault.since for port in fault.ports),
        lambda: f"deliveries are accepted again after: {name} ({dict(context.load.answers)})",
        seconds=RECOVERY_SECONDS_MAX,
    )
    return max(0.0, time.monotonic() - fault.since)


def _count_damaged_files(site: Site) -> int:
    if site.kind is not DatabaseKind.SQLITE:
        return 0
    return int(not is_intact(site.services[0].data_dir / "hookmill.db"))
