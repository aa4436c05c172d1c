"""Did the sender prove itself? The answer is a type: only what is `Authentic` goes on to the log as a delivery."""

import hmac
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final, assert_never

import msgspec

from hookmill.domain.delivery import Attempt
from hookmill.domain.signatures.doctor import diagnose
from hookmill.domain.signatures.handshake import Reply, answer
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.verify import Unverified, delivery_id, verify
from hookmill.domain.webhook import AuthMode, LiveWebhook

_CREDENTIAL_BYTES_MAX: Final = 8192


class Reason(StrEnum):
    """Why a sender was refused, for the owner's log. The sender is told nothing of it."""

    NO_AUTHORIZATION = "no Authorization header"
    SEVERAL_AUTHORIZATIONS = "more than one Authorization header"
    NOT_BEARER = "the Authorization header is not of the form Bearer <secret>"
    WRONG_TOKEN = "the bearer token is not this webhook's secret"
    NO_URL_TOKEN = "the URL lacks its token segment"
    WRONG_URL_TOKEN = "the URL's token is not this webhook's secret"
    NO_RULE = "the webhook has no signature scheme that this version knows"


class Authentic(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sender holds the webhook's secret."""

    mode: AuthMode
    """How it proved that."""
    event_id: bytes | None = None
    """The provider's own id of the event, from its header or from the signed body."""
    fingerprint: bytes | None = None
    """What only a replay of this very request has again, where old signatures are refused."""
    reply: Reply | None = None
    """What the provider wants to hear instead of 202, when this is its challenge."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The sender did not prove itself. `reason` is for the owner's log; the sender is told nothing."""

    reason: str


Authentication = Authentic | Refused
_BY_BEARER_TOKEN: Final = Authentic(AuthMode.TOKEN)
_BY_URL_TOKEN: Final = Authentic(AuthMode.URL_TOKEN)


def needs_body(webhook: LiveWebhook) -> bool:
    """Whether the proof covers the body. Where it doesn't, the body of an unauthenticated client is not read."""
    return webhook.auth_mode is AuthMode.SIGNATURE


def authenticate(webhook: LiveWebhook, attempt: Attempt, body: bytes = b"", *, public_url: str = "") -> Authentication:
    """Verify the sender by the webhook's mode. Total: every request is either authentic or refused.

    `public_url` is the configured one, without a path: some providers sign the URL that they were given.
    """
    match webhook.auth_mode:
        case AuthMode.TOKEN:
            return _bearer(webhook, attempt)
        case AuthMode.URL_TOKEN:
            return _url_token(webhook, attempt)
        case AuthMode.SIGNATURE:
            return _signature(webhook, _signed_request(attempt, body, public_url), attempt.received_at)
        case _:
            assert_never(webhook.auth_mode)


def diagnosis(webhook: LiveWebhook, attempt: Attempt, body: bytes, *, public_url: str) -> str:
    """Why a signature was refused, for the owner: one sentence. Costs as much as several verifications."""
    rule = webhook.signature
    if rule is None:
        return Reason.NO_RULE.value
    request = _signed_request(attempt, body, public_url)
    return rule.trouble or diagnose(rule.scheme, rule.keys, rule.previous_keys, request, attempt.received_at)


def _signature(webhook: LiveWebhook, request: SignedRequest, now_us: int) -> Authentication:
    rule = webhook.signature
    if rule is None:
        return Refused(Reason.NO_RULE)
    result = verify(rule.scheme, rule.keys, request, now_us)
    if isinstance(result, Unverified):
        return Refused(result.reason)
    return Authentic(
        mode=AuthMode.SIGNATURE,
        event_id=delivery_id(rule.scheme, request),
        fingerprint=result.fingerprint,
        reply=answer(rule.scheme, rule.keys, request) if rule.answers_handshakes else None,
    )


def _signed_request(attempt: Attempt, body: bytes, public_url: str) -> SignedRequest:
    return SignedRequest(attempt.headers, attempt.conflicting, body, public_url + attempt.target.decode("latin-1"))


def _bearer(webhook: LiveWebhook, attempt: Attempt) -> Authentication:
    given = attempt.authorization
    if given is None:
        return Refused(Reason.NO_AUTHORIZATION)
    if attempt.authorizations > 1:
        return Refused(Reason.SEVERAL_AUTHORIZATIONS)
    scheme, space, rest = given.partition(b" ")
    credential = rest.lstrip(b" ")
    if not space or not credential or scheme.lower() != b"bearer" or len(given) > _CREDENTIAL_BYTES_MAX:
        return Refused(Reason.NOT_BEARER)
    return _BY_BEARER_TOKEN if _is_secret(webhook, credential) else Refused(Reason.WRONG_TOKEN)


def _url_token(webhook: LiveWebhook, attempt: Attempt) -> Authentication:
    if attempt.url_token is None:
        return Refused(Reason.NO_URL_TOKEN)
    return _BY_URL_TOKEN if _is_secret(webhook, attempt.url_token) else Refused(Reason.WRONG_URL_TOKEN)


def _is_secret(webhook: LiveWebhook, given: bytes) -> bool:
    # Digests are equally long whatever was sent, so neither the time nor an error tells how close a guess came.
    return hmac.compare_digest(sha256(given).digest(), webhook.secret_digest)
