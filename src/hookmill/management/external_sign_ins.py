"""Signing in through an OpenID Connect provider: attempts, new members, and roles from groups.

A member is recognized by the identity's issuer and subject, and never by the e-mail address: at many providers, a
person can choose an address that belongs to somebody else. A sign-in link connects an existing member to an identity.
"""

import base64
import dataclasses
import hmac
import json
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Conflict, Forbidden, Invalid
from hookmill.domain.external_identity import (
    ExternalIdentity,
    ExternalSignIn,
    RoleAssignment,
    SignInAttempt,
    SignInMethod,
)
from hookmill.domain.ids import TeamId
from hookmill.domain.member import Member
from hookmill.domain.name import usable_name
from hookmill.domain.permission import Actor, ActorKind, Channel
from hookmill.domain.secret import SecretValue
from hookmill.management.installation import AccountChange, Change, Installation, random_id
from hookmill.management.members import usable_address
from hookmill.management.sessions import Sessions, begin_session, change_by_member, new_token
from hookmill.store import factories, members, sessions
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import WrongKey

ATTEMPT_SECONDS: Final = 600
"""How long a person has to sign in at the provider."""
_ATTEMPT_CONTEXT: Final = "sign-in attempt"
"""Takes the place of a row's id when attempts are sealed, so that no other sealed value passes as an attempt."""
_USED_STATES_MAX: Final = 10_000
_RANDOM_BYTES: Final = 32
_NAME_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSession:
    """A session that began at the provider."""

    token: SecretValue
    email: str
    unknown_factories: tuple[str, ...]
    """Factories of the settings that do not exist, so that the member got no role in them."""


class PersonRefused(Forbidden):
    """The provider has signed the person in, and the person may not use Hookmill.

    The message is for the person, and `reason` for the operator. `unknown_factories` is like that of `ExternalSession`.
    """

    def __init__(self, message: str, reason: str, unknown_factories: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.unknown_factories = unknown_factories


class ExternalSignIns:
    def __init__(self, installation: Installation, sessions: Sessions) -> None:
        self._installation = installation
        self._sessions = sessions
        self._used_states: dict[str, int] = {}
        """When each state was used, in µs since 1970, oldest first."""
        self._used_states_lock = threading.Lock()

    # Attempts

    def start(self, *, next_path: str = "", link_token: str = "") -> tuple[SignInAttempt, SecretValue]:
        """A new attempt, and its sealed form for the browser's cookie."""
        attempt = SignInAttempt(
            state=secrets.token_urlsafe(_RANDOM_BYTES),
            nonce=secrets.token_urlsafe(_RANDOM_BYTES),
            code_verifier=secrets.token_urlsafe(_RANDOM_BYTES),
            started_at=self._installation.now(),
            next_path=next_path,
            link_token=link_token,
        )
        sealed = self._installation.master_keys.newest.seal(
            SecretValue(json.dumps(dataclasses.asdict(attempt))), _ATTEMPT_CONTEXT
        )
        return attempt, SecretValue(base64.urlsafe_b64encode(sealed).decode())

    def use_attempt(self, sealed: str, state: str) -> SignInAttempt:
        """The attempt of this browser, which the provider has answered with this state. The attempt can be used once.

        Raises `Invalid` if the browser has no such attempt, or if the attempt is too old or was used before.
        """
        attempt = self._open(sealed)
        now = self._installation.now()
        if (
            attempt is None
            or not hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "surrogatepass"))
            # An attempt may have started on a host whose clock is a little ahead, so a future start is valid.
            or now >= attempt.started_at + ATTEMPT_SECONDS * 1_000_000
            or not self._use_state(state, now)
        ):
            raise Invalid("This sign-in was not started in this browser, took too long, or was used before. Try again.")
        return attempt

    def _open(self, sealed: str) -> SignInAttempt | None:
        try:
            opened = self._installation.master_keys.newest.open(
                base64.b64decode(sealed, altchars=b"-_", validate=True), _ATTEMPT_CONTEXT
            )
        except (ValueError, WrongKey):
            return None
        return SignInAttempt(**json.loads(opened.reveal()))

    def _use_state(self, state: str, now: int) -> bool:
        """Whether this process has not seen the state before.

        If another process has seen it, the provider refuses the sign-in: the authorization code works only once, too.
        """
        with self._used_states_lock:
            if state in self._used_states:
                return False
            while self._used_states:
                oldest_state, used_at = next(iter(self._used_states.items()))
                if len(self._used_states) < _USED_STATES_MAX and used_at > now - ATTEMPT_SECONDS * 1_000_000:
                    break
                del self._used_states[oldest_state]
            self._used_states[state] = now
            return True

    # Sign-ins

    def sign_in(self, identity: ExternalIdentity, *, link_token: str = "", client: str | None) -> ExternalSession:
        """A new session of the member with this identity. Adds the member if the groups give a role.

        `link_token`: connects the link's member to the identity first, instead of looking the member up. The member
        then has no password, and all earlier sessions of the member end. `client`: the client's address.

        Raises `PersonRefused` if the person may not sign in, `Conflict` if another member has the address or the
        identity, and `NotFound` for a link that is unknown, used or expired.
        """
        rules = self._installation.config.external_sign_in
        assert rules is not None, "only a provider that the settings name has identities"
        if not rules.allows(identity.groups):
            raise PersonRefused(
                f"{rules.provider_name} signed you in, but you are not in a group that may use Hookmill. Ask the "
                "operator of Hookmill, or an administrator of your groups.",
                "none of the groups is in oidc_allowed_groups",
            )
        token = new_token()
        with self._installation.locking_set_up() as tx:
            team = factories.only_team(tx)
            assert team is not None, "the service starts with a team"
            factories.lock_team(tx, team)
            names = {factory.name for factory in factories.all_factories(tx)}
            wanted = rules.roles_of(identity.groups)
            assignment = dataclasses.replace(
                wanted, roles={name: role for name, role in wanted.roles.items() if name in names}
            )
            unknown_factories = tuple(sorted(wanted.roles.keys() - names))
            if rules.assigns_roles and not assignment:
                raise PersonRefused(
                    f"{rules.provider_name} signed you in, but none of your groups has a role in Hookmill. Ask the "
                    "operator of Hookmill, or an administrator of your groups.",
                    "none of the groups has a role in oidc_roles or oidc_admin_groups",
                    unknown_factories,
                )
            now = self._installation.now()
            by_service = Change(tx, now, AccountChange(actor=_service_actor(rules), team_id=team))
            if link_token:
                member = self._connect(tx, team, identity, link_token, client, now)
            else:
                member = members.by_identity(tx, team, identity.key) or self._add(by_service, team, identity, rules)
            member = _update_profile(by_service, member, identity)
            if rules.assigns_roles:
                _assign_roles(by_service, member, assignment)
            by_member = begin_session(tx, token, member.id, SignInMethod.OIDC, client, now, rules_tag=rules.tag)
            by_member.record("sign_in", "member", member.id, member.email, method=SignInMethod.OIDC.value)
        return ExternalSession(token=token, email=member.email, unknown_factories=unknown_factories)

    def _connect(
        self, tx: Transaction, team: TeamId, identity: ExternalIdentity, link_token: str, client: str | None, now: int
    ) -> Member:
        """Connect the link's member to the identity. Raises like `sign_in`."""
        link = self._sessions.use_link(tx, link_token)
        other = members.by_identity(tx, team, identity.key)
        if other is not None:
            raise Conflict(
                f"Your account at the sign-in service is already connected to the member {other.email}. Nothing was "
                "changed."
            )
        if link.member_id is None:
            raise Conflict("The first admin can't connect an account at a sign-in service. Open the link again.")
        # Sessions of the password could otherwise get the roles of the identity's groups.
        sessions.end_all_of(tx, link.member_id)
        members.set_identity(tx, link.member_id, identity.key)
        change = change_by_member(tx, link.member_id, client, now)
        change.record("connect", "member", link.member_id, change.actor_name, subject=identity.key.subject)
        member = members.by_id(tx, team, link.member_id)
        assert member is not None, "links of removed members are deleted"
        return member

    def _add(self, change: Change, team: TeamId, identity: ExternalIdentity, rules: ExternalSignIn) -> Member:
        """A new member with this identity. Raises `PersonRefused` and `Conflict` like `sign_in`."""
        if not rules.assigns_roles:
            raise PersonRefused(
                f"{rules.provider_name} signed you in, but you are not a member. Ask an admin for a sign-in link, open "
                f"it, and choose {rules.provider_name} there.",
                "no member is connected to the subject",
            )
        email = _address_of(identity)
        if email is None:
            raise PersonRefused(
                f"{rules.provider_name} sent no e-mail address, which a new member needs. Ask the operator of Hookmill "
                "to check oidc_scopes, and the claims that the provider sends.",
                "the provider sent no usable e-mail address",
            )
        if members.by_email(change.tx, team, email) is not None:
            raise Conflict(
                f"A member with the address {email} exists, and is not connected to your account at "
                f"{rules.provider_name}. Ask an admin for a sign-in link, open it, and choose {rules.provider_name} "
                "there."
            )
        member = Member(
            id=random_id("mbr"),
            team_id=team,
            email=email,
            name=_name_of(identity) or email[:_NAME_CHARACTERS_MAX],
            is_admin=False,
            created_at=change.now,
            identity=identity.key,
        )
        members.add(change.tx, member)
        members.set_identity(change.tx, member.id, identity.key)
        change.record("add", "member", member.id, email, subject=identity.key.subject)
        return member


def _update_profile(change: Change, member: Member, identity: ExternalIdentity) -> Member:
    """Store the identity's e-mail address and name, if they have changed. Returns the member as stored.

    An address that another member has is ignored, because addresses are unique.
    """
    email, name = _address_of(identity) or member.email, _name_of(identity) or member.name
    if email != member.email and members.by_email(change.tx, member.team_id, email) is not None:
        email = member.email
    if (email, name) == (member.email, member.name):
        return member
    members.set_email_and_name(change.tx, member.id, email, name)
    change.record("change", "member", member.id, email, before=f"{member.name} ({member.email})")
    return dataclasses.replace(member, email=email, name=name)


def _assign_roles(change: Change, member: Member, assignment: RoleAssignment) -> None:
    """Set the member's roles. The team may lose its last admin: the groups decide, and the operator can add another."""
    if assignment.is_admin != member.is_admin:
        members.set_admin(change.tx, member.id, assignment.is_admin)
        change.record("set_admin", "member", member.id, member.email, is_admin=assignment.is_admin)
    for factory in factories.all_factories(change.tx):
        role = assignment.roles.get(factory.name)
        if role is not member.roles.get(factory.name):
            members.set_role(change.tx, member.id, factory.id, role)
            role_name = role.value if role is not None else None
            change.record("set_role", "member", member.id, member.email, factory=factory.name, role=role_name)


def _address_of(identity: ExternalIdentity) -> str | None:
    """The e-mail address, if it is usable. The address is only a label, because nobody verifies it."""
    with suppress(Invalid):
        return usable_address(identity.email or "")
    return None


def _name_of(identity: ExternalIdentity) -> str | None:
    with suppress(Invalid):
        return usable_name("member", (identity.name or "").strip()[:_NAME_CHARACTERS_MAX])
    return None


def _service_actor(rules: ExternalSignIn) -> Actor:
    return Actor(kind=ActorKind.SERVICE, id="oidc", name=f"groups of {rules.provider_name}", channel=Channel.SERVICE)
