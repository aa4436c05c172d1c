"""The load generator: what it sends, when it stops, and how it reports answers, latencies and errors."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import SHUT_RDWR, socket
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from bench.load import Body, LoadFailed, Plan, Target, drive, run, targets_needed

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"

Answer = Callable[[socket, int], None]


@dataclass
class Listener:
    """A real HTTP server that records its requests. `answer` gets the number of each request, counted from 0."""

    answer: Answer
    reads_bodies: bool = True
    port: int = 0
    connections: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def paths(self) -> Counter[str]:
        return Counter(path for path, _, _ in self.requests)


class Server(ThreadingTCPServer):
    request_queue_size = 256


@contextmanager
def listening(answer: Answer, *, reads_bodies: bool = True) -> Iterator[Listener]:
    listener = Listener(answer, reads_bodies)
    numbers = itertools.count()
    is_over = threading.Event()

    class Connection(StreamRequestHandler):
        def handle(self) -> None:
            listener.connections += 1
            with suppress(ConnectionError):
                while request_line := self.rfile.readline():
                    fields = iter(lambda: self.rfile.readline().decode().strip(), "")
                    headers = dict(line.split(": ", 1) for line in fields)
                    if listener.reads_bodies:
                        body = self.rfile.read(int(headers["Content-Length"]))
                        listener.requests.append((request_line.decode().split()[1], headers, body))
                    listener.answer(self.request, next(numbers))
                    if not listener.reads_bodies:
                        is_over.wait()

    with Server(("127.0.0.1", 0), Connection) as server:
        listener.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listener
        finally:
            is_over.set()
            server.shutdown()
            thread.join()


def accept(connection: socket, number: int) -> None:
    connection.sendall(ACCEPTED)


def never_answer(connection: socket, number: int) -> None:
    while connection.recv(65_536):
        pass


def plan_for(
    listener: Listener,
    *,
    targets: int = 5,
    requests_per_target: int = 20,
    seconds: float = 20.0,
    connections: int = 8,
    rate_per_second: float | None = None,
    answer_within_seconds: float = 5.0,
    bodies: tuple[Body, ...] = (Body(before='{"id":"', after='"}'),),
) -> Plan:
    return Plan(
        port=listener.port,
        targets=[Target(path=f"/hook/{n}", headers={"X-Hook": str(n)}) for n in range(targets)],
        bodies=bodies,
        seconds=seconds,
        requests_per_target=requests_per_target,
        connections=connections,
        rate_per_second=rate_per_second,
        answer_within_seconds=answer_within_seconds,
    )


def test_every_request_is_counted_once():
    with listening(accept) as listener:
        record = drive(plan_for(listener))

    assert record.sent == 100
    assert record.statuses == {"202": 100}
    assert len(listener.requests) == 100
    assert record.errors == {}
    assert record.problems() == []


def test_each_target_gets_its_number_of_requests():
    with listening(accept) as listener:
        drive(plan_for(listener, targets=7, requests_per_target=9))

    assert listener.paths == {f"/hook/{n}": 9 for n in range(7)}


def test_each_target_gets_its_own_headers():
    with listening(accept) as listener:
        drive(plan_for(listener))

    assert all(path == f"/hook/{headers['X-Hook']}" for path, headers, _ in listener.requests)


def test_all_bodies_differ():
    with listening(accept) as listener:
        drive(plan_for(listener))
        drive(plan_for(listener))

    assert len({body for _, _, body in listener.requests}) == 200


def test_bodies_are_valid_json_of_the_planned_size():
    body = Body(before='{"id":"', after='","kind":"push"}')

    with listening(accept) as listener:
        drive(plan_for(listener, bodies=(body,)))

    assert {len(content) for _, _, content in listener.requests} == {body.size}
    assert {json.loads(content)["kind"] for _, _, content in listener.requests} == {"push"}


def test_each_target_gets_all_bodies_in_turn():
    bodies = [Body(before='{"id":"', after=f'","kind":{kind}}}') for kind in range(5)]

    with listening(accept) as listener:
        drive(plan_for(listener, targets=10, requests_per_target=5, bodies=tuple(bodies)))

    requests = Counter((path, json.loads(body)["kind"]) for path, _, body in listener.requests)
    assert requests == {(f"/hook/{n}", kind): 1 for n in range(10) for kind in range(5)}


def test_bodies_of_different_sizes_are_rejected():
    bodies = (Body(before="", after=""), Body(before="", after=" "))

    with listening(accept) as listener, pytest.raises(LoadFailed, match="the same size"):
        drive(plan_for(listener, bodies=bodies))


def test_large_bodies_are_sent_completely():
    large = Body(before='{"id":"', after='","text":"' + "x" * 3_000_000 + '"}')

    with listening(accept) as listener:
        record = drive(plan_for(listener, targets=1, requests_per_target=6, connections=2, bodies=(large,)))

    assert [len(body) for _, _, body in listener.requests] == [large.size] * 6
    assert record.problems() == []


def test_answer_in_pieces_is_reassembled():
    def answer_in_pieces(connection: socket, number: int) -> None:
        for start in range(0, len(ACCEPTED), 5):
            connection.sendall(ACCEPTED[start : start + 5])
            time.sleep(0.0001)

    with listening(answer_in_pieces) as listener:
        record = drive(plan_for(listener))

    assert record.statuses == {"202": 100}
    assert record.errors == {}


def test_load_stops_when_its_time_is_over():
    with listening(accept) as listener:
        record = drive(plan_for(listener, requests_per_target=1_000_000, seconds=0.2))

    assert 0.2 <= record.seconds < 30.0
    assert record.sent == sum(record.statuses.values()) == len(listener.requests)


def test_unexpected_status_is_reported():
    def refuse_every_tenth(connection: socket, number: int) -> None:
        connection.sendall(UNAVAILABLE if number % 10 == 0 else ACCEPTED)

    with listening(refuse_every_tenth) as listener:
        record = drive(plan_for(listener))

    assert record.statuses == {"202": 90, "503": 10}
    assert record.problems() == ["10 × status 503 instead of 202"]


def test_throughput_counts_only_expected_answers():
    def refuse_every_other(connection: socket, number: int) -> None:
        connection.sendall(UNAVAILABLE if number % 2 else ACCEPTED)

    with listening(refuse_every_other) as listener:
        record = drive(plan_for(listener))

    assert record.requests_per_second * record.seconds == pytest.approx(50)


def test_load_can_be_sent_by_a_separate_process():
    with listening(accept) as listener:
        record = run(plan_for(listener))

    assert record.statuses == {"202": 100}
    assert listener.paths == {f"/hook/{n}": 20 for n in range(5)}


def test_separate_process_fails_on_an_unexpected_status():
    def refuse(connection: socket, number: int) -> None:
        connection.sendall(UNAVAILABLE)

    with listening(refuse) as listener, pytest.raises(LoadFailed, match="100 × status 503"):
        run(plan_for(listener))


@pytest.mark.parametrize("rate_per_second", [None, 200.0])
def test_load_ends_in_time_although_the_server_hangs(rate_per_second):
    with listening(never_answer) as listener:
        plan = plan_for(listener, seconds=1, connections=4, rate_per_second=rate_per_second, answer_within_seconds=0.3)
        record = drive(plan)

    # By default, the generator waits five seconds for an answer.
    assert record.seconds < 1 + 4.0
    assert record.errors["request without an answer in time"] == 4
    assert "no answer had status 202" in record.problems()


def test_request_that_finds_no_free_connection_is_reported():
    with listening(never_answer) as listener:
        record = drive(plan_for(listener, seconds=0.2, connections=1, rate_per_second=200, answer_within_seconds=0.1))

    assert record.errors["request due, but no connection free in time"] == 1


def test_connection_closed_after_an_answer_is_reopened():
    closing = ACCEPTED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

    def accept_and_close(connection: socket, number: int) -> None:
        connection.sendall(closing)
        connection.shutdown(SHUT_RDWR)

    with listening(accept_and_close) as listener:
        record = drive(plan_for(listener))

    assert record.statuses == {"202": 100}
    assert record.errors == {}
    assert record.reconnects == 100


def test_broken_connection_is_counted_as_an_error_and_reopened():
    def break_the_first(connection: socket, number: int) -> None:
        if number == 0:
            connection.shutdown(SHUT_RDWR)
        else:
            connection.sendall(ACCEPTED)

    with listening(break_the_first) as listener:
        record = drive(plan_for(listener, connections=1))

    assert record.statuses == {"202": 99}
    assert record.errors == {"connection closed before the answer": 1}
    assert record.reconnects == 1
    assert listener.connections == 2


def test_early_answer_counts_and_its_connection_is_replaced():
    large = Body(before="", after="x" * 30_000_000)

    def refuse(connection: socket, number: int) -> None:
        connection.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")

    with listening(refuse, reads_bodies=False) as listener:
        record = drive(plan_for(listener, targets=1, requests_per_target=3, connections=1, bodies=(large,)))

    assert record.statuses == {"413": 3}
    assert record.reconnects == 3


def test_refused_connection_is_reported_with_the_address():
    with listening(accept) as listener:
        plan = plan_for(listener)

    with pytest.raises(LoadFailed, match=rf"Cannot connect to 127\.0\.0\.1:{plan.port}"):
        drive(plan)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 202 Accepted\r\n\r\n", "without Content-Length"),
        (b"HTTP/1.1 202 Accepted\r\nContent-Length: two\r\n\r\n{}", "without Content-Length"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not HTTP/1"),
        (ACCEPTED + ACCEPTED, "more than one answer"),
    ],
)
def test_malformed_answer_is_reported(answer, message):
    def send_answer(connection: socket, number: int) -> None:
        connection.sendall(answer)

    with listening(send_answer) as listener, pytest.raises(LoadFailed, match=message):
        drive(plan_for(listener, connections=1))


def test_steady_rate_sends_the_planned_number_of_requests():
    with listening(accept) as listener:
        record = drive(plan_for(listener, requests_per_target=1000, seconds=0.5, rate_per_second=200))

    assert record.sent == 100
    assert record.statuses == {"202": 100}
    assert record.seconds >= 0.49


def test_steady_rate_never_exceeds_the_requests_per_target():
    with listening(accept) as listener:
        drive(plan_for(listener, targets=3, requests_per_target=2, rate_per_second=1000))

    assert listener.paths == {f"/hook/{n}": 2 for n in range(3)}


def test_stall_of_the_server_delays_every_due_request():
    def stall_once(connection: socket, number: int) -> None:
        if number == 0:
            time.sleep(0.5)
        connection.sendall(ACCEPTED)

    with listening(stall_once) as listener:
        record = drive(plan_for(listener, requests_per_target=1000, seconds=0.5, connections=1, rate_per_second=100))

    # Half of the requests were due in the first half of the stall, and waited during the second half.
    assert record.p50_ms > 200
    assert record.latest_start_ms > 400


def test_percentiles_are_ordered_and_in_milliseconds():
    def answer_late(connection: socket, number: int) -> None:
        time.sleep(0.02)
        connection.sendall(ACCEPTED)

    with listening(answer_late) as listener:
        record = drive(plan_for(listener))

    assert 20 <= record.p50_ms <= record.p90_ms <= record.p99_ms <= record.p999_ms <= record.max_ms < 5_000


def test_record_can_be_converted_to_json_and_back():
    with listening(accept) as listener:
        record = drive(plan_for(listener))

    assert type(record)(**json.loads(json.dumps(dataclasses.asdict(record)))) == record


@pytest.mark.parametrize(
    ("per_second", "seconds", "per_target", "targets"),
    [(20_000, 8, 50, 3_200), (500, 10, 50, 100), (1, 1, 50, 1), (101, 1, 50, 3)],
)
def test_number_of_targets_suffices_for_the_whole_load(per_second, seconds, per_target, targets):
    assert targets_needed(requests_per_second=per_second, seconds=seconds, requests_per_target=per_target) == targets
