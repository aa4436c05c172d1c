"""Operations for signing in: one-time links to choose a password, passwords, sessions and known browsers."""

import base64
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from hookmill.domain.errors import Conflict, Invalid, NotFound, StoreUnavailable
from hookmill.domain.limits import SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.domain.member import Member
from hookmill.domain.name import usable_name
from hookmill.domain.permission import Actor, ActorKind, Caller, Channel, MayAdminister
from hookmill.domain.secret import SecretValue, generate_value
from hookmill.domain.session import Account, Session, SignInLink
from hookmill.management.installation import Change, Installation, OwnAccount, random_id
from hookmill.management.members import member_of, usable_address
from hookmill.store import factories, members, sessions
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import WrongKey

HOUR_US: Final = 3_600_000_000
LINK_HOURS: Final = 24
LAST_SEEN_PRECISION_US: Final = 60_000_000
"""A session's last use is stored again after this time, in µs."""
_BROWSER_CONTEXT: Final = "known browser"
"""Takes the place of a row's id when browser tokens are sealed, so that a sealed secret from the database can't pass as
a browser token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTarget:
    """The member whom a link is for. Both fields are None for the first admin, who is not a member yet."""

    email: str | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInMember:
    """A signed-in member, for one request."""

    caller: Caller
    email: str
    name: str


class Sessions:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    # Links

    def create_first_link(self) -> SecretValue | None:
        """Create a sign-in link for the first admin, valid for a day. Returns its token. It replaces the previous link.

        Returns None if a member can already sign in, or if the installation is not set up.
        """
        token = _new_token()
        with self._installation.locking_set_up() as tx:
            team = factories.only_team(tx)
            if team is None or sessions.any_member_has_password(tx):
                return None
            link = SignInLink(team_id=team, member_id=None, expires_at=self._installation.now() + LINK_HOURS * HOUR_US)
            sessions.add_link(tx, _digest(token.reveal()), link)
        return token

    def create_link(self, may: MayAdminister, id_or_email: str) -> SecretValue:
        """Create a link with which the member can choose a password, valid for a day, and return its token.

        The token is shown only once. The member's previous link stops working. Raises `NotFound`.
        """
        token = _new_token()
        with self._installation.changing(may) as change:
            member = member_of(change.tx, may, id_or_email)
            link = SignInLink(team_id=may.team_id, member_id=member.id, expires_at=change.now + LINK_HOURS * HOUR_US)
            sessions.add_link(change.tx, _digest(token.reveal()), link)
            change.record("link", "member", member.id, member.email)
        return token

    def link_target(self, token: str) -> LinkTarget:
        """The member whom the link is for. Raises `NotFound` if the link is unknown, replaced, used or expired."""
        with self._installation.reading() as tx:
            link = self._link(tx, token)
            if link.member_id is None:
                return LinkTarget(email=None, name=None)
            account = sessions.account_of(tx, link.member_id)
        if account is None:
            raise _link_not_found()
        return LinkTarget(email=account.email, name=account.name)

    def accept_link(
        self, token: str, *, password: str, email: str | None = None, name: str | None = None, client: str | None
    ) -> SecretValue:
        """Set the member's password, end all sessions of the member, and return a new session's token.

        A link for the first admin also creates this member, with `email` and `name`, which other links ignore.
        `client`: the client's address. Raises `NotFound` like `link_target`, and `Invalid` for an unusable password,
        address or name.
        """
        from hookmill.management.passwords import hash_password

        # An invalid link must not cost a hash. Hashing is slow, so it happens outside the transaction.
        self.link_target(token)
        password_hash = hash_password(password)
        session_token = _new_token()
        with self._installation.locking_set_up() as tx:
            link = self._link(tx, token)
            now = self._installation.now()
            if not sessions.use_link(tx, _digest(token)):
                raise _link_not_found()
            member_id = link.member_id or self._add_first_admin(tx, link, email, name, now)
            sessions.set_password(tx, member_id, password_hash)
            sessions.end_all_of(tx, member_id)
            sessions.begin(tx, _digest(session_token.reveal()), member_id, client, now)
            change = _change_by_member(tx, member_id, client, now)
            is_first = link.member_id is None
            change.record("choose_password", "member", member_id, change.actor_name, is_first=is_first)
        return session_token

    def _add_first_admin(self, tx: Transaction, link: SignInLink, email: str | None, name: str | None, now: int) -> str:
        """Add the first admin, or make the member with this address an admin. Returns the member's id.

        Raises `NotFound` if a member can already sign in.
        """
        if sessions.any_member_has_password(tx):
            raise _link_not_found()
        address = usable_address(email or "")
        existing = members.by_email(tx, link.team_id, address)
        if existing is not None:
            members.set_admin(tx, existing.id, True)
            return existing.id
        member = Member(
            id=random_id("mbr"),
            team_id=link.team_id,
            email=address,
            name=usable_name("member", name or ""),
            is_admin=True,
            created_at=now,
        )
        members.add(tx, member)
        return member.id

    def _link(self, tx: Transaction, token: str) -> SignInLink:
        link = sessions.link_by_digest(tx, _digest(token))
        if link is None or link.expires_at <= self._installation.now():
            raise _link_not_found()
        return link

    # Sessions

    def sign_in(self, email: str, password: str, *, client: str | None) -> SecretValue | None:
        """A new session's token; None if the e-mail address is unknown or the password is wrong."""
        from hookmill.management.passwords import is_correct_password

        with self._installation.reading() as tx:
            account = sessions.account_with_email(tx, email.strip().lower())
        if not is_correct_password(password, account.password_hash if account is not None else None) or account is None:
            return None
        token = _new_token()
        now = self._installation.now()
        with self._installation.writing_without_permission_check() as tx:
            # Verification is slow, and the password may have been changed since.
            if not sessions.password_is_unchanged(tx, account.member_id, account.password_hash or ""):
                return None
            sessions.begin(tx, _digest(token.reveal()), account.member_id, client, now)
            change = _change_by_member(tx, account.member_id, client, now)
            change.record("sign_in", "member", account.member_id, change.actor_name)
        return token

    def by_session_token(self, token: str, *, client: str | None, is_visit: bool = True) -> SignedInMember | None:
        """The member with this session token; None if it is unknown or expired.

        Only a visit keeps the session alive. Background requests of a page are not visits.
        """
        now = self._installation.now()
        digest = _digest(token)
        with self._installation.reading() as tx:
            session = sessions.by_digest(tx, digest)
            if session is None or _is_expired(session, now):
                return None
            account = sessions.account_of(tx, session.member_id)
            if account is None:
                return None
            roles = sessions.roles_of(tx, account.member_id)
        if is_visit and session.last_seen_at + LAST_SEEN_PRECISION_US < now:
            # Reading must work even if the disk is full.
            with suppress(StoreUnavailable), self._installation.writing_without_permission_check() as tx:
                sessions.mark_used(tx, digest, now)
        actor = Actor(
            kind=ActorKind.MEMBER, id=account.member_id, name=account.email, channel=Channel.DASHBOARD, client=client
        )
        caller = Caller(actor=actor, team_id=account.team_id, is_admin=account.is_admin, roles=roles)
        return SignedInMember(caller=caller, email=account.email, name=account.name)

    def sign_out(self, token: str) -> None:
        """End the session with this token, if there is one."""
        with self._installation.writing_without_permission_check() as tx:
            sessions.end(tx, _digest(token))

    # Passwords

    def change_password(self, signed_in: SignedInMember, *, old: str, new: str, client: str | None) -> SecretValue:
        """Set a new password, end all sessions of the member, and return a new session's token.

        Raises `Conflict` for a wrong old password, and `Invalid` for an unusable new one.
        """
        from hookmill.management.passwords import hash_password, is_correct_password

        member_id = signed_in.caller.actor.id
        with self._installation.reading() as tx:
            account: Account | None = sessions.account_of(tx, member_id)
        if account is None or not is_correct_password(old, account.password_hash):
            raise Conflict("The old password is wrong. Nothing was changed.")
        if old == new:
            raise Invalid("The new password equals the old one. Choose another.", pointer="/new")
        password_hash = hash_password(new)
        token = _new_token()
        with self._installation.writing_without_permission_check() as tx:
            if not sessions.password_is_unchanged(tx, member_id, account.password_hash or ""):
                raise Conflict("Another session changed the password in the meantime. Nothing was changed.")
            now = self._installation.now()
            sessions.set_password(tx, member_id, password_hash)
            sessions.end_all_of(tx, member_id)
            sessions.begin(tx, _digest(token.reveal()), member_id, client, now)
            change = _change_by_member(tx, member_id, client, now)
            change.record("change_password", "member", member_id, change.actor_name)
        return token

    # Known browsers

    def browser_token(self, email: str) -> SecretValue:
        """A token for a browser that signed in to this account.

        It does not authenticate. Sign-in attempts with it wait in their own queue, apart from unknown clients.
        """
        key = self._installation.master_keys.newest
        browser = SecretValue(f"{secrets.token_hex(8)} {email.strip().lower()}")
        return SecretValue(base64.urlsafe_b64encode(key.seal(browser, _BROWSER_CONTEXT)).decode())

    def known_browser_name(self, token: str, email: str) -> str | None:
        """The browser's random name, if it signed in to this account under the newest master key; else None."""
        try:
            sealed = base64.b64decode(token, altchars=b"-_", validate=True)
            name, _, account = (
                self._installation.master_keys.newest.open(sealed, _BROWSER_CONTEXT).reveal().partition(" ")
            )
        except (ValueError, WrongKey):
            return None
        return name if account == email.strip().lower() else None


def _change_by_member(tx: Transaction, member_id: str, client: str | None, now: int) -> Change:
    """What a member does to the member's own account, to be recorded in the audit log. It requires no permission."""
    account = sessions.account_of(tx, member_id)
    assert account is not None, "the caller has used the member's link, or checked the password, in this transaction"
    actor = Actor(kind=ActorKind.MEMBER, id=member_id, name=account.email, channel=Channel.DASHBOARD, client=client)
    return Change(tx, now, OwnAccount(actor=actor, team_id=account.team_id))


def _is_expired(session: Session, now: int) -> bool:
    return (
        now >= session.created_at + SESSION_HOURS * HOUR_US
        or now >= session.last_seen_at + SESSION_IDLE_HOURS * HOUR_US
    )


def _link_not_found() -> NotFound:
    return NotFound("This link is unknown, used or expired. Ask an admin of the team for a new one.")


def _new_token() -> SecretValue:
    return generate_value(os.urandom(32))


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
