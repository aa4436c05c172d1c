"""The load generator: sends HTTP requests as fast as Python can, or at a steady rate, and measures the latencies.

It runs in a process of its own, uses only the standard library, and stops by itself: when every target has got all its
requests, or when the time is over.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import resource
import secrets
import select
import socket
import subprocess
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from time import perf_counter_ns
from typing import Any

NANOSECONDS = 1_000_000_000
READ_BYTES_MAX = 65_536
CACHED_HEADS_MAX = 1_000
SEND_BUFFER_BYTES = 1 << 20
CONNECT_SECONDS = 5.0
PROCESS_SLACK_SECONDS = 30.0

SERIAL_LENGTH = 32
"""The length of the text that makes each body unique: random digits of this load, and the number of the request."""


class LoadFailed(Exception):
    """The load could not be sent completely, or an answer was not as expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A path to which requests are sent, and the headers for it."""

    path: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request body: the unique text of each request, `SERIAL_LENGTH` bytes long, is between `before` and `after`."""

    before: str
    after: str

    @property
    def size(self) -> int:
        return len(self.before.encode()) + SERIAL_LENGTH + len(self.after.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to send, where to, and when to stop.

    The targets take turns, and each gets at most `requests_per_target`. The bodies take turns, too, shifted by one in
    every round, so that no target always gets the same one. All bodies have the same size. If `rate_per_second` is
    None, every connection sends its next request as soon as it has an answer (flat out).
    """

    port: int
    targets: Sequence[Target]
    bodies: Sequence[Body]
    seconds: float
    requests_per_target: int
    host: str = "127.0.0.1"
    connections: int = 128
    rate_per_second: float | None = None
    expected_status: int = HTTPStatus.ACCEPTED
    answer_within_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of a plan. A latency is the time from when a request was due to the last byte of its answer.

    `requests_per_second` counts only answers with the expected status.
    """

    statuses: Mapping[str, int]
    errors: Mapping[str, int]
    expected_status: int
    seconds: float
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    generator_cpu_seconds: float

    @property
    def generator_cpu_share(self) -> float:
        """The share of one core. Near 1.0, the generator is the limit, and the figures say little about the server."""
        return self.generator_cpu_seconds / self.seconds if self.seconds else 0.0

    def problems(self) -> list[str]:
        """The reasons why the figures can't be used; empty if every answer was as expected."""
        expected = str(self.expected_status)
        unexpected = {status: count for status, count in self.statuses.items() if status != expected}
        problems = [f"{count} × status {status} instead of {expected}" for status, count in unexpected.items()]
        problems += [f"{count} × {error}" for error, count in self.errors.items()]
        if not self.statuses.get(expected):
            problems.append(f"no answer had status {expected}")
        return problems


def targets_needed(*, requests_per_second: float, seconds: float, requests_per_target: int) -> int:
    """How many targets a load needs so that none gets more than `requests_per_target` before the time is over."""
    return max(1, math.ceil(requests_per_second * seconds / requests_per_target))


def run(plan: Plan) -> Record:
    """Carry out the plan in a new process. Raises `LoadFailed`, also if any answer was not as expected."""
    seconds = plan.seconds + plan.answer_within_seconds + PROCESS_SLACK_SECONDS
    try:
        finished = subprocess.run(
            [sys.executable, "-I", str(Path(__file__).resolve())],
            input=json.dumps(dataclasses.asdict(plan)),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"The load generator was stopped: it still ran after {seconds:.0f} s.") from None
    if finished.returncode != 0:
        reason = finished.stderr.strip() or f"it ended with code {finished.returncode}"
        raise LoadFailed(f"The load generator failed: {reason}")
    return Record(**json.loads(finished.stdout))


def drive(plan: Plan) -> Record:
    """Carry out the plan in this process. Raises `LoadFailed`, but not for the `problems` of the record."""
    if len({body.size for body in plan.bodies}) != 1:
        raise LoadFailed(
            "The bodies of a plan must have the same size, because the head of a request is prepared once."
        )
    driver = _Driver(plan)
    try:
        driver.drive()
        return driver.record()
    finally:
        driver.close()


def requests(plan: Plan) -> Iterator[bytes]:
    """The bytes of each request, until every target has got all its requests. No two have the same body."""
    prefix = secrets.token_hex(8).encode()
    size = plan.bodies[0].size
    heads = [_head(plan, target, size) for target in plan.targets]
    bodies = [(body.before.encode(), body.after.encode()) for body in plan.bodies]
    number = 0
    for round_number in range(plan.requests_per_target):
        for position, head in enumerate(heads, start=round_number):
            before, after = bodies[position % len(bodies)]
            yield b"%b%b%b%016d%b" % (head, before, prefix, number, after)
            number += 1


def _head(plan: Plan, target: Target, body_size: int) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {plan.host}:{plan.port}",
        "Content-Type: application/json",
        *(f"{name}: {value}" for name, value in target.headers.items()),
        f"Content-Length: {body_size}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass(frozen=True, slots=True)
class _Head:
    """The fields of an answer's head that the generator uses."""

    status: str
    answer_size: int
    """The size of the head and the body in bytes."""
    closes_connection: bool


def _read_head(head: bytes) -> _Head:
    status_line, *fields = head.split(b"\r\n")
    version, _, rest = status_line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise LoadFailed("The server sent an answer that is not HTTP/1.")
    length = None
    closes = version == b"HTTP/1.0"
    for field in fields:
        name, _, value = field.partition(b":")
        match name.strip().lower():
            case b"content-length" if value.strip().isdigit():
                length = int(value)
            case b"connection":
                closes = value.strip().lower() == b"close"
    if length is None:
        raise LoadFailed("The server sent an answer without Content-Length.")
    return _Head(rest[:3].decode(), len(head) + 4 + length, closes)


class _Connection:
    """A connection with at most one unanswered request. `due` is the time of this request, by `perf_counter_ns`."""

    __slots__ = ("due", "received", "recv", "send", "socket", "unsent")

    def open(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=CONNECT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.socket.setblocking(False)
        self.send = self.socket.send
        self.recv = self.socket.recv
        self.due: int | None = None
        self.received = b""
        self.unsent: memoryview | None = None


class _Driver:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._address = (plan.host, plan.port)
        self._requests = requests(plan)
        self._epoll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._in_flight = 0
        self._latencies = array("q")
        self._statuses: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._heads: dict[bytes, _Head] = {}
        self._when_idle: Callable[[_Connection], None] = self._send_next
        self._send_until = 0
        self._seconds = 0.0
        self._cpu_seconds = 0.0

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()
        self._epoll.close()

    def drive(self) -> None:
        connections = [_Connection() for _ in range(self._plan.connections)]
        for connection in connections:
            self._open(connection)
        cpu_before = _cpu_seconds()
        started = perf_counter_ns()
        self._send_until = started + int(self._plan.seconds * NANOSECONDS)
        if self._plan.rate_per_second is None:
            self._drive_flat_out(connections)
        else:
            self._drive_at_rate(connections, started, self._plan.rate_per_second)
        if self._in_flight:
            self._errors["request without an answer in time"] += self._in_flight
        self._seconds = (perf_counter_ns() - started) / NANOSECONDS
        self._cpu_seconds = _cpu_seconds() - cpu_before

    def _drive_flat_out(self, connections: Sequence[_Connection]) -> None:
        for connection in connections:
            self._send_next(connection)
        self._collect_remaining_answers()

    def _drive_at_rate(self, connections: Sequence[_Connection], started: int, per_second: float) -> None:
        """Send requests when they are due, even if the server stalls. Their latencies count from the time when due."""
        idle = deque(connections)
        self._when_idle = idle.append
        interval = NANOSECONDS / per_second
        issued = 0
        due = started
        request = next(self._requests, None)
        while request is not None and due < self._send_until:
            now = perf_counter_ns()
            if due <= now and idle:
                self._start(idle.popleft(), request, due)
                issued += 1
                due = started + int(issued * interval)
                request = next(self._requests, None)
                continue
            deadline = self._send_until + self._answer_within()
            if now >= deadline:
                self._errors["request due, but no connection free in time"] += 1
                break
            wait_until = due if due > now else deadline
            # epoll waits for whole milliseconds, which would add to latencies. select waits for shorter times.
            select.select([self._epoll], [], [], (wait_until - now) / NANOSECONDS)
            self._collect(0)
        self._collect_remaining_answers()

    def _collect_remaining_answers(self) -> None:
        while self._in_flight:
            remaining = self._send_until + self._answer_within() - perf_counter_ns()
            if remaining <= 0:
                return
            self._collect(remaining / NANOSECONDS)

    def _answer_within(self) -> int:
        return int(self._plan.answer_within_seconds * NANOSECONDS)

    def _send_next(self, connection: _Connection) -> None:
        if perf_counter_ns() >= self._send_until:
            return
        request = next(self._requests, None)
        if request is not None:
            self._start(connection, request, perf_counter_ns())

    def _start(self, connection: _Connection, request: bytes, due: int) -> None:
        if connection.socket.fileno() < 0:
            self._open(connection)
        connection.due = due
        self._in_flight += 1
        try:
            sent = connection.send(request)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The answer or the end of the connection is read later.
            return
        if sent != len(request):
            connection.unsent = memoryview(request)[sent:]
            self._epoll.modify(connection.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _send_remaining(self, connection: _Connection) -> None:
        assert connection.unsent is not None
        try:
            connection.unsent = connection.unsent[connection.send(connection.unsent) :]
        except BlockingIOError:
            return
        except OSError:
            connection.unsent = None
        if not connection.unsent:
            connection.unsent = None
            self._epoll.modify(connection.socket.fileno(), select.EPOLLIN)

    def _collect(self, timeout_seconds: float) -> None:
        for descriptor, events in self._epoll.poll(timeout_seconds, self._plan.connections):
            connection = self._connections[descriptor]
            if events & select.EPOLLOUT and connection.unsent is not None:
                self._send_remaining(connection)
            if events & ~select.EPOLLOUT:
                self._receive(connection)

    def _receive(self, connection: _Connection) -> None:
        try:
            received = connection.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        now = perf_counter_ns()
        if not received:
            self._handle_lost_connection(connection)
            return
        if connection.received:
            received = connection.received + received
        end = received.find(b"\r\n\r\n")
        if end < 0:
            connection.received = received
            return
        head_bytes = received[:end]
        head = self._heads.get(head_bytes) or self._read_new_head(head_bytes)
        if len(received) < head.answer_size:
            connection.received = received
            return
        if len(received) > head.answer_size or connection.due is None:
            raise LoadFailed("The server sent more than one answer to one request.")
        connection.received = b""
        self._latencies.append(now - connection.due)
        connection.due = None
        self._in_flight -= 1
        self._statuses[head.status] += 1
        if head.closes_connection or connection.unsent is not None:
            self._drop(connection)
        self._when_idle(connection)

    def _read_new_head(self, head_bytes: bytes) -> _Head:
        # Heads are the same until the Date header changes, so a cache saves most of the work.
        if len(self._heads) >= CACHED_HEADS_MAX:
            self._heads.clear()
        head = self._heads[head_bytes] = _read_head(head_bytes)
        return head

    def _handle_lost_connection(self, connection: _Connection) -> None:
        was_in_flight = connection.due is not None
        self._drop(connection)
        if was_in_flight:
            self._in_flight -= 1
            self._errors["connection closed before the answer"] += 1
            self._when_idle(connection)

    def _drop(self, connection: _Connection) -> None:
        """Close a connection, which is opened again with its next request."""
        del self._connections[connection.socket.fileno()]
        connection.socket.close()

    def _open(self, connection: _Connection) -> None:
        try:
            connection.open(self._address)
        except OSError as problem:
            host, port = self._address
            raise LoadFailed(f"Cannot connect to {host}:{port}: {problem.strerror or problem}.") from None
        self._connections[connection.socket.fileno()] = connection
        self._epoll.register(connection.socket.fileno(), select.EPOLLIN)

    def record(self) -> Record:
        ordered = sorted(self._latencies)
        expected = self._statuses[str(int(self._plan.expected_status))]
        return Record(
            statuses=dict(self._statuses),
            errors=dict(self._errors),
            expected_status=int(self._plan.expected_status),
            seconds=self._seconds,
            requests_per_second=expected / self._seconds,
            p50_ms=_percentile_ms(ordered, 0.5),
            p99_ms=_percentile_ms(ordered, 0.99),
            generator_cpu_seconds=self._cpu_seconds,
        )


def _percentile_ms(ordered_ns: Sequence[int], share: float) -> float:
    if not ordered_ns:
        return math.nan
    return ordered_ns[max(0, math.ceil(share * len(ordered_ns)) - 1)] / 1e6


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _plan_from(record: dict[str, Any]) -> Plan:
    targets = [Target(**target) for target in record.pop("targets")]
    bodies = [Body(**body) for body in record.pop("bodies")]
    return Plan(targets=targets, bodies=bodies, **record)


def main() -> int:
    """Read a plan and write its record, both as JSON. Returns 1 if the load failed or the record has problems."""
    plan = _plan_from(json.load(sys.stdin))
    gc.collect()
    gc.disable()
    try:
        record = drive(plan)
    except LoadFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    if problems := record.problems():
        print("; ".join(problems), file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
