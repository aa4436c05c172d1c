"""Senders with many connections. They deliver events with and without an id, and retry each event until its 202."""

import random
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from hookmill.management import WebhookWithSecret
from tests.support.service import Answer

ANSWER_SECONDS = 20.0
BURST_SECONDS = 0.2
ACCEPTED = 202
UNAVAILABLE = 503


def delivery_request(
    webhook: WebhookWithSecret, body: bytes, *, token: str | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of a delivery request, with the webhook's secret, or with `token` instead."""
    secret = token if token is not None else webhook.reveal()
    path = f"/webhooks/w/{webhook.webhook.uid}"
    header_lines = ["Host: hooks.test", f"Content-Length: {len(body)}"]
    if webhook.webhook.auth_mode == "url_token":
        path = f"{path}/{secret}"
    else:
        header_lines.append(f"Authorization: Bearer {secret}")
    header_lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join([f"POST {path} HTTP/1.1", *header_lines])
    return f"{head}\r\n\r\n".encode() + body


class PersistentConnection:
    """A connection that stays open between requests. After a failure, the next request opens it again."""

    def __init__(self, port: int, *, seconds: float = ANSWER_SECONDS):
        """`seconds` is the time limit for each read and write."""
        self.port = port
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._unread = b""

    def exchange(self, request: bytes) -> Answer | None:
        """Send the request, and return the answer. None means that no complete answer came: the service may have
        processed the request or not."""
        return self.read_answer() if self.send(request) else None

    def send(self, data: bytes) -> bool:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=self._seconds)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._unread = b""
            self._socket.sendall(data)
        except OSError:
            self.close()
            return False
        return True

    def read_answer(self) -> Answer | None:
        if self._socket is None:
            return None
        try:
            head = self._read_to(b"\r\n\r\n")
            status_line, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = self._read(int(headers["content-length"]))
        except OSError:
            self.close()
            return None
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(status_line.split(" ")[1]), headers, body)

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self.close()

    def _read_to(self, end: bytes) -> bytes:
        while end not in self._unread:
            self._receive()
        part, _, self._unread = self._unread.partition(end)
        return part

    def _read(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        part, self._unread = self._unread[:size], self._unread[size:]
        return part

    def _receive(self):
        assert self._socket is not None
        chunk = self._socket.recv(65_536)
        if not chunk:
            raise ConnectionResetError
        self._unread += chunk


def exchange(port: int, request: bytes) -> Answer | None:
    """Send the request on a new connection, and return the answer, or None if no complete answer came."""
    with PersistentConnection(port) as connection:
        return connection.exchange(request)


def exchange_simultaneously(
    connections: Sequence[PersistentConnection], requests: Sequence[bytes]
) -> list[Answer | None]:
    """Send one request on each connection, and return the answers. The last byte of each request is held back until
    all requests have been sent."""
    have_begun = [connection.send(request[:-1]) for connection, request in zip(connections, requests, strict=True)]
    for connection, request, has_begun in zip(connections, requests, have_begun, strict=True):
        if has_begun:
            connection.send(request[-1:])
    return [
        connection.read_answer() if has_begun else None
        for connection, has_begun in zip(connections, have_begun, strict=True)
    ]


@dataclass(slots=True, eq=False)
class Event:
    """An event of a sender, and its accepted deliveries so far."""

    webhook: WebhookWithSecret
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    automations: frozenset[str] = frozenset()
    """The automations of which it must start a run."""
    delivery_ids: list[str] = field(default_factory=list)
    """The delivery ids in its 202s."""


class LoadGenerator:
    """Senders that deliver events, each in a thread with connections of its own, until `drain` or `stop`.

    They send an event again until it has its 202. An answer other than 202 and 503 is an error of the service, and is
    added to `unexpected_answers`.
    """

    def __init__(
        self,
        ports: Sequence[int],
        new_event: Callable[[random.Random, int], Event],
        chance: random.Random,
        *,
        senders: int = 24,
        per_second: float = 180.0,
        repeats: float = 0.03,
        copies: float = 0.0,
        answer_seconds: float = ANSWER_SECONDS,
    ):
        """`new_event` creates the event with a number. Events happen in bursts, `per_second` on average.

        `repeats` is the share of accepted events that are sent again. `copies` is the share of attempts that are two
        concurrent copies, on two connections. `answer_seconds` is how long a sender waits for an answer.
        """
        self._ports = ports
        self._new_event = new_event
        self._chance = chance
        self._per_second = per_second
        self._started_at = time.monotonic()
        self._repeats = repeats
        self._copies = copies
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._waiting: deque[Event] = deque()
        """Events that are sent again."""
        self._in_flight = 0
        self._creates_events = True
        self._is_stopping = threading.Event()
        self.events: list[Event] = []
        self.accepted = 0
        """The number of events with a 202."""
        self.last_accepted_at: dict[int, float] = dict.fromkeys(ports, 0.0)
        """By port, when the sender began the newest of the requests that got a 202, in monotonic seconds."""
        self.answers: Counter[str] = Counter()
        """The number of answers by status, and as `none` the number of requests without an answer."""
        self.unexpected_answers: list[str] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(senders)]
        for thread in self._threads:
            thread.start()

    def send_copies(self, count: int):
        """Send this many copies of one new event at the same moment, to each port in turn."""
        with self._lock:
            event = self._create_event(self._chance)
        connections = [PersistentConnection(self._ports[number % len(self._ports)]) for number in range(count)]
        try:
            self._send_event(event, connections)
        finally:
            for connection in connections:
                connection.close()

    def drain(self, seconds: float):
        """Create no further events, and send the others again until each has its 202."""
        self._creates_events = False
        deadline = time.monotonic() + seconds
        while self._waiting or self._in_flight:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.stop()
        unaccepted = [event for event in self.events if not event.delivery_ids]
        assert not unaccepted, f"{len(unaccepted)} events got no 202 within {seconds:g} s: {dict(self.answers)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self.stop()

    def stop(self):
        """Stop all senders, even if events have no 202 yet."""
        self._is_stopping.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS + 5)

    def _run(self):
        with self._lock:
            chance = random.Random(self._chance.random())
        # Each port twice if two copies may go to one service.
        ports = [*self._ports, *(self._ports if self._copies else ())]
        connections = [PersistentConnection(port, seconds=self._answer_seconds) for port in ports]
        while not self._is_stopping.is_set():
            event = self._next_event(chance)
            if event is None:
                self._is_stopping.wait(chance.uniform(0.001, 0.02))
                continue
            has_copy = chance.random() < self._copies
            if not self._send_event(event, chance.sample(connections, 2) if has_copy else [chance.choice(connections)]):
                self._is_stopping.wait(chance.uniform(0.02, 0.2))
        for connection in connections:
            connection.close()

    def _send_event(self, event: Event, connections: Sequence[PersistentConnection]) -> bool:
        """Send the event on all connections at the same moment. Returns whether one of the answers is a 202."""
        began_at = time.monotonic()
        request = delivery_request(event.webhook, event.body, headers=event.headers)
        answers = (
            [connections[0].exchange(request)]
            if len(connections) == 1
            else exchange_simultaneously(connections, [request] * len(connections))
        )
        with self._lock:
            for connection, answer in zip(connections, answers, strict=True):
                self._record(event, answer, connection.port, began_at)
            self._in_flight -= 1
            is_accepted = any(answer is not None and answer.status == ACCEPTED for answer in answers)
            is_first = len(event.delivery_ids) == len(answers)
            if not is_accepted or (is_first and self._chance.random() < self._repeats):
                self._waiting.append(event)
        return is_accepted

    def _next_event(self, chance: random.Random) -> Event | None:
        with self._lock:
            if self._waiting and (not self._creates_events or chance.random() < 0.5):
                event = self._waiting.popleft()
            elif self._creates_events and len(self.events) < self._due_events():
                return self._create_event(chance)
            else:
                return None
            self._in_flight += 1
            return event

    def _create_event(self, chance: random.Random) -> Event:
        event = self._new_event(chance, len(self.events))
        self.events.append(event)
        self._in_flight += 1
        return event

    def _due_events(self) -> int:
        """The number of events that should have happened so far."""
        bursts = int((time.monotonic() - self._started_at) / BURST_SECONDS) + 1
        return int(bursts * BURST_SECONDS * self._per_second)

    def _record(self, event: Event, answer: Answer | None, port: int, began_at: float):
        self.answers["none" if answer is None else str(answer.status)] += 1
        if answer is None or answer.status == UNAVAILABLE:
            return
        if answer.status == ACCEPTED:
            self.accepted += not event.delivery_ids
            event.delivery_ids.append(answer.delivery_id)
            self.last_accepted_at[port] = max(began_at, self.last_accepted_at[port])
        else:
            self.unexpected_answers.append(f"{answer.status} {answer.body!r}")
