"""The secrets that the runs of an automation get as environment variables, and which of them a runner allows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Final, Self

from msgspec import Meta

from hookmill.domain.errors import Fault

RUN_SECRETS_MAX: Final = 16
RunSecretTexts = Annotated[
    tuple[
        Annotated[
            str,
            Meta(
                pattern="^([A-Za-z_][A-Za-z0-9_]{0,63}=)?[A-Za-z][A-Za-z0-9_]{0,63}$",
                extra={
                    "phrase": "the name of a team secret, such as GH_TOKEN, or VARIABLE=NAME if the variable has "
                    "another name"
                },
            ),
        ],
        ...,
    ],
    Meta(
        max_length=RUN_SECRETS_MAX,
        extra_json_schema={"uniqueItems": True},
        description="The secrets that its runs get as environment variables: `NAME`, or `VARIABLE=NAME` if the "
        "variable has another name. Null: none.",
    ),
]
DEFAULT_ALLOWED: Final = (
    "*_TOKEN",
    "*_KEY",
    "*_KEY_ID",
    "*_SECRET",
    "*_PASSWORD",
    "*_PASSPHRASE",
    "PGPASSWORD",
)
"""The variables that a runner allows by default. Programs take nothing but credentials from variables like these.

With other variables, such as NODE_OPTIONS or HTTPS_PROXY, a manager could change what the operator's command does.
"""
_RESERVED: Final = (
    "HOOKMILL_*",
    "LD_*",
    "DYLD_*",
    "BASH_FUNC_*",
    "BASH_ENV",
    "ENV",
    "HOME",
    "IFS",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TRACEPARENT",
    "TZ",
    "USER",
)
"""The variables that no runner allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecret:
    """A secret that runs get."""

    variable: str
    """The name of the environment variable."""
    name: str
    """The name of the team secret."""

    @classmethod
    def of(cls, text: str) -> Self:
        """The secret that an automation names: `NAME`, or `VARIABLE=NAME`."""
        variable, _, name = text.rpartition("=")
        return cls(variable=variable or name, name=name)

    @property
    def text(self) -> str:
        """The shortest text of `of`."""
        return self.name if self.variable == self.name else f"{self.variable}={self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecretRule:
    """Which secrets the runs of a runner may get."""

    allowed: tuple[str, ...] = DEFAULT_ALLOWED
    """Names of variables, or patterns with `*`. Case does not matter."""
    forbidden: tuple[str, ...] = ()
    """Patterns of variables that are not allowed nevertheless."""
    set_variables: frozenset[str] = frozenset()
    """The variables that the runner sets itself."""
    refusal: str | None = None
    """Why the runner's runs can't get secrets; None if they can."""

    def problem_of(self, runner: str, variable: str) -> str | None:
        """Why a run of this runner can't get this variable; None if it can."""
        if self.refusal is not None:
            return f"Runs of the runner {runner!r} can't get secrets: {self.refusal}"
        if variable in self.set_variables:
            return (
                f"The runner {runner!r} sets the variable {variable} itself. Hand the secret over under another name: "
                "OTHER_VARIABLE=SECRET."
            )
        if not _matches(variable, self.allowed) or _matches(variable, self.forbidden):
            return (
                f"The runner {runner!r} allows no secret in the variable {variable}. It allows "
                f"{', '.join(self.allowed) or 'none'}. Use another name, such as {variable[:40].upper()}_TOKEN=SECRET, "
                "or ask the operator to add the name to the runner's secrets_allowed."
            )
        return None


NO_SECRETS: Final = RunSecretRule(refusal="this service has no settings of this runner.")
"""The rule of a runner that the settings don't have."""


def problems_of_secrets(secrets: Sequence[RunSecret]) -> Iterator[Fault]:
    """What is wrong with the secrets of an automation, whatever its runner allows."""
    variables: set[str] = set()
    for index, secret in enumerate(secrets):
        if secret.variable in variables:
            yield Fault(f"/secrets/{index}", f"Two secrets have the variable {secret.variable}. Remove one.")
        variables.add(secret.variable)
        if _matches(secret.variable, _RESERVED):
            yield Fault(
                f"/secrets/{index}",
                f"No secret can be in the variable {secret.variable}, because it changes how programs start. Write "
                f"VARIABLE={secret.name} with another name.",
            )


def allowed_pattern(pattern: str) -> str:
    """A pattern of `secrets_allowed`. Raises `ValueError`."""
    if not re.fullmatch(r"[A-Za-z0-9_*]{1,64}", pattern):
        raise ValueError("must contain names of variables, in which * stands for any letters, digits and _")
    return pattern


def _matches(variable: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(variable.upper(), pattern.upper()) for pattern in patterns)
