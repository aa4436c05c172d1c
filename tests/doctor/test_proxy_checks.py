"""`doctor --through URL` finds what a proxy changes, and says which directive to change. nginx and Caddy are real."""

import os
import re
import signal
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hookmill.app.doctor.exchange import Connection, NoResponse, Origin, request_head
from hookmill.app.doctor.proxy_checks import SLOW_BODY, Options, examine_through
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.finding import Examination, Finding, Status
from hookmill.domain.probe import NAME_PREFIX, SECRET_NAME_PREFIX
from hookmill.settings import Settings
from tests.support.counts import one_usually, only_in_proof
from tests.support.loaded import Command
from tests.support.proxies import PROXY_ADDRESS, Proxy, proxy_place
from tests.support.service import Service, serving
from tests.support.waiting import LONG_SECONDS, until

SHORT_PAUSES = (0.1,)
CACHE = "proxy_cache answers; proxy_cache_methods POST; proxy_cache_key $uri; proxy_cache_valid any 1m;"
CACHE += " proxy_ignore_headers Cache-Control;"
BUFFERS = "large_client_header_buffers 4 32k;"
LOCATION = "location / {"


def options(proxy: Proxy, **choices: object) -> Options:
    common = Options(ca_file=proxy.ca_file, http_port=proxy.http_port, pauses_seconds=SHORT_PAUSES)
    return replace(common, **choices)  # type: ignore[arg-type]


def complaints(examination: Examination) -> list[Finding]:
    return [finding for finding in examination.findings if finding.status is not Status.OK]


def leftovers(service: Service) -> list[str]:
    """The names of everything that belongs to a `doctor`."""
    with service.management() as management:
        may = management.access.operator("default")
        webhooks = [webhook.name for webhook in management.webhooks.all(may)]
        secrets = [secret.name for secret in management.secrets.all(may)]
    return [name for name in webhooks + secrets if name.startswith((NAME_PREFIX, SECRET_NAME_PREFIX))]


# Good deployments


def test_sample_configuration_of_nginx_has_no_problem(service, proxy):
    with proxy.nginx(service.port):
        examination = examine_through(service.read_settings(), proxy.url, options(proxy))

    assert complaints(examination) == [], "\n".join(map(str, complaints(examination)))
    assert examination.not_checked == ()
    assert [finding.check for finding in examination.findings] == [
        "TLS", "delivery", "body", "large body", "firewall", "headers", "path", "responses", "client address",
        "slow body",
    ]  # fmt: skip
    assert leftovers(service) == []


def test_sample_configuration_of_caddy_has_no_problem(tmp_path, proxy):
    with serving(tmp_path, base_url=proxy.url, trusted_proxies="127.0.0.1") as service, proxy.caddy(service.port):
        examination = examine_through(service.read_settings(), proxy.url, options(proxy))

    assert complaints(examination) == [], "\n".join(map(str, complaints(examination)))


@pytest.mark.parametrize("limits", [{}, {"deliveries_per_minute": 10, "failed_authentications_per_minute": 5}])
def test_service_without_a_proxy_has_no_problem(tmp_path, limits):
    with serving(tmp_path, **limits) as service:
        url = f"http://127.0.0.1:{service.port}"

        examination = examine_through(service.read_settings(), url, Options(pauses_seconds=SHORT_PAUSES))

    # A low rate limit is shared by several webhooks.
    assert complaints(examination) == [], "\n".join(map(str, complaints(examination)))


# What proxies change


@pytest.mark.parametrize(
    ("check", "status", "changes", "observation", "directive"),
    one_usually(
        3,
        [
            (
                "large body",
                "problem",
                {"client_max_body_size 1m;": "client_max_body_size 100k;"},
                "262,144",
                "max_body_size 1m",
            ),
            ("headers", "warning", {"underscores_in_headers on;": ""}, "was dropped", "underscores_in_headers on;"),
            ("headers", "warning", {BUFFERS: "large_client_header_buffers 4 2k;"}, "header of 7,000", BUFFERS),
            (
                "headers",
                "problem",
                {LOCATION: f'{LOCATION} proxy_set_header Webhook-Id "";'},
                "signed like standard_webhooks",
                "all request",
            ),
            (
                "firewall",
                "problem",
                {BUFFERS: 'if ($http_user_agent = "") { return 403; }'},
                "403 by nginx",
                "firewall",
            ),
            ("body", "problem", {BUFFERS: 'if ($content_length = "") { return 411; }'}, "411", "content_length"),
            ("path", "problem", {"http://hookmill;": "http://hookmill/;"}, "double slash", "not even a slash"),
            ("path", "problem", {"http://hookmill;": "http://hookmill$uri;"}, "whose signature", "without $uri"),
            ("responses", "problem", {LOCATION: f"{LOCATION} limit_except POST {{ deny all; }}"}, "403", "replace"),
            (
                "responses",
                "problem",
                {"gzip off;": "proxy_intercept_errors on; error_page 401 https://example.com/;"},
                "a wrong token: the response was 302",
                "proxy_intercept_errors off;",
            ),
            (
                "responses",
                "problem",
                {LOCATION: f"{LOCATION} proxy_hide_header Allow;"},
                "the header allow of the response 405 was changed or removed",
                "no `proxy_hide_header`",
            ),
            (
                "responses",
                "problem",
                {
                    "limit_conn_zone": "proxy_cache_path cache keys_zone=answers:1m; limit_conn_zone",
                    "proxy_buffering off;": CACHE,
                },
                "same delivery id",
                "proxy_cache off;",
            ),
            (
                "client address",
                "problem",
                {"proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;": ""},
                "a client can choose the address",
                "$proxy_add_x_forwarded_for;",
            ),
            (
                "client address",
                "problem",
                {"$proxy_add_x_forwarded_for;": '"";'},
                "a trusted proxy, as the client's address",
                "$proxy_add_x_forwarded_for;",
            ),
            (
                "TLS",
                "warning",
                {"return 308 https://$host$request_uri;": "location / { proxy_pass http://hookmill; }"},
                "passes on deliveries without TLS",
                "return 308",
            ),
            (
                SLOW_BODY,
                "problem",
                {BUFFERS: "client_body_timeout 1s;"},
                "reset the connection|closed the connection|a body that took",
                "client_body_timeout 60s;",
            ),
        ],
    ),
)
def test_change_by_nginx_is_found_with_its_directive(service, proxy, check, status, changes, observation, directive):
    pauses = (1.5,) if check == SLOW_BODY else SHORT_PAUSES
    with proxy.nginx(service.port, changes):
        examination = examine_through(
            service.read_settings(), proxy.url, options(proxy, only=frozenset({check}), pauses_seconds=pauses)
        )

    assert any(
        finding.status == status and re.search(observation, finding.observation) and directive in finding.advice
        for finding in complaints(examination)
    ), "\n".join(map(str, complaints(examination)))
    assert leftovers(service) == []


@pytest.mark.parametrize(
    ("changes", "observation", "directive"),
    [
        ({LOCATION: f'{LOCATION} proxy_set_header Authorization "";'}, "401 by Hookmill", "Authorization header"),
        ({"http://hookmill;": "http://hookmill/other/;"}, "404 by Hookmill", "without a path"),
        ({BUFFERS: "return 301 https://example.com/;"}, "301 by nginx", "another URL is right"),
        ({LOCATION: f"{LOCATION} deny all;"}, "403 by nginx", "firewall"),
    ],
)
def test_proxy_that_loses_deliveries_stops_the_checks(service, proxy, changes, observation, directive):
    with proxy.nginx(service.port, changes):
        examination = examine_through(service.read_settings(), proxy.url, options(proxy))

    (complaint,) = complaints(examination)
    assert complaint.status is Status.PROBLEM
    assert observation in complaint.observation
    assert directive in complaint.advice
    assert "body" in examination.not_checked


def test_proxy_without_a_service_gets_advice_about_the_service(service, proxy):
    with proxy.nginx(1):
        examination = examine_through(service.read_settings(), proxy.url, options(proxy))

    (complaint,) = complaints(examination)
    assert "502 by nginx" in complaint.observation
    assert "Check that the service runs" in complaint.advice


def test_other_installation_behind_the_url_is_a_problem(service, proxy, tmp_path):
    with serving(tmp_path) as other, proxy.nginx(other.port):
        examination = examine_through(service.read_settings(), proxy.url, options(proxy))

    (complaint,) = complaints(examination)
    assert "404 by Hookmill" in complaint.observation
    assert "Another Hookmill answered" in complaint.advice


@pytest.mark.parametrize(
    ("check", "changes", "observation", "directive"),
    [
        (
            "large body",
            {"reverse_proxy": "request_body {\n\t\tmax_size 100KB\n\t}\n\n\treverse_proxy"},
            "262,144",
            "max_size 1MB",
        ),
        ("path", {"reverse_proxy": "uri strip_suffix /\n\treverse_proxy"}, "slash at its end", "`uri`"),
        (
            "headers",
            {"transport http": "header_up -X-Hub-Signature-256\n\t\ttransport http"},
            "signed like github",
            "`header_up -…`",
        ),
    ],
)
def test_change_by_caddy_is_found_with_its_directive(service, proxy, check, changes, observation, directive):
    with proxy.caddy(service.port, changes):
        examination = examine_through(service.read_settings(), proxy.url, options(proxy, only=frozenset({check})))

    assert any(
        observation in finding.observation and directive in finding.advice for finding in complaints(examination)
    ), "\n".join(map(str, complaints(examination)))


@pytest.mark.parametrize(
    ("trusted", "observation", "instruction"),
    [
        ([], "is probably the proxy's", "Set trusted_proxies"),
        # The proxy connects from one of these addresses, and this client, on the same host, from the other.
        ([PROXY_ADDRESS, "127.0.0.1"], "is itself a trusted proxy", "on another host"),
        # The client is at 127.0.0.1, and its own header is believed.
        (["127.0.0.0/8"], "a client can choose the address", "to nothing else"),
    ],
)
def test_wrong_trusted_proxies_are_found(tmp_path, proxy, trusted, observation, instruction):
    with (
        serving(tmp_path, base_url=proxy.url, trusted_proxies=",".join(trusted)) as service,
        proxy.nginx(service.port),
    ):
        examination = examine_through(
            service.read_settings(), proxy.url, options(proxy, only=frozenset({"client address"}))
        )

    (complaint,) = complaints(examination)
    assert observation in complaint.observation
    assert instruction in complaint.advice


def test_expired_certificate_is_a_problem_and_the_other_checks_are_made(service, proxy, tmp_path):
    expired = replace(proxy_place(tmp_path, days=-1), port=proxy.port, http_port=proxy.http_port)
    with expired.nginx(service.port):
        examination = examine_through(service.read_settings(), proxy.url, options(expired, only=frozenset({"path"})))

    (complaint,) = complaints(examination)
    assert (complaint.check, complaint.status) == ("TLS", Status.PROBLEM)
    assert "certificate has expired" in complaint.observation
    assert "authority" not in complaint.advice
    assert "path" in {finding.check for finding in examination.findings}


def test_certificate_that_ends_soon_is_a_warning(service, proxy, tmp_path):
    ending = replace(proxy_place(tmp_path, days=5), port=proxy.port, http_port=proxy.http_port)
    with ending.nginx(service.port):
        examination = examine_through(service.read_settings(), proxy.url, options(ending, only=frozenset()))

    (complaint,) = complaints(examination)
    assert complaint.status is Status.WARNING
    assert "valid for 5 days" in complaint.observation


# Temporary webhooks


@pytest.mark.parametrize("number", [signal.SIGINT, only_in_proof(signal.SIGTERM)])
def test_interrupted_doctor_removes_its_webhooks(service, tmp_path, number):
    command = started_doctor(service, tmp_path)

    os.kill(command.pid, number)
    command.wait(LONG_SECONDS)

    assert leftovers(service) == []


def test_next_doctor_removes_what_a_killed_one_left(service, proxy, tmp_path):
    command = started_doctor(service, tmp_path)
    with pytest.raises(Conflict, match="Another `hookmill doctor --through`"):
        examine_through(service.read_settings(), f"http://127.0.0.1:{service.port}", options(proxy))
    os.killpg(command.pid, signal.SIGKILL)
    command.wait(LONG_SECONDS)
    left = leftovers(service)

    examine_through(
        service.read_settings(), f"http://127.0.0.1:{service.port}", options(proxy, only=frozenset({"body"}))
    )

    assert left != []
    assert leftovers(service) == []


def started_doctor(service: Service, directory: Path) -> Command:
    """A `doctor` that has created its first webhooks. Its slow body takes 16 seconds."""
    arguments = ["doctor", "--through", f"http://127.0.0.1:{service.port}"]
    command = Command(arguments, service.environment(), directory, directory / "output")
    until(lambda: len(leftovers(service)) >= 2, "the doctor has created webhooks")
    return command


def test_rows_of_temporary_webhooks_are_removed_from_the_log(service, proxy):
    examine_through(
        service.read_settings(), f"http://127.0.0.1:{service.port}", options(proxy, only=frozenset({"body"}))
    )

    with service.management() as management:
        may = management.access.operator("default")
        names = {row.webhook_name for row in management.log.newest(may, limit=500)}

    assert not any(name.startswith(NAME_PREFIX) for name in names)


@pytest.mark.parametrize(
    "url", ["hooks.example.com", "ftp://x", "https://", "https://a@b", "https://x/?q", "http://x:y"]
)
def test_unusable_url_is_refused(service, proxy, url):
    with pytest.raises(Invalid, match="not the URL of a service"):
        examine_through(service.read_settings(), url, options(proxy))


# Servers that are no Hookmill


@pytest.fixture
def endless_server():
    """A server that answers every request 200 with a body without end."""
    ends = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            while not ends.wait(0.01):
                try:
                    self.wfile.write(b"x" * 65_536)
                except OSError:
                    return

        def log_message(self, *_: object):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        ends.set()
        server.shutdown()
        thread.join()


def test_answer_without_an_end_is_read_up_to_a_bound(service, proxy, endless_server):
    examination = examine_through(service.read_settings(), endless_server, options(proxy))

    (complaint,) = complaints(examination)
    assert complaint.check == "delivery"
    assert "200 by" in complaint.observation


def test_host_where_nothing_listens_is_a_problem(service, proxy):
    settings: Settings = service.read_settings()

    examination = examine_through(settings, "http://127.0.0.1:1", options(proxy))

    (complaint,) = complaints(examination)
    assert "refused the connection: nothing listens there" in complaint.observation
    assert leftovers(service) == []


def test_missing_answer_names_the_deadline_that_applied():
    with socket.create_server(("127.0.0.1", 0)) as server:
        origin = Origin.of(f"http://127.0.0.1:{server.getsockname()[1]}")
        with Connection(origin, 0.1) as connection:
            connection.send(request_head("GET", "/", [("Host", origin.authority)]))
            with pytest.raises(NoResponse, match=r"^did not answer within 0\.1 s$"):
                connection.response("GET")
