"""Two ingress processes on one PostgreSQL are one service: one limit, one memory of events, and no moment in which
one of
them still goes by what was changed through the other."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from hookmill.domain.ids import delivery_key
from hookmill.domain.permission import MayManage
from hookmill.management import Management, WebhookWithSecret
from hookmill.store.database import open_database
from tests.faults.senders import Event, Fleet, Line, ask, at_one_instant, request
from tests.support.counts import count
from tests.support.postgres import Postgres
from tests.support.service import Answer, Service, operator, serving
from tests.support.waiting import until

ROUNDS = count(200, usually=16)
COPIES = 16
ATTEMPTS = 200
LIMIT = 60
RACERS = 6
PAUSE_SECONDS_MAX = 0.03
SHARED_KEY = "A" * 43 + "="


@dataclass(frozen=True, slots=True)
class Pair:
    """Where the processes listen, and what they share. One port may be two processes."""

    services: Sequence[Service]
    url: str

    @property
    def ports(self) -> list[int]:
        return [service.port for service in self.services]

    def management(self):
        return self.services[0].management()

    def rows(self, sql: str):
        with open_database(self.url) as database, database.read() as tx:
            return tx.all(sql)


def paired(directory: Path, url: str, *, services: int, **settings: Any) -> Iterator[Pair]:
    with ExitStack() as running:
        started = [
            running.enter_context(
                serving(
                    directory / str(number),
                    database_url=url,
                    master_key=SHARED_KEY,
                    webhooks_per_factory=10_000,
                    failed_authentications_per_minute=100_000,
                    performs_runs=False,
                    **settings,
                )
            )
            for number in range(services)
        ]
        yield Pair(started, url)


@pytest.fixture(scope="module")
def pair(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two services that limit nobody."""
    url = postgres_server.create_database()
    directory = tmp_path_factory.mktemp("pair")
    yield from paired(directory, url, services=2, deliveries_per_minute=100_000)
    postgres_server.drop_database(url)


@pytest.fixture(params=["two services", "one service of two processes"])
def limiting(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> Iterator[Pair]:
    if request.param == "two services":
        yield from paired(tmp_path, postgres_url, services=2, deliveries_per_minute=LIMIT)
    else:
        yield from paired(tmp_path, postgres_url, services=1, processes=2, deliveries_per_minute=LIMIT)


def test_two_hundred_attempts_in_ten_seconds_are_sixty_deliveries(limiting: Pair):
    with limiting.management() as management:
        may = operator(management)
        webhooks = [management.webhooks.create(may, f"busy-{number}") for number in range(5)]
    statuses = {made.webhook.uid: Counter[int]() for made in webhooks}
    waits: list[int] = []
    guard = threading.Lock()

    def send(made: WebhookWithSecret, share: int) -> None:
        with ExitStack() as connections:
            lines = [connections.enter_context(Line(port)) for port in limiting.ports]
            for number in range(share, ATTEMPTS, 4):
                time.sleep(max(0.0, began + 10 * number / ATTEMPTS - time.monotonic()))
                answer = lines[number // 4 % len(lines)].ask(request(made, b'{"number": %d}' % number))
                assert answer is not None
                with guard:
                    statuses[made.webhook.uid][answer.status] += 1
                    if answer.status == 429:
                        waits.append(int(answer.headers["retry-after"]))

    began = time.monotonic()
    senders = [threading.Thread(target=send, args=(made, share)) for made in webhooks for share in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()

    assert list(statuses.values()) == [{202: LIMIT, 429: ATTEMPTS - LIMIT}] * len(webhooks)
    assert all(1 <= seconds <= 60 for seconds in waits)
    counts = limiting.rows("SELECT COUNT(*) AS rows FROM deliveries GROUP BY webhook_no")
    assert [row["rows"] for row in counts] == [LIMIT] * len(webhooks)


@pytest.mark.parametrize("identified", ["by an id", "by the body"])
def test_of_many_copies_at_one_instant_one_is_accepted(pair: Pair, identified: str):
    with pair.management() as management:
        made = management.webhooks.create(operator(management), f"copied {identified}")
    rounds = ROUNDS // 2
    with ExitStack() as connections:
        lines = [connections.enter_context(Line(pair.ports[n % 2])) for n in range(COPIES)]
        for number in range(rounds):
            if identified == "by an id":
                headers = {"X-Service-Delivery-Id": f"event-{number}"}
                # Whose body it was that came first can be seen.
                copies = [request(made, b'{"copy": %d}' % copy, headers=headers) for copy in range(COPIES)]
            else:
                copies = [request(made, b'{"number": %d}' % number)] * COPIES
            answers = at_one_instant(lines, copies)

            assert [answer.status if answer is not None else None for answer in answers] == [202] * COPIES
            ids = {answer.delivery_id for answer in answers if answer is not None}
            assert len(ids) == COPIES

    log = pair.rows(f"SELECT * FROM deliveries WHERE webhook_no = {made.webhook.no}")
    accepted = {bytes(row["identity_digest"]): bytes(row["id"]) for row in log if row["label"] == 1}
    duplicates = [row for row in log if row["label"] == 2]
    assert len([row for row in log if row["label"] == 1]) == len(accepted) == rounds
    assert len(duplicates) == rounds * (COPIES - 1)
    assert all(bytes(row["duplicate_of"]) == accepted[bytes(row["identity_digest"])] for row in duplicates)


@dataclass(frozen=True, slots=True)
class Shot:
    """One attempt of a racer: when it began and ended, what it went by, and what became of it."""

    began: float
    ended: float
    by: int
    answer: Answer


class Racers:
    """Senders that hardly pause, on connections to every process."""

    def __init__(self, pair: Pair, aim: Callable[[random.Random], tuple[WebhookWithSecret, str, int]]) -> None:
        """`aim` says whom to send to, with which secret, and a number to tell the shots apart by."""
        self._pair = pair
        self._aim = aim
        self._over = threading.Event()
        self.shots: list[Shot] = []
        self._threads = [threading.Thread(target=self._shoot, args=(number,)) for number in range(RACERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def see_one_through(self) -> None:
        """Returns when somebody has shot, from the beginning to the answer, since the call."""
        since = time.monotonic()
        until(lambda: any(shot.began > since for shot in self.shots[-2 * RACERS :]), "somebody shot")

    def _shoot(self, number: int) -> None:
        chance = random.Random(number)
        with Line(self._pair.ports[number % 2]) as line:
            while not self._over.is_set():
                made, token, by = self._aim(chance)
                sent = request(made, b"[%d, %d]" % (number, time.monotonic_ns()), token=token)
                began = time.monotonic()
                answer = line.ask(sent)
                assert answer is not None
                self.shots.append(Shot(began, time.monotonic(), by, answer))
                # Pausing less, they would only keep the changes that they race waiting for the processor.
                time.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))


def statuses_everywhere(pair: Pair, made: WebhookWithSecret, token: str) -> set[int]:
    """What each process says at this moment."""
    answers = [ask(port, request(made, b"%d" % time.monotonic_ns(), token=token)) for port in pair.ports]
    return {answer.status for answer in answers if answer is not None}


def setting(management: Management, name: str) -> tuple[MayManage, WebhookWithSecret]:
    may = operator(management)
    return may, management.webhooks.create(may, name)


def test_a_secret_is_worth_nothing_from_the_moment_its_rotation_returned(pair: Pair):
    with pair.management() as management:
        may, made = setting(management, "rotated")
        tokens = [made.reveal()]
        called: list[float] = [0.0]
        returned: list[float] = [0.0]

        def aim(chance: random.Random) -> tuple[WebhookWithSecret, str, int]:
            newest = len(tokens) - 1
            by = max(0, newest - (chance.random() < 0.3))
            return made, tokens[by], by

        with Racers(pair, aim) as racers:
            for _ in range(ROUNDS):
                called.append(time.monotonic())
                rotated = management.webhooks.rotate(may, made.webhook.uid)
                returned.append(time.monotonic())
                assert statuses_everywhere(pair, made, tokens[-1]) == {401}
                tokens.append(rotated.reveal())
                assert statuses_everywhere(pair, made, tokens[-1]) == {202}

    never = float("inf")
    outdated = [shot for shot in racers.shots if shot.began > [*returned, never][shot.by + 1]]
    current = [
        shot for shot in racers.shots if shot.began > returned[shot.by] and shot.ended < [*called, never][shot.by + 1]
    ]
    assert {shot.answer.status for shot in outdated} == {401}
    assert {shot.answer.status for shot in current} == {202}
    assert {shot.answer.status for shot in racers.shots} == {202, 401}
    print(f"{len(racers.shots)} shots, {len(outdated)} outdated, {len(current)} current")


def test_a_webhook_takes_nothing_from_the_moment_it_was_disabled(pair: Pair):
    spans: list[tuple[bool, float, float]] = []
    with pair.management() as management:
        may, made = setting(management, "toggled")
        token = made.reveal()
        with Racers(pair, lambda _: (made, token, 0)) as racers:
            since = time.monotonic()
            for number in range(2 * ROUNDS):
                enabled = number % 2 == 1
                spans.append((not enabled, since, time.monotonic()))
                management.webhooks.set_enabled(may, made.webhook.uid, enabled)
                since = time.monotonic()
                assert statuses_everywhere(pair, made, token) == ({202} if enabled else {404})
                time.sleep(0.005)
            spans.append((True, since, time.monotonic()))

    inside = within(racers.shots, spans)
    assert {shot.answer.status for shot in inside[True]} == {202}
    assert {shot.answer.status for shot in inside[False]} == {404}
    taken = sum(shot.answer.status == 202 for shot in racers.shots) + 2 * ROUNDS
    (row,) = pair.rows(f"SELECT COUNT(*) AS rows FROM deliveries WHERE webhook_no = {made.webhook.no}")
    assert row["rows"] == taken


def within(shots: Sequence[Shot], spans: Sequence[tuple[bool, float, float]]) -> dict[bool, list[Shot]]:
    """Those that began and ended inside one span, by what held in it. Each kind was hit."""
    found: dict[bool, list[Shot]] = {True: [], False: []}
    ordered = sorted(shots, key=lambda shot: shot.began)
    place = 0
    for held, since, until_ in spans:
        while place < len(ordered) and ordered[place].began <= since:
            place += 1
        while place < len(ordered) and ordered[place].began < until_:
            if ordered[place].ended < until_:
                found[held].append(ordered[place])
            place += 1
    assert all(found.values()), "the racers shot in both states"
    return found


def test_a_webhook_takes_nothing_from_the_moment_it_was_deleted(pair: Pair):
    with pair.management() as management:
        may = operator(management)
        webhooks = [management.webhooks.create(may, f"deleted-{number}") for number in range(ROUNDS)]
        triggers = [
            {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [each.webhook.uid for each in some]}}
            for some in (webhooks[::2], webhooks[1::2])
        ]
        management.automations.create(may, "of the deleted", prompt="Look.", triggers=triggers)
        returned = [float("inf")] * ROUNDS
        now = 0

        def aim(chance: random.Random) -> tuple[WebhookWithSecret, str, int]:
            by = max(0, now - (chance.random() < 0.3))
            return webhooks[by], webhooks[by].reveal(), by

        with Racers(pair, aim) as racers:
            for number, made in enumerate(webhooks):
                now = number
                time.sleep(0.01)
                management.webhooks.delete(may, made.webhook.uid)
                returned[number] = time.monotonic()
                assert statuses_everywhere(pair, made, made.reveal()) == {404}

    late = [shot for shot in racers.shots if shot.began > returned[shot.by]]
    assert {shot.answer.status for shot in late} == {404}
    assert {shot.answer.status for shot in racers.shots} == {202, 404}
    taken = {delivery_key(shot.answer.delivery_id) for shot in racers.shots if shot.answer.status == 202}
    numbers = ", ".join(str(made.webhook.no) for made in webhooks)
    log = pair.rows(f"SELECT id FROM deliveries WHERE webhook_no IN ({numbers})")
    runs = pair.rows(f"SELECT delivery_id FROM runs WHERE webhook_no IN ({numbers})")
    assert {bytes(row["id"]) for row in log} == taken
    assert Counter(bytes(row["delivery_id"]) for row in runs) == Counter(taken), "a 202 in flight has its run"


def test_an_automation_starts_nothing_from_the_moment_it_was_disabled(pair: Pair):
    spans: list[tuple[bool, float, float]] = []
    with pair.management() as management:
        may, made = setting(management, "automated")
        token = made.reveal()
        trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}
        automation = management.automations.create(may, "toggled", prompt="Look.", triggers=[trigger])
        with Racers(pair, lambda _: (made, token, 0)) as racers:
            since = time.monotonic()
            for number in range(2 * ROUNDS):
                enabled = number % 2 == 1
                spans.append((not enabled, since, time.monotonic()))
                management.automations.set_enabled(may, automation.id, enabled)
                since = time.monotonic()
                # Else a busy machine may take longer for every shot than a state lasts.
                racers.see_one_through()
            spans.append((True, since, time.monotonic()))

    runs = pair.rows(f"SELECT delivery_id FROM runs WHERE webhook_no = {made.webhook.no}")
    started = Counter(bytes(row["delivery_id"]) for row in runs)
    assert {shot.answer.status for shot in racers.shots} == {202}
    inside = within(racers.shots, spans)
    assert {started[delivery_key(shot.answer.delivery_id)] for shot in inside[True]} == {1}
    assert {started[delivery_key(shot.answer.delivery_id)] for shot in inside[False]} == {0}


def test_run_records_the_version_whose_filter_matched_its_delivery(pair: Pair):
    sides = ("left", "right")
    with pair.management() as management:
        may, edited = setting(management, "edited")

        def triggers(side: str) -> list[object]:
            selected = {"webhook_ids": [edited.webhook.uid], "payload": {"side": [side]}}
            return [{"provider": "webhook", "event": "received", "filter": selected}]

        automation = management.automations.create(may, "edited", prompt="Look.", triggers=triggers(sides[0]))

        def draw(chance: random.Random, number: int) -> Event:
            return Event(edited, b'{"number": %d, "side": "%s"}' % (number, chance.choice(sides).encode()))

        with Fleet(pair.ports, draw, random.Random(8), senders=RACERS, per_second=200) as fleet:
            for number in range(1, ROUNDS + 1):
                taken = fleet.taken
                management.automations.change(may, automation.id, triggers=triggers(sides[number % 2]))
                until(lambda: fleet.taken > taken, "a delivery is accepted")  # noqa: B023
            fleet.settle(30)

    runs = pair.rows(
        "SELECT r.delivery_id, r.automation_version, p.body FROM runs r"
        f" JOIN payloads p ON p.delivery_id = r.delivery_id WHERE r.webhook_no = {edited.webhook.no}"
    )
    assert {(run["automation_version"] % 2, json.loads(bytes(run["body"]))["side"]) for run in runs} == {
        (1, "left"),
        (0, "right"),
    }
    assert len({bytes(run["delivery_id"]) for run in runs}) == len(runs)
    assert fleet.unexpected == []
