"""Reads and updates sessions, passwords and sign-in links. Stores only digests of tokens and hashes of passwords."""

from dataclasses import asdict

from hookmill.domain.external_identity import SignInMethod
from hookmill.domain.ids import FactoryId
from hookmill.domain.permission import Role
from hookmill.domain.session import Account, Session, SignInLink
from hookmill.store import dialect, members
from hookmill.store.database import Transaction, from_row


def begin(tx: Transaction, digest: bytes, session: Session, client: str | None) -> None:
    tx.run(
        """
        INSERT INTO sessions (digest, member_id, created_at, last_seen_at, client, method, rules_tag)
        VALUES (:digest, :member_id, :created_at, :last_seen_at, :client, :method, :rules_tag)
        """,
        digest=digest,
        client=client,
        **asdict(session),
    )


def by_digest(tx: Transaction, digest: bytes) -> Session | None:
    row = tx.one(
        """
        SELECT member_id, created_at, last_seen_at, method, rules_tag
        FROM sessions
        WHERE digest = :digest
        """,
        digest=digest,
    )
    if row is None:
        return None
    return from_row(Session, row, method=SignInMethod(row["method"]))


def mark_used(tx: Transaction, digest: bytes, now: int) -> None:
    """Record the time of the session's last use, in µs since 1970."""
    tx.run("UPDATE sessions SET last_seen_at = :now WHERE digest = :digest", digest=digest, now=now)


def end(tx: Transaction, digest: bytes) -> None:
    tx.run("DELETE FROM sessions WHERE digest = :digest", digest=digest)


def end_all_of(tx: Transaction, member: str) -> int:
    return tx.run("DELETE FROM sessions WHERE member_id = :member", member=member)


def forget_old(tx: Transaction, *, created_before: int, seen_before: int) -> int:
    """End sessions that are older, or were last used earlier, than these times in µs since 1970. Returns how many."""
    return tx.run(
        "DELETE FROM sessions WHERE created_at < :created OR last_seen_at < :seen",
        created=created_before,
        seen=seen_before,
    )


def forget_old_links(tx: Transaction, now: int) -> int:
    return tx.run("DELETE FROM sign_in_links WHERE expires_at <= :now", now=now)


def account_of(tx: Transaction, member: str) -> Account | None:
    return _account(tx, "id = :value", member)


def account_with_email(tx: Transaction, email: str) -> Account | None:
    return _account(tx, "email = :value", email)


def _account(tx: Transaction, condition: str, value: str) -> Account | None:
    row = tx.one(
        f"""
        SELECT id, team_id, email, name, is_admin, password_hash, oidc_issuer, oidc_subject
        FROM members
        WHERE {condition} AND removed_at IS NULL
        """,
        value=value,
    )
    if row is None:
        return None
    return from_row(
        Account,
        row,
        member_id=row["id"],
        is_admin=bool(row["is_admin"]),
        identity=members.identity_in(row),
    )


def roles_of(tx: Transaction, member: str) -> dict[FactoryId, Role]:
    rows = tx.all("SELECT factory_id, role FROM member_roles WHERE member_id = :member", member=member)
    return {row["factory_id"]: Role(row["role"]) for row in rows}


def password_is_unchanged(tx: Transaction, member: str, password_hash: str) -> bool:
    """Whether the member's stored hash is still `password_hash`. If so, it can't change before the transaction ends."""
    row = tx.one(
        f"""
        SELECT id FROM members
        WHERE id = :member AND password_hash = :hash AND removed_at IS NULL
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
        """,
        member=member,
        hash=password_hash,
    )
    return row is not None


def set_password(tx: Transaction, member: str, password_hash: str) -> None:
    """Set the member's password. It replaces an identity."""
    tx.run(
        """
        UPDATE members
        SET password_hash = :hash, oidc_issuer = NULL, oidc_subject = NULL
        WHERE id = :member
        """,
        member=member,
        hash=password_hash,
    )


def any_member_can_sign_in(tx: Transaction) -> bool:
    """Whether any member has a password or an identity."""
    row = tx.one(
        """
        SELECT 1
        FROM members
        WHERE (password_hash IS NOT NULL OR oidc_subject IS NOT NULL) AND removed_at IS NULL
        LIMIT 1
        """
    )
    return row is not None


def add_link(tx: Transaction, digest: bytes, link: SignInLink) -> None:
    """Add a link for a member or, without `member_id`, for the first admin, who is not a member yet. The previous such
    link stops working."""
    if link.member_id is None:
        tx.run("DELETE FROM sign_in_links WHERE member_id IS NULL")
    else:
        tx.run("DELETE FROM sign_in_links WHERE member_id = :member", member=link.member_id)
    tx.run(
        """
        INSERT INTO sign_in_links (digest, team_id, member_id, expires_at)
        VALUES (:digest, :team_id, :member_id, :expires_at)
        """,
        digest=digest,
        **asdict(link),
    )


def link_by_digest(tx: Transaction, digest: bytes) -> SignInLink | None:
    row = tx.one("SELECT team_id, member_id, expires_at FROM sign_in_links WHERE digest = :digest", digest=digest)
    if row is None:
        return None
    return from_row(SignInLink, row)


def use_link(tx: Transaction, digest: bytes) -> bool:
    """Consume the link. Returns False if it was already used, replaced or removed."""
    return tx.run("DELETE FROM sign_in_links WHERE digest = :digest", digest=digest) == 1
