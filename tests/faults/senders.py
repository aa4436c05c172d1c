"""Senders as they are out there: many connections, events with and without an id, and a repeat for every event that was
not answered with a 2xx."""

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


def request(
    made: WebhookWithSecret, body: bytes, *, token: str | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """A delivery as it goes over the wire."""
    secret = token if token is not None else made.reveal()
    path = f"/webhooks/w/{made.webhook.uid}"
    lines = ["Host: hooks.test", f"Content-Length: {len(body)}"]
    if made.webhook.auth_mode == "url_token":
        path = f"{path}/{secret}"
    else:
        lines.append(f"Authorization: Bearer {secret}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join([f"POST {path} HTTP/1.1", *lines])
    return f"{head}\r\n\r\n".encode() + body


class Line:
    """One connection that is kept, and made again when it was lost."""

    def __init__(self, port: int, *, seconds: float = ANSWER_SECONDS) -> None:
        self.port = port
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._unread = b""

    def ask(self, sent: bytes) -> Answer | None:
        """None when no whole answer came: whether anything was done with the request can't be known."""
        return self.answer() if self.say(sent) else None

    def say(self, sent: bytes) -> bool:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=self._seconds)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._unread = b""
            self._socket.sendall(sent)
        except OSError:
            self.close()
            return False
        return True

    def answer(self) -> Answer | None:
        if self._socket is None:
            return None
        try:
            head = self._take_to(b"\r\n\r\n")
            status_line, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = self._take(int(headers["content-length"]))
        except OSError:
            self.close()
            return None
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(status_line.split(" ")[1]), headers, body)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_to(self, end: bytes) -> bytes:
        while end not in self._unread:
            self._more()
        taken, _, self._unread = self._unread.partition(end)
        return taken

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._more()
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken

    def _more(self) -> None:
        assert self._socket is not None
        piece = self._socket.recv(65_536)
        if not piece:
            raise ConnectionResetError
        self._unread += piece


def ask(port: int, sent: bytes) -> Answer | None:
    """On a connection of its own."""
    with Line(port) as line:
        return line.ask(sent)


def at_one_instant(lines: Sequence[Line], requests: Sequence[bytes]) -> list[Answer | None]:
    """The answers to requests that all lack their last byte until every one of them is there."""
    has_begun = [line.say(sent[:-1]) for line, sent in zip(lines, requests, strict=True)]
    for line, sent, is_there in zip(lines, requests, has_begun, strict=True):
        if is_there:
            line.say(sent[-1:])
    return [line.answer() if is_there else None for line, is_there in zip(lines, has_begun, strict=True)]


@dataclass(slots=True, eq=False)
class Event:
    """Something that happened at the sender's, and what the service has answered to it so far."""

    made: WebhookWithSecret
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    starts: frozenset[str] = frozenset()
    """The automations that it must start."""
    taken_as: list[str] = field(default_factory=list)
    """The delivery ids it was given with a 202."""


class Fleet:
    """Senders at work, each on a connection of its own, until `settle`.

    An event is sent again until it has its 202. An answer other than 202 and 503 is a fault of the service, and is kept
    in `unexpected`.
    """

    def __init__(
        self,
        ports: Sequence[int],
        draw: Callable[[random.Random, int], Event],
        chance: random.Random,
        *,
        senders: int = 24,
        per_second: float = 180.0,
        repeats: float = 0.03,
        copies: float = 0.0,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`draw` makes the next event out of chance and its number. Events happen in bursts, `per_second` on average.
        `repeats` is the share of them that are sent again although they were taken. `copies` is the share of attempts
        that are two concurrent copies, on two connections. `answer_seconds` is how long they wait for an answer."""
        self._ports = ports
        self._draw = draw
        self._chance = chance
        self._per_second = per_second
        self._began = time.monotonic()
        self._repeats = repeats
        self._copies = copies
        self._answer_seconds = answer_seconds
        self._guard = threading.Lock()
        self._owed: deque[Event] = deque()
        self._under_way = 0
        self._fresh = True
        self._leaving = threading.Event()
        self.events: list[Event] = []
        self.taken = 0
        """Events with a 202."""
        self.last_taken_at: dict[int, float] = dict.fromkeys(ports, 0.0)
        """When the last request that got a 202 was begun, by port, in monotonic seconds."""
        self.answers: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(senders)]
        for thread in self._threads:
            thread.start()

    def burst(self, copies: int) -> None:
        """Send this many copies of one new event at one instant, in turn to each port."""
        with self._guard:
            event = self._begin_new_event(self._chance)
        lines = [Line(self._ports[number % len(self._ports)]) for number in range(copies)]
        try:
            self._send_event(event, lines)
        finally:
            for line in lines:
                line.close()

    def settle(self, seconds: float) -> None:
        """Begin nothing new, and repeat what is owed until every event has its 202."""
        self._fresh = False
        deadline = time.monotonic() + seconds
        while self._owed or self._under_way:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.leave()
        open_ = [event for event in self.events if not event.taken_as]
        assert not open_, f"{len(open_)} events were never taken within {seconds:g} s: {dict(self.answers)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Stop, whatever is owed."""
        self._leaving.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS + 5)

    def _send(self) -> None:
        with self._guard:
            chance = random.Random(self._chance.random())
        # Each port twice if two copies may go to one service.
        ports = [*self._ports, *(self._ports if self._copies else ())]
        lines = [Line(port, seconds=self._answer_seconds) for port in ports]
        while not self._leaving.is_set():
            event = self._next(chance)
            if event is None:
                self._leaving.wait(chance.uniform(0.001, 0.02))
                continue
            has_copy = chance.random() < self._copies
            if not self._send_event(event, chance.sample(lines, 2) if has_copy else [chance.choice(lines)]):
                self._leaving.wait(chance.uniform(0.02, 0.2))
        for line in lines:
            line.close()

    def _send_event(self, event: Event, lines: Sequence[Line]) -> bool:
        """Send the event at one instant on each of the lines. Whether it has a 202."""
        began = time.monotonic()
        sent = request(event.made, event.body, headers=event.headers)
        answers = [lines[0].ask(sent)] if len(lines) == 1 else at_one_instant(lines, [sent] * len(lines))
        with self._guard:
            for line, answer in zip(lines, answers, strict=True):
                self._record(event, answer, line.port, began)
            self._under_way -= 1
            is_taken = any(answer is not None and answer.status == ACCEPTED for answer in answers)
            is_first = len(event.taken_as) == len(answers)
            if not is_taken or (is_first and self._chance.random() < self._repeats):
                self._owed.append(event)
        return is_taken

    def _next(self, chance: random.Random) -> Event | None:
        with self._guard:
            if self._owed and (not self._fresh or chance.random() < 0.5):
                event = self._owed.popleft()
            elif self._fresh and len(self.events) < self._happened():
                return self._begin_new_event(chance)
            else:
                return None
            self._under_way += 1
            return event

    def _begin_new_event(self, chance: random.Random) -> Event:
        event = self._draw(chance, len(self.events))
        self.events.append(event)
        self._under_way += 1
        return event

    def _happened(self) -> int:
        bursts = int((time.monotonic() - self._began) / BURST_SECONDS) + 1
        return int(bursts * BURST_SECONDS * self._per_second)

    def _record(self, event: Event, answer: Answer | None, port: int, began: float) -> None:
        self.answers["none" if answer is None else str(answer.status)] += 1
        if answer is None or answer.status == UNAVAILABLE:
            return
        if answer.status == ACCEPTED:
            self.taken += not event.taken_as
            event.taken_as.append(answer.delivery_id)
            self.last_taken_at[port] = max(began, self.last_taken_at[port])
        else:
            self.unexpected.append(f"{answer.status} {answer.body!r}")
