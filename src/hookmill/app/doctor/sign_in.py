"""Checks whether members can sign in at the OpenID Connect provider of the settings."""

import asyncio
from collections.abc import Iterator
from typing import Final

from hookmill.app import now_us
from hookmill.app.identity_provider import identity_provider
from hookmill.domain.errors import ProviderUnavailable
from hookmill.domain.finding import Finding, ok, problem
from hookmill.settings import Settings

CHECK_SECONDS: Final = 20.0
"""The deadline of this check. It exceeds the time for two requests to the provider (`REQUEST_SECONDS`)."""
_ADVICE: Final = (
    "Check oidc_issuer, the DNS name, the firewall, and HTTPS_PROXY and NO_PROXY. oidc_ca_file trusts a certificate "
    "authority of your own."
)


def check_provider(settings: Settings) -> Iterator[Finding]:
    """Name the redirect URI, and load the provider's discovery document and keys.

    Nobody signs in, and the client's secret is not sent.
    """
    if settings.oidc_issuer is None:
        return
    client = f"the client {settings.oidc_client_id} at the provider"
    yield ok(f"{client} needs the redirect URI {settings.oidc_redirect_uri}")
    provider = identity_provider(settings, now_us)
    assert provider is not None, "the settings have a provider"
    try:
        faults = asyncio.run(provider.check())
    except ProviderUnavailable as error:
        yield problem(str(error).removesuffix("."), _ADVICE)
        return
    for fault in faults:
        yield problem(f"no sign-in at {settings.oidc_issuer} can work: {fault}", f"Change this for {client}.")
    if not faults:
        yield ok(f"the provider {settings.oidc_issuer} answers, and has what a sign-in needs")
