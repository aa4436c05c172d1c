"""The dashboard and the API accept only host names that no other site can have. This prevents DNS rebinding. Deliveries
and health checks accept any host name."""

import subprocess
import sys

import pytest

from hookmill.domain.permission import Role
from hookmill.web.hosts import OwnHosts
from tests.support.service import Service, create_webhook
from tests.support.waiting import LONG_SECONDS


@pytest.mark.parametrize(
    "host",
    [
        "hooks.example.com",
        "Hooks.Example.COM:443",
        "localhost:8420",
        "hookmill:8420",
        "hook_mill-1",
        "127.0.0.1:8420",
        "192.0.2.7",
        "[::1]:8420",
        "[2001:db8::1]",
        "hooks.example.com:",
        "",
    ],
)
def test_host_name_of_the_service_is_accepted(host):
    assert OwnHosts("https://hooks.example.com/below").includes([(b"host", host.encode())])


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:8420",
        "hooks.example.com.evil.test",
        "evil.test:hooks.example.com",
        "hooks.example.com:80:80",
        "me@localhost",
        "127.0.0.1.evil.test",
        "127.0.0.1 ",
        "[evil.test]",
        "[",
        ":",
        "hooks.example.com/",
        "localhost.",
    ],
)
def test_host_name_of_another_site_is_refused(host):
    assert not OwnHosts("https://hooks.example.com").includes([(b"host", host.encode("latin-1"))])


def test_service_without_a_base_url_refuses_every_domain_name():
    own_hosts = OwnHosts("http://127.0.0.1:8420")

    assert own_hosts.includes([(b"host", b"127.0.0.1:8420")])
    assert not own_hosts.includes([(b"host", b"evil.test:8420")])


def test_international_host_name_is_accepted_as_browsers_encode_it():
    assert OwnHosts("https://hööks.example.com").includes([(b"host", b"xn--hks-snaa.example.com")])


def test_idna_codec_is_loaded_before_processes_are_forked():
    code = "import sys, hookmill.app.serve; print('encodings.idna' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=LONG_SECONDS) == "True\n"


def test_rebound_host_name_reaches_neither_dashboard_nor_api(service, management):
    team = management.access.operator_of_team()
    key = management.keys.create(team, "rebound", Role.ADMIN).token.reveal()
    with_key = {"Authorization": f"Bearer {key}"}

    answers = {
        path: service.request("GET", path, headers={"Host": "evil.test"} | with_key)
        for path in ("/", "/sign-in", "/api/v1/me", "/api/v1/openapi.json")
    }

    assert {(answer.status, answer.json["code"]) for answer in answers.values()} == {(421, "misdirected_request")}
    assert "HOOKMILL_BASE_URL" in answers["/"].json["title"]
    assert service.request("GET", "/api/v1/me", headers={"Host": "localhost"} | with_key).status == 200


def test_deliveries_and_health_checks_accept_any_host_name(service: Service, management):
    webhook = create_webhook(management, "any host name")

    assert service.post(webhook, headers={"Host": "evil.test"}).status == 202
    for path in ("/healthz", "/readyz"):
        assert service.request("GET", path, headers={"Host": "evil.test"}).status == 200
