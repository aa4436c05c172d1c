"""Messages arrive at real receivers. Receivers that misbehave, and addresses that are not public, are reported."""

import json
import socket
import ssl
import threading
import time
from typing import Any, Final

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from hookmill.domain.alarm_destination import SlackTarget, Target, WebhookTarget, parsed_url
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.secret import SecretValue
from hookmill.domain.signatures.key import make_secret
from hookmill.domain.signatures.rule import scheme_named
from hookmill.notices.outgoing import Outgoing
from hookmill.outbound import http
from hookmill.outbound.connection import LOOKUPS_MAX, MessageDeadline, connected
from tests.domain.test_alarm_message import MESSAGE
from tests.notices.receivers import closed_port, http_receiver
from tests.outbound.forward_proxy import forward_proxy
from tests.support.waiting import stalls

SECONDS: Final = 0.4
"""The deadline of these tests. A receiver that ignores it takes at least 20 s."""
SECRET: Final = make_secret(scheme_named("standard_webhooks", None), b"e" * 64)


def outgoing(*, allows_private: bool = True, tls: ssl.SSLContext | None = None, seconds: float = 10) -> Outgoing:
    return Outgoing(
        mail_server=None,
        tls=lambda: tls or ssl.create_default_context(),
        allows_private=allows_private,
        now_us=lambda: time.time_ns() // 1000,
        seconds=seconds,
    )


def webhook(url: str) -> Target:
    return WebhookTarget(SecretValue(url), SECRET)


def test_webhook_is_verified_by_the_published_library(receiver):
    outgoing().send(webhook(receiver.url()), MESSAGE)

    [request] = receiver.requests
    verified = Webhook(SECRET.reveal()).verify(request.body, request.headers)
    assert verified["type"] == "alarm.raised"
    assert request.headers["webhook-id"] == MESSAGE.id
    assert request.headers["content-type"] == "application/json"
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET.reveal()).verify(request.body + b" ", request.headers)


def test_message_is_sent_through_the_proxy(receiver, monkeypatch):
    with forward_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        outgoing().send(webhook(receiver.url()), MESSAGE)

    assert proxy.requests == [f"POST {receiver.url()} HTTP/1.1"]
    assert len(receiver.requests) == 1


def test_receiver_at_an_ipv6_address_gets_the_message():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as silent:
        url = f"http://[::1]:{silent.getsockname()[1]}/secret"
        with pytest.raises(DestinationUnavailable, match=f"did not answer within {SECONDS:g} seconds"):
            outgoing(seconds=SECONDS).send(webhook(url), MESSAGE)
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(4_096).startswith(b"POST /secret HTTP/1.1\r\nhost: [::1]:")


def test_chat_gets_one_text(receiver):
    outgoing().send(SlackTarget(SecretValue(receiver.url("/services/secret?x=1"))), MESSAGE)

    [request] = receiver.requests
    assert request.path == "/services/secret?x=1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert json.loads(request.body)["text"].startswith("Alarm: The webhook has accepted no delivery")


def test_certificate_must_be_trusted_and_have_the_hosts_name(certificate, tls):
    # The whole network 127.0.0.0/8 is this machine, but the certificate has only one of its addresses.
    with http_receiver(certificate) as receiver, http_receiver(certificate, host="127.0.0.2") as other:
        outgoing(tls=tls).send(webhook(receiver.url(host="localhost")), MESSAGE)
        outgoing(tls=tls).check(webhook(receiver.url(host="localhost")))
        with pytest.raises(DestinationUnavailable, match="is not valid: unable to get local issuer certificate"):
            outgoing().check(webhook(receiver.url()))
        with pytest.raises(
            DestinationUnavailable, match=r"The certificate of https://127\.0\.0\.2:\d+ is not valid: IP"
        ):
            outgoing(tls=tls).send(webhook(other.url(host="127.0.0.2")), MESSAGE)
        with pytest.raises(DestinationUnavailable, match="is not valid: unable to get local issuer certificate"):
            outgoing().send(webhook(receiver.url()), MESSAGE)

    assert (len(receiver.requests), other.requests) == (1, [])


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/status/500", "answered with the status 500."),
        ("/status/404", "answered with the status 404."),
        ("/redirect", "answered with a redirect (302). Enter the URL that it leads to."),
        ("/garbage", "did not answer as an HTTP server must."),
        ("/close", "did not answer as an HTTP server must."),
        ("/headers", "did not answer as an HTTP server must."),
    ],
)
def test_bad_answer_is_reported_without_the_path_and_the_answer(receiver, path, problem):
    with pytest.raises(DestinationUnavailable) as failure:
        outgoing().send(webhook(receiver.url(path)), MESSAGE)

    assert str(failure.value) == f"http://127.0.0.1:{receiver.port} {problem}"
    # A redirect is not followed.
    assert [request.path for request in receiver.requests] == [path]


def test_words_of_a_public_receiver_are_shown_and_those_of_a_private_one_are_not(receiver):
    """Nobody but the operator may read what a private address answers."""
    url = parsed_url(SecretValue(receiver.url("/status/403")))
    options: dict[str, Any] = {"tls": ssl.create_default_context}

    problems = []
    for permits in (lambda _: True, None):
        with pytest.raises(DestinationUnavailable) as failure:
            http.post(url, b"", {}, MessageDeadline(5), permits=permits, **options)
        problems.append(str(failure.value).removeprefix(url.origin))

    assert problems == [
        ' answered with the status 403: "secret-of-the-receiver".',
        " answered with the status 403.",
    ]


@pytest.mark.parametrize("path", ["/silent", "/drip", "/continue"])
def test_receiver_that_does_not_finish_its_answer_is_cut_off(receiver, path):
    began_at = time.monotonic()

    with (
        stalls() as stalls_seconds,
        pytest.raises(DestinationUnavailable, match=f"did not answer within {SECONDS:g} seconds"),
    ):
        outgoing(seconds=SECONDS).send(webhook(receiver.url(path)), MESSAGE)

    assert time.monotonic() - began_at - sum(stalls_seconds) < 10


def test_body_of_the_answer_is_not_read(receiver):
    began_at = time.monotonic()

    with stalls() as stalls_seconds:
        outgoing().send(webhook(receiver.url("/endless")), MESSAGE)

    assert time.monotonic() - began_at - sum(stalls_seconds) < 5


def test_receiver_that_accepts_no_connection_is_reported():
    with closed_port() as port, pytest.raises(DestinationUnavailable, match=f"connect to http://127.0.0.1:{port}: Con"):
        outgoing().send(webhook(f"http://127.0.0.1:{port}/secret"), MESSAGE)


def test_server_that_never_finishes_the_tls_handshake_is_cut_off(tls):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(DestinationUnavailable, match=f"did not answer within {SECONDS:g} seconds"):
            outgoing(tls=tls, seconds=SECONDS).send(webhook(url), MESSAGE)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "0.0.0.0",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
    ],
)
def test_host_without_a_public_address_gets_no_connection(receiver, host):
    with pytest.raises(DestinationUnavailable) as failure:
        outgoing(allows_private=False).send(webhook(receiver.url("/secret", host=host)), MESSAGE)

    assert "has no public address, so nothing was sent" in str(failure.value)
    assert receiver.requests == []


def test_name_is_looked_up_once_and_the_checked_address_is_used(receiver, monkeypatch):
    """A server of names that gives another address to a second look-up gains nothing."""
    answers = [["127.0.0.2", "127.0.0.1"], ["127.0.0.2"]]
    resolver = socket.getaddrinfo

    def look_up(host, *rest, **options):
        if host != "rebinding.example":
            # An address is parsed by the same function.
            return resolver(host, *rest, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answers.pop(0)]

    # The system's resolver is replaced here; the code of the service is not.
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    checked: list[str] = []

    def permits(address):
        checked.append(str(address))
        return str(address) == "127.0.0.1"

    url = parsed_url(SecretValue(receiver.url(host="rebinding.example")))
    http.post(url, b"", {}, MessageDeadline(5), tls=ssl.create_default_context, permits=permits)

    assert len(receiver.requests) == 1
    assert checked == ["127.0.0.2", "127.0.0.1"]
    assert len(answers) == 1


def test_peer_of_a_name_with_several_addresses_may_use_all_the_time(receiver, monkeypatch):
    resolver = socket.getaddrinfo

    def look_up(host, *rest, **options):
        if host != "many.example":
            return resolver(host, *rest, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 0)) for last in (1, 2, 3, 4)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    with connected("many.example", receiver.port, MessageDeadline(60), where="it") as connection:
        timeout = connection.gettimeout()

    # A quarter of the time is for connecting to the first of four addresses.
    assert timeout is not None
    assert timeout > 30


def test_lookup_that_hangs_is_cut_off(monkeypatch):
    is_over = threading.Event()

    def hang(*_, **__):
        is_over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)

    try:
        with pytest.raises(DestinationUnavailable, match=f"did not answer within {SECONDS:g} seconds"):
            outgoing(seconds=SECONDS).send(webhook("https://slow.example/"), MESSAGE)
    finally:
        is_over.set()


def test_lookups_continue_after_the_system_had_no_thread_left(receiver, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    url = receiver.url(host="localhost")
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", fail)
        for _ in range(LOOKUPS_MAX):
            with pytest.raises(RuntimeError):
                outgoing().send(webhook(url), MESSAGE)

    outgoing().send(webhook(url), MESSAGE)

    assert len(receiver.requests) == 1


def test_unknown_name_is_reported(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    with pytest.raises(DestinationUnavailable, match=r"The name of https://unknown\.example has no address"):
        outgoing().send(webhook("https://unknown.example/secret"), MESSAGE)
