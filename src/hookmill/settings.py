"""Every setting with its name, default and meaning.

A setting comes from `HOOKMILL_<NAME>` in the environment, else from `hookmill.toml` (or the file that
`HOOKMILL_CONFIG` names), else from the default here. Only `runners`, `repositories` and `oidc_roles` are merged from
both: if both set the same key, the environment overrides the file. No other module reads the file, or decides which
value a setting has.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from hookmill.domain import limits
from hookmill.domain.alarm import RATE_LIMIT_WINDOW_MINUTES, AlarmThresholds
from hookmill.domain.alarm_destination import usable_email
from hookmill.domain.errors import Invalid
from hookmill.domain.external_identity import GroupRole
from hookmill.domain.limits import SESSION_HOURS
from hookmill.domain.networks import is_loopback
from hookmill.domain.permission import Role
from hookmill.domain.results import DESTINATION_PATTERN, DestinationRules
from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.domain.run_files import (
    STORED_FILE_BYTES_MAX,
    STORED_FILES_MAX,
    STORED_RUN_BYTES_MAX,
    RunFileLimits,
)
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.domain.text import trimmed_text
from hookmill.domain.workspace import is_repository_name
from hookmill.outbound.http_url import http_url_parts, is_host_name
from hookmill.results.destinations import AnyDestination
from hookmill.runs.runners import AnyRunnerSettings, PackageSettings, RunnerSettings
from hookmill.runs.runners.run_variables import RunVariable
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.sandbox.reserve import HostReserve
from hookmill.settings_problems import describe_problem, suggestion
from hookmill.store.database import sqlite_path, sqlite_url

CONFIG_FILE: Final = "hookmill.toml"
_VARIABLES_OTHER_THAN_SETTINGS: Final = frozenset(
    {"HOOKMILL_CONFIG", "HOOKMILL_SERVER", "HOOKMILL_API_KEY", *RunVariable}
)


_LINK_NAME: Final = re.compile(
    r"HOOKMILL(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://\S+:[0-9]+")
"""With `_LINK_NAME`, the variables that Kubernetes sets for a Service, such as HOOKMILL_PORT=tcp://10.0.0.1:8420."""
_OTLP_HEADERS: Final = re.compile(r"[\w-]+=[!-+\--~]*(,[\w-]+=[!-+\--~]*)*", re.ASCII)
"""Names and values of headers. A value has visible ASCII characters except the comma."""
_HEADER_VALUE: Final = re.compile("[ -~]*")
ALARM_THRESHOLDS: Final = AlarmThresholds()
"""The defaults of the settings of alarms."""
BUILT_IN_RUNNERS: Final[Mapping[str, RunnerSettings]] = {PACKAGE_RUNNER: PackageSettings()}
"""The runners that every installation has, by name."""


def with_built_in_runners(runners: Mapping[str, RunnerSettings]) -> Mapping[str, RunnerSettings]:
    """The built-in runners, then these by name."""
    return {**BUILT_IN_RUNNERS, **dict(sorted(runners.items()))}


def _parse_factory_roles(value: Any) -> Any:
    """The roles that a group gives: a text such as `manager@default`, or a list of such texts."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("must be a role and a factory, such as manager@default, or a list of these")
    roles = []
    for text in texts:
        role, _, factory = text.partition("@")
        if role not in {Role.VIEWER, Role.MANAGER} or not factory:
            raise ValueError(f"{text[:100]!r} is not viewer@FACTORY or manager@FACTORY")
        roles.append(GroupRole(Role(role), factory))
    return tuple(roles)


GroupRoles = Annotated[tuple[GroupRole, ...], BeforeValidator(_parse_factory_roles)]


class Settings(BaseSettings):
    """The settings of an operator. Frozen; every instance is valid."""

    model_config = SettingsConfigDict(
        env_prefix="HOOKMILL_", extra="ignore", frozen=True, env_nested_delimiter=None, hide_input_in_errors=True
    )

    data_dir: Path = Field(
        default=Path("hookmill-data"), description="The directory of the database, the master key and runs' packages."
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
        description="Authenticated deliveries that a webhook logs in any 60 seconds, also duplicates and invalid ones.",
    )
    failed_authentications_per_minute: int = Field(
        default=limits.FAILED_AUTHENTICATIONS_PER_MINUTE,
        ge=1,
        le=100_000,
        description=(
            "Failed authentications that a webhook logs in any 60 seconds. Further ones get a 429 and are only counted."
        ),
    )
    webhooks_per_factory: int = Field(
        default=limits.WEBHOOKS_PER_FACTORY,
        ge=1,
        le=100_000,
        description="Webhooks that a factory may have. Deleted ones don't count.",
    )
    performs_runs: bool = Field(
        default=True,
        description="Whether `serve` performs runs itself. Set it to false where `hookmill worker` does this.",
    )
    runs_at_once: int = Field(default=4, ge=1, le=1_000, description="Runs that one worker performs at the same time.")
    run_attempts_max: int = Field(
        default=3,
        ge=1,
        le=100,
        description="After this many attempts in which its worker died, or its host had a fault, a run ends as "
        "`interrupted`. Attempts that failed, or that an ordinary stop of the service ended, don't count.",
    )
    default_runner: str = Field(
        default=PACKAGE_RUNNER, description="The runner of automations that don't name a runner."
    )
    runners: dict[str, AnyRunnerSettings] = Field(
        default_factory=dict,
        description="The operator's runners, by name. `package` always exists: it only writes the run's files.",
    )
    repositories: dict[str, RepositorySettings] = Field(
        default_factory=dict,
        description="The Git repositories that automations may name for the workspaces of their runs, by name.",
    )
    destinations: dict[str, AnyDestination] = Field(
        default_factory=dict, description="The destinations of the results of runs, by name."
    )
    results_ca_file: Path | None = Field(
        default=None,
        description="A PEM file with certificate authorities to trust for these destinations, in addition to the "
        "system's.",
    )
    run_files: Literal["local", "database", "s3"] | None = Field(
        default=None,
        description="Where the files of runs are stored: in the `database` or an object store (`s3`), so that every "
        "host can show them, or only on the worker's host (`local`). Unset: `database` with PostgreSQL, else `local`.",
    )
    run_file_bytes_max: int = Field(
        default=STORED_FILE_BYTES_MAX,
        ge=0,
        le=16_777_216,
        description="The largest file of a run that is stored in the database.",
    )
    run_files_bytes_max: int = Field(
        default=STORED_RUN_BYTES_MAX,
        ge=0,
        le=67_108_864,
        description="How many bytes of one run's files are stored in the database.",
    )
    run_files_max: int = Field(
        default=STORED_FILES_MAX,
        ge=0,
        le=1_000,
        description="How many files of one run are stored in the database or the object store.",
    )
    s3_bucket: str | None = Field(
        default=None,
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$",
        description="The bucket of the object store for files of runs.",
    )
    s3_endpoint_url: str | None = Field(
        default=None,
        description="The URL of an S3-compatible object store, such as https://s3.example.com. Unset: AWS.",
    )
    s3_region: str = Field(
        default="us-east-1", pattern="^[A-Za-z0-9._-]{1,64}$", description="The region of the bucket."
    )
    s3_access_key_id: SecretStr | None = Field(default=None, description="The id of the access key.")
    s3_secret_access_key: SecretStr | None = Field(default=None, description="The secret of the access key.")
    s3_prefix: str = Field(
        default="hookmill", max_length=200, description="The beginning of all object keys, such as runs/production."
    )
    s3_path_style: bool = Field(
        default=True,
        description="Whether the bucket is in the URL's path. If false, it is the first part of the host's name.",
    )
    s3_ca_file: Path | None = Field(
        default=None, description="A PEM file with certificate authorities to trust in addition to the system's."
    )
    s3_allow_http: bool = Field(
        default=False, description="Whether `s3_endpoint_url` may begin with http://, so that files are not encrypted."
    )
    s3_file_bytes_max: int = Field(
        default=67_108_864,
        ge=0,
        le=268_435_456,
        description="The largest file of a run that is stored in the object store. An upload needs as much memory.",
    )
    s3_run_bytes_max: int = Field(
        default=268_435_456,
        ge=0,
        le=1_099_511_627_776,
        description="How many bytes of one run's files are stored in the object store.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        max_length=500,
        description="The issuer URL of an OpenID Connect provider, such as https://id.example.com/realms/main. Unset: "
        "members sign in with passwords.",
    )
    oidc_client_id: str | None = Field(
        default=None, min_length=1, max_length=500, description="The id of the client for Hookmill at the provider."
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="The secret of this client. Unset: a public client."
    )
    oidc_scopes: str = Field(
        default="openid email profile", max_length=500, description="The scopes to request, separated by spaces."
    )
    oidc_groups_claim: str = Field(
        default="groups",
        min_length=1,
        max_length=200,
        description="The claim with a person's groups. A name that begins with / is a JSON pointer, such as "
        "/realm_access/roles.",
    )
    oidc_admin_groups: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="The groups whose members are admins of the team."
    )
    oidc_roles: dict[str, GroupRoles] = Field(
        default_factory=dict, description="The roles in factories that a group gives, such as manager@default."
    )
    oidc_allowed_groups: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="The groups whose members may sign in. None: everyone with a role."
    )
    oidc_provider_name: str = Field(
        default="OpenID Connect",
        min_length=1,
        max_length=40,
        description="The provider's name on pages, such as Keycloak.",
    )
    oidc_session_hours: int = Field(
        default=12,
        ge=1,
        le=SESSION_HOURS,
        description="After this time, a member who signed in at the provider, or with a link that set no password, "
        "must sign in again.",
    )
    oidc_ca_file: Path | None = Field(
        default=None,
        description="A PEM file with certificate authorities to trust for the provider, in addition to the system's.",
    )
    password_sign_in: bool = Field(
        default=True,
        description="Whether members may sign in with passwords. If false, they sign in at the provider, or with a "
        "one-time link.",
    )
    smtp_host: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9.:_-]{1,253}$",
        description="The SMTP server that sends e-mails about alarms, such as mail.example.com. Unset: no e-mails.",
    )
    smtp_port: int | None = Field(
        default=None, ge=1, le=65_535, description="The port of the SMTP server. Unset: 587, or 465 with `tls`."
    )
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection to the SMTP server is encrypted."
    )
    smtp_user: str | None = Field(
        default=None, min_length=1, max_length=500, description="The user name at the SMTP server."
    )
    smtp_password: SecretStr | None = Field(default=None, description="The password at the SMTP server.")
    smtp_sender: str | None = Field(
        default=None, max_length=254, description="The e-mail address of the sender, such as hookmill@example.com."
    )
    smtp_seconds: int = Field(
        default=10, ge=1, le=60, description="The time limit for one e-mail, including the DNS lookup."
    )
    alarm_private_addresses: bool = Field(
        default=False,
        description="Whether URLs of alarm destinations may lead to private addresses and begin with http://. If true, "
        "every admin can make the service send requests into private networks.",
    )
    alarm_ca_file: Path | None = Field(
        default=None,
        description="A PEM file with certificate authorities to trust for the SMTP server and for alarm destinations, "
        "in addition to the system's.",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Networks whose X-Forwarded-For is trusted for logs and rate limits, such as 10.0.0.0/8.",
    )
    master_key: SecretStr | None = Field(
        default=None,
        description="The key that encrypts secrets: 32 bytes in base64. Unset: master.key in the data directory.",
    )
    master_key_previous: SecretStr | None = Field(
        default=None,
        description="The previous master key, during a rotation of `master_key`. Separate several keys with commas.",
    )
    free_space_min_mb: int = Field(
        default=256,
        ge=0,
        description="With less free disk space, the service answers deliveries with 503.",
    )
    free_memory_min_mb: int | None = Field(
        default=None,
        ge=0,
        description="With less available memory, the run that uses the most is ended. Unset: a tenth of the memory, at "
        "most 1,024 MiB.",
    )
    packages_max_mb: int | None = Field(
        default=None,
        ge=1,
        description="How much disk space the packages of all runs may need together. If they need more, the oldest "
        "ones of ended runs are removed. Unset: until the disk is almost full.",
    )
    alarm_failed_authentications: int = Field(
        default=ALARM_THRESHOLDS.failed_authentications,
        ge=1,
        le=100,
        description="An alarm is raised after this many failed authentications of a webhook in a row.",
    )
    alarm_rate_limited_minutes: int = Field(
        default=ALARM_THRESHOLDS.rate_limited_minutes_min,
        ge=1,
        le=RATE_LIMIT_WINDOW_MINUTES,
        description="An alarm is raised if a webhook dropped deliveries over the rate limit in this many of the last "
        "10 minutes.",
    )
    alarm_failed_runs: int = Field(
        default=ALARM_THRESHOLDS.failed_runs,
        ge=1,
        le=1_000,
        description="An alarm is raised after this many failed runs of an automation in a row.",
    )
    alarm_waiting_seconds: int = Field(
        default=ALARM_THRESHOLDS.waiting_seconds,
        ge=60,
        le=604_800,
        description="An alarm is raised if a run waits for a worker for longer than this.",
    )
    alarm_free_space_mb: int = Field(
        default=ALARM_THRESHOLDS.disk_free_bytes // 1024**2,
        ge=0,
        le=1_000_000_000,
        description="An alarm is raised if the disk of the data directory has less free space. 0: never.",
    )
    alarm_certificate_days: int = Field(
        default=ALARM_THRESHOLDS.certificate_days,
        ge=0,
        le=365,
        description="An alarm is raised if the certificate of `base_url` expires within this number of days. 0: never.",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="The port on which the worker serves metrics for Prometheus. Unset: no metrics.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="The IP address for `metrics_port`.")
    metrics_token: SecretStr | None = Field(
        default=None,
        description="The bearer token that Prometheus must send. Required unless `metrics_host` is a loopback address.",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="The URL of an OpenTelemetry collector that gets traces, such as http://127.0.0.1:4318. Unset: no "
        "traces.",
    )
    otlp_headers: SecretStr | None = Field(
        default=None,
        description="Headers for the collector, such as authorization=Bearer%20TOKEN. Separate several with commas.",
    )
    otlp_sample_ratio: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="The share of traces that are sent, from 0 to 1 (all). If the sender has sent a `traceparent`, its "
        "flag decides instead.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="How much is logged.")

    @field_validator("data_dir")
    @classmethod
    def _check_data_directory(cls, data_dir: Path) -> Path:
        if data_dir == Path() or data_dir.absolute() == Path("/"):
            raise ValueError("must name a directory that only the service uses, such as /var/lib/hookmill")
        return data_dir

    @field_validator("host", "metrics_host")
    @classmethod
    def _check_ip_address(cls, host: str) -> str:
        try:
            ip_address(host)
        except ValueError:
            raise ValueError("must be an IP address, such as 127.0.0.1, or 0.0.0.0 for every interface") from None
        return host

    @field_validator("trusted_proxies", "oidc_admin_groups", "oidc_allowed_groups", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        """The items of a text: of a JSON array, or separated by commas."""
        if not isinstance(value, str):
            return value
        if value.strip().startswith("["):
            try:
                return json.loads(value)
            except ValueError as error:
                raise ValueError(f"not valid JSON: {error}") from None
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ip_network(network)
        return networks

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, base_url: str | None) -> str | None:
        if base_url is None:
            return None
        parts = http_url_parts(base_url)
        if parts is None or parts.query:
            raise ValueError(
                "must be an http or https URL without a password and query, such as https://hooks.example.com"
            )
        if parts.path.strip("/"):
            raise ValueError(
                "must have no path: the service answers at the root of a host name only. Give it a name of its own, "
                "such as https://hooks.example.com, and let the proxy pass all paths on unchanged"
            )
        return base_url.rstrip("/")

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_collector(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = http_url_parts(url)
        if parts is None or parts.query:
            raise ValueError("must be a URL without a password or query, such as http://127.0.0.1:4318")
        return url.rstrip("/")

    @field_validator("otlp_headers")
    @classmethod
    def _check_headers(cls, headers: SecretStr | None) -> SecretStr | None:
        if headers is not None and not (
            _OTLP_HEADERS.fullmatch(headers.get_secret_value())
            # The values are decoded before they are sent.
            and _HEADER_VALUE.fullmatch(unquote(headers.get_secret_value()))
        ):
            raise ValueError("must be names and percent-encoded values, such as authorization=Bearer%20TOKEN,x-team=1")
        return headers

    @field_validator("metrics_token")
    @classmethod
    def _check_token(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not re.fullmatch(r"[!-~]{16,1000}", token.get_secret_value()):
            raise ValueError("must have at least 16 characters, all of them visible ASCII characters")
        return token

    @field_validator("s3_endpoint_url")
    @classmethod
    def _check_endpoint(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = http_url_parts(url)
        if parts is None or parts.query:
            raise ValueError("must be an https URL without a password or query, such as https://s3.example.com")
        return url.rstrip("/")

    @field_validator("oidc_issuer")
    @classmethod
    def _check_issuer(cls, issuer: str | None) -> str | None:
        if issuer is None:
            return None
        parts = http_url_parts(issuer)
        if parts is None or parts.query or (parts.scheme == "http" and not is_loopback(parts.hostname)):
            raise ValueError("must be an https URL without a password or query, such as https://id.example.com")
        return issuer

    @field_validator("smtp_host")
    @classmethod
    def _check_mail_server(cls, host: str | None) -> str | None:
        if host is not None and not is_host_name(host):
            raise ValueError("must be a host name or an IP address, such as mail.example.com")
        return host

    @field_validator("smtp_sender")
    @classmethod
    def _check_sender(cls, sender: str | None) -> str | None:
        try:
            return usable_email(sender) if sender is not None else None
        except Invalid:
            raise ValueError("must be an e-mail address, such as hookmill@example.com") from None

    @field_validator("oidc_scopes")
    @classmethod
    def _check_scopes(cls, scopes: str) -> str:
        if "openid" not in scopes.split():
            raise ValueError("must contain openid")
        return " ".join(scopes.split())

    @field_validator("s3_prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        if not re.fullmatch(r"([A-Za-z0-9_-][A-Za-z0-9._-]*(/|$))*", prefix):
            raise ValueError("must have only letters, digits, . _ and -, with single slashes in between")
        return prefix.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, url: SecretStr | None) -> SecretStr | None:
        # `sqlite:///` precedes a path. With an absolute path, the URL has four slashes.
        if url is not None and not url.get_secret_value().startswith(("postgresql://", "postgres://", "sqlite:///")):
            raise ValueError("must start with postgresql:// or sqlite:///")
        if url is not None and url.get_secret_value().startswith("sqlite:"):
            path, parameters, _ = url.get_secret_value().partition("?")
            if parameters:
                raise ValueError("must have no parameters after sqlite:///PATH; write %3F for a question mark in PATH")
            # With these, each process would have a database of its own, in its memory.
            if sqlite_path(path) in (Path(), Path(":memory:")):
                raise ValueError("must name a file, such as sqlite:////var/lib/hookmill/hookmill.db")
        return url

    @field_validator("runners")
    @classmethod
    def _check_runner_names(cls, runners: dict[str, AnyRunnerSettings]) -> dict[str, AnyRunnerSettings]:
        for name in runners:
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", name) or name in BUILT_IN_RUNNERS:
                raise ValueError(
                    f"{name!r} can't name a runner: use lower-case letters, digits, - and _, and not 'package'"
                )
        return runners

    @field_validator("repositories")
    @classmethod
    def _check_repository_names(cls, repositories: dict[str, RepositorySettings]) -> dict[str, RepositorySettings]:
        for name in repositories:
            if not is_repository_name(name):
                raise ValueError(f"{name!r} can't name a repository: use lower-case letters, digits, - and _")
        return repositories

    @field_validator("destinations")
    @classmethod
    def _check_destination_names(cls, destinations: dict[str, AnyDestination]) -> dict[str, AnyDestination]:
        for name in destinations:
            if not re.fullmatch(DESTINATION_PATTERN, name):
                raise ValueError(f"{name[:80]!r} can't name a destination: use lower-case letters, digits, - and _")
        return destinations

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        problems = []
        if self.processes > 1 and not self.on_postgres:
            problems.append("processes: more than one needs PostgreSQL; set database_url")
        if self.default_runner not in self.runner_names():
            names = ", ".join(self.runner_names())
            problems.append(f"default_runner: no runner is named {self.default_runner!r}; choose one of: {names}")
        if self.master_key_previous is not None and self.master_key is None:
            problems.append("master_key_previous: set master_key, too")
        if self.run_files == "s3" and self.s3_bucket is None:
            problems.append("run_files: s3 needs a bucket; set s3_bucket")
        if self.s3_bucket is not None:
            problems += self._problems_of_object_store()
        problems += self._problems_of_destinations()
        problems += self._problems_of_mail_server()
        if self.metrics_port is not None:
            problems += self._problems_of_metrics()
        if self.otlp_endpoint is not None and not _has_module("opentelemetry.proto"):
            problems.append("otlp_endpoint: needs OpenTelemetry; install hookmill with the extra otel: hookmill[otel]")
        if self.oidc_issuer is not None:
            problems += self._problems_of_provider()
        elif not self.password_sign_in:
            problems.append("password_sign_in: nobody could sign in; set oidc_issuer, or set this to true")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _problems_of_object_store(self) -> list[str]:
        problems = []
        for name in ("s3_access_key_id", "s3_secret_access_key"):
            secret: SecretStr | None = getattr(self, name)
            if secret is None or not secret.get_secret_value():
                problems.append(f"{name}: set it, because s3_bucket is set")
            elif not re.fullmatch("[!-~]+", secret.get_secret_value()):
                problems.append(f"{name}: must have visible ASCII characters only")
        if (self.s3_endpoint_url or "").startswith("http://") and not self.s3_allow_http:
            problems.append("s3_endpoint_url: must begin with https://, unless s3_allow_http is true")
        if not _has_module("obstore"):
            problems.append("s3_bucket: needs the library obstore; install hookmill with the extra s3: hookmill[s3]")
        return problems

    def _problems_of_destinations(self) -> list[str]:
        """A command must never get the credential of a destination."""
        variables = {destination.credential.variable for destination in self.destinations.values()}
        return [
            f"runners.{name}: must not get {variable}, which has the credential of a destination"
            for name, runner in self.runners.items()
            for variable in sorted(variables & set(runner.variables_of_service()))
        ]

    def _problems_of_mail_server(self) -> list[str]:
        problems = []
        if (self.smtp_host is None) != (self.smtp_sender is None):
            missing = "smtp_host" if self.smtp_host is None else "smtp_sender"
            problems.append(f"{missing}: set smtp_host and smtp_sender together")
        if (self.smtp_user is None) != (self.smtp_password is None):
            missing = "smtp_user" if self.smtp_user is None else "smtp_password"
            problems.append(f"{missing}: set smtp_user and smtp_password together")
        if self.smtp_password is not None and self.smtp_security == "none" and not is_loopback(self.smtp_host):
            problems.append("smtp_security: must not be none with a password, which would be sent unencrypted")
        return problems

    def _problems_of_metrics(self) -> list[str]:
        problems = []
        if not is_loopback(self.metrics_host) and self.metrics_token is None:
            problems.append("metrics_token: set it, because metrics_host is not a loopback address")
        if self.metrics_port == self.port:
            problems.append("metrics_port: must differ from port; choose another one")
        return problems

    def _problems_of_provider(self) -> list[str]:
        problems = []
        if self.oidc_client_id is None:
            problems.append("oidc_client_id: set it, because oidc_issuer is set")
        parts = urlsplit(self.base_url or "")
        if parts.scheme != "https" and not is_loopback(parts.hostname):
            problems.append(
                "base_url: set it to an https URL, because oidc_issuer is set. The redirect URI to register at the "
                "provider is base_url followed by /sign-in/oidc/callback"
            )
        if not _has_module("joserfc"):
            problems.append(
                "oidc_issuer: needs the library joserfc; install hookmill with the extra oidc: hookmill[oidc]"
            )
        return problems

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(env_settings, EnvSettingsSource)
        env_settings.env_vars = {name.lower(): value for name, value in own_variables(os.environ).items()}
        # The environment takes precedence over the file, whose settings `read_settings` passes to the constructor.
        return env_settings, init_settings

    @property
    def on_postgres(self) -> bool:
        return self.database_url is not None and not self.database_url.get_secret_value().startswith("sqlite:")

    @property
    def stores_run_files(self) -> bool:
        """Whether files of runs are stored in the database or the object store."""
        return self.on_postgres if self.run_files is None else self.run_files != "local"

    @property
    def run_file_limits(self) -> RunFileLimits:
        if self.run_files == "s3":
            return RunFileLimits(
                file_bytes_max=self.s3_file_bytes_max,
                run_bytes_max=self.s3_run_bytes_max,
                files_max=self.run_files_max,
            )
        return RunFileLimits(
            file_bytes_max=self.run_file_bytes_max,
            run_bytes_max=self.run_files_bytes_max,
            files_max=self.run_files_max,
        )

    @property
    def alarm_thresholds(self) -> AlarmThresholds:
        return AlarmThresholds(
            failed_authentications=self.alarm_failed_authentications,
            rate_limited_minutes_min=self.alarm_rate_limited_minutes,
            failed_runs=self.alarm_failed_runs,
            waiting_seconds=self.alarm_waiting_seconds,
            disk_free_bytes=self.alarm_free_space_mb * 1024 * 1024,
            certificate_days=self.alarm_certificate_days,
        )

    @property
    def free_space_min_bytes(self) -> int:
        return self.free_space_min_mb * 1024 * 1024

    @property
    def packages_max_bytes(self) -> int | None:
        return None if self.packages_max_mb is None else self.packages_max_mb * 1024 * 1024

    def host_reserve(self) -> HostReserve:
        """What runs must leave of this host."""
        memory_mb = self.free_memory_min_mb
        return HostReserve(
            self.data_dir, self.free_space_min_bytes, None if memory_mb is None else memory_mb * 1024 * 1024
        )

    def store_url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return sqlite_url((self.data_dir / "hookmill.db").absolute())

    def public_url(self) -> str:
        """The base of the URLs that senders use. Never derived from a request, because its Host can't be trusted."""
        if self.base_url is not None:
            return self.base_url
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def lacks_trusted_proxies(self) -> bool:
        """Whether a proxy seems to be in front of the service, and `trusted_proxies` is not set."""
        if self.base_url is None or self.trusted_proxies:
            return False
        parts = urlsplit(self.base_url)
        # The service itself has no TLS, so an https URL leads to a proxy.
        return parts.scheme == "https" or (parts.port or 80) != self.port

    @property
    def effective_smtp_port(self) -> int:
        """`smtp_port`, or the usual port for `smtp_security`."""
        if self.smtp_port is not None:
            return self.smtp_port
        return 465 if self.smtp_security == "tls" else 587

    @property
    def oidc_redirect_uri(self) -> str:
        """The URL to which the provider sends a browser back."""
        return f"{self.public_url()}/sign-in/oidc/callback"

    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(ip_network(network) for network in self.trusted_proxies)

    def runner_names(self) -> tuple[str, ...]:
        return tuple(self.all_runners())

    def all_runners(self) -> Mapping[str, RunnerSettings]:
        return with_built_in_runners(self.runners)

    def secret_rules(self) -> Mapping[str, RunSecretRule]:
        """Which secrets the runs of each runner may get, by the runner's name."""
        return {name: runner.secret_rule() for name, runner in self.all_runners().items()}

    def destination_rules(self) -> dict[str, DestinationRules]:
        """What is allowed for each destination of results, by name."""
        return {name: destination.rules() for name, destination in self.destinations.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, or their problems. The problems contain no values, which may be secrets."""

    settings: Settings | None
    """None if there are problems."""
    problems: tuple[str, ...]
    file: Path | None
    """The file that was read; None without a file."""


def own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with the prefix `HOOKMILL_`. Values have no white space around them, as they may come from files.

    Empty variables count as unset: Compose sets them for `${NAME}` without a value. Kubernetes sets variables for each
    Service; those of a Service whose name begins with `hookmill` are left out.
    """
    return {
        name: trimmed
        for name, value in environment.items()
        if name.startswith("HOOKMILL_")
        # Only the line end is never part of a password.
        and (trimmed := value.strip("\r\n") if name == "HOOKMILL_SMTP_PASSWORD" else trimmed_text(value))
        and not _LINK_NAME.fullmatch(name)
        and not (name.endswith("_PORT") and _LINK_VALUE.fullmatch(trimmed))
    }


def read_settings() -> Settings:
    """The effective settings. Raises `Invalid` with all problems."""
    loaded = load_settings()
    if loaded.settings is None:
        raise Invalid("The settings can't be used:\n" + "\n".join(f"  {problem}" for problem in loaded.problems))
    return loaded.settings


def settings_file_exists() -> bool:
    """Whether `load_settings` reads a file."""
    return "HOOKMILL_CONFIG" in own_variables(os.environ) or os.path.lexists(CONFIG_FILE)


def load_settings() -> LoadedSettings:
    """The effective settings, or all their problems."""
    environment = own_variables(os.environ)
    configured_path = environment.get("HOOKMILL_CONFIG")
    path = Path(configured_path or CONFIG_FILE)
    problems: list[str] = []
    file_settings: dict[str, Any] = {}
    is_file_read = True
    # lexists, to report a dangling link, too. (A container may also have created a directory instead of the file.)
    if configured_path or os.path.lexists(path):
        try:
            file_settings = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            problems.append(f"{'HOOKMILL_CONFIG' if configured_path else path}: there is no file {path.absolute()}")
        except OSError as error:
            problems.append(f"{path}: can't be read: {error.strerror}")
        except UnicodeDecodeError:
            problems.append(f"{path}: not UTF-8; save it in this encoding")
        except tomllib.TOMLDecodeError as error:
            problems.append(f"{path}: not valid TOML: {error}")
        is_file_read = not problems
    problems += [f"{name}: not valid UTF-8" for name, value in sorted(environment.items()) if not _is_valid_utf8(value)]
    names = set(Settings.model_fields)
    problems += [
        f"{path}: unknown setting {name!r}{suggestion(name, names)}" for name in file_settings if name not in names
    ]
    problems += [
        f"{name}: unknown setting{suggestion(name.removeprefix('HOOKMILL_').lower(), names, variables=True)}"
        for name in sorted(environment)
        if name.removeprefix("HOOKMILL_").lower() not in names
        and not name.startswith(("HOOKMILL_TEST_", "HOOKMILL_BENCH_"))
        and name not in _VARIABLES_OTHER_THAN_SETTINGS
    ]
    settings: Settings | None = None
    try:
        settings = Settings(**{name: value for name, value in file_settings.items() if name in names})
    except ValidationError as error:
        for details in error.errors(include_input=False):
            if not details["loc"] and not is_file_read:
                # The settings in the file may be those that this problem misses.
                continue
            problems += describe_problem(Settings, details, path, environment).splitlines()
    except SettingsError as error:
        # The environment's values of tables are JSON. The error stops at the first value that is not.
        field = re.search(r'field "(\w+)"', str(error))
        assert field is not None, "the error names the field"
        problems.append(f"HOOKMILL_{field[1].upper()}: not valid JSON: {error.__cause__}")
    return LoadedSettings(
        settings=settings if not problems else None,
        problems=tuple(problems),
        file=path.absolute() if file_settings else None,
    )


def _has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        # A package that contains the module is missing.
        return False


def _is_valid_utf8(value: str) -> bool:
    """Whether an environment variable was valid UTF-8. Python replaces invalid bytes with surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
