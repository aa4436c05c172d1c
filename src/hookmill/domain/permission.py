"""Roles and permissions. A permission is a value that an operation requires as an argument.

A viewer can view one factory, a manager can also change it, and an admin can do everything in the team. If a caller
has no permission to view a resource, the error is `NotFound`. If the caller may view it but has no permission to
change it, the error is `Forbidden`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hookmill.domain.errors import Forbidden, Invalid, NotFound
from hookmill.domain.factory import Factory
from hookmill.domain.ids import FactoryId, TeamId


class Role(StrEnum):
    VIEWER = "viewer"
    MANAGER = "manager"
    ADMIN = "admin"


class Channel(StrEnum):
    """The interface through which a caller performs an operation."""

    CLI = "cli"
    API = "api"
    MCP = "mcp"
    FILES = "files"
    DASHBOARD = "dashboard"
    SERVICE = "service"
    """The service itself performed the operation."""


class ActorKind(StrEnum):
    OPERATOR = "operator"
    """Anyone who can open the data directory or the database, and has the master key."""
    KEY = "key"
    MEMBER = "member"
    SERVICE = "service"
    """The service itself, which applies a policy or the operator's rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The author of an operation, for the audit log. `client` is the client IP."""

    kind: ActorKind
    id: str
    name: str
    channel: Channel
    client: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MayView:
    """Permission to view one factory."""

    actor: Actor
    factory: Factory


@dataclass(frozen=True, slots=True, kw_only=True)
class MayManage(MayView):
    """Permission to view and change one factory."""

    is_admin: bool
    """Whether the caller is an admin of the team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MayAdminister:
    """Permission to change everything in the team: its factories, members, API keys and secrets."""

    actor: Actor
    team_id: TeamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. `roles` has the roles by factory; an admin needs none."""

    actor: Actor
    team_id: TeamId
    is_admin: bool
    roles: Mapping[FactoryId, Role]

    def may_know_of(self, factory: Factory) -> bool:
        """Whether the caller may view the factory, and so know that it exists."""
        return factory.team_id == self.team_id and (self.is_admin or factory.id in self.roles)

    def permission_to_view(self, factory: Factory | None, factory_name: str) -> MayView:
        """Permission to view the factory.

        Raises `NotFound`, with the same text for an unknown factory and for a factory of which the caller may not know.
        """
        if factory is None or not self.may_know_of(factory):
            raise NotFound(f"There is no factory {factory_name[:100]!r}.")
        return MayView(actor=self.actor, factory=factory)

    def permission_to_manage(self, factory: Factory | None, factory_name: str) -> MayManage:
        """Permission to change the factory.

        Raises `NotFound` like `permission_to_view`, and `Forbidden` for a viewer.
        """
        may_view = self.permission_to_view(factory, factory_name)
        if not self.is_admin and self.roles[may_view.factory.id] is Role.VIEWER:
            raise Forbidden(
                f"This requires the role manager in factory {may_view.factory.name!r}. Ask an admin of the team for it."
            )
        return MayManage(actor=self.actor, factory=may_view.factory, is_admin=self.is_admin)

    def permission_to_administer(self) -> MayAdminister:
        """Permission for the whole team. Raises `Forbidden` unless the caller is an admin."""
        if not self.is_admin:
            raise Forbidden("This requires the role admin of the team.")
        return MayAdminister(actor=self.actor, team_id=self.team_id)


def role_named(name: str) -> Role:
    """The role with this name. If there is none, raises `Invalid` with a list of the roles."""
    try:
        return Role(name)
    except ValueError:
        roles = ", ".join(role.value for role in Role)
        raise Invalid(f"There is no role {name[:40]!r}. Roles are: {roles}.", pointer="/role") from None
