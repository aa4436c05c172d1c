"""The operator's settings of one repository."""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import usable_secret_name
from hookmill.runs.runners.kind import VariableName
from hookmill.runs.workspaces.git import MEMORY_BYTES, protocol_of

MEMORY_BYTES_MAX: Final = 4_294_967_296
"""The largest limit for the memory of a process of Git, however large the repository may be."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SCP_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9._~/-]+\Z")
"""An address for SSH without a scheme, such as git@example.com:team/app.git."""


class RepositorySettings(BaseModel):
    """A Git repository that automations may use for the workspaces of their runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(
        max_length=1_000,
        description="Where it is: an https URL, an SSH address, or the absolute path of a repository on this host.",
    )
    secret: str | None = Field(
        default=None, description="The team secret with the password for an https URL, such as an access token."
    )
    secret_from: VariableName | None = Field(
        default=None, description="The service's environment variable with this password, instead of a team secret."
    )
    username: Annotated[str, StringConstraints(pattern=r"^[!-9;-~]{1,200}$")] = Field(
        default="x-access-token", description="The user name that belongs to the password."
    )
    factories: tuple[str, ...] | None = Field(
        default=None, description="The names of the factories whose automations may use it. Unset: all."
    )
    disk_bytes_max: int = Field(
        default=2_147_483_648,
        ge=1_048_576,
        description="How much disk space its mirror, and each checkout, may use.",
    )
    time_limit_seconds: int = Field(
        default=600, ge=1, le=86_400, description="How long each step of a checkout may take, such as the fetch."
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        message = (
            "must be an https URL without a password, such as https://git.example.com/app.git, an SSH address, or an "
            "absolute path"
        )
        if not re.fullmatch(r"[!-~]+", url):
            raise ValueError(f"{message}, with visible ASCII characters only")
        if "://" not in url:
            if url.startswith("/") or _SCP_ADDRESS.match(url):
                return url
            raise ValueError(message)
        try:
            parts = urlsplit(url)
            has_host = re.match(r"[A-Za-z0-9\[]", parts.netloc.rpartition("@")[2]) is not None and parts.port != 0
        except ValueError:
            raise ValueError(message) from None
        if not has_host or parts.query or parts.fragment:
            raise ValueError(message)
        if parts.scheme == "ssh":
            if not re.fullmatch(r"([A-Za-z0-9._-]+@)?[^@]*", parts.netloc) or parts.netloc.startswith("-"):
                raise ValueError(message)
        elif parts.scheme not in ("https", "http") or "@" in parts.netloc:
            raise ValueError(message)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError("must begin with https://, because http is not encrypted, unless this host serves it")
        return url

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, secret: str | None) -> str | None:
        try:
            return usable_secret_name(secret) if secret is not None else None
        except Invalid as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _check_credential(self) -> "RepositorySettings":
        if self.secret is not None and self.secret_from is not None:
            raise ValueError("secret: set this or secret_from, and not both")
        has_password = self.secret is not None or self.secret_from is not None
        if has_password and protocol_of(self.url) not in ("https", "http"):
            raise ValueError("secret: only an https URL has a password; for SSH, the service's account needs a key")
        return self

    @property
    def place(self) -> str:
        """The URL without its path, or `a path on this host`, for texts that others than the operator see."""
        match protocol_of(self.url):
            case "file":
                return "a path on this host"
            case "ssh" if "://" not in self.url:
                return self.url.partition(":")[0].rpartition("@")[2]
            case _:
                return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def memory_bytes(self) -> int:
        """How much memory each process of Git may use. Large repositories need more of both."""
        return min(max(MEMORY_BYTES, self.disk_bytes_max // 2), MEMORY_BYTES_MAX)

    def summary(self) -> str:
        """One line for the page of settings. The path of the URL may contain a token."""
        password_source = self.secret or self.secret_from
        return ", ".join(
            (
                self.place,
                *([f"with the password in {password_source}"] if password_source is not None else []),
                *([f"for {' and '.join(self.factories) or 'no factory'}"] if self.factories is not None else []),
                f"at most {self.disk_bytes_max:,} bytes",
                f"{self.time_limit_seconds} s",
            )
        )

    def may_use(self, factory: str) -> bool:
        """Whether automations of the factory with this name may use it."""
        return self.factories is None or factory in self.factories
