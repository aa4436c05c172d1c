"""The runner that starts a program of the operator's choice beside the package, and sees it to its end."""

import json
import os
import select
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import Package
from hookmill.runs.runner import Left, Verdict, Watch
from hookmill.runs.runners.guard import RUN_VARIABLE, end_processes_of

GUARD: Final = Path(__file__).with_name("guard.py")
WATCH_SECONDS: Final = 0.5
ALWAYS_PASSED_ON: Final = ("PATH", "HOME", "LANG", "TZ")


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

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise Invalid("A command runner needs a command: a list of the program and its arguments.")
        if "/" in self.argv[0] and not self.argv[0].startswith("/"):
            # The working directory is the package's, and nothing in there is a program.
            raise Invalid(f"The command {self.argv[0]!r} is a relative path. Give an absolute one, or a name in PATH.")

    def run(self, package: Package, watch: Watch) -> Ended | Left:
        try:
            guard = self._start_guard(package)
        except OSError as error:
            return Ended(state=RunState.FAILED, reason=f"The command could not be started: {error.strerror}.")
        with guard:
            verdict, told = _attend(guard, watch)
        if verdict is Verdict.LEAVE:
            return Left()
        if told is None:
            end_processes_of(run_id(package.run.id))
            return Ended(
                state=RunState.FAILED,
                reason="The process that guards the command was killed, so the command was ended.",
            )
        return self._ended(verdict, told)

    def _start_guard(self, package: Package) -> "subprocess.Popen[bytes]":
        order = {
            "argv": self.argv,
            "time_limit_seconds": self.time_limit_seconds,
            "grace_seconds": self.grace_seconds,
            "output_bytes_max": self.output_bytes_max,
        }
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), json.dumps(order)],
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

    def _ended(self, verdict: Verdict, told: dict[str, Any]) -> Ended:
        if "trouble" in told:
            reason = f"The command {self.argv[0]!r} could not be started: {told['trouble']}."
            return Ended(state=RunState.FAILED, reason=reason)
        status: int = told["exit_status"]
        tail = _safe(told["tail"].encode("latin-1"))
        if told["dropped_bytes"]:
            tail += f"\n[{told['dropped_bytes']} bytes of output were not kept]"
        ended = Ended(state=RunState.FAILED, exit_status=status, output_tail=tail)
        if told["ending"] == "time":
            limit = f"{self.time_limit_seconds:g} s"
            return replace(ended, reason=f"The command was ended after its time limit of {limit}.")
        if told["ending"] == "stop" and verdict is Verdict.CANCEL:
            return replace(ended, state=RunState.CANCELLED, reason="It was cancelled while it ran.")
        if status < 0:
            return replace(ended, reason=f"The command was ended by {_signal_name(-status)}.")
        if status > 0:
            return replace(ended, reason=f"The command exited with status {status}.")
        return replace(ended, state=RunState.SUCCEEDED)


def _attend(guard: "subprocess.Popen[bytes]", watch: Watch) -> tuple[Verdict, dict[str, Any] | None]:
    """Wait for the guard's word, asking `watch` meanwhile. None: it was killed before it could say one."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    # Not select(): a server with many connections has descriptors above its limit of 1,024.
    waiting = select.poll()
    waiting.register(guard.stdout, select.POLLIN)
    verdict = Verdict.GO_ON
    while not waiting.poll(WATCH_SECONDS * 1000):
        if verdict is not Verdict.LEAVE and (asked := watch()) is not Verdict.GO_ON:
            verdict = asked
            guard.stdin.close()
    told = guard.stdout.read()
    try:
        return verdict, json.loads(told)
    except ValueError:
        return verdict, None


def _safe(output: bytes) -> str:
    """Output as text for a page and a database: no control characters but line breaks and tabs, no invisible ones."""
    text = output.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
