"""The kind `command`: it executes the operator's command in the package's directory."""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.moment import iso
from hookmill.domain.run import ByDelivery, BySchedule, Ended, Run, RunState
from hookmill.domain.run_outputs import OUTPUTS_DIRECTORY, SUMMARY_FILE
from hookmill.domain.run_secrets import DEFAULT_ALLOWED, RunSecretRule, allowed_pattern
from hookmill.domain.text import printable
from hookmill.runs.outputs import collect_outputs, create_outputs_directory
from hookmill.runs.package import Package, allow_traversal, hand_over, keep_results, make_packages_directory
from hookmill.runs.reserve import ReserveWatch, WatchedCommand
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction, reason_of
from hookmill.runs.runners.account import UnixAccount, own_home, unix_account
from hookmill.runs.runners.bubblewrap import BubblewrapSettings
from hookmill.runs.runners.guard import (
    ENDED_BY_TIME_LIMIT,
    ENDED_BY_WORKER,
    KILL_SECONDS,
    OUTPUT_FILE,
    TAIL_BYTES,
    descendants_of,
    kill_descendants,
    kill_processes_of_runs,
)
from hookmill.runs.runners.guard_server import Guard, guards
from hookmill.runs.runners.kind import CommandLine, RunnerContext, RunnerSettings, SystemText, refuse_nul
from hookmill.runs.runners.programs import Program
from hookmill.runs.runners.run_variables import RunVariable
from hookmill.sandbox import DISK_LIMIT, NOT_STARTED
from hookmill.sandbox.cgroup import enter_own_cgroup, remove_cgroup
from hookmill.sandbox.disk import disk_use

INSTRUCTION_SECONDS: Final = 0.5
"""The time between two calls of `next_instruction`."""
TRACE_VARIABLE: Final = "TRACEPARENT"
"""The variable from which OpenTelemetry's command line tools and SDKs read the trace to continue."""
INHERITED_VARIABLES: Final = ("PATH", "HOME", "LANG", "TZ")
"""The service's variables that every command receives."""
MARGIN_SECONDS: Final = 15.0
"""The time that a guard gets in addition to the command's time limit and two grace periods. A guard that takes longer
counts as hanging."""
EXIT_SECONDS: Final = 15.0
"""The time that a guard gets to exit after its report."""
KEPT_BYTES: Final = 16 * 1024 * 1024
"""How much a run keeps that was ended because it used too much of this host."""
NOT_STARTED_REASON: Final = "The command could not be started in its sandbox. The output has bubblewrap's message."
CANCELLED_REASON: Final = "It was cancelled while it ran."


@dataclass(frozen=True, slots=True)
class _GuardResult:
    """How a guard ended its work."""

    instruction: Instruction
    """The service's last instruction. The guard learns only that it must end the command, not why."""
    report: bytes | None
    """The report, as JSON. Empty or cut short if the guard ended early; None if the guard exceeded its deadline."""


@dataclass(frozen=True, kw_only=True)
class CommandRunner:
    """Runs `argv` in the package's directory, without a shell, with a restricted environment.

    No text of the payload reaches the command line or the environment. About the run, they hold only ids, paths, the
    number of the attempt, and the name and time of its schedule.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Additional variables for the command, from the configuration."""
    pass_environment: tuple[str, ...] = ()
    """Names of the service's variables that the command receives, besides PATH, HOME, LANG and TZ."""
    time_limit_seconds: float = 3600
    grace_seconds: float = 10
    """The time between SIGTERM and SIGKILL. After SIGKILL, the guard waits as long again."""
    output_bytes_max: int = 1_048_576
    """The size at which the output file is full. Further output is dropped, except for its end."""
    account: UnixAccount | None = None
    """The account that the command runs as; None: the service's account."""
    open_files_max: int | None = None
    """The soft limit of the command's open files; None: the service's limit."""
    standard_input: str | None = None
    """The file of the package that the command gets as standard input; None: standard input is empty."""
    masked_variables: tuple[str, ...] = ()
    """Names of variables in the command's environment whose values the output must not contain."""
    tail_bytes: int = TAIL_BYTES
    """How much of the end of the output the guard reports. The result has at most `TAIL_BYTES` of it."""
    sandbox: BubblewrapSettings | None = None
    """The sandbox of each run; None: the command sees the host."""
    reserve_watch: ReserveWatch | None = None
    """Ends commands that use too much of this host; None: nothing does."""
    program: Program | None = None
    """What this host starts, for the reason of a run if it is missing; None: the first of `argv`."""

    def end_earlier_attempts(self, run: Run) -> None:
        kill_processes_of_runs(run_id(run.id), attempt_max=run.attempt)

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        self._create_outputs_directory(package)
        with self._watched(package) as watched:
            result = self._run_command(package, next_instruction, watched)
            return self._with_outputs(package, self._within_limits(package, result, watched))

    @contextlib.contextmanager
    def _watched(self, package: Package) -> Iterator[WatchedCommand]:
        """The command of this run, which is ended if it uses too much of this host."""
        cgroup = self.sandbox.cgroup(_sandbox_name(package.run)) if self.sandbox is not None else None
        command = WatchedCommand(
            directories=[str(package.directory)],
            shared_directories=self.sandbox.writable if self.sandbox is not None else (),
            cgroup=cgroup,
        )
        try:
            with contextlib.nullcontext() if self.reserve_watch is None else self.reserve_watch.watching(command):
                yield command
        finally:
            if cgroup is not None:
                # The guard removes it, unless it was killed or could not start the command.
                with contextlib.suppress(OSError):
                    remove_cgroup(cgroup)

    def _within_limits(self, package: Package, result: Ended | Abandoned, watched: WatchedCommand) -> Ended | Abandoned:
        """The result, and a package that has no more than it may have. All processes have ended."""
        bytes_max = self.sandbox.disk_bytes_max if self.sandbox is not None else None
        fault = self.reserve_watch.fault_of(watched) if self.reserve_watch is not None else None
        if isinstance(fault, HostFault) and isinstance(result, Ended) and result.state is RunState.SUCCEEDED:
            # It had ended before it could be stopped.
            fault = None
        if fault is not None:
            bytes_max = min(bytes_max or KEPT_BYTES, KEPT_BYTES)
        elif bytes_max is None or disk_use([str(package.directory)], bytes_max=bytes_max, repairs=True).is_within(
            bytes_max
        ):
            return result
        elif self.sandbox is not None:
            fault = self.sandbox.reason_of_end(DISK_LIMIT)
        # What can't be removed now is removed by retention.
        with contextlib.suppress(OSError):
            keep_results(package.directory, bytes_max)
        if isinstance(result, Abandoned) or result.state is RunState.CANCELLED:
            return result
        if isinstance(fault, HostFault):
            raise fault
        return replace(result, state=RunState.FAILED, reason=fault)

    def _create_outputs_directory(self, package: Package) -> None:
        try:
            create_outputs_directory(package.directory)
        except OSError as error:
            raise HostFault(f"A run's directory for outputs could not be created: {reason_of(error)}.") from error

    def _with_outputs(self, package: Package, result: Ended | Abandoned) -> Ended | Abandoned:
        """The result with the texts that the command has written. Call it when all its processes have ended."""
        if isinstance(result, Abandoned):
            return result
        outputs = collect_outputs(package.directory, self._secrets_to_mask(package))
        # With a summary in a file, an agent's last message is no summary, so it is dropped.
        return replace(result, outputs=outputs if SUMMARY_FILE in outputs else {**result.outputs, **outputs})

    def _secrets_to_mask(self, package: Package) -> list[bytes]:
        environment = self._environment(package)
        masked = (*self.masked_variables, *package.secrets)
        return [os.fsencode(environment[name]) for name in masked if name in environment]

    def _run_command(
        self, package: Package, next_instruction: NextInstruction, watched: WatchedCommand
    ) -> Ended | Abandoned:
        try:
            guard = self._start_guard(package)
        except (OSError, MemoryError) as error:
            path = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            raise HostFault(f"The command of a run could not be started: {path}{reason_of(error)}.") from error
        watched.processes = partial(descendants_of, guard.pid)
        # The time that the guard gets to exit before it is killed: none, unless it has reported.
        exit_seconds = 0.0
        try:
            guard_result = self._wait_for_report(guard, next_instruction)
            if guard_result.report is not None:
                exit_seconds = EXIT_SECONDS
        except (OSError, MemoryError) as error:
            raise HostFault(
                f"The service could not wait for a command: {reason_of(error)}.", counts_as_attempt=True
            ) from error
        finally:
            _end_guard(guard, package.run, exit_seconds)
        if guard_result.instruction is Instruction.ABANDON:
            return Abandoned()
        if guard_result.report is None:
            if guard_result.instruction is Instruction.CANCEL:
                return Ended(state=RunState.CANCELLED, reason=CANCELLED_REASON)
            return Ended(state=RunState.FAILED, reason=self._timeout_reason)
        try:
            report = json.loads(guard_result.report)
        except ValueError:
            # A negative return code means that a signal ended the guard. Otherwise, the guard itself has a fault, or it
            # has not ended in time (None).
            if guard.returncode is None or guard.returncode >= 0:
                raise HostFault(
                    "The process that guards a command ended with a fault.", counts_as_attempt=True
                ) from None
            return Ended(
                state=RunState.FAILED,
                reason="The process that guards the command was killed, so the command was ended.",
            )
        return self._result_from(package, guard_result.instruction, report)

    @property
    def _timeout_reason(self) -> str:
        return f"The command was ended after its time limit of {self.time_limit_seconds:g} s."

    @property
    def _other_account(self) -> UnixAccount | None:
        """The command's account, if it is not the service's own."""
        return None if self.account is None or self.account.is_own else self.account

    def _start_guard(self, package: Package) -> Guard:
        other_account = self._other_account
        working_directory = self._working_directory(package)
        if other_account is not None and package.workspace is not None:
            hand_over(package.workspace, other_account.uid, other_account.gid)
        spec = {
            "argv": self._argv(package),
            "directory": str(package.directory),
            "user": None
            if other_account is None
            else {"name": other_account.name, "uid": other_account.uid, "gid": other_account.gid},
            "time_limit_seconds": self.time_limit_seconds,
            "grace_seconds": self.grace_seconds,
            "output_bytes_max": self.output_bytes_max,
            "open_files_max": self.open_files_max,
            "working_directory": working_directory,
            "standard_input": self.standard_input,
            "masked_variables": (*self.masked_variables, *package.secrets),
            "tail_bytes": self.tail_bytes,
            "sandbox": sandbox.spec(package.directory, name=_sandbox_name(package.run), start=working_directory)
            if (sandbox := self.sandbox) is not None
            else None,
            "network": self._network(package),
        }
        return guards.start_guard(
            run_id(package.run.id),
            package.run.attempt,
            spec,
            directory=package.directory,
            environment=self._environment(package),
        )

    def _argv(self, package: Package) -> tuple[str, ...]:
        """What this host starts for this run."""
        return self._command(package)

    def _command(self, package: Package) -> tuple[str, ...]:
        """The program and its arguments for this run."""
        return self.argv

    def _directory(self, package: Package) -> PurePath:
        """Where the command sees the package."""
        return package.directory

    def _starts_in_workspace(self, package: Package) -> bool:
        """Whether the program starts in the workspace, and not in the package."""
        return False

    def _working_directory(self, package: Package) -> str | None:
        """Where this host starts the program; None: in the package."""
        return str(package.workspace) if self._starts_in_workspace(package) else None

    def _network(self, package: Package) -> dict[str, Any] | None:
        """The network that exists before the program starts, as the guard needs it; None: there is none."""
        return None

    def _environment(self, package: Package) -> dict[str, str]:
        inherited = (*INHERITED_VARIABLES, *self.pass_environment)
        return {
            **{name: os.environ[name] for name in inherited if name in os.environ},
            **own_home(),
            **(self.account.variables if self.account is not None else {}),
            **(self.sandbox.environment(self.environment) if self.sandbox is not None else {}),
            **self.environment,
            **_variables_about_run(package),
            **({TRACE_VARIABLE: package.traceparent} if package.traceparent is not None else {}),
            **{variable: value.reveal() for variable, value in package.secrets.items()},
        }

    def _wait_for_report(self, guard: Guard, next_instruction: NextInstruction) -> _GuardResult:
        """Pass instructions on to the guard until it has reported, has ended, or has exceeded its deadline."""
        instruction = Instruction.CONTINUE
        # The guard needs up to two grace periods to end the command: one after SIGTERM, and one after SIGKILL.
        stop_seconds = 2 * self.grace_seconds + MARGIN_SECONDS
        deadline = time.monotonic() + self.time_limit_seconds + stop_seconds
        # select() fails with descriptors above 1,023, which a process with many open files has.
        poll = select.poll()
        poll.register(guard, select.POLLIN)
        while True:
            remaining = deadline - time.monotonic()
            if poll.poll(max(0, min(INSTRUCTION_SECONDS, remaining)) * 1000):
                if not guard.receive() or guard.report is not None:
                    return _GuardResult(instruction, guard.report or b"")
            elif remaining <= 0:
                return _GuardResult(instruction, None)
            elif instruction is not Instruction.ABANDON:
                # After CANCEL, the loop continues to ask, because ABANDON may follow.
                latest_instruction = next_instruction()
                if latest_instruction is Instruction.CONTINUE:
                    continue
                instruction = latest_instruction
                guard.end_input()
                deadline = min(deadline, time.monotonic() + stop_seconds)

    def _result_from(self, package: Package, instruction: Instruction, report: dict[str, Any]) -> Ended:
        """The run's result from the guard's report. Raises `HostFault`."""
        if "host_fault" in report:
            if self.sandbox is not None and (missing := self.sandbox.missing_program(self._search_path(package))):
                raise HostFault(missing)
            raise HostFault(f"The command {self.argv[0]!r} could not be started: {report['host_fault']}.")
        if "start_error" in report:
            reason = f"The command {self.argv[0]!r} could not be started: {report['start_error']}."
            return Ended(state=RunState.FAILED, reason=self._program_problem(package) or reason)
        status: int = report["exit_status"]
        # JSON has no bytes, so the guard sends each byte as a character of Latin-1.
        tail = _printable(report["tail"].encode("latin-1")[-TAIL_BYTES:])
        if report["missing_bytes"]:
            tail += f"\n[{report['missing_bytes']} bytes before the end of the output are missing in {OUTPUT_FILE}]"
        result = Ended(state=RunState.FAILED, exit_status=status, output_tail=tail)
        if report["ended_by"] == ENDED_BY_TIME_LIMIT:
            return replace(result, reason=self._timeout_reason)
        if report["ended_by"] == ENDED_BY_WORKER and instruction is Instruction.CANCEL:
            return replace(result, state=RunState.CANCELLED, reason=CANCELLED_REASON)
        if self.sandbox is not None:
            if (limit_reason := self.sandbox.reason_of_end(report["ended_by"])) is not None:
                return replace(result, reason=limit_reason)
            if status == NOT_STARTED and report["ended_by"] is None:
                return replace(result, reason=self._program_problem(package) or NOT_STARTED_REASON)
        if status < 0:
            return replace(result, reason=f"The command was ended by {_signal_name(-status)}.")
        if status > 0:
            reason = f"The command exited with status {status}."
            # With these, `env` and shells report a program that they can't start.
            problem = self._program_problem(package) if status in (126, 127) else None
            return replace(result, reason=f"{reason} {problem}" if problem is not None else reason)
        return replace(result, state=RunState.SUCCEEDED)

    def _program_problem(self, package: Package) -> str | None:
        """Why the program could not be started, as `hookmill doctor` says it. None if doctor finds nothing, too."""
        program = self.program or Program(self.argv[0], "argv")
        search_path = self._search_path(package)
        try:
            text = program.problem(search_path, self.account)
        except (Invalid, OSError):
            return None
        if text is None and self.sandbox is not None and (path := program.path_in(search_path)) is not None:
            text = self.sandbox.problem_of(path)
        return f"The runner {package.run.runner}: {text}" if text is not None else None

    def _search_path(self, package: Package) -> str:
        return self._environment(package).get("PATH", os.defpath)


class ProcessSettings(RunnerSettings):
    """The settings that are common to all kinds of runners that start a program in the directory of the package."""

    uses_workspace: ClassVar[bool] = True

    time_limit_seconds: int = Field(
        default=3600, ge=1, le=7 * 86_400, description="After this time, the command and all its processes are ended."
    )
    environment: dict[SystemText, SystemText] = Field(
        default_factory=dict, description="Variables to add to the command's environment."
    )
    pass_environment: tuple[SystemText, ...] = Field(
        default=(), description="Names of the service's environment variables to pass to the command."
    )
    output_bytes_max: int = Field(
        default=1_048_576,
        ge=1_024,
        description="How much output is stored: of a longer one, the beginning and the last 4 KiB.",
    )
    secrets_allowed: tuple[Annotated[str, AfterValidator(allowed_pattern)], ...] = Field(
        default=DEFAULT_ALLOWED,
        description="The variables in which runs may get secrets: names, or patterns with `*`. Empty: none.",
    )
    user: Annotated[Annotated[int, Field(ge=0, strict=True)] | str | None, AfterValidator(refuse_nul)] = Field(
        default=None,
        description="The account that the command runs as, by name or number. Only a service that runs as root can use "
        "another account. Unset: the service's account.",
    )

    @field_validator("environment")
    @classmethod
    def _check_variables(cls, variables: dict[str, str]) -> dict[str, str]:
        if any(not name or "=" in name for name in variables):
            raise ValueError("must have variable names that are not empty and do not contain =")
        return variables

    def refuse_unusable(self) -> None:
        # The worker creates the runner in the same way.
        self.create_runner(RunnerContext())

    def secret_rule(self) -> RunSecretRule:
        return RunSecretRule(allowed=self.secrets_allowed, set_variables=self._set_variables())

    def _set_variables(self) -> frozenset[str]:
        """The variables of the command that the settings set."""
        return frozenset((*self.environment, *self.pass_environment))

    def variables_of_service(self) -> tuple[str, ...]:
        return self.pass_environment

    def prepare_host(self, packages: Path) -> None:
        """Give the account of the command access to its packages."""
        account = self._account()
        if account is None or account.is_own:
            return
        try:
            make_packages_directory(packages)
            allow_traversal(packages)
            account.check_reachable(packages)
        except OSError as error:
            raise Invalid(
                f"{packages.parent} can't be prepared for its user: {reason_of(error)} ({error.filename}). Repair it, "
                "or remove the runner's user."
            ) from None

    def _examine_program(self, packages: Path, program: Program) -> str:
        """The path of a program that the runner's account can execute, and the account, for `hookmill doctor`.

        Raises `Invalid`.
        """
        account = self._account()
        is_other = account is not None and not account.is_own
        # The start of the service lets the account pass the data directory, but not the directories above it.
        above_data = packages.parent.parent
        if account is not None and is_other and above_data.exists():
            account.check_reachable(above_data)
        if (problem := program.problem(self._search_path, account)) is not None:
            raise Invalid(problem)
        path = program.path_in(self._search_path)
        return f"{path} as {account.name}" if account is not None else str(path)

    @property
    def _search_path(self) -> str:
        return self.environment.get("PATH", os.environ.get("PATH", os.defpath))

    def _summary(self, *parts: str) -> str:
        """These parts, then those of the settings here. Variables are only named: their values may be credentials."""
        variable_names = [*sorted(self.environment), *self.pass_environment]
        return ", ".join(
            (
                *parts,
                *([f"as {self.user}"] if self.user is not None else []),
                f"at most {self.time_limit_seconds} s",
                f"keeps {self.output_bytes_max:,} bytes of output",
                *([f"with {', '.join(variable_names)}"] if variable_names else []),
            )
        )

    def _runner_options(self, context: RunnerContext) -> dict[str, Any]:
        """What these settings say about the runner."""
        return {
            "time_limit_seconds": self.time_limit_seconds,
            "environment": self.environment,
            "pass_environment": self.pass_environment,
            "output_bytes_max": self.output_bytes_max,
            "account": self._account(),
            "open_files_max": context.open_files_max,
            "reserve_watch": context.reserve_watch,
        }

    def _account(self) -> UnixAccount | None:
        return unix_account(self.user) if self.user is not None else None


def count_of_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """The number of arguments, for a summary: their values may be credentials. Empty if there are none."""
    count = len(arguments)
    return (f"{count} argument{'s' if count > 1 else ''}",) if count else ()


class SandboxableSettings(ProcessSettings):
    """The settings of programs that may have a sandbox of bubblewrap."""

    sandbox: Literal["none", "bubblewrap", "container"] = Field(
        default="none",
        description="What separates the command from the host. `none`; `bubblewrap`: a sandbox for each attempt; "
        "`container`: a container for each attempt (agents only).",
    )
    bubblewrap: BubblewrapSettings | None = Field(
        default=None, description="What the sandbox of bubblewrap contains, and its limits. Unset: the defaults."
    )

    @model_validator(mode="after")
    def _check_sandbox(self) -> Self:
        if self.bubblewrap is not None and self.sandbox != "bubblewrap":
            raise ValueError('must have sandbox = "bubblewrap" with bubblewrap')
        return self

    @property
    def is_isolated(self) -> bool:
        return self.sandbox != "none"

    def warning(self) -> str | None:
        if not self.is_isolated:
            return "its commands have no sandbox: see docs/isolation.md for what they can reach"
        return sandbox.warning if (sandbox := self._sandbox) is not None else None

    def refuse_unusable(self) -> None:
        ProcessSettings.refuse_unusable(self)
        if (sandbox := self._sandbox) is not None:
            sandbox.refuse_unusable(self._account())

    def prepare_host(self, packages: Path) -> None:
        ProcessSettings.prepare_host(self, packages)
        if (sandbox := self._sandbox) is not None:
            enter_own_cgroup()
            sandbox.refuse_unlimited()
            sandbox.check_paths(packages.parent)
            sandbox.try_out(self._account())

    @property
    def _sandbox(self) -> BubblewrapSettings | None:
        return (self.bubblewrap or BubblewrapSettings()) if self.sandbox == "bubblewrap" else None

    def _examine_sandbox(self, packages: Path, program: Program) -> str:
        """What separates the command from the host, for `hookmill doctor`. Raises `Invalid`."""
        sandbox = self._sandbox
        if sandbox is None:
            return "without a sandbox"
        sandbox.refuse_unusable(self._account())
        sandbox.check_paths(packages.parent)
        sandbox.try_out(self._account())
        path = program.path_in(self._search_path)
        if path is not None and (problem := sandbox.problem_of(path)) is not None:
            raise Invalid(problem)
        return f"in a sandbox of bubblewrap {sandbox.limits_text}, with {sandbox.network_text}"

    def _sandbox_summary(self) -> str:
        sandbox = self._sandbox
        if sandbox is None:
            return "no sandbox"
        return f"in bubblewrap {sandbox.limits_text}, with {sandbox.network_text}"


class CommandSettings(SandboxableSettings):
    """The settings of a command that performs runs. It starts in the run's package directory; no shell is involved."""

    kind: Literal["command"] = Field(
        default="command", description="`command` starts a command in the run's package directory."
    )
    argv: CommandLine = Field(description="The program and its arguments.")

    @field_validator("sandbox")
    @classmethod
    def _refuse_container(cls, sandbox: str) -> str:
        if sandbox == "container":
            raise ValueError('must be none or bubblewrap; for a command in a container, set kind = "container"')
        return sandbox

    def examine(self, packages: Path) -> str:
        program = self._examine_program(packages, Program(self.argv[0], "argv"))
        sandbox = self._examine_sandbox(packages, Program(self.argv[0], "argv"))
        return f"starts {program} {sandbox}, for at most {self.time_limit_seconds:,} s"

    def create_runner(self, context: RunnerContext) -> CommandRunner:
        return CommandRunner(argv=self.argv, sandbox=self._sandbox, **self._runner_options(context))

    def summary(self) -> str:
        program, *arguments = self.argv
        return self._summary(program, *count_of_arguments(arguments), self._sandbox_summary())


def _end_guard(guard: Guard, run: Run, exit_seconds: float) -> None:
    """Wait for the guard's exit. If it takes longer than `exit_seconds`, kill it and its command."""
    guard.end_input()
    try:
        guard.wait(exit_seconds)
    except TimeoutError:
        kill_descendants(guard.pid)
        guard.kill()
        with contextlib.suppress(TimeoutError):
            guard.wait(KILL_SECONDS)
    guard.close()
    # The return code is None (still running), negative (a signal) or positive (an error): the guard did not end the
    # command's processes itself.
    if guard.returncode != 0:
        kill_processes_of_runs(run_id(run.id), attempt_max=run.attempt)


def _sandbox_name(run: Run) -> str:
    return f"{run_id(run.id)}-{run.attempt}"


def _variables_about_run(package: Package) -> dict[str, str]:
    run = package.run
    variables: dict[str, str] = {
        RunVariable.RUN_ID: run_id(run.id),
        RunVariable.ATTEMPT: str(run.attempt),
        RunVariable.AUTOMATION: run.automation_id,
        RunVariable.PROMPT_FILE: str(package.prompt_file),
        RunVariable.ENVELOPE_FILE: str(package.envelope_file),
        RunVariable.OUTPUTS_DIR: str(package.directory / OUTPUTS_DIRECTORY),
    }
    if package.workspace is not None:
        variables[RunVariable.WORKSPACE] = str(package.workspace)
    if run.has_payload:
        variables[RunVariable.PAYLOAD_FILE] = str(package.payload_file)
    if isinstance(run.started_by, ByDelivery):
        variables[RunVariable.DELIVERY_ID] = delivery_id(run.started_by.delivery_key)
        variables[RunVariable.WEBHOOK] = run.started_by.webhook_uid
    elif isinstance(run.started_by, BySchedule):
        variables[RunVariable.SCHEDULE] = run.started_by.name
        variables[RunVariable.SCHEDULED_AT] = iso(run.started_by.scheduled_at)
    return variables


def _printable(output: bytes) -> str:
    """The output as text. Control and invisible characters, except line breaks and tabs, are replaced."""
    return printable(output.decode("utf-8", "replace").replace("\r\n", "\n"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
