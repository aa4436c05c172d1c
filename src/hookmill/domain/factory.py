"""A factory: what owns webhooks and automations. Several of them are one team's."""

from dataclasses import dataclass

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.webhook import usable_name


@dataclass(frozen=True, slots=True)
class Factory:
    id: FactoryId
    team_id: TeamId
    name: str
    defined_by_files: bool = False
    """Whether its webhooks and automations come from definition files, and change through those alone."""
    max_running: int | None = None
    """The most runs that workers perform at the same time. None: no limit."""


def usable_factory_name(name: str) -> str:
    """`name`, trimmed. Raises `Invalid` for what names nothing, and for what no address can hold."""
    trimmed = usable_name("factory", name)
    # Browsers and many clients take these out of a path before they ask, however they are written.
    if trimmed in {".", ".."}:
        raise Invalid(f"A factory can't be named {trimmed!r}: its name stands in addresses. Choose another name.")
    return trimmed
