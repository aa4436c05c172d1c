"""The destinations of results in the operator's settings. Their credentials are in variables of the environment."""

import os
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal, assert_never
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.filters.globs import read_glob
from hookmill.domain.github_app import APP_ID_PATTERN
from hookmill.domain.results import DestinationRules, ResultDestinationKind
from hookmill.domain.secret import SecretValue
from hookmill.domain.text import trimmed_text
from hookmill.outbound.http_url import http_url_parts

GITHUB_URL: Final = "https://api.github.com"
REPOSITORIES_MAX: Final = 1_000


def _text_of_number(value: object) -> object:
    # People write the App ID as a number.
    return str(value) if type(value) is int else value


def _refuse_own_variable(name: str) -> str:
    if name.upper().startswith("HOOKMILL_"):
        raise ValueError("must not begin with HOOKMILL_, because nothing else may get the service's own secrets")
    return name


VariableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"), AfterValidator(_refuse_own_variable)
]
"""The name of an environment variable that is not the service's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredential:
    """A token, a signing secret or a secret URL."""

    variable: str
    """The environment variable that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCredential:
    """The private key of a GitHub App, with which the service gets tokens."""

    app_id: str
    variable: str
    """The environment variable that has the key."""


Credential = TokenCredential | AppCredential


class _Destination(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    allow_http: bool = Field(
        default=False, description="Whether the URL may begin with http://. Credentials are then not encrypted."
    )
    factories: tuple[str, ...] | None = Field(
        default=None, description="The names of the factories whose automations may use it. Unset: all."
    )

    @property
    def credential(self) -> Credential:
        return TokenCredential(variable=self.secret_from)  # type: ignore[attr-defined]

    def secret(self) -> SecretValue | None:
        """The value of the credential's variable; None if it is not set."""
        value = trimmed_text(os.environ.get(self.credential.variable, ""))
        return SecretValue(value) if value else None

    def _factories_text(self) -> str:
        """The end of the summary."""
        return "" if self.factories is None else f", used by {' and '.join(self.factories) or 'no factory'}"


AppId = Annotated[str, BeforeValidator(_text_of_number), StringConstraints(pattern=rf"^{APP_ID_PATTERN}$")]


class RepositoryDestination(_Destination):
    """A GitHub or Gitea, whose API is at a URL that the operator chooses."""

    kind: Literal["github", "gitea"] = Field(description="`github` or `gitea`.")
    url: str = Field(
        default=GITHUB_URL,
        max_length=500,
        description="The URL of the API. Unset: that of github.com. Of a Gitea, such as https://git.example.com/api/v1.",
    )
    secret_from: VariableName | None = Field(
        default=None, description="The service's environment variable that contains the token."
    )
    app_id: AppId | None = Field(
        default=None, description="The client ID or the App ID of a GitHub App, instead of a token."
    )
    app_key_from: VariableName | None = Field(
        default=None, description="The service's environment variable that contains the private key of the app."
    )
    repositories: tuple[str, ...] = Field(
        min_length=1,
        max_length=REPOSITORIES_MAX,
        description="The repositories that may get results, such as acme/shop or acme/*.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        _refuse_unusable(url)
        if urlsplit(url).query:
            raise ValueError("must have no query")
        return url.rstrip("/")

    @field_validator("repositories")
    @classmethod
    def _check_repositories(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not re.fullmatch(r"[A-Za-z0-9_.*?-]{1,100}/[A-Za-z0-9_.*?-]{1,100}", pattern):
                raise ValueError(f"{pattern[:80]!r} is not OWNER/NAME, in which * and ? may stand for characters")
        return patterns

    @model_validator(mode="after")
    def _check_encryption(self) -> "RepositoryDestination":
        if self.kind == "gitea" and self.url == GITHUB_URL:
            raise ValueError("url: set it to the URL of the Gitea's API, such as https://git.example.com/api/v1")
        if self.url.startswith("http:") and not self.allow_http:
            raise ValueError("url: must begin with https://, unless allow_http is true")
        return self

    @model_validator(mode="after")
    def _check_credential(self) -> "RepositoryDestination":
        if (self.app_id is None) != (self.app_key_from is None):
            raise ValueError("app_id: set app_id and app_key_from together")
        if (self.secret_from is None) == (self.app_id is None):
            raise ValueError("secret_from: set this for a token, or app_id and app_key_from for a GitHub App")
        if self.kind == "gitea" and self.app_id is not None:
            raise ValueError("app_id: a Gitea has no apps; set secret_from to the variable with its token")
        return self

    @property
    def credential(self) -> Credential:
        if self.app_id is not None and self.app_key_from is not None:
            return AppCredential(app_id=self.app_id, variable=self.app_key_from)
        assert self.secret_from is not None, "one of both is required"
        return TokenCredential(variable=self.secret_from)

    def rules(self) -> DestinationRules:
        globs = [read_glob(pattern.lower()) for pattern in self.repositories]
        return DestinationRules(
            kind=ResultDestinationKind(self.kind),
            repositories=tuple(glob for glob in globs if glob is not None),
            factories=self.factories,
            has_app=self.app_id is not None,
        )

    def summary(self) -> str:
        names = ", ".join(self.repositories[:5]) + ("…" if len(self.repositories) > 5 else "")
        match self.credential:
            case TokenCredential(variable=variable):
                credential = f"with the token in {variable}"
            case AppCredential(app_id=app_id, variable=variable):
                credential = f"as the app {app_id} with the key in {variable}"
            case never:
                assert_never(never)
        return f"{self.kind} at {self.url}, {credential}, for {names}{self._factories_text()}"


class SlackDestination(_Destination):
    """A chat that accepts incoming webhooks like Slack."""

    kind: Literal["slack"] = Field(default="slack", description="`slack`, or a chat that is compatible with it.")
    secret_from: VariableName = Field(
        description="The service's environment variable that contains the URL. Anyone who has the URL can post."
    )

    def rules(self) -> DestinationRules:
        return DestinationRules(kind=ResultDestinationKind.SLACK, factories=self.factories)

    def summary(self) -> str:
        return f"slack at the URL in {self.secret_from}{self._factories_text()}"


class WebhookDestination(_Destination):
    """A URL that gets signed webhooks."""

    kind: Literal["webhook"] = Field(default="webhook", description="`webhook` sends signed webhooks.")
    url: str = Field(max_length=2_000, description="The URL to which webhooks are sent.")
    secret_from: VariableName = Field(
        description="The service's environment variable that contains the secret to sign with (`whsec_…`)."
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        _refuse_unusable(url)
        return url

    @model_validator(mode="after")
    def _check_encryption(self) -> "WebhookDestination":
        if self.url.startswith("http:") and not self.allow_http:
            raise ValueError("url: must begin with https://, unless allow_http is true")
        return self

    def rules(self) -> DestinationRules:
        return DestinationRules(kind=ResultDestinationKind.WEBHOOK, factories=self.factories)

    def summary(self) -> str:
        # The path may contain a token.
        parts = urlsplit(self.url)
        server = f"{parts.scheme}://{parts.netloc}"
        return f"webhook at {server}, signed with the secret in {self.secret_from}{self._factories_text()}"


AnyDestination = Annotated[RepositoryDestination | SlackDestination | WebhookDestination, Field(discriminator="kind")]


def _refuse_unusable(url: str) -> None:
    if re.fullmatch(r"[!-~]+", url) is None:
        raise ValueError("must have visible ASCII characters only")
    if http_url_parts(url) is None:
        raise ValueError("must be an https URL without a password")
    try:
        # Messages are sent to the parts that this finds.
        parsed_url(SecretValue(url))
    except ValueError:
        raise ValueError("must be an https URL without a password") from None
