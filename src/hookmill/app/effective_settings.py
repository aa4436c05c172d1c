"""The effective settings for the dashboard: each value with its origin. Secrets are masked."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.settings import RunnerSettings, Settings
from hookmill.web.dashboard.settings import EffectiveSetting


def effective_settings(settings: Settings) -> Mapping[str, EffectiveSetting]:
    """Every setting by its name, in the order of `Settings`."""
    return {name: _effective_setting(settings, name) for name in Settings.model_fields}


def _effective_setting(settings: Settings, name: str) -> EffectiveSetting:
    field = Settings.model_fields[name]
    render = _RENDERERS.get(name, _render_plain)
    variable = f"HOOKMILL_{name.upper()}"
    origin = "default"
    if variable in os.environ:
        origin = "environment"
    elif name in settings.model_fields_set:
        origin = "file"
    return EffectiveSetting(
        name=name,
        value=render(getattr(settings, name)),
        default=render(field.get_default(call_default_factory=True)),
        meaning=field.description or "",
        variable=variable,
        origin=origin,
    )


def _render_plain(value: Any) -> tuple[str, ...]:
    match value:
        case None:
            return ("not set",)
        case bool():
            return ("true" if value else "false",)
        case tuple():
            return tuple(str(item) for item in value) or ("none",)
        case _:
            return (str(value),)


def _render_secret(value: object) -> tuple[str, ...]:
    return ("set" if value is not None else "not set",)


def _render_database_url(value: Any) -> tuple[str, ...]:
    # The host is masked too: if a password contains a slash, its end can't be determined reliably.
    if value is None:
        return ("not set",)
    return ("set: SQLite" if value.get_secret_value().startswith("sqlite:") else "set: PostgreSQL",)


def _render_runners(value: Mapping[str, RunnerSettings]) -> tuple[str, ...]:
    return (
        f"{PACKAGE_RUNNER}: only writes the run's files",
        *(f"{name}: {_render_runner(runner)}" for name, runner in sorted(value.items())),
    )


def _render_runner(runner: RunnerSettings) -> str:
    """One line. Arguments are only counted, and variables only named, because their values may be credentials."""
    program, *arguments = runner.argv
    parts = [program]
    if arguments:
        parts.append(f"{len(arguments)} argument{'s' if len(arguments) > 1 else ''}")
    if runner.user is not None:
        parts.append(f"as {runner.user}")
    parts.append(f"at most {runner.time_limit_seconds} s")
    parts.append(f"keeps {runner.output_bytes_max:,} bytes of output")
    variable_names = [*sorted(runner.environment), *runner.pass_environment]
    if variable_names:
        parts.append(f"with {', '.join(variable_names)}")
    return ", ".join(parts)


_RENDERERS: Final[Mapping[str, Callable[[Any], tuple[str, ...]]]] = {
    "database_url": _render_database_url,
    "master_key": _render_secret,
    "master_key_previous": _render_secret,
    "metrics_token": _render_secret,
    "otlp_headers": _render_secret,
    "runners": _render_runners,
    "s3_access_key_id": _render_secret,
    "s3_secret_access_key": _render_secret,
}
