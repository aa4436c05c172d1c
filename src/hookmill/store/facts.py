"""What the database knows of itself: which master key seals its secrets, which ones are on their way out, and how far
retention has come.

The database has the only word on which key seals. Processes may have read their keys before or after a rotation began;
by asking here, in the transaction that seals, none of them uses a key that is about to go.
"""

from dataclasses import dataclass

from hookmill.domain.errors import Conflict
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.sealing import MasterKey, MasterKeys, WrongKey

_MASTER_KEY = "master key"
_RETIRING = "retiring master keys"
_RETENTION_TIME = "retention time"


@dataclass(frozen=True, slots=True)
class KeysInUse:
    """By their ids: the key that seals, and those that an unfinished rotation has not made needless yet."""

    sealing: str
    retiring: tuple[str, ...]


def keys_in_use(tx: Transaction) -> KeysInUse | None:
    """None before the first key."""
    sealing = _value(tx, _MASTER_KEY)
    if sealing is None:
        return None
    retiring = _value(tx, _RETIRING)
    return KeysInUse(sealing, tuple(retiring.split(",")) if retiring else ())


def is_set_up(tx: Transaction) -> bool:
    """Whether the database has this table: before a first start it has none."""
    return dialect.has_table(tx, "facts")


def check_master_key(in_use: KeysInUse, keys: MasterKeys) -> None:
    """Raises `WrongKey` unless every key that is in use is at hand."""
    try:
        keys.named(in_use.sealing)
    except WrongKey as missing:
        raise WrongKey(
            f"This database was set up with master key {in_use.sealing}, and that is not at hand: {missing} "
            "A backup needs the key of its time. Nothing was changed."
        ) from None
    for key_id in in_use.retiring:
        try:
            keys.named(key_id)
        except WrongKey as missing:
            raise WrongKey(
                f"A rotation of the master key is unfinished, and needs the earlier key too: {missing} "
                "Then run `hookmill keys rotate` again. Nothing was changed."
            ) from None


def bind_master_key(tx: Transaction, keys: MasterKeys) -> None:
    """Remember the first key, and raise `WrongKey` for any other: a wrong key must touch nothing."""
    tx.run(
        "INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
        name=_MASTER_KEY,
        value=keys.newest.id.encode(),
    )
    # Another process may have been first, with another key.
    in_use = keys_in_use(tx)
    assert in_use is not None
    check_master_key(in_use, keys)


def sealing_key(tx: Transaction, keys: MasterKeys) -> MasterKey:
    """The key to seal with in this transaction. Raises `WrongKey` when it is not at hand."""
    key_id = sealing_key_id(tx)
    return keys.named(key_id) if key_id is not None else keys.newest


def sealing_key_id(tx: Transaction) -> str | None:
    """The key that seals, and that no rotation changes before this transaction ends."""
    row = tx.one(
        f"SELECT value FROM facts WHERE name = :name {dialect.lock_clause(tx, 'FOR SHARE')}",
        name=_MASTER_KEY,
    )
    return bytes(row["value"]).decode() if row is not None else None


def begin_rotation(tx: Transaction, old_id: str, new_id: str) -> None:
    """From here on everybody seals with the new key. Raises `Conflict` when another rotation was faster."""
    changed = tx.run(
        "UPDATE facts SET value = :new WHERE name = :name AND value = :old",
        name=_MASTER_KEY,
        new=new_id.encode(),
        old=old_id.encode(),
    )
    if not changed:
        raise Conflict("Another rotation has begun elsewhere. `hookmill keys show` tells how far it is.")
    in_use = keys_in_use(tx)
    assert in_use is not None
    retiring = dict.fromkeys([old_id, *in_use.retiring])
    retiring.pop(new_id, None)
    tx.run(
        "INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value",
        name=_RETIRING,
        value=",".join(retiring).encode(),
    )


def end_rotation(tx: Transaction) -> None:
    """Nothing is sealed with the retiring keys any more."""
    tx.run("DELETE FROM facts WHERE name = :name", name=_RETIRING)


def retention_time(tx: Transaction) -> int | None:
    """What the last pass of retention took for the time, in microseconds since 1970. None before the first one."""
    kept = _value(tx, _RETENTION_TIME)
    return int(kept) if kept is not None else None


def set_retention_time(tx: Transaction, time_us: int) -> None:
    tx.run(
        "INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value",
        name=_RETENTION_TIME,
        value=str(time_us).encode(),
    )


def _value(tx: Transaction, name: str) -> str | None:
    kept = tx.one("SELECT value FROM facts WHERE name = :name", name=name)
    return bytes(kept["value"]).decode() if kept else None
