"""Checks of `base_url` and of what proxies report: name, certificate, whether a Hookmill answers, and networks."""

import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_network
from typing import Final

from hookmill.app.doctor.database import clock_finding, inspected_tables
from hookmill.app.doctor.exchange import Connection, NoResponse, Origin, Response, request_head, tls_context
from hookmill.domain.finding import Finding, listed, ok, problem, warning
from hookmill.domain.networks import EVERY_CLIENT_IS_THE_PROXY, is_loopback
from hookmill.settings import Settings
from hookmill.store import factories, webhooks
from hookmill.web import errors
from hookmill.web.ingress import PREFIX

CERTIFICATE_DAYS_WARNED: Final = 14
BASE_URL_SECONDS: Final = 8.0
CLOCK_OF_HEADER_SECONDS: Final = 1.0
"""A Date header has whole seconds."""
UNKNOWN_UID: Final = "wh_" + "0" * 27
WIDE_PREFIX: Final = 7
"""A trusted network with at most this many bits of prefix contains public addresses, whose clients are no proxies."""

GATEWAY_ERRORS: Final = frozenset({502, 503, 504})
"""The statuses of proxies that can't reach the service."""
UPSTREAM: Final = (
    "The proxy can't reach a ready Hookmill. Check that the service runs, and the address after `proxy_pass` (nginx) "
    "or `reverse_proxy` (Caddy)."
)
_PASS_UNCHANGED: Final = "Let the proxy pass /webhooks/w/ to the service unchanged."
_RENEW: Final = "Renew the certificate, and check why it was not renewed automatically."
_REPAIR_OR_TRUST: Final = (
    "Check the names in the certificate, and let the proxy send the whole chain. If your own certificate authority has "
    "issued it, add the authority to those of this host, or name its file with --ca-file."
)


def check_base_url(settings: Settings, tls: ssl.SSLContext | None = None) -> Iterator[Finding]:
    """`tls` verifies the certificate; None for the system's certificate authorities."""
    if settings.base_url is None:
        if is_loopback(settings.host):
            yield ok(f"not set: senders on this host use {settings.public_url()}")
        else:
            yield warning(
                f"not set, so the URLs of webhooks begin with {settings.public_url()}",
                "Set base_url to the address that senders and people use.",
            )
        return
    origin = Origin.of(settings.base_url)
    yield from certificate_findings(origin, tls)
    if not origin.is_https and not is_loopback(origin.host):
        yield warning(
            f"{origin} has no TLS, so tokens and bodies can be read on the way",
            "Put a proxy with TLS in front, and set base_url to its https URL.",
        )
    path = f"{origin.path}{PREFIX.decode()}{UNKNOWN_UID}"
    try:
        # An unknown webhook leaves no trace.
        with Connection(origin, BASE_URL_SECONDS, tls=tls_context(verifies=False)) as connection:
            headers = [("Host", origin.authority), ("Content-Length", "2"), ("Connection", "close")]
            sent_at = time.time()
            connection.send(request_head("POST", path, headers) + b"{}")
            response = connection.response()
    except NoResponse as error:
        yield problem(f"{origin} {error}", "Check the DNS name, the firewall, and the proxy.")
        return
    if response.status == errors.NOT_FOUND.status and response.body == errors.NOT_FOUND.body:
        yield ok(f"a Hookmill answers at {origin}; `hookmill doctor --through {origin}` checks that it is this one")
    else:
        yield problem(
            f"{origin} answered {response.status} to a delivery, which is not Hookmill's answer",
            UPSTREAM if response.status in GATEWAY_ERRORS else _PASS_UNCHANGED,
        )
    yield from _clock_findings(response, sent_at, origin)


def certificate_findings(origin: Origin, tls: ssl.SSLContext | None = None) -> Iterator[Finding]:
    """The validity of the certificate of an https origin. `tls` verifies certificates."""
    if not origin.is_https:
        return
    try:
        with Connection(origin, BASE_URL_SECONDS, tls=tls or tls_context()) as connection:
            tls_socket = connection.tls_socket
            assert tls_socket is not None
            certificate, version = tls_socket.getpeercert(), tls_socket.version()
    except NoResponse as error:
        if "certificate" in str(error):
            yield problem(f"{origin} {error}", _RENEW if "has expired" in str(error) else _REPAIR_OR_TRUST)
        # Any other error is found by the request that follows.
        return
    assert certificate is not None
    ends = datetime.strptime(str(certificate["notAfter"]), "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    days = (ends - datetime.now(UTC)).days
    text = f"the certificate of {origin.host} is valid for {days} days (until {ends:%Y-%m-%d}), over {version}"
    if days < CERTIFICATE_DAYS_WARNED:
        yield warning(text, "Renew it, and check why it was not renewed automatically.")
    else:
        yield ok(text)


def _clock_findings(response: Response, sent_at: float, origin: Origin) -> Iterator[Finding]:
    try:
        date = parsedate_to_datetime(response.header("date") or "")
    except ValueError:
        return
    ahead_seconds = date.timestamp() - (sent_at + time.time()) / 2
    uncertainty_seconds = (time.time() - sent_at) / 2 + CLOCK_OF_HEADER_SECONDS
    yield replace(clock_finding(str(origin), ahead_seconds, uncertainty_seconds), check="clock")


def check_trusted_proxies(settings: Settings) -> Iterator[Finding]:
    wide = [network for network in settings.trusted_proxies if ip_network(network).prefixlen <= WIDE_PREFIX]
    if settings.lacks_trusted_proxies():
        yield warning(
            f"not set, and {settings.base_url} leads through a proxy: every client seems to have the proxy's address, "
            "so all of them share the limits of sign-ins",
            "Set trusted_proxies to the network of the proxy, such as 127.0.0.1.",
        )
    elif wide:
        yield problem(
            f"{', '.join(wide)} contains clients, which can then choose the address that Hookmill sees",
            "List only the addresses of your proxies.",
        )
    elif settings.trusted_proxies:
        yield ok(", ".join(settings.trusted_proxies))
    else:
        yield ok("not set, and no proxy is needed")


def check_allowed_networks(settings: Settings) -> Iterator[Finding]:
    with inspected_tables(settings) as tx:
        if tx is None:
            return
        limited = [
            f"{webhook.name!r} of factory {factory.name!r}"
            for factory in factories.all_factories(tx)
            for webhook in webhooks.in_factory(tx, factory.id)
            if webhook.allowed_networks
        ]
    if not limited:
        return
    text = f"these webhooks have allowed networks: {listed(limited)}"
    if settings.lacks_trusted_proxies():
        yield warning(text, EVERY_CLIENT_IS_THE_PROXY)
    else:
        yield ok(text)
