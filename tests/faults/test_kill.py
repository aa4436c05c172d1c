"""Processes are killed with SIGKILL under load: each event with a 202 is stored once, and so is each of its runs."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.faults.audit import AuditResult, audit, is_intact, wait_until_runs_have_ended
from tests.faults.parts import Part, kill_part, wait_until_announced
from tests.faults.senders import LoadGenerator
from tests.faults.sources import create_sources
from tests.support.counts import count
from tests.support.service import Service, serving
from tests.support.waiting import until

KILLS = count(30, usually=10)
ACCEPTED_MIN = count(5_000, usually=600)
SHARED_KEY = "A" * 43 + "="

SETTINGS: dict[str, Any] = {
    "deliveries_per_minute": 100_000,
    "webhooks_per_factory": 100,
    "runs_at_once": 24,
    "run_attempts_max": 100,
}

KILLED_PARTS = ([Part.SUPERVISOR] * 3 + [Part.WRITER] * 3 + [Part.INGRESS] * 2 + [Part.WORKER, Part.FORKS]) * (
    KILLS // 10
)
"""For each kill, the kind of process. With a supervisor, all processes of its service are killed, as in a power
failure."""
assert len(KILLED_PARTS) == KILLS


def kill_repeatedly(services: Sequence[Service], load: LoadGenerator, chance: random.Random) -> Counter[str]:
    """Kill processes in random order, at random moments. Start a service again whose supervisor was killed; meanwhile,
    kill processes of the others. Returns the number of kills by part."""
    kills: Counter[str] = Counter()
    logged_before = {service.port: 0 for service in services}
    starts: dict[int, Future[Service]] = {}
    with ThreadPoolExecutor() as pool:
        for part in chance.sample(KILLED_PARTS, len(KILLED_PARTS)):
            time.sleep(chance.uniform(0.05, 1.0))
            service = _running_service(services, starts, chance)
            if part is Part.SUPERVISOR:
                service.kill()
                logged_before[service.port] = len(service.log())
                starts[service.port] = pool.submit(service.start)
            else:
                if part is Part.INGRESS:
                    # A service whose ingress ends before the service was ready may give up.
                    wait_until_announced(service, since=logged_before[service.port])
                kill_part(service, part)
            kills[part] += 1
            assert load.unexpected_answers == []
        for start in starts.values():
            start.result()
    return kills


def _running_service(services: Sequence[Service], starts: dict[int, Future[Service]], chance: random.Random) -> Service:
    def running() -> list[Service]:
        for port in [port for port, start in starts.items() if start.done()]:
            starts.pop(port).result()
        return [service for service in services if service.port not in starts]

    return chance.choice(until(running, "a service runs"))


def audit_kills(services: Sequence[Service], title: str, url: str) -> AuditResult:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with services[0].management() as management:
        sources = create_sources(management)
    with LoadGenerator(
        [service.port for service in services],
        lambda chance, number: chance.choice(sources).new_event(chance, number),
        chance,
    ) as load:
        kills = kill_repeatedly(services, load, chance)
        until(lambda: load.accepted >= ACCEPTED_MIN, f"{ACCEPTED_MIN} events are accepted")
        load.drain(60)
    wait_until_runs_have_ended(url)

    result = audit(url, load.events)
    print(result.summary(title, kills=kills.total(), seed=seed))
    print(f"kills {dict(kills)}, answers {dict(load.answers)}")
    assert load.unexpected_answers == []
    assert kills.total() == KILLS
    return result


@pytest.mark.timeout(300)
def test_kills_on_sqlite_lose_and_double_no_delivery_or_run(on_disk):
    with serving(on_disk / "data", **SETTINGS) as service:
        result = audit_kills([service], "SQLite, one process", service.read_settings().store_url())
        assert service.stop() == 0

    assert result.violations() == {}
    assert result.accepted >= ACCEPTED_MIN
    assert is_intact(on_disk / "data" / "hookmill.db")


@pytest.mark.timeout(300)
@pytest.mark.proof
def test_kills_on_postgresql_lose_and_double_no_delivery_or_run(tmp_path, postgres_url):
    with ExitStack() as stack:
        services = [
            stack.enter_context(serving(tmp_path / name, database_url=postgres_url, master_key=SHARED_KEY, **SETTINGS))
            for name in ("one", "two")
        ]
        result = audit_kills(services, "PostgreSQL, two ingress processes", postgres_url)

    assert result.violations() == {}
    assert result.accepted >= ACCEPTED_MIN
