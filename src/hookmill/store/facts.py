"""What the database knows of itself."""

from hookmill.store.database import Transaction
from hookmill.store.sealing import MasterKey, WrongKey

_MASTER_KEY = "master key"


def bind_master_key(tx: Transaction, key: MasterKey) -> None:
    """Remember the first key, and raise `WrongKey` for any other: a wrong key must touch nothing."""
    expected = _master_key(tx)
    if expected is None:
        tx.run(
            "INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
            name=_MASTER_KEY,
            value=key.id.encode(),
        )
        # Another process may have been first, with another key.
        expected = _master_key(tx)
    if expected != key.id:
        raise WrongKey(
            f"This database was set up with master key {expected}, and the key at hand is {key.id}. "
            "Point HOOKMILL_MASTER_KEY or the master.key file at the right one; nothing was changed."
        )


def _master_key(tx: Transaction) -> str | None:
    """The fingerprint of the key that this database's secrets are sealed with."""
    kept = tx.one("SELECT value FROM facts WHERE name = :name", name=_MASTER_KEY)
    return bytes(kept["value"]).decode() if kept else None
