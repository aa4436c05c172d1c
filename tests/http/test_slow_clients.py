"""Clients that send or read too slowly are disconnected in bounded time, and delay no delivery."""

import resource
import select
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hookmill.app import connections, serve
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.permission import Role
from hookmill.management import Management
from hookmill.web import delivery_body
from tests.faults.parts import Part, parts_of
from tests.http.conftest import new_target
from tests.http.hostile_requests import Target, valid_delivery
from tests.http.raw_http import RawConnection
from tests.http.short_deadlines import BODY_SECONDS, HEADER_SECONDS, serving_with_short_deadlines
from tests.support.service import Service, create_webhook
from tests.support.waiting import LONG_SECONDS, stalls

EXTRA_SECONDS: Final = 8.0
"""The time after a deadline that a busy machine may need. The tests show that clients are disconnected, not when."""

CLIENTS_PER_KIND: Final = 20
SEND_INTERVAL_SECONDS: Final = 0.2
IDLE_CONNECTIONS: Final = 3_000
RESERVED_FILES: Final = 300
"""The files that this process must be able to open beside the idle connections."""
CONNECTION_BYTES_MAX: Final = 32 * 1024
"""The memory of a connection with a part of a small request."""
OTHER_BYTES_MAX: Final = 16 * 1024 * 1024
"""The memory that the ingress may use for other things meanwhile."""
HEALTH_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: hooks.test\r\n\r\n"


@dataclass(slots=True)
class SlowClient:
    """A client that first sends `first`, and then `next_bytes` again and again."""

    kind: str
    first: bytes
    next_bytes: bytes = b""
    reads: bool = True
    received: bytes = b""
    connection: socket.socket = field(init=False)


def test_200_slow_clients_are_disconnected_while_others_are_served(tmp_path):
    with serving_with_short_deadlines(tmp_path) as service, service.management() as management:
        target = new_target(management)
        seconds_to_202(service, target)  # The first delivery waits for the start of the writer.
        clients = [client for _ in range(CLIENTS_PER_KIND) for client in slow_clients(target)]
        assert len(clients) >= 200

        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(run_slow_clients, service.port, clients)
            answer_seconds = []
            while not slow.done():
                answer_seconds.append(seconds_to_202(service, target))
                time.sleep(0.05)

        assert slow.result() == []
        assert max(answer_seconds) < 2.0
        assert statuses_by_kind(clients) == {
            "sends nothing": {b""},
            "sends half a request line": {b""},
            "never ends the request line": {b""},
            "never ends the header lines": {b""},
            "sends no body": {b"408"},
            "never ends the body": {b"408"},
            "never ends the chunks": {b"408"},
            "never ends the size of a chunk": {b"408"},
            "never ends an unauthenticated body": {b"401"},
            "sends nothing after a delivery": {b"202"},
            "reads no answer": {b""},
        }
        assert seconds_to_202(service, target) < 2.0
        assert "Traceback" not in service.log()


def test_client_deadlines_are_at_most_a_minute():
    assert serve.HEADER_MILLISECONDS <= 60_000
    assert delivery_body.BODY_SECONDS <= 60
    assert connections.WRITE_SECONDS <= 60


def test_unauthenticated_client_that_never_reads_is_disconnected(service, target):
    wrong_token = valid_delivery(target, b"never").replace(target.token, b"wrong")
    unknown_webhook, wrong_method = wrong_token.replace(target.uid, b"wh_0"), wrong_token.replace(b"POST", b"PUT")

    for request in (wrong_token, unknown_webhook, wrong_method, HEALTH_REQUEST):
        assert is_disconnected(service.port, request, seconds=EXTRA_SECONDS)


def test_senders_that_read_no_answers_delay_no_delivery(service, target):
    delivery = valid_delivery(target, b"never read")
    with ThreadPoolExecutor(10) as pool:
        senders = [pool.submit(is_disconnected, service.port, delivery, seconds=2.0) for _ in range(10)]
        answer_seconds = [seconds_to_202(service, target) for _ in range(20)]

    assert max(answer_seconds) < 2.0
    for sender in senders:
        sender.result()


def test_only_the_client_that_reads_nothing_is_disconnected(tmp_path):
    with serving_with_short_deadlines(tmp_path) as service, service.management() as management:
        requests = request_for_large_answer(service, management) * 50

        with (
            slow_reader(service.port, requests) as reads_nothing,
            slow_reader(service.port, requests) as reads_slowly,
        ):
            assert has_ended(reads_nothing, meanwhile=reads_slowly)
            assert reads_slowly.recv(65_536) != b""


def request_for_large_answer(service: Service, management: Management) -> bytes:
    """An API request with a new key, whose answer has a quarter of a megabyte."""
    webhook = create_webhook(management, f"large {time.time_ns()}")
    delivery = service.post(webhook, b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"').delivery_id
    key = management.keys.create(management.access.operator_of_team(), "slow", Role.VIEWER, factory="default")
    path = f"/api/v1/factories/default/deliveries/{delivery}/payload"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key.token.reveal()}\r\n\r\n".encode()


@contextmanager
def slow_reader(port: int, requests: bytes) -> Iterator[socket.socket]:
    """A connection on which the requests were sent, with a small buffer for the answers."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(requests)
        connection.settimeout(LONG_SECONDS)
        yield connection


def has_ended(reads_nothing: socket.socket, *, meanwhile: socket.socket) -> bool:
    """Whether the service ends the first connection within a minute, while the other one is read slowly."""
    poll = select.poll()
    poll.register(reads_nothing, select.POLLRDHUP)
    deadline = time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        meanwhile.recv(16_384)
        if poll.poll(100):
            return True
    return False


def test_thousands_of_idle_connections_delay_no_delivery(service, target):
    ingress = parts_of(service)[Part.INGRESS][0]
    memory_before = ingress.memory_info().rss
    with idle_connections(service.port) as connections:
        assert len(connections) >= 500
        for number, connection in enumerate(connections):
            connection.sendall(HEALTH_REQUEST[: number % len(HEALTH_REQUEST)])

        answer_seconds = [seconds_to_202(service, target) for _ in range(10)]
        memory_growth = ingress.memory_info().rss - memory_before

    assert max(answer_seconds) < 2.0
    assert memory_growth < len(connections) * CONNECTION_BYTES_MAX + OTHER_BYTES_MAX


def slow_clients(target: Target) -> list[SlowClient]:
    """One client of each kind. All of them have the right credentials, except the unauthenticated one."""
    head, _, _ = valid_delivery(target, b"slow").partition(b"\r\n\r\n")
    line, _, _ = head.partition(b"\r\n")
    unframed = head.replace(b"\r\nContent-Length: 2", b"")
    endless = unframed + b"\r\nContent-Length: 1000\r\n\r\n"
    chunked = unframed + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    unauthenticated = endless.replace(target.token, b"wrong")
    return [
        SlowClient("sends nothing", b""),
        SlowClient("sends half a request line", line[:20]),
        SlowClient("never ends the request line", line[:20], next_bytes=b"a"),
        SlowClient("never ends the header lines", line + b"\r\n", next_bytes=b"X-A: b\r\n"),
        SlowClient("sends no body", endless),
        SlowClient("never ends the body", endless, next_bytes=b" "),
        SlowClient("never ends the chunks", chunked, next_bytes=b"1\r\n \r\n"),
        SlowClient("never ends the size of a chunk", chunked, next_bytes=b"0"),
        SlowClient("never ends an unauthenticated body", unauthenticated, next_bytes=b" "),
        SlowClient("sends nothing after a delivery", valid_delivery(target, b"slow")),
        SlowClient("reads no answer", valid_delivery(target, b"slow"), reads=False),
    ]


def run_slow_clients(port: int, clients: list[SlowClient]) -> list[str]:
    """Run the clients until the service has disconnected them. Returns the kinds of those that it left connected."""
    poll = select.poll()
    connected: dict[int, SlowClient] = {}
    for client in clients:
        client.connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        client.connection.sendall(client.first)
        client.connection.setblocking(False)
        connected[client.connection.fileno()] = client
        poll.register(client.connection, select.POLLRDHUP | (select.POLLIN if client.reads else 0))
    deadline = time.monotonic() + HEADER_SECONDS + BODY_SECONDS + EXTRA_SECONDS
    while connected and time.monotonic() < deadline:
        for descriptor, events in poll.poll(SEND_INTERVAL_SECONDS * 1000):
            if events & select.POLLIN:
                connected[descriptor].received += receive(connected[descriptor].connection)
            if events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
                poll.unregister(descriptor)
                connected.pop(descriptor).connection.close()
        for client in connected.values():
            send_next(client)
        time.sleep(SEND_INTERVAL_SECONDS)
    for client in connected.values():
        client.connection.close()
    return sorted({client.kind for client in connected.values()})


def receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""


def send_next(client: SlowClient):
    if client.next_bytes:
        try:
            client.connection.send(client.next_bytes)
        except OSError:
            # The service has just disconnected the client. The next poll reports it.
            return


def statuses_by_kind(clients: list[SlowClient]) -> dict[str, set[bytes]]:
    statuses: defaultdict[str, set[bytes]] = defaultdict(set)
    for client in clients:
        statuses[client.kind].add(client.received.removeprefix(b"HTTP/1.1 ")[:3])
    return dict(statuses)


def is_disconnected(port: int, request: bytes, *, seconds: float) -> bool:
    """Send the request repeatedly, and read no answer. Returns whether the service disconnects within this time."""
    with socket.socket() as connection:
        # With a small receive buffer, answers soon wait in the service's send buffer.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect(("127.0.0.1", port))
        connection.settimeout(0.1)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                connection.send(request * 100)
            except TimeoutError:
                continue
            except OSError:
                return True
        return False


def seconds_to_202(service: Service, target: Target) -> float:
    """Send a delivery. Returns the seconds until its 202, without stalls of the machine."""
    began = time.monotonic()
    with stalls() as stall_seconds, RawConnection(service.port, seconds=30) as connection:
        connection.send(valid_delivery(target, b"%d" % time.time_ns()))
        answer = connection.read_answer()
        seconds = time.monotonic() - began
    assert answer is not None
    assert answer.status == 202
    return seconds - sum(stall_seconds)


@contextmanager
def idle_connections(port: int) -> Iterator[list[socket.socket]]:
    """Thousands of connections, or as many as this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        count = IDLE_CONNECTIONS if hard == resource.RLIM_INFINITY else min(IDLE_CONNECTIONS, hard - RESERVED_FILES)
        connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]
        yield connections
        for connection in connections:
            connection.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
