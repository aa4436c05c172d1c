"""Teams and their factories."""

from dataclasses import dataclass

from hookmill.domain.ids import FactoryId, TeamId
from hookmill.store.database import Row, Transaction


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


def hold(tx: Transaction, factory: FactoryId) -> None:
    """Let no other transaction count this factory's webhooks until this one ends."""
    if not tx.on_sqlite:
        tx.one("SELECT id FROM factories WHERE id = :id FOR UPDATE", id=factory)


def _factory(row: Row) -> Factory:
    return Factory(FactoryId(row["id"]), TeamId(row["team_id"]), row["name"])
