"""A delivery: the attempt, its identity, and its outcome.

Two deliveries with the same identity report the same event. The sender's id has priority over the body's digest. The
digest of an identity includes its kind, so that identities of different kinds never have the same digest.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from hookmill.domain.ids import DeliveryKey, WebhookUid
from hookmill.domain.limits import IDENTITY_SHOWN_CHARACTERS

SENDER_DELIVERY_ID_HEADERS: Final = (b"x-service-delivery-id", b"x-warp-delivery-id")
"""The headers in which any sender can put an event's id. The first header that is present counts."""


class Attempt(msgspec.Struct, kw_only=True, gc=False):
    """One POST at an ingress path, before its body is read. Header names are in lower case, values as received."""

    uid: str
    url_token: bytes | None
    """The raw path segment after the uid, or None."""
    received_at: int
    """In µs since 1970."""
    headers: dict[bytes, bytes]
    """The first value of each header; of X-Forwarded-For, all values joined with commas."""
    authorization: bytes | None
    """The value of the first Authorization header."""
    authorization_count: int
    """The number of Authorization headers."""
    conflicting_headers: frozenset[bytes] = frozenset()
    """The headers that occurred more than once with different values."""
    target: bytes = b""
    """The path and the query as sent, which some providers sign."""
    peer: str = ""
    """The address of the connection: the sender's, or a proxy's."""


class Label(IntEnum):
    """The outcome of an attempt in the log. The numbers are stored; `.wording` is the contract's wording."""

    ACCEPTED = 1
    DUPLICATE = 2
    REJECTED_AUTH = 3
    REJECTED_INVALID_JSON = 4
    REJECTED_TOO_LARGE = 5

    @property
    def wording(self) -> str:
        return _WORDINGS[self]


_WORDINGS: Final = {
    Label.ACCEPTED: "Accepted",
    Label.DUPLICATE: "Duplicate",
    Label.REJECTED_AUTH: "Rejected (auth)",
    Label.REJECTED_INVALID_JSON: "Rejected (invalid JSON)",
    Label.REJECTED_TOO_LARGE: "Rejected (too large)",
}


class RateLimit(IntEnum):
    """Which of the webhook's two rate limits an attempt counts against. The numbers are stored.

    Unauthenticated clients can use up only the second limit.
    """

    DELIVERIES = 1
    FAILED_AUTHENTICATIONS = 2


class IdentityKind(IntEnum):
    """The source of an identity. The first four are in order of priority.

    The numbers are stored. `.public_name` is the name in the API and in exports.
    """

    DELIVERY_ID_HEADER = 1
    PROVIDER = 2
    SENDER = 3
    BODY_SHA256 = 4
    SIGNED_CONTENT = 5
    """The signed content, including its time. A delivery has this identity in addition to an identity of another kind,
    so that a replay with a new delivery id is a Duplicate."""

    @property
    def public_name(self) -> str:
        return self.name.lower()


class LogDetails(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Fields that the log records, but that admission does not evaluate. Each field is a column of the same name."""

    reason: str | None = None
    """The reason of a rejection, for the webhook's owner."""
    client: str | None = None
    """The IP address of an unauthenticated client; None if the sender was authenticated."""
    event: str | None = None
    """The event type, if the sender is authenticated."""
    event_signed: bool | None = None
    """Whether the signature covers the event type; None without an event type."""
    traceparent: str | None = None
    """The sender's trace that the delivery continues, as `valid_traceparent` returns it. None while tracing is off."""


class Delivery(LogDetails, frozen=True, kw_only=True):
    """One row of the log. `received_at` is in µs since 1970, `size` is the body's size in bytes."""

    key: DeliveryKey
    webhook_uid: WebhookUid
    webhook_name: str
    label: Label
    size: int
    received_at: int
    identity_kind: IdentityKind | None
    """None for a rejected attempt."""
    identity: str | None
    """The `display_value` of its `Identity`."""
    duplicate_of: DeliveryKey | None
    """The Accepted delivery with the same identity; None unless this is a Duplicate."""
    identity_digest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedAttempts:
    """The number of dropped attempts of one kind, from `since` (inclusive) to `until` (exclusive), in µs since 1970."""

    webhook_uid: WebhookUid
    kind: str
    since: int
    until: int
    count: int


def merge_adjacent(ranges: Iterable[DroppedAttempts]) -> list[DroppedAttempts]:
    """Merge adjacent time ranges of the same webhook and kind. The result is newest first."""
    merged_ranges: list[DroppedAttempts] = []
    for following in sorted(ranges, key=lambda item: (item.webhook_uid, item.kind, item.since)):
        last = merged_ranges[-1] if merged_ranges else None
        start = (following.webhook_uid, following.kind, following.since)
        if last is None or (last.webhook_uid, last.kind, last.until) != start:
            merged_ranges.append(following)
        else:
            merged_ranges[-1] = replace(last, until=following.until, count=last.count + following.count)
    return sorted(merged_ranges, key=lambda item: item.until, reverse=True)


class Identity(NamedTuple):
    """The identity of the event that a delivery reports.

    Two deliveries with the same `digest` (16 bytes, a hash of the kind and the whole value) report the same event.
    `display_value` is the sender's value, shortened for display; None for a body's digest.
    """

    kind: IdentityKind
    digest: bytes
    display_value: str | None


def identify(delivery_id_header: bytes | None, provider_id: bytes | None, attempt: Attempt, body: bytes) -> Identity:
    """The identity with the highest priority that is present and not blank."""
    if delivery_id_header is not None and (value := attempt.headers.get(delivery_id_header, b"").strip()):
        return _identity_of_id(IdentityKind.DELIVERY_ID_HEADER, value)
    if provider_id is not None and (value := provider_id.strip()):
        return _identity_of_id(IdentityKind.PROVIDER, value)
    for header in SENDER_DELIVERY_ID_HEADERS:
        if value := attempt.headers.get(header, b"").strip():
            return _identity_of_id(IdentityKind.SENDER, value)
    return Identity(IdentityKind.BODY_SHA256, body_identity_digest(sha256(body).digest()), None)


def possible_identity_digests(text: str) -> tuple[bytes, ...]:
    """The digests of the identities that `text` may stand for.

    `text` is a sender's or provider's id, or the SHA-256 of a body in hexadecimal digits.
    """
    value = text.strip().encode("utf-8", "surrogatepass")
    kinds = (IdentityKind.DELIVERY_ID_HEADER, IdentityKind.PROVIDER, IdentityKind.SENDER)
    digests = tuple(_digest(kind.public_name.encode(), value) for kind in kinds)
    if re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        return (*digests, body_identity_digest(bytes.fromhex(text.strip())))
    return digests


def body_identity_digest(body_sha256: bytes) -> bytes:
    """The digest of the identity of a body with this SHA-256."""
    return _digest(b"body_sha256", body_sha256)


def replay_digest(fingerprint: bytes) -> bytes:
    """The digest of the identity `SIGNED_CONTENT`. Only a replay of the same signed request has the same digest."""
    return _digest(IdentityKind.SIGNED_CONTENT.public_name.encode(), fingerprint)


def _identity_of_id(kind: IdentityKind, value: bytes) -> Identity:
    text = value.decode("utf-8", "replace")[:IDENTITY_SHOWN_CHARACTERS]
    # PostgreSQL can't store NUL in text, and control characters can't be displayed.
    display_value = "".join(c if c.isprintable() else "�" for c in text)
    return Identity(kind, _digest(kind.public_name.encode(), value), display_value)


def _digest(kind: bytes, value: bytes) -> bytes:
    return sha256(kind + b"\x00" + value).digest()[:16]


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The delivery is durable, with a run for every automation that matches."""

    delivery_key: DeliveryKey


class Duplicate(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The same event was accepted before, as `original`. The log has a row; no run starts."""

    delivery_key: DeliveryKey
    original: DeliveryKey


@dataclass(frozen=True, slots=True)
class HandshakeReply:
    """The reply to a provider's signed challenge, instead of the usual 202. The log has a row; no run starts."""

    status: int
    content_type: str
    body: bytes


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The attempt was rejected for the reason in `label`. The log has a row."""

    label: Label


class RateLimited(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The attempt exceeded a rate limit. It is counted, but the log has no row.

    The limit admits the next attempt at `opens_at`, in µs since 1970.
    """

    retry_after_seconds: int
    opens_at: int


def rate_limited(now: int, opens_at: int) -> RateLimited:
    """The outcome of an attempt at `now` over a limit that admits again at `opens_at`. Both are in µs since 1970.

    `Retry-After` has whole seconds, so it is rounded up, and at least 1.
    """
    return RateLimited(max(1, -(-(opens_at - now) // 1_000_000)), opens_at)


@dataclass(frozen=True, slots=True)
class NoSuchWebhook:
    """The webhook is unknown, disabled or deleted. The sender can't distinguish these cases."""


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The service could not record the attempt, or does not know whether it did. A retry is safe."""


@dataclass(frozen=True, slots=True)
class CutShort:
    """The body did not arrive completely. Nothing was recorded, because no delivery arrived."""


Outcome = Accepted | Duplicate | HandshakeReply | Rejected | RateLimited | NoSuchWebhook | Unavailable | CutShort
