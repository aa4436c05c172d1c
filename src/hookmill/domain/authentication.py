"""Authenticates senders. To accept a delivery, the service needs an `Authentic`, which only this module creates."""

import hmac
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final, assert_never

import msgspec

from hookmill.domain.delivery import Attempt, HandshakeReply
from hookmill.domain.ingress_webhook import IngressWebhook
from hookmill.domain.networks import Address, AllowedNetworks
from hookmill.domain.signatures.doctor import diagnose
from hookmill.domain.signatures.handshake import handshake_reply
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.verify import Unverified, provider_event_id, verify
from hookmill.domain.webhook import AuthMode

_AUTHORIZATION_BYTES_MAX: Final = 8192


class Reason(StrEnum):
    """Why authentication failed, for the owner's log. The sender never gets the reason."""

    NO_AUTHORIZATION = "no Authorization header"
    SEVERAL_AUTHORIZATIONS = "more than one Authorization header"
    NOT_BEARER = "the Authorization header is not of the form Bearer <secret>"
    WRONG_TOKEN = "the bearer token is not this webhook's secret"
    NO_URL_TOKEN = "the URL lacks its token segment"
    WRONG_URL_TOKEN = "the URL's token is not this webhook's secret"
    NO_SCHEME = "the webhook has no signature scheme that this version knows"
    NO_CLIENT_ADDRESS = "the client's address is unknown, and the webhook has allowed networks"


class Authentic(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sender holds the webhook's secret."""

    mode: AuthMode
    """The mode by which the sender was authenticated."""
    event_id: bytes | None = None
    """The provider's id of the event, from its header or from the signed body."""
    fingerprint: bytes | None = None
    """16 bytes that are equal only for a replay of this request. None for tokens and JWTs, and if the scheme
    accepts old signatures."""
    challenge_reply: HandshakeReply | None = None
    """The required response, if the request is a provider's challenge."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The sender is not authenticated. `reason` is for the owner's log; the sender never gets it.

    `is_by_signature`: the verification of a signature failed, and `diagnosis` can explain why.
    """

    reason: str
    is_by_signature: bool = False


Authentication = Authentic | Refused
_AUTHENTIC_BEARER: Final = Authentic(AuthMode.TOKEN)
_AUTHENTIC_URL_TOKEN: Final = Authentic(AuthMode.URL_TOKEN)


def refuse_client(allowed_networks: AllowedNetworks, client: Address | None) -> Refused | None:
    """The refusal of a client whose address is outside the webhook's networks; None for an allowed client."""
    if client is None:
        return Refused(Reason.NO_CLIENT_ADDRESS)
    if allowed_networks.includes(client):
        return None
    return Refused(f"the client's address {client} is not in the allowed networks")


def needs_body(webhook: IngressWebhook) -> bool:
    """Whether verification needs the body. Otherwise, the body of an unauthenticated client is not read."""
    return webhook.auth_mode is AuthMode.SIGNATURE


def authenticate(
    webhook: IngressWebhook, attempt: Attempt, body: bytes = b"", *, public_url: str = ""
) -> Authentication:
    """Authenticate the sender by the webhook's mode. Never raises. `body` is used only if `needs_body(webhook)`.

    `public_url` is the configured base URL, because some providers sign the webhook's URL.
    """
    match webhook.auth_mode:
        case AuthMode.TOKEN:
            return _authenticate_bearer_token(webhook, attempt)
        case AuthMode.URL_TOKEN:
            return _authenticate_url_token(webhook, attempt)
        case AuthMode.SIGNATURE:
            return _authenticate_signature(webhook, _signed_request(attempt, body, public_url), attempt.received_at)
        case _:
            assert_never(webhook.auth_mode)


def diagnosis(webhook: IngressWebhook, attempt: Attempt, body: bytes, *, public_url: str) -> str:
    """One sentence for the owner that explains why a signature was refused. This needs several verifications."""
    rule = webhook.signature_rule
    if rule is None:
        return Reason.NO_SCHEME.value
    request = _signed_request(attempt, body, public_url)
    return rule.key_error or diagnose(rule.scheme, rule.keys, rule.previous_keys, request, attempt.received_at)


def _authenticate_signature(webhook: IngressWebhook, request: SignedRequest, now_us: int) -> Authentication:
    rule = webhook.signature_rule
    if rule is None:
        return Refused(Reason.NO_SCHEME)
    result = verify(rule.scheme, rule.keys, request, now_us)
    if isinstance(result, Unverified):
        return Refused(result.reason, is_by_signature=True)
    return Authentic(
        mode=AuthMode.SIGNATURE,
        event_id=provider_event_id(rule.scheme, request),
        fingerprint=result.fingerprint,
        challenge_reply=handshake_reply(rule.scheme, rule.keys, request) if rule.answers_handshakes else None,
    )


def _signed_request(attempt: Attempt, body: bytes, public_url: str) -> SignedRequest:
    return SignedRequest(
        attempt.headers, attempt.conflicting_headers, body, public_url + attempt.target.decode("latin-1")
    )


def _authenticate_bearer_token(webhook: IngressWebhook, attempt: Attempt) -> Authentication:
    authorization = attempt.authorization
    if authorization is None:
        return Refused(Reason.NO_AUTHORIZATION)
    if attempt.authorization_count > 1:
        return Refused(Reason.SEVERAL_AUTHORIZATIONS)
    scheme, space, rest = authorization.partition(b" ")
    credential = rest.lstrip(b" ")
    if not space or not credential or scheme.lower() != b"bearer" or len(authorization) > _AUTHORIZATION_BYTES_MAX:
        return Refused(Reason.NOT_BEARER)
    return _AUTHENTIC_BEARER if _is_secret(webhook, credential) else Refused(Reason.WRONG_TOKEN)


def _authenticate_url_token(webhook: IngressWebhook, attempt: Attempt) -> Authentication:
    if attempt.url_token is None:
        return Refused(Reason.NO_URL_TOKEN)
    return _AUTHENTIC_URL_TOKEN if _is_secret(webhook, attempt.url_token) else Refused(Reason.WRONG_URL_TOKEN)


def _is_secret(webhook: IngressWebhook, credential: bytes) -> bool:
    # Digests have equal length, so the time reveals nothing about how close a guess is.
    return hmac.compare_digest(sha256(credential).digest(), webhook.secret_digest)
