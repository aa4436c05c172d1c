"""The provider's discovery document: its endpoints, and how Hookmill authenticates at the token endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from hookmill.domain.errors import ProviderUnavailable
from hookmill.oidc.http import HttpClient

_PATH: Final = "/.well-known/openid-configuration"
_CLIENT_AUTH_METHODS: Final = ("client_secret_basic", "client_secret_post")
"""The supported methods of clients with a secret, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    client_auth_method: str | None
    """How the client sends its secret to the token endpoint: one of `_CLIENT_AUTH_METHODS`, or None if the provider
    supports none of them."""
    has_issuer_in_answers: bool
    """Whether each answer of the authorization endpoint names the issuer (RFC 9207)."""


async def load_metadata(http: HttpClient, issuer: str) -> Metadata:
    """Load the document of this issuer.

    Raises `ProviderUnavailable` if the document can't be loaded, is another issuer's, or has no usable endpoint.
    """
    url = issuer.rstrip("/") + _PATH
    response = await http.get(url)
    if response.status != 200:
        raise ProviderUnavailable(f"{url} answered with the status {response.status}. Check oidc_issuer.")
    document = response.content
    document_issuer = document.get("issuer")
    if not isinstance(document_issuer, str):
        raise ProviderUnavailable(f"{url} names no issuer, so it is no discovery document. Check oidc_issuer.")
    if document_issuer != issuer:
        raise ProviderUnavailable(
            f"{url} is the document of the issuer {document_issuer[:200]!r}. Set oidc_issuer to exactly this value if "
            "it is your provider."
        )
    methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    if not isinstance(methods, list):
        methods = []
    client_auth_method = next((method for method in _CLIENT_AUTH_METHODS if method in methods), None)
    userinfo = document.get("userinfo_endpoint")
    return Metadata(
        authorization_endpoint=_endpoint(document, "authorization_endpoint", issuer),
        token_endpoint=_endpoint(document, "token_endpoint", issuer),
        jwks_uri=_endpoint(document, "jwks_uri", issuer),
        userinfo_endpoint=_endpoint(document, "userinfo_endpoint", issuer) if userinfo is not None else None,
        client_auth_method=client_auth_method,
        has_issuer_in_answers=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(document: Mapping[str, Any], name: str, issuer: str) -> str:
    """The URL of an endpoint. If the issuer has https, the endpoint must have it, too.

    Raises `ProviderUnavailable` if the document has no usable one.
    """
    value = document.get(name)
    schemes = {"https"} if issuer.startswith("https:") else {"https", "http"}
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ProviderUnavailable(f"The discovery document of {issuer} has no usable {name}.")
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in schemes or not parts.hostname or parts.fragment:
        raise ProviderUnavailable(
            f"The {name} in the discovery document of {issuer} is not a usable URL (https, without a fragment)."
        )
    return value
