"""A factory: what owns webhooks and automations. Several of them are one team's."""

from dataclasses import dataclass

from hookmill.domain.ids import FactoryId, TeamId


@dataclass(frozen=True, slots=True)
class Factory:
    id: FactoryId
    team_id: TeamId
    name: str
    defined_by_files: bool = False
    """Whether its webhooks and automations come from definition files, and change through those alone."""
