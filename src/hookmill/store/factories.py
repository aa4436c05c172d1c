"""Teams and their factories."""

from dataclasses import dataclass
from typing import Final

from hookmill.domain.ids import FactoryId, TeamId
from hookmill.store.database import Row, Transaction

_SET_UP_LOCK: Final = 0x66616374
"""PostgreSQL's advisory lock for the first start: "fact"."""


@dataclass(frozen=True, slots=True)
class Factory:
    id: FactoryId
    team_id: TeamId
    name: str


def add_team(tx: Transaction, team: TeamId, name: str, now: int) -> None:
    tx.run("INSERT INTO teams (id, name, created_at) VALUES (:id, :name, :now)", id=team, name=name, now=now)


def add_factory(tx: Transaction, factory: Factory, now: int) -> None:
    tx.run(
        "INSERT INTO factories (id, team_id, name, created_at) VALUES (:id, :team, :name, :now)",
        id=factory.id,
        team=factory.team_id,
        name=factory.name,
        now=now,
    )


def factory_named(tx: Transaction, name: str) -> Factory | None:
    row = tx.one("SELECT id, team_id, name FROM factories WHERE name = :name", name=name)
    return _factory(row) if row else None


def all_factories(tx: Transaction) -> list[Factory]:
    return [_factory(row) for row in tx.all("SELECT id, team_id, name FROM factories ORDER BY name")]


def hold_all(tx: Transaction) -> None:
    """Let nobody else make a first team or factory until this transaction ends: there is no row yet to hold."""
    if not tx.on_sqlite:
        tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=_SET_UP_LOCK)


def hold(tx: Transaction, factory: FactoryId) -> None:
    """Let nobody else change what the factory's team has until this transaction ends.

    Limits and versions are counted, and names and states looked at, before they are written.
    """
    if not tx.on_sqlite:
        tx.one(
            """
            SELECT t.id
            FROM teams t
            JOIN factories f ON f.team_id = t.id
            WHERE f.id = :id
            FOR NO KEY UPDATE OF t
            """,
            id=factory,
        )


def _factory(row: Row) -> Factory:
    return Factory(FactoryId(row["id"]), TeamId(row["team_id"]), row["name"])
