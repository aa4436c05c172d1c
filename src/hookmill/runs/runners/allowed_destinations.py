"""The settings `network_allow` and `network_private`, which sandboxes and containers share."""

from collections.abc import Sequence
from typing import Any, Final

from hookmill.domain.egress import EgressRules
from hookmill.domain.errors import Invalid
from hookmill.sandbox import PROXY_PORT

PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"


def check_destinations(allowed: Sequence[str], private_networks: Sequence[str]) -> None:
    """Raises `ValueError`."""
    if private_networks and not allowed:
        raise ValueError("must have network_allow with network_private")
    try:
        EgressRules.of(allowed, private_networks)
    except Invalid as error:
        raise ValueError(str(error)) from None


def proxy_variables() -> dict[str, str]:
    """The variables from which programs learn the proxy."""
    urls = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), PROXY_URL)
    # Without the last variable, Node.js ignores the others.
    return {**urls, "NO_PROXY": "localhost,127.0.0.1", "NODE_USE_ENV_PROXY": "1"}


def egress_spec(allowed: Sequence[str], private_networks: Sequence[str]) -> dict[str, Any] | None:
    """What the proxy permits, as the guard needs it. None: there is no proxy."""
    return {"destinations": allowed, "private_networks": private_networks} if allowed else None


def destinations_text(allowed: Sequence[str]) -> str:
    """What a command reaches, for people."""
    return f"only {', '.join(allowed)}" if allowed else "no network"
