"""A member of the team, with the member's roles in its factories."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
