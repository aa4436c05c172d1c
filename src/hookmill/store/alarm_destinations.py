"""Reads and updates the destinations of alarms. Their addresses, URLs and secrets are sealed."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from hookmill.domain.alarm import AlarmKind
from hookmill.domain.alarm_destination import (
    AlarmDestination,
    DestinationKind,
    Target,
    target_from_json,
    target_to_json,
)
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.secret import SecretValue
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction, from_row
from hookmill.store.keys import binding
from hookmill.store.keys.sealing import KeyRing


def add(tx: Transaction, destination: AlarmDestination, target: Target, keys: KeyRing) -> None:
    sealing_key = binding.sealing_key(tx, keys)
    tx.run(
        """
        INSERT INTO alarm_destinations (
            id, team_id, factory_id, kind, shown_target, alarm_kinds, includes_factories, key_id, sealed, created_at
        )
        VALUES (
            :id, :team_id, :factory_id, :kind, :shown_target, :kinds, :includes_factories, :key, :sealed, :created_at
        )
        """,
        kinds=json.dumps(destination.alarm_kinds),
        key=sealing_key.id,
        sealed=sealing_key.seal(SecretValue(json.dumps(target_to_json(target))), destination.id),
        **asdict(destination),
    )


def of_factory(tx: Transaction, team: TeamId, factory: FactoryId | None) -> Sequence[AlarmDestination]:
    """The factory's destinations, oldest first; None for those of the installation."""
    condition = "d.factory_id = :factory" if factory is not None else "d.factory_id IS NULL"
    rows = tx.all(
        f"{_SELECT} WHERE d.team_id = :team AND {condition} ORDER BY d.created_at, d.id", team=team, factory=factory
    )
    return [_destination(row) for row in rows]


def all_destinations(tx: Transaction) -> Sequence[AlarmDestination]:
    """Those of the installation and of every factory, oldest first."""
    return [_destination(row) for row in tx.all(f"{_SELECT} ORDER BY d.created_at, d.id")]


def target(tx: Transaction, destination_id: str, keys: KeyRing) -> Target | None:
    """The target with its secrets; None if the destination was deleted. Raises `WrongKey`."""
    row = tx.one("SELECT kind, key_id, sealed FROM alarm_destinations WHERE id = :id", id=destination_id)
    if row is None:
        return None
    opened = keys.named(row["key_id"]).open(row["sealed"], destination_id)
    return target_from_json(DestinationKind(row["kind"]), json.loads(opened.reveal()))


def delete(tx: Transaction, destination_id: str) -> None:
    """Delete the destination, with the notices that wait for it."""
    # A transaction that adds a notice for the destination ends first.
    dialect.lock_row(tx, "alarm_destinations", destination_id, "FOR UPDATE")
    tx.run("DELETE FROM alarm_notices WHERE destination_id = :id", id=destination_id)
    tx.run("DELETE FROM alarm_destinations WHERE id = :id", id=destination_id)


_SELECT = """
    SELECT d.*, f.name AS factory_name,
        (SELECT COUNT(*) FROM alarm_notices n WHERE n.destination_id = d.id AND n.state = 'waiting') AS waiting,
        (SELECT COUNT(*) FROM alarm_notices n WHERE n.destination_id = d.id AND n.state = 'failed') AS failed,
        (
            SELECT n.failure FROM alarm_notices n
            WHERE n.destination_id = d.id AND n.state IN ('waiting', 'failed') AND n.failure IS NOT NULL
            ORDER BY n.attempted_at DESC LIMIT 1
        ) AS last_problem
    FROM alarm_destinations d LEFT JOIN factories f ON f.id = d.factory_id
"""


def _destination(row: Row) -> AlarmDestination:
    return from_row(
        AlarmDestination,
        row,
        kind=DestinationKind(row["kind"]),
        alarm_kinds=tuple(AlarmKind(name) for name in json.loads(row["alarm_kinds"])),
        includes_factories=bool(row["includes_factories"]),
    )
