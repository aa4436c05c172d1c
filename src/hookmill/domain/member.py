"""A member of the team, with the member's roles in its factories."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hookmill.domain.external_identity import IdentityKey, SignInMethod
from hookmill.domain.ids import TeamId
from hookmill.domain.permission import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    id: str
    team_id: TeamId
    email: str
    name: str
    is_admin: bool
    created_at: int
    """In µs since 1970."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Roles by the factory's name. An admin needs none."""
    has_password: bool = False
    identity: IdentityKey | None = None
    """The member's identity at an OpenID Connect provider. A member with an identity has no password."""

    @property
    def sign_in_method(self) -> SignInMethod | None:
        """How the member signs in; None before the member has chosen a password."""
        if self.identity is not None:
            return SignInMethod.OIDC
        return SignInMethod.PASSWORD if self.has_password else None
