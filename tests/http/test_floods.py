"""Floods from strangers and from senders: they are refused, they leave little behind, and the real sender is served."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.management import Management, WebhookWithSecret
from tests.faults.parts import Part, parts_of
from tests.http.conftest import ENOUGH
from tests.http.hostile import Target, honest
from tests.http.wire import Wire, WireAnswer
from tests.support.service import Service, operator, serving
from tests.support.waiting import stalls, until

FLOODERS = 8
MEGABYTE = 1_000_000
WORST_TIMES_READ = 4
"""How many times as much processor time as Python's own parser the ingress and its writer may take for the worst
bodies. They take a little more than it."""


def test_a_flood_of_bad_credentials_is_counted_and_not_logged(tmp_path: Path):
    settings = ENOUGH | {"failed_authentications_per_minute": 60}
    with serving(tmp_path, **settings) as service, service.management() as management:
        may = operator(management)
        webhook = management.webhooks.create(may, "flooded")
        uid = webhook.webhook.uid

        flood = [stranger(uid, number) for number in range(600)]
        with honest_sender(service, webhook) as waits:
            answers = asked_at_once(service, flood)

        assert Counter(answer.status for answer in answers) == {401: 60, 429: 540}
        assert all(1 <= int(a.headers["retry-after"]) <= 60 for a in answers if a.status == 429)
        assert max(waits) < 2.0
        labels = Counter(row.label.wording for row in management.log.newest(may, limit=10_000))
        assert labels["Rejected (auth)"] == 60
        until(lambda: refused(management, "failed_authentications") == 540, "every refusal is counted")


def test_an_unauthenticated_huge_body_delays_nobody(service: Service, webhook: WebhookWithSecret):
    claims = [stranger(webhook.webhook.uid, number, length=b"999999999") for number in range(400)]

    with honest_sender(service, webhook) as waits:
        answers = asked_at_once(service, claims)

    assert {answer.status for answer in answers} == {401}
    assert max(waits) < 2.0


def test_a_flood_of_unknown_webhooks_disturbs_nobody(
    service: Service, management: Management, webhook: WebhookWithSecret
):
    before = len(management.log.newest(operator(management), limit=100_000))

    with memory_grown(service) as grown, honest_sender(service, webhook) as waits:
        answers = asked_at_once(service, [stranger(f"wh_{number:040}", number) for number in range(2_000)])

    assert {answer.status for answer in answers} == {404}
    assert max(waits) < 2.0
    after = len(management.log.newest(operator(management), limit=100_000))
    assert after - before == len(waits)
    assert max(grown) < 32 * MEGABYTE


@pytest.mark.parametrize("framing", ["declared", "in chunks", "by strangers"])
def test_a_flood_of_oversized_bodies_takes_no_memory(
    service: Service, webhook: WebhookWithSecret, target: Target, framing: str
):
    size = 8 * MEGABYTE
    head, _, _ = honest(target, b"too large").replace(b"\r\nContent-Length: 2", b"").partition(b"\r\n\r\n")
    if framing == "by strangers":
        head = head.replace(target.token, b"wrong")
    if framing == "in chunks":
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        offer = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * (size // 65_536)
    else:
        offer = head + b"\r\nContent-Length: %d\r\n\r\n" % size + b" " * size

    with memory_grown(service) as grown, honest_sender(service, webhook) as waits:
        answers = asked_at_once(service, [offer] * 100)

    assert {answer.status for answer in answers} == {401 if framing == "by strangers" else 413}
    assert max(grown) < 32 * MEGABYTE
    assert max(waits) < 2.0


def test_the_worst_bodies_at_once_cost_little_and_keep_nobody_out(
    service: Service, management: Management, webhook: WebhookWithSecret
):
    may = operator(management)
    other = management.webhooks.create(may, "worst")
    selection = {"webhook_ids": [other.webhook.uid], "payload": {"a": {"b": ["c"]}}}
    trigger = {"provider": "webhook", "event": "received", "filter": selection}
    management.automations.create(may, "reads every body", prompt="Look.", triggers=[trigger])
    events = [(body, {"X-Service-Delivery-Id": f"worst {number}"}) for number, body in enumerate(worst_bodies() * 8)]

    to_read = [seconds_to_read([body for body, _ in events])]
    spent = cpu_seconds(service)
    with memory_grown(service) as grown, honest_sender(service, webhook, rest=0.2), ThreadPoolExecutor(64) as senders:
        answers = list(senders.map(lambda event: service.post(other, event[0], headers=event[1]), events))
    spent = cpu_seconds(service) - spent
    to_read.append(seconds_to_read([body for body, _ in events]))
    print(f"{spent:.2f} s for what takes {to_read} s to be read")

    assert len(answers) == 64
    assert {answer.status for answer in answers} == {202, 400}
    # What others wait for is this work. A busy machine makes it last, and little more; a slow one makes both grow.
    assert spent < WORST_TIMES_READ * max(to_read)
    assert max(grown) < 500 * MEGABYTE


@pytest.fixture(scope="module")
def webhook(management: Management) -> WebhookWithSecret:
    """The real sender's."""
    return management.webhooks.create(operator(management), "real")


def stranger(uid: str, number: int, *, length: bytes = b"2") -> bytes:
    """A delivery with a wrong token, and another address in each that a proxy would have put there."""
    return (
        b"POST /webhooks/w/" + uid.encode() + b" HTTP/1.1\r\nHost: hooks.test\r\n"
        b"Authorization: Bearer wrong-%d\r\nX-Forwarded-For: 192.0.2.%d\r\n"
        % (number, number % 256)
        + b"Content-Length: "
        + length
        + b"\r\n\r\n{}"
    )


def asked_at_once(service: Service, requests: list[bytes]) -> list[WireAnswer]:
    """The answers, each on a connection of its own, several at the same time."""
    with ThreadPoolExecutor(FLOODERS) as flooders:
        return list(flooders.map(lambda request: asked(service, request), requests))


def asked(service: Service, request: bytes) -> WireAnswer:
    with Wire(service.port, seconds=30) as wire:
        wire.send(request)
        answer = wire.answer()
    assert answer is not None
    return answer


@contextmanager
def honest_sender(service: Service, webhook: WebhookWithSecret, *, rest: float = 0.01) -> Iterator[list[float]]:
    """Deliveries one after another while the block runs, each a 202. How long each took, in seconds, without those for
    which the whole machine stood still."""
    waits: list[float] = []
    statuses: Counter[int] = Counter()

    def deliver(leave: threading.Event) -> None:
        while not (leave.is_set() and waits):
            started = time.monotonic()
            event = f"real {time.time_ns()}"
            statuses[service.post(webhook, headers={"X-Service-Delivery-Id": event}).status] += 1
            took = time.monotonic() - started
            if took > 1.0:
                # Until whoever watches for it has found that the machine stood still.
                time.sleep(0.2)
            waits.append(took - sum(stood_still))
            stood_still.clear()
            leave.wait(rest)

    with stalls() as stood_still, meanwhile(deliver):
        yield waits
    assert set(statuses) == {202}


@contextmanager
def memory_grown(service: Service) -> Iterator[list[int]]:
    """How many bytes more than at the start the ingress holds, sampled while the block runs."""
    processes = ingress_processes(service)

    def held() -> int:
        return sum(process.memory_info().rss for process in processes)

    before = held()
    grown = [0]

    def look(leave: threading.Event) -> None:
        while not leave.wait(0.05):
            grown.append(held() - before)

    with meanwhile(look):
        yield grown


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """`work` runs beside the block, and is told to leave when the block ends."""
    leave = threading.Event()
    with ThreadPoolExecutor(1) as apart:
        working = apart.submit(work, leave)
        try:
            yield
        finally:
            leave.set()
            working.result()


def seconds_to_read(bodies: list[bytes]) -> float:
    """Processor time that Python's own parser needs for them, in this thread."""
    began = time.thread_time()
    for body in bodies:
        with suppress(ValueError, RecursionError):
            json.loads(body)
    return time.thread_time() - began


def cpu_seconds(service: Service) -> float:
    """What the ingress and its writer have used so far."""
    times = [process.cpu_times() for process in ingress_processes(service)]
    return sum(each.user + each.system for each in times)


def ingress_processes(service: Service) -> list[psutil.Process]:
    """Who takes deliveries, and who writes for them."""
    parts = parts_of(service)
    assert parts[Part.INGRESS] != []
    return [*parts[Part.INGRESS], *parts[Part.WRITER]]


def worst_bodies() -> list[bytes]:
    """As large as a body may be, and each as much work as its kind can make."""
    most = BODY_BYTES_MAX
    deep = b"[" * 510 + b"]" * 510
    return [
        b"[" * (most // 2) + b"]" * (most // 2),
        b"[" + b",".join([deep] * (most // (len(deep) + 1) - 1)) + b"]",
        b"[" + b"0," * (most // 2 - 2) + b"0]",
        b"{" + b",".join(b'"%d":0' % number for number in range(27_000)) + b"}",
        b"{" + b'"":0,' * (most // 5 - 2) + b'"":0}',
        b"7" * most,
        b"[" + b"1e400," * (most // 6 - 1) + b"0]",
        b'"' + rb"\ud83d" * (most // 6 - 1) + b'"',
    ]


def refused(management: Management, kind: str) -> int:
    return sum(row.count for row in management.log.dropped_attempts(operator(management)) if row.kind == kind)
