"""Seals master keys with a passphrase, for a backup that has them.

The key is derived with scrypt, which needs 128 MiB of memory for each guess.
"""

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import SecretValue

CHARACTERS_MIN: Final = 12
CHARACTERS_MAX: Final = 1_024
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"hookmill backup keys 1"


def usable_passphrase(text: str) -> SecretValue:
    """Raises `Invalid`, without the text, if it is too short or too long."""
    if not CHARACTERS_MIN <= len(text) <= CHARACTERS_MAX:
        raise Invalid(
            f"The passphrase must have {CHARACTERS_MIN} to {CHARACTERS_MAX:,} characters. It protects the master key, "
            "so use several random words."
        )
    return SecretValue(text)


def seal(plain: bytes, passphrase: SecretValue) -> tuple[bytes, bytes]:
    """The salt and the ciphertext."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    return salt, nonce + AESGCM(_key(passphrase, salt)).encrypt(nonce, plain, _PURPOSE)


def unseal(salt: bytes, sealed: bytes, passphrase: SecretValue) -> bytes:
    """The plain bytes. Raises `Invalid` for a wrong passphrase."""
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _PURPOSE)
    except (InvalidTag, ValueError):
        raise Invalid(
            "The passphrase is wrong. Enter the one with which this backup was made. Nothing was changed."
        ) from None


def _key(passphrase: SecretValue, salt: bytes) -> bytes:
    derivation = Scrypt(salt=salt, length=32, n=1 << 17, r=8, p=1)
    return derivation.derive(passphrase.reveal().encode("utf-8", "surrogateescape"))
