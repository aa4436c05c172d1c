"""The settings in force, as the dashboard shows them: what was decided and where, and no value that opens anything."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.settings import RunnerSettings, Settings
from hookmill.web.dashboard.settings import SettingInForce


def effective_settings(settings: Settings) -> Mapping[str, SettingInForce]:
    """Every setting by its name, in the order of their page."""
    return {name: _in_force(settings, name) for name in Settings.model_fields}


def _in_force(settings: Settings, name: str) -> SettingInForce:
    field = Settings.model_fields[name]
    shown = _SHOWN.get(name, _plainly)
    variable = f"HOOKMILL_{name.upper()}"
    origin = "default"
    if variable in os.environ:
        origin = "environment"
    elif name in settings.model_fields_set:
        origin = "file"
    return SettingInForce(
        name=name,
        value=shown(getattr(settings, name)),
        default=shown(field.get_default(call_default_factory=True)),
        meaning=field.description or "",
        variable=variable,
        origin=origin,
    )


def _plainly(value: Any) -> tuple[str, ...]:
    match value:
        case None:
            return ("not set",)
        case bool():
            return ("true" if value else "false",)
        case tuple():
            return tuple(str(each) for each in value) or ("none",)
        case _:
            return (str(value),)


def _secretly(value: object) -> tuple[str, ...]:
    return ("set" if value is not None else "not set",)


def _database(value: Any) -> tuple[str, ...]:
    # Not even the host: where a password holds a slash, no rule says with certainty where it ends.
    if value is None:
        return ("not set",)
    return ("set: SQLite" if value.get_secret_value().startswith("sqlite:") else "set: PostgreSQL",)


def _runners(value: Mapping[str, RunnerSettings]) -> tuple[str, ...]:
    return (
        f"{PACKAGE_RUNNER}: leaves the files",
        *(f"{name}: {_runner(runner)}" for name, runner in sorted(value.items())),
    )


def _runner(runner: RunnerSettings) -> str:
    """Arguments and variables may hold keys to other services, so only their number and names are told."""
    program, *arguments = runner.argv
    said = [program]
    if arguments:
        said.append(f"{len(arguments)} argument{'s' if len(arguments) > 1 else ''}")
    if runner.user is not None:
        said.append(f"as {runner.user}")
    said.append(f"at most {runner.time_limit_seconds} s")
    said.append(f"keeps {runner.output_bytes_max:,} bytes of output")
    names = [*sorted(runner.environment), *runner.pass_environment]
    if names:
        said.append(f"with {', '.join(names)}")
    return ", ".join(said)


_SHOWN: Final[Mapping[str, Callable[[Any], tuple[str, ...]]]] = {
    "database_url": _database,
    "master_key": _secretly,
    "master_key_previous": _secretly,
    "runners": _runners,
}
