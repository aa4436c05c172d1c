"""Floods of requests, most of them unauthenticated. They are refused, use little memory, and delay no other sender."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psutil
import pytest

from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.management import Management, WebhookWithSecret
from tests.faults.parts import Part, parts_of
from tests.http.conftest import UNLIMITED
from tests.http.hostile_requests import valid_delivery
from tests.http.raw_http import RawAnswer, RawConnection
from tests.support.automations import automation_created
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.waiting import stalls, until

FLOODING_THREADS = 8
MEGABYTE = 1_000_000
PARSE_TIMES_MAX = 4
"""The processor time that the ingress and its writer may use for the worst bodies, as a multiple of what Python's own
parser needs. They use a little more than the parser."""


def test_bad_credentials_above_the_rate_limit_are_counted_but_not_logged(tmp_path):
    settings = UNLIMITED | {"failed_authentications_per_minute": 60}
    with serving(tmp_path, **settings) as service, service.management() as management:
        may = operator(management)
        webhook = management.webhooks.create(may, {"name": "flooded"})
        uid = webhook.webhook.uid

        flood = [unauthenticated_request(uid, number) for number in range(600)]
        with valid_sender(service, webhook) as answer_seconds:
            answers = send_all(service, flood)

        assert Counter(answer.status for answer in answers) == {401: 60, 429: 540}
        assert all(1 <= int(a.headers["retry-after"]) <= 60 for a in answers if a.status == 429)
        assert max(answer_seconds) < 2.0
        labels = Counter(row.label.wording for row in management.log.newest(may, limit=10_000))
        assert labels["Rejected (auth)"] == 60
        until(
            lambda: dropped_attempts(management, "failed_authentications") == 540,
            "every dropped attempt is counted",
        )


def test_unauthenticated_requests_with_huge_bodies_delay_no_delivery(service, webhook):
    flood = [unauthenticated_request(webhook.webhook.uid, number, length=b"999999999") for number in range(400)]

    with valid_sender(service, webhook) as answer_seconds:
        answers = send_all(service, flood)

    assert {answer.status for answer in answers} == {401}
    assert max(answer_seconds) < 2.0


def test_requests_to_unknown_webhooks_delay_no_delivery_and_are_not_logged(service, management, webhook):
    rows_before = len(management.log.newest(operator(management), limit=100_000))

    with memory_growth(service) as growth, valid_sender(service, webhook) as answer_seconds:
        answers = send_all(service, [unauthenticated_request(f"wh_{number:040}", number) for number in range(2_000)])

    assert {answer.status for answer in answers} == {404}
    assert max(answer_seconds) < 2.0
    rows_after = len(management.log.newest(operator(management), limit=100_000))
    assert rows_after - rows_before == len(answer_seconds)
    assert max(growth) < 32 * MEGABYTE


@pytest.mark.parametrize("kind", ["declared", "chunked", "unauthenticated"])
def test_oversized_bodies_use_little_memory(service, webhook, target, kind):
    size = 8 * MEGABYTE
    head, _, _ = valid_delivery(target, b"too large").replace(b"\r\nContent-Length: 2", b"").partition(b"\r\n\r\n")
    if kind == "unauthenticated":
        head = head.replace(target.token, b"wrong")
    if kind == "chunked":
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        request = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * (size // 65_536)
    else:
        request = head + b"\r\nContent-Length: %d\r\n\r\n" % size + b" " * size

    with memory_growth(service) as growth, valid_sender(service, webhook) as answer_seconds:
        answers = send_all(service, [request] * 100)

    assert {answer.status for answer in answers} == {401 if kind == "unauthenticated" else 413}
    assert max(growth) < 32 * MEGABYTE
    assert max(answer_seconds) < 2.0


def test_worst_bodies_use_bounded_time_and_memory(service, management, webhook):
    may = operator(management)
    other = management.webhooks.create(may, {"name": "worst"})
    filter_ = {"webhook_ids": [other.webhook.uid], "payload": {"a": {"b": ["c"]}}}
    trigger = {"provider": "webhook", "event": "received", "filter": filter_}
    automation_created(management, may, "reads every body", triggers=[trigger])
    events = [(body, {"X-Service-Delivery-Id": f"worst {number}"}) for number, body in enumerate(worst_bodies() * 8)]

    parse_seconds = [seconds_to_parse([body for body, _ in events])]
    seconds_before = cpu_seconds(service)
    with (
        memory_growth(service) as growth,
        valid_sender(service, webhook, pause_seconds=0.2),
        ThreadPoolExecutor(64) as senders,
    ):
        answers = list(senders.map(lambda event: service.post(other, event[0], headers=event[1]), events))
    seconds_used = cpu_seconds(service) - seconds_before
    parse_seconds.append(seconds_to_parse([body for body, _ in events]))
    print(f"{seconds_used:.2f} s for bodies that Python parses in {parse_seconds} s")

    assert len(answers) == 64
    assert {answer.status for answer in answers} == {202, 400}
    # Other deliveries wait for this work. Processor time hardly depends on how busy the machine is. On a slow machine,
    # both times are longer.
    assert seconds_used < PARSE_TIMES_MAX * max(parse_seconds)
    assert max(growth) < 500 * MEGABYTE


@pytest.fixture(scope="module")
def webhook(management):
    """The webhook of the sender that must not be delayed."""
    return create_webhook(management, "valid")


def unauthenticated_request(uid: str, number: int, *, length: bytes = b"2") -> bytes:
    """A delivery with a wrong token. Each has another X-Forwarded-For, like clients behind a proxy."""
    return (
        b"POST /webhooks/w/" + uid.encode() + b" HTTP/1.1\r\nHost: hooks.test\r\n"
        b"Authorization: Bearer wrong-%d\r\nX-Forwarded-For: 192.0.2.%d\r\n"
        % (number, number % 256)
        + b"Content-Length: "
        + length
        + b"\r\n\r\n{}"
    )


def send_all(service: Service, requests: list[bytes]) -> list[RawAnswer]:
    """Send the requests from several threads, each on a connection of its own, and return the answers."""
    with ThreadPoolExecutor(FLOODING_THREADS) as threads:
        return list(threads.map(lambda request: send(service, request), requests))


def send(service: Service, request: bytes) -> RawAnswer:
    with RawConnection(service.port, seconds=30) as connection:
        connection.send(request)
        answer = connection.read_answer()
    assert answer is not None
    return answer


@contextmanager
def valid_sender(service: Service, webhook: WebhookWithSecret, *, pause_seconds: float = 0.01) -> Iterator[list[float]]:
    """Send one delivery after another while the block runs, and require a 202 for each.

    Yields a list, to which the seconds until each answer are added, without stalls of the machine.
    """
    answer_seconds: list[float] = []
    statuses: Counter[int] = Counter()

    def deliver(is_over: threading.Event):
        while not (is_over.is_set() and answer_seconds):
            began = time.monotonic()
            event = f"valid {time.time_ns()}"
            statuses[service.post(webhook, headers={"X-Service-Delivery-Id": event}).status] += 1
            seconds = time.monotonic() - began
            if seconds > 1.0:
                # `stalls` adds a stall shortly after it has ended.
                time.sleep(0.2)
            answer_seconds.append(seconds - sum(stall_seconds))
            stall_seconds.clear()
            is_over.wait(pause_seconds)

    with stalls() as stall_seconds, in_background(deliver):
        yield answer_seconds
    assert set(statuses) == {202}


@contextmanager
def memory_growth(service: Service) -> Iterator[list[int]]:
    """Yields a list, to which samples are added while the block runs: how much the memory of the ingress and its writer
    has grown, in bytes."""
    processes = ingress_processes(service)

    def memory_bytes() -> int:
        return sum(process.memory_info().rss for process in processes)

    before = memory_bytes()
    growth = [0]

    def sample(is_over: threading.Event):
        while not is_over.wait(0.05):
            growth.append(memory_bytes() - before)

    with in_background(sample):
        yield growth


@contextmanager
def in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` in another thread. Its event is set when the block ends."""
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, is_over)
        try:
            yield
        finally:
            is_over.set()
            future.result()


def seconds_to_parse(bodies: list[bytes]) -> float:
    """The processor time that Python's own parser needs for the bodies."""
    began = time.thread_time()
    for body in bodies:
        with suppress(ValueError, RecursionError):
            json.loads(body)
    return time.thread_time() - began


def cpu_seconds(service: Service) -> float:
    """The processor time that the ingress and its writer have used so far."""
    times = [process.cpu_times() for process in ingress_processes(service)]
    return sum(each.user + each.system for each in times)


def ingress_processes(service: Service) -> list[psutil.Process]:
    """The ingress and its writer."""
    parts = parts_of(service)
    assert parts[Part.INGRESS] != []
    return [*parts[Part.INGRESS], *parts[Part.WRITER]]


def worst_bodies() -> list[bytes]:
    """Bodies of the maximum size. Each of them takes the parser as long as a body of its kind can."""
    size = BODY_BYTES_MAX
    deep = b"[" * 510 + b"]" * 510
    return [
        b"[" * (size // 2) + b"]" * (size // 2),
        b"[" + b",".join([deep] * (size // (len(deep) + 1) - 1)) + b"]",
        b"[" + b"0," * (size // 2 - 2) + b"0]",
        b"{" + b",".join(b'"%d":0' % number for number in range(27_000)) + b"}",
        b"{" + b'"":0,' * (size // 5 - 2) + b'"":0}',
        b"7" * size,
        b"[" + b"1e400," * (size // 6 - 1) + b"0]",
        b'"' + rb"\ud83d" * (size // 6 - 1) + b'"',
    ]


def dropped_attempts(management: Management, kind: str) -> int:
    return sum(row.count for row in management.log.dropped_attempts(operator(management)) if row.kind == kind)
