"""A delivery: what was sent, which event it is, and what became of it.

Two deliveries with the same identity are the same event. The sender's word comes first, the body's digest last; each
kind is digested under its own name, so that none can pose as another.
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

SENDER_DELIVERY_IDS: Final = (b"x-service-delivery-id", b"x-warp-delivery-id")
"""The headers in which any sender may put an event's id: two names of the same id. The first that is there counts."""


class Attempt(msgspec.Struct, kw_only=True, gc=False):
    """One POST at an ingress path, before its body is read. Header names are in lower case, values as received."""

    uid: str
    url_token: bytes | None
    """The raw path segment after the uid, if there is one."""
    received_at: int
    headers: dict[bytes, bytes]
    """The first value of each header that a rule may ask for."""
    authorization: bytes | None
    authorizations: int
    conflicting: frozenset[bytes] = frozenset()
    """The headers that came more than once with different values."""
    target: bytes = b""
    """The path and the query as sent, which some providers sign."""
    peer: str = ""
    """The address that connected: the sender's, or a proxy's."""


class Label(IntEnum):
    """What a log row says became of an attempt. The numbers are stored; `.shown` is the contract's wording."""

    ACCEPTED = 1
    DUPLICATE = 2
    REJECTED_AUTH = 3
    REJECTED_INVALID_JSON = 4
    REJECTED_TOO_LARGE = 5

    @property
    def shown(self) -> str:
        return _SHOWN[self]


_SHOWN: Final = {
    Label.ACCEPTED: "Accepted",
    Label.DUPLICATE: "Duplicate",
    Label.REJECTED_AUTH: "Rejected (auth)",
    Label.REJECTED_INVALID_JSON: "Rejected (invalid JSON)",
    Label.REJECTED_TOO_LARGE: "Rejected (too large)",
}


class RateLimit(IntEnum):
    """Which of the webhook's two rate limits an attempt counts against. The numbers are stored.

    Unauthenticated clients can only ever use up the second.
    """

    DELIVERIES = 1
    FAILED_AUTHENTICATIONS = 2


class IdentityKind(IntEnum):
    """Where an identity was found, in order of preference. `.shown` is what exports say."""

    DELIVERY_ID_HEADER = 1
    PROVIDER = 2
    SENDER = 3
    BODY_SHA256 = 4
    SIGNED_CONTENT = 5
    """Beside one of the others: what the sender signed, time included. It makes a replay under a new id a Duplicate."""

    @property
    def shown(self) -> str:
        return self.name.lower()


class Recorded(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What the log records of an attempt although admission does not decide by it. Each field is a column of the same
    name."""

    reason: str | None = None
    """Why it was refused, for the webhook's owner."""
    client: str | None = None
    """The address that a refused attempt came from."""
    event: str | None = None
    """The type of the event, as an authenticated sender gives it."""
    event_signed: bool | None = None
    """Whether the signature covers the event's type. None where there is none."""


class Delivery(Recorded, frozen=True, kw_only=True):
    """One row of the log. `received_at` is in µs since 1970."""

    key: DeliveryKey
    webhook_uid: WebhookUid
    webhook_name: str
    label: Label
    size: int
    received_at: int
    identity_kind: IdentityKind | None
    identity: str | None
    duplicate_of: DeliveryKey | None
    identity_digest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedAttempts:
    """Attempts that have no row: how many, of which kind, from `since` until before `until` (µs since 1970)."""

    webhook_uid: WebhookUid
    kind: str
    since: int
    until: int
    count: int


def joined(counts: Iterable[DroppedAttempts]) -> list[DroppedAttempts]:
    """Those of one webhook and kind that follow on each other as one. Newest first."""
    ranges: list[DroppedAttempts] = []
    for each in sorted(counts, key=lambda one: (one.webhook_uid, one.kind, one.since)):
        last = ranges[-1] if ranges else None
        if last is None or (last.webhook_uid, last.kind, last.until) != (each.webhook_uid, each.kind, each.since):
            ranges.append(each)
        else:
            ranges[-1] = replace(last, until=each.until, count=last.count + each.count)
    return sorted(ranges, key=lambda one: one.until, reverse=True)


class Identity(NamedTuple):
    """Which event a delivery is.

    `digest` is 16 bytes over the kind and the whole value: what makes two events the same. `shown` is the sender's
    value for people, cut; None for a body's digest.
    """

    kind: IdentityKind
    digest: bytes
    shown: str | None


def identify(delivery_id_header: bytes | None, provider_id: bytes | None, attempt: Attempt, body: bytes) -> Identity:
    """Which event this is: the first identity that is present and not blank."""
    if delivery_id_header is not None and (sent := attempt.headers.get(delivery_id_header, b"").strip()):
        return _chosen(IdentityKind.DELIVERY_ID_HEADER, sent)
    if provider_id is not None and (sent := provider_id.strip()):
        return _chosen(IdentityKind.PROVIDER, sent)
    for header in SENDER_DELIVERY_IDS:
        if sent := attempt.headers.get(header, b"").strip():
            return _chosen(IdentityKind.SENDER, sent)
    return Identity(IdentityKind.BODY_SHA256, _digest(b"body_sha256", sha256(body).digest()), None)


def identities_shown_as(text: str) -> tuple[bytes, ...]:
    """The digests of the identities that a person may mean by `text`: a sender's or provider's id, or the SHA-256 of
    a body in hexadecimal digits."""
    value = text.strip().encode("utf-8", "surrogatepass")
    kinds = (IdentityKind.DELIVERY_ID_HEADER, IdentityKind.PROVIDER, IdentityKind.SENDER)
    chosen = tuple(_digest(kind.shown.encode(), value) for kind in kinds)
    if re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        return (*chosen, _digest(b"body_sha256", bytes.fromhex(text.strip())))
    return chosen


def replay_digest(fingerprint: bytes) -> bytes:
    """The identity of one signed request, for schemes that refuse old ones: only a replay has it again."""
    return _digest(IdentityKind.SIGNED_CONTENT.shown.encode(), fingerprint)


def _chosen(kind: IdentityKind, value: bytes) -> Identity:
    shown = value.decode("utf-8", "replace")[:IDENTITY_SHOWN_CHARACTERS]
    # PostgreSQL has no NUL in text, and a lone control character is nothing to show.
    return Identity(kind, _digest(kind.shown.encode(), value), "".join(c if c.isprintable() else "�" for c in shown))


def _digest(kind: bytes, value: bytes) -> bytes:
    return sha256(kind + b"\x00" + value).digest()[:16]


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Durably recorded, with a run for every automation that it matches."""

    delivery: DeliveryKey


class Duplicate(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The same event was accepted before, as `original`. Recorded; starts nothing."""

    delivery: DeliveryKey
    original: DeliveryKey


@dataclass(frozen=True, slots=True)
class Challenged:
    """A provider's signed challenge, recorded like a delivery; it starts nothing, and is answered as it wants."""

    status: int
    content_type: str
    body: bytes


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Recorded, and refused for what `label` says."""

    label: Label


class RateLimited(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Over a rate limit: counted, not recorded. The next slot is free at `opens_at` (µs since 1970)."""

    retry_after_seconds: int
    opens_at: int


def rate_limited(now: int, opens_at: int) -> RateLimited:
    """Both in µs. `Retry-After` speaks whole seconds: rounded up, and at least one."""
    return RateLimited(max(1, -(-(opens_at - now) // 1_000_000)), opens_at)


@dataclass(frozen=True, slots=True)
class NoSuchWebhook:
    """Unknown, disabled or deleted: nobody outside can tell which."""


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Our fault. Nothing is promised, and a retry is safe."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The body never arrived whole. Nothing was recorded, as nobody proved anything."""


Outcome = Accepted | Duplicate | Challenged | Rejected | RateLimited | NoSuchWebhook | Unavailable | Broken
