"""Identities at an OpenID Connect provider, and how the groups there decide who may sign in, and with which roles."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from hookmill.domain.permission import Role

GROUPS_MAX: Final = 2_000
"""How many groups of one identity are considered."""
GROUP_CHARACTERS_MAX: Final = 512
_ORDERED_ROLES: Final = (Role.VIEWER, Role.MANAGER)
"""The roles in a factory, the lowest first."""


class SignInMethod(StrEnum):
    """How a session began."""

    PASSWORD = "password"
    LINK = "link"
    """A one-time link, without a password."""
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class IdentityKey:
    """The key of a person at a provider. A provider never gives the subject of one person to another."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalIdentity:
    """A person as the provider describes them at a sign-in.

    Only `key` identifies the person. The provider or the person may change the other fields at any time.
    """

    key: IdentityKey
    email: str | None
    name: str | None
    groups: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInAttempt:
    """A sign-in that a browser has started at the provider. The browser keeps it in a sealed cookie."""

    state: str
    """Binds the provider's answer to the browser."""
    nonce: str
    """Binds the ID token to the attempt."""
    code_verifier: str
    """Binds the authorization code to the attempt (PKCE)."""
    started_at: int
    """In µs since 1970."""
    next_path: str = ""
    """The page to open after the sign-in. Not verified."""
    link_token: str = ""
    """The token of the sign-in link whose member connects the identity. Empty: a usual sign-in."""


@dataclass(frozen=True, slots=True)
class GroupRole:
    """A role in one factory, which members of a provider's group get."""

    role: Role
    factory: str
    """The factory's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAssignment:
    """The roles of a member: admin of the team, and roles by the factory's name."""

    is_admin: bool
    roles: Mapping[str, Role]

    def __bool__(self) -> bool:
        return self.is_admin or bool(self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSignIn:
    """The operator's rules for signing in through a provider.

    If no group is mapped to a role, roles are assigned by hand.
    """

    issuer: str
    provider_name: str
    """The name for people, such as `Keycloak`."""
    session_hours: int
    """A session that began at the provider ends after this time."""
    admin_groups: frozenset[str] = frozenset()
    """The groups whose members are admins of the team."""
    roles_by_group: Mapping[str, tuple[GroupRole, ...]] = field(default_factory=dict)
    allowed_groups: frozenset[str] = frozenset()
    """The groups whose members may sign in. Empty: everyone who has a role."""

    @property
    def assigns_roles(self) -> bool:
        """Whether the groups decide the roles of members who sign in through the provider."""
        return bool(self.admin_groups or self.roles_by_group)

    def is_issuer_of(self, identity: IdentityKey | None) -> bool:
        return identity is not None and identity.issuer == self.issuer

    def assigns_roles_of(self, identity: IdentityKey | None) -> bool:
        """Whether the groups decide the roles of the member with this identity."""
        return self.assigns_roles and self.is_issuer_of(identity)

    def allows(self, groups: Collection[str]) -> bool:
        return not self.allowed_groups or not self.allowed_groups.isdisjoint(groups)

    def roles_of(self, groups: Collection[str]) -> RoleAssignment:
        """The roles of a member of these groups. Of several roles in a factory, the highest counts."""
        roles: dict[str, Role] = {}
        for group in groups:
            for granted in self.roles_by_group.get(group, ()):
                roles[granted.factory] = max(
                    granted.role, roles.get(granted.factory, Role.VIEWER), key=_ORDERED_ROLES.index
                )
        return RoleAssignment(is_admin=not self.admin_groups.isdisjoint(groups), roles=roles)

    @property
    def tag(self) -> bytes:
        """A digest of the rules that decide who may sign in, and with which roles.

        A session ends if its tag differs, so that a change of the rules applies immediately.
        """
        rules = {
            "issuer": self.issuer,
            "admin_groups": sorted(self.admin_groups),
            "allowed_groups": sorted(self.allowed_groups),
            "roles": {
                group: sorted([granted.role.value, granted.factory] for granted in roles)
                for group, roles in self.roles_by_group.items()
            },
        }
        return sha256(json.dumps(rules, sort_keys=True).encode()).digest()


def usable_groups(claim: object) -> frozenset[str]:
    """The groups in the value of a claim: a text is one group, and in a list each text is one.

    Ignores other values, groups that are too long, and groups after the first `GROUPS_MAX`.
    """
    values: Iterable[object] = claim if isinstance(claim, list) else [claim]
    groups = [value for value in values if isinstance(value, str) and 0 < len(value) <= GROUP_CHARACTERS_MAX]
    return frozenset(groups[:GROUPS_MAX])
