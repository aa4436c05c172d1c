"""The kind `container`: it runs a command in a new container of Docker or Podman for each attempt.

The engine's client is a command like any other, so the guard limits its time and its output. A container of Docker is
no descendant of the client, so it is removed by its name whenever the client did not end by itself.

With `network_allow`, a pause container has the network: see `sandbox/pause_container.py`.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import run_id
from hookmill.domain.run import Ended, Run, RunState
from hookmill.domain.run_outputs import OUTPUTS_DIRECTORY
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.runs.package import Package
from hookmill.runs.reserve import WatchedCommand
from hookmill.runs.runner import Abandoned, Instruction, NextInstruction
from hookmill.runs.runners.account import UnixAccount, own_home
from hookmill.runs.runners.allowed_destinations import (
    check_destinations,
    destinations_text,
    egress_spec,
    proxy_variables,
)
from hookmill.runs.runners.command import (
    INHERITED_VARIABLES,
    CommandRunner,
    ProcessSettings,
    count_of_arguments,
)
from hookmill.runs.runners.kind import CommandLine, RunnerContext
from hookmill.runs.runners.programs import Program
from hookmill.runs.runners.run_variables import RunVariable
from hookmill.sandbox.pause_container import PAUSE_ARGV

ENGINES: Final = ("podman", "docker")
PACKAGE_PATH: Final = "/package"
REMOVAL_SECONDS: Final = 60.0
REMOVED_NAMES_MAX: Final = 20
ENGINE_FAILED: Final = 125
"""The exit status of the client if the engine could not start the container."""
_NAMES_OF_FILES: Final = (RunVariable.PROMPT_FILE, RunVariable.ENVELOPE_FILE, RunVariable.PAYLOAD_FILE)
_VARIABLES_OF_THE_HOST: Final = frozenset((*INHERITED_VARIABLES, "USER", "LOGNAME"))
"""What the engine's client gets from the host. It would be wrong in the container."""


def removal_arguments(engine: str, names: Iterable[str]) -> tuple[str, ...]:
    """The command line that removes containers, and kills those that still run."""
    # Docker kills containers immediately, and skips names that no container has. Podman must be told to do so.
    options = ("--time=0", "--ignore") if PurePath(engine).name == "podman" else ()
    return (engine, "rm", "--force", *options, *names)


def container_name(run: Run, attempt: int) -> str:
    return f"hookmill-{run_id(run.id)}-{attempt}"


def pause_container_name(container: str) -> str:
    """The name of the pause container of this container."""
    return f"{container}-network"


@dataclass(frozen=True, kw_only=True)
class ContainerRunner(CommandRunner):
    """Runs `argv` in a container that sees the package, the workspace, a directory for its output, and nothing else."""

    outputs_path: ClassVar[str] = "/output"
    workspace_path: ClassVar[str] = "/workspace"
    """Where the command finds the directories that it can change. The package is at `PACKAGE_PATH`."""

    container: "ContainerOptions"

    def end_earlier_attempts(self, run: Run) -> None:
        super().end_earlier_attempts(run)
        first = max(1, run.attempt - REMOVED_NAMES_MAX + 1)
        # After a fault of the host, the attempt may have the same number again.
        self._remove([container_name(run, attempt) for attempt in range(first, run.attempt + 1)])

    def _run_command(
        self, package: Package, next_instruction: NextInstruction, watched: WatchedCommand
    ) -> Ended | Abandoned:
        result: Ended | Abandoned | None = None
        try:
            result = super()._run_command(package, next_instruction, watched)
            return result
        finally:
            name = container_name(package.run, package.run.attempt)
            # If the removal fails, the next attempt tries again.
            with suppress(OSError):
                if not (isinstance(result, Ended) and result.state is RunState.SUCCEEDED):
                    # The client may have been killed, and the container may still run.
                    self._remove([name])
                else:
                    self._remove_pause_containers([name])

    def _network(self, package: Package) -> dict[str, Any] | None:
        engine = self.container.engine
        egress = egress_spec(self.container.network_allow, self.container.network_private)
        if egress is None:
            return None
        name = pause_container_name(container_name(package.run, package.run.attempt))
        program, *arguments = PAUSE_ARGV
        pause = (
            *(engine, "run", "--rm", "--detach"),
            *self._arguments_of_every_container(package, name, "none"),
            *("--workdir=/", f"--entrypoint={program}", self.container.image, *arguments),
        )
        inspect = (engine, "container", "inspect", "--format={{.State.Pid}}", name)
        return {"pause": pause, "inspect": inspect, "egress": egress}

    def _argv(self, package: Package) -> tuple[str, ...]:
        """The command line of the engine's client."""
        variables = self._environment(package)
        own_environment: dict[str, str] = {"HOME": "/tmp", RunVariable.OUTPUTS_DIR: self.outputs_path}  # noqa: S108 - in the container
        if self.container.network_allow:
            configured = {*self.environment, *self.pass_environment, *package.secrets}
            own_environment |= {name: url for name, url in proxy_variables().items() if name not in configured}
        for variable in _NAMES_OF_FILES:
            if variable in variables:
                own_environment[variable] = f"{PACKAGE_PATH}/{PurePath(variables[variable]).name}"
        mounts = [
            f"--mount=type=bind,src={package.directory},dst={PACKAGE_PATH},readonly",
            f"--mount=type=bind,src={package.directory / OUTPUTS_DIRECTORY},dst={self.outputs_path}",
        ]
        if package.workspace is not None:
            own_environment[RunVariable.WORKSPACE] = self.workspace_path
            mounts.append(f"--mount=type=bind,src={package.workspace},dst={self.workspace_path}")
        not_inherited = _VARIABLES_OF_THE_HOST.difference(self.environment, self.pass_environment, package.secrets)
        name = container_name(package.run, package.run.attempt)
        network = f"container:{pause_container_name(name)}" if self.container.network_allow else self.container.network
        return (
            *(self.container.engine, "run", "--rm"),
            *(["--interactive"] if self.standard_input is not None else []),
            *self._arguments_of_every_container(package, name, network),
            *mounts,
            f"--workdir={self.workspace_path if self._starts_in_workspace(package) else PACKAGE_PATH}",
            *(f"--env={variable}={value}" for variable, value in own_environment.items()),
            *(f"--env={variable}" for variable in variables if variable not in {*own_environment, *not_inherited}),
            self.container.image,
            *self._command(package),
        )

    def _arguments_of_every_container(self, package: Package, name: str, network: str) -> tuple[str, ...]:
        memory = f"{self.container.memory_mb}m"
        return (
            f"--name={name}",
            f"--label=hookmill.run={run_id(package.run.id)}",
            f"--network={network}",
            f"--cpus={self.container.cpus:g}",
            f"--memory={memory}",
            f"--memory-swap={memory}",
            f"--pids-limit={self.container.processes_max}",
            "--read-only",
            "--tmpfs=/tmp",
            "--cap-drop=all",
            "--security-opt=no-new-privileges",
            f"--user={self._user}",
        )

    def _directory(self, package: Package) -> PurePath:
        return PurePath(PACKAGE_PATH)

    def _working_directory(self, package: Package) -> None:
        """The client starts anywhere. The command line says where the program starts."""

    @property
    def _user(self) -> str:
        """The user in the container who owns the package.

        In Podman's containers, root is the account that has started Podman. Docker's containers have the host's users.
        """
        if PurePath(self.container.engine).name == "podman":
            return "0:0"
        if self.account is not None:
            return f"{self.account.uid}:{self.account.gid}"
        return f"{os.geteuid()}:{os.getegid()}"

    def _result_from(self, package: Package, instruction: Instruction, report: dict[str, Any]) -> Ended:
        result = super()._result_from(package, instruction, report)
        if result.exit_status == ENGINE_FAILED and result.state is RunState.FAILED and report["ended_by"] is None:
            return replace(result, reason=self._not_started_reason)
        return result

    @property
    def _not_started_reason(self) -> str:
        if self.container.network_allow:
            return "The container could not be started with its network_allow. The output says why."
        return "The container could not be started. The output has the engine's message."

    def _remove(self, names: Sequence[str]) -> None:
        """Remove containers that may exist, their pause containers, and the processes in them. Raises `OSError` if the
        engine does not answer."""
        self._remove_containers(names)
        self._remove_pause_containers(names)

    def _remove_pause_containers(self, names: Sequence[str]) -> None:
        # Podman removes no container whose network another one uses, so these follow.
        if self.container.network_allow:
            self._remove_containers([pause_container_name(name) for name in names])

    def _remove_containers(self, names: Sequence[str]) -> None:
        inherited = ("PATH", *self.pass_environment)
        environment = {name: os.environ[name] for name in inherited if name in os.environ} | own_home()
        if self.account is not None:
            environment["HOME"] = self.account.home
        try:
            # The exit status says nothing: usually there is no such container.
            subprocess.run(
                removal_arguments(self.container.engine, names),
                env=environment | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVAL_SECONDS,
                cwd="/",
                **(self.account.process_options if self.account is not None else {}),
            )
        except FileNotFoundError:
            # Without an engine, there are no containers. The command's start reports this.
            return
        except subprocess.TimeoutExpired:
            raise OSError(errno.ETIMEDOUT, f"{self.container.engine} did not remove a container in time") from None


class ContainerOptions(BaseModel):
    """The settings of the containers of a runner."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field(default="podman", description="`podman` or `docker`, or the path of one of them.")
    image: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}$")] = Field(
        description="The image of the containers."
    )
    cpus: float = Field(default=1.0, gt=0, le=1_024, description="How many processors a container may use.")
    memory_mb: int = Field(default=2_048, ge=16, le=16_777_216, description="How much memory a container may use.")
    processes_max: int = Field(default=256, ge=1, le=1_000_000, description="How many processes a container may have.")
    network: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")] = Field(
        default="none", description="The engine's network that a container joins, or `none`."
    )
    network_allow: tuple[str, ...] = Field(
        default=(),
        description="Destinations that a container without a network reaches through a proxy, such as "
        "`api.example.com:443`.",
    )
    network_private: tuple[str, ...] = Field(
        default=(), description="Private networks to which names in `network_allow` may resolve, such as `10.0.0.0/8`."
    )

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, engine: str) -> str:
        path = PurePath(engine)
        if path.name not in ENGINES or ("/" in engine and not path.is_absolute()):
            raise ValueError("must be podman or docker, or an absolute path that ends with one of these names")
        return engine

    @field_validator("network")
    @classmethod
    def _check_network(cls, network: str) -> str:
        if network == "host":
            raise ValueError("must not be host, because a container would then reach every service of this machine")
        return network

    @model_validator(mode="after")
    def _check_destinations(self) -> Self:
        if self.network != "none" and self.network_allow:
            raise ValueError("must have network none with network_allow, because a network reaches more")
        check_destinations(self.network_allow, self.network_private)
        return self

    def refuse_unlimited_network(self, account: UnixAccount | None) -> None:
        """Raises `Invalid` if this process can't limit containers to `network_allow`."""
        if not self.network_allow:
            return
        if sys.platform != "linux":
            raise Invalid("The network_allow of a container needs Linux. Remove it from the runner.")
        uid = os.geteuid() if account is None else account.uid
        if PurePath(self.engine).name == "docker" and uid != 0:
            raise Invalid(
                "The network_allow of a container of Docker needs a service that runs as root, and a runner without "
                "user: only root can enter the network of such a container. Use the engine podman, or bubblewrap."
            )

    @property
    def network_text(self) -> str:
        """What a container reaches, for people."""
        return destinations_text(self.network_allow) if self.network_allow else f"network {self.network}"

    @property
    def client(self) -> Program:
        """The engine's client."""
        return Program(self.engine, "engine")

    @property
    def parts_of_summary(self) -> tuple[str, ...]:
        return (
            f"by {self.engine}",
            f"{self.cpus:g} processors",
            f"{self.memory_mb:,} MiB",
            f"{self.processes_max:,} processes",
            self.network_text,
        )


class ContainerSettings(ProcessSettings, ContainerOptions):
    """The settings of a command that performs runs in containers."""

    kind: Literal["container"] = Field(
        default="container", description="`container` starts a command in a new container."
    )
    argv: CommandLine = Field(description="The program and its arguments.")

    def secret_rule(self) -> RunSecretRule:
        return without_variables_of_the_engine(ProcessSettings.secret_rule(self))

    def refuse_unusable(self) -> None:
        ProcessSettings.refuse_unusable(self)
        self.refuse_unlimited_network(self._account())

    def prepare_host(self, packages: Path) -> None:
        refuse_comma(packages)
        ProcessSettings.prepare_host(self, packages)

    def examine(self, packages: Path) -> str:
        refuse_comma(packages)
        self.refuse_unlimited_network(self._account())
        program = self._examine_program(packages, self.client)
        limit = f"for at most {self.time_limit_seconds:,} s"
        return f"starts containers of {self.image} with {program}, with {self.network_text}, {limit}"

    def create_runner(self, context: RunnerContext) -> ContainerRunner:
        return ContainerRunner(argv=self.argv, container=self, program=self.client, **self._runner_options(context))

    def summary(self) -> str:
        program, *arguments = self.argv
        return self._summary(f"{program} in {self.image}", *count_of_arguments(arguments), *self.parts_of_summary)


def without_variables_of_the_engine(rule: RunSecretRule) -> RunSecretRule:
    """The rule without the variables that the engine's client reads. It gets the secrets of a run, too."""
    return replace(rule, forbidden=(*rule.forbidden, "DOCKER_*", "CONTAINER_*", "CONTAINERS_*", "PODMAN_*"))


def refuse_comma(packages: Path) -> None:
    """Raises `Invalid` if no mount can have this path."""
    if "," in str(packages):
        raise Invalid(
            f"The path {packages} has a comma, which separates the options of a mount. Set HOOKMILL_DATA_DIR to "
            "another place."
        )
