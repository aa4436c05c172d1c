"""Secrets at rest: AES-256-GCM, bound to the row that they stand in.

A ciphertext moved to another row does not open, and a database without its master key is worth nothing.
"""

import base64
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import SecretValue

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class WrongKey(Invalid):
    """The master key is not the one that this database's secrets are sealed with."""


@dataclass(frozen=True, slots=True, repr=False)
class MasterKey:
    """The one key that opens this database's secrets. `id` is a fingerprint, safe to show."""

    value: bytes

    @property
    def id(self) -> str:
        return sha256(b"hookmill master key" + self.value).hexdigest()[:16]

    def seal(self, secret: SecretValue, row: str) -> bytes:
        """Ciphertext for the row named `row`, and for no other."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.value).encrypt(nonce, secret.reveal().encode(), row.encode())

    def open(self, sealed: bytes, row: str) -> SecretValue:
        """Raises `WrongKey` when the ciphertext is another row's, another key's, or altered."""
        try:
            value = AESGCM(self.value).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], row.encode())
        except (InvalidTag, ValueError):
            raise WrongKey(
                f"The secret in row {row} can't be opened with master key {self.id}. "
                "Start with the key that this database was set up with, or restore the row from a backup."
            ) from None
        return SecretValue(value.decode())


def master_key_from_text(text: str) -> MasterKey:
    """A key written as base64 of 32 bytes. Raises `Invalid` without repeating it."""
    try:
        value = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        value = b""
    if len(value) != KEY_BYTES:
        raise Invalid(
            "The master key must be 32 bytes written in base64, as `hookmill serve` makes it at its first start."
        )
    return MasterKey(value)


def master_key_from_file(path: Path) -> MasterKey:
    """The key in `path`, which is made with mode 0600 when there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return master_key_from_text(path.read_text())
    key = MasterKey(os.urandom(KEY_BYTES))
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64encode(key.value) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return key
