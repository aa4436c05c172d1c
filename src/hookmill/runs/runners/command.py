"""The runner that executes the operator's command in the package's directory."""

import contextlib
import errno
import json
import os
import pwd
import select
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import Package
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction, reason_of
from hookmill.runs.runners.guard import CHUNK_BYTES, KILL_SECONDS, RUN_VARIABLE, end_descendants_of, end_processes_of

GUARD: Final = Path(__file__).with_name("guard.py")
WATCH_SECONDS: Final = 0.5
ALWAYS_PASSED_ON: Final = ("PATH", "HOME", "LANG", "TZ")
MARGIN_SECONDS: Final = 15.0
"""How long a guard may take beyond the time limit and two graces. A guard that takes longer was stopped."""
CANCELLED: Final = "It was cancelled while it ran."


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAccount:
    """The account of this host that a command runs as."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_own(self) -> bool:
        """Whether it is the service's own account."""
        return self.uid == os.geteuid()


def unix_account(user: str | int) -> UnixAccount:
    """The account with this name or number. Raises `Invalid` if there is none, or if the service can't use it."""
    try:
        entry = pwd.getpwuid(int(user)) if str(user).isdecimal() else pwd.getpwnam(str(user))
    except (KeyError, OverflowError):
        raise Invalid(
            f"This system has no account {user!r}. Create it, or name another one as the runner's user."
        ) from None
    account = UnixAccount(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir)
    if os.geteuid() != 0 and not account.is_own:
        raise Invalid(
            f"Commands can run as {account.name!r} only if the service runs as root, or as that account itself. "
            "Start it as root, or remove the runner's user."
        )
    return account


_CHDIR_SCRIPT: Final = """
import os, sys
name, uid, gid, directory = sys.argv[1:]
os.initgroups(name, int(gid))
os.setgid(int(gid))
os.setuid(int(uid))
try:
    os.chdir(directory)
except OSError as error:
    print(error.strerror)
"""
CHDIR_SECONDS: Final = 30.0


def check_reachable(packages: Path, account: UnixAccount) -> None:
    """Raises `Invalid` if the account can't search the directory of the packages."""
    arguments = (account.name, str(account.uid), str(account.gid), packages)
    try:
        process = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHDIR_SCRIPT, *arguments],
            capture_output=True,
            text=True,
            timeout=CHDIR_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"The check whether its user can reach {packages} took longer than {CHDIR_SECONDS:g} s."
        ) from None
    reason = process.stdout.strip() or (process.stderr.strip().splitlines() or [""])[-1]
    if reason:
        raise Invalid(
            f"Its user {account.name!r} can't reach {packages}: {reason}. The account must be able to search each "
            "directory above: run chmod o+x on those, or set HOOKMILL_DATA_DIR to another place."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRunner:
    """Runs `argv` in the package's directory, without a shell, with a restricted environment.

    No text of the payload reaches the command line or the environment: they hold only ids and paths.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Additional variables for the command, from the configuration."""
    pass_environment: tuple[str, ...] = ()
    """Names of the service's variables that the command receives, besides PATH, HOME, LANG and TZ."""
    time_limit_seconds: float = 3600
    grace_seconds: float = 10
    """The time between SIGTERM and SIGKILL."""
    output_bytes_max: int = 1_048_576
    account: UnixAccount | None = None
    """The account that the command runs as; None: the service's."""
    open_files_max: int | None = None
    """The soft limit of the command's open files; None: the service's."""

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise Invalid("A command runner needs a command: a list of the program and its arguments.")
        if "/" in self.argv[0] and not self.argv[0].startswith("/"):
            # The working directory is the package's, which holds no program.
            raise Invalid(f"The command {self.argv[0]!r} is a relative path. Give an absolute one, or a name in PATH.")

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        try:
            guard = self._start_guard(package)
        except (OSError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno == errno.E2BIG:
                return Ended(state=RunState.FAILED, reason=f"The command could not be started: {error.strerror}.")
            raise HostFault(f"The command of a run could not be started: {reason_of(error)}.") from error
        patience = 0.0
        try:
            instruction, report = self._wait(guard, next_instruction)
            if report is not None:
                patience = MARGIN_SECONDS
        except (OSError, MemoryError) as error:
            raise HostFault(f"The service could not wait for a command: {reason_of(error)}.", acted=True) from error
        finally:
            _end_guard(guard, run_id(package.run.id), patience)
        if instruction is Instruction.ABANDON:
            return Abandoned()
        if report is None:
            if instruction is Instruction.CANCEL:
                return Ended(state=RunState.CANCELLED, reason=CANCELLED)
            return Ended(state=RunState.FAILED, reason=self._out_of_time)
        try:
            result = json.loads(report)
        except ValueError:
            if guard.returncode >= 0:
                raise HostFault("The process that guards a command ended with a fault.", acted=True) from None
            return Ended(
                state=RunState.FAILED,
                reason="The process that guards the command was killed, so the command was ended.",
            )
        return self._ended(instruction, result)

    @property
    def _out_of_time(self) -> str:
        return f"The command was ended after its time limit of {self.time_limit_seconds:g} s."

    @property
    def _other_account(self) -> UnixAccount | None:
        return None if self.account is None or self.account.is_own else self.account

    def _start_guard(self, package: Package) -> "subprocess.Popen[bytes]":
        other = self._other_account
        spec = {
            "argv": self.argv,
            "directory": str(package.directory),
            "user": None if other is None else {"name": other.name, "uid": other.uid, "gid": other.gid},
            "time_limit_seconds": self.time_limit_seconds,
            "grace_seconds": self.grace_seconds,
            "output_bytes_max": self.output_bytes_max,
            "open_files_max": self.open_files_max,
        }
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), run_id(package.run.id), json.dumps(spec)],
            cwd=package.directory,
            env=self._environment(package),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # An interrupt from the keyboard must reach only the service, which then stops its commands.
            start_new_session=True,
        )

    def _environment(self, package: Package) -> dict[str, str]:
        inherited = (*ALWAYS_PASSED_ON, *self.pass_environment)
        return {
            **{name: os.environ[name] for name in inherited if name in os.environ},
            **(_account_variables(self.account) if self.account is not None else {}),
            **self.environment,
            RUN_VARIABLE: run_id(package.run.id),
            "HOOKMILL_ATTEMPT": str(package.run.attempt),
            "HOOKMILL_DELIVERY_ID": delivery_id(package.run.delivery_id),
            "HOOKMILL_WEBHOOK": package.run.webhook_uid,
            "HOOKMILL_AUTOMATION": package.run.automation_id,
            "HOOKMILL_PROMPT_FILE": str(package.prompt_file),
            "HOOKMILL_ENVELOPE_FILE": str(package.envelope_file),
            "HOOKMILL_PAYLOAD_FILE": str(package.payload_file),
        }

    def _wait(
        self, guard: "subprocess.Popen[bytes]", next_instruction: NextInstruction
    ) -> tuple[Instruction, bytes | None]:
        """The last instruction, and the guard's report as JSON. None: the guard exceeded its deadline."""
        assert guard.stdin is not None
        assert guard.stdout is not None
        report = b""
        instruction = Instruction.CONTINUE
        patience = 2 * self.grace_seconds + MARGIN_SECONDS
        deadline = time.monotonic() + self.time_limit_seconds + patience
        # Not select(): a server with many connections has descriptors above its limit of 1,024.
        poll = select.poll()
        poll.register(guard.stdout, select.POLLIN)
        while True:
            remaining = deadline - time.monotonic()
            if poll.poll(max(0, min(WATCH_SECONDS, remaining)) * 1000):
                chunk = os.read(guard.stdout.fileno(), CHUNK_BYTES)
                if not chunk:
                    return instruction, report
                report += chunk
            elif remaining <= 0:
                return instruction, None
            elif instruction is not Instruction.ABANDON and (latest := next_instruction()) is not Instruction.CONTINUE:
                instruction = latest
                guard.stdin.close()
                deadline = min(deadline, time.monotonic() + patience)

    def _ended(self, instruction: Instruction, result: dict[str, Any]) -> Ended:
        """The guard's result as an end of the run. Raises `HostFault`."""
        if "host_fault" in result:
            raise HostFault(f"The command {self.argv[0]!r} could not be started: {result['host_fault']}.")
        if "start_error" in result:
            reason = f"The command {self.argv[0]!r} could not be started: {result['start_error']}."
            return Ended(state=RunState.FAILED, reason=reason)
        status: int = result["exit_status"]
        tail = _printable(result["tail"].encode("latin-1"))
        if result["dropped_bytes"]:
            tail += f"\n[{result['dropped_bytes']} bytes of output were not kept]"
        ended = Ended(state=RunState.FAILED, exit_status=status, output_tail=tail)
        if result["ending"] == "time":
            return replace(ended, reason=self._out_of_time)
        if result["ending"] == "stop" and instruction is Instruction.CANCEL:
            return replace(ended, state=RunState.CANCELLED, reason=CANCELLED)
        if status < 0:
            return replace(ended, reason=f"The command was ended by {_signal_name(-status)}.")
        if status > 0:
            return replace(ended, reason=f"The command exited with status {status}.")
        return replace(ended, state=RunState.SUCCEEDED)


def _end_guard(guard: "subprocess.Popen[bytes]", run: str, patience_seconds: float) -> None:
    """Wait for the guard's end. A guard that takes too long was stopped: kill it, and end its command."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    guard.stdin.close()
    try:
        guard.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        end_descendants_of(guard.pid)
        guard.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(KILL_SECONDS)
    guard.stdout.close()
    if guard.returncode != 0:
        end_processes_of(run)


def _account_variables(account: UnixAccount) -> dict[str, str]:
    return {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}


def _printable(output: bytes) -> str:
    """The output as text. Control and invisible characters, except line breaks and tabs, are replaced."""
    text = output.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
