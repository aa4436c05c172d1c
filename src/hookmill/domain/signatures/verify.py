"""Verifies the signature of a request. Never raises, whatever the client sent.

Comparisons take constant time: each signature of the request is compared with the expected one of each active key, over
equal lengths, and the loop continues after a match. The signature is verified first, its age last.
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
from hookmill.domain.signatures.encoding import Encoding, decode_base64url, decoder, seconds_since_1970
from hookmill.domain.signatures.key import Key, PublicKey
from hookmill.domain.signatures.reading import RequestValues, SignedRequest
from hookmill.domain.signatures.scheme import CompiledScheme, Jwt, Scheme, Timestamp

SIGNATURE_BYTES_MAX: Final = 8192
CANDIDATES_MAX: Final = 16
JWT_LEEWAY_SECONDS: Final = 60


class Failure(StrEnum):
    """Why a signature was refused, for the owner's log. The response to the sender does not contain the reason."""

    NO_SIGNATURE = "the signature is absent"
    REPEATED_HEADER = "a signed header occurs more than once, with different values"
    TOO_LONG = "the signature header is longer than 8 KiB"
    TOO_MANY = "the request has more than 16 signatures"
    NO_ENTRY = "the signature header has no entry of this scheme"
    WRONG_PREFIX = "the signature does not begin with this scheme's prefix"
    WRONG_ENCODING = "the signature is not in this scheme's encoding"
    NO_TIMESTAMP = "the signed time is absent"
    BAD_TIMESTAMP = "the signed time is not in this scheme's format"
    INCOMPLETE = "a value that the signature covers is absent"
    MISMATCH = "the signature does not match"
    BODY_CHANGED = "the signature is valid, but for another body"
    WRONG_CLAIMS = "a claim of the signed token is absent or wrong"
    STALE = "the signature is too old"
    AHEAD = "the signature is from too far in the future"
    NO_KEY = "the webhook has no secret to verify with"


@dataclass(frozen=True, slots=True)
class Verified:
    """The sender has the secret."""

    fingerprint: bytes | None = None
    """16 bytes that only a replay of the same signed request has. None for JWTs, and if the scheme does not enforce the
    time, because two deliveries with the same body may then have the same signed content."""


@dataclass(frozen=True, slots=True)
class Unverified:
    """The request has no valid signature."""

    reason: Failure
    seconds: int = 0
    """For `STALE`, the signature's age; for a stale JWT, the time since its expiry. For `AHEAD`, the time until the
    signature or the JWT becomes valid."""


VerificationResult = Verified | Unverified
_VERIFIED: Final = Verified()


def verify(scheme: Scheme, keys: Sequence[Key], request: SignedRequest, now_us: int) -> VerificationResult:
    """Verify that one of the active keys signed the request. `now_us` is in µs since 1970."""
    compiled = scheme.compiled
    if not compiled.used_headers.isdisjoint(request.conflicting_headers):
        # If the values were joined, an attacker's second header could add entries to a list of signatures.
        return Unverified(Failure.REPEATED_HEADER)
    if not keys:
        return Unverified(Failure.NO_KEY)
    values = RequestValues(request)
    signatures = _read_signatures(compiled, values)
    if isinstance(signatures, Failure):
        return Unverified(signatures)
    if scheme.jwt is not None:
        return _verify_jwt(scheme.jwt, keys, request, signatures, now_us)
    candidates = [decoded for signature in signatures if (decoded := compiled.decode(signature)) is not None]
    if not candidates:
        return Unverified(Failure.WRONG_ENCODING)
    signed_at = _read_timestamp(scheme.timestamp, compiled, values) if compiled.needs_timestamp else None
    if isinstance(signed_at, Failure):
        return Unverified(signed_at)
    fingerprint_source = _match_candidates(compiled, keys, values, candidates)
    if isinstance(fingerprint_source, Failure):
        return Unverified(fingerprint_source)
    if scheme.body_hash is not None and not _url_has_digest_of_body(scheme.body_hash.query_parameter, request):
        return Unverified(Failure.BODY_CHANGED)
    if signed_at is None or scheme.timestamp is None or not scheme.timestamp.enforced:
        # The scheme enforces no time, so there is no fingerprint.
        return _VERIFIED
    tolerance_failure = _tolerance_failure(scheme.timestamp, signed_at, now_us)
    if tolerance_failure is not None:
        return tolerance_failure
    return Verified(sha256(fingerprint_source).digest()[:16])


def provider_event_id(scheme: Scheme, request: SignedRequest) -> bytes | None:
    """The provider's id of this event, from a header or the body. `request` must be verified."""
    read = scheme.compiled.read_delivery_id
    return None if read is None else read(RequestValues(request))


def _read_signatures(compiled: CompiledScheme, values: RequestValues) -> list[bytes] | Failure:
    """The signatures of the request, still encoded, without their prefix."""
    signatures = [value for read in compiled.signature_readers if (value := read(values)) is not None]
    if not signatures:
        return Failure.NO_SIGNATURE
    if sum(map(len, signatures)) > SIGNATURE_BYTES_MAX:
        return Failure.TOO_LONG
    if compiled.list_format is not None:
        signatures = [entry for header in signatures for entry in _listed_signatures(compiled, header, values)]
        if not signatures:
            return Failure.NO_ENTRY
    if len(signatures) > CANDIDATES_MAX:
        return Failure.TOO_MANY
    prefix = compiled.prefix
    if not prefix:
        return signatures
    return [text[len(prefix) :] for text in signatures if text.startswith(prefix)] or Failure.WRONG_PREFIX


def _listed_signatures(compiled: CompiledScheme, header: bytes, values: RequestValues) -> list[bytes]:
    """The signatures in a header that contains a list. Stores the list's timestamp in `values`."""
    parts = [part.strip(b" \t") for part in header.split(compiled.separator)]
    assert compiled.list_format is not None
    if compiled.list_format.positional:
        # `1700000000,abc`: the time, then signatures.
        values.timestamp_in_signature_header = parts[0]
        return parts[1:]
    # `v1,abc` has a tag, and `v1=abc` has a name.
    delimiter = b"," if compiled.list_format.tag else b"="
    signatures, timestamps = [], set()
    for part in parts:
        name, separator, value = part.partition(delimiter)
        if separator and name == compiled.entry_name:
            signatures.append(value)
        elif separator and name == compiled.timestamp_entry_name:
            timestamps.add(value)
    # With two different timestamps, it is unclear which one was signed.
    values.timestamp_in_signature_header = timestamps.pop() if len(timestamps) == 1 else None
    return signatures


def _read_timestamp(timestamp: Timestamp | None, compiled: CompiledScheme, values: RequestValues) -> int | Failure:
    """The signed time in seconds since 1970. Stores its text in `values`."""
    assert timestamp is not None
    assert compiled.read_timestamp is not None
    text = compiled.read_timestamp(values)
    if not text:
        return Failure.NO_TIMESTAMP
    seconds = seconds_since_1970(text, timestamp.unit)
    if seconds is None:
        return Failure.BAD_TIMESTAMP
    values.timestamp = text
    return seconds


def _match_candidates(
    compiled: CompiledScheme, keys: Sequence[Key], values: RequestValues, candidates: list[bytes]
) -> bytes | Failure:
    """The expected signature, if a candidate equals it; for a public key, the content that a candidate signs.

    `verify` hashes the returned value for the fingerprint. So all encodings of a signature have the same fingerprint.
    """
    content = None if compiled.content_contains_secret else compiled.content_template.fill(values)
    if content is None and not compiled.content_contains_secret:
        return Failure.INCOMPLETE
    fingerprint_source = None
    for key in keys:
        # The content and the HMAC's key may contain the secret.
        values.secret = key.secret_bytes
        if compiled.content_contains_secret:
            content = compiled.content_template.fill(values)
            if content is None:
                return Failure.INCOMPLETE
        assert content is not None
        if key.public_key is not None:
            for candidate in candidates:
                if _public_key_verifies(key.public_key, candidate, content):
                    fingerprint_source = content
            continue
        expected = _expected_signature(compiled, key, values, content)
        for candidate in candidates:
            if hmac.compare_digest(expected, candidate):
                fingerprint_source = expected
    return Failure.MISMATCH if fingerprint_source is None else fingerprint_source


def _expected_signature(compiled: CompiledScheme, key: Key, values: RequestValues, content: bytes) -> bytes:
    if compiled.family == "hmac":
        hmac_key = key.secret_bytes
        if compiled.key_is_derived:
            hmac_key = compiled.key_template.fill(values) or key.secret_bytes
        return hmac.digest(hmac_key, content, compiled.digest)
    if compiled.family == "token":
        # For tokens, `compiled.decode` hashes the candidate, so the two compared values have equal length.
        return sha256(key.secret_bytes).digest()
    # The family `hash`: a plain digest of content that contains the secret.
    return new_digest(compiled.digest, content, usedforsecurity=False).digest()


def _public_key_verifies(key: PublicKey, signature: bytes, content: bytes) -> bool:
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


def _url_has_digest_of_body(parameter: str, request: SignedRequest) -> bool:
    """Whether the signed URL has this body's digest in the query parameter."""
    _, _, query = request.url.partition("?")
    values = [part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] == parameter]
    digest = _HEX_SHA256(values[0].encode("utf-8", "surrogatepass")) if len(values) == 1 else None
    return digest is not None and hmac.compare_digest(digest, sha256(request.body).digest())


def _tolerance_failure(timestamp: Timestamp, signed_at: int, now_us: int) -> Unverified | None:
    assert timestamp.tolerance_seconds is not None, "an enforced time has a tolerance"
    # Senders count in whole seconds. With a tolerance of 300 s, 300 s are accepted and 301 s are refused.
    age = now_us // 1_000_000 - signed_at
    if age > timestamp.tolerance_seconds:
        return Unverified(Failure.STALE, age)
    return Unverified(Failure.AHEAD, -age) if -age > timestamp.tolerance_seconds else None


_HEX_SHA256: Final = decoder(Encoding.HEX, 32)


@dataclass(frozen=True, slots=True)
class _JwtParts:
    """The parts of a JWT whose signature is not verified yet."""

    signed_content: bytes
    signature: bytes
    claims: bytes


def _verify_jwt(
    rule: Jwt, keys: Sequence[Key], request: SignedRequest, tokens: list[bytes], now_us: int
) -> VerificationResult:
    jwts = [parts for token in tokens if (parts := _split_jwt(token)) is not None]
    if not jwts:
        return Unverified(Failure.WRONG_ENCODING)
    verified_jwt = None
    for key in keys:
        for jwt in jwts:
            if hmac.compare_digest(hmac.digest(key.secret_bytes, jwt.signed_content, "sha256"), jwt.signature):
                verified_jwt = jwt
    if verified_jwt is None:
        return Unverified(Failure.MISMATCH)
    claims = _parse_object(verified_jwt.claims)
    if claims is None:
        return Unverified(Failure.WRONG_CLAIMS)
    return _verify_claims(rule, claims, request.body, now_us)


def _split_jwt(token: bytes) -> _JwtParts | None:
    """The parts of a JWT that HS256 signs. None for any other `alg`: an attacker could choose `none`."""
    parts = token.split(b".")
    if len(parts) != 3:
        return None
    header, claims, signature = (decode_base64url(part) for part in parts)
    if header is None or claims is None or signature is None:
        return None
    fields = _parse_object(header)
    if fields is None or fields.get("alg") != "HS256" or "crit" in fields:
        return None
    return _JwtParts(b".".join(parts[:2]), signature, claims)


def _parse_object(text: bytes) -> dict[str, Json] | None:
    parsed = parse(text)
    if isinstance(parsed, NotJson):
        return None
    return parsed.value if type(parsed.value) is dict else None


def _verify_claims(rule: Jwt, claims: dict[str, Json], body: bytes, now_us: int) -> VerificationResult:
    body_claim = claims.get(rule.body_claim)
    encoded_digest = body_claim.encode("utf-8", "surrogatepass") if type(body_claim) is str else b""
    digest = decoder(rule.claim_encoding, 32)(encoded_digest)
    if digest is None or (rule.issuer is not None and claims.get("iss") != rule.issuer):
        return Unverified(Failure.WRONG_CLAIMS)
    if not hmac.compare_digest(digest, sha256(body).digest()):
        return Unverified(Failure.BODY_CHANGED)
    expires_at, valid_from = _numeric_date(claims.get("exp")), _numeric_date(claims.get("nbf"))
    if isinstance(expires_at, Failure) or isinstance(valid_from, Failure):
        return Unverified(Failure.WRONG_CLAIMS)
    if rule.requires_expiry and expires_at is None:
        return Unverified(Failure.WRONG_CLAIMS)
    now = now_us // 1_000_000
    if expires_at is not None and now - expires_at > JWT_LEEWAY_SECONDS:
        return Unverified(Failure.STALE, now - expires_at)
    if valid_from is not None and valid_from - now > JWT_LEEWAY_SECONDS:
        return Unverified(Failure.AHEAD, valid_from - now)
    return _VERIFIED


def _numeric_date(claim: Json) -> int | Failure | None:
    """The whole seconds since 1970 in a claim; None if the claim is absent."""
    if claim is None:
        return None
    # The exact types exclude booleans. The limit excludes numbers of a thousand digits, which are slow to convert.
    if type(claim) not in {int, Decimal} or not 0 <= claim < 2**53:
        return Failure.WRONG_CLAIMS
    return int(claim)
