"""Compares responses with what Hookmill answers, and describes differences."""

import json
from typing import Any, Final

from hookmill.app.doctor.base_url import GATEWAY_ERRORS
from hookmill.app.doctor.exchange import Response
from hookmill.app.doctor.through.deployment import Deployment, ProbeWebhook
from hookmill.domain.delivery import Label
from hookmill.web.errors import ErrorResponse

ACCEPTED: Final = 202
_CONNECTION_HEADERS: Final = frozenset({"connection", "content-length"})
"""Headers of Hookmill's error responses that a proxy replaces by its own."""


def delivery_id(response: Response) -> str | None:
    """The id in a response 202 of Hookmill; None for any other response."""
    identifier = _json(response).get("delivery_id") if response.status == ACCEPTED else None
    return identifier if isinstance(identifier, str) and identifier.startswith("dlv_") else None


def is_from_hookmill(response: Response) -> bool:
    """Whether Hookmill, and not a proxy, wrote the response."""
    return delivery_id(response) is not None or "code" in _json(response)


def is_gateway_error(response: Response) -> bool:
    """Whether a proxy got no response from Hookmill that it could pass on."""
    return response.status in GATEWAY_ERRORS and not is_from_hookmill(response)


def description(response: Response) -> str:
    """The status, and who answered."""
    if is_from_hookmill(response):
        return f"{response.status} by Hookmill"
    server = (response.header("server") or "").split(" ")[0][:40]
    return f"{response.status} by {server or 'the proxy'} itself"


def difference(response: Response, expected: ErrorResponse) -> str | None:
    """How the response differs from Hookmill's error response; None if senders see no difference."""
    if response.status != expected.status:
        return f"the response was {description(response)}, instead of {expected.status}"
    if response.body != expected.body and not is_from_hookmill(response):
        return f"the response was {description(response)}"
    if response.body != expected.body:
        return f"the body of the response {response.status} was changed"
    for raw_name, raw_value in expected.headers:
        name, value = raw_name.decode(), raw_value.decode()
        if name not in _CONNECTION_HEADERS and response.header(name) != value:
            return f"the header {name} of the response {response.status} was changed or removed"
    return None


def reason_of_failure(deployment: Deployment, webhook: ProbeWebhook) -> str:
    """Why the newest attempt at the webhook was not authenticated, from the log; empty if the log does not say it."""
    if deployment.installation is None:
        return ""
    rows = deployment.installation.log_of(webhook)
    if not rows or rows[0].label is not Label.REJECTED_AUTH:
        return ""
    return f" ({rows[0].reason})"


def _json(response: Response) -> dict[str, Any]:
    try:
        value = json.loads(response.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
