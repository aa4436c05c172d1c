"""The provider's discovery document: its endpoints, and how Hookmill authenticates at the token endpoint."""

from collections.abc import Mapping, Sequence
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
    response_types: Sequence[str] | None
    """None if the provider does not list them. The same is true of the following lists."""
    code_challenge_methods: Sequence[str] | None
    id_token_algorithms: Sequence[str] | None

    def unsupported(self, accepted_algorithms: Sequence[str], *, has_client_secret: bool) -> Sequence[str]:
        """What a sign-in needs and the provider lacks, as the document says. Empty if a sign-in can work."""
        faults = []
        if self.response_types is not None and "code" not in self.response_types:
            faults.append("it does not support the authorization code flow (response type code)")
        if self.code_challenge_methods is not None and "S256" not in self.code_challenge_methods:
            faults.append("it does not support PKCE with S256")
        if self.id_token_algorithms is not None and not set(accepted_algorithms).intersection(self.id_token_algorithms):
            faults.append(f"it signs ID tokens with none of {', '.join(accepted_algorithms)}")
        if has_client_secret and self.client_auth_method is None:
            faults.append(f"it accepts a client secret by none of {', '.join(_CLIENT_AUTH_METHODS)}")
        return faults


async def load_metadata(http: HttpClient, issuer: str) -> Metadata:
    """Load the document of this issuer.

    Raises `ProviderUnavailable` if the document can't be loaded, is another issuer's, or has no usable endpoint.
    """
    url = issuer.rstrip("/") + _PATH
    document = await http.get(url, advice="Check oidc_issuer.")
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
        response_types=_texts(document.get("response_types_supported")),
        code_challenge_methods=_texts(document.get("code_challenge_methods_supported")),
        id_token_algorithms=_texts(document.get("id_token_signing_alg_values_supported")),
    )


def _texts(value: object) -> Sequence[str] | None:
    """The texts of a list; None if there is no list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else None


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
