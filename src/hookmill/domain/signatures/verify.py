"""Does a signature prove its sender? Total: whatever a stranger sends ends in a verdict.

The secret is compared without haste: every signature that was sent is compared with every active key, as bytes of
equal length, and no comparison ends early. The signature is verified first and its age last.
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
from hookmill.domain.signatures.reading import SignedRequest, Verification
from hookmill.domain.signatures.scheme import CompiledScheme, Jwt, Scheme, Timestamp

SIGNATURE_BYTES_MAX: Final = 8192
CANDIDATES_MAX: Final = 16
JWT_LEEWAY_SECONDS: Final = 60


class Failure(StrEnum):
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

    reason: Failure
    seconds: int = 0
    """How old a stale signature is, or how far ahead one of the future."""


Verdict = Verified | Unverified
_VERIFIED: Final = Verified()


def verify(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> Verdict:
    """Judge a request by the scheme, with any of the active keys. `now_us` is in µs since 1970."""
    compiled = scheme.compiled
    if not compiled.all_headers.isdisjoint(request.conflicting):
        # Joined into one value, a second line could smuggle entries into a list.
        return Unverified(Failure.REPEATED_HEADER)
    if not keys:
        return Unverified(Failure.NO_KEY)
    verification = Verification(request)
    sent = _sent_signatures(compiled, verification)
    if isinstance(sent, Failure):
        return Unverified(sent)
    if scheme.jwt is not None:
        return _verify_token(scheme.jwt, keys, request, sent, now_us)
    candidates = [value for one in sent if (value := compiled.decode(one)) is not None]
    if not candidates:
        return Unverified(Failure.WRONG_ENCODING)
    signed_at = _read_timestamp(scheme.timestamp, compiled, verification) if compiled.timestamp_needed else None
    if isinstance(signed_at, Failure):
        return Unverified(signed_at)
    proven = _prove(compiled, keys, verification, candidates)
    if isinstance(proven, Failure):
        return Unverified(proven)
    if scheme.body_hash is not None and not _url_names_body(scheme.body_hash.query, request):
        return Unverified(Failure.BODY_CHANGED)
    if signed_at is None:
        return _VERIFIED
    if scheme.timestamp is None or not scheme.timestamp.enforced:
        return _VERIFIED
    return _aged(scheme.timestamp, signed_at, now_us) or Verified(sha256(proven).digest()[:16])


def delivery_id(scheme: Scheme, request: SignedRequest) -> bytes | None:
    """The provider's own id of this event, from its header or the body. Ask for verified requests only."""
    reader = scheme.compiled.delivery_id
    return None if reader is None else reader(Verification(request))


def _sent_signatures(compiled: CompiledScheme, verification: Verification) -> list[bytes] | Failure:
    """The signatures as they are written, without their prefix."""
    values = [value for read in compiled.signatures if (value := read(verification)) is not None]
    if not values:
        return Failure.NO_SIGNATURE
    if sum(map(len, values)) > SIGNATURE_BYTES_MAX:
        return Failure.TOO_LONG
    if compiled.entries is not None:
        values = [entry for value in values for entry in _entries(compiled, value, verification)]
        if not values:
            return Failure.NO_ENTRY
    if len(values) > CANDIDATES_MAX:
        return Failure.TOO_MANY
    prefix = compiled.prefix
    if not prefix:
        return values
    return [value[len(prefix) :] for value in values if value.startswith(prefix)] or Failure.WRONG_PREFIX


def _entries(compiled: CompiledScheme, value: bytes, verification: Verification) -> list[bytes]:
    """The entries of a list that are signatures; the time beside them goes to the reading."""
    parts = [part.strip(b" \t") for part in value.split(compiled.split)]
    assert compiled.entries is not None
    if compiled.entries.positional:
        verification.listed_timestamp = parts[0]
        return parts[1:]
    between = b"," if compiled.entries.tag else b"="
    found, times = [], set()
    for part in parts:
        name, mark, rest = part.partition(between)
        if mark and name == compiled.entry_mark:
            found.append(rest)
        elif mark and name == compiled.entry_time:
            times.add(rest)
    # Two different times in one header leave open which one was signed.
    verification.listed_timestamp = times.pop() if len(times) == 1 else None
    return found


def _read_timestamp(timestamp: Timestamp | None, compiled: CompiledScheme, verification: Verification) -> int | Failure:
    assert timestamp is not None
    assert compiled.timestamp is not None
    written = compiled.timestamp(verification)
    if not written:
        return Failure.NO_TIMESTAMP
    seconds = seconds_since_1970(written, timestamp.unit)
    if seconds is None:
        return Failure.BAD_TIMESTAMP
    verification.timestamp = written
    return seconds


def _prove(
    compiled: CompiledScheme, keys: Sequence[Key], verification: Verification, candidates: list[bytes]
) -> bytes | Failure:
    """What the matching signature stands for: equal bytes for equal requests, however the signature was written."""
    content = None if compiled.keyed_content else compiled.content.fill(verification)
    if content is None and not compiled.keyed_content:
        return Failure.INCOMPLETE
    proven = None
    for key in keys:
        verification.secret = key.shared
        if compiled.keyed_content:
            content = compiled.content.fill(verification)
            if content is None:
                return Failure.INCOMPLETE
        assert content is not None
        if key.public is not None:
            for candidate in candidates:
                if _public_key_confirms(key.public, candidate, content):
                    proven = content
            continue
        expected = _expected(compiled, key, verification, content)
        for candidate in candidates:
            if hmac.compare_digest(expected, candidate):
                proven = expected
    return Failure.MISMATCH if proven is None else proven


def _expected(compiled: CompiledScheme, key: Key, verification: Verification, content: bytes) -> bytes:
    if compiled.family == "hmac":
        hmac_key = (compiled.key.fill(verification) or key.shared) if compiled.key_differs else key.shared
        return hmac.digest(hmac_key, content, compiled.digest)
    if compiled.family == "token":
        # A token's reader digests what was sent, so that both sides are equally long.
        return sha256(key.shared).digest()
    return new_digest(compiled.digest, content, usedforsecurity=False).digest()


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
        return Unverified(Failure.STALE, age)
    return Unverified(Failure.AHEAD, -age) if -age > timestamp.tolerance_seconds else None


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
        return Unverified(Failure.WRONG_ENCODING)
    proven = None
    for key in keys:
        for token in tokens:
            if hmac.compare_digest(hmac.digest(key.shared, token.signed, "sha256"), token.signature):
                proven = token
    if proven is None:
        return Unverified(Failure.MISMATCH)
    claims = _object(proven.claims)
    if claims is None:
        return Unverified(Failure.WRONG_CLAIMS)
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
        return Unverified(Failure.WRONG_CLAIMS)
    if not hmac.compare_digest(digest, sha256(body).digest()):
        return Unverified(Failure.BODY_CHANGED)
    expires, begins = _moment(claims.get("exp")), _moment(claims.get("nbf"))
    if expires is _NO_MOMENT or begins is _NO_MOMENT or (rule.requires_expiry and expires is None):
        return Unverified(Failure.WRONG_CLAIMS)
    now = now_us // 1_000_000
    if expires is not None and now - expires > JWT_LEEWAY_SECONDS:
        return Unverified(Failure.STALE, now - expires)
    if begins is not None and begins - now > JWT_LEEWAY_SECONDS:
        return Unverified(Failure.AHEAD, begins - now)
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
