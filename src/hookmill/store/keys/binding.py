"""Stores which master key seals the secrets of this database, and which keys an unfinished rotation still needs.

The database decides which key seals. Processes may have loaded their keys before or after a rotation began, so each
reads the sealing key's id in the transaction that seals. So no process seals with a key that is being retired.
"""

from dataclasses import dataclass

from hookmill.domain.errors import Conflict
from hookmill.store import metadata
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import KeyRing, MasterKey, WrongKey

_SEALING_KEY = "master key"
_RETIRING_KEYS = "retiring master keys"


@dataclass(frozen=True, slots=True)
class KeysInUse:
    """The ids of the key that seals, and of the keys that an unfinished rotation still needs."""

    sealing_id: str
    retiring_ids: tuple[str, ...]


def keys_in_use(tx: Transaction) -> KeysInUse | None:
    """The keys in use; None before the first key."""
    sealing_id = metadata.value(tx, _SEALING_KEY)
    if sealing_id is None:
        return None
    retiring_ids = metadata.value(tx, _RETIRING_KEYS)
    return KeysInUse(sealing_id, tuple(retiring_ids.split(",")) if retiring_ids else ())


def check_keys_in_use(in_use: KeysInUse, keys: KeyRing) -> None:
    """Raises `WrongKey` if a key that is in use is missing."""
    try:
        keys.named(in_use.sealing_id)
    except WrongKey as error:
        raise WrongKey(
            f"Another master key encrypts the secrets of this database. {error} "
            "A restored backup needs the key that was in use when it was made. Nothing was changed."
        ) from None
    for key_id in in_use.retiring_ids:
        try:
            keys.named(key_id)
        except WrongKey as error:
            raise WrongKey(
                f"A rotation of the master key is unfinished, and also needs the previous key. {error} "
                "Then run `hookmill keys rotate` again. Nothing was changed."
            ) from None


def bind_master_key(tx: Transaction, keys: KeyRing) -> None:
    """Let the newest key seal, unless the database has a sealing key. Raises `WrongKey` if a key in use is missing."""
    metadata.set_first_value(tx, _SEALING_KEY, keys.newest.id)
    # Another process may have stored another key first.
    in_use = keys_in_use(tx)
    assert in_use is not None
    check_keys_in_use(in_use, keys)


def sealing_key(tx: Transaction, keys: KeyRing) -> MasterKey:
    """The key to seal with in this transaction: the newest, until one is bound. Raises `WrongKey` if it is missing."""
    key_id = sealing_key_id(tx)
    return keys.named(key_id) if key_id is not None else keys.newest


def sealing_key_id(tx: Transaction) -> str | None:
    """The id of the key that seals; None before the first key. No rotation changes it before this transaction ends."""
    return metadata.value(tx, _SEALING_KEY, locked=True)


def begin_rotation(tx: Transaction, old_id: str, new_id: str) -> None:
    """Make every process seal with the key `new_id`. Raises `Conflict` if `old_id` is not the sealing key any more."""
    if not metadata.replace_value(tx, _SEALING_KEY, old_id, new_id):
        raise Conflict("Another rotation is in progress. `hookmill keys show` shows its progress.")
    in_use = keys_in_use(tx)
    assert in_use is not None
    retiring_ids = dict.fromkeys([old_id, *in_use.retiring_ids])
    retiring_ids.pop(new_id, None)
    metadata.set_value(tx, _RETIRING_KEYS, ",".join(retiring_ids))


def end_rotation(tx: Transaction) -> None:
    """Record that no row is sealed with the retiring keys."""
    metadata.remove_value(tx, _RETIRING_KEYS)
