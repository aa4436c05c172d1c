"""Every setting, on one page: its name, its default, what it means.

A setting comes from `HOOKMILL_<NAME>` in the environment, else from `hookmill.toml` (or the file that
`HOOKMILL_CONFIG` names), else from the default here. Nothing else in the project reads either.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from hookmill.domain import limits
from hookmill.domain.errors import Invalid
from hookmill.domain.run import PACKAGE_RUNNER

CONFIG_FILE: Final = "hookmill.toml"
_NO_SETTINGS: Final = {
    "HOOKMILL_CONFIG",
    # What a run's command is given, which may call the command line.
    "HOOKMILL_RUN_ID",
    "HOOKMILL_ATTEMPT",
    "HOOKMILL_DELIVERY_ID",
    "HOOKMILL_WEBHOOK",
    "HOOKMILL_AUTOMATION",
    "HOOKMILL_PROMPT_FILE",
    "HOOKMILL_ENVELOPE_FILE",
    "HOOKMILL_PAYLOAD_FILE",
}


class RunnerSettings(BaseModel):
    """A command that performs runs. It starts in the run's package directory; no shell is involved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: tuple[str, ...] = Field(min_length=1, description="The program and its arguments.")
    time_limit_seconds: int = Field(
        default=3600, ge=1, le=7 * 86_400, description="After this the whole process group is ended."
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Variables to add to the command's environment."
    )
    pass_environment: tuple[str, ...] = Field(
        default=(), description="Names of the service's own variables to hand on."
    )
    output_bytes_max: int = Field(
        default=1_048_576, ge=1_024, description="How much output is kept; the rest is counted."
    )
    user: Annotated[int, Field(ge=0, strict=True)] | str | None = Field(
        default=None,
        description="The account that the command runs as, by name or number. Another one needs a service that is "
        "root. Unset: the service's own.",
    )

    @field_validator("argv", "environment", "pass_environment")
    @classmethod
    def _can_be_passed(cls, given: Any) -> Any:
        values = given.values() if isinstance(given, dict) else ()
        if any("\0" in text for text in (*given, *values)):
            raise ValueError("must not hold a NUL character")
        if isinstance(given, dict) and any(not name or "=" in name for name in given):
            raise ValueError("must name variables without =, and not with an empty name")
        return given


class Settings(BaseSettings):
    """What an operator may decide. Frozen, and complete: a `Settings` that exists is a valid one."""

    model_config = SettingsConfigDict(
        env_prefix="HOOKMILL_", extra="ignore", frozen=True, env_nested_delimiter=None, hide_input_in_errors=True
    )

    data_dir: Path = Field(
        default=Path("hookmill-data"), description="Where the database, the master key and the runs' packages live."
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="postgresql://USER:PASSWORD@HOST/NAME for several processes. Unset: SQLite in the data directory.",
    )
    host: str = Field(default="127.0.0.1", description="The IP address to listen on.")
    port: int = Field(default=8420, ge=1, le=65_535, description="The port to listen on.")
    base_url: str | None = Field(
        default=None,
        description="How senders reach this service, such as https://hooks.example.com. Unset: host and port.",
    )
    processes: int = Field(default=1, ge=1, le=64, description="Ingress processes. More than one needs PostgreSQL.")
    deliveries_per_minute: int = Field(
        default=limits.DELIVERIES_PER_MINUTE,
        ge=1,
        le=100_000,
        description="Deliveries a webhook takes in any 60 seconds.",
    )
    failed_authentications_per_minute: int = Field(
        default=limits.FAILED_AUTHENTICATIONS_PER_MINUTE,
        ge=1,
        le=100_000,
        description="Failed authentications a webhook logs in any 60 seconds; more are counted and answered 429.",
    )
    webhooks_per_factory: int = Field(
        default=limits.WEBHOOKS_PER_FACTORY,
        ge=1,
        le=100_000,
        description="Webhooks a factory may have, deleted ones aside.",
    )
    performs_runs: bool = Field(
        default=True, description="Whether `serve` performs runs itself. Set false where `hookmill worker` does."
    )
    runs_at_once: int = Field(default=4, ge=1, le=1_000, description="Runs that one process performs at the same time.")
    run_attempts_max: int = Field(
        default=3, ge=1, le=100, description="Attempts at a run whose worker died, before it counts as interrupted."
    )
    default_runner: str = Field(default=PACKAGE_RUNNER, description="The runner of an automation that names none.")
    runners: dict[str, RunnerSettings] = Field(
        default_factory=dict,
        description="Commands that perform runs, by name. `package` is always there: it leaves the files.",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Networks whose X-Forwarded-For is believed, such as 10.0.0.0/8, for logs and rate limits.",
    )
    master_key: SecretStr | None = Field(
        default=None,
        description="The key that seals secrets: 32 bytes in base64. Unset: master.key in the data directory.",
    )
    master_key_previous: SecretStr | None = Field(
        default=None,
        description="Beside `master_key`, while it is rotated: the key before it. Several are separated by commas.",
    )
    free_space_min_mb: int = Field(
        default=256,
        ge=0,
        description="Below this much free disk, deliveries are answered 503 instead of risking the log.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="How much is logged.")

    @field_validator("data_dir")
    @classmethod
    def _is_data_directory(cls, given: Path) -> Path:
        if given == Path() or given.absolute() == Path("/"):
            raise ValueError("must name a directory of the service's own, such as /var/lib/hookmill")
        return given

    @field_validator("host")
    @classmethod
    def _is_ip_address(cls, given: str) -> str:
        try:
            ip_address(given)
        except ValueError:
            raise ValueError("must be an IP address, such as 127.0.0.1, or 0.0.0.0 for every interface") from None
        return given

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split_networks(cls, given: Any) -> Any:
        if isinstance(given, str):
            return tuple(part.strip() for part in given.split(",") if part.strip())
        return given

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for network in given:
            ip_network(network)
        return given

    @field_validator("base_url")
    @classmethod
    def _is_web_address(cls, given: str | None) -> str | None:
        if given is None:
            return None
        parts = urlsplit(given)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must be an http or https address without a query, such as https://hooks.example.com")
        return given.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _is_database(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and not given.get_secret_value().startswith(
            ("postgresql://", "postgres://", "sqlite:///")
        ):
            raise ValueError("must start with postgresql:// or sqlite:///")
        return given

    @field_validator("runners")
    @classmethod
    def _have_usable_names(cls, given: dict[str, RunnerSettings]) -> dict[str, RunnerSettings]:
        for name in given:
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", name) or name == PACKAGE_RUNNER:
                raise ValueError(
                    f"{name!r} can't name a runner: use lower-case letters, digits, - and _, and not 'package'"
                )
        return given

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        problems = []
        if self.processes > 1 and not self.on_postgres:
            problems.append("processes: more than one needs PostgreSQL; set database_url")
        if self.default_runner != PACKAGE_RUNNER and self.default_runner not in self.runners:
            known = ", ".join([PACKAGE_RUNNER, *sorted(self.runners)])
            problems.append(f"default_runner: no runner is named {self.default_runner!r}; known: {known}")
        if self.master_key_previous is not None and self.master_key is None:
            problems.append("master_key_previous: it needs master_key beside it")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @property
    def on_postgres(self) -> bool:
        return self.database_url is not None and not self.database_url.get_secret_value().startswith("sqlite:")

    def store_url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{(self.data_dir / 'hookmill.db').absolute()}"

    def public_url(self) -> str:
        """How senders reach the service. Never taken from a request: a Host header is the sender's claim."""
        if self.base_url is not None:
            return self.base_url
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}"

    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(ip_network(network) for network in self.trusted_proxies)

    def runner_names(self) -> tuple[str, ...]:
        return (PACKAGE_RUNNER, *sorted(self.runners))


def read_settings() -> Settings:
    """The settings in force. Raises `Invalid` that lists every problem at once, without repeating a value."""
    environment = os.environ
    named = environment.get("HOOKMILL_CONFIG")
    path = Path(named or CONFIG_FILE)
    problems: list[str] = []
    written: dict[str, Any] = {}
    # A link to nothing, or a directory that a container made in a missing file's place, is there, too.
    if named or os.path.lexists(path):
        try:
            written = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            problems.append(f"{'HOOKMILL_CONFIG' if named else path}: there is no file {path.absolute()}")
        except OSError as error:
            problems.append(f"{path}: can't be read: {error.strerror}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            problems.append(f"{path}: not valid TOML: {error}")
    problems += [
        f"{name}: not valid UTF-8"
        for name, value in sorted(environment.items())
        if name.startswith("HOOKMILL_") and not _is_text(value)
    ]
    known = set(Settings.model_fields)
    problems += [f"{path}: unknown setting {name!r}" for name in written if name not in known]
    problems += [
        f"{name}: unknown setting"
        for name in sorted(environment)
        if name.startswith("HOOKMILL_")
        and name.removeprefix("HOOKMILL_").lower() not in known
        and not name.startswith(("HOOKMILL_TEST_", "HOOKMILL_BENCH_"))
        and name not in _NO_SETTINGS
    ]
    settings: Settings | None = None
    try:
        settings = Settings(**{name: value for name, value in written.items() if name in known})
    except ValidationError as error:
        problems += [_problem(found, path, environment) for found in error.errors(include_input=False)]
    except json.JSONDecodeError as error:
        problems.append(f"HOOKMILL_RUNNERS: not valid JSON: {error}")
    if problems or settings is None:
        raise Invalid("The settings can't be used:\n" + "\n".join(f"  {problem}" for problem in problems))
    return settings


def _is_text(value: str) -> bool:
    """Whether a variable of the environment was UTF-8. What was not holds surrogates in the place of its bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(found: Mapping[str, Any], path: Path, environment: Mapping[str, str]) -> str:
    place = ".".join(str(part) for part in found["loc"])
    message = str(found["msg"]).removeprefix("Value error, ")
    if not place:
        return message
    variable = f"HOOKMILL_{str(found['loc'][0]).upper()}"
    return f"{variable if variable in environment else f'{path}: {place}'}: {message}"
