"""What the database knows of itself."""

from hookmill.store.database import Transaction
from hookmill.store.sealing import MasterKey, WrongKey

_MASTER_KEY = "master key"


def bind_master_key(tx: Transaction, key: MasterKey) -> None:
    """Remember the first key, and raise `WrongKey` for any other: a wrong key must touch nothing."""
    kept = tx.one("SELECT value FROM facts WHERE name = :name", name=_MASTER_KEY)
    if kept is None:
        tx.run(
            "INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
            name=_MASTER_KEY,
            value=key.id.encode(),
        )
        return
    if (expected := bytes(kept["value"]).decode()) != key.id:
        raise WrongKey(
            f"This database was set up with master key {expected}, and the key at hand is {key.id}. "
            "Point HOOKMILL_MASTER_KEY or the master.key file at the right one; nothing was changed."
        )
