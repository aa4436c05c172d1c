"""Reads and updates the team's members and their roles in its factories."""

from collections.abc import Sequence
from dataclasses import asdict

from hookmill.domain.external_identity import IdentityKey
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.member import Member
from hookmill.domain.permission import Role
from hookmill.store.database import Row, Transaction, from_row


def add(tx: Transaction, member: Member) -> None:
    tx.run(
        """
        INSERT INTO members (id, team_id, email, name, is_admin, created_at)
        VALUES (:id, :team_id, :email, :name, :is_admin, :created_at)
        """,
        **asdict(member),
    )


def of_team(tx: Transaction, team: TeamId) -> Sequence[Member]:
    """The team's members, ordered by email address. Removed members are omitted."""
    rows = tx.all(f"{_SELECT} WHERE team_id = :team AND removed_at IS NULL ORDER BY email", team=team)
    return [_member(tx, row) for row in rows]


def by_id(tx: Transaction, team: TeamId, member: str) -> Member | None:
    return _first(tx, team, "id = :id", id=member)


def by_email(tx: Transaction, team: TeamId, email: str) -> Member | None:
    return _first(tx, team, "email = :email", email=email)


def by_identity(tx: Transaction, team: TeamId, identity: IdentityKey) -> Member | None:
    condition = "oidc_issuer = :issuer AND oidc_subject = :subject"
    return _first(tx, team, condition, issuer=identity.issuer, subject=identity.subject)


def set_identity(tx: Transaction, member: str, identity: IdentityKey) -> None:
    """Set the member's identity, which replaces a password and an earlier identity."""
    tx.run(
        """
        UPDATE members
        SET password_hash = NULL, oidc_issuer = :issuer, oidc_subject = :subject
        WHERE id = :id
        """,
        id=member,
        issuer=identity.issuer,
        subject=identity.subject,
    )


def set_email_and_name(tx: Transaction, member: str, email: str, name: str) -> None:
    tx.run("UPDATE members SET email = :email, name = :name WHERE id = :id", id=member, email=email, name=name)


def set_admin(tx: Transaction, member: str, is_admin: bool) -> None:
    tx.run("UPDATE members SET is_admin = :is_admin WHERE id = :id", id=member, is_admin=is_admin)


def set_role(tx: Transaction, member: str, factory: FactoryId, role: Role | None) -> None:
    """Set the member's role in the factory. None removes the member from it."""
    tx.run("DELETE FROM member_roles WHERE member_id = :id AND factory_id = :factory", id=member, factory=factory)
    if role is not None:
        tx.run(
            "INSERT INTO member_roles (member_id, factory_id, role) VALUES (:id, :factory, :role)",
            id=member,
            factory=factory,
            role=role.value,
        )


def remove(tx: Transaction, member: str, now: int) -> None:
    tx.run("DELETE FROM member_roles WHERE member_id = :id", id=member)
    tx.run("DELETE FROM sessions WHERE member_id = :id", id=member)
    tx.run("DELETE FROM sign_in_links WHERE member_id = :id", id=member)
    tx.run("UPDATE members SET removed_at = :now WHERE id = :id", id=member, now=now)


def identity_in(row: Row) -> IdentityKey | None:
    """The identity in a row of members."""
    return IdentityKey(row["oidc_issuer"], row["oidc_subject"]) if row["oidc_subject"] is not None else None


_SELECT = """
    SELECT id, team_id, email, name, is_admin, created_at, password_hash IS NOT NULL AS has_password,
           oidc_issuer, oidc_subject
    FROM members
"""


def _first(tx: Transaction, team: TeamId, condition: str, **values: str) -> Member | None:
    row = tx.one(f"{_SELECT} WHERE {condition} AND team_id = :team AND removed_at IS NULL", team=team, **values)
    return _member(tx, row) if row else None


def _member(tx: Transaction, row: Row) -> Member:
    roles = tx.all(
        """
        SELECT f.name, r.role
        FROM member_roles r JOIN factories f ON f.id = r.factory_id
        WHERE r.member_id = :id
        ORDER BY f.name
        """,
        id=row["id"],
    )
    return from_row(
        Member,
        row,
        is_admin=bool(row["is_admin"]),
        roles={row["name"]: Role(row["role"]) for row in roles},
        has_password=bool(row["has_password"]),
        identity=identity_in(row),
    )
