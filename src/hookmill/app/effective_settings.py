"""The effective settings for the dashboard: each value with its origin. Secrets are masked."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import SecretStr

from hookmill.domain.external_identity import GroupRole
from hookmill.results.destinations import AnyDestination
from hookmill.runs.runners import RunnerSettings
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.settings import Settings, own_variables, with_built_in_runners
from hookmill.web.dashboard.effective_setting import EffectiveSetting


def effective_settings(settings: Settings) -> Mapping[str, EffectiveSetting]:
    """Every setting by its name, in the order of `Settings`."""
    return {name: _effective_setting(settings, name) for name in Settings.model_fields}


def _effective_setting(settings: Settings, name: str) -> EffectiveSetting:
    field = Settings.model_fields[name]
    render = _RENDERERS.get(name, _render_plain)
    variable = f"HOOKMILL_{name.upper()}"
    origin = "default"
    if variable in own_variables(os.environ):
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
        case SecretStr():
            return ("set",)
        case tuple():
            return tuple(str(item) for item in value) or ("none",)
        case _:
            return (str(value),)


def _render_database_url(value: Any) -> tuple[str, ...]:
    # The host is masked too: if a password contains a slash, its end can't be determined reliably.
    if value is None:
        return ("not set",)
    return ("set: SQLite" if value.get_secret_value().startswith("sqlite:") else "set: PostgreSQL",)


def _render_runners(value: Mapping[str, RunnerSettings]) -> tuple[str, ...]:
    return tuple(f"{name}: {runner.summary()}" for name, runner in with_built_in_runners(value).items())


def _render_summaries(value: Mapping[str, RepositorySettings | AnyDestination]) -> tuple[str, ...]:
    return tuple(f"{name}: {each.summary()}" for name, each in sorted(value.items())) or ("none",)


def _render_roles(value: Mapping[str, tuple[GroupRole, ...]]) -> tuple[str, ...]:
    return tuple(
        f"{group}: {', '.join(f'{granted.role}@{granted.factory}' for granted in roles)}"
        for group, roles in sorted(value.items())
    ) or ("none",)


_RENDERERS: Final[Mapping[str, Callable[[Any], tuple[str, ...]]]] = {
    "database_url": _render_database_url,
    "destinations": _render_summaries,
    "oidc_roles": _render_roles,
    "repositories": _render_summaries,
    "runners": _render_runners,
}
