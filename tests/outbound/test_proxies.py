"""Requests to other hosts use the proxies of the environment, and say which proxy does not work."""

import base64
import ssl
from pathlib import Path

import pytest

from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.errors import DestinationUnavailable, Invalid
from hookmill.domain.networks import Address
from hookmill.domain.secret import SecretValue
from hookmill.outbound import http
from hookmill.outbound.answer_text import HIDDEN, quoted
from hookmill.outbound.connection import MessageDeadline
from hookmill.outbound.proxies import proxies_in_environment, proxy_for
from tests.notices.receivers import closed_port, http_receiver
from tests.outbound.forward_proxy import ForwardProxy, forward_proxy
from tests.support.certificates import certificates_in


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    certificates_in(directory)
    return directory


@pytest.fixture
def proxy():
    with forward_proxy() as proxy:
        yield proxy


def post(url: str, certificates: Path, *, checks_addresses: bool = False) -> int:
    def permits(address: Address) -> bool:
        return str(address) == "192.0.2.1"

    return http.request(
        "POST",
        parsed_url(SecretValue(url)),
        b"body",
        {},
        MessageDeadline(10),
        tls=lambda: ssl.create_default_context(cafile=str(certificates / "ca.pem")),
        permits=permits if checks_addresses else None,
    ).status


def address_of(proxy: ForwardProxy, scheme: str = "http", credentials: str = "") -> str:
    return f"{scheme}://{credentials}127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_request_with_tls_is_tunneled_through_the_proxy(variable, proxy, certificates, monkeypatch):
    monkeypatch.setenv(variable, address_of(proxy))
    with http_receiver((certificates / "server.pem", certificates / "key.pem")) as receiver:
        assert post(receiver.url(), certificates) == 200
        proxy.addresses["localhost"] = "127.0.0.2"
        with pytest.raises(DestinationUnavailable, match=f"https://localhost:{receiver.port}"):
            post(receiver.url(host="localhost"), certificates)

    assert [request.body for request in receiver.requests] == [b"body"]
    assert proxy.requests[0] == f"CONNECT 127.0.0.1:{receiver.port} HTTP/1.1"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_request_without_tls_is_forwarded_by_the_proxy(variable, proxy, certificates, monkeypatch):
    # Without a scheme, the proxy is one of HTTP.
    monkeypatch.setenv(variable, f"127.0.0.1:{proxy.port}")
    with http_receiver() as receiver:
        assert post(receiver.url("/status/404"), certificates) == 404

    assert proxy.requests == [f"POST http://127.0.0.1:{receiver.port}/status/404 HTTP/1.1"]
    assert receiver.requests[0].headers["host"] == f"127.0.0.1:{receiver.port}"


def test_ipv6_address_has_brackets_in_requests_to_a_proxy(proxy, certificates, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", address_of(proxy))
    proxy.addresses |= {"[2001:db8::1]": "127.0.0.1", "2001:db8::1": "127.0.0.1"}
    with http_receiver() as plain, http_receiver((certificates / "server.pem", certificates / "key.pem")) as encrypted:
        assert post(plain.url(host="[2001:db8::1]"), certificates) == 200
        with pytest.raises(DestinationUnavailable, match="is not valid: IP address mismatch"):
            post(encrypted.url(host="[2001:db8::1]"), certificates)

    assert proxy.requests == [
        f"POST http://[2001:db8::1]:{plain.port}/ok HTTP/1.1",
        f"CONNECT [2001:db8::1]:{encrypted.port} HTTP/1.1",
    ]


def test_proxy_with_tls_and_a_password_is_used(certificates, monkeypatch):
    certificate = certificates / "server.pem", certificates / "key.pem"
    with forward_proxy(certificate) as proxy, http_receiver(certificate) as receiver:
        proxy.authorization = f"Basic {base64.b64encode('user:p@ss wörd'.encode()).decode()}"
        monkeypatch.setenv("HTTPS_PROXY", address_of(proxy, "https", "user:p%40ss%20w%C3%B6rd@"))
        assert post(receiver.url(), certificates) == 200
        monkeypatch.setenv("HTTPS_PROXY", address_of(proxy, "https", "user:wrong-password@"))
        with pytest.raises(DestinationUnavailable) as failure:
            post(receiver.url(), certificates)

    refusal = (
        f'The proxy refused a connection to https://127.0.0.1:{receiver.port}: "407 Proxy Authentication Required".'
    )
    assert (str(failure.value), type(failure.value)) == (refusal, DestinationUnavailable)


@pytest.mark.parametrize(
    "words",
    ["Proxy-Authorization: Basic dXNlcjpTRUNSRVQtcGFzc3dvcmQ=", "SECRET-pass word is wrong", "SECRET%2Dpassword"],
)
def test_proxy_that_repeats_its_password_is_not_quoted(words, proxy, certificates, monkeypatch):
    proxy.authorization, proxy.refusal = "Basic another", words
    monkeypatch.setenv("HTTPS_PROXY", address_of(proxy, credentials="user:SECRET-password@"))

    with pytest.raises(DestinationUnavailable) as failure:
        post("https://127.0.0.1:1/", certificates)

    assert words not in str(failure.value)
    assert HIDDEN in str(failure.value)


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
@pytest.mark.parametrize("credentials", ["user:SECRET-password", "SECRET-password"])
def test_destination_that_repeats_the_password_of_the_proxy_is_not_quoted(scheme, credentials, monkeypatch):
    monkeypatch.setenv("https_proxy", f"{scheme}://{credentials}@127.0.0.1:1")

    assert quoted("Via: SECRET-password", ()) == HIDDEN
    assert quoted("Via: proxy", ()) == '"Via: proxy"'


def test_proxy_that_is_down_is_named_without_its_password(certificates, monkeypatch):
    with closed_port() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:canary@127.0.0.1:{port}")
        with pytest.raises(DestinationUnavailable) as failure:
            post("https://example.com/", certificates)

    assert str(failure.value) == f"Could not connect to the proxy 127.0.0.1:{port}: Connection refused."


def test_check_connects_through_the_proxy_and_sends_nothing(proxy, certificates, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", address_of(proxy))
    tls = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with http_receiver((certificates / "server.pem", certificates / "key.pem")) as receiver:
        http.check(parsed_url(SecretValue(receiver.url())), MessageDeadline(10), tls=lambda: tls)

    assert (len(proxy.requests), receiver.requests) == (1, [])


def test_private_address_is_refused_also_behind_a_proxy(proxy, certificates, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", address_of(proxy))
    # Only the proxy knows this name.
    proxy.addresses["receiver.invalid"] = "127.0.0.1"
    with http_receiver() as receiver:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(DestinationUnavailable, match="has no public address, so nothing was sent"):
                post(receiver.url(host=host), certificates, checks_addresses=True)
        assert proxy.requests == []
        assert post(receiver.url(host="receiver.invalid"), certificates, checks_addresses=True) == 200


@pytest.mark.parametrize(
    ("no_proxy", "is_excluded"),
    [
        ("*", True),
        ("example.com", True),
        ("api.example.com", True),
        (".example.com", True),
        ("*.example.com", True),
        ("API.EXAMPLE.COM.", True),
        ("other.example, example.com", True),
        ("other.example example.com", True),
        ("example.com:8443", True),
        ("example.com:443", False),
        ("ample.com", False),
        ("www.api.example.com", False),
        ("10.0.0.0/8", False),
        ("", False),
        (",", False),
    ],
)
def test_no_proxy_excludes_names(no_proxy, is_excluded, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)

    assert (proxy_for(parsed_url(SecretValue("https://api.example.com:8443/"))) is None) is is_excluded


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_excluded"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:443", True),
        ("10.1.2.3", "10.1.2.3:80", False),
        ("10.1.2.3", "192.168.0.0/16,nonsense/99", False),
        ("10.1.2.3", "2.3", False),
        ("[2001:db8::1]", "2001:db8::/32", True),
        ("[2001:db8::1]", "2001:DB8:0::1", True),
        ("[2001:db8::1]", "[2001:db8::1]", True),
        ("[2001:db8::1]", "[2001:db8::1]:443", True),
        ("[2001:db8::1]", "::1", False),
    ],
)
def test_no_proxy_excludes_addresses(host, no_proxy, is_excluded, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)

    assert (proxy_for(parsed_url(SecretValue(f"https://{host}/"))) is None) is is_excluded


@pytest.mark.parametrize(
    "proxy", ["socks5://user:canary@127.0.0.1:1080", "socks://127.0.0.1", "http://", "http://canary:pörts", "ftp://x"]
)
def test_proxy_that_cannot_be_used_is_named_without_its_url(proxy, monkeypatch):
    monkeypatch.setenv("all_proxy", proxy)
    url = parsed_url(SecretValue("https://api.example.com/"))

    with pytest.raises(Invalid, match="ALL_PROXY names a proxy") as failure:
        proxy_for(url)

    assert "canary" not in str(failure.value)
    assert list(proxies_in_environment()) == [(None, str(failure.value))]
    monkeypatch.setenv("NO_PROXY", "api.example.com")
    assert proxy_for(url) is None
    # Proxies for the two kinds of URLs replace the one for all.
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://[2001:db8::1]")
    proxies = [f"{proxy} of {variable}" for proxy, variable in proxies_in_environment()]
    assert proxies == ["proxy.example:3128 of HTTPS_PROXY", "[2001:db8::1]:80 of HTTP_PROXY"]
