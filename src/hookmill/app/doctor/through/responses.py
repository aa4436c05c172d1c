"""Checks that Hookmill's responses reach senders unchanged, and that each request reaches Hookmill once."""

import re
from collections.abc import Iterator

from hookmill.app.doctor.base_url import UNKNOWN_UID
from hookmill.app.doctor.exchange import Response
from hookmill.app.doctor.through import advice
from hookmill.app.doctor.through.comparison import delivery_id, description, difference
from hookmill.app.doctor.through.deliveries import body_of
from hookmill.app.doctor.through.deployment import Deployment
from hookmill.domain import ids
from hookmill.domain.delivery import Label
from hookmill.domain.finding import Finding, ok, problem, warning
from hookmill.domain.webhook import INGRESS_PREFIX
from hookmill.web import errors

WRONG_TOKEN = ("Authorization", "Bearer wrong")


def check_methods(deployment: Deployment) -> Iterator[Finding]:
    name = "methods"
    path = deployment.webhooks.for_delivery().path
    changed = []
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        response = deployment.send(method, path)
        if (text := _difference_of_method(response, method)) is not None:
            changed.append(f"{method}: {text}")
    if changed:
        yield problem(name, "; ".join(changed), advice.METHODS)
    else:
        yield ok(name, "GET, HEAD, OPTIONS and PUT are answered 405 with Allow: POST")


def _difference_of_method(response: Response, method: str) -> str | None:
    expected = errors.METHOD_NOT_ALLOWED
    if method == "HEAD":
        expected = errors.ErrorResponse(expected.status, expected.headers, b"")
    return difference(response, expected)


def check_errors(deployment: Deployment) -> Iterator[Finding]:
    name = "error responses"
    failing = deployment.webhooks.for_failure()
    answers = {
        "a wrong token": (
            deployment.send("POST", failing.failing_path, [WRONG_TOKEN], body_of()),
            errors.UNAUTHENTICATED,
        ),
        "invalid JSON": (deployment.deliver(deployment.webhooks.for_delivery(), b"{"), errors.INVALID_JSON),
        "an unknown webhook": (
            deployment.send("POST", INGRESS_PREFIX + UNKNOWN_UID, [WRONG_TOKEN], body_of()),
            errors.NOT_FOUND,
        ),
    }
    changed = [
        f"{kind}: {text}"
        for kind, (response, expected) in answers.items()
        if (text := difference(response, expected)) is not None
    ]
    if changed:
        yield problem(name, "; ".join(changed), advice.ERRORS)
    else:
        yield ok(name, "the responses 400, 401 and 404 arrive as Hookmill wrote them")


def check_states(deployment: Deployment) -> Iterator[Finding]:
    """Unknown, disabled and deleted webhooks must cause the same response. Deletes the `url_token` webhook."""
    name = "404"
    installation = deployment.installation
    if installation is None:
        return
    webhook = installation.url_token_webhook()
    unknown = deployment.send("POST", INGRESS_PREFIX + UNKNOWN_UID, body=body_of())
    installation.disable(webhook)
    disabled = deployment.send("POST", webhook.path, body=body_of())
    installation.delete(webhook)
    deleted = deployment.send("POST", webhook.path, body=body_of())
    if _comparable(unknown) == _comparable(disabled) == _comparable(deleted):
        yield ok(name, "unknown, disabled and deleted webhooks get the same response")
    else:
        yield problem(
            name,
            "the responses for unknown, disabled and deleted webhooks differ, which shows which webhooks exist",
            advice.ERRORS,
        )


def _comparable(response: Response) -> tuple[object, ...]:
    """Everything that a client could compare, without the time and the ids of the request."""
    headers = [(name, value) for name, value in response.headers if name not in {"date", "x-request-id", "cf-ray"}]
    return response.status, headers, response.body


def check_rate_limit(deployment: Deployment) -> Iterator[Finding]:
    name = "429"
    installation = deployment.installation
    if installation is None:
        return
    webhook = installation.url_token_webhook()
    if not installation.use_up_failures(webhook):
        return
    response = deployment.send("POST", webhook.path[:-1], body=body_of())
    text = difference(response, errors.RATE_LIMITED)
    if text is None and not re.fullmatch(r"[1-9][0-9]?", response.header("retry-after") or ""):
        text = "the header Retry-After was changed or removed"
    if text is None:
        yield ok(name, "the response 429 arrives with Retry-After")
    else:
        yield problem(name, f"for a request above the rate limit, {text}", advice.ERRORS)


def check_caching(deployment: Deployment) -> Iterator[Finding]:
    name = "caching"
    body = body_of()
    identifiers = [delivery_id(deployment.deliver(deployment.webhooks.for_delivery(), body)) for _ in range(2)]
    if identifiers[0] is not None and identifiers[0] == identifiers[1]:
        yield problem(name, "two deliveries got the same response, with the same delivery id", advice.CACHE)
    elif any(response.header("age") is not None for response in deployment.responses):
        yield problem(name, "a response has the header Age, so it came from a cache", advice.CACHE)
    else:
        yield ok(name, "responses are not cached")


def check_compression(deployment: Deployment) -> Iterator[Finding]:
    name = "compression"
    unrequested = [response for response in deployment.responses if response.header("content-encoding") is not None]
    encoding = [("Accept-Encoding", "gzip, br")]
    responses = [
        deployment.deliver(deployment.webhooks.for_delivery(), body_of(), encoding),
        deployment.send("POST", INGRESS_PREFIX + UNKNOWN_UID, encoding, body_of()),
    ]
    if unrequested:
        yield problem(name, "a response was compressed, although the request did not ask for it", advice.COMPRESSION)
    elif any(response.header("content-encoding") is not None for response in responses):
        yield warning(name, "responses to deliveries are compressed if the sender allows it", advice.COMPRESSION)
    else:
        yield ok(name, "responses to deliveries are not compressed")


def check_cookies(deployment: Deployment) -> Iterator[Finding]:
    """Sends nothing: it looks at all responses so far."""
    name = "cookies"
    if any(response.header("set-cookie") is not None for response in deployment.responses):
        yield warning(name, "the proxy sets a cookie in responses to deliveries", advice.COOKIES)
    else:
        yield ok(name, "responses to deliveries set no cookie")


def check_repetitions(deployment: Deployment) -> Iterator[Finding]:
    """Sends nothing: it compares the log with all responses so far."""
    name = "repetitions"
    installation = deployment.installation
    if installation is None:
        return
    answered = {identifier for response in deployment.responses if (identifier := delivery_id(response)) is not None}
    recorded = [row for row in installation.log() if row.label in {Label.ACCEPTED, Label.DUPLICATE}]
    surplus = sum(ids.delivery_id(row.key) not in answered for row in recorded) - deployment.unanswered
    if surplus > 0:
        text = f"{surplus} of {len(recorded)} recorded deliveries are copies that were not sent from here"
        yield problem(name, text, advice.REPEATED)
    else:
        yield ok(name, "each delivery was recorded once")


def check_dashboard(deployment: Deployment) -> Iterator[Finding]:
    name = "dashboard"
    response = deployment.send("GET", "/sign-in")
    if response.status == 200 and b"Hookmill" in response.body:
        yield ok(name, f"the dashboard answers at {deployment.origin}")
    elif response.status == errors.MISDIRECTED.status and response.body == errors.MISDIRECTED.body:
        yield warning(name, "the dashboard refuses the host name of this URL (421)", advice.HOST)
    else:
        yield ok(name, f"the proxy does not pass on the dashboard: /sign-in is answered {description(response)}")
