"""Checks of connections: TLS, HTTP/2, keep-alive, ambiguous framing, slow bodies, and the client's address."""

import ssl
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from itertools import zip_longest
from typing import Final

from hookmill.app.doctor.base_url import certificate_findings
from hookmill.app.doctor.exchange import (
    ANSWER_SECONDS,
    HTTP_PORT,
    HTTPS_PORT,
    Connection,
    Headers,
    NoResponse,
    Origin,
    Response,
    chunk,
    tls_context,
)
from hookmill.app.doctor.through import advice
from hookmill.app.doctor.through.comparison import delivery_id, description, is_from_hookmill
from hookmill.app.doctor.through.deliveries import body_of, finding_of_arrival
from hookmill.app.doctor.through.deployment import USER_AGENT, Deployment, OutOfTime, TooManyRequests
from hookmill.app.doctor.through.responses import WRONG_TOKEN
from hookmill.domain.delivery import Label
from hookmill.domain.finding import Finding, ok, problem, warning

CONTINUE_SECONDS: Final = 2.0
"""How long a client waits for the response 100. curl waits one second."""
FORGED_ADDRESS: Final = "203.0.113.77"
"""An address for documentation, which no client has."""


def check_expect(deployment: Deployment) -> Iterator[Finding]:
    name = "Expect"
    webhook, body = deployment.webhooks.for_delivery(), body_of()
    headers = [
        *webhook.authorization,
        ("Content-Length", str(len(body))),
        ("Expect", "100-continue"),
        ("Connection", "close"),
    ]
    with deployment.connect() as connection:
        connection.send(deployment.head("POST", webhook.path, headers))
        got_continue = connection.waits_for_body(CONTINUE_SECONDS)
        response = deployment.exchange(connection, body)
    if delivery_id(response) is None:
        text = f"a delivery with Expect: 100-continue was answered {description(response)}"
        yield problem(name, text, advice.EXPECT)
    elif not got_continue:
        text = f"a delivery with Expect: 100-continue got no response 100 within {CONTINUE_SECONDS:g} s"
        yield warning(name, text, advice.EXPECT)
    else:
        yield ok(name, "a delivery with Expect: 100-continue was accepted after the response 100")


def check_keep_alive(deployment: Deployment) -> Iterator[Finding]:
    name = "keep-alive"
    responses = []
    with deployment.connect() as connection:
        for _ in range(2):
            webhook, body = deployment.webhooks.for_delivery(), body_of()
            headers = [*webhook.authorization, ("Content-Length", str(len(body)))]
            try:
                responses.append(deployment.exchange(connection, deployment.head("POST", webhook.path, headers), body))
            except NoResponse:
                break
    if len(responses) == 2 and all(delivery_id(response) is not None for response in responses):
        yield ok(name, "a connection is used for several deliveries")
    else:
        yield warning(name, "a connection is closed after one delivery", advice.KEEP_ALIVE)


def check_framing(deployment: Deployment) -> Iterator[Finding]:
    """Requests with ambiguous lengths. Whichever length a proxy believes, no byte is left for a second request."""
    name = "framing"
    body = body_of()
    chunked = chunk(body) + chunk(b"")
    length = ("Content-Length", str(len(body)))
    requests: Sequence[tuple[str, Headers, bytes]] = (
        ("two equal lengths", [length, length], body),
        ("two different lengths", [length, ("Content-Length", str(len(body) + 1))], body + b" "),
        (
            "a length and chunks",
            [("Content-Length", str(len(chunked))), ("Transfer-Encoding", "chunked")],
            chunked,
        ),
    )
    accepted = []
    for kind, headers, content in requests:
        webhook = deployment.webhooks.for_delivery()
        with deployment.connect() as connection:
            head = deployment.head("POST", webhook.path, [*webhook.authorization, *headers, ("Connection", "close")])
            try:
                response = deployment.exchange(connection, head, content)
            except NoResponse:
                # The proxy refused the request by closing the connection.
                deployment.unanswered -= 1
                continue
        if not _is_safe(deployment, response, body):
            accepted.append(kind)
    if accepted:
        yield problem(
            name,
            f"the proxy passed on requests with {' and '.join(accepted)}, and changed their bodies",
            advice.FRAMING,
        )
    else:
        yield ok(name, "requests with ambiguous lengths are refused, or passed on with one length")


def _is_safe(deployment: Deployment, response: Response, body: bytes) -> bool:
    """Whether the request was refused, or recorded with this body."""
    identifier = delivery_id(response)
    if identifier is not None and deployment.installation is not None:
        stored = deployment.installation.payload(identifier)
        return stored is None or stored.rstrip() == body
    if identifier is not None:
        return True
    # Hookmill refuses invalid JSON with this code if the proxy passed on the chunk framing as part of the body.
    return not (is_from_hookmill(response) and b'"invalid_json"' in response.body)


def check_http2(deployment: Deployment) -> Iterator[Finding]:
    name = "HTTP/2"
    if not deployment.origin.is_https:
        return
    from hookmill.app.doctor.through.http2 import offers_http2, post

    with Connection(deployment.origin, tls=deployment.http2) as connection:
        if not offers_http2(connection):
            yield ok(name, "the proxy offers HTTP/1.1 only, which every sender speaks")
            return
        webhook, body = deployment.webhooks.for_delivery(), body_of()
        target = deployment.origin.path + webhook.path
        headers = [USER_AGENT, *webhook.authorization]
        response = post(connection, deployment.origin.authority, target, headers, body)
        deployment.responses.append(response)
    yield finding_of_arrival(deployment, name, response, body, "a delivery over HTTP/2", advice.HTTP2)


def check_tls(deployment: Deployment, verifying: ssl.SSLContext) -> Iterator[Finding]:
    name = "TLS"
    yield from certificate_findings(name, deployment.origin, verifying)
    if not deployment.origin.is_https:
        return
    old = tls_context(verifies=False)
    with suppress(ssl.SSLError, ValueError), warnings.catch_warnings():
        # Python warns of these versions, and OpenSSL refuses them on this side, too, unless the level is lowered.
        warnings.simplefilter("ignore", DeprecationWarning)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        with Connection(deployment.origin, tls=old):
            yield warning(name, "the proxy accepts TLS 1.1 or older", advice.TLS_VERSION)
    except NoResponse:
        yield ok(name, "the proxy refuses TLS 1.1 and older")


class SlowDelivery:
    """A delivery whose body takes long. A thread sends it, so that other checks are made meanwhile."""

    def __init__(self, deployment: Deployment, pauses_seconds: Sequence[float]) -> None:
        """`pauses_seconds`: the pauses between the parts of the body."""
        self._deployment = deployment
        self._pauses_seconds = pauses_seconds
        self._webhook = deployment.webhooks.for_delivery()
        self._body = body_of(filler="x" * 100)
        self._response: Response | None = None
        self._failure = ""
        self._thread = threading.Thread(target=self._send, name="slow delivery", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        part_bytes = len(self._body) // (len(self._pauses_seconds) + 1)
        parts = [self._body[start : start + part_bytes] for start in range(0, len(self._body), part_bytes)]
        headers = [*self._webhook.authorization, ("Content-Length", str(len(self._body))), ("Connection", "close")]
        try:
            with self._deployment.connect(seconds=self._seconds) as connection:
                connection.send(self._deployment.head("POST", self._webhook.path, headers))
                for part, pause_seconds in zip_longest(parts, self._pauses_seconds, fillvalue=0.0):
                    if isinstance(part, bytes):
                        connection.send(part)
                    time.sleep(pause_seconds)
                self._response = self._deployment.exchange(connection)
        except NoResponse as error:
            self._failure = f"the proxy {error}"
        except (OutOfTime, TooManyRequests) as error:
            self._failure = str(error).removesuffix(".")

    @property
    def _seconds(self) -> float:
        return sum(self._pauses_seconds) + ANSWER_SECONDS

    def check(self, deployment: Deployment) -> Iterator[Finding]:
        """Wait for the answer."""
        name = "slow body"
        subject = f"a body that took {sum(self._pauses_seconds):g} s"
        self._thread.join(max(0.0, min(self._seconds, deployment.deadline.remaining())))
        if self._response is None:
            reason = self._failure or "the proxy did not answer in time"
            yield problem(name, f"{subject}: {reason}", advice.SLOW_BODY)
        else:
            yield finding_of_arrival(deployment, name, self._response, self._body, subject, advice.SLOW_BODY)


def check_client_address(deployment: Deployment) -> Iterator[Finding]:
    """Which address Hookmill sees, and whether a client can choose it."""
    name = "client address"
    installation = deployment.installation
    if installation is None:
        return
    webhook, body = deployment.webhooks.for_failure(), body_of()
    headers = [WRONG_TOKEN, ("X-Forwarded-For", FORGED_ADDRESS), ("Content-Length", str(len(body)))]
    with deployment.connect() as connection:
        own_address = ip_address(connection.client_address.partition("%")[0])
        deployment.exchange(
            connection, deployment.head("POST", webhook.path, [*headers, ("Connection", "close")]), body
        )
    client = next((row.client for row in installation.log_of(webhook) if row.label is Label.REJECTED_AUTH), None)
    if client is None:
        yield problem(name, "an attempt with a wrong token is not in the log", advice.ERRORS)
    elif client == FORGED_ADDRESS and str(own_address) in installation.trusted_proxies:
        # A proxy may name any client. A network that contains other hosts, too, is a problem nevertheless.
        yield warning(
            name,
            f"this host, {own_address}, is itself a trusted proxy, so its requests can't show whether clients can "
            "choose their address",
            advice.ANOTHER_HOST,
        )
    elif client == FORGED_ADDRESS:
        trusts_clients = any(own_address in ip_network(network) for network in installation.trusted_proxies)
        yield problem(
            name,
            f"a client can choose the address that Hookmill sees: {FORGED_ADDRESS} from the client's own "
            "X-Forwarded-For was taken for its address",
            advice.TRUSTED_PROXIES if trusts_clients else advice.FORWARDED_FOR,
        )
    elif client == str(own_address):
        yield ok(name, f"Hookmill sees the address of this client, {client}, and the client can't forge it")
    elif not installation.trusted_proxies:
        yield warning(
            name,
            f"Hookmill sees {client} as the client's address, which is not the address of this host ({own_address}). "
            "It is probably the proxy's",
            f"{advice.TRUSTED_PROXIES} {advice.FORWARDED_FOR}",
        )
    elif any(ip_address(client) in ip_network(network) for network in installation.trusted_proxies):
        yield problem(
            name,
            f"Hookmill sees {client}, a trusted proxy, as the client's address",
            advice.FORWARDED_FOR,
        )
    else:
        yield ok(
            name,
            f"Hookmill sees {client} as the address of this client ({own_address} on this host), and the client can't "
            "forge it",
        )


def check_redirect(deployment: Deployment, http_port: int) -> Iterator[Finding]:
    """Whether the host accepts deliveries without TLS. `http_port`: usually 80."""
    name = "without TLS"
    origin = deployment.origin
    if not origin.is_https or (origin.port != HTTPS_PORT and http_port == HTTP_PORT):
        return
    plain = Origin(scheme="http", host=origin.host, port=http_port, path=origin.path)
    # The request has no valid token, because others can read it.
    webhook, body = deployment.webhooks.for_failure(), body_of()
    headers = [WRONG_TOKEN, ("Content-Length", str(len(body))), ("Host", plain.authority), ("Connection", "close")]
    try:
        with deployment.connect(origin=plain) as connection:
            response = deployment.exchange(connection, deployment.head("POST", webhook.failing_path, headers), body)
    except NoResponse as error:
        yield ok(name, f"{plain} {error}")
        return
    if is_from_hookmill(response):
        yield warning(name, f"{plain} passes on deliveries without TLS", advice.REDIRECT)
    else:
        yield ok(name, f"{plain} does not pass on deliveries: it answers {response.status}")
