"""Reads and updates team secrets. A new value is a new version. Webhooks use it only after a sync."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hookmill.domain.ids import FactoryId, SecretId, TeamId
from hookmill.domain.secret import SecretValue
from hookmill.store.database import Transaction, from_row
from hookmill.store.keys import binding
from hookmill.store.keys.sealing import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A team secret without its value. Times are µs since 1970."""

    id: SecretId
    name: str
    created_at: int
    changed_at: int | None
    """When the newest value was stored; None if there is no value yet."""
    factory_id: FactoryId
    """The factory in which it was created."""
    for_runs: bool
    """Whether runs of this factory may get it. No webhook uses such a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretUse:
    """The use of a team secret by a webhook that is not deleted."""

    secret_id: SecretId
    factory_id: FactoryId
    webhook_name: str


def secret_id_named(tx: Transaction, team: TeamId, name: str) -> SecretId | None:
    return tx.scalar("SELECT id FROM secrets WHERE team_id = :team AND name = :name", team=team, name=name)


def of_team(tx: Transaction, team: TeamId) -> Sequence[StoredSecret]:
    """The team's secrets that are not deleted, by name."""
    rows = tx.all(
        """
        SELECT s.id, s.name, s.created_at, s.factory_id, s.for_runs, MAX(v.created_at) AS changed_at
        FROM secrets s LEFT JOIN secret_versions v ON v.secret_id = s.id
        WHERE s.team_id = :team AND s.deleted_at IS NULL
        GROUP BY s.id, s.name, s.created_at, s.factory_id, s.for_runs
        ORDER BY s.name
        """,
        team=team,
    )
    return [from_row(StoredSecret, row, for_runs=bool(row["for_runs"])) for row in rows]


def is_for_runs(tx: Transaction, secret: SecretId) -> bool:
    return bool(tx.scalar("SELECT for_runs FROM secrets WHERE id = :id", id=secret))


def for_runs(tx: Transaction, factory: FactoryId, names: Iterable[str]) -> Mapping[str, SecretId]:
    """The secrets for runs that this factory created, among those with these names, by name.

    Secrets of other factories are never included, even if the names are equal.
    """
    wanted = set(names)
    rows = tx.all(
        "SELECT id, name FROM secrets WHERE factory_id = :factory AND deleted_at IS NULL AND for_runs", factory=factory
    )
    return {row["name"]: row["id"] for row in rows if row["name"] in wanted}


def creating_factory(tx: Transaction, secret: SecretId) -> FactoryId:
    return FactoryId(str(tx.scalar("SELECT factory_id FROM secrets WHERE id = :id", id=secret)))


def uses_of_team_secrets(tx: Transaction, team: TeamId) -> Sequence[SecretUse]:
    """The uses of the team's secrets by webhooks that are not deleted."""
    rows = tx.all(
        """
        SELECT w.secret_id, w.factory_id, w.name
        FROM webhooks w JOIN secrets s ON s.id = w.secret_id
        WHERE s.team_id = :team AND w.state <> 'deleted'
        ORDER BY w.name
        """,
        team=team,
    )
    return [
        SecretUse(secret_id=row["secret_id"], factory_id=row["factory_id"], webhook_name=row["name"]) for row in rows
    ]


def delete(tx: Transaction, secret: SecretId, now: int) -> None:
    """Remove all values of the secret, and free its name. The row stays, because deleted webhooks reference it."""
    tx.run("UPDATE webhooks SET secret_version_id = NULL WHERE secret_id = :id", id=secret)
    tx.run("DELETE FROM secret_versions WHERE secret_id = :id", id=secret)
    # Secret names contain no dot, so the new name can't equal the name of another secret.
    tx.run("UPDATE secrets SET deleted_at = :now, name = name || '.' || id WHERE id = :id", id=secret, now=now)


def add_secret(
    tx: Transaction,
    secret: SecretId,
    team: TeamId,
    name: str,
    now: int,
    *,
    factory: FactoryId,
    for_runs: bool = False,
) -> None:
    """Add a secret without a value. `factory` is the factory in which it is created."""
    tx.run(
        """
        INSERT INTO secrets (id, team_id, name, created_at, factory_id, for_runs)
        VALUES (:id, :team, :name, :now, :factory, :for_runs)
        """,
        id=secret,
        team=team,
        name=name,
        now=now,
        factory=factory,
        for_runs=for_runs,
    )


def add_version(tx: Transaction, secret: SecretId, value: SecretValue, keys: KeyRing, now: int) -> str:
    """Store `value` as the secret's newest version. Returns the version's id."""
    sealing_key = binding.sealing_key(tx, keys)
    version = 1 + tx.integer("SELECT COALESCE(MAX(version), 0) FROM secret_versions WHERE secret_id = :id", id=secret)
    version_id = f"{secret}.{version}"
    tx.run(
        """
        INSERT INTO secret_versions (id, secret_id, version, key_id, sealed, created_at)
        VALUES (:id, :secret, :version, :key, :sealed, :now)
        """,
        id=version_id,
        secret=secret,
        version=version,
        key=sealing_key.id,
        sealed=sealing_key.seal(value, version_id),
        now=now,
    )
    return version_id


def newest_version_id(tx: Transaction, secret: SecretId) -> str | None:
    query = "SELECT id FROM secret_versions WHERE secret_id = :secret ORDER BY version DESC LIMIT 1"
    return tx.scalar(query, secret=secret)


def version_sealed_with(tx: Transaction, key_id: str) -> str | None:
    """The id of any version that this key seals; None if there is none."""
    return tx.scalar("SELECT id FROM secret_versions WHERE key_id = :key LIMIT 1", key=key_id)


def reveal(tx: Transaction, version_id: str, keys: KeyRing) -> SecretValue:
    """The secret's value, for verifying deliveries and for sending samples. Raises `WrongKey` if it can't be opened."""
    row = tx.one("SELECT key_id, sealed FROM secret_versions WHERE id = :id", id=version_id)
    if row is None:
        raise LookupError(version_id)
    return keys.named(row["key_id"]).open(row["sealed"], version_id)
