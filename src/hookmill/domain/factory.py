"""A factory owns webhooks and automations. A team has one or more factories."""

import shlex
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.name import usable_name

DEFAULT_FACTORY: Final = "default"
"""The factory that commands use without the option `--factory`."""


@dataclass(frozen=True, slots=True)
class Factory:
    id: FactoryId
    team_id: TeamId
    name: str
    defined_by_files: bool = False
    """Whether definition files define its webhooks and automations. Then only the files can change them."""
    max_running: int | None = None
    """The maximum number of runs that workers perform at the same time. None: no limit."""

    @property
    def command_option(self) -> str:
        """The option that makes a command use this factory, with a space before it. Empty for the default factory."""
        return "" if self.name == DEFAULT_FACTORY else f" --factory {shlex.quote(self.name)}"


def usable_factory_name(name: str) -> str:
    """`name`, trimmed. Raises `Invalid` if it is not a valid name, or if it can't be part of a URL's path."""
    trimmed = usable_name("factory", name)
    # Browsers and many clients remove these from the path of a URL, even if they are percent-encoded.
    if trimmed in {".", ".."}:
        raise Invalid(f"A factory can't be named {trimmed!r}: its name is part of URLs. Choose another name.")
    return trimmed
