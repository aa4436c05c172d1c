"""Verifies ID tokens: the signature, and the claims that bind the token to this service and to the attempt."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, extract_compact

from hookmill.domain.errors import SignInRefused

LEEWAY_SECONDS: Final = 60
"""How much the clocks of the provider and of this host may differ."""
KEYS_MAX: Final = 100
SUBJECT_CHARACTERS_MAX: Final = 255
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 16_384
_KEY_TYPES: Final[Mapping[str, type[RSAKey] | type[ECKey] | type[OKPKey]]] = {
    "RS256": RSAKey,
    "PS256": RSAKey,
    "ES256": ECKey,
    "EdDSA": OKPKey,
    "Ed25519": OKPKey,
}
"""The accepted algorithms. None of them uses a shared secret: a public key must never verify an HMAC."""
ACCEPTED_ALGORITHMS: Final[Sequence[str]] = tuple(_KEY_TYPES)
_SIGNING_KEY_TYPES: Final = ("RSA", "EC", "OKP")

Claims = Mapping[str, Any]


class _Registry(JWSRegistry):
    """The accepted algorithms. Those that the library discourages cause no warning."""

    def get_alg(self, name: str) -> Any:
        if name not in _KEY_TYPES:
            raise UnsupportedAlgorithmError(f"Algorithm of '{name}' is not accepted")
        return self.algorithms[name]


_REGISTRY: Final = _Registry(strict_check_header=False)


class UnknownKey(SignInRefused):
    """No key of the provider fits the ID token."""


def usable_keys(document: Mapping[str, Any]) -> Sequence[Key]:
    """The keys of a JWKS document that may verify ID tokens. Others are ignored."""
    entries = document.get("keys")
    keys: list[Key] = []
    for entry in entries[:KEYS_MAX] if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not _may_sign(entry):
            continue
        with suppress(JoseError, ValueError, TypeError, KeyError):
            keys.append(JWKRegistry.import_key(entry))
    return keys


def _may_sign(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a JWKS document is for signatures, and of a usable length."""
    if entry.get("kty") not in _SIGNING_KEY_TYPES or entry.get("use", "sig") != "sig":
        return False
    return entry["kty"] != "RSA" or RSA_BITS_MIN <= _bits_in(entry.get("n")) <= RSA_BITS_MAX


def _bits_in(value: object) -> int:
    """The length of a number in base64url; 0 if it is none, or much too long."""
    # Six bits are one character of base64. A long number takes long to convert.
    if not isinstance(value, str) or len(value) > 2 * RSA_BITS_MAX // 6:
        return 0
    with suppress(ValueError):
        return int.from_bytes(base64.urlsafe_b64decode(value + "=="), "big").bit_length()
    return 0


def verified_claims(
    token: str, keys: Sequence[Key], *, issuer: str, client_id: str, nonce: str, access_token: str, now_seconds: int
) -> Claims:
    """The claims of a valid ID token. Raises `UnknownKey`, and `SignInRefused` for any other fault."""
    algorithm, claims = _verify_signature(token, keys)
    registry = jwt.JWTClaimsRegistry(
        now=now_seconds,
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        sub={"essential": True},
        aud={"essential": True, "value": client_id},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        registry.validate(claims)
    except ExpiredTokenError:
        raise SignInRefused("The ID token has expired. Check the clocks of the provider and of this host.") from None
    except MissingClaimError as error:
        raise SignInRefused(f"The ID token is incomplete: {error.description}.") from None
    except InvalidClaimError as error:
        raise SignInRefused(_EXPLANATIONS.get(error.claim, f"The ID token has an invalid {error.claim}.")) from None
    if not 0 < len(claims["sub"]) <= SUBJECT_CHARACTERS_MAX or not claims["sub"].isprintable():
        raise SignInRefused("The ID token has an unusable subject.")
    if not _equals(claims.get("nonce"), nonce):
        raise SignInRefused("The ID token is for another sign-in: its nonce differs.")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims.get("azp", client_id if len(audiences) == 1 else None) != client_id:
        raise SignInRefused("The ID token was issued to another client: its azp differs.")
    if "at_hash" in claims and not _equals(claims["at_hash"], _half_hash(access_token, algorithm)):
        raise SignInRefused("The ID token is for another access token: its at_hash differs.")
    return claims


_EXPLANATIONS: Final = {
    "iss": "The ID token is from another issuer.",
    "aud": "The ID token is for another client: its audience differs from oidc_client_id.",
    "iat": "The ID token was issued in the future. Check the clocks of the provider and of this host.",
    "nbf": "The ID token is not valid yet. Check the clocks of the provider and of this host.",
}


def _verify_signature(token: str, keys: Sequence[Key]) -> tuple[str, dict[str, Any]]:
    """The algorithm and the claims of a token with a valid signature."""
    try:
        header = extract_compact(token.encode("ascii", "replace"), registry=_REGISTRY).headers()
    except (JoseError, ValueError, RecursionError):
        raise SignInRefused("The ID token is not a signed token.") from None
    algorithm, key_id = str(header.get("alg")), header.get("kid")
    if algorithm not in _KEY_TYPES:
        raise SignInRefused(f"The ID token is signed with {algorithm[:20]!r}. Accepted: {', '.join(_KEY_TYPES)}.")
    candidates = [
        key
        for key in keys
        if isinstance(key, _KEY_TYPES[algorithm])
        and key.get("alg", algorithm) == algorithm
        and (key_id is None or key.kid == key_id)
    ]
    if not candidates:
        raise UnknownKey("The ID token is signed with a key that the provider does not publish.")
    for key in candidates:
        try:
            return algorithm, jwt.decode(token, key, registry=_REGISTRY).claims
        except (JoseError, ValueError, TypeError, RecursionError):
            continue
    raise SignInRefused("The signature of the ID token is wrong.")


def _equals(value: object, expected: str) -> bool:
    return isinstance(value, str) and hmac.compare_digest(value.encode("utf-8", "replace"), expected.encode())


def _half_hash(access_token: str, algorithm: str) -> str:
    # Ed25519 contains SHA-512; the names of the other algorithms end with their hash.
    hash_function = hashlib.sha512 if algorithm.startswith("Ed") else hashlib.sha256
    digest = hash_function(access_token.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
