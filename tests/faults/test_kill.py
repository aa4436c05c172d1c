"""kill -9 under load, again and again: what was answered with 202 is there, once, and so is every run it starts."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from tests.faults.audit import Findings, audit, sqlite_is_whole, wait_until_runs_have_ended
from tests.faults.parts import Part, kill_part, wait_until_announced
from tests.faults.senders import Event, Fleet
from tests.support.counts import count
from tests.support.service import Service, operator, serving
from tests.support.waiting import until

KILLS = count(30, usually=10)
ACCEPTED_MIN = count(5_000, usually=1_500)
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


@dataclass(frozen=True, slots=True)
class Source:
    """A webhook, and the automations that its events start: always, and when they say so."""

    made: WebhookWithSecret
    always: frozenset[str]
    when_urgent: frozenset[str]

    def draw(self, chance: random.Random, number: int) -> Event:
        urgent = chance.random() < 0.1
        filling = "x" * chance.choice([0, 10, 300, 5_000])
        body = b'{"number": %d, "urgent": %s, "filling": "%s"}' % (
            number,
            b"true" if urgent else b"false",
            filling.encode(),
        )
        header = self.made.webhook.delivery_id_header or chance.choice(["X-Service-Delivery-Id", None])
        return Event(
            self.made,
            body,
            {header: f"event-{number}"} if header is not None else {},
            self.always | self.when_urgent if urgent else self.always,
        )


def furnish(service: Service) -> list[Source]:
    """Twelve webhooks of every kind. Three automations listen: to one of them always, to most when it is urgent, and
    never."""
    with service.management() as management:
        may = operator(management)
        made = [
            management.webhooks.create(
                may,
                f"source-{n}",
                auth_mode=AuthMode.URL_TOKEN if n % 3 == 1 else AuthMode.TOKEN,
                delivery_id_header="X-Event-Id" if n % 3 == 2 else None,
            )
            for n in range(12)
        ]

        def automation(name: str, webhooks: Sequence[WebhookWithSecret], payload: object, enabled: bool = True) -> str:
            chosen: dict[str, object] = {"webhook_ids": [each.webhook.uid for each in webhooks]}
            if payload is not None:
                chosen["payload"] = payload
            trigger = {"provider": "webhook", "event": "received", "filter": chosen}
            added = management.automations.create(may, name, prompt="Look.", triggers=[trigger], enabled=enabled)
            return str(added.id)

        always = automation("always", made[:1], None)
        urgent = automation("urgent", made[:9], {"urgent": [True]})
        automation("never", made, None, enabled=False)
    return [
        Source(each, frozenset({always} if n == 0 else ()), frozenset({urgent} if n < 9 else ()))
        for n, each in enumerate(made)
    ]


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
    sources = furnish(services[0])
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
