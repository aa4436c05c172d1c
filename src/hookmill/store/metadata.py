"""Metadata of the database itself, by name."""

from hookmill.store import dialect
from hookmill.store.database import Transaction

_RETENTION_CLOCK = "retention time"


def table_exists(tx: Transaction) -> bool:
    """Whether the database has the table `metadata`. The first start creates it."""
    return dialect.has_table(tx, "metadata")


def value(tx: Transaction, name: str, *, locked: bool = False) -> str | None:
    """The value; None if it is not set. If `locked`, no other transaction can change it before this one ends."""
    lock = dialect.lock_clause(tx, "FOR SHARE") if locked else ""
    stored: bytes | None = tx.scalar(f"SELECT value FROM metadata WHERE name = :name {lock}", name=name)
    return stored.decode() if stored is not None else None


def set_value(tx: Transaction, name: str, text: str) -> None:
    tx.run(
        "INSERT INTO metadata (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value",
        name=name,
        value=text.encode(),
    )


def set_first_value(tx: Transaction, name: str, text: str) -> None:
    """Set the value if it is not set yet."""
    tx.run(
        "INSERT INTO metadata (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
        name=name,
        value=text.encode(),
    )


def replace_value(tx: Transaction, name: str, old: str, new: str) -> bool:
    """Replace the value `old`. Returns False and writes nothing if the current value differs."""
    return tx.run(
        "UPDATE metadata SET value = :new WHERE name = :name AND value = :old",
        name=name,
        new=new.encode(),
        old=old.encode(),
    ) == 1  # fmt: skip


def remove_value(tx: Transaction, name: str) -> None:
    tx.run("DELETE FROM metadata WHERE name = :name", name=name)


def retention_clock(tx: Transaction) -> int | None:
    """The time that retention's last pass used as the present, in µs since 1970; None before the first pass. This
    time is the clock's, unless the clock jumped ahead."""
    time_us = value(tx, _RETENTION_CLOCK)
    return int(time_us) if time_us is not None else None


def set_retention_clock(tx: Transaction, time_us: int) -> None:
    set_value(tx, _RETENTION_CLOCK, str(time_us))
