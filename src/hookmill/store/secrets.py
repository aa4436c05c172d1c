"""Team secrets. A new value is a new version; what a webhook uses is the version that it last synced."""

from hookmill.domain.ids import SecretId, TeamId
from hookmill.domain.secret import SecretValue
from hookmill.store.database import Transaction
from hookmill.store.sealing import MasterKey


def secret_named(tx: Transaction, team: TeamId, name: str) -> SecretId | None:
    row = tx.one("SELECT id FROM secrets WHERE team_id = :team AND name = :name", team=team, name=name)
    return SecretId(row["id"]) if row else None


def add_secret(tx: Transaction, secret: SecretId, team: TeamId, name: str, now: int) -> None:
    tx.run(
        "INSERT INTO secrets (id, team_id, name, created_at) VALUES (:id, :team, :name, :now)",
        id=secret,
        team=team,
        name=name,
        now=now,
    )


def add_version(tx: Transaction, secret: SecretId, value: SecretValue, key: MasterKey, now: int) -> str:
    """Keep `value` as the secret's newest version. Returns the version's id."""
    newest = tx.one("SELECT COALESCE(MAX(version), 0) AS newest FROM secret_versions WHERE secret_id = :id", id=secret)
    version = newest["newest"] + 1 if newest else 1
    version_id = f"{secret}.{version}"
    tx.run(
        """
        INSERT INTO secret_versions (id, secret_id, version, key_id, sealed, created_at)
        VALUES (:id, :secret, :version, :key, :sealed, :now)
        """,
        id=version_id,
        secret=secret,
        version=version,
        key=key.id,
        sealed=key.seal(value, version_id),
        now=now,
    )
    return version_id


def newest_version(tx: Transaction, secret: SecretId) -> str | None:
    row = tx.one(
        "SELECT id FROM secret_versions WHERE secret_id = :secret ORDER BY version DESC LIMIT 1",
        secret=secret,
    )
    return row["id"] if row else None


def reveal(tx: Transaction, version_id: str, key: MasterKey) -> SecretValue:
    """The value itself, for the two who need it: the verifier and the sender of a sample."""
    row = tx.one("SELECT sealed FROM secret_versions WHERE id = :id", id=version_id)
    if row is None:
        raise LookupError(version_id)
    return key.open(bytes(row["sealed"]), version_id)
