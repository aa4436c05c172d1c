"""The checks of a deployment. Each yields what a proxy changes, with what to change, and nothing if all is well."""

import gzip
import json
import secrets
import ssl
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from hookmill.app import now_us
from hookmill.app.doctor.base_url import GATEWAY_ERRORS, UNKNOWN_UID, UPSTREAM, certificate_findings
from hookmill.app.doctor.exchange import ANSWER_SECONDS, HTTP_PORT, HTTPS_PORT, NoResponse, Origin, Response
from hookmill.app.doctor.proxy_checks import advice
from hookmill.app.doctor.proxy_checks.deployment import ID_HEADER, Deployment, ProbeWebhook
from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.finding import Finding, ok, problem, warning
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import sign
from hookmill.domain.webhook import INGRESS_PREFIX
from hookmill.web import errors

SIGNED_LIKE: Final = ("standard_webhooks", "github")
"""Schemes whose headers have nothing in common, as examples for all."""
URL_SCHEME: Final = "square"
"""A scheme that signs the URL with its query."""
QUERY: Final = "?a=1&b=%2F%20+%C3%A9&c="
LONG_HEADER_BYTES: Final = 7_000
ATTACKS: Final = "<script>alert(1)</script> ' OR '1'='1'; DROP TABLE users-- ../../../../etc/passwd ${jndi:ldap://x}"
"""Texts that firewalls look for. Issues and commit messages contain them, too."""
FORGED_ADDRESS: Final = "203.0.113.77"
"""An address for documentation, which no client has."""
WRONG_TOKEN: Final = ("Authorization", "Bearer wrong")
_CONNECTION_HEADERS: Final = frozenset({"connection", "content-length"})
"""Headers of Hookmill's error responses that a proxy replaces by its own."""


def check_tls(deployment: Deployment, tls: ssl.SSLContext, http_port: int) -> Iterator[Finding]:
    """The certificate, and whether the host accepts deliveries without TLS. `http_port`: usually 80."""
    origin = deployment.origin
    yield from certificate_findings(origin, tls)
    if not origin.is_https or (origin.port != HTTPS_PORT and http_port == HTTP_PORT):
        return
    plain = Origin(scheme="http", host=origin.host, port=http_port, path=origin.path)
    try:
        with deployment.connect(origin=plain) as connection:
            # Others can read this request, so it has no valid token.
            connection.send(
                deployment.head("POST", deployment.installation.create().path, [WRONG_TOKEN, ("Content-Length", "0")])
            )
            response = connection.response()
    except NoResponse:
        return
    if is_from_hookmill(response):
        yield warning(f"{plain} passes on deliveries without TLS", advice.REDIRECT)


def check_delivery(deployment: Deployment) -> Iterator[Finding]:
    """The first delivery. If it does not arrive, no other check makes sense."""
    webhook = deployment.installation.for_delivery()
    response = deployment.send("POST", webhook.path, webhook.authorization, body_of())
    identifier = delivery_id(response)
    if identifier is None:
        is_gateway_error = response.status in GATEWAY_ERRORS and not is_from_hookmill(response)
        text = f"a delivery was answered {description(response)}{_reason_of_refusal(deployment, webhook)}"
        yield problem(text, _advice_for(response, UPSTREAM if is_gateway_error else advice.REACH))
    elif deployment.installation.delivery(identifier) is None:
        yield problem(
            "a delivery was answered 202, but is not in the log of the installation that the settings name",
            "Run this command with the settings of the installation that the URL leads to. If they are right, "
            "HOOKMILL_DATABASE_URL or HOOKMILL_DATA_DIR names another database.",
        )


def check_body(deployment: Deployment) -> Iterator[Finding]:
    unusual = b'{ "hookmill_doctor" :\r\n\t"%s",\r\n' % secrets.token_hex(8).encode()
    unusual += (
        b'"utf8":"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8",\n"escapes":"\\u0000\\ud83d\\/","n":1.0e400}\r\n \t'
    )
    yield from _arrival(deployment, deployment.deliver(unusual), unusual, "an unusual body", advice.BODY_BYTES)
    body = body_of()
    yield from _arrival(deployment, deployment.deliver_in_chunks(body), body, "a chunked body", advice.CHUNKED)
    # Hookmill takes the bytes as they are, and these are no JSON.
    response = deployment.deliver(gzip.compress(body_of()), [("Content-Encoding", "gzip")])
    if (text := difference(response, errors.INVALID_JSON)) is not None:
        yield problem(f"the proxy decodes bodies with a Content-Encoding: {text}", advice.BODY_BYTES)


def check_large_body(deployment: Deployment) -> Iterator[Finding]:
    for subject, send in (
        ("a body of 262,144 bytes", deployment.deliver),
        ("a chunked body of 262,144 bytes", deployment.deliver_in_chunks),
    ):
        body = body_of(filler="")
        body = body[:-2] + b"x" * (BODY_BYTES_MAX - len(body)) + b'"}'
        yield from _arrival(deployment, send(body), body, subject, advice.BODY_SIZE)


def check_firewall(deployment: Deployment) -> Iterator[Finding]:
    body = body_of(text=ATTACKS)
    response = deployment.deliver(body)
    yield from _arrival(deployment, response, body, "a body with texts that look like attacks", advice.FIREWALL)
    response = deployment.deliver(body_of(), user_agent=False)
    if delivery_id(response) is None:
        yield problem(f"a request without User-Agent was answered {description(response)}", advice.FIREWALL)


def check_headers(deployment: Deployment) -> Iterator[Finding]:
    for scheme in SIGNED_LIKE:
        webhook = deployment.installation.create(scheme)
        if delivery_id(response := _deliver_signed(deployment, scheme, webhook)) is None:
            text = f"a delivery signed like {scheme} was answered {description(response)}"
            yield problem(text + _reason_of_refusal(deployment, webhook), advice.HEADERS)
    event_id = secrets.token_hex(8)
    identifier = delivery_id(response := deployment.deliver(body_of(), [(ID_HEADER, event_id)]))
    row = deployment.installation.delivery(identifier) if identifier is not None else None
    if row is None or row.identity_kind is not IdentityKind.DELIVERY_ID_HEADER or row.identity != event_id:
        state = "dropped" if row is not None else f"answered {description(response)}"
        text = f"a header whose name contains underscores ({ID_HEADER}) was {state}"
        yield warning(text, advice.UNDERSCORES)
    response = deployment.deliver(body_of(), [("X-Hookmill-Doctor", "x" * LONG_HEADER_BYTES)])
    if delivery_id(response) is None:
        text = f"a request with a header of {LONG_HEADER_BYTES:,} bytes was answered {description(response)}"
        yield warning(text, advice.LONG_HEADERS)


def check_path(deployment: Deployment) -> Iterator[Finding]:
    """Paths that are not the webhook's. Only a proxy that changes paths makes one of them the webhook's."""
    webhook = deployment.installation.create()
    uid, path = webhook.uid, webhook.path
    spellings = {
        "with a slash at its end": f"{path}/",
        "with a double slash": path.replace("/w/", "//w/"),
        "with an escaped slash": path.replace("/w/", "/w%2F"),
        "with an escaped letter": path.replace(uid, f"%{ord(uid[0]):02X}{uid[1:]}"),
        "with dot segments": path.replace("/w/", "/w/x/../"),
        "in capitals": path.replace(uid, uid.upper()),
    }
    changed = [
        way
        for way, spelling in spellings.items()
        if delivery_id(deployment.send("POST", spelling, webhook.authorization, body_of())) is not None
    ]
    if changed:
        yield problem(f"the proxy changes paths: those {', '.join(changed)} also lead to the webhook", advice.PATH)
    response = _deliver_signed(deployment, URL_SCHEME, deployment.installation.create(URL_SCHEME), QUERY)
    if delivery_id(response) is None:
        text = f"a delivery with a query, whose signature covers the URL, was answered {description(response)}"
        public_url = deployment.installation.public_url
        if public_url != str(deployment.origin):
            text += f". The signed URL begins with base_url, {public_url}"
        yield problem(text, advice.QUERY)


def check_responses(deployment: Deployment) -> Iterator[Finding]:
    webhook = deployment.installation.create()
    answers = (
        ("GET", deployment.send("GET", webhook.path), errors.METHOD_NOT_ALLOWED),
        ("a wrong token", deployment.send("POST", webhook.path, [WRONG_TOKEN], body_of()), errors.UNAUTHENTICATED),
        ("invalid JSON", deployment.deliver(b"{"), errors.INVALID_JSON),
        (
            "an unknown webhook",
            deployment.send("POST", INGRESS_PREFIX + UNKNOWN_UID, [WRONG_TOKEN], body_of()),
            errors.NOT_FOUND,
        ),
    )
    for kind, response, expected in answers:
        if (text := difference(response, expected)) is not None:
            yield problem(f"{kind}: {text}", advice.ERRORS)
    body = body_of()
    first, second = deployment.deliver(body), deployment.deliver(body)
    if delivery_id(first) == delivery_id(second):
        yield problem("two deliveries got the same response, with the same delivery id", advice.CACHE)


def check_client_address(deployment: Deployment) -> Iterator[Finding]:
    """Which address Hookmill sees, and whether a client can choose it."""
    installation = deployment.installation
    webhook, body = installation.create(), body_of()
    headers = [WRONG_TOKEN, ("X-Forwarded-For", FORGED_ADDRESS), ("Content-Length", str(len(body)))]
    with deployment.connect() as connection:
        own_address = ip_address(connection.client_address.partition("%")[0])
        connection.send(deployment.head("POST", webhook.path, headers) + body)
        connection.response()
    row = installation.newest(webhook)
    client = row.client if row is not None else None
    if client is None:
        yield problem("an attempt with a wrong token is not in the log", advice.ERRORS)
    elif client == FORGED_ADDRESS and str(own_address) in installation.trusted_proxies:
        # A proxy may name any client. A network that contains other hosts, too, is a problem nevertheless.
        yield warning(
            f"this host, {own_address}, is itself a trusted proxy, so its requests can't show whether clients can "
            "choose their address",
            "Run this command on another host, with the settings of the installation.",
        )
    elif client == FORGED_ADDRESS:
        trusts_clients = any(own_address in ip_network(network) for network in installation.trusted_proxies)
        yield problem(
            f"a client can choose the address that Hookmill sees: {FORGED_ADDRESS} from the client's own "
            "X-Forwarded-For was taken for its address",
            advice.TRUSTED_PROXIES if trusts_clients else advice.FORWARDED_FOR,
        )
    elif client == str(own_address):
        yield ok(f"Hookmill sees the address of this client, {client}, and the client can't forge it")
    elif not installation.trusted_proxies:
        yield warning(
            f"Hookmill sees {client} as the client's address, which is not the address of this host ({own_address}). "
            "It is probably the proxy's",
            f"{advice.TRUSTED_PROXIES} {advice.FORWARDED_FOR}",
        )
    elif any(ip_address(client) in ip_network(network) for network in installation.trusted_proxies):
        text = f"Hookmill sees {client}, a trusted proxy, as the client's address"
        yield problem(text, advice.FORWARDED_FOR)
    else:
        yield ok(f"Hookmill sees {client} as this client's address ({own_address} here), which it can't forge")


def check_slow_body(deployment: Deployment, pauses_seconds: Sequence[float]) -> Iterator[Finding]:
    """A body with these pauses."""
    seconds = sum(pauses_seconds)
    webhook, body = deployment.installation.for_delivery(), body_of(filler="x" * 100)
    part_bytes = len(body) // (len(pauses_seconds) + 1)
    with deployment.connect(seconds=seconds + ANSWER_SECONDS) as connection:
        headers = [*webhook.authorization, ("Content-Length", str(len(body)))]
        connection.send(deployment.head("POST", webhook.path, headers) + body[:part_bytes])
        for number, pause_seconds in enumerate(pauses_seconds, 1):
            time.sleep(pause_seconds)
            end = (number + 1) * part_bytes if number < len(pauses_seconds) else None
            connection.send(body[number * part_bytes : end])
        response = connection.response()
    yield from _arrival(deployment, response, body, f"a body that took {seconds:g} s", advice.SLOW_BODY
    )  # fmt: skip


def body_of(**content: object) -> bytes:
    """A body that no other delivery has."""
    return json.dumps({"hookmill_doctor": secrets.token_hex(8), **content}).encode()


def _arrival(
    deployment: Deployment, response: Response, body: bytes, subject: str, suggestion: str
) -> Iterator[Finding]:
    """Why a delivery did not arrive unchanged, if it did not."""
    identifier = delivery_id(response)
    if identifier is None:
        yield problem(f"{subject} was answered {description(response)}", _advice_for(response, suggestion))
    elif (stored := deployment.installation.payload(identifier)) != body:
        state = "is not in the log" if stored is None else f"arrived changed, with {len(stored):,} bytes"
        yield problem(f"{subject} {state}", advice.BODY_BYTES)


def _deliver_signed(deployment: Deployment, scheme: str, webhook: ProbeWebhook, query: str = "") -> Response:
    url = deployment.installation.public_url + webhook.path + query
    signed = sign(scheme_named(scheme, None), webhook.secret, body_of(), url, now_us())
    return deployment.send("POST", webhook.path + query, signed.headers, signed.body)


def _advice_for(response: Response, default: str) -> str:
    """The advice for a response other than 202 to a delivery. `default`: for a status without a typical cause."""
    match response.status:
        case 301 | 302 | 303 | 307 | 308:
            return f"If another URL is right, use that one. {advice.PATH}"
        case 401:
            return advice.AUTHORIZATION
        case 403 | 406:
            return advice.FIREWALL
        case 404 if is_from_hookmill(response):
            return f"Another Hookmill answered, or the path was changed. {advice.PATH}"
        case 411:
            return advice.CHUNKED
        case 413:
            return advice.BODY_SIZE
        case _:
            return default


def delivery_id(response: Response) -> str | None:
    """The id in a response 202 of Hookmill; None for any other response."""
    identifier = _fields(response).get("delivery_id") if response.status == 202 else None
    return identifier if isinstance(identifier, str) and identifier.startswith("dlv_") else None


def is_from_hookmill(response: Response) -> bool:
    """Whether Hookmill, and not a proxy, wrote the response."""
    return delivery_id(response) is not None or "code" in _fields(response)


def description(response: Response) -> str:
    """The status, and who answered."""
    if is_from_hookmill(response):
        return f"{response.status} by Hookmill"
    server = (response.header("server") or "").split(" ")[0][:40]
    return f"{response.status} by {server or 'the proxy'} itself"


def difference(response: Response, expected: errors.ErrorResponse) -> str | None:
    """How the response differs from Hookmill's error response; None if senders see no difference."""
    if response.status != expected.status:
        return f"the response was {description(response)}, instead of {expected.status}"
    if response.body != expected.body:
        return f"the body of the response was changed: it is {description(response)}"
    for raw_name, raw_value in expected.headers:
        name, value = raw_name.decode(), raw_value.decode()
        if name not in _CONNECTION_HEADERS and response.header(name) != value:
            return f"the header {name} of the response {response.status} was changed or removed"
    return None


def _reason_of_refusal(deployment: Deployment, webhook: ProbeWebhook) -> str:
    """Why the newest attempt at the webhook was not authenticated, from the log; empty if the log does not say it."""
    row = deployment.installation.newest(webhook)
    return f" ({row.reason})" if row is not None and row.label is Label.REJECTED_AUTH else ""


def _fields(response: Response) -> dict[str, object]:
    try:
        value = json.loads(response.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
