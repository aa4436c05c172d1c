"""What all kinds of runners have: settings, which check and prepare the host, create the runner and describe it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, StringConstraints

from hookmill.domain import spec
from hookmill.domain.errors import Invalid
from hookmill.domain.run_policy import Retry
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.runs.reserve import ReserveWatch
from hookmill.runs.runner import Runner
from hookmill.store.database import Database

T = TypeVar("T")


def _refuse_own_variable(name: str) -> str:
    if name.upper().startswith("HOOKMILL_"):
        raise ValueError("must not begin with HOOKMILL_, because nothing else may get the service's own secrets")
    return name


VariableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"), AfterValidator(_refuse_own_variable)
]
"""The name of an environment variable that is not the service's own."""


def refuse_nul(value: T) -> T:
    """The value. Raises `ValueError` for a text that the system does not accept."""
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain a NUL character")
    return value


SystemText = Annotated[str, AfterValidator(refuse_nul)]
"""A text that the system accepts as an argument, and as the name or the value of a variable."""


def refuse_relative_program(program: str) -> str:
    """`program`. Raises `ValueError` unless it is an absolute path or the name of a program in PATH."""
    if not program:
        raise ValueError("must not be empty: name a program")
    if "/" in program and not program.startswith("/"):
        # A relative path would refer to the package, which contains no program.
        raise ValueError("must not be a relative path: name the program by its absolute path, or by its name in PATH")
    return program


ProgramName = Annotated[SystemText, AfterValidator(refuse_relative_program)]


def _check_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    refuse_relative_program(argv[0])
    return argv


CommandLine = Annotated[tuple[SystemText, ...], Field(min_length=1), AfterValidator(_check_program)]
"""A program and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerContext:
    """The parts of the service that its runners use."""

    open_files_max: int | None = None
    """The soft limit of open files for processes; None: the service's limit."""
    database: Database | None = None
    """Where reports of agent platforms arrive. Runners that need no reports may be created without a database."""
    reserve_watch: ReserveWatch | None = None
    """Ends commands that use too much of this host; None: nothing does."""
    public_url: str = ""
    """The base of the service's URLs for others."""


def _read_retry(source: Any) -> Retry:
    try:
        return spec.read(Retry, source, "/retry")
    except Invalid as error:
        raise ValueError(str(error)) from None


RetryOfSettings = Annotated[Retry, PlainValidator(_read_retry)]


class RunnerSettings(BaseModel, ABC):
    """The operator's settings of one runner. Each kind is a subclass with a field `kind`, which names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uses_workspace: ClassVar[bool] = False
    """Whether it starts a program on this host, which can use a checkout."""

    retry: RetryOfSettings | None = Field(
        default=None, description="How failed attempts are retried. An automation can have its own rule. Unset: never."
    )

    def refuse_unusable(self) -> None:
        """Raises `Invalid` if this process can't use the runner. Changes nothing; called before anything is opened."""
        return

    def prepare_host(self, packages: Path) -> None:
        """Prepare the host for the runner. Raises `Invalid` if that fails.

        This may change file modes, so it is called only after the data directory is verified.
        """
        return

    def examine(self, packages: Path) -> str:
        """What the runner does on this host, for `hookmill doctor`. Changes nothing.

        Raises `Invalid` if its runs would fail. `packages`: the directory of the packages, which may not exist yet.
        """
        return self.summary()

    def secret_rule(self) -> RunSecretRule:
        """Which secrets the runner's runs may get. Kinds that start no command refuse them."""
        return RunSecretRule(refusal="it starts no command. Choose a runner that starts one.")

    def variables_of_service(self) -> tuple[str, ...]:
        """The names of the service's variables whose values a command gets."""
        return ()

    @property
    def is_isolated(self) -> bool:
        """Whether the runs are separated from this host, or execute nothing on it."""
        return True

    def warning(self) -> str | None:
        """What a worker logs about the runner when it starts; None: nothing."""
        return None

    @abstractmethod
    def create_runner(self, context: RunnerContext) -> Runner: ...

    @abstractmethod
    def summary(self) -> str:
        """One line for the page of settings. It contains no values that may be credentials."""
