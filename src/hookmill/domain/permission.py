"""Who may do what. A permission is a value: whoever has none can't call the operation that asks for it.

A viewer looks at one factory, a manager changes it too, an admin does everything in the team. What a caller may not
even look at is not there for them; what they may look at and not change is refused.
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
    """How somebody reached the service."""

    CLI = "cli"
    API = "api"
    FILES = "files"
    DASHBOARD = "dashboard"
    SERVICE = "service"
    """The service did it by itself."""


class ActorKind(StrEnum):
    OPERATOR = "operator"
    """Whoever can open the data directory or the database, and has the master key."""
    KEY = "key"
    MEMBER = "member"
    SERVICE = "service"
    """The service, when a policy makes it act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts, as the audit log says it. `client` is the address they came from."""

    kind: ActorKind
    id: str
    name: str
    channel: Channel
    client: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MayView:
    """Permission to look at one factory."""

    actor: Actor
    factory: Factory


@dataclass(frozen=True, slots=True, kw_only=True)
class MayManage(MayView):
    """Permission to look at one factory and to change it."""

    is_admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MayAdminister:
    """Permission over the team: its factories, members, keys and every secret."""

    actor: Actor
    team_id: TeamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who has proven who they are, and the roles that they hold."""

    actor: Actor
    team_id: TeamId
    is_admin: bool
    roles: Mapping[FactoryId, Role]

    def may_know_of(self, factory: Factory) -> bool:
        return factory.team_id == self.team_id and (self.is_admin or factory.id in self.roles)

    def to_view(self, factory: Factory | None, named: str) -> MayView:
        """Raises `NotFound` for a factory that isn't there, and in the same words for one that isn't theirs."""
        if factory is None or not self.may_know_of(factory):
            raise NotFound(f"There is no factory {named[:100]!r}.")
        return MayView(actor=self.actor, factory=factory)

    def to_manage(self, factory: Factory | None, named: str) -> MayManage:
        """Raises `NotFound` as `to_view`, and `Forbidden` for a viewer."""
        viewing = self.to_view(factory, named)
        if not self.is_admin and self.roles[viewing.factory.id] is Role.VIEWER:
            raise Forbidden(
                f"This takes the role manager in factory {viewing.factory.name!r}. Ask an admin of the team for it."
            )
        return MayManage(actor=self.actor, factory=viewing.factory, is_admin=self.is_admin)

    def to_administer(self) -> MayAdminister:
        """Raises `Forbidden` unless they are an admin."""
        if not self.is_admin:
            raise Forbidden("This takes the role admin, over the whole team.")
        return MayAdminister(actor=self.actor, team_id=self.team_id)


def role_named(name: str) -> Role:
    """Raises `Invalid` that lists the roles."""
    try:
        return Role(name)
    except ValueError:
        known = ", ".join(role.value for role in Role)
        raise Invalid(f"There is no role {name[:40]!r}. Roles are: {known}.", pointer="/role") from None
