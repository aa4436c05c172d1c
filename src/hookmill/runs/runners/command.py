"""The runner that starts a program of the operator's choice beside the package, and sees it to its end."""

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
from hookmill.runs.runners.guard import CHUNK_BYTES, GONE_SECONDS, RUN_VARIABLE, end_descendants_of, end_processes_of

GUARD: Final = Path(__file__).with_name("guard.py")
WATCH_SECONDS: Final = 0.5
ALWAYS_PASSED_ON: Final = ("PATH", "HOME", "LANG", "TZ")
MARGIN_SECONDS: Final = 15.0
"""How long a guard may take beyond the time limit and two graces. It was stopped if it takes longer."""
CANCELLED: Final = "It was cancelled while it ran."


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account of this system that commands run as."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_ours(self) -> bool:
        return self.uid == os.geteuid()


def account_of(user: str | int) -> Account:
    """The account of this name or number. Raises `Invalid` when there is none, or when we can't run anything as it."""
    try:
        entry = pwd.getpwuid(int(user)) if str(user).isdecimal() else pwd.getpwnam(str(user))
    except (KeyError, OverflowError):
        raise Invalid(
            f"No account of this system is {user!r}. Create it, or name another as the runner's user."
        ) from None
    account = Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir)
    if os.geteuid() != 0 and not account.is_ours:
        raise Invalid(
            f"Commands can run as {account.name!r} only if the service runs as root, or as that account itself. "
            "Start it as root, or take the runner's user away."
        )
    return account


_SEARCHES: Final = """
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
SEARCHES_SECONDS: Final = 30.0


def refuse_unreachable(packages: Path, account: Account) -> None:
    """Raises `Invalid` if another account can't search the directory of the packages."""
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SEARCHES, account.name, str(account.uid), str(account.gid), packages],
            capture_output=True,
            text=True,
            timeout=SEARCHES_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"It was not found out in {SEARCHES_SECONDS:g} s whether its user can reach {packages}."
        ) from None
    trouble = tried.stdout.strip() or (tried.stderr.strip().splitlines() or [""])[-1]
    if trouble:
        raise Invalid(
            f"Its user {account.name!r} can't reach {packages}: {trouble}. The account must be able to search each "
            "directory above: run chmod o+x on those, or set HOOKMILL_DATA_DIR to another place."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRunner:
    """Runs `argv`, without a shell, in the package's directory, with an environment of its own.

    What the payload says never reaches the command line or the environment: there are only ids and paths.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables the operator gives the command."""
    pass_environment: tuple[str, ...] = ()
    """Names of the service's own variables that the command may see, besides PATH, HOME, LANG and TZ."""
    time_limit_seconds: float = 3600
    grace_seconds: float = 10
    """Between being asked to end and being killed."""
    output_bytes_max: int = 1_048_576
    account: Account | None = None
    """What the command runs as; None: as the service does."""
    open_files_max: int | None = None
    """The soft limit of the command's open files; None: as the service has it."""

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise Invalid("A command runner needs a command: a list of the program and its arguments.")
        if "/" in self.argv[0] and not self.argv[0].startswith("/"):
            # The working directory is the package's, and nothing in there is a program.
            raise Invalid(f"The command {self.argv[0]!r} is a relative path. Give an absolute one, or a name in PATH.")

    def run(self, package: Package, watch: NextInstruction) -> Ended | Abandoned:
        try:
            guard = self._start_guard(package)
        except (OSError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno == errno.E2BIG:
                return Ended(state=RunState.FAILED, reason=f"The command could not be started: {error.strerror}.")
            raise HostFault(f"The command of a run could not be started: {reason_of(error)}.") from error
        patience = 0.0
        try:
            instruction, report = self._attend(guard, watch)
            if report is not None:
                patience = MARGIN_SECONDS
        except (OSError, MemoryError) as error:
            raise HostFault(f"A command could not be attended to: {reason_of(error)}.", acted=True) from error
        finally:
            _end_guard(guard, run_id(package.run.id), patience)
        if instruction is Instruction.ABANDON:
            return Abandoned()
        if report is None:
            if instruction is Instruction.CANCEL:
                return Ended(state=RunState.CANCELLED, reason=CANCELLED)
            return Ended(state=RunState.FAILED, reason=self._out_of_time)
        try:
            told = json.loads(report)
        except ValueError:
            if guard.returncode >= 0:
                raise HostFault("The process that guards a command ended with a fault.", acted=True) from None
            return Ended(
                state=RunState.FAILED,
                reason="The process that guards the command was killed, so the command was ended.",
            )
        return self._ended(instruction, told)

    @property
    def _out_of_time(self) -> str:
        return f"The command was ended after its time limit of {self.time_limit_seconds:g} s."

    @property
    def _other_account(self) -> Account | None:
        return None if self.account is None or self.account.is_ours else self.account

    def _start_guard(self, package: Package) -> "subprocess.Popen[bytes]":
        other = self._other_account
        order = {
            "argv": self.argv,
            "directory": str(package.directory),
            "user": None if other is None else {"name": other.name, "uid": other.uid, "gid": other.gid},
            "time_limit_seconds": self.time_limit_seconds,
            "grace_seconds": self.grace_seconds,
            "output_bytes_max": self.output_bytes_max,
            "open_files_max": self.open_files_max,
        }
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), run_id(package.run.id), json.dumps(order)],
            cwd=package.directory,
            env=self._environment(package),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # An interrupt from the keyboard is for the service, which decides what becomes of its commands.
            start_new_session=True,
        )

    def _environment(self, package: Package) -> dict[str, str]:
        passed_on = (*ALWAYS_PASSED_ON, *self.pass_environment)
        return {
            **{name: os.environ[name] for name in passed_on if name in os.environ},
            **(_of_account(self.account) if self.account is not None else {}),
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

    def _attend(self, guard: "subprocess.Popen[bytes]", watch: NextInstruction) -> tuple[Instruction, bytes | None]:
        """Wait for all that the guard has to tell, asking `watch` meanwhile. None: it took longer than it can."""
        assert guard.stdin is not None
        assert guard.stdout is not None
        told = b""
        instruction = Instruction.CONTINUE
        patience = 2 * self.grace_seconds + MARGIN_SECONDS
        deadline = time.monotonic() + self.time_limit_seconds + patience
        # Not select(): a server with many connections has descriptors above its limit of 1,024.
        waiting = select.poll()
        waiting.register(guard.stdout, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if waiting.poll(max(0, min(WATCH_SECONDS, left)) * 1000):
                chunk = os.read(guard.stdout.fileno(), CHUNK_BYTES)
                if not chunk:
                    return instruction, told
                told += chunk
            elif left <= 0:
                return instruction, None
            elif instruction is not Instruction.ABANDON and (asked := watch()) is not Instruction.CONTINUE:
                instruction = asked
                guard.stdin.close()
                deadline = min(deadline, time.monotonic() + patience)

    def _ended(self, instruction: Instruction, told: dict[str, Any]) -> Ended:
        if "host_fault" in told:
            raise HostFault(f"The command {self.argv[0]!r} could not be started: {told['host_fault']}.")
        if "trouble" in told:
            reason = f"The command {self.argv[0]!r} could not be started: {told['trouble']}."
            return Ended(state=RunState.FAILED, reason=reason)
        status: int = told["exit_status"]
        tail = _safe(told["tail"].encode("latin-1"))
        if told["dropped_bytes"]:
            tail += f"\n[{told['dropped_bytes']} bytes of output were not kept]"
        ended = Ended(state=RunState.FAILED, exit_status=status, output_tail=tail)
        if told["ending"] == "time":
            return replace(ended, reason=self._out_of_time)
        if told["ending"] == "stop" and instruction is Instruction.CANCEL:
            return replace(ended, state=RunState.CANCELLED, reason=CANCELLED)
        if status < 0:
            return replace(ended, reason=f"The command was ended by {_signal_name(-status)}.")
        if status > 0:
            return replace(ended, reason=f"The command exited with status {status}.")
        return replace(ended, state=RunState.SUCCEEDED)


def _end_guard(guard: "subprocess.Popen[bytes]", run: str, patience_seconds: float) -> None:
    """See the guard ended, by force if it takes too long: then it was stopped, and did not end its command."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    guard.stdin.close()
    try:
        guard.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        end_descendants_of(guard.pid)
        guard.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(GONE_SECONDS)
    guard.stdout.close()
    if guard.returncode != 0:
        end_processes_of(run)


def _of_account(account: Account) -> dict[str, str]:
    return {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}


def _safe(output: bytes) -> str:
    """Output as text for a page and a database: no control characters but line breaks and tabs, no invisible ones."""
    text = output.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
