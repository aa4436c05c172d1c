"""Occupies connections with idle clients, and with slow ones that send a byte per second.

It runs in a process of its own and needs only the standard library. It reads a `Crowd` from standard input as a line of
JSON, and writes a line of JSON when the clients are connected. When standard input ends, or after `seconds_max`, it
writes a second line and ends.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import resource
import select
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

SOURCE_ADDRESSES = 50
"""The clients are spread over this many addresses from 127.0.1.1 on. One address has ports for 28,000 connections, and
a port is blocked for a minute after the service has closed its connection."""
TICK_SECONDS = 0.02
BURST_SECONDS = 0.1
"""After a pause, the clients of this time span may connect at the same moment."""
DRIP_SECONDS = 1.0
READY_SECONDS = 60.0
CONNECTED_SHARE_MIN = 0.99
"""The share of the clients that must be connected at the same time at the start."""
END_SECONDS = 20.0
FILES_RESERVED = 100
READ_BYTES_MAX = 65_536
IP_BIND_ADDRESS_NO_PORT = 24
"""From linux/in.h: connect() chooses the port, so that all addresses can use all ports."""


class CrowdFailed(Exception):
    """The clients could not be connected, or their process failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`count` clients. Each sends `first` when it is connected, and then `drip` every second."""

    count: int
    first: str = ""
    drip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Clients of one port. A client whose connection is closed connects again, but at most `connects_per_second` do."""

    port: int
    kinds: Sequence[Kind]
    connects_per_second: int
    seconds_max: float

    @property
    def size(self) -> int:
        return sum(kind.count for kind in self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """The connections after the start, when the clients were connected for the first time."""

    open_mean: float
    """The number of open connections, on average over the time."""
    replaced: int
    answers: int
    """How often a client received something."""


class RunningCrowd:
    """A crowd whose clients are connected."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def leave(self) -> Attendance:
        """Close all connections. Raises `CrowdFailed` if the process has failed."""
        try:
            output, _ = self._process.communicate("", timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            raise CrowdFailed(f"The clients did not end within {END_SECONDS:.0f} s.") from None
        if self._process.returncode != 0:
            raise CrowdFailed(f"The clients' process ended with code {self._process.returncode}.")
        return Attendance(**json.loads(output))


@contextmanager
def running(crowd: Crowd) -> Iterator[RunningCrowd]:
    """Connect the crowd in a new process. At the end of the block, all its clients are disconnected.

    Raises `CrowdFailed` if they are not connected within a minute.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", str(Path(__file__).resolve())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(dataclasses.asdict(crowd)) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
        if not ready or not process.stdout.readline():
            raise CrowdFailed(f"{crowd.size:,} clients could not be connected within {READY_SECONDS:.0f} s.")
        yield RunningCrowd(process)
    finally:
        process.kill()
        process.wait()


class _Client:
    __slots__ = ("is_open", "kind", "socket", "source")

    def __init__(self, kind: Kind, source: str) -> None:
        self.kind = kind
        self.source = source
        self.is_open = False
        self.socket: socket.socket

    def connect(self, port: int) -> None:
        self.is_open = False
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((self.source, 0))
        with suppress(BlockingIOError):
            self.socket.connect(("127.0.0.1", port))

    def send(self, text: str) -> None:
        # A closed connection is detected when it is read.
        with suppress(OSError):
            self.socket.send(text.encode())


class _CrowdLoop:
    """Keeps the clients of a crowd connected."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        kinds = [kind for kind in crowd.kinds for _ in range(kind.count)]
        self._unconnected = deque(
            _Client(kind, f"127.0.1.{1 + number % SOURCE_ADDRESSES}") for number, kind in enumerate(kinds)
        )
        self._clients: dict[int, _Client] = {}
        self._epoll = select.epoll()
        self._open = 0
        self._allowed = 0.0
        """The connections that may be opened now."""
        self._connected_at = monotonic()
        self._drips: list[tuple[float, int, _Client, socket.socket]] = []
        self._drip_number = 0
        self._counting_since = monotonic()
        self._counted_at = monotonic()
        self._open_seconds = 0.0
        self.connections = 0
        self.answers = 0

    @property
    def is_complete(self) -> bool:
        # The service may already have closed some connections.
        return self._open >= CONNECTED_SHARE_MIN * self._crowd.size

    @property
    def open_mean(self) -> float:
        """The open connections since `start_counting`, on average."""
        return self._open_seconds / max(1e-9, self._counted_at - self._counting_since)

    def start_counting(self) -> None:
        self._counting_since = self._counted_at = monotonic()
        self._open_seconds = 0.0
        self.connections = 0
        self.answers = 0

    def tick(self) -> None:
        self._connect_some(monotonic())
        for descriptor, events in self._epoll.poll(TICK_SECONDS):
            self._react(self._clients[descriptor], events)
        now = monotonic()
        self._drip(now)
        self._open_seconds += self._open * (now - self._counted_at)
        self._counted_at = now

    def _connect_some(self, now: float) -> None:
        self._allowed = min(
            self._allowed + (now - self._connected_at) * self._crowd.connects_per_second,
            max(1.0, self._crowd.connects_per_second * BURST_SECONDS),
        )
        self._connected_at = now
        while self._unconnected and self._allowed >= 1:
            self._allowed -= 1
            self._connect(self._unconnected.popleft())

    def _connect(self, client: _Client) -> None:
        client.connect(self._crowd.port)
        self._clients[client.socket.fileno()] = client
        self._epoll.register(client.socket.fileno(), select.EPOLLOUT)
        self.connections += 1

    def _react(self, client: _Client, events: int) -> None:
        if events & (select.EPOLLERR | select.EPOLLHUP):
            self._disconnect(client)
        elif not client.is_open:
            client.is_open = True
            self._open += 1
            self._epoll.modify(client.socket.fileno(), select.EPOLLIN)
            client.send(client.kind.first)
            self._schedule_drip(client, monotonic())
        elif self._has_ended(client):
            self._disconnect(client)

    def _has_ended(self, client: _Client) -> bool:
        try:
            received = client.socket.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self.answers += bool(received)
        return not received

    def _disconnect(self, client: _Client) -> None:
        self._open -= client.is_open
        del self._clients[client.socket.fileno()]
        client.socket.close()
        self._unconnected.append(client)

    def _schedule_drip(self, client: _Client, now: float) -> None:
        if client.kind.drip:
            self._drip_number += 1
            heapq.heappush(self._drips, (now + DRIP_SECONDS, self._drip_number, client, client.socket))

    def _drip(self, now: float) -> None:
        while self._drips and self._drips[0][0] <= now:
            _, _, client, connection = heapq.heappop(self._drips)
            if client.socket is connection and client.is_open:
                client.send(client.kind.drip)
                self._schedule_drip(client, now)


def _crowd_from(stream: IO[str]) -> Crowd:
    fields: dict[str, Any] = json.loads(stream.readline())
    return Crowd(kinds=[Kind(**kind) for kind in fields.pop("kinds")], **fields)


def main() -> int:
    """Keep a crowd connected until standard input ends. Returns 1 if it could not be connected in time."""
    crowd = _crowd_from(sys.stdin)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = _CrowdLoop(crowd)
    started_at = monotonic()
    while not loop.is_complete:
        if monotonic() - started_at > READY_SECONDS:
            return 1
        loop.tick()
    print("connected", flush=True)
    loop.start_counting()
    while not select.select([sys.stdin], [], [], 0)[0] and monotonic() - started_at < crowd.seconds_max:
        loop.tick()
    attendance = Attendance(open_mean=loop.open_mean, replaced=loop.connections, answers=loop.answers)
    print(json.dumps(dataclasses.asdict(attendance)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
