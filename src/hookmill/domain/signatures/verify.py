"""Does a signature prove its sender? Total: whatever a stranger sends ends in a verdict.

The secret is compared without haste: every signature that was sent is compared with every active key, as bytes of
equal length, and no comparison ends early. The signature is judged first and its age last.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from hashlib import new as new_digest
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from hookmill.domain.payload import Json, NotJson, parse
from hookmill.domain.signatures.encoding import Encoding, base64url, decoder, seconds_since_1970
from hookmill.domain.signatures.key import Key, PublicKey
from hookmill.domain.signatures.reading import Reading, SignedRequest
from hookmill.domain.signatures.scheme import Jwt, Plan, Scheme, Timestamp

SIGNATURE_BYTES_MAX: Final = 8192
CANDIDATES_MAX: Final = 16
JWT_LEEWAY_SECONDS: Final = 60


class Reason(StrEnum):
    """Why a signature proves nothing, for the owner's log. The sender is told nothing of it."""

    NO_SIGNATURE = "the signature is absent"
    REPEATED_HEADER = "a signed header came twice with different values"
    TOO_LONG = "the signature header is longer than 8 KiB"
    TOO_MANY = "the request carries more than 16 signatures"
    NO_ENTRY = "the signature header holds no entry of this scheme"
    WRONG_PREFIX = "the signature does not begin as this scheme's do"
    WRONG_ENCODING = "the signature is not written as this scheme's are"
    NO_TIMESTAMP = "the signed time is absent"
    BAD_TIMESTAMP = "the signed time is not one that this scheme writes"
    INCOMPLETE = "a value that the signature covers is absent"
    MISMATCH = "the signature does not match"
    BODY_CHANGED = "the signature is right, but for another body"
    WRONG_CLAIMS = "the signed token does not claim what it must"
    STALE = "the signature is too old"
    AHEAD = "the signature is from too far in the future"
    NO_KEY = "there is no secret to verify with"


@dataclass(frozen=True, slots=True)
class Verified:
    """The sender holds the secret."""

    fingerprint: bytes | None = None
    """16 bytes that only a repeat of the same signed request has. None where the time is not enforced: there, what was
    signed need not tell two deliveries of one body apart."""


@dataclass(frozen=True, slots=True)
class Unverified:
    """The sender did not prove itself."""

    reason: Reason
    seconds: int = 0
    """How old a stale signature is, or how far ahead one of the future."""


Verdict = Verified | Unverified
_VERIFIED: Final = Verified()


def verify(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> Verdict:
    """Judge a request by the scheme, with any of the active keys. `now_us` is in µs since 1970."""
    plan = scheme.plan
    if not plan.all_headers.isdisjoint(request.conflicting):
        # Joined into one value, a second line could smuggle entries into a list.
        return Unverified(Reason.REPEATED_HEADER)
    if not keys:
        return Unverified(Reason.NO_KEY)
    reading = Reading(request)
    sent = _sent_signatures(plan, reading)
    if isinstance(sent, Reason):
        return Unverified(sent)
    if scheme.jwt is not None:
        return _verify_token(scheme.jwt, keys, request, sent, now_us)
    candidates = [value for one in sent if (value := plan.decode(one)) is not None]
    if not candidates:
        return Unverified(Reason.WRONG_ENCODING)
    signed_at = _read_timestamp(scheme.timestamp, plan, reading) if plan.timestamp_needed else None
    if isinstance(signed_at, Reason):
        return Unverified(signed_at)
    proven = _prove(plan, keys, reading, candidates)
    if isinstance(proven, Reason):
        return Unverified(proven)
    if scheme.body_hash is not None and not _url_names_body(scheme.body_hash.query, request):
        return Unverified(Reason.BODY_CHANGED)
    if signed_at is None:
        return _VERIFIED
    if scheme.timestamp is None or not scheme.timestamp.enforced:
        return _VERIFIED
    return _aged(scheme.timestamp, signed_at, now_us) or Verified(sha256(proven).digest()[:16])


def delivery_id(scheme: Scheme, request: SignedRequest) -> bytes | None:
    """The provider's own id of this event, from its header or the body. Ask for verified requests only."""
    reader = scheme.plan.delivery_id
    return None if reader is None else reader(Reading(request))


def _sent_signatures(plan: Plan, reading: Reading) -> list[bytes] | Reason:
    """The signatures as they are written, without their prefix."""
    values = [value for read in plan.signatures if (value := read(reading)) is not None]
    if not values:
        return Reason.NO_SIGNATURE
    if sum(map(len, values)) > SIGNATURE_BYTES_MAX:
        return Reason.TOO_LONG
    if plan.entries is not None:
        values = [entry for value in values for entry in _entries(plan, value, reading)]
        if not values:
            return Reason.NO_ENTRY
    if len(values) > CANDIDATES_MAX:
        return Reason.TOO_MANY
    prefix = plan.prefix
    if not prefix:
        return values
    return [value[len(prefix) :] for value in values if value.startswith(prefix)] or Reason.WRONG_PREFIX


def _entries(plan: Plan, value: bytes, reading: Reading) -> list[bytes]:
    """The entries of a list that are signatures; the time beside them goes to the reading."""
    parts = [part.strip(b" \t") for part in value.split(plan.split)]
    assert plan.entries is not None
    if plan.entries.positional:
        reading.listed_timestamp = parts[0]
        return parts[1:]
    between = b"," if plan.entries.tag else b"="
    found, times = [], set()
    for part in parts:
        name, mark, rest = part.partition(between)
        if mark and name == plan.entry_mark:
            found.append(rest)
        elif mark and name == plan.entry_time:
            times.add(rest)
    # Two different times in one header leave open which one was signed.
    reading.listed_timestamp = times.pop() if len(times) == 1 else None
    return found


def _read_timestamp(timestamp: Timestamp | None, plan: Plan, reading: Reading) -> int | Reason:
    assert timestamp is not None
    assert plan.timestamp is not None
    written = plan.timestamp(reading)
    if not written:
        return Reason.NO_TIMESTAMP
    seconds = seconds_since_1970(written, timestamp.unit)
    if seconds is None:
        return Reason.BAD_TIMESTAMP
    reading.timestamp = written
    return seconds


def _prove(plan: Plan, keys: Sequence[Key], reading: Reading, candidates: list[bytes]) -> bytes | Reason:
    """What the matching signature stands for: equal bytes for equal requests, however the signature was written."""
    content = None if plan.keyed_content else plan.content.fill(reading)
    if content is None and not plan.keyed_content:
        return Reason.INCOMPLETE
    proven = None
    for key in keys:
        reading.secret = key.shared
        if plan.keyed_content:
            content = plan.content.fill(reading)
            if content is None:
                return Reason.INCOMPLETE
        assert content is not None
        if key.public is not None:
            for candidate in candidates:
                if _public_key_confirms(key.public, candidate, content):
                    proven = content
            continue
        expected = _expected(plan, key, reading, content)
        for candidate in candidates:
            if hmac.compare_digest(expected, candidate):
                proven = expected
    return Reason.MISMATCH if proven is None else proven


def _expected(plan: Plan, key: Key, reading: Reading, content: bytes) -> bytes:
    if plan.family == "hmac":
        hmac_key = (plan.key.fill(reading) or key.shared) if plan.key_differs else key.shared
        return hmac.digest(hmac_key, content, plan.digest)
    if plan.family == "token":
        # A token's reader digests what was sent, so that both sides are equally long.
        return sha256(key.shared).digest()
    return new_digest(plan.digest, content, usedforsecurity=False).digest()


def _public_key_confirms(key: PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, content)
        elif isinstance(key, EllipticCurvePublicKey):
            key.verify(signature, content, ECDSA(hashes.SHA256()))
        else:
            key.verify(signature, content, PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def _url_names_body(parameter: str, request: SignedRequest) -> bool:
    """Whether the signed URL carries this body's digest."""
    _, _, query = request.url.partition("?")
    named = [part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] == parameter]
    digest = _HEX_SHA256(named[0].encode("utf-8", "surrogatepass")) if len(named) == 1 else None
    return digest is not None and hmac.compare_digest(digest, sha256(request.body).digest())


def _aged(timestamp: Timestamp, signed_at: int, now_us: int) -> Unverified | None:
    assert timestamp.tolerance_seconds is not None, "an enforced time has a tolerance"
    # In whole seconds, as senders count: 300 seconds pass and 301 fail, on both sides.
    age = now_us // 1_000_000 - signed_at
    if age > timestamp.tolerance_seconds:
        return Unverified(Reason.STALE, age)
    return Unverified(Reason.AHEAD, -age) if -age > timestamp.tolerance_seconds else None


_HEX_SHA256: Final = decoder(Encoding.HEX, 32)


@dataclass(frozen=True, slots=True)
class _Token:
    """A JWT taken apart; nothing in it is to be believed yet."""

    signed: bytes
    signature: bytes
    claims: bytes


def _verify_token(rule: Jwt, keys: Sequence[Key], request: SignedRequest, sent: list[bytes], now_us: int) -> Verdict:
    tokens = [token for one in sent if (token := _token(one)) is not None]
    if not tokens:
        return Unverified(Reason.WRONG_ENCODING)
    proven = None
    for key in keys:
        for token in tokens:
            if hmac.compare_digest(hmac.digest(key.shared, token.signed, "sha256"), token.signature):
                proven = token
    if proven is None:
        return Unverified(Reason.MISMATCH)
    claims = _object(proven.claims)
    if claims is None:
        return Unverified(Reason.WRONG_CLAIMS)
    return _judge_claims(rule, claims, request.body, now_us)


def _token(written: bytes) -> _Token | None:
    """The token, if it names HS256. A token that chose its own algorithm would choose `none`."""
    parts = written.split(b".")
    if len(parts) != 3:
        return None
    header, claims, signature = (base64url(part) for part in parts)
    if header is None or claims is None or signature is None:
        return None
    stated = _object(header)
    if stated is None or stated.get("alg") != "HS256" or "crit" in stated:
        return None
    return _Token(b".".join(parts[:2]), signature, claims)


def _object(text: bytes) -> dict[str, Json] | None:
    parsed = parse(text)
    if isinstance(parsed, NotJson):
        return None
    return parsed.value if type(parsed.value) is dict else None


def _judge_claims(rule: Jwt, claims: dict[str, Json], body: bytes, now_us: int) -> Verdict:
    claimed = claims.get(rule.body_claim)
    written = claimed.encode("utf-8", "surrogatepass") if type(claimed) is str else b""
    digest = decoder(rule.claim_encoding, 32)(written)
    if digest is None or (rule.issuer is not None and claims.get("iss") != rule.issuer):
        return Unverified(Reason.WRONG_CLAIMS)
    if not hmac.compare_digest(digest, sha256(body).digest()):
        return Unverified(Reason.BODY_CHANGED)
    expires, begins = _moment(claims.get("exp")), _moment(claims.get("nbf"))
    if expires is _NO_MOMENT or begins is _NO_MOMENT or (rule.requires_expiry and expires is None):
        return Unverified(Reason.WRONG_CLAIMS)
    now = now_us // 1_000_000
    if expires is not None and now - expires > JWT_LEEWAY_SECONDS:
        return Unverified(Reason.STALE, now - expires)
    if begins is not None and begins - now > JWT_LEEWAY_SECONDS:
        return Unverified(Reason.AHEAD, begins - now)
    return _VERIFIED


_NO_MOMENT: Final = -1


def _moment(claim: Json) -> int | None:
    """A claimed time in whole seconds since 1970; `_NO_MOMENT` for what is no such time."""
    if claim is None:
        return None
    # A boolean is no number, and arithmetic with a number of a thousand digits may not end well.
    if type(claim) not in {int, Decimal} or not 0 <= claim < 2**53:
        return _NO_MOMENT
    return int(claim)
