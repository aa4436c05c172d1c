"""Two services on one PostgreSQL, as two machines would be: what is true of one webhook is true at both of its
doors."""

import base64
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hookmill.management import Management, WebhookWithSecret
from hookmill.store.factories import Factory
from tests.faults.senders import Line, ask, request
from tests.support.postgres import Postgres
from tests.support.service import Answer, Service, default_factory, serving

ROUNDS = 200
COPIES = 16
SENDERS = 6


class Pair:
    """Two running services, and the operations on their store."""

    def __init__(self, services: list[Service], management: Management) -> None:
        self.services = services
        self.management = management
        self.factory: Factory = default_factory(management)
        self._names = 0

    @property
    def ports(self) -> list[int]:
        return [service.port for service in self.services]

    def webhook(self) -> WebhookWithSecret:
        self._names += 1
        return self.management.create_webhook(self.factory, f"source-{self._names}")


@pytest.fixture(scope="module")
def pair(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("pair")
    url = postgres_server.create_database()
    settings = {
        "master_key": base64.b64encode(os.urandom(32)).decode(),
        "webhooks_per_factory": 10_000,
        "failed_authentications_per_minute": 100_000,
    }
    with ExitStack() as stack:
        first = stack.enter_context(serving(directory / "one", database_url=url, port=0, **settings))
        second = stack.enter_context(serving(directory / "two", database_url=url, port=0, **settings))
        yield Pair([first, second], stack.enter_context(first.management()))
    postgres_server.drop_database(url)


def test_of_200_attempts_in_10_seconds_at_two_doors_exactly_60_are_accepted(pair: Pair):
    webhook = pair.webhook()
    answers: list[Answer | None] = []
    began = time.monotonic()

    def send(number: int) -> None:
        time.sleep(max(0.0, began + number * 0.05 - time.monotonic()))
        answers.append(ask(pair.ports[number % 2], request(webhook, b'{"number": %d}' % number)))

    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(send, range(200)))

    statuses = Counter(answer.status if answer else None for answer in answers)
    assert statuses == {202: 60, 429: 140}
    assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in answers if answer and answer.status == 429)


def test_of_16_copies_at_the_same_instant_one_is_accepted_and_the_rest_are_duplicates_of_it(pair: Pair):
    # Three rounds fill a webhook's minute with 48 copies.
    webhooks = [pair.webhook() for _ in range(-(-ROUNDS // 3))]
    ready = threading.Barrier(COPIES)
    lines = [Line(pair.ports[number % 2]) for number in range(COPIES)]
    answers: list[list[Answer | None]] = [[] for _ in range(ROUNDS)]

    def copy(number: int) -> None:
        for round_ in range(ROUNDS):
            sent = request(webhooks[round_ // 3], b'{"round": %d}' % round_)
            ready.wait(60)
            answers[round_].append(lines[number].ask(sent))

    with ThreadPoolExecutor(COPIES) as senders:
        list(senders.map(copy, range(COPIES)))
    for line in lines:
        line.close()

    assert {answer.status if answer else None for answered in answers for answer in answered} == {202}
    for round_, answered in enumerate(answers):
        ids = {answer.delivery_id for answer in answered if answer}
        rows = [pair.management.delivery(pair.factory, shown) for shown in ids]
        labels = Counter(row.label.shown for row in rows)
        assert labels == {"Accepted": 1, "Duplicate": COPIES - 1}, round_
        accepted = next(row for row in rows if row.label.shown == "Accepted")
        assert {row.duplicate_of for row in rows if row is not accepted} == {accepted.key}


class Racing:
    """Senders that don't stop: they know a webhook's secret, and note when each delivery was sent and what came of
    it."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._target: WebhookWithSecret | None = None
        self._stop = threading.Event()
        self.sent: list[tuple[str, str, float, int | None]] = []
        """uid, secret, when it was sent, and the status of the answer."""
        self._threads = [threading.Thread(target=self._send, args=(number,), daemon=True) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def aim_at(self, target: WebhookWithSecret) -> None:
        self._target = target

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _send(self, number: int) -> None:
        count = 0
        with Line(self._ports[number % len(self._ports)]) as line:
            while not self._stop.is_set():
                target = self._target
                if target is None:
                    time.sleep(0.001)
                    continue
                count += 1
                body = b'{"sender": %d, "count": %d}' % (number, count)
                at = time.monotonic()
                answer = line.ask(request(target, body))
                self.sent.append((target.webhook.uid, target.secret.reveal(), at, answer.status if answer else None))
                time.sleep(0.002)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ("rotate", {401, 429}),
        ("disable", {404}),
        ("delete", {404}),
    ],
)
@pytest.mark.timeout(300)
def test_nothing_succeeds_under_the_old_state_once_the_call_has_returned(pair: Pair, change: str, refused: set[int]):
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    made = [pair.webhook() for _ in range(ROUNDS)]
    returned_at: dict[str, float] = {}
    racing = Racing(pair.ports)
    try:
        for webhook in made:
            racing.aim_at(webhook)
            time.sleep(chance.uniform(0.01, 0.03))
            uid = webhook.webhook.uid
            if change == "rotate":
                pair.management.rotate_webhook(pair.factory, uid)
            elif change == "disable":
                pair.management.set_webhook_enabled(pair.factory, uid, False)
            else:
                pair.management.delete_webhook(pair.factory, uid)
            returned_at[uid] = time.monotonic()
            time.sleep(0.02)
    finally:
        racing.stop()

    after = Counter(status for uid, _, at, status in racing.sent if at > returned_at[uid])
    before = Counter(status for uid, _, at, status in racing.sent if at <= returned_at[uid])
    print(f"{change}: {ROUNDS} rounds, before {dict(before)}, after {dict(after)}")
    assert before[202] > ROUNDS
    assert sum(after.values()) > ROUNDS
    assert set(after) <= refused
