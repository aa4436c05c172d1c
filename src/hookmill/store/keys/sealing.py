"""Secrets at rest: AES-256-GCM, bound to the row that they stand in.

A ciphertext moved to another row does not open, and a database without its master key is worth nothing.
"""

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hookmill.domain.errors import HookmillError, Invalid
from hookmill.domain.secret import SecretValue

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class WrongKey(Invalid):
    """The master key is not the one that this database's secrets are sealed with."""


@dataclass(frozen=True, slots=True, repr=False)
class MasterKey:
    """A key that seals secrets. `id` is a fingerprint, safe to show."""

    value: bytes

    @property
    def id(self) -> str:
        return sha256(b"hookmill master key" + self.value).hexdigest()[:16]

    def seal(self, secret: SecretValue, row: str) -> bytes:
        """Ciphertext for the row named `row`, and for no other."""
        return self._seal(secret.reveal().encode(), row)

    def open(self, sealed: bytes, row: str) -> SecretValue:
        """Raises `WrongKey` when the ciphertext is another row's, another key's, or altered."""
        return SecretValue(self._open(sealed, row).decode())

    def seal_again(self, sealed: bytes, row: str, opening: "MasterKey") -> bytes:
        """What `opening` opens, sealed with this key. Raises `WrongKey` as `open` does."""
        return self._seal(opening._open(sealed, row), row)

    @property
    def newest(self) -> "MasterKey":
        return self

    def named(self, key_id: str) -> "MasterKey":
        """This key, if that is its id: a key alone is a ring of one. Raises `WrongKey`."""
        if key_id != self.id:
            raise WrongKey(_unknown(key_id, [self.id]))
        return self

    def _seal(self, plain: bytes, row: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.value).encrypt(nonce, plain, row.encode())

    def _open(self, sealed: bytes, row: str) -> bytes:
        try:
            return AESGCM(self.value).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], row.encode())
        except (InvalidTag, ValueError):
            raise WrongKey(
                f"What is sealed in row {row} can't be opened with master key {self.id}: it was altered, or moved from "
                "another row. Restore the row from a backup, or give the secret a new value."
            ) from None


class MasterKeys(Protocol):
    """The master keys at hand, by their ids. Which of them seals is the database's word: `binding.sealing_key`."""

    @property
    def newest(self) -> MasterKey: ...

    def named(self, key_id: str) -> MasterKey:
        """Raises `WrongKey` for a key that isn't at hand."""
        ...


class KeyRing:
    """Several master keys, newest first. One that is missing is looked for where they came from: a rotation adds a key
    while other processes run."""

    def __init__(self, keys: Sequence[MasterKey], reread: Callable[[], Sequence[MasterKey]] | None = None) -> None:
        self._keys = tuple(keys)
        self._reread = reread

    @property
    def newest(self) -> MasterKey:
        return self._keys[0]

    @property
    def keys(self) -> tuple[MasterKey, ...]:
        return self._keys

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(key.id for key in self._keys)

    def named(self, key_id: str) -> MasterKey:
        """Raises `WrongKey` for a key that is neither here nor where they came from."""
        if (known := self._find(key_id)) is not None:
            return known
        self.refresh()
        if (known := self._find(key_id)) is not None:
            return known
        raise WrongKey(_unknown(key_id, self.ids))

    def refresh(self) -> None:
        """Take in what was added. A key once known stays: what it sealed may be on its way through this process."""
        if self._reread is None:
            return
        try:
            found = tuple(self._reread())
        except (OSError, HookmillError):
            # What can't be read now holds nothing new; who needs a key from it is told that the key is missing.
            return
        self._keys = (*found, *(key for key in self._keys if key not in found))

    def _find(self, key_id: str) -> MasterKey | None:
        return next((key for key in self._keys if key.id == key_id), None)


def _unknown(key_id: str, known: Sequence[str]) -> str:
    return (
        f"Master key {key_id} is needed, and at hand is {', '.join(known)}. "
        "Add the missing key to HOOKMILL_MASTER_KEY_PREVIOUS or to the master.key file."
    )


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


def as_text(key: MasterKey) -> str:
    """The key as it is written down. For the key file alone."""
    return base64.b64encode(key.value).decode()


def new_master_key() -> MasterKey:
    return MasterKey(os.urandom(KEY_BYTES))
