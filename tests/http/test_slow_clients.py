"""Who sends or reads slowly, or not at all, is dropped in bounded time, and nobody else waits for him."""

import resource
import select
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hookmill.app import connections, serve
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.permission import Role
from hookmill.management import Management
from hookmill.web import delivery_body
from tests.faults.parts import Part, parts_of
from tests.http.conftest import new_target
from tests.http.hostile import Target, honest
from tests.http.impatience import BODY_SECONDS, HEADER_SECONDS, serving_impatiently
from tests.http.wire import Wire
from tests.support.service import Service, operator
from tests.support.waiting import LONG_SECONDS, stalls

SLACK_SECONDS: Final = 8.0
"""For a busy machine: what is being tested is that it ends, and not by chance."""

CLIENTS_OF_A_KIND: Final = 20
DRIP_SECONDS: Final = 0.2
IDLE_CONNECTIONS: Final = 3_000
FILES_KEPT_BACK: Final = 300
CONNECTION_BYTES_MAX: Final = 32 * 1024
"""Of memory, with part of a small request."""
NOISE_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class SlowClient:
    """What it sends at once, what it sends over and over, and whether it reads what it is told."""

    kind: str
    first: bytes
    drip: bytes = b""
    reads: bool = True
    told: bytes = b""
    connection: socket.socket = field(init=False)


def test_200_slow_clients_are_dropped_while_others_are_served(tmp_path: Path):
    with serving_impatiently(tmp_path) as service, service.management() as management:
        target = new_target(management)
        seconds_to_a_202(service, target)  # The first one waits for the writer to start.
        clients = [client for _ in range(CLIENTS_OF_A_KIND) for client in slow_clients(target)]
        assert len(clients) >= 200

        with ThreadPoolExecutor(1) as apart:
            siege = apart.submit(hold_on, service.port, clients)
            waits = []
            while not siege.done():
                waits.append(seconds_to_a_202(service, target))
                time.sleep(0.05)

        assert siege.result() == []
        assert max(waits) < 2.0
        assert statuses_by_kind(clients) == {
            "silent from the start": {b""},
            "silent within the request line": {b""},
            "with a request line that never ends": {b""},
            "with header lines that never end": {b""},
            "with a body that never begins": {b"408"},
            "with a body that never ends": {b"408"},
            "with chunks that never end": {b"408"},
            "with a chunk's size that never ends": {b"408"},
            "with a stranger's body that never ends": {b"401"},
            "silent after a delivery": {b"202"},
            "that reads no answer": {b""},
        }
        assert seconds_to_a_202(service, target) < 2.0
        assert "Traceback" not in service.log()


def test_nobody_may_take_longer_than_a_minute():
    assert serve.HEADER_MILLISECONDS <= 60_000
    assert delivery_body.BODY_SECONDS <= 60
    assert connections.WRITE_SECONDS <= 60


def test_an_unauthenticated_client_that_never_reads_is_closed(service: Service, target: Target):
    stranger = honest(target, b"never").replace(target.token, b"wrong")
    requests = [stranger, stranger.replace(target.uid, b"wh_0"), stranger.replace(b"POST", b"PUT"), HEALTH]

    for request in requests:
        assert pump(service.port, request, seconds=SLACK_SECONDS) == "dropped"


def test_senders_who_read_no_answers_disturb_nobody(service: Service, target: Target):
    delivery = honest(target, b"never read")
    with ThreadPoolExecutor(10) as senders:
        pumping = [senders.submit(pump, service.port, delivery, seconds=2.0) for _ in range(10)]
        waits = [seconds_to_a_202(service, target) for _ in range(20)]

    assert max(waits) < 2.0
    assert {each.result() for each in pumping} <= {"held", "dropped"}


def test_only_a_client_that_takes_nothing_of_its_answers_is_dropped(tmp_path: Path):
    with serving_impatiently(tmp_path) as service, service.management() as management:
        requests = for_large_answers(service, management)

        with asking(service.port, requests * 50) as reads_nothing, asking(service.port, requests * 50) as reads_slowly:
            assert has_ended(reads_nothing, meanwhile=reads_slowly)
            assert reads_slowly.recv(65_536) != b""


def for_large_answers(service: Service, management: Management) -> bytes:
    """A request for a quarter of a megabyte, by a client with a new key."""
    made = management.webhooks.create(operator(management), f"large {time.time_ns()}")
    delivery = service.post(made, b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"').delivery_id
    key = management.keys.create(management.access.operator_of_team(), "slow", Role.VIEWER, factory="default")
    path = f"/api/v1/factories/default/deliveries/{delivery}/payload"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key.token.reveal()}\r\n\r\n".encode()


@contextmanager
def asking(port: int, requests: bytes) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(requests)
        connection.settimeout(LONG_SECONDS)
        yield connection


def has_ended(reads_nothing: socket.socket, *, meanwhile: socket.socket) -> bool:
    """Whether the one ended within a minute. Of the other, some is read all the time."""
    poll = select.poll()
    poll.register(reads_nothing, select.POLLRDHUP)
    deadline = time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        meanwhile.recv(16_384)
        if poll.poll(100):
            return True
    return False


def test_thousands_of_idle_connections_disturb_nobody(service: Service, target: Target):
    ingress = parts_of(service)[Part.INGRESS][0]
    memory_before = ingress.memory_info().rss
    with idle_connections(service.port) as connections:
        assert len(connections) >= 500
        for number, connection in enumerate(connections):
            connection.sendall(HEALTH[: number % len(HEALTH)])

        waits = [seconds_to_a_202(service, target) for _ in range(10)]
        more_memory = ingress.memory_info().rss - memory_before

    assert max(waits) < 2.0
    assert more_memory < len(connections) * CONNECTION_BYTES_MAX + NOISE_BYTES


HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: hooks.test\r\n\r\n"


def slow_clients(target: Target) -> list[SlowClient]:
    """One of each kind. All but the stranger bear the right credentials."""
    head, _, _ = honest(target, b"slow").partition(b"\r\n\r\n")
    line, _, _ = head.partition(b"\r\n")
    unframed = head.replace(b"\r\nContent-Length: 2", b"")
    endless = unframed + b"\r\nContent-Length: 1000\r\n\r\n"
    chunked = unframed + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [
        SlowClient("silent from the start", b""),
        SlowClient("silent within the request line", line[:20]),
        SlowClient("with a request line that never ends", line[:20], drip=b"a"),
        SlowClient("with header lines that never end", line + b"\r\n", drip=b"X-A: b\r\n"),
        SlowClient("with a body that never begins", endless),
        SlowClient("with a body that never ends", endless, drip=b" "),
        SlowClient("with chunks that never end", chunked, drip=b"1\r\n \r\n"),
        SlowClient("with a chunk's size that never ends", chunked, drip=b"0"),
        SlowClient("with a stranger's body that never ends", endless.replace(target.token, b"wrong"), drip=b" "),
        SlowClient("silent after a delivery", honest(target, b"slow")),
        SlowClient("that reads no answer", honest(target, b"slow"), reads=False),
    ]


def hold_on(port: int, clients: list[SlowClient]) -> list[str]:
    """Have all of them hold on for as long as they are let. The kinds of those that were not dropped in time."""
    poll = select.poll()
    held: dict[int, SlowClient] = {}
    for client in clients:
        client.connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        client.connection.sendall(client.first)
        client.connection.setblocking(False)
        held[client.connection.fileno()] = client
        poll.register(client.connection, select.POLLRDHUP | (select.POLLIN if client.reads else 0))
    deadline = time.monotonic() + HEADER_SECONDS + BODY_SECONDS + SLACK_SECONDS
    while held and time.monotonic() < deadline:
        for number, events in poll.poll(DRIP_SECONDS * 1000):
            if events & select.POLLIN:
                held[number].told += said(held[number].connection)
            if events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
                poll.unregister(number)
                held.pop(number).connection.close()
        for client in held.values():
            drip(client)
        time.sleep(DRIP_SECONDS)
    for client in held.values():
        client.connection.close()
    return sorted({client.kind for client in held.values()})


def said(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""


def drip(client: SlowClient) -> None:
    if client.drip:
        try:
            client.connection.send(client.drip)
        except OSError:
            # Dropped in between; the next poll will say so.
            return


def statuses_by_kind(clients: list[SlowClient]) -> dict[str, set[bytes]]:
    found: defaultdict[str, set[bytes]] = defaultdict(set)
    for client in clients:
        found[client.kind].add(client.told.removeprefix(b"HTTP/1.1 ")[:3])
    return dict(found)


def pump(port: int, request: bytes, *, seconds: float) -> str:
    """Ask again and again without reading an answer: `dropped` by the service, or `held` until the time is up."""
    with socket.socket() as connection:
        # The smaller our own buffer, the sooner the answers wait in the service's.
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
                return "dropped"
        return "held"


def seconds_to_a_202(service: Service, target: Target) -> float:
    """Without those for which the whole machine stood still."""
    started = time.monotonic()
    with stalls() as stood_still, Wire(service.port, seconds=30) as wire:
        wire.send(honest(target, b"%d" % time.time_ns()))
        answer = wire.answer()
        seconds = time.monotonic() - started
    assert answer is not None
    assert answer.status == 202
    return seconds - sum(stood_still)


@contextmanager
def idle_connections(port: int) -> Iterator[list[socket.socket]]:
    """Thousands, or as many as this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        most = IDLE_CONNECTIONS if hard == resource.RLIM_INFINITY else min(IDLE_CONNECTIONS, hard - FILES_KEPT_BACK)
        connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(most)]
        yield connections
        for connection in connections:
            connection.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
