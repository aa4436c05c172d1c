"""An API key, with which a program uses the HTTP API."""

from dataclasses import dataclass

from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.permission import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its token. Times are µs since 1970."""

    id: str
    team_id: TeamId
    factory_id: FactoryId | None
    """None for an admin's key, which is for the whole team."""
    factory_name: str | None
    role: Role
    name: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    """Precise to the minute."""

    def is_valid(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
