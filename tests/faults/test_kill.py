"""kill -9 under load, again and again: what was answered with 202 is there, once, and so is every run it starts."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.audit import Findings, audit, sqlite_is_whole, wait_until_runs_have_ended
from tests.faults.parts import Part, kill_part, wait_until_announced
from tests.faults.senders import Fleet
from tests.faults.sources import furnish
from tests.support.counts import count
from tests.support.service import Service, serving
from tests.support.waiting import until

KILLS = count(30, usually=10)
ACCEPTED_MIN = count(5_000, usually=1_000)
SHARED_KEY = "A" * 43 + "="

SETTINGS: dict[str, Any] = {
    "deliveries_per_minute": 100_000,
    "webhooks_per_factory": 100,
    "runs_at_once": 24,
    "run_attempts_max": 100,
}

# How often each is taken away. A supervisor goes together with everything: that is a machine that went down.
VICTIMS = ([Part.SUPERVISOR] * 3 + [Part.WRITER] * 3 + [Part.INGRESS] * 2 + [Part.WORKER, Part.FORKS]) * (KILLS // 10)
assert len(VICTIMS) == KILLS


def kill_again_and_again(services: Sequence[Service], fleet: Fleet, chance: random.Random) -> Counter[str]:
    """One victim after the other, at moments of chance. What nobody starts again by itself is started here, while the
    killing goes on where there is another service."""
    killed: Counter[str] = Counter()
    logged_before = {service.port: 0 for service in services}
    starting: dict[int, Future[Service]] = {}
    with ThreadPoolExecutor() as starters:
        for victim in chance.sample(VICTIMS, len(VICTIMS)):
            time.sleep(chance.uniform(0.05, 1.0))
            service = _one_that_runs(services, starting, chance)
            if victim is Part.SUPERVISOR:
                service.kill()
                logged_before[service.port] = len(service.log())
                starting[service.port] = starters.submit(service.start)
            else:
                if victim is Part.INGRESS:
                    # A service that never was ready may give up.
                    wait_until_announced(service, since=logged_before[service.port])
                kill_part(service, victim)
            killed[victim] += 1
            assert fleet.unexpected == []
        for started in starting.values():
            started.result()
    return killed


def _one_that_runs(services: Sequence[Service], starting: dict[int, Future[Service]], chance: random.Random) -> Service:
    def running() -> list[Service]:
        for port in [port for port, started in starting.items() if started.done()]:
            starting.pop(port).result()
        return [service for service in services if service.port not in starting]

    return chance.choice(until(running, "a service runs"))


def run_the_kills(services: Sequence[Service], where: str, url: str) -> Findings:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with services[0].management() as management:
        sources = furnish(management)
    with Fleet(
        [service.port for service in services],
        lambda chance, number: chance.choice(sources).draw(chance, number),
        chance,
    ) as fleet:
        killed = kill_again_and_again(services, fleet, chance)
        until(lambda: fleet.taken >= ACCEPTED_MIN, f"{ACCEPTED_MIN} events were taken")
        fleet.settle(60)
    wait_until_runs_have_ended(url)

    findings = audit(url, fleet.events)
    print(findings.line(where, kills=killed.total(), seed=seed))
    print(f"killed {dict(killed)}, answered {dict(fleet.answers)}")
    assert fleet.unexpected == []
    assert killed.total() == KILLS
    return findings


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_by_kills_on_sqlite(on_disk: Path):
    with serving(on_disk / "data", **SETTINGS) as service:
        findings = run_the_kills([service], "SQLite, one process", service.read_settings().store_url())
        assert service.stop() == 0

    assert findings.troubles() == {}
    assert findings.accepted >= ACCEPTED_MIN
    assert sqlite_is_whole(on_disk / "data" / "hookmill.db")
    assert sqlite_is_whole(on_disk / "data" / "engine.db")


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_by_kills_on_postgresql(tmp_path: Path, postgres_url: str):
    with ExitStack() as running:
        services = [
            running.enter_context(
                serving(tmp_path / name, database_url=postgres_url, master_key=SHARED_KEY, **SETTINGS)
            )
            for name in ("one", "two")
        ]
        findings = run_the_kills(services, "PostgreSQL, two ingress processes", postgres_url)

    assert findings.troubles() == {}
    assert findings.accepted >= ACCEPTED_MIN
