"""Signing in: links that let somebody choose a password, passwords, and sessions. There is no default account."""

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
from hookmill.domain.permission import Actor, ActorKind, Caller, Channel, MayAdminister
from hookmill.domain.secret import SecretValue, generated
from hookmill.domain.session import Account, Session, SignInLink
from hookmill.domain.webhook import usable_name
from hookmill.management.installation import Change, Installation, random_name
from hookmill.management.members import usable_address
from hookmill.store import factories, members, sessions
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import WrongKey

HOUR_US: Final = 3_600_000_000
LINK_HOURS: Final = 24
SEEN_TO_US: Final = 60_000_000
_BROWSER: Final = "known browser"
"""In the place of a row: nothing that is sealed for one opens as what a browser keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTarget:
    """Whom a link is for: a member who is there, or the first admin, who says who they are."""

    email: str | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Somebody who is signed in, for one request."""

    caller: Caller
    email: str
    name: str


class Sessions:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    # Links

    def first_link(self) -> SecretValue | None:
        """What lets the first admin in; None once somebody signs in. It replaces the one before, and lasts a day."""
        token = _new_token()
        with self._at.writing_first() as tx:
            team = factories.the_team(tx)
            if team is None or sessions.anybody_signs_in(tx):
                return None
            link = SignInLink(team_id=team, member_id=None, expires_at=self._at.now() + LINK_HOURS * HOUR_US)
            sessions.offer_link(tx, _digest(token.reveal()), link)
        return token

    def link_for(self, may: MayAdminister, named: str) -> SecretValue:
        """What lets a member choose a new password, for a day. Hand it over: it is shown once."""
        token = _new_token()
        with self._at.changing(may) as change:
            member = _member(change.tx, may, named)
            link = SignInLink(team_id=may.team_id, member_id=member.id, expires_at=change.now + LINK_HOURS * HOUR_US)
            sessions.offer_link(change.tx, _digest(token.reveal()), link)
            change.record("link", "member", member.id, member.email)
        return token

    def link_target(self, token: str) -> LinkTarget:
        """Whom the link is for. Raises `NotFound` for one that is unknown, used or too old."""
        with self._at.reading() as tx:
            link = self._link(tx, token)
            if link.member_id is None:
                return LinkTarget(email=None, name=None)
            account = sessions.account_of(tx, link.member_id)
        if account is None:
            raise _no_such_link()
        return LinkTarget(email=account.email, name=account.name)

    def accept_link(
        self, token: str, *, password: str, email: str | None = None, name: str | None = None, client: str | None
    ) -> SecretValue:
        """Choose the password, and be signed in. Every other session of the member ends.

        The first admin says who they are. Raises `NotFound` for a link that is no longer good, and `Invalid`.
        """
        # Hashing takes long: nobody waits for it inside a transaction.
        from hookmill.management.passwords import hashed

        self.link_target(token)
        kept = hashed(password)
        session = _new_token()
        with self._at.writing_first() as tx:
            link = self._link(tx, token)
            now = self._at.now()
            if not sessions.use_link(tx, _digest(token)):
                raise _no_such_link()
            member = link.member_id or self._first_admin(tx, link, email, name, now)
            sessions.set_password(tx, member, kept)
            sessions.end_all_of(tx, member)
            sessions.begin(tx, _digest(session.reveal()), member, client, now)
            own = _of_their_own(tx, member, client, now)
            own.change.record("choose_password", "member", member, own.email, is_first=link.member_id is None)
        return session

    def _first_admin(self, tx: Transaction, link: SignInLink, email: str | None, name: str | None, now: int) -> str:
        if sessions.anybody_signs_in(tx):
            raise _no_such_link()
        address = usable_address(email or "")
        known = members.by_email(tx, link.team_id, address)
        if known is not None:
            members.set_admin(tx, known.id, True)
            return known.id
        member = Member(
            id=random_name("mbr"),
            team_id=link.team_id,
            email=address,
            name=usable_name("member", name or ""),
            is_admin=True,
            created_at=now,
        )
        members.add(tx, member)
        return member.id

    def _link(self, tx: Transaction, token: str) -> SignInLink:
        link = sessions.link_with(tx, _digest(token))
        if link is None or link.expires_at <= self._at.now():
            raise _no_such_link()
        return link

    # Sessions

    def sign_in(self, email: str, password: str, *, client: str | None) -> SecretValue | None:
        """A new session; None when address and password don't belong together, or nobody has them."""
        from hookmill.management.passwords import is_right

        with self._at.reading() as tx:
            account = sessions.account_with_email(tx, email.strip().lower())
        if not is_right(password, account.password_hash if account is not None else None) or account is None:
            return None
        token = _new_token()
        now = self._at.now()
        with self._at.noting() as tx:
            # Judging took long: a password that was changed meanwhile opens no session.
            if not sessions.has_password(tx, account.member_id, account.password_hash or ""):
                return None
            sessions.begin(tx, _digest(token.reveal()), account.member_id, client, now)
            own = _of_their_own(tx, account.member_id, client, now)
            own.change.record("sign_in", "member", account.member_id, own.email)
        return token

    # Browsers

    def remember_browser(self, email: str) -> SecretValue:
        """What a browser keeps from which the account with this address was signed in to. It opens nothing."""
        key = self._at.key.newest
        browser = SecretValue(f"{secrets.token_hex(8)} {email.strip().lower()}")
        return SecretValue(base64.urlsafe_b64encode(key.seal(browser, _BROWSER)).decode())

    def known_browser(self, token: str, email: str) -> str | None:
        """The name of the browser, if this account was signed in to from it under the newest master key."""
        try:
            sealed = base64.b64decode(token, altchars=b"-_", validate=True)
            name, _, account = self._at.key.newest.open(sealed, _BROWSER).reveal().partition(" ")
        except (ValueError, WrongKey):
            return None
        return name if account == email.strip().lower() else None

    def by_token(self, token: str, *, client: str | None, is_visit: bool = True) -> SignedIn | None:
        """Who is signed in by this; None when it is nobody, or no longer. What is no visit doesn't keep it alive."""
        now = self._at.now()
        digest = _digest(token)
        with self._at.reading() as tx:
            session = sessions.by_digest(tx, digest)
            if session is None or _is_over(session, now):
                return None
            account = sessions.account_of(tx, session.member_id)
            if account is None:
                return None
            roles = sessions.roles_of(tx, account.member_id)
        if is_visit and session.last_seen_at + SEEN_TO_US < now:
            # A disk that is full keeps nobody from looking.
            with suppress(StoreUnavailable), self._at.noting() as tx:
                sessions.mark_seen(tx, digest, now)
        actor = Actor(
            kind=ActorKind.MEMBER, id=account.member_id, name=account.email, channel=Channel.DASHBOARD, client=client
        )
        caller = Caller(actor=actor, team_id=account.team_id, is_admin=account.is_admin, roles=roles)
        return SignedIn(caller=caller, email=account.email, name=account.name)

    def sign_out(self, token: str) -> None:
        """The session opens nothing from the moment this returns."""
        with self._at.noting() as tx:
            sessions.end(tx, _digest(token))

    def change_password(self, signed_in: SignedIn, *, old: str, new: str, client: str | None) -> SecretValue:
        """Every session of the member ends; the answer is a new one. Raises `Conflict` for a wrong old password."""
        from hookmill.management.passwords import hashed, is_right

        member = signed_in.caller.actor.id
        with self._at.reading() as tx:
            account: Account | None = sessions.account_of(tx, member)
        if account is None or not is_right(old, account.password_hash):
            raise Conflict("The old password is not the right one. Nothing was changed.")
        if old == new:
            raise Invalid("The new password is the old one. Choose another.", pointer="/new")
        kept = hashed(new)
        token = _new_token()
        with self._at.noting() as tx:
            if not sessions.has_password(tx, member, account.password_hash or ""):
                raise Conflict("The password was changed elsewhere meanwhile. Nothing was changed.")
            now = self._at.now()
            sessions.set_password(tx, member, kept)
            sessions.end_all_of(tx, member)
            sessions.begin(tx, _digest(token.reveal()), member, client, now)
            own = _of_their_own(tx, member, client, now)
            own.change.record("change_password", "member", member, own.email)
        return token


@dataclass(frozen=True, slots=True)
class _OwnAct:
    """What a member does to their own account, which takes no permission and leaves a line all the same."""

    change: Change
    email: str


def _of_their_own(tx: Transaction, member: str, client: str | None, now: int) -> _OwnAct:
    account = sessions.account_of(tx, member)
    assert account is not None, "looked up in the same transaction"
    actor = Actor(kind=ActorKind.MEMBER, id=member, name=account.email, channel=Channel.DASHBOARD, client=client)
    return _OwnAct(Change(tx, now, MayAdminister(actor=actor, team_id=account.team_id)), account.email)


def _is_over(session: Session, now: int) -> bool:
    return (
        now >= session.created_at + SESSION_HOURS * HOUR_US
        or now >= session.last_seen_at + SESSION_IDLE_HOURS * HOUR_US
    )


def _member(tx: Transaction, may: MayAdminister, named: str) -> Member:
    member = members.by_id(tx, may.team_id, named) or members.by_email(tx, may.team_id, named.strip().lower())
    if member is None:
        raise NotFound(f"There is no member {named[:100]!r}.")
    return member


def _no_such_link() -> NotFound:
    return NotFound("This link was used, is too old, or was never there. Ask an admin of the team for a new one.")


def _new_token() -> SecretValue:
    return generated(os.urandom(32))


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
