"""Runs the drill on one kind of database: deliveries, faults, quiet, audit."""

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.drill.aged_log import AgedLog
from tests.drill.changing_webhook import ChangingWebhook
from tests.drill.faults import FAULTS, SLOW, Disturbance, Scene
from tests.drill.site import RUNNER, DatabaseKind, Site, running_site
from tests.faults.audit import audit, audit_attempts, is_intact, wait_until_runs_have_ended
from tests.faults.senders import Event, LoadGenerator
from tests.faults.sources import create_sources
from tests.support.service import operator
from tests.support.waiting import until

RECOVERY_SECONDS_MAX: Final = 60.0
SETTLE_SECONDS: Final = 120.0
RUNS_SECONDS: Final = 600.0
URGENT_SHARE: Final = 0.04
REPEATED_SHARE: Final = 0.03
COPIED_SHARE: Final = 0.03
FILLINGS: Final = (*([0] * 8), *([100] * 8), 1_000, 1_000, 1_000, 20_000)
"""The sizes of bodies, in bytes, as often as they are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a drill is to do. It ends after `seconds` at the latest, even if it has not done everything."""

    faults: int
    deliveries: int
    seconds: float
    seed: int
    per_second: float = 400.0
    senders: int = 24
    hold_seconds_max: float = 2.0
    with_slow_faults: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    kind: DatabaseKind
    plan: Plan
    seconds: float
    recoveries: Mapping[str, Sequence[float]]
    """By fault: the seconds until every touched service accepted a delivery again, for each time that it happened."""
    answers: Mapping[str, int]
    """Answers by status; `none` where no answer came."""
    events: int
    accepted: int
    runs: int
    troubles: Mapping[str, int]
    """What must be 0, by name."""
    unexpected: Sequence[str] = field(repr=False)

    @property
    def faults(self) -> int:
        return sum(len(seconds) for seconds in self.recoveries.values())

    @property
    def is_complete(self) -> bool:
        return self.faults >= self.plan.faults and self.accepted >= self.plan.deliveries

    @property
    def is_clean(self) -> bool:
        return not any(self.troubles.values())


def run_drill(kind: DatabaseKind, plan: Plan, directory: Path) -> DrillResult:
    """Raises `AssertionError` if the service does not recover from a fault, or does not come to rest at the end."""
    chance = random.Random(plan.seed)
    began = time.monotonic()
    deadline = began + plan.seconds
    with running_site(kind, directory) as site:
        with site.management() as management:
            sources = create_sources(management, runner=RUNNER)
            may = operator(management)
            changing = ChangingWebhook(management.webhooks.create(may, "changing"), site.ports)
            aged = AgedLog(site.url, management.webhooks.create(may, "aged").webhook, directory)

        def draw(chance: random.Random, number: int) -> Event:
            return chance.choice(sources).new_event(chance, number, urgent=URGENT_SHARE, fillers=FILLINGS)

        with LoadGenerator(
            site.ports,
            draw,
            chance,
            senders=plan.senders,
            per_second=plan.per_second,
            repeats=REPEATED_SHARE,
            copies=COPIED_SHARE,
        ) as load:
            scene = Scene(site, load, random.Random(plan.seed), plan.hold_seconds_max, changing, aged)
            recoveries = _inject(scene, plan, deadline)
            _wait_for_deliveries(load, plan.deliveries, deadline)
            load.drain(SETTLE_SECONDS)
        site.require_hosts()
        wait_until_runs_have_ended(site.url, seconds=RUNS_SECONDS)
        wrong_rows = aged.count_wrong_rows()
        unclean_stops = scene.unclean_stops + site.stop()

        findings = audit(site.url, [*load.events, *changing.events])
        runs, run_troubles = audit_attempts(site.url, site.notes, sources[0].when_urgent)
        troubles = {
            **findings.counts(),
            **run_troubles,
            "accepted_outdated": changing.accepted_outdated,
            "refused_current": changing.refused_current,
            "retention_wrong": wrong_rows,
            "unexpected_answers": len(load.unexpected_answers),
            "unclean_stops": unclean_stops,
            "damaged_files": _count_damaged_files(site),
        }
    return DrillResult(
        kind=kind,
        plan=plan,
        seconds=time.monotonic() - began,
        recoveries=recoveries,
        answers=dict(load.answers),
        events=len(load.events) + len(changing.events),
        accepted=findings.accepted,
        runs=runs,
        troubles=troubles,
        unexpected=load.unexpected_answers[:10],
    )


def _inject(scene: Scene, plan: Plan, deadline: float) -> Mapping[str, Sequence[float]]:
    """Inject one fault after the other, spread over the deliveries. Returns the recovery times by fault."""
    recoveries: defaultdict[str, list[float]] = defaultdict(list)
    faults = FAULTS[scene.site.kind]
    names = _in_random_order([name for name in faults if plan.with_slow_faults or name not in SLOW], scene.chance)
    for number in range(plan.faults):
        _wait_for_deliveries(scene.load, number * plan.deliveries // plan.faults, deadline)
        time.sleep(scene.chance.uniform(0.05, 0.25) * scene.hold_seconds_max)
        if time.monotonic() > deadline:
            break
        scene.site.require_hosts()
        name = next(names)
        recoveries[name].append(_recovery_seconds(scene, name, faults[name](scene)))
    return dict(recoveries)


def _wait_for_deliveries(load: LoadGenerator, deliveries: int, deadline: float) -> None:
    while load.accepted < deliveries and time.monotonic() < deadline:
        time.sleep(0.02)


def _in_random_order(names: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Each name once, then each once again in another order."""
    while True:
        yield from chance.sample(names, len(names))


def _recovery_seconds(scene: Scene, name: str, disturbance: Disturbance) -> float:
    accepted_at = scene.load.last_accepted_at
    until(
        lambda: all(accepted_at[port] > disturbance.since for port in disturbance.ports),
        lambda: f"deliveries are accepted again after: {name} ({dict(scene.load.answers)})",
        seconds=RECOVERY_SECONDS_MAX,
    )
    return max(0.0, time.monotonic() - disturbance.since)


def _count_damaged_files(site: Site) -> int:
    if site.kind is not DatabaseKind.SQLITE:
        return 0
    data_dir = site.services[0].data_dir
    return sum(not is_intact(data_dir / name) for name in ("hookmill.db", "engine.db"))
