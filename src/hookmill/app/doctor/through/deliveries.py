"""Checks that deliveries arrive unchanged: bodies, headers, paths and queries."""

import gzip
import json
import secrets
from collections.abc import Iterator
from typing import Final

from hookmill.app import now_us
from hookmill.app.doctor.base_url import UPSTREAM
from hookmill.app.doctor.exchange import Headers, NoResponse, Response, request_head
from hookmill.app.doctor.through import advice
from hookmill.app.doctor.through.comparison import (
    delivery_id,
    description,
    difference,
    is_from_hookmill,
    is_gateway_error,
    reason_of_failure,
)
from hookmill.app.doctor.through.deployment import Deployment, ProbeWebhook
from hookmill.app.doctor.through.temporary import ID_HEADER
from hookmill.domain.delivery import IdentityKind
from hookmill.domain.finding import Finding, ok, problem, warning
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import sign
from hookmill.web import errors

SENDERS_BY_SCHEME: Final = {
    "standard_webhooks": ("standard_webhooks", "svix"),
    "github": ("github",),
    "stripe": ("stripe",),
}
"""Schemes whose headers have nothing in common, as examples for all. A scheme may verify several kinds of senders."""
URL_SCHEME: Final = "square"
"""A scheme that signs the URL with its query."""
LONG_HEADER_BYTES: Final = 7_000
QUERY: Final = "?a=1&b=%2F%20+%C3%A9&c="
ATTACKS: Final = "<script>alert(1)</script> ' OR '1'='1'; DROP TABLE users-- ../../../../etc/passwd ${jndi:ldap://x}"
"""Texts that firewalls look for. Issues and commit messages contain them, too."""


def body_of(**content: object) -> bytes:
    """A body that no other delivery has."""
    return json.dumps({"hookmill_doctor": secrets.token_hex(8), **content}).encode()


def body_of_size(size: int) -> bytes:
    start = body_of(filler="")[:-2]
    return start + b"x" * (size - len(start) - 2) + b'"}'


def check_delivery(deployment: Deployment) -> Iterator[Finding]:
    """The first delivery. If it does not arrive, no other check makes sense."""
    name = "delivery"
    webhook, body = deployment.webhooks.for_delivery(), body_of()
    response = deployment.deliver(webhook, body, [("Content-Type", "application/json")])
    identifier = delivery_id(response)
    if identifier is None:
        text = f"a delivery was answered {description(response)}{reason_of_failure(deployment, webhook)}"
        yield problem(name, text, _advice_for(response, UPSTREAM if is_gateway_error(response) else advice.REACH))
        return
    installation = deployment.installation
    if installation is not None and installation.delivery(identifier) is None:
        yield problem(
            name,
            "a delivery was answered 202, but is not in the log of the installation that the settings name",
            "Run this command with the settings of the installation that the URL leads to. If they are right, "
            "HOOKMILL_DATABASE_URL or HOOKMILL_DATA_DIR names another database.",
        )
        return
    yield ok(name, f"a delivery to {deployment.origin} was answered 202" + (" and recorded" if installation else ""))
    yield ok("Authorization", "the Authorization header was passed")


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


def check_bodies(deployment: Deployment) -> Iterator[Finding]:
    name = "body"
    unusual = b'{ "hookmill_doctor" :\r\n\t"%s",\r\n' % secrets.token_hex(8).encode()
    unusual += (
        b'"utf8":"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8",\n"escapes":"\\u0000\\ud83d\\/","n":1.0e400}\r\n \t'
    )
    yield _arrival(deployment, name, unusual, "a body with CRLF, UTF-8 and escapes", advice.BODY_BYTES)
    yield _arrival(deployment, "large body", body_of_size(BODY_BYTES_MAX), "a body of 262,144 bytes", advice.BODY_SIZE)
    yield _arrival(
        deployment, "firewall", body_of(text=ATTACKS), "a body with texts that look like attacks", advice.FIREWALL
    )
    compressed = gzip.compress(body_of())
    webhook = deployment.webhooks.for_delivery()
    response = deployment.deliver(webhook, compressed, [("Content-Encoding", "gzip")])
    # Hookmill takes the bytes as they are, and these are no JSON.
    if (text := difference(response, errors.INVALID_JSON)) is not None:
        yield problem(
            name, f"the proxy decodes bodies with a Content-Encoding: {text}", "The proxy must not decode bodies."
        )


def _arrival(deployment: Deployment, name: str, body: bytes, subject: str, suggestion: str) -> Finding:
    """The finding about a delivery of this body."""
    response = deployment.deliver(deployment.webhooks.for_delivery(), body, [("Content-Type", "application/json")])
    return finding_of_arrival(deployment, name, response, body, subject, suggestion)


def finding_of_arrival(
    deployment: Deployment, name: str, response: Response, body: bytes, subject: str, suggestion: str
) -> Finding:
    """The finding about the response to a delivery, and about the stored body."""
    identifier = delivery_id(response)
    if identifier is None:
        return problem(name, f"{subject} was answered {description(response)}", _advice_for(response, suggestion))
    if deployment.installation is not None:
        stored = deployment.installation.payload(identifier)
        if stored != body:
            state = "is not in the log" if stored is None else f"arrived changed, with {len(stored):,} bytes"
            return problem(name, f"{subject} {state}", advice.BODY_BYTES)
        return ok(name, f"{subject} arrived unchanged")
    return ok(name, f"{subject} was answered 202")


def check_chunked(deployment: Deployment) -> Iterator[Finding]:
    for size, subject in ((200, "a body in chunks"), (BODY_BYTES_MAX, "a body of 262,144 bytes in chunks")):
        body = body_of_size(size)
        response = deployment.deliver_in_chunks(deployment.webhooks.for_delivery(), body)
        yield finding_of_arrival(deployment, "chunked body", response, body, subject, advice.CHUNKED)


def check_too_large(deployment: Deployment) -> Iterator[Finding]:
    name = "too large"
    body = body_of_size(BODY_BYTES_MAX + 1)
    for way, send in (("with a declared length", deployment.deliver), ("in chunks", deployment.deliver_in_chunks)):
        try:
            response = send(deployment.webhooks.for_delivery(), body)
        except NoResponse as error:
            # Hookmill has not accepted this request, so it is no delivery without a response.
            deployment.unanswered -= 1
            failure: str | None = f"{deployment.origin} {error}"
            is_lost = True
        else:
            failure = difference(response, errors.TOO_LARGE)
            is_lost = is_gateway_error(response)
        if failure is None:
            yield ok(name, f"a body of 262,145 bytes {way} was answered 413 by Hookmill, and recorded")
        elif is_lost:
            yield warning(
                name,
                f"for a body of 262,145 bytes {way}, {failure}: Hookmill answers before it has read the whole body, "
                "and its response was lost",
                advice.EARLY_ANSWER,
            )
        else:
            yield problem(name, f"for a body of 262,145 bytes {way}, {failure}", advice.BODY_SIZE)


def check_headers(deployment: Deployment) -> Iterator[Finding]:
    name = "headers"
    installation = deployment.installation
    if installation is None:
        return
    for scheme, senders in SENDERS_BY_SCHEME.items():
        with installation.signed_webhook(scheme) as webhook:
            for sender in senders:
                response = _send_signed(deployment, sender, webhook)
                if delivery_id(response) is not None:
                    yield ok(name, f"a delivery signed like {sender} was verified")
                else:
                    reason = reason_of_failure(deployment, webhook)
                    text = f"a delivery signed like {sender} was answered {description(response)}{reason}"
                    yield problem(name, text, advice.HEADERS)
    yield from _findings_of_unusual_headers(deployment)


def _send_signed(deployment: Deployment, scheme: str, webhook: ProbeWebhook, query: str = "") -> Response:
    assert deployment.installation is not None
    signed = sign(
        scheme_named(scheme, None),
        webhook.secret,
        body_of(),
        deployment.installation.public_url + webhook.path + query,
        now_us(),
    )
    return deployment.deliver(webhook, signed.body, signed.headers, query=query)


def _findings_of_unusual_headers(deployment: Deployment) -> Iterator[Finding]:
    installation = deployment.installation
    assert installation is not None
    event_id = secrets.token_hex(8)
    response = deployment.deliver(deployment.webhooks.for_delivery(), body_of(), [(ID_HEADER, event_id)])
    identifier = delivery_id(response)
    row = installation.delivery(identifier) if identifier is not None else None
    if row is not None and row.identity_kind is IdentityKind.DELIVERY_ID_HEADER and row.identity == event_id:
        yield ok("underscores", "a header whose name contains underscores was passed")
    else:
        state = "dropped" if row is not None else f"answered {description(response)}"
        yield warning(
            "underscores", f"a header whose name contains underscores ({ID_HEADER}) was {state}", advice.UNDERSCORES
        )
    long_headers: Headers = [("X-Hookmill-Doctor", "x" * LONG_HEADER_BYTES)]
    response = deployment.deliver(deployment.webhooks.for_delivery(), body_of(), long_headers)
    if delivery_id(response) is not None:
        yield ok("long header", f"a header of {LONG_HEADER_BYTES:,} bytes was accepted")
    else:
        text = f"a request with a header of {LONG_HEADER_BYTES:,} bytes was answered {description(response)}"
        yield warning("long header", text, advice.LONG_HEADERS)


def check_user_agent(deployment: Deployment) -> Iterator[Finding]:
    name = "firewall"
    webhook, body = deployment.webhooks.for_delivery(), body_of()
    length = ("Content-Length", str(len(body)))
    host = ("Host", deployment.origin.authority)
    with deployment.connect() as connection:
        # `Deployment.head` would add a User-Agent.
        target = deployment.origin.path + webhook.path
        head = request_head("POST", target, [host, *webhook.authorization, length, ("Connection", "close")])
        response = deployment.exchange(connection, head, body)
    if delivery_id(response) is None:
        yield problem(name, f"a request without User-Agent was answered {description(response)}", advice.FIREWALL)
    else:
        yield ok(name, "a request without User-Agent was accepted")


def check_url_token(deployment: Deployment) -> Iterator[Finding]:
    if deployment.installation is None:
        return
    webhook, body = deployment.installation.url_token_webhook(), body_of()
    response = deployment.deliver(webhook, body)
    yield finding_of_arrival(
        deployment, "URL token", response, body, "a delivery with its token in the URL", advice.PATH
    )


def check_path(deployment: Deployment) -> Iterator[Finding]:
    """Paths that are not the webhook's. Only a proxy that changes paths makes one of them the webhook's."""
    name = "path"
    webhook = deployment.webhooks.for_delivery()
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
        yield problem(
            name,
            f"the proxy changes paths: those {', '.join(changed)} also lead to the webhook",
            advice.PATH,
        )
    else:
        yield ok(name, "paths arrive as they were sent, without normalization")


def check_query(deployment: Deployment) -> Iterator[Finding]:
    name = "query"
    installation = deployment.installation
    if installation is None:
        return
    with installation.signed_webhook(URL_SCHEME) as webhook:
        response = _send_signed(deployment, URL_SCHEME, webhook, QUERY)
        if delivery_id(response) is not None:
            yield ok(name, "the query arrives as it was sent: a signature of the URL was verified")
        else:
            text = f"a delivery with a query, whose signature covers the URL, was answered {description(response)}"
            if installation.public_url != str(deployment.origin):
                text += f". The signed URL begins with base_url, {installation.public_url}"
            yield problem(name, text, advice.QUERY)
