"""Reads and updates API keys. Only the SHA-256 of a key's token is stored; the token is 256 random bits."""

from collections.abc import Sequence
from dataclasses import asdict

from hookmill.domain.api_key import ApiKey
from hookmill.domain.ids import TeamId
from hookmill.domain.permission import Role
from hookmill.store.database import Row, Transaction, from_row


def add(tx: Transaction, key: ApiKey, digest: bytes) -> None:
    tx.run(
        """
        INSERT INTO api_keys (id, team_id, factory_id, role, name, digest, created_at, expires_at)
        VALUES (:id, :team_id, :factory_id, :role, :name, :digest, :created_at, :expires_at)
        """,
        digest=digest,
        **asdict(key),
    )


def by_digest(tx: Transaction, digest: bytes) -> ApiKey | None:
    return _first(tx, "k.digest = :digest", digest=digest)


def by_id(tx: Transaction, team: TeamId, key: str) -> ApiKey | None:
    return _first(tx, "k.id = :id AND k.team_id = :team", id=key, team=team)


def of_team(tx: Transaction, team: TeamId) -> Sequence[ApiKey]:
    """The team's keys, newest first, including revoked keys."""
    return [
        _key(row) for row in tx.all(f"{_SELECT} WHERE k.team_id = :team ORDER BY k.created_at DESC, k.id", team=team)
    ]


def revoke(tx: Transaction, key: str, now: int) -> None:
    tx.run("UPDATE api_keys SET revoked_at = :now WHERE id = :id", id=key, now=now)


def mark_used(tx: Transaction, key: str, now: int) -> None:
    tx.run("UPDATE api_keys SET last_used_at = :now WHERE id = :id", id=key, now=now)


_SELECT = "SELECT k.*, f.name AS factory_name FROM api_keys k LEFT JOIN factories f ON f.id = k.factory_id"


def _first(tx: Transaction, condition: str, **values: object) -> ApiKey | None:
    row = tx.one(f"{_SELECT} WHERE {condition}", **values)
    return _key(row) if row else None


def _key(row: Row) -> ApiKey:
    return from_row(ApiKey, row, role=Role(row["role"]))
