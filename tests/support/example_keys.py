"""Secrets with which tests and benchmarks sign like a provider and verify, also for schemes with public keys."""

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hookmill.domain.signatures.encoding import Encoding, encode
from hookmill.domain.signatures.key import RSA_BITS_MIN
from hookmill.domain.signatures.scheme import Algorithm, Scheme, SecretDecoding
from hookmill.domain.signatures.sign import ENTROPY_BYTES, example_secret


@dataclass(frozen=True, slots=True)
class ExampleSecret:
    """The sender's secret or private key, and the matching secret of the webhook. If the scheme has a shared
    secret, both are the same."""

    sender_secret: str
    webhook_secret: str


def example_pair(scheme: Scheme, entropy: bytes) -> ExampleSecret:
    """A pair derived from at least 64 random bytes. An RSA key ignores them."""
    match scheme.algorithm:
        case _ if not scheme.algorithm.uses_public_key:
            text = example_secret(scheme, entropy)
            return ExampleSecret(text, text)
        case Algorithm.ED25519:
            encoding = Encoding.HEX if scheme.secret.decode is SecretDecoding.HEX else Encoding.BASE64
            private_key = Ed25519PrivateKey.from_private_bytes(entropy[:32])
            return ExampleSecret(
                encode(encoding, entropy[:32]), encode(encoding, private_key.public_key().public_bytes_raw())
            )
        case Algorithm.ECDSA_P256_SHA256:
            # Reducing 512 random bits modulo the 256-bit order has a negligible bias.
            number = int.from_bytes(entropy[:ENTROPY_BYTES]) % (_P256_ORDER - 1) + 1
            return _pem_pair(ec.derive_private_key(number, ec.SECP256R1()))
        case _:
            return _pem_pair(rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN))


_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _pem_pair(private_key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> ExampleSecret:
    private_pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_pem = private_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return ExampleSecret(private_pem.decode(), public_pem.decode())
