"""Encryption of secrets at rest: AES-256-GCM, with the row's id as associated data.

A ciphertext that was moved to another row can't be opened. A copy of the database without the key reveals no secret.
"""

import base64
import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hookmill.domain.errors import HookmillError, Invalid
from hookmill.domain.secret import SecretValue

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_ADD_TO_FILE: Final = "Add it to the file master.key."
_ADD_TO_SETTINGS: Final = "Set HOOKMILL_MASTER_KEY to it, or add it to HOOKMILL_MASTER_KEY_PREVIOUS."


class WrongKey(Invalid):
    """The key that sealed a value is missing, or the value was altered."""


@dataclass(frozen=True, slots=True, repr=False)
class MasterKey:
    """A key that seals secrets. `id` is a fingerprint, and not secret."""

    value: bytes

    @property
    def id(self) -> str:
        return sha256(b"hookmill master key" + self.value).hexdigest()[:16]

    def seal(self, secret: SecretValue, row_id: str) -> bytes:
        """The ciphertext, bound to the row with this id."""
        return self._seal(secret.reveal().encode(), row_id)

    def open(self, sealed: bytes, row_id: str) -> SecretValue:
        """The secret. Raises `WrongKey` if the ciphertext is another row's or another key's, or was altered."""
        return SecretValue(self._open(sealed, row_id).decode())

    def reseal(self, sealed: bytes, row_id: str, opening_key: "MasterKey") -> bytes:
        """Open with `opening_key`, and seal with this key. Raises `WrongKey` like `open`."""
        return self._seal(opening_key._open(sealed, row_id), row_id)

    def proof_key(self) -> bytes:
        """The key with which a backup proves that an owner of this key has made it. It reveals nothing of this key."""
        return hmac.digest(self.value, b"hookmill backup proof 1", "sha256")

    def _seal(self, plain: bytes, row_id: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.value).encrypt(nonce, plain, row_id.encode())

    def _open(self, sealed: bytes, row_id: str) -> bytes:
        try:
            return AESGCM(self.value).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], row_id.encode())
        except (InvalidTag, ValueError):
            raise WrongKey(
                f"Master key {self.id} can't decrypt row {row_id}: its ciphertext was altered, or moved from another "
                "row. Restore the row from a backup, or set a new secret."
            ) from None


class KeyRing:
    """The available master keys, newest first. The database decides which key seals: `binding.sealing_key`.

    `reread` reads the file of the keys; keys that are settings have none. A missing key is looked up in
    the file again, because a rotation adds a key while other processes run.
    """

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
        """Raises `WrongKey` for a key that is neither here nor in the source."""
        if (key := self._find(key_id)) is not None:
            return key
        self.refresh()
        if (key := self._find(key_id)) is not None:
            return key
        advice = _ADD_TO_SETTINGS if self._reread is None else _ADD_TO_FILE
        raise WrongKey(_missing_key_message(key_id, self.ids, advice))

    def refresh(self) -> None:
        """Read added keys from the source. Present keys stay: this process may still handle values that they sealed."""
        if self._reread is None:
            return
        try:
            reread_keys = tuple(self._reread())
        except (OSError, HookmillError):
            # An unreadable source adds no keys. The caller gets an error about the missing key.
            return
        self._keys = (*reread_keys, *(key for key in self._keys if key not in reread_keys))

    def _find(self, key_id: str) -> MasterKey | None:
        return next((key for key in self._keys if key.id == key_id), None)


def _missing_key_message(key_id: str, available: Sequence[str], advice: str) -> str:
    return f"Master key {key_id} is not available (available: {', '.join(available)}). {advice}"


def master_key_from_text(text: str) -> MasterKey:
    """The key from its base64 text. Raises `Invalid`, without the text, if it is not 32 bytes in base64."""
    try:
        value = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        value = b""
    if len(value) != KEY_BYTES:
        raise Invalid("The master key must be 32 bytes in base64, as the first start of `hookmill serve` creates it.")
    return MasterKey(value)


def as_text(key: MasterKey) -> str:
    """The key's base64 text, for the key file only."""
    return base64.b64encode(key.value).decode()


def new_master_key() -> MasterKey:
    return MasterKey(os.urandom(KEY_BYTES))
