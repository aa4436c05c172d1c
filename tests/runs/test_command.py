"""Commands of the operator: their environment, their output, their end, and the account as which they run."""

import errno
import json
import os
import pwd
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey, delivery_id, run_id
from hookmill.domain.run import BySchedule, Ended, RunState
from hookmill.domain.run_outputs import OUTPUTS_DIRECTORY, OutputText
from hookmill.runs.package import Package, allow_traversal, write_package
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction
from hookmill.runs.runners import CommandRunner, CommandSettings, command, guard_server
from hookmill.runs.runners.account import unix_account
from hookmill.runs.runners.guard import CapturedOutput, kill_processes_of_runs
from hookmill.settings import Settings, load_settings
from tests.runs.backlog import processes_of
from tests.runs.samples import always_continue, has_ended, instruct_when, is_alive, sample_run
from tests.support.waiting import until


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path / "runs", sample_run(), b'{"a": 1}')


def shell(script: str, **settings) -> CommandRunner:
    return CommandRunner(argv=("sh", "-c", script), **{"grace_seconds": 0.5, **settings})


def python(program: str, **settings) -> CommandRunner:
    return CommandRunner(argv=(sys.executable, "-c", program), **{"grace_seconds": 0.5, **settings})


def output_of(runner: CommandRunner, package: Package) -> str:
    tail = result_of(runner, package).output_tail
    assert tail is not None
    return tail


def result_of(runner: CommandRunner, package: Package, next_instruction: NextInstruction = always_continue) -> Ended:
    result = runner.run(package, next_instruction)
    assert isinstance(result, Ended)
    return result


def pid_in(path: Path) -> int:
    until(has_content(path))
    return int(path.read_text())


def has_content(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and bool(path.read_text().strip())


# Environment


def test_command_starts_in_the_package_and_can_read_its_files(package):
    result = result_of(shell('cat event-payload.json; cmp "$HOOKMILL_PAYLOAD_FILE" event-payload.json; pwd'), package)

    assert result.state is RunState.SUCCEEDED
    assert result.output_tail == f'{{"a": 1}}{package.directory}\n'


def test_command_gets_only_its_own_environment(package, monkeypatch):
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "canary")
    monkeypatch.setenv("DATABASE_PASSWORD", "canary")
    monkeypatch.setenv("AGENT_KEY", "value of the agent")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HOME", "/srv/account")

    command = python(
        "import json, os; print(json.dumps(dict(os.environ)))",
        pass_environment=("AGENT_KEY", "NOT_SET"),
        environment={"MODEL": "m-1", "HOOKMILL_ATTEMPT": "9"},
    )
    environment = json.loads(output_of(command, package))
    run = package.run
    assert "LC_CTYPE" not in environment
    assert environment == {
        "PATH": os.environ["PATH"],
        "HOME": "/srv/account",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "AGENT_KEY": "value of the agent",
        "MODEL": "m-1",
        "HOOKMILL_RUN_ID": run_id(run.id),
        "HOOKMILL_ATTEMPT": "1",
        "HOOKMILL_DELIVERY_ID": delivery_id(run.delivery_key),
        "HOOKMILL_WEBHOOK": "wh_7k2m9",
        "HOOKMILL_AUTOMATION": "aut_3x",
        "HOOKMILL_PROMPT_FILE": str(package.directory / "prompt.md"),
        "HOOKMILL_ENVELOPE_FILE": str(package.directory / "envelope.json"),
        "HOOKMILL_PAYLOAD_FILE": str(package.directory / "event-payload.json"),
        "HOOKMILL_OUTPUTS_DIR": str(package.directory / "outputs"),
    }


@pytest.mark.parametrize("started_by", ["delivery", "schedule"])
def test_command_of_a_run_can_call_hookmill(tmp_path, monkeypatch, started_by):
    schedule = BySchedule(name="nightly", scheduled_at=0, timezone="UTC")
    run = sample_run(started_by=schedule) if started_by == "schedule" else sample_run()
    package = write_package(tmp_path, run, b"{}")
    script = "import json, os; print(json.dumps(dict(os.environ)))"

    environment = json.loads(output_of(CommandRunner(argv=(sys.executable, "-c", script)), package))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert load_settings().problems == ()
    assert ("HOOKMILL_SCHEDULED_AT" in environment) == (started_by == "schedule")


def test_hostile_names_are_in_no_argument_and_no_variable(tmp_path):
    hostile = "$(touch /tmp/pwned)`id`;\n\x00--"
    package = write_package(tmp_path, sample_run(webhook_name=hostile, automation_name=hostile), b"{}")

    program = "import os, sys; print(sys.argv, dict(os.environ))"
    result = result_of(python(program), package)

    assert result.state is RunState.SUCCEEDED
    assert result.output_tail is not None
    assert "pwned" not in result.output_tail


@pytest.mark.parametrize("home", [None, ""])
def test_command_of_a_service_without_home_gets_that_of_its_account(package, monkeypatch, home):
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)

    assert output_of(shell('echo "$HOME"'), package) == f"{pwd.getpwuid(os.geteuid()).pw_dir}\n"


def test_arguments_are_not_expanded_by_a_shell(package):
    result = result_of(CommandRunner(argv=("echo", "$HOME", "*", ";", "|", "")), package)

    assert result.output_tail == "$HOME * ; | \n"


def test_standard_input_of_a_command_is_empty(package):
    result = result_of(shell("cat; echo end"), package)

    assert result.output_tail == "end\n"


def test_command_inherits_no_open_file_of_the_service(package, tmp_path):
    with (tmp_path / "secret").open("w"):
        result = result_of(python("import os; print(sorted(os.listdir('/proc/self/fd')))"), package)

    # File 3 is the directory that is being listed.
    assert result.output_tail == "['0', '1', '2', '3']\n"


def test_command_has_its_own_session_and_default_signal_handlers(package):
    program = (
        "import os, signal; print(os.getsid(0) == os.getpid(),"
        " [s.name for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_DFL])"
    )

    assert result_of(python(program), package).output_tail == "True []\n"


def test_command_has_its_own_limit_of_open_files(package):
    program = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert result_of(python(program, open_files_max=128), package).output_tail == f"(128, {hard})\n"


def test_broken_pipe_ends_a_command(package):
    result = result_of(shell("yes | head -1"), package)

    assert result.output_tail == "y\n"


# Output


def test_standard_output_and_errors_are_stored_in_order(package):
    result = result_of(shell("echo one; echo two >&2; echo three"), package)

    assert result.output_tail == "one\ntwo\nthree\n"
    assert (package.directory / "output.log").read_text() == "one\ntwo\nthree\n"
    assert (package.directory / "output.log").stat().st_mode & 0o777 == 0o600


def test_output_beyond_the_limit_blocks_no_command_and_keeps_its_end(package):
    result = result_of(
        python(
            "import sys; [sys.stdout.write('x' * 99 + chr(10)) for _ in range(50_000)]; print('the error')",
            output_bytes_max=10_000,
        ),
        package,
    )

    assert result.state is RunState.SUCCEEDED
    output = (package.directory / "output.log").read_text()
    before, note, end = re.split(r"(\n+\[\d+ bytes of the output are missing here\]\n)", output)
    assert len(output) == 10_000
    assert (len(end), end[-11:]) == (4096, "x\nthe error\n"[-11:])
    missing_bytes = 5_000_010 - len(before) - len(end)
    assert note.strip() == f"[{missing_bytes} bytes of the output are missing here]"
    assert (
        result.output_tail == f"{end}\n[{missing_bytes} bytes before the end of the output are missing in output.log]"
    )


@pytest.mark.parametrize("bytes_max", [1_024, 10_000])
@pytest.mark.parametrize("excess_bytes", [-1, 0, 1, 60, 5_000])
def test_every_byte_of_the_output_is_in_the_file_or_counted(tmp_path, monkeypatch, bytes_max, excess_bytes):
    monkeypatch.chdir(tmp_path)
    printed = bytes(33 + index % 90 for index in range(bytes_max + excess_bytes))
    output = CapturedOutput(bytes_max)

    for start in range(0, len(printed), 700):
        output.add(printed[start : start + 700])
    output.finish()
    os.close(output.file)

    stored = (tmp_path / "output.log").read_bytes()
    if excess_bytes <= 0:
        assert (stored, output.missing_bytes, output.dropped_bytes) == (printed, 0, 0)
        return
    before, note, end = re.split(rb"(\n+\[\d+ bytes of the output are missing here\]\n)", stored)
    assert b"[%d bytes" % output.missing_bytes in note
    assert printed.startswith(before)
    assert printed.endswith(end)
    assert (len(before), len(before) + output.missing_bytes + len(end)) == (output.first_bytes, len(printed))
    assert len(stored) == output.first_bytes + len(note) + len(end) <= bytes_max


def test_unsafe_characters_in_the_output_tail_are_replaced(package):
    program = r"import sys; sys.stdout.buffer.write(b'a\0b\x1b[31mc\xff\r\nd\xe2\x80\xaee\tf')"

    assert output_of(python(program), package) == "a�b�[31mc�\nd�e\tf"


def test_output_lost_to_a_full_disk_is_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = CapturedOutput(100)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, output.file)

    output.add(b"0123456789")

    assert (output.dropped_bytes, output.tail) == (10, b"0123456789")
    os.close(full)
    os.close(output.file)


def test_output_tail_can_be_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = CapturedOutput(100, tail_bytes=0)

    output.add(b"0123456789")

    assert output.tail == b""
    os.close(output.file)


def test_output_is_never_written_through_a_symbolic_link(package, tmp_path):
    target = tmp_path / "target"
    target.write_text("unchanged")
    (package.directory / "output.log").symlink_to(target)

    with pytest.raises(HostFault, match="Too many levels of symbolic links"):
        shell("echo overwritten").run(package, always_continue)

    assert target.read_text() == "unchanged"


# End


@pytest.mark.parametrize("status", [1, 3, 127, 255])
def test_command_with_a_nonzero_exit_status_fails(package, status):
    result = result_of(shell(f"exit {status}"), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, status)
    assert result.reason == f"The command exited with status {status}."


def test_command_ended_by_a_signal_fails(package):
    result = result_of(shell("kill -SEGV $$"), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, -signal.SIGSEGV)
    assert result.reason == "The command was ended by SIGSEGV."


@pytest.mark.parametrize(
    ("program", "state"), [("hookmill-no-such-program", "does not exist"), ("/etc/passwd", "is not executable")]
)
def test_command_without_its_program_fails_with_the_sentence_of_the_doctor(package, tmp_path, program, state):
    result = result_of(CommandRunner(argv=(program,)), package)

    sentence = f"Its program {program} {state}. Install it, or correct the runner's argv."
    assert (result.state, result.reason) == (RunState.FAILED, f"The runner {package.run.runner}: {sentence}")
    with pytest.raises(Invalid, match=re.escape(sentence)):
        CommandSettings(argv=(program,)).examine(tmp_path)


def test_command_whose_interpreter_is_missing_fails_with_the_reason(package, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)

    result = result_of(CommandRunner(argv=(str(program),)), package)

    assert result.state is RunState.FAILED
    assert result.reason == (
        f"The runner command: Its program {program} needs the interpreter /no/such/interpreter, which does not exist. "
        "Install it, or correct the first line of the file."
    )


@pytest.mark.parametrize("start", ["", "echo done\n", "!#/bin/sh\n", "\n#!/bin/sh\n", "\ufeff#!/bin/sh\n"])
def test_script_without_an_interpreter_fails_with_the_cause(package, tmp_path, start):
    program = tmp_path / "program"
    program.write_text(start)
    program.chmod(0o755)

    result = result_of(CommandRunner(argv=(str(program),)), package)

    sentence = f"Its program {program} is a text whose first line names no interpreter."
    assert result.state is RunState.FAILED
    assert sentence in str(result.reason)
    with pytest.raises(Invalid, match=re.escape(sentence)):
        CommandSettings(argv=(str(program),)).examine(tmp_path / "runs")


@pytest.mark.parametrize("interpreter", ["/bin/sh", "/usr/bin/env sh"])
def test_script_with_line_ends_of_windows_fails_with_the_cause(package, tmp_path, interpreter):
    program = tmp_path / "program"
    program.write_bytes(f"#!{interpreter}\r\necho done\r\n".encode())
    program.chmod(0o755)

    result = result_of(CommandRunner(argv=(str(program),)), package)
    with pytest.raises(Invalid, match="CRLF"):
        CommandSettings(argv=(str(program),)).examine(tmp_path / "runs")

    assert result.state is RunState.FAILED
    assert f"The lines of its program {program} end as on Windows (CRLF)" in str(result.reason)


def test_command_with_a_null_byte_in_an_argument_fails(package):
    result = result_of(CommandRunner(argv=("true", "a\0b")), package)

    assert result.state is RunState.FAILED
    assert result.reason == "The command 'true' could not be started: embedded null byte."


@pytest.mark.parametrize("argv", [[], [""], ["./agent.sh"], ["bin/agent"], ["~/agent.sh"]])
@pytest.mark.parametrize("kind", ["command", "container"])
def test_empty_command_or_relative_program_path_is_rejected(kind, argv):
    settings = {"kind": kind, "argv": argv, **({"image": "x"} if kind == "container" else {})}

    with pytest.raises(ValidationError, match="argv"):
        Settings(runners={"agent": settings})  # type: ignore[dict-item]


PROCESSES_WITHOUT_SIGTERM = """
trap '' TERM
(trap '' TERM; echo $$ > child; sh -c 'trap "" TERM; echo $$ > grandchild; sleep 60' & sleep 60) &
setsid sh -c 'trap "" TERM; echo $$ > detached; sleep 60' &
echo $$ > leader
sleep 60
"""
PID_FILES = ("leader", "grandchild", "detached")


def pids_of_processes(package: Package) -> list[int]:
    return [pid_in(package.directory / name) for name in PID_FILES]


def test_time_limit_ends_the_command_and_its_descendants(package):
    def ended_after(seconds):
        return result_of(shell(PROCESSES_WITHOUT_SIGTERM, time_limit_seconds=seconds, grace_seconds=0.3), package)

    seconds = 2.5
    result = ended_after(seconds)
    while not all(has_content(package.directory / name)() for name in PID_FILES) and seconds < 20:
        # A busy machine may need longer until all processes ignore SIGTERM.
        seconds *= 4
        result = ended_after(seconds)

    assert result.state is RunState.FAILED
    assert result.reason == f"The command was ended after its time limit of {seconds:g} s."
    assert result.exit_status == -signal.SIGKILL
    assert all(has_ended(pid) for pid in pids_of_processes(package))
    assert processes_of(run_id(package.run.id)) == []


def test_command_that_ends_on_sigterm_is_not_killed(package):
    ready = package.directory / "ready"
    runner = shell("trap 'echo end; exit 7' TERM; touch ready; sleep 60 & wait", grace_seconds=30)

    result = result_of(runner, package, instruct_when(ready.exists, Instruction.CANCEL))

    assert result.exit_status == 7
    assert result.output_tail == "end\n"


def test_cancellation_ends_the_command_and_its_descendants(package):
    def all_have_started():
        return all(has_content(package.directory / name)() for name in PID_FILES)

    result = result_of(shell(PROCESSES_WITHOUT_SIGTERM), package, instruct_when(all_have_started, Instruction.CANCEL))

    assert (result.state, result.reason) == (RunState.CANCELLED, "It was cancelled while it ran.")
    assert all(has_ended(pid) for pid in pids_of_processes(package))


def test_command_that_is_not_cancelled_succeeds(package):
    result = result_of(shell("sleep 0.6; exit 0"), package, instruct_when(lambda: False, Instruction.CANCEL))

    assert result.state is RunState.SUCCEEDED


def test_abandoned_command_is_ended_without_a_result(package):
    has_started = has_content(package.directory / "leader")

    result = shell("echo $$ > leader; sleep 60").run(package, instruct_when(has_started, Instruction.ABANDON))

    assert result == Abandoned()
    assert has_ended(pid_in(package.directory / "leader"))


def test_background_processes_are_ended_with_their_command(package):
    result = result_of(shell("sleep 60 & echo $! > child; setsid sleep 60 & exit 0"), package)

    assert result.state is RunState.SUCCEEDED
    assert has_ended(pid_in(package.directory / "child"))
    until(lambda: processes_of(run_id(package.run.id)) == [], seconds=20)


@pytest.mark.parametrize(
    "start",
    [
        "env -i setsid {it} &",
        "(env -u HOOKMILL_RUN_ID setsid nohup {it} &);",
        "env -i setsid sh -c 'setsid {it} & exit';",
    ],
    ids=["env -i", "env -u", "two new sessions"],
)
def test_process_without_the_runs_environment_is_ended_with_the_run(package, start):
    script = package.directory / "script"
    script.write_text("#!/bin/sh\necho $$ > child\nexec sleep 60\n")
    script.chmod(0o700)

    result = result_of(shell(f"{start.format(it='./script')} until test -s child; do sleep 0.05; done"), package)

    assert result.state is RunState.SUCCEEDED
    assert not is_alive(pid_in(package.directory / "child"))


CHILD_WITHOUT_FIRST_THREAD = """
import ctypes, os, threading, time
if not os.fork():
    os.setsid()
    threading.Thread(target=lambda: time.sleep(60)).start()
    os.environ.clear()
    open("child", "w").write(str(os.getpid()))
    os.close(1); os.close(2)
    ctypes.CDLL(None).pthread_exit(None)
while not (os.path.exists("child") and os.path.getsize("child")):
    time.sleep(0.05)
"""
"""Leaves a child whose first thread has ended, so that the child looks like a zombie."""


def test_process_whose_first_thread_has_ended_is_ended_with_the_run(package):
    result = result_of(CommandRunner(argv=(sys.executable, "-c", CHILD_WITHOUT_FIRST_THREAD)), package)

    pid = pid_in(package.directory / "child")
    assert result.state is RunState.SUCCEEDED
    until(lambda: not Path(f"/proc/{pid}/task").exists(), "the process has ended", seconds=20)


def test_many_processes_without_the_runs_environment_are_all_ended(package):
    script = "for number in 1 2 3 4 5 6 7 8; do env -i setsid sh -c 'echo $$ >> child; sleep 60' & done; "

    result = result_of(shell(script + "until test $(wc -l < child) = 8; do sleep 0.05; done"), package)

    pids = [int(line) for line in (package.directory / "child").read_text().split()]
    assert result.state is RunState.SUCCEEDED
    assert [pid for pid in pids if is_alive(pid)] == []


REPORT_ZOMBIE = """
import os, subprocess, time
orphan = int(subprocess.check_output(["sh", "-c", "setsid true >/dev/null & echo $!"]))
deadline = time.monotonic() + 20
while os.path.exists(f"/proc/{orphan}") and time.monotonic() < deadline:
    time.sleep(0.01)
print(os.path.exists(f"/proc/{orphan}"))
"""


def test_orphan_that_ends_while_the_command_runs_is_reaped(package):
    assert result_of(python(REPORT_ZOMBIE), package).output_tail == "False\n"


# Account


@pytest.fixture
def reachable_package():
    """A package that other accounts can reach. They can't reach pytest's own directories."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o711)
    (top / "data").mkdir(mode=0o700)
    (top / "data" / "hookmill.db").write_text("payloads of other runs")
    try:
        package = write_package(top / "data" / "runs", sample_run(), b'{"a": 1}')
        allow_traversal(package.directory.parent)
        yield package
    finally:
        shutil.rmtree(top)


ACCESS_ATTEMPTS = """
id -un; echo "$HOME $USER"
cat event-payload.json "$HOOKMILL_PAYLOAD_FILE"; echo
touch created && cd / && ls "${HOOKMILL_PAYLOAD_FILE%/*}"
cat "${HOOKMILL_PAYLOAD_FILE%/runs/*}/hookmill.db"
ls "${HOOKMILL_PAYLOAD_FILE%/runs/*}"
ls "${HOOKMILL_PAYLOAD_FILE%/run_*}"
cat /proc/$PPID/environ
echo forged >> "${HOOKMILL_PAYLOAD_FILE%/*}/output.log"
"""


def test_command_with_a_user_can_access_only_its_package(reachable_package, monkeypatch):
    if os.geteuid() != 0:
        with pytest.raises(Invalid, match="only if the service runs as root"):
            unix_account("root")
        return
    monkeypatch.setenv("LANG", "C")

    output = output_of(shell(ACCESS_ATTEMPTS, account=unix_account("nobody")), reachable_package)

    home = pwd.getpwnam("nobody").pw_dir
    lines = output.splitlines()
    assert lines[:3] == ["nobody", f"{home} nobody", '{"a": 1}{"a": 1}']
    assert lines[3:10] == [
        "created", "envelope.json", "envelope.txt", "event-payload.json", "output.log", "outputs", "prompt.md"
    ]  # fmt: skip
    assert len(lines[10:]) == 5
    assert all("Permission denied" in line or "cannot create" in line for line in lines[10:])
    log = (reachable_package.directory / "output.log").stat()
    assert (log.st_uid, log.st_mode & 0o777) == (0, 0o600)
    assert (reachable_package.directory / "output.log").read_text() == output


def test_command_with_a_user_can_open_its_output_by_name(reachable_package):
    account = unix_account("nobody" if os.geteuid() == 0 else os.geteuid())

    assert output_of(shell("echo out > /dev/stdout; echo err > /dev/stderr", account=account), reachable_package) == (
        "out\nerr\n"
    )


def test_command_with_a_user_can_write_a_summary(reachable_package):
    account = unix_account("nobody" if os.geteuid() == 0 else os.geteuid())

    result = result_of(shell("echo Done. > outputs/summary.md", account=account), reachable_package)

    assert result.outputs == {"summary.md": OutputText(text="Done.\n")}


def test_standard_input_is_a_file_that_the_user_can_open(reachable_package):
    account = unix_account("nobody" if os.geteuid() == 0 else os.geteuid())
    runner = shell("cat", account=account, standard_input="prompt.md")

    assert output_of(runner, reachable_package) == reachable_package.prompt_file.read_text()


def test_standard_input_is_never_read_through_a_link(reachable_package, tmp_path):
    (tmp_path / "secret").write_text("canary")
    reachable_package.prompt_file.unlink()
    reachable_package.prompt_file.symlink_to(tmp_path / "secret")

    with pytest.raises(HostFault, match="Too many levels of symbolic links"):
        shell("cat", standard_input="prompt.md").run(reachable_package, always_continue)


def test_account_of_the_service_can_be_the_user_of_a_command(package):
    account = unix_account(os.geteuid())

    assert output_of(shell('id -u; echo "$HOME"', account=account), package) == f"{os.geteuid()}\n{account.home}\n"


@pytest.mark.parametrize("user", ["hookmill-no-such-user", 4_294_967_290, -1])
def test_user_without_an_account_is_rejected(user):
    with pytest.raises(Invalid, match="This system has no account"):
        unix_account(user)


def test_unexpected_error_before_the_start_of_a_command_is_a_host_fault(package):
    runner = CommandRunner(argv=("echo", 5))  # type: ignore[arg-type]

    with pytest.raises(HostFault, match="TypeError"):
        runner.run(package, always_continue)


def test_package_that_the_user_cannot_reach_is_a_host_fault(reachable_package):
    reachable_package.directory.parent.parent.parent.chmod(0o700)

    if os.geteuid() == 0:
        with pytest.raises(HostFault, match="'nobody' must be able to search each directory of") as raised:
            shell("true", account=unix_account("nobody")).run(reachable_package, always_continue)
        assert not raised.value.counts_as_attempt
    else:
        result = result_of(shell("true", account=unix_account(os.geteuid())), reachable_package)
        assert result.state is RunState.SUCCEEDED


def test_background_processes_of_a_user_are_ended_with_their_run(reachable_package):
    script = "env -i setsid sleep 60 & echo $! > child; setsid sleep 60 & exit 0"
    account = unix_account("nobody" if os.geteuid() == 0 else os.geteuid())

    result = result_of(shell(script, account=account), reachable_package)

    assert result.state is RunState.SUCCEEDED
    assert not is_alive(pid_in(reachable_package.directory / "child"))
    assert processes_of(run_id(reachable_package.run.id)) == []


# Stopped guards: a command can stop its parent, the guard

STOP_GUARD = "echo $$ > leader; env -i setsid sleep 60 & echo $! > child; kill -STOP $PPID; sleep 60"


def test_time_limit_ends_a_command_that_stops_its_guard(package, monkeypatch):
    monkeypatch.setattr(command, "MARGIN_SECONDS", 1.5)

    result = result_of(shell(STOP_GUARD, time_limit_seconds=0.5, grace_seconds=0.1), package)

    assert result.state is RunState.FAILED
    assert result.reason == "The command was ended after its time limit of 0.5 s."
    assert processes_of(run_id(package.run.id)) == []


def test_command_that_stops_its_guard_can_be_cancelled(package, monkeypatch):
    monkeypatch.setattr(command, "MARGIN_SECONDS", 0.1)
    has_stopped_guard = has_content(package.directory / "child")

    result = result_of(
        shell(STOP_GUARD, grace_seconds=0.1), package, instruct_when(has_stopped_guard, Instruction.CANCEL)
    )

    assert (result.state, result.reason) == (RunState.CANCELLED, "It was cancelled while it ran.")
    assert not is_alive(pid_in(package.directory / "leader"))
    assert not is_alive(pid_in(package.directory / "child"))
    assert processes_of(run_id(package.run.id)) == []


def test_abandoned_command_that_stops_its_guard_is_ended(package, monkeypatch):
    monkeypatch.setattr(command, "MARGIN_SECONDS", 0.1)
    has_stopped_guard = has_content(package.directory / "child")

    result = shell(STOP_GUARD, grace_seconds=0.1).run(package, instruct_when(has_stopped_guard, Instruction.ABANDON))

    assert result == Abandoned()
    assert not is_alive(pid_in(package.directory / "leader"))


def test_stopped_guard_and_its_command_are_found_by_their_run_id(package):
    runner = shell(STOP_GUARD)
    guard = runner._start_guard(package)
    leader = pid_in(package.directory / "leader")
    until(lambda: Path(f"/proc/{guard.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")

    kill_processes_of_runs(run_id(package.run.id))

    guard.wait(20)
    guard.close()
    assert guard.returncode == -signal.SIGKILL
    assert has_ended(leader)


@pytest.mark.parametrize("number", ["KILL", pytest.param("STOP", marks=pytest.mark.proof)])
def test_command_can_end_what_starts_guards_without_harm_to_other_runs(package, own_guards, monkeypatch, number):
    script = f"read -r _ _ _ forker _ < /proc/$PPID/stat; kill -{number} $forker; echo done"

    assert output_of(shell(script), package) == "done\n"
    if number == "STOP":
        with monkeypatch.context() as patch, pytest.raises(HostFault, match="its guard did not start in time"):
            patch.setattr(guard_server, "START_SECONDS", 0.1)
            shell("true").run(package, always_continue)
        (package.directory / OUTPUTS_DIRECTORY).rmdir()
    assert output_of(shell("echo next"), package) == "next\n"


def test_signal_to_all_processes_of_the_service_does_not_end_what_starts_guards(tmp_path, own_guards):
    script = "read -r _ _ _ forker _ < /proc/$PPID/stat; kill -TERM $forker; kill -INT $forker; echo $forker"
    packages = [write_package(tmp_path / name, sample_run(), b"{}") for name in ("first", "second")]

    first, second = (output_of(shell(script), package) for package in packages)

    assert first == second


@pytest.mark.parametrize(
    ("received", "report", "exit_status"),
    [
        (b'12\n{"exit_status": 0}\n', b'{"exit_status": 0}', None),
        (b'12\n{"exit_status": 0}\n\0exited 0\n', b'{"exit_status": 0}', 0),
        (b'12\n{"exit_stat\0exited -9\n', None, -9),
        (b"12\n\0exited 1\n", None, 1),
        (b"12\n\0exited -", None, None),
    ],
)
def test_report_of_a_guard_is_never_confused_with_its_end(received, report, exit_status):
    own_end, guards_end = socket.socketpair()
    with own_end, guards_end:
        guards_end.sendall(received)
        guard = guard_server.Guard(own_end)
        guard.start(b"")

        assert (guard.pid, guard.report, guard.returncode) == (12, report, exit_status)


@pytest.mark.parametrize(
    ("received", "error_number"),
    [(b"\0exited 1\n", errno.ECONNRESET), (b"1\0exited -9\n", errno.ECONNRESET), (b"\0error 11\n", errno.EAGAIN)],
)
def test_guard_that_ended_before_it_had_started_is_reported(received, error_number):
    own_end, guards_end = socket.socketpair()
    with own_end, guards_end, pytest.raises(OSError, match=re.escape(f"[Errno {error_number}]")):
        guards_end.sendall(received)
        guard_server.Guard(own_end).start(b"")


def test_command_whose_guard_is_killed_is_ended_and_fails(package):
    def kill_guard():
        leader = pid_in(package.directory / "leader")
        stat = Path(f"/proc/{leader}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_guard)
    killer.start()
    result = result_of(shell("echo $$ > leader; sleep 60"), package)
    killer.join()

    assert result.state is RunState.FAILED
    assert result.reason == "The process that guards the command was killed, so the command was ended."
    assert has_ended(pid_in(package.directory / "leader"))


def test_processes_of_another_run_are_not_ended(tmp_path):
    other_package = write_package(tmp_path, sample_run(), b"{}")
    package = write_package(tmp_path, sample_run(id=RunKey(b"another run's id")), b"{}")
    results: list[Ended] = []
    other_runner = shell("echo $$ > leader; sleep 1.2")
    thread = threading.Thread(target=lambda: results.append(result_of(other_runner, other_package)))
    thread.start()
    pid_in(other_package.directory / "leader")

    result_of(shell("setsid sleep 60 & exit 0"), package)
    thread.join()

    assert results[0].state is RunState.SUCCEEDED


def test_short_command_takes_less_than_two_seconds(package):
    durations = []
    for _ in range(3):
        began = time.monotonic()
        result_of(shell("exit 0"), package)
        durations.append(time.monotonic() - began)

    assert min(durations) < 2
