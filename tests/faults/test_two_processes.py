"""Two ingress processes on one PostgreSQL share rate limits and deduplication, and a change in one of them applies
immediately in the other."""

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
from tests.faults.senders import (
    Event,
    LoadGenerator,
    PersistentConnection,
    delivery_request,
    exchange,
    exchange_simultaneously,
)
from tests.support.automations import automation_changed, automation_created
from tests.support.counts import count, only_in_proof
from tests.support.service import Answer, Service, create_webhook, operator, serving
from tests.support.triggers import received
from tests.support.waiting import until

ROUNDS = count(200, usually=8)
COPIES = 16
ATTEMPTS = 200
LIMIT = 60
CONCURRENT_SENDERS = 6
PAUSE_SECONDS_MAX = 0.03
SHARED_KEY = "A" * 43 + "="


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ingress processes and their database: two services, or one service with two ingress processes."""

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
    with ExitStack() as stack:
        running = [
            stack.enter_context(
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
        yield Pair(running, url)


@pytest.fixture(scope="module")
def pair(postgres_server, tmp_path_factory):
    """Two services with a rate limit that no test reaches."""
    url = postgres_server.create_database()
    directory = tmp_path_factory.mktemp("pair")
    yield from paired(directory, url, services=2, deliveries_per_minute=100_000)
    postgres_server.drop_database(url)


@pytest.fixture(params=["two services", only_in_proof("one service of two processes")])
def rate_limited_pair(request, postgres_url, tmp_path):
    if request.param == "two services":
        yield from paired(tmp_path, postgres_url, services=2, deliveries_per_minute=LIMIT)
    else:
        yield from paired(tmp_path, postgres_url, services=1, processes=2, deliveries_per_minute=LIMIT)


def test_60_of_200_attempts_in_ten_seconds_are_accepted(rate_limited_pair):
    with rate_limited_pair.management() as management:
        may = operator(management)
        webhooks = [management.webhooks.create(may, {"name": f"busy-{number}"}) for number in range(5)]
    statuses = {webhook.webhook.uid: Counter[int]() for webhook in webhooks}
    retry_after: list[int] = []
    lock = threading.Lock()

    def send(webhook, share):
        with ExitStack() as stack:
            connections = [stack.enter_context(PersistentConnection(port)) for port in rate_limited_pair.ports]
            for number in range(share, ATTEMPTS, 4):
                time.sleep(max(0.0, began + 10 * number / ATTEMPTS - time.monotonic()))
                connection = connections[number // 4 % len(connections)]
                answer = connection.exchange(delivery_request(webhook, b'{"number": %d}' % number))
                assert answer is not None
                with lock:
                    statuses[webhook.webhook.uid][answer.status] += 1
                    if answer.status == 429:
                        retry_after.append(int(answer.headers["retry-after"]))

    began = time.monotonic()
    senders = [threading.Thread(target=send, args=(webhook, share)) for webhook in webhooks for share in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()

    assert list(statuses.values()) == [{202: LIMIT, 429: ATTEMPTS - LIMIT}] * len(webhooks)
    assert all(1 <= seconds <= 60 for seconds in retry_after)
    counts = rate_limited_pair.rows("SELECT COUNT(*) AS rows FROM deliveries GROUP BY webhook_no")
    assert [row["rows"] for row in counts] == [LIMIT] * len(webhooks)


@pytest.mark.parametrize("identified_by", ["id", "body"])
def test_one_of_16_simultaneous_copies_is_accepted(pair, identified_by):
    with pair.management() as management:
        webhook = create_webhook(management, f"copies identified by {identified_by}")
    rounds = ROUNDS // 2
    with ExitStack() as stack:
        connections = [stack.enter_context(PersistentConnection(pair.ports[n % 2])) for n in range(COPIES)]
        for number in range(rounds):
            if identified_by == "id":
                headers = {"X-Service-Delivery-Id": f"event-{number}"}
                # The bodies differ, so only the id identifies the event.
                copies = [delivery_request(webhook, b'{"copy": %d}' % copy, headers=headers) for copy in range(COPIES)]
            else:
                copies = [delivery_request(webhook, b'{"number": %d}' % number)] * COPIES
            answers = exchange_simultaneously(connections, copies)

            assert [answer.status if answer is not None else None for answer in answers] == [202] * COPIES
            ids = {answer.delivery_id for answer in answers if answer is not None}
            assert len(ids) == COPIES

    log = pair.rows(f"SELECT * FROM deliveries WHERE webhook_no = {webhook.webhook.no}")
    accepted = {bytes(row["identity_digest"]): bytes(row["id"]) for row in log if row["label"] == 1}
    duplicates = [row for row in log if row["label"] == 2]
    assert len([row for row in log if row["label"] == 1]) == len(accepted) == rounds
    assert len(duplicates) == rounds * (COPIES - 1)
    assert all(bytes(row["duplicate_of"]) == accepted[bytes(row["identity_digest"])] for row in duplicates)


@dataclass(frozen=True, slots=True)
class Target:
    """The webhook and the secret of an attempt."""

    webhook: WebhookWithSecret
    token: str
    number: int = 0
    """The number of the secret or of the webhook, if a test has several."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a sender: when it began and ended, in monotonic seconds, its target, and its answer."""

    began: float
    ended: float
    target: Target
    answer: Answer


class ConcurrentSenders:
    """Senders that deliver to every process during the changes of a test, with short pauses, while the block runs."""

    def __init__(self, pair: Pair, choose_target: Callable[[random.Random], Target]):
        self._pair = pair
        self._choose_target = choose_target
        self._is_over = threading.Event()
        self.attempts: list[Attempt] = []
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(CONCURRENT_SENDERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object):
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def wait_for_attempt(self):
        """Wait until an attempt that begins after this call has ended."""
        called_at = time.monotonic()
        until(
            lambda: any(attempt.began > called_at for attempt in self.attempts[-2 * CONCURRENT_SENDERS :]),
            "an attempt has ended",
        )

    def _send(self, number: int):
        chance = random.Random(number)
        with PersistentConnection(self._pair.ports[number % 2]) as connection:
            while not self._is_over.is_set():
                target = self._choose_target(chance)
                body = b"[%d, %d]" % (number, time.monotonic_ns())
                request = delivery_request(target.webhook, body, token=target.token)
                began = time.monotonic()
                answer = connection.exchange(request)
                assert answer is not None
                self.attempts.append(Attempt(began, time.monotonic(), target, answer))
                # Without pauses, the changes of the test would wait long for the processor.
                time.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))


def statuses_in_all_processes(pair: Pair, webhook: WebhookWithSecret, token: str) -> set[int]:
    """What each process answers now."""
    answers = [
        exchange(port, delivery_request(webhook, b"%d" % time.monotonic_ns(), token=token)) for port in pair.ports
    ]
    return {answer.status for answer in answers if answer is not None}


def new_webhook(management: Management, name: str) -> tuple[MayManage, WebhookWithSecret]:
    may = operator(management)
    return may, management.webhooks.create(may, {"name": name})


def test_rotated_secret_is_rejected_immediately_in_all_processes(pair):
    with pair.management() as management:
        may, webhook = new_webhook(management, "rotated")
        tokens = [webhook.reveal()]
        called_at: list[float] = [0.0]
        returned_at: list[float] = [0.0]

        def choose_target(chance):
            newest = len(tokens) - 1
            number = max(0, newest - (chance.random() < 0.3))
            return Target(webhook, tokens[number], number)

        with ConcurrentSenders(pair, choose_target) as senders:
            for _ in range(ROUNDS):
                called_at.append(time.monotonic())
                rotated = management.webhooks.rotate(may, webhook.webhook.uid)
                returned_at.append(time.monotonic())
                assert statuses_in_all_processes(pair, webhook, tokens[-1]) == {401}
                tokens.append(rotated.reveal())
                assert statuses_in_all_processes(pair, webhook, tokens[-1]) == {202}

    never = float("inf")
    with_old_secret = [
        attempt for attempt in senders.attempts if attempt.began > [*returned_at, never][attempt.target.number + 1]
    ]
    with_current_secret = [
        attempt
        for attempt in senders.attempts
        if attempt.began > returned_at[attempt.target.number]
        and attempt.ended < [*called_at, never][attempt.target.number + 1]
    ]
    assert {attempt.answer.status for attempt in with_old_secret} == {401}
    assert {attempt.answer.status for attempt in with_current_secret} == {202}
    assert {attempt.answer.status for attempt in senders.attempts} == {202, 401}
    print(
        f"{len(senders.attempts)} attempts, {len(with_old_secret)} with the old secret, "
        f"{len(with_current_secret)} with the current one"
    )


def test_disabled_webhook_accepts_no_delivery_in_any_process(pair):
    spans: list[tuple[bool, float, float]] = []
    with pair.management() as management:
        may, webhook = new_webhook(management, "toggled")
        token = webhook.reveal()
        with ConcurrentSenders(pair, lambda _: Target(webhook, token)) as senders:
            began = time.monotonic()
            for number in range(2 * ROUNDS):
                is_enabled = number % 2 == 1
                spans.append((not is_enabled, began, time.monotonic()))
                management.webhooks.set_enabled(may, webhook.webhook.uid, is_enabled)
                began = time.monotonic()
                assert statuses_in_all_processes(pair, webhook, token) == ({202} if is_enabled else {404})
                time.sleep(0.005)
            spans.append((True, began, time.monotonic()))

    by_state = attempts_by_state(senders.attempts, spans)
    assert {attempt.answer.status for attempt in by_state[True]} == {202}
    assert {attempt.answer.status for attempt in by_state[False]} == {404}
    accepted = sum(attempt.answer.status == 202 for attempt in senders.attempts) + 2 * ROUNDS
    (row,) = pair.rows(f"SELECT COUNT(*) AS rows FROM deliveries WHERE webhook_no = {webhook.webhook.no}")
    assert row["rows"] == accepted


def attempts_by_state(
    attempts: Sequence[Attempt], spans: Sequence[tuple[bool, float, float]]
) -> dict[bool, list[Attempt]]:
    """The attempts that began and ended within one span, by whether the object was enabled. `spans` has this state, the
    beginning and the end of each span, in monotonic seconds."""
    by_state: dict[bool, list[Attempt]] = {True: [], False: []}
    ordered = sorted(attempts, key=lambda attempt: attempt.began)
    position = 0
    for is_enabled, began, ended in spans:
        while position < len(ordered) and ordered[position].began <= began:
            position += 1
        while position < len(ordered) and ordered[position].began < ended:
            if ordered[position].ended < ended:
                by_state[is_enabled].append(ordered[position])
            position += 1
    assert all(by_state.values()), "there were attempts in both states"
    return by_state


def test_deleted_webhook_accepts_no_delivery_in_any_process(pair):
    with pair.management() as management:
        may = operator(management)
        webhooks = [management.webhooks.create(may, {"name": f"deleted-{number}"}) for number in range(ROUNDS)]
        # A trigger selects at most 100 webhooks, and `make proof` needs 200.
        triggers = [received(*(each.webhook.uid for each in some)) for some in (webhooks[::2], webhooks[1::2])]
        automation_created(management, may, "of deleted webhooks", triggers=triggers)
        returned_at = [float("inf")] * ROUNDS
        newest = 0

        def choose_target(chance):
            number = max(0, newest - (chance.random() < 0.3))
            return Target(webhooks[number], webhooks[number].reveal(), number)

        with ConcurrentSenders(pair, choose_target) as senders:
            for number, webhook in enumerate(webhooks):
                newest = number
                time.sleep(0.01)
                management.webhooks.delete(may, webhook.webhook.uid)
                returned_at[number] = time.monotonic()
                assert statuses_in_all_processes(pair, webhook, webhook.reveal()) == {404}

    after_deletion = [attempt for attempt in senders.attempts if attempt.began > returned_at[attempt.target.number]]
    assert {attempt.answer.status for attempt in after_deletion} == {404}
    assert {attempt.answer.status for attempt in senders.attempts} == {202, 404}
    accepted = {
        delivery_key(attempt.answer.delivery_id) for attempt in senders.attempts if attempt.answer.status == 202
    }
    numbers = ", ".join(str(webhook.webhook.no) for webhook in webhooks)
    log = pair.rows(f"SELECT id FROM deliveries WHERE webhook_no IN ({numbers})")
    runs = pair.rows(f"SELECT delivery_id FROM runs WHERE webhook_no IN ({numbers})")
    assert {bytes(row["id"]) for row in log} == accepted
    assert Counter(bytes(row["delivery_id"]) for row in runs) == Counter(accepted), "each 202 has its run"


def test_disabled_automation_starts_no_run_in_any_process(pair):
    spans: list[tuple[bool, float, float]] = []
    with pair.management() as management:
        may, webhook = new_webhook(management, "automated")
        token = webhook.reveal()
        trigger = received(webhook.webhook.uid)
        automation = automation_created(management, may, "toggled", triggers=[trigger])
        with ConcurrentSenders(pair, lambda _: Target(webhook, token)) as senders:
            began = time.monotonic()
            for number in range(2 * ROUNDS):
                is_enabled = number % 2 == 1
                spans.append((not is_enabled, began, time.monotonic()))
                management.automations.set_enabled(may, automation.id, is_enabled)
                began = time.monotonic()
                # On a busy machine, each attempt could last longer than a span.
                senders.wait_for_attempt()
            spans.append((True, began, time.monotonic()))

    runs = pair.rows(f"SELECT delivery_id FROM runs WHERE webhook_no = {webhook.webhook.no}")
    run_counts = Counter(bytes(row["delivery_id"]) for row in runs)
    assert {attempt.answer.status for attempt in senders.attempts} == {202}
    by_state = attempts_by_state(senders.attempts, spans)
    assert {run_counts[delivery_key(attempt.answer.delivery_id)] for attempt in by_state[True]} == {1}
    assert {run_counts[delivery_key(attempt.answer.delivery_id)] for attempt in by_state[False]} == {0}


def test_run_records_the_version_whose_filter_matched_its_delivery(pair):
    sides = ("left", "right")
    with pair.management() as management:
        may, webhook = new_webhook(management, "edited")

        def triggers(side):
            filter_ = {"webhook_ids": [webhook.webhook.uid], "payload": {"side": [side]}}
            return [{"provider": "webhook", "event": "received", "filter": filter_}]

        automation = automation_created(management, may, "edited", triggers=triggers(sides[0]))

        def new_event(chance, number):
            return Event(webhook, b'{"number": %d, "side": "%s"}' % (number, chance.choice(sides).encode()))

        with LoadGenerator(pair.ports, new_event, random.Random(8), senders=CONCURRENT_SENDERS, per_second=200) as load:
            for number in range(1, ROUNDS + 1):
                changed = automation_changed(management, may, automation.id, triggers=triggers(sides[number % 2]))
                runs_of_version = (
                    f"SELECT 1 FROM runs WHERE webhook_no = {webhook.webhook.no}"
                    f" AND automation_version = {changed.version} LIMIT 1"
                )
                until(lambda: pair.rows(runs_of_version), "a delivery matches the new filter")  # noqa: B023
            load.drain(30)

    runs = pair.rows(
        "SELECT r.delivery_id, r.automation_version, p.body FROM runs r"
        f" JOIN payloads p ON p.delivery_id = r.delivery_id WHERE r.webhook_no = {webhook.webhook.no}"
    )
    assert {(run["automation_version"] % 2, json.loads(bytes(run["body"]))["side"]) for run in runs} == {
        (1, "left"),
        (0, "right"),
    }
    assert len({bytes(run["delivery_id"]) for run in runs}) == len(runs)
    assert load.unexpected_answers == []
