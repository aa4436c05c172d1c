"""Operations for signing in: one-time links, passwords, sessions and known browsers.

`external_sign_ins` has the sign-in with OpenID Connect.
"""

import base64
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Conflict, Invalid, NotFound, StoreUnavailable
from hookmill.domain.external_identity import SignInMethod
from hookmill.domain.limits import SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.domain.member import Member
from hookmill.domain.name import usable_name
from hookmill.domain.permission import Actor, ActorKind, Caller, Channel, MayAdminister
from hookmill.domain.secret import SecretValue, generate_value
from hookmill.domain.session import Account, Session, SignInLink
from hookmill.management.access import token_digest
from hookmill.management.installation import AccountChange, Change, Operations, random_id
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
    """The member whom a link is for. `email` and `name` are None for the first admin, who is not a member yet."""

    email: str | None
    name: str | None
    chooses_password: bool
    """Whether the member must choose a password. Otherwise, the link signs the member in without one."""
    can_connect: bool
    """Whether the member may connect an identity at the provider of `InstallationConfig.external_sign_in`."""


@dataclass(frozen=True, slots=True)
class KnownBrowser:
    """A browser in which a member has signed in."""

    name: str
    """Random."""
    account: str
    """The member's e-mail address, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInMember:
    """A signed-in member, for one request."""

    caller: Caller
    email: str
    name: str
    has_password: bool
    """Whether the member signs in with a password."""


class Sessions(Operations):
    # Links

    def create_first_link(self) -> SecretValue | None:
        """Create a sign-in link for the first admin, valid for a day. The previous link ends. Returns the token.

        Returns None if a member can already sign in, or if the installation is not set up.
        """
        token = new_token()
        with self._installation.locking_set_up() as tx:
            team = factories.only_team(tx)
            if team is None or sessions.any_member_can_sign_in(tx):
                return None
            link = SignInLink(team_id=team, member_id=None, expires_at=self._installation.now() + LINK_HOURS * HOUR_US)
            sessions.add_link(tx, token_digest(token.reveal()), link)
        return token

    def create_link(self, may: MayAdminister, id_or_email: str) -> SecretValue:
        """Create a link with which the member can sign in, valid for a day, and return its token.

        `link_target` says whether the member must then choose a password. The token is shown only once. The member's
        previous link stops working. Raises `NotFound`.
        """
        token = new_token()
        with self._installation.changing(may) as change:
            member = member_of(change.tx, may, id_or_email)
            link = SignInLink(team_id=may.team_id, member_id=member.id, expires_at=change.now + LINK_HOURS * HOUR_US)
            sessions.add_link(change.tx, token_digest(token.reveal()), link)
            change.record("link", "member", member.id, member.email)
        return token

    def link_target(self, token: str) -> LinkTarget:
        """The member whom the link is for. Raises `NotFound` if the link is unknown, replaced, used or expired."""
        with self._installation.reading() as tx:
            link = self._link(tx, token)
            config = self._installation.config
            if link.member_id is None:
                return LinkTarget(email=None, name=None, chooses_password=config.password_sign_in, can_connect=False)
            account = sessions.account_of(tx, link.member_id)
        if account is None:
            raise _link_not_found_error()
        rules = config.external_sign_in
        is_connected = rules is not None and rules.is_issuer_of(account.identity)
        return LinkTarget(
            email=account.email,
            name=account.name,
            chooses_password=config.password_sign_in and not is_connected,
            can_connect=rules is not None,
        )

    def accept_link(
        self, token: str, *, password: str = "", email: str | None = None, name: str | None = None, client: str | None
    ) -> SecretValue:
        """Sign the member in: end all sessions of the member, and return a new session's token.

        If the link's target `chooses_password`, this also sets the password; otherwise, it ignores `password`. A link
        for the first admin also creates this member, with `email` and `name`, which other links ignore.
        `client`: the client's address. Raises `NotFound` like `link_target`, and `Invalid` for an unusable password,
        address or name.
        """
        from hookmill.management.passwords import hash_password

        # An invalid link must not cost a hash. Hashing is slow, so it happens outside the transaction.
        password_hash = hash_password(password) if self.link_target(token).chooses_password else None
        session_token = new_token()
        with self._installation.locking_set_up() as tx:
            link = self.use_link(tx, token)
            now = self._installation.now()
            member_id = link.member_id or self._add_first_admin(tx, link, email, name, now)
            if password_hash is not None:
                sessions.set_password(tx, member_id, password_hash)
            sessions.end_all_of(tx, member_id)
            method = SignInMethod.LINK if password_hash is None else SignInMethod.PASSWORD
            change = begin_session(tx, session_token, member_id, method, client, now)
            change.record(
                "use_link" if password_hash is None else "choose_password",
                "member",
                member_id,
                change.actor_name,
                is_first=link.member_id is None,
            )
        return session_token

    def use_link(self, tx: Transaction, token: str) -> SignInLink:
        """Consume the link. Raises `NotFound` like `link_target`."""
        link = self._link(tx, token)
        if not sessions.use_link(tx, token_digest(token)):
            raise _link_not_found_error()
        return link

    def _add_first_admin(self, tx: Transaction, link: SignInLink, email: str | None, name: str | None, now: int) -> str:
        """Add the first admin, or make the member with this address an admin. Returns the member's id.

        Raises `NotFound` if a member can already sign in.
        """
        if sessions.any_member_can_sign_in(tx):
            raise _link_not_found_error()
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
        link = sessions.link_by_digest(tx, token_digest(token))
        if link is None or link.expires_at <= self._installation.now():
            raise _link_not_found_error()
        return link

    # Sessions

    def sign_in(self, email: str, password: str, *, client: str | None) -> SecretValue | None:
        """A new session's token; None if the e-mail address is unknown or the password is wrong, or if nobody may sign
        in with a password."""
        from hookmill.management.passwords import is_correct_password

        if not self._installation.config.password_sign_in:
            return None
        with self._installation.reading() as tx:
            account = sessions.account_with_email(tx, email.strip().lower())
        if not is_correct_password(password, account.password_hash if account is not None else None) or account is None:
            return None
        token = new_token()
        now = self._installation.now()
        with self._installation.writing_without_permission_check() as tx:
            # Verification is slow, and the password may have been changed since.
            if not sessions.password_is_unchanged(tx, account.member_id, account.password_hash or ""):
                return None
            change = begin_session(tx, token, account.member_id, SignInMethod.PASSWORD, client, now)
            change.record("sign_in", "member", account.member_id, change.actor_name)
        return token

    def by_session_token(self, token: str, *, client: str | None, is_visit: bool = True) -> SignedInMember | None:
        """The member with this session token; None if it is unknown or expired.

        Only a visit keeps the session alive. Background requests of a page are not visits.
        """
        now = self._installation.now()
        digest = token_digest(token)
        with self._installation.reading() as tx:
            session = sessions.by_digest(tx, digest)
            if session is None or self._has_ended(session, now):
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
        has_password = account.password_hash is not None and self._installation.config.password_sign_in
        return SignedInMember(caller=caller, email=account.email, name=account.name, has_password=has_password)

    def _has_ended(self, session: Session, now: int) -> bool:
        """Whether the session has expired, or the settings no longer allow how it began."""
        if _is_expired(session, now, SESSION_HOURS):
            return True
        config = self._installation.config
        if session.method is SignInMethod.PASSWORD:
            return not config.password_sign_in
        rules = config.external_sign_in
        if rules is None or _is_expired(session, now, rules.session_hours):
            return True
        return session.method is SignInMethod.OIDC and session.rules_tag != rules.tag

    def sign_out(self, token: str) -> None:
        """End the session with this token, if there is one."""
        with self._installation.writing_without_permission_check() as tx:
            sessions.end(tx, token_digest(token))

    # Passwords

    def change_password(self, signed_in: SignedInMember, *, old: str, new: str, client: str | None) -> SecretValue:
        """Set a new password, end all sessions of the member, and return a new session's token.

        Raises `Conflict` for a wrong old password, and for a member who does not sign in with a password. Raises
        `Invalid` for an unusable new one.
        """
        from hookmill.management.passwords import hash_password, is_correct_password

        if not signed_in.has_password:
            raise Conflict("You don't sign in with a password. Nothing was changed.")
        member_id = signed_in.caller.actor.id
        with self._installation.reading() as tx:
            account: Account | None = sessions.account_of(tx, member_id)
        if account is None or not is_correct_password(old, account.password_hash):
            raise Conflict("The old password is wrong. Nothing was changed.")
        if old == new:
            raise Invalid("The new password equals the old one. Choose another.", pointer="/new")
        password_hash = hash_password(new)
        token = new_token()
        with self._installation.writing_without_permission_check() as tx:
            if not sessions.password_is_unchanged(tx, member_id, account.password_hash or ""):
                raise Conflict("Another session changed the password in the meantime. Nothing was changed.")
            now = self._installation.now()
            sessions.set_password(tx, member_id, password_hash)
            sessions.end_all_of(tx, member_id)
            change = begin_session(tx, token, member_id, SignInMethod.PASSWORD, client, now)
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

    def known_browser(self, token: str) -> KnownBrowser | None:
        """The browser with this token; None if there is no token that the newest master key has sealed."""
        try:
            sealed = base64.b64decode(token, altchars=b"-_", validate=True)
            name, _, account = (
                self._installation.master_keys.newest.open(sealed, _BROWSER_CONTEXT).reveal().partition(" ")
            )
        except (ValueError, WrongKey):
            return None
        return KnownBrowser(name, account)


def begin_session(
    tx: Transaction,
    token: SecretValue,
    member_id: str,
    method: SignInMethod,
    client: str | None,
    now: int,
    *,
    rules_tag: bytes | None = None,
) -> Change:
    """Store a new session with this token. Returns the member's change, to which the caller adds a line of the audit
    log. `rules_tag` is like `Session.rules_tag`."""
    session = Session(member_id=member_id, created_at=now, last_seen_at=now, method=method, rules_tag=rules_tag)
    sessions.begin(tx, token_digest(token.reveal()), session, client)
    return change_by_member(tx, member_id, client, now)


def change_by_member(tx: Transaction, member_id: str, client: str | None, now: int) -> Change:
    """What a member does to the member's own account, to be recorded in the audit log. It requires no permission."""
    account = sessions.account_of(tx, member_id)
    assert account is not None, "the caller has used the member's link, or checked the password, in this transaction"
    actor = Actor(kind=ActorKind.MEMBER, id=member_id, name=account.email, channel=Channel.DASHBOARD, client=client)
    return Change(tx, now, AccountChange(actor=actor, team_id=account.team_id))


def _is_expired(session: Session, now: int, hours: int) -> bool:
    return now >= session.created_at + hours * HOUR_US or now >= session.last_seen_at + SESSION_IDLE_HOURS * HOUR_US


def _link_not_found_error() -> NotFound:
    return NotFound("This link is unknown, used or expired. Ask an admin of the team for a new one.")


def new_token() -> SecretValue:
    return generate_value(os.urandom(32))
