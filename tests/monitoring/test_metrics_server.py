"""Who can read the metrics, and what clients can't do to the server."""

import http.client
import socket
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from hookmill.app import metrics_server
from hookmill.app.metrics_server import CONNECTIONS_MAX, HEADER_BYTES_MAX, MetricsServer
from tests.support.ports import free_port, is_free
from tests.support.waiting import LONG_SECONDS, until

TOKEN = "a-token-of-prometheus-4711"


class Serving:
    """A server on this machine. `render` is what it serves."""

    def __init__(self, directory: Path, token: str | None = None, *, port: int | None = None):
        self.port = port or free_port()
        self.events: list[str] = []
        self.render = lambda: b"some 1\n"
        self.server = MetricsServer(
            "127.0.0.1",
            self.port,
            token,
            lambda: self.render(),
            lock=directory / "metrics.lock",
            report_failure=lambda component, error: self.events.append(f"{component}: {error}"),
            report_recovery=lambda component, what: self.events.append(f"{component}: {what}"),
            report_shared=self.events.append,
        )

    def ask(self, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()

    def close(self):
        self.server.close()


@pytest.fixture
def serve(tmp_path):
    with ExitStack() as stack:

        def start(token: str | None = None) -> Serving:
            serving = stack.enter_context(closing(Serving(tmp_path, token)))
            until(lambda: answered(serving), "the server answers")
            until(lambda: serving.server._connection_count == 0, "it has closed the connection")
            return serving

        yield start


def test_metrics_are_served_without_a_token_if_none_is_set(serve):
    assert serve().ask() == (200, b"some 1\n")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer   {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer ", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer \xfc", 401),
    ],
)
def test_only_the_token_opens_the_metrics(serve, authorization, status):
    assert serve(TOKEN).ask(Authorization=authorization)[0] == status


def test_client_without_a_token_learns_nothing(serve):
    serving = serve(TOKEN)

    assert [serving.ask(path)[0] for path in ("/metrics", "/", "/else")] == [401] * 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics?name=x", 200),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("HEAD", "/metrics", 405),
    ],
)
def test_other_requests_are_refused(serve, method, path, status):
    assert serve().ask(path, method)[0] == status


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 200), ("localhost:9", 200), ("attacker.example", 421)])
def test_page_of_another_host_cannot_read_metrics_that_need_no_token(serve, host, status):
    assert serve().ask(Host=host)[0] == status


def test_slow_client_does_not_keep_others_waiting(serve):
    serving = serve()
    with socket.create_connection(("127.0.0.1", serving.port)) as slow:
        slow.sendall(b"GET /metrics HT")

        assert serving.ask()[0] == 200


def test_slow_client_is_disconnected(serve, monkeypatch):
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.2)
    serving = serve()
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")

        assert was_closed(slow)


def test_client_that_does_not_read_is_disconnected(serve, monkeypatch):
    # The server must have read the request before.
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 2.0)
    serving = serve()
    is_rendered = threading.Event()

    def render():
        is_rendered.set()
        return b"x" * 50_000_000

    serving.render = render
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_rendered.wait(LONG_SECONDS)
        until(lambda: serving.server._connection_count == 0, "the server has closed the connection")

    serving.render = lambda: b"some 1\n"
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", LONG_SECONDS)
    assert serving.ask() == (200, b"some 1\n")


@pytest.mark.parametrize(
    "sent", [b"\0" * 100_000, b"GET /" + b"x" * HEADER_BYTES_MAX * 2, b"\r\n\r\n", b"\xff\r\n\r\n"]
)
def test_nonsense_does_not_disturb_the_server(serve, sent):
    serving = serve()
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as client:
        # The server may have closed the connection before.
        with suppress(OSError):
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
        was_closed(client)

    assert serving.ask()[0] == 200
    assert serving.events == []


def test_number_of_connections_is_limited(serve):
    serving = serve()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(socket.create_connection(("127.0.0.1", serving.port)))
        until(lambda: serving.server._connection_count == CONNECTIONS_MAX, "all are connected")

        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as further:
            assert was_closed(further)

    assert until(lambda: answered(serving), "the server answers again")


def test_requests_at_the_same_time_share_one_rendering(serve):
    serving = serve()
    renderings = []
    finish = threading.Event()

    def render():
        renderings.append(1)
        finish.wait()
        return b"some 1\n"

    serving.render = render
    results: list[tuple[int, bytes]] = []
    clients = [threading.Thread(target=lambda: results.append(serving.ask())) for _ in range(4)]
    for client in clients:
        client.start()
    # Each request that shares the rendering adds a callback to it, and the server adds another.
    until(lambda: len(getattr(serving.server._rendering, "_callbacks", None) or ()) == 5, "all requests wait")
    finish.set()
    for client in clients:
        client.join()

    assert results == [(200, b"some 1\n")] * 4
    assert len(renderings) == 1


def test_fault_of_the_rendering_is_logged_and_does_not_end_the_server(serve):
    serving = serve()

    def fail():
        raise ZeroDivisionError

    serving.render = fail
    with pytest.raises((http.client.HTTPException, OSError)):
        serving.ask()
    serving.render = lambda: b"some 1\n"

    assert serving.ask()[0] == 200
    assert serving.events == ["metrics: "]


def test_port_in_use_is_reported_once_and_tried_again(monkeypatch, tmp_path):
    monkeypatch.setattr(metrics_server, "LISTEN_RETRY_SECONDS", 0.01)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        serving = Serving(tmp_path, port=port)
        until(lambda: serving.events, "the failure is reported")
    answer = until(lambda: answered(serving), "the server listens")
    serving.close()

    assert answer == (200, b"some 1\n")
    assert len(serving.events) == 2
    assert f"port {port}: " in serving.events[0]
    assert "They are served" in serving.events[1]


def test_second_worker_of_a_data_directory_reports_no_failure(serve, monkeypatch, tmp_path):
    monkeypatch.setattr(metrics_server, "LISTEN_RETRY_SECONDS", 0.01)
    first = serve()

    second = Serving(tmp_path, port=first.port)
    until(lambda: second.events, "the second one reports")
    first.close()
    until(lambda: len(second.events) == 2, "the second one takes over")
    second.close()

    assert second.events == [
        f"Another worker of this data directory serves the metrics of both on 127.0.0.1 port {first.port}.",
        f"metrics: They are served on 127.0.0.1 port {first.port}.",
    ]


def test_closed_server_frees_its_port(serve):
    serving = serve()

    serving.close()

    assert is_free(serving.port)


def was_closed(client: socket.socket) -> bool:
    """Read until the server closes the connection."""
    try:
        while client.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


def answered(serving: Serving) -> tuple[int, bytes] | None:
    try:
        return serving.ask()
    except (OSError, http.client.HTTPException):
        return None
