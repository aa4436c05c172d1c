"""The kind `container`: it runs a command in a new container of Docker or Podman for each attempt.

The engine's client is a command like any other, so the guard limits its time and its output. A container of Docker is
no descendant of the client, so it is removed by its name whenever the client did not end by itself.

With `network_allow`, a pause container has the network: see `sandbox/pause_container.py`.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import run_id
from hookmill.domain.run import Ended, Run, RunState
from hookmill.domain.run_files import WORKSPACE_DIRECTORY
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """The resources that a container may use."""

    cpus: float = 1.0
    memory_mb: int = 2_048
    """With swap: a container gets no swap in addition."""
    processes_max: int = 256
    network: str = "none"
    network_allow: tuple[str, ...] = ()
    """The destinations that a container without a network reaches through a proxy."""
    network_private: tuple[str, ...] = ()

    @property
    def network_text(self) -> str:
        return destinations_text(self.network_allow) if self.network_allow else f"network {self.network}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPaths:
    """Where the command finds the directories that it can change. The package is at `PACKAGE_PATH`."""

    outputs: str
    workspace: str


COMMAND_PATHS: Final = ContainerPaths(outputs="/output", workspace="/workspace")
AGENT_PATHS: Final = ContainerPaths(
    outputs=f"{PACKAGE_PATH}/{OUTPUTS_DIRECTORY}", workspace=f"{PACKAGE_PATH}/{WORKSPACE_DIRECTORY}"
)
"""As without a container, so that prompts with relative paths work in both."""


def container_arguments(
    *,
    engine: str,
    image: str,
    argv: Iterable[str],
    limits: ContainerLimits,
    name: str,
    run: str,
    package: PurePath,
    workspace: PurePath | None = None,
    paths: ContainerPaths = COMMAND_PATHS,
    starts_in: str = PACKAGE_PATH,
    reads_input: bool = False,
    user: str,
    environment: Mapping[str, str],
    inherited_variables: Iterable[str],
) -> tuple[str, ...]:
    """The command line of the engine's client.

    `package`: the path of the package, without a comma. `reads_input`: whether the command gets the client's standard
    input. `user`: the user and group in the container. `environment`: variables whose values the arguments may show.
    `inherited_variables`: the container gets the client's values.
    """
    return (
        engine,
        "run",
        "--rm",
        *(["--interactive"] if reads_input else []),
        f"--name={name}",
        f"--label=hookmill.run={run}",
        f"--network={f'container:{pause_container_name(name)}' if limits.network_allow else limits.network}",
        *_restrictions(limits, user),
        f"--mount=type=bind,src={package},dst={PACKAGE_PATH},readonly",
        f"--mount=type=bind,src={package / OUTPUTS_DIRECTORY},dst={paths.outputs}",
        *([f"--mount=type=bind,src={workspace},dst={paths.workspace}"] if workspace is not None else []),
        f"--workdir={starts_in}",
        *(f"--env={variable}={value}" for variable, value in environment.items()),
        *(f"--env={variable}" for variable in inherited_variables),
        image,
        *argv,
    )


def pause_arguments(
    *, engine: str, image: str, limits: ContainerLimits, name: str, run: str, user: str
) -> tuple[str, ...]:
    """The command line that starts the container whose network the container `name` joins. It has only a loopback."""
    program, *arguments = PAUSE_ARGV
    return (
        engine,
        "run",
        "--rm",
        "--detach",
        f"--name={pause_container_name(name)}",
        f"--label=hookmill.run={run}",
        "--network=none",
        *_restrictions(limits, user),
        "--workdir=/",
        f"--entrypoint={program}",
        image,
        *arguments,
    )


def _restrictions(limits: ContainerLimits, user: str) -> tuple[str, ...]:
    memory = f"{limits.memory_mb}m"
    return (
        f"--cpus={limits.cpus:g}",
        f"--memory={memory}",
        f"--memory-swap={memory}",
        f"--pids-limit={limits.processes_max}",
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        f"--user={user}",
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRunner(CommandRunner):
    """Runs `argv` in a container that sees the package, the workspace, a directory for its output, and nothing else."""

    engine: str
    image: str
    limits: ContainerLimits
    paths: ContainerPaths = COMMAND_PATHS

    def end_earlier_attempts(self, run: Run) -> None:
        CommandRunner.end_earlier_attempts(self, run)
        first = max(1, run.attempt - REMOVED_NAMES_MAX + 1)
        # After a fault of the host, the attempt may have the same number again.
        self._remove([container_name(run, attempt) for attempt in range(first, run.attempt + 1)])

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        self._create_outputs_directory(package)
        with self._watched(package) as watched:
            result = self._run_container(package, next_instruction, watched)
            return self._with_outputs(package, self._within_limits(package, result, watched))

    def _run_container(
        self, package: Package, next_instruction: NextInstruction, watched: WatchedCommand
    ) -> Ended | Abandoned:
        result: Ended | Abandoned | None = None
        try:
            result = self._run_command(package, next_instruction, watched)
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
        egress = egress_spec(self.limits.network_allow, self.limits.network_private)
        if egress is None:
            return None
        name = container_name(package.run, package.run.attempt)
        pause = pause_arguments(
            engine=self.engine,
            image=self.image,
            limits=self.limits,
            name=name,
            run=run_id(package.run.id),
            user=self._user,
        )
        inspect = (self.engine, "container", "inspect", "--format={{.State.Pid}}", pause_container_name(name))
        return {"pause": pause, "inspect": inspect, "egress": egress}

    def _argv(self, package: Package) -> tuple[str, ...]:
        variables = self._environment(package)
        own_environment: dict[str, str] = {"HOME": "/tmp", RunVariable.OUTPUTS_DIR: self.paths.outputs}  # noqa: S108 - in the container
        if self.limits.network_allow:
            configured = {*self.environment, *self.pass_environment, *package.secrets}
            own_environment |= {name: url for name, url in proxy_variables().items() if name not in configured}
        for name in _NAMES_OF_FILES:
            if name in variables:
                own_environment[name] = f"{PACKAGE_PATH}/{PurePath(variables[name]).name}"
        if RunVariable.WORKSPACE in variables:
            own_environment[RunVariable.WORKSPACE] = self.paths.workspace
        not_inherited = _VARIABLES_OF_THE_HOST.difference(self.environment, self.pass_environment, package.secrets)
        return container_arguments(
            engine=self.engine,
            image=self.image,
            argv=self._contained_argv(package),
            limits=self.limits,
            name=container_name(package.run, package.run.attempt),
            run=run_id(package.run.id),
            package=package.directory,
            workspace=package.workspace,
            paths=self.paths,
            starts_in=self._starts_in(package),
            reads_input=self.standard_input is not None,
            user=self._user,
            environment=own_environment,
            inherited_variables=[name for name in variables if name not in {*own_environment, *not_inherited}],
        )

    def _contained_argv(self, package: Package) -> tuple[str, ...]:
        """The program in the container, and its arguments for this run."""
        return self.argv

    def _starts_in(self, package: Package) -> str:
        """The directory in the container where the program starts."""
        return PACKAGE_PATH

    @property
    def _user(self) -> str:
        """The user in the container who owns the package.

        In Podman's containers, root is the account that has started Podman. Docker's containers have the host's users.
        """
        if PurePath(self.engine).name == "podman":
            return "0:0"
        if self.account is not None:
            return f"{self.account.uid}:{self.account.gid}"
        return f"{os.geteuid()}:{os.getegid()}"

    def _result_from(self, package: Package, instruction: Instruction, report: dict[str, Any]) -> Ended:
        result = CommandRunner._result_from(self, package, instruction, report)
        if result.exit_status == ENGINE_FAILED and result.state is RunState.FAILED and report["ended_by"] is None:
            return replace(result, reason=self._not_started_reason)
        return result

    @property
    def _not_started_reason(self) -> str:
        if self.limits.network_allow:
            return "The container could not be started with its network_allow. The output says why."
        return "The container could not be started. The output has the engine's message."

    def _remove(self, names: Sequence[str]) -> None:
        """Remove containers that may exist, their pause containers, and the processes in them. Raises `OSError` if the
        engine does not answer."""
        self._remove_containers(names)
        self._remove_pause_containers(names)

    def _remove_pause_containers(self, names: Sequence[str]) -> None:
        # Podman removes no container whose network another one uses, so these follow.
        if self.limits.network_allow:
            self._remove_containers([pause_container_name(name) for name in names])

    def _remove_containers(self, names: Sequence[str]) -> None:
        account = self._other_account
        options: dict[str, Any] = {}
        if account is not None:
            groups = os.getgrouplist(account.name, account.gid)
            options = {"user": account.uid, "group": account.gid, "extra_groups": groups}
        inherited = ("PATH", *self.pass_environment)
        environment = {name: os.environ[name] for name in inherited if name in os.environ} | own_home()
        if self.account is not None:
            environment["HOME"] = self.account.home
        try:
            # The exit status says nothing: usually there is no such container.
            subprocess.run(
                removal_arguments(self.engine, names),
                env=environment | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVAL_SECONDS,
                cwd="/",
                **options,
            )
        except FileNotFoundError:
            # Without an engine, there are no containers. The command's start reports this.
            return
        except subprocess.TimeoutExpired:
            raise OSError(errno.ETIMEDOUT, f"{self.engine} did not remove a container in time") from None


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
    def limits(self) -> ContainerLimits:
        return ContainerLimits(
            cpus=self.cpus,
            memory_mb=self.memory_mb,
            processes_max=self.processes_max,
            network=self.network,
            network_allow=self.network_allow,
            network_private=self.network_private,
        )

    @property
    def parts_of_summary(self) -> tuple[str, ...]:
        return (
            f"by {self.engine}",
            f"{self.cpus:g} processors",
            f"{self.memory_mb:,} MiB",
            f"{self.processes_max:,} processes",
            self.limits.network_text,
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
        program = self._examine_program(packages, engine_program(self.engine))
        limit = f"for at most {self.time_limit_seconds:,} s"
        return f"starts containers of {self.image} with {program}, with {self.limits.network_text}, {limit}"

    def create_runner(self, context: RunnerContext) -> ContainerRunner:
        return ContainerRunner(
            argv=self.argv,
            engine=self.engine,
            program=engine_program(self.engine),
            image=self.image,
            limits=self.limits,
            time_limit_seconds=self.time_limit_seconds,
            environment=self.environment,
            pass_environment=self.pass_environment,
            output_bytes_max=self.output_bytes_max,
            account=self._account(),
            open_files_max=context.open_files_max,
            reserve_watch=context.reserve_watch,
        )

    def summary(self) -> str:
        program, *arguments = self.argv
        return self._summary(f"{program} in {self.image}", *count_of_arguments(arguments), *self.parts_of_summary)


def engine_program(engine: str) -> Program:
    """The engine's client."""
    return Program(engine, "engine")


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
