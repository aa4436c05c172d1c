"""The key that verifies requests, which is decoded once from the webhook's secret."""

import base64
import unicodedata
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import GENERATED_BYTES, SecretValue
from hookmill.domain.signatures.encoding import decode_base64_secret, decode_hex_secret
from hookmill.domain.signatures.scheme import Algorithm, Scheme, SecretDecoding, SecretRule

PublicKey = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey
RSA_BITS_MIN: Final = 2048


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Key:
    """The key of one secret for one scheme. Its `repr` does not contain the secret."""

    text: SecretValue
    """The secret as entered; only the diagnosis uses it."""
    secret_bytes: bytes = b""
    """The decoded secret, which sender and receiver share. Empty for a public key."""
    public_key: PublicKey | None = None

    def __repr__(self) -> str:
        return "Key(…)"


def prepare_key(scheme: Scheme, secret_text: str) -> Key:
    """Decode the secret as the scheme requires. Raises `Invalid`, which says what is wrong and what to do."""
    text = SecretValue(secret_text)
    if scheme.algorithm.uses_public_key:
        return Key(text, public_key=_public_key(scheme, secret_text))
    return Key(text, secret_bytes=decode_secret(scheme, secret_text))


def decode_secret(scheme: Scheme, secret_text: str) -> bytes:
    """The bytes of the secret that sender and receiver share. Raises `Invalid` for an unusable secret."""
    rule = scheme.secret
    _refuse_foreign_secret(scheme, secret_text)
    text = without_prefix(rule, secret_text)
    if "\x00" in text:
        # HMAC pads keys with NULs: with and without a final NUL, the key would be the same.
        raise Invalid(f"The secret for {scheme.title} contains a NUL. Copy it again from the provider.")
    if rule.normalize:
        text = unicodedata.normalize("NFKD", text)
    key = _decode(scheme, rule, text)
    if len(key) < max(1, rule.key_bytes_min):
        minimum = f"{rule.key_bytes_min} bytes" if rule.key_bytes_min > 1 else "one byte"
        raise Invalid(f"The secret for {scheme.title} is too short: its key needs at least {minimum}. Copy all of it.")
    return key


def without_prefix(rule: SecretRule, secret_text: str) -> str:
    prefix = next((prefix for prefix in rule.prefixes if secret_text.startswith(prefix)), "")
    return secret_text[len(prefix) :]


def _refuse_foreign_secret(scheme: Scheme, secret_text: str) -> None:
    for prefix in scheme.secret.foreign_prefixes:
        if secret_text.startswith(prefix):
            raise Invalid(
                f"{scheme.title} does not sign webhooks with a secret that begins with {prefix}. "
                "Use the shared secret instead."
            )


def _decode(scheme: Scheme, rule: SecretRule, text: str) -> bytes:
    match rule.decode:
        case SecretDecoding.BASE64:
            key, form = decode_base64_secret(text), "base64"
        case SecretDecoding.HEX:
            key, form = decode_hex_secret(text), "hexadecimal"
        case _:
            key, form = _utf8(text), "text that UTF-8 can encode"
    if key is None:
        after = f" after {rule.prefixes[-1]}" if rule.prefixes else ""
        raise Invalid(
            f"The secret for {scheme.title} is not {form}{after}. Copy it unchanged from {scheme.title}, and check "
            "that this is the right scheme."
        )
    return key


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _public_key(scheme: Scheme, text: str) -> PublicKey:
    key = _load_public_key(scheme, text.strip())
    match scheme.algorithm:
        case Algorithm.ED25519 if isinstance(key, Ed25519PublicKey):
            return key
        case Algorithm.ECDSA_P256_SHA256 if isinstance(key, EllipticCurvePublicKey) and isinstance(
            key.curve, SECP256R1
        ):
            return key
        case Algorithm.RSA_PKCS1_SHA256 if isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN:
            return key
        case _:
            raise Invalid(f"This is not the kind of public key that {scheme.title} uses ({scheme.algorithm}).")


def _load_public_key(scheme: Scheme, text: str) -> object:
    try:
        if scheme.secret.decode is not SecretDecoding.SPKI:
            raw = decode_hex_secret(text) if scheme.secret.decode is SecretDecoding.HEX else decode_base64_secret(text)
            return Ed25519PublicKey.from_public_bytes(raw or b"")
        if text.startswith("-----BEGIN"):
            return serialization.load_pem_public_key(text.encode())
        return serialization.load_der_public_key(decode_base64_secret("".join(text.split())) or b"")
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise Invalid(
            f"The secret for {scheme.title} is the provider's public key, and this text is not a public key "
            f"({_EXPECTED_FORM[scheme.secret.decode]}). Copy the key from {scheme.title}."
        ) from fault


_EXPECTED_FORM: Final = {
    SecretDecoding.TEXT: "expected text",
    SecretDecoding.HEX: "expected 64 hexadecimal digits",
    SecretDecoding.BASE64: "expected 32 bytes in base64",
    SecretDecoding.SPKI: "expected PEM, or the base64 inside it",
}


def service_makes_secrets(scheme: Scheme, name: str | None) -> bool:
    """Whether this service generates the secret if the user enters none. For other schemes, only the provider can.

    `name` is the scheme's name or an alias: another provider, which signs in the same way and makes its own secrets.
    """
    return scheme.secret.generated_prefix is not None and name == scheme.name


def make_secret(scheme: Scheme, entropy: bytes) -> SecretValue:
    """A new secret of 256 random bits in the format that the scheme's senders expect."""
    assert scheme.secret.generated_prefix is not None, "the secrets of this scheme come from the provider"
    assert len(entropy) >= GENERATED_BYTES, "entropy is 32 bytes or more"
    return SecretValue(scheme.secret.generated_prefix + base64.b64encode(entropy[:GENERATED_BYTES]).decode())
