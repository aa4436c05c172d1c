"""The kinds of runners. The operator configures runners, and each automation names one."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Discriminator, Tag

from hookmill.runs.runners.agent import AgentSettings
from hookmill.runs.runners.command import CommandRunner, CommandSettings
from hookmill.runs.runners.container import ContainerSettings
from hookmill.runs.runners.http import HttpSettings
from hookmill.runs.runners.kind import RunnerContext, RunnerSettings
from hookmill.runs.runners.package import PackageRunner, PackageSettings

__all__ = [
    "RUNNER_KINDS",
    "AgentSettings",
    "AnyRunnerSettings",
    "CommandRunner",
    "CommandSettings",
    "ContainerSettings",
    "HttpSettings",
    "PackageRunner",
    "PackageSettings",
    "RunnerContext",
    "RunnerSettings",
]

RUNNER_KINDS: Final[Mapping[str, type[RunnerSettings]]] = {
    "agent": AgentSettings,
    "command": CommandSettings,
    "container": ContainerSettings,
    "http": HttpSettings,
    "package": PackageSettings,
}
"""The settings of each kind, by its name."""


def _kind_of(settings: Any) -> str | None:
    kind = settings.get("kind", "command") if isinstance(settings, dict) else getattr(settings, "kind", "command")
    return kind if isinstance(kind, str) else None


AnyRunnerSettings = Annotated[
    Annotated[AgentSettings, Tag("agent")]
    | Annotated[CommandSettings, Tag("command")]
    | Annotated[ContainerSettings, Tag("container")]
    | Annotated[HttpSettings, Tag("http")]
    | Annotated[PackageSettings, Tag("package")],
    Discriminator(
        _kind_of,
        custom_error_type="runner_kind",
        custom_error_message=f"kind must be one of: {', '.join(RUNNER_KINDS)}",
    ),
]
"""The settings of any kind, as pydantic reads them. Without `kind`, a runner is a command."""
