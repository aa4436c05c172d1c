"""Reads and updates teams and their factories."""

from typing import Final

from hookmill.domain.factory import Factory
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction

_SET_UP_LOCK: Final = 0x66616374
"""The number of PostgreSQL's advisory lock for the first start: "fact" in ASCII."""

_COLUMNS: Final = "id, team_id, name, defined_by_files, max_running"


def add_team(tx: Transaction, team: TeamId, name: str, now: int) -> None:
    tx.run("INSERT INTO teams (id, name, created_at) VALUES (:id, :name, :now)", id=team, name=name, now=now)


def only_team(tx: Transaction) -> TeamId | None:
    """The installation's only team; None before the first start."""
    return tx.scalar("SELECT id FROM teams ORDER BY created_at, id LIMIT 1")


def add_factory(tx: Transaction, factory: Factory, now: int) -> None:
    tx.run(
        """
        INSERT INTO factories (id, team_id, name, created_at, defined_by_files)
        VALUES (:id, :team, :name, :now, FALSE)
        """,
        id=factory.id,
        team=factory.team_id,
        name=factory.name,
        now=now,
    )


def factory_named(tx: Transaction, name: str) -> Factory | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM factories WHERE name = :name", name=name)
    return _factory(row) if row else None


def by_id(tx: Transaction, factory: FactoryId) -> Factory | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM factories WHERE id = :id", id=factory)
    return _factory(row) if row else None


def all_factories(tx: Transaction) -> list[Factory]:
    return [_factory(row) for row in tx.all(f"SELECT {_COLUMNS} FROM factories ORDER BY name")]


def set_defined_by_files(tx: Transaction, factory: FactoryId) -> None:
    tx.run("UPDATE factories SET defined_by_files = :yes WHERE id = :id", id=factory, yes=True)


def set_max_running(tx: Transaction, factory: FactoryId, max_running: int | None) -> None:
    tx.run("UPDATE factories SET max_running = :max_running WHERE id = :id", id=factory, max_running=max_running)


def lock_creation_of_first_team(tx: Transaction) -> None:
    """Prevent other transactions from creating the first team until this one ends: there is no row to lock yet."""
    dialect.lock(tx, _SET_UP_LOCK)


def lock_team(tx: Transaction, team: TeamId) -> None:
    """Prevent other changes to the team's objects until this transaction ends.

    A change reads limits, versions, names and states before it writes, and they must stay the same in between.
    """
    dialect.lock_row(tx, "teams", team, "FOR NO KEY UPDATE")


def _factory(row: Row) -> Factory:
    return Factory(row["id"], row["team_id"], row["name"], bool(row["defined_by_files"]), row["max_running"])
