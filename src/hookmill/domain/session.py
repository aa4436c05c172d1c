"""Sign-in: sessions, sign-in links, and accounts with a password. Times are µs since 1970."""

from dataclasses import dataclass

from hookmill.domain.external_identity import IdentityKey, SignInMethod
from hookmill.domain.ids import TeamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The sign-in of a member with one browser. `last_seen_at` is the time of the last visit."""

    member_id: str
    created_at: int
    last_seen_at: int
    method: SignInMethod
    rules_tag: bytes | None
    """The tag of the `ExternalSignIn` by which the session began. None for other methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    team_id: TeamId
    member_id: str | None
    """None for the first admin, who is not a member yet."""
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A member with what the member signs in with.

    `password_hash` and `identity` are None if the member has no password, or no identity at a provider.
    """

    member_id: str
    team_id: TeamId
    email: str
    name: str
    is_admin: bool
    password_hash: str | None
    identity: IdentityKey | None
