"""Commands as the operator configures them: what they see, what is kept of them, and how every one of them ends."""

import json
import os
import pwd
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey, delivery_id, run_id
from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import Package, allow_traversal, write_package
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction
from hookmill.runs.runners import CommandRunner, command
from hookmill.runs.runners.command import unix_account
from hookmill.runs.runners.guard import CapturedOutput, kill_processes_of_runs
from tests.runs.backlog import processes_of
from tests.runs.samples import a_run, has_ended, is_alive, keep_going, once
from tests.support.waiting import until


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return write_package(tmp_path / "runs", a_run(), b'{"a": 1}')


def shell(script: str, **settings) -> CommandRunner:
    return CommandRunner(argv=("sh", "-c", script), **{"grace_seconds": 0.5, **settings})


def python(program: str, **settings) -> CommandRunner:
    return CommandRunner(argv=(sys.executable, "-c", program), **{"grace_seconds": 0.5, **settings})


def output_of(runner: CommandRunner, package: Package) -> str:
    tail = end_of(runner, package).output_tail
    assert tail is not None
    return tail


def end_of(runner: CommandRunner, package: Package, next_instruction: NextInstruction = keep_going) -> Ended:
    ended = runner.run(package, next_instruction)
    assert isinstance(ended, Ended)
    return ended


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def exists(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and bool(path.read_text().strip())


# What a command sees


def test_a_command_works_in_the_package_and_reads_its_files(package):
    ended = end_of(shell('cat event-payload.json; cmp "$HOOKMILL_PAYLOAD_FILE" event-payload.json; pwd'), package)

    assert ended.state is RunState.SUCCEEDED
    assert ended.output_tail == f'{{"a": 1}}{package.directory}\n'


def test_a_command_sees_its_own_environment_and_nothing_else(package, monkeypatch):
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "canary")
    monkeypatch.setenv("DATABASE_PASSWORD", "canary")
    monkeypatch.setenv("AGENT_KEY", "for the agent")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HOME", "/srv/somebody")

    command = python(
        "import json, os; print(json.dumps(dict(os.environ)))",
        pass_environment=("AGENT_KEY", "NOT_SET"),
        environment={"MODEL": "m-1", "HOOKMILL_ATTEMPT": "9"},
    )
    seen = json.loads(output_of(command, package))
    run = package.run
    assert seen.pop("LC_CTYPE", None) is None
    assert seen == {
        "PATH": os.environ["PATH"],
        "HOME": "/srv/somebody",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "AGENT_KEY": "for the agent",
        "MODEL": "m-1",
        "HOOKMILL_RUN_ID": run_id(run.id),
        "HOOKMILL_ATTEMPT": "1",
        "HOOKMILL_DELIVERY_ID": delivery_id(run.delivery_key),
        "HOOKMILL_WEBHOOK": "wh_7k2m9",
        "HOOKMILL_AUTOMATION": "aut_3x",
        "HOOKMILL_PROMPT_FILE": str(package.directory / "prompt.md"),
        "HOOKMILL_ENVELOPE_FILE": str(package.directory / "envelope.json"),
        "HOOKMILL_PAYLOAD_FILE": str(package.directory / "event-payload.json"),
    }


def test_hostile_names_reach_neither_the_arguments_nor_the_environment(tmp_path):
    hostile = "$(touch /tmp/pwned)`id`;\n\x00--"
    package = write_package(tmp_path, a_run(webhook_name=hostile, automation_name=hostile), b"{}")

    program = "import os, sys; print(sys.argv, dict(os.environ))"
    ended = end_of(python(program), package)

    assert ended.state is RunState.SUCCEEDED
    assert ended.output_tail is not None
    assert "pwned" not in ended.output_tail


def test_no_shell_reads_the_arguments(package):
    ended = end_of(CommandRunner(argv=("echo", "$HOME", "*", ";", "|", "")), package)

    assert ended.output_tail == "$HOME * ; | \n"


def test_a_command_reads_nothing_from_its_standard_input(package):
    ended = end_of(shell("cat; echo read"), package)

    assert ended.output_tail == "read\n"


def test_a_command_has_no_file_of_the_service_open(package, tmp_path):
    with (tmp_path / "secret").open("w"):
        ended = end_of(python("import os; print(sorted(os.listdir('/proc/self/fd')))"), package)

    # The fourth is the directory that is being listed.
    assert ended.output_tail == "['0', '1', '2', '3']\n"


def test_a_command_has_a_session_of_its_own_and_the_usual_signals(package):
    program = (
        "import os, signal; print(os.getsid(0) == os.getpid(),"
        " [s.name for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_DFL])"
    )

    assert end_of(python(program), package).output_tail == "True []\n"


def test_a_command_may_have_fewer_files_open_than_the_service(package):
    program = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert end_of(python(program, open_files_max=128), package).output_tail == f"(128, {hard})\n"


def test_a_command_dies_of_a_broken_pipe_like_any_other(package):
    ended = end_of(shell("yes | head -1"), package)

    assert ended.output_tail == "y\n"


# What is kept of it


def test_output_and_errors_are_kept_together_in_their_order(package):
    ended = end_of(shell("echo one; echo two >&2; echo three"), package)

    assert ended.output_tail == "one\ntwo\nthree\n"
    assert (package.directory / "output.log").read_text() == "one\ntwo\nthree\n"
    assert (package.directory / "output.log").stat().st_mode & 0o777 == 0o600


def test_output_beyond_the_cap_is_counted_and_does_not_block_the_command(package):
    ended = end_of(
        python(
            "import sys; [sys.stdout.write('x' * 99 + chr(10)) for _ in range(50_000)]; print('end')",
            output_bytes_max=10_000,
        ),
        package,
    )

    assert ended.state is RunState.SUCCEEDED
    assert (package.directory / "output.log").stat().st_size == 10_000
    assert ended.output_tail is not None
    assert ended.output_tail.endswith("x\nend\n\n[4990004 bytes at the end of the output are missing in output.log]")
    assert len(ended.output_tail) < 4200


def test_the_tail_is_made_safe_to_show_and_to_store(package):
    program = r"import sys; sys.stdout.buffer.write(b'a\0b\x1b[31mc\xff\r\nd\xe2\x80\xaee\tf')"

    assert output_of(python(program), package) == "a�b�[31mc�\nd�e\tf"


def test_output_that_a_full_disk_refuses_is_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = CapturedOutput(100)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, output.file)

    output.add(b"0123456789")

    assert (output.dropped_bytes, output.tail) == (10, b"0123456789")
    os.close(full)
    os.close(output.file)


def test_the_output_file_is_never_written_through_a_link(package, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (package.directory / "output.log").symlink_to(victim)

    with pytest.raises(HostFault, match="Too many levels of symbolic links"):
        shell("echo overwritten").run(package, keep_going)

    assert victim.read_text() == "precious"


# How it ends


@pytest.mark.parametrize("status", [1, 3, 127, 255])
def test_a_command_that_exits_with_another_status_has_failed(package, status):
    ended = end_of(shell(f"exit {status}"), package)

    assert (ended.state, ended.exit_status) == (RunState.FAILED, status)
    assert ended.reason == f"The command exited with status {status}."


def test_a_command_that_a_signal_ends_has_failed(package):
    ended = end_of(shell("kill -SEGV $$"), package)

    assert (ended.state, ended.exit_status) == (RunState.FAILED, -signal.SIGSEGV)
    assert ended.reason == "The command was ended by SIGSEGV."


@pytest.mark.parametrize(
    ("program", "trouble"),
    [("hookmill-no-such-program", "No such file or directory"), ("/etc/passwd", "Permission denied")],
)
def test_a_command_that_cannot_be_started_has_failed_with_the_reason(package, program, trouble):
    ended = end_of(CommandRunner(argv=(program,)), package)

    assert ended.state is RunState.FAILED
    assert ended.reason == f"The command {program!r} could not be started: {trouble}."


def test_an_argument_that_no_system_takes_fails_the_run_with_the_reason(package):
    ended = end_of(CommandRunner(argv=("true", "a\0b")), package)

    assert ended.state is RunState.FAILED
    assert ended.reason == "The command 'true' could not be started: embedded null byte."


@pytest.mark.parametrize("argv", [(), ("",), ("./agent.sh",), ("bin/agent",)])
def test_a_command_without_a_program_of_the_operators_is_refused(argv):
    with pytest.raises(Invalid):
        CommandRunner(argv=argv)


STUBBORN_FAMILY = """
trap '' TERM
(trap '' TERM; echo $$ > child; sh -c 'trap "" TERM; echo $$ > grandchild; sleep 60' & sleep 60) &
setsid sh -c 'trap "" TERM; echo $$ > runaway; sleep 60' &
echo $$ > leader
sleep 60
"""


def family(package: Package) -> list[int]:
    return [pid_in(package.directory / name) for name in ("leader", "grandchild", "runaway")]


def test_the_time_limit_ends_the_command_and_all_that_it_started(package):
    ended = end_of(shell(STUBBORN_FAMILY, time_limit_seconds=2.5, grace_seconds=0.3), package)

    assert ended.state is RunState.FAILED
    assert ended.reason == "The command was ended after its time limit of 2.5 s."
    assert ended.exit_status == -signal.SIGKILL
    assert all(has_ended(pid) for pid in family(package))
    assert processes_of(run_id(package.run.id)) == []


def test_a_command_that_ends_when_asked_is_not_killed(package):
    says_bye = shell("trap 'echo bye; exit 7' TERM; sleep 60 & wait", time_limit_seconds=1.5, grace_seconds=30)

    ended = end_of(says_bye, package)

    assert ended.exit_status == 7
    assert ended.output_tail == "bye\n"


def test_a_cancelled_command_is_ended_with_all_that_it_started(package):
    def are_there() -> bool:
        return all(exists(package.directory / name)() for name in ("leader", "grandchild", "runaway"))

    ended = end_of(shell(STUBBORN_FAMILY), package, once(are_there, Instruction.CANCEL))

    assert (ended.state, ended.reason) == (RunState.CANCELLED, "It was cancelled while it ran.")
    assert all(has_ended(pid) for pid in family(package))


def test_a_command_that_finished_before_it_was_cancelled_has_succeeded(package):
    ended = end_of(shell("sleep 0.6; exit 0"), package, once(lambda: False, Instruction.CANCEL))

    assert ended.state is RunState.SUCCEEDED


def test_a_command_is_ended_without_a_trace_when_the_service_leaves(package):
    there = exists(package.directory / "leader")

    left = shell("echo $$ > leader; sleep 60").run(package, once(there, Instruction.ABANDON))

    assert left == Abandoned()
    assert has_ended(pid_in(package.directory / "leader"))


def test_what_a_command_leaves_behind_is_ended_with_it(package):
    ended = end_of(shell("sleep 60 & echo $! > left; setsid sleep 60 & exit 0"), package)

    assert ended.state is RunState.SUCCEEDED
    assert has_ended(pid_in(package.directory / "left"))
    until(lambda: processes_of(run_id(package.run.id)) == [], seconds=20)


@pytest.mark.parametrize(
    "start",
    [
        "env -i setsid {it} &",
        "(env -u HOOKMILL_RUN_ID setsid nohup {it} &);",
        "env -i setsid sh -c 'setsid {it} & exit';",
    ],
    ids=["env -i", "env -u", "twice"],
)
def test_a_process_without_the_runs_environment_is_ended_with_it(package, start):
    runaway = package.directory / "runaway"
    runaway.write_text("#!/bin/sh\necho $$ > left\nexec sleep 60\n")
    runaway.chmod(0o700)

    ended = end_of(shell(f"{start.format(it='./runaway')} until test -s left; do sleep 0.05; done"), package)

    assert ended.state is RunState.SUCCEEDED
    assert not is_alive(pid_in(package.directory / "left"))


HEADLESS = """
import ctypes, os, threading, time
if not os.fork():
    os.setsid()
    threading.Thread(target=lambda: time.sleep(60)).start()
    os.environ.clear()
    open("left", "w").write(str(os.getpid()))
    os.close(1); os.close(2)
    ctypes.CDLL(None).pthread_exit(None)
while not (os.path.exists("left") and os.path.getsize("left")):
    time.sleep(0.05)
"""
"""Of what it leaves, the first thread has ended, so that it looks like a zombie."""


def test_a_process_whose_first_thread_has_ended_is_ended_with_the_run(package):
    ended = end_of(CommandRunner(argv=(sys.executable, "-c", HEADLESS)), package)

    pid = pid_in(package.directory / "left")
    assert ended.state is RunState.SUCCEEDED
    until(lambda: not Path(f"/proc/{pid}/task").exists(), "it is gone", seconds=20)


def test_many_processes_without_the_runs_environment_are_all_ended(package):
    script = "for number in 1 2 3 4 5 6 7 8; do env -i setsid sh -c 'echo $$ >> left; sleep 60' & done; "

    ended = end_of(shell(script + "until test $(wc -l < left) = 8; do sleep 0.05; done"), package)

    pids = [int(line) for line in (package.directory / "left").read_text().split()]
    assert ended.state is RunState.SUCCEEDED
    assert [pid for pid in pids if is_alive(pid)] == []


REAPED = """
import os, subprocess, time
orphan = int(subprocess.check_output(["sh", "-c", "setsid true >/dev/null & echo $!"]))
give_up = time.monotonic() + 20
while os.path.exists(f"/proc/{orphan}") and time.monotonic() < give_up:
    time.sleep(0.01)
print(os.path.exists(f"/proc/{orphan}"))
"""


def test_an_orphan_that_ends_while_the_command_runs_leaves_no_zombie(package):
    assert end_of(python(REAPED), package).output_tail == "False\n"


# An account of its own


@pytest.fixture
def reachable_package() -> Iterator[Package]:
    """A package to which other accounts can pass: pytest's own directories are closed to them."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o711)
    (top / "data").mkdir(mode=0o700)
    (top / "data" / "hookmill.db").write_text("others' payloads")
    try:
        package = write_package(top / "data" / "runs", a_run(), b'{"a": 1}')
        allow_traversal(package.directory.parent)
        yield package
    finally:
        shutil.rmtree(top)


TRIES = """
id -un; echo "$HOME $USER"
cat event-payload.json "$HOOKMILL_PAYLOAD_FILE"; echo
touch made && cd / && ls "${HOOKMILL_PAYLOAD_FILE%/*}"
cat "${HOOKMILL_PAYLOAD_FILE%/runs/*}/hookmill.db"
ls "${HOOKMILL_PAYLOAD_FILE%/runs/*}"
ls "${HOOKMILL_PAYLOAD_FILE%/run_*}"
cat /proc/$PPID/environ
echo forged >> "${HOOKMILL_PAYLOAD_FILE%/*}/output.log"
"""


def test_a_command_with_a_user_reaches_its_package_and_nothing_else(reachable_package, monkeypatch):
    if os.geteuid() != 0:
        with pytest.raises(Invalid, match="only if the service runs as root"):
            unix_account("root")
        return
    monkeypatch.setenv("LANG", "C")

    output = output_of(shell(TRIES, account=unix_account("nobody")), reachable_package)

    home = pwd.getpwnam("nobody").pw_dir
    lines = output.splitlines()
    assert lines[:3] == ["nobody", f"{home} nobody", '{"a": 1}{"a": 1}']
    assert lines[3:9] == [
        "envelope.json", "envelope.txt", "event-payload.json", "made", "output.log", "prompt.md"
    ]  # fmt: skip
    assert len(lines[9:]) == 5
    assert all("Permission denied" in line or "cannot create" in line for line in lines[9:])
    log = (reachable_package.directory / "output.log").stat()
    assert (log.st_uid, log.st_mode & 0o777) == (0, 0o600)
    assert (reachable_package.directory / "output.log").read_text() == output


def test_a_command_with_a_user_may_open_its_output_by_name(reachable_package):
    account = unix_account("nobody" if os.geteuid() == 0 else os.geteuid())

    assert output_of(shell("echo out > /dev/stdout; echo err > /dev/stderr", account=account), reachable_package) == (
        "out\nerr\n"
    )


def test_the_account_of_the_service_itself_may_always_be_the_user(package):
    ours = unix_account(os.geteuid())

    assert output_of(shell('id -u; echo "$HOME"', account=ours), package) == f"{os.geteuid()}\n{ours.home}\n"


@pytest.mark.parametrize("user", ["hookmill-nobody-has-this-name", 4_294_967_290, -1])
def test_a_user_that_is_no_account_is_refused(user):
    with pytest.raises(Invalid, match="This system has no account"):
        unix_account(user)


def test_a_package_out_of_the_users_reach_is_the_hosts_fault(reachable_package):
    reachable_package.directory.parent.parent.parent.chmod(0o700)

    if os.geteuid() == 0:
        with pytest.raises(HostFault, match="'nobody' must be able to search each directory of") as raised:
            shell("true", account=unix_account("nobody")).run(reachable_package, keep_going)
        assert not raised.value.counts_as_attempt
    else:
        ended = end_of(shell("true", account=unix_account(os.geteuid())), reachable_package)
        assert ended.state is RunState.SUCCEEDED


def test_what_a_user_leaves_running_is_ended_with_its_run(reachable_package):
    script = "env -i setsid sleep 60 & echo $! > left; setsid sleep 60 & exit 0"
    account = unix_account("nobody" if os.geteuid() == 0 else os.geteuid())

    ended = end_of(shell(script, account=account), reachable_package)

    assert ended.state is RunState.SUCCEEDED
    assert not is_alive(pid_in(reachable_package.directory / "left"))
    assert processes_of(run_id(reachable_package.run.id)) == []


# A guard that was stopped, which a command may do to its parent

STOPS_ITS_GUARD = "echo $$ > leader; env -i setsid sleep 60 & echo $! > left; kill -STOP $PPID; sleep 60"


def test_a_command_that_stops_its_guard_is_ended_after_its_time_limit(package, monkeypatch):
    monkeypatch.setattr(command, "MARGIN_SECONDS", 1.5)

    ended = end_of(shell(STOPS_ITS_GUARD, time_limit_seconds=0.5, grace_seconds=0.1), package)

    assert ended.state is RunState.FAILED
    assert ended.reason == "The command was ended after its time limit of 0.5 s."
    assert processes_of(run_id(package.run.id)) == []


def test_a_command_that_stops_its_guard_can_be_cancelled(package, monkeypatch):
    monkeypatch.setattr(command, "MARGIN_SECONDS", 0.1)
    has_stopped_it = exists(package.directory / "left")

    ended = end_of(shell(STOPS_ITS_GUARD, grace_seconds=0.1), package, once(has_stopped_it, Instruction.CANCEL))

    assert (ended.state, ended.reason) == (RunState.CANCELLED, "It was cancelled while it ran.")
    assert not is_alive(pid_in(package.directory / "leader"))
    assert not is_alive(pid_in(package.directory / "left"))
    assert processes_of(run_id(package.run.id)) == []


def test_a_command_that_stops_its_guard_is_ended_when_the_service_leaves(package, monkeypatch):
    monkeypatch.setattr(command, "MARGIN_SECONDS", 0.1)
    has_stopped_it = exists(package.directory / "left")

    left = shell(STOPS_ITS_GUARD, grace_seconds=0.1).run(package, once(has_stopped_it, Instruction.ABANDON))

    assert left == Abandoned()
    assert not is_alive(pid_in(package.directory / "leader"))


def test_a_stopped_guard_and_its_command_are_found_by_their_run(package):
    runner = shell(STOPS_ITS_GUARD)
    guard = runner._start_guard(package)
    leader = pid_in(package.directory / "leader")
    until(lambda: Path(f"/proc/{guard.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")

    kill_processes_of_runs(run_id(package.run.id))

    with guard:
        assert guard.wait(20) == -signal.SIGKILL
    assert has_ended(leader)


def test_a_command_whose_guard_is_killed_is_ended_and_has_failed(package):
    def kill_the_guard() -> None:
        leader = pid_in(package.directory / "leader")
        stat = Path(f"/proc/{leader}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_guard)
    killer.start()
    ended = end_of(shell("echo $$ > leader; sleep 60"), package)
    killer.join()

    assert ended.state is RunState.FAILED
    assert ended.reason == "The process that guards the command was killed, so the command was ended."
    assert has_ended(pid_in(package.directory / "leader"))


def test_another_runs_processes_are_left_alone(tmp_path):
    stay, end = (write_package(tmp_path, run, b"{}") for run in (a_run(), a_run(id=RunKey(b"another run's id"))))
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(end_of(shell("echo $$ > leader; sleep 1.2"), stay)))
    thread.start()
    pid_in(stay.directory / "leader")

    end_of(shell("setsid sleep 60 & exit 0"), end)
    thread.join()

    assert ended[0].state is RunState.SUCCEEDED


def test_a_short_command_costs_little_time(package):
    took = []
    for _ in range(3):
        began = time.monotonic()
        end_of(shell("exit 0"), package)
        took.append(time.monotonic() - began)

    assert min(took) < 2
