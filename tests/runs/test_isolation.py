"""What a hostile run can reach, at each level of isolation. docs/isolation.md shows the same results."""

import asyncio
import errno
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from hookmill.domain.egress import EgressRules
from hookmill.domain.errors import Invalid
from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import Package, allow_traversal, list_files, open_file, write_package
from hookmill.runs.runner import HostFault, Instruction
from hookmill.runs.runners import AgentSettings, CommandRunner, CommandSettings, ContainerSettings, RunnerContext
from hookmill.runs.runners.bubblewrap import BubblewrapSettings
from hookmill.runs.runners.guard import limit_that_ended
from hookmill.sandbox import DISK_LIMIT, cgroup, egress
from hookmill.sandbox.cgroup import cgroup_limits, has_exceeded_memory, usable_cgroup
from hookmill.sandbox.disk import disk_use
from hookmill.sandbox.memory import memory_bytes
from tests.runs.answering import answering
from tests.runs.samples import always_continue, instruct_when, sample_run
from tests.support.bubblewrap import bubblewrap_in_path
from tests.support.docker import docker
from tests.support.podman import PYTHON_IMAGE, import_python, podman
from tests.support.ports import free_port
from tests.support.python_programs import python
from tests.support.waiting import until

ROOT: Final = Path(__file__).parents[2]
ATTEMPTS: Final = Path(__file__).with_name("escape_attempts.py")
MIB: Final = 1_048_576
MANY_BYTES: Final = 2**50
LIMITS: Final[dict[str, Any]] = {
    "memory_mb": 128,
    "limits": "approximate",
    "processes_max": 32,
    "disk_mb": 16,
    "tmp_mb": 8,
}
CGROUPS: Final = ["no cgroup", *(["cgroup"] if usable_cgroup() is not None else [])]
"""With and without a cgroup, if this account can create one."""
ACCOUNT: Final = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
"""The account of the service, and of its commands. The sandbox must be sufficient without another account."""


@pytest.fixture(scope="module", autouse=True)
def sandboxes():
    with bubblewrap_in_path():
        yield


@pytest.fixture
def no_cgroup(monkeypatch):
    """A service that can create no cgroup."""
    monkeypatch.setattr(cgroup, "MOUNT", "/nonexistent")


@pytest.fixture(params=CGROUPS)
def possible_cgroup(request):
    """Whether sandboxes have a cgroup."""
    if request.param == "no cgroup":
        request.getfixturevalue("no_cgroup")
    return bool(request.param == "cgroup")


@dataclass(frozen=True, slots=True)
class Installation:
    """Everything of a service that a command of the same account could attack."""

    package: Package
    data: Path
    home: Path
    mark: str
    """A random name."""
    left_files: Mapping[str, Path]
    """Files that attempts leave, by the names of the attempts."""
    target: Mapping[str, Any]
    """What the attempts need."""


@pytest.fixture
def installation():
    with ExitStack() as resources:
        # Other accounts can't reach the directories of pytest.
        top = Path(tempfile.mkdtemp())
        resources.callback(shutil.rmtree, top)
        data, home, mark = top / "data", top / "home", f"hookmill-{secrets.token_hex(8)}"
        other = data / "runs" / "run_other"
        home.mkdir()
        package = write_package(data / "runs", sample_run(), b'{"a": 1}')
        other.mkdir()
        for file in (data / "master.key", data / "hookmill.db", other / "event-payload.json", home / "id_ed25519"):
            file.write_text("canary")
            file.chmod(0o600)
        service = resources.enter_context(service_process())
        resources.callback(service.kill)
        port = resources.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for address in (str(top / "socket"), f"\0{mark}"):
            unix = resources.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
        if os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                shutil.chown(path, ACCOUNT)
        left_files = {
            "Change the service's files": data / "hookmill.toml",
            "Leave a file outside the package": home / "left",
            "Leave a file in the host's `/tmp`": Path("/tmp", mark),
        }
        yield Installation(
            package, data, home, mark, left_files,
            {
                "output": ".", "files": [str(path) for path in left_files.values()],
                "data": str(data), "home": str(home), "mark": mark, "service": service.pid, "port": port,
                "socket": str(top / "socket"), "interfaces": [name for _, name in socket.if_nameindex()],
                "memory_mb": LIMITS["memory_mb"], "processes": LIMITS["processes_max"],
                "is_memory_watched": False,
                "disk_mb": LIMITS["disk_mb"], "tmp_mb": LIMITS["tmp_mb"],
            },
        )  # fmt: skip


def service_process() -> "subprocess.Popen[bytes]":
    """A process that has a key in its environment, and is protected like those of the service. It blocks SIGUSR1."""
    script = (
        "import ctypes, signal, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); print(flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [python(), "-I", "-S", "-c", script, "--mark-of-the-service"],
        env={"HOOKMILL_MASTER_KEY": "canary"},
        stdout=subprocess.PIPE,
        user=ACCOUNT if os.geteuid() == 0 else None,
        cwd="/",
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def has_been_signalled(process: int) -> bool:
    """Whether the process, which blocks SIGUSR1, was sent this signal."""
    status = Path(f"/proc/{process}/status").read_text()
    [pending] = re.findall(r"^ShdPnd:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(pending, 16) & 1 << (signal.SIGUSR1 - 1))


def settings(*argv: str, **changes: Any) -> CommandSettings:
    """The settings of a command in a sandbox, with these changes."""
    sandbox = {"sandbox": "bubblewrap", "bubblewrap": {**LIMITS, **changes.pop("bubblewrap", {})}}
    return CommandSettings(**{"argv": argv, "user": ACCOUNT, "time_limit_seconds": 60, **sandbox, **changes})


def runner(*argv: str, **changes: Any) -> CommandRunner:
    return replace(settings(*argv, **changes).create_runner(RunnerContext()), grace_seconds=5)


def perform(runner: CommandRunner, package: Package, next_instruction=always_continue) -> Ended:
    result = runner.run(package, next_instruction)
    assert isinstance(result, Ended)
    return result


@pytest.fixture
def package():
    top = Path(tempfile.mkdtemp())
    top.chmod(0o711)
    try:
        package = write_package(top / "data" / "runs", sample_run(), b'{"a": 1}')
        allow_traversal(package.directory.parent)
        yield package
    finally:
        shutil.rmtree(top)


# What a run can reach


def rows_of_page() -> dict[str, list[str]]:
    """The table of docs/isolation.md: for each attempt, what happens at the levels none, bubblewrap and container."""
    page = (ROOT / "docs" / "isolation.md").read_text()
    rows = re.findall(r"^\| (.+?) +\| (\w+) +\| (\w+) +\| (\w+) +\|$", page, re.MULTILINE)
    return {attempt: levels for attempt, *levels in rows}


def assert_page_is_right(
    installation: Installation, column: int, result: Ended, exceptions: Mapping[str, str] | None = None
):
    """The attempts have had the results that this column of the page shows, with these exceptions."""
    succeeded = set(json.loads((result.output_tail or "").splitlines()[-1]))
    for name, path in installation.left_files.items():
        if path.exists():
            path.unlink()
            succeeded.add(name)
    if has_been_signalled(installation.target["service"]):
        succeeded.add("Send signals to other processes of the account")
    rows = rows_of_page()
    assert {name: "possible" if name in succeeded else "prevented" for name in rows} == {
        **{name: levels[column] for name, levels in rows.items()},
        **(exceptions or {}),
    }
    assert succeeded <= rows.keys()


@contextmanager
def engine_with_python(name: str) -> Iterator[Path]:
    # In a longer path, Podman notices the end of a container only after 20 seconds.
    directory = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    try:
        with docker(directory) if name == "docker" else nullcontext(podman(directory)) as engine:
            import_python(engine, python(), directory)
            yield engine
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.proof
@pytest.mark.parametrize("allowed", [(), ("a.example:443",)], ids=["no network", "allowed destination"])
@pytest.mark.parametrize("engine_name", ["podman", "docker"])
def test_hostile_container_reaches_what_the_page_of_isolation_says(installation, engine_name, allowed):
    package = installation.package.directory
    target = {**installation.target, "output": "/output"}
    shutil.copy(ATTEMPTS, package / "attempts.py")
    for path in (package, *package.iterdir()):
        os.chown(path, os.geteuid(), -1)
    with engine_with_python(engine_name) as engine:
        settings = ContainerSettings(
            engine=str(engine), image=PYTHON_IMAGE,
            memory_mb=LIMITS["memory_mb"], processes_max=LIMITS["processes_max"], network_allow=allowed,
            argv=(str(Path(python()).resolve()), "-I", "-S", "/package/attempts.py", json.dumps(target)),
        )  # fmt: skip

        result = settings.create_runner(RunnerContext()).run(installation.package, always_continue)

    assert isinstance(result, Ended)
    assert result.state is RunState.SUCCEEDED, result
    # Docker has a seccomp profile here, and the tests' Podman has none.
    exceptions = {"Create user namespaces": "prevented"} if engine_name == "docker" else {}
    assert_page_is_right(installation, 2, result, exceptions)
    # What the service shows of the package: the links that the run left are neither followed nor shown.
    packages, run = installation.data / "runs", installation.package.run.id
    shown = {name for name, _ in list_files(packages, run)[0]}
    assert {"link-to-the-key", "link-to-the-data", "pipe"}.isdisjoint(shown)
    for name in ("link-to-the-key", "link-to-the-data", "pipe"):
        with pytest.raises(OSError, match=name):
            open_file(packages, run, f"outputs/{name}")


@pytest.mark.parametrize(
    ("column", "cgroups"),
    [(0, "no cgroup"), *((1, cgroups) for cgroups in CGROUPS)],
    ids=["none", *(f"bubblewrap, {cgroups}" for cgroups in CGROUPS)],
)
def test_hostile_run_reaches_what_the_page_of_isolation_says(installation, column, cgroups, request):
    if cgroups == "no cgroup":
        request.getfixturevalue("no_cgroup")
    changes = {"sandbox": "none", "bubblewrap": None} if column == 0 else {}
    script = installation.package.directory / "attempts.py"
    shutil.copy(ATTEMPTS, script)
    target = {**installation.target, "is_memory_watched": column == 1}
    command = settings(python(), "-I", "-S", script.name, json.dumps(target))

    result = perform(
        command.model_copy(update=changes).create_runner(RunnerContext()),
        installation.package,
    )

    assert result.reason == (None, "The sandbox was ended: its processes used more than 128 MiB of memory.")[column]
    assert_page_is_right(installation, column, result)
    # What the service shows of the package: regular files only, and no link followed.
    packages, run = installation.data / "runs", installation.package.run.id
    shown = {name for name, _ in list_files(packages, run)[0]}
    assert shown - {"hard-link"} == {
        "attempts.py", "envelope.json", "envelope.txt", "event-payload.json", "large", "output.log", "prompt.md"
    }  # fmt: skip
    for name in ("link-to-the-key", "link-to-the-data", "pipe"):
        with pytest.raises(OSError, match=name) as refusal:
            open_file(packages, run, name)
        assert refusal.value.errno in (None, errno.ELOOP)


def test_command_in_a_sandbox_gets_its_files_variables_and_status(package, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "canary")
    monkeypatch.setenv("AGENT_KEY", "wanted")
    script = """
        pwd; cat "$HOOKMILL_PAYLOAD_FILE"; echo; echo "$HOME $AGENT_KEY $OTHER_KEY"; echo new > created; exit 7
    """

    result = perform(runner("sh", "-c", script, pass_environment=("AGENT_KEY",)), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 7)
    assert result.output_tail == f'{package.directory}\n{{"a": 1}}\n/tmp wanted \n'
    assert (package.directory / "created").read_text() == "new\n"


def test_workspace_and_paths_of_the_operator_are_in_the_sandbox(package):
    top = package.directory.parents[2]
    (package.directory / "workspace").mkdir()
    package = replace(package, commit="a" * 40)
    for name in ("agent", "cache"):
        (top / name).mkdir()
        (top / name).chmod(0o777)
    (top / "agent" / "program").write_text("the agent")
    command = runner(
        "sh", "-c", f"cat {top}/agent/program; touch {top}/agent/x; touch $HOOKMILL_WORKSPACE/a {top}/cache/b",
        bubblewrap={"read_only": [str(top / "agent")], "writable": [str(top / "cache")]},
    )  # fmt: skip

    result = perform(command, package)

    assert result.state is RunState.SUCCEEDED, result
    assert "the agent" in (result.output_tail or "")
    assert "Read-only file system" in (result.output_tail or "")
    assert (package.directory / "workspace" / "a").exists()
    assert (top / "cache" / "b").exists()


def test_no_argument_of_bubblewrap_has_the_value_of_a_variable(package):
    command = runner("true", environment={"MODE": "canary"})

    assert command.sandbox is not None
    assert "canary" not in str(command.sandbox.spec(package.directory, name="a"))


def test_agent_in_a_sandbox_works_in_the_workspace_and_its_key_is_masked(package, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", "a-secret-key")
    (package.directory / "workspace").mkdir()
    package = replace(package, commit="a" * 40)
    agent = package.directory.parents[2] / "agent"
    agent.mkdir()
    (agent / "claude").write_text(
        """#!/bin/sh
        read -r prompt
        echo "$ANTHROPIC_API_KEY" "${PWD##*/}"
        echo '{"type": "result", "result": "Read: '"$prompt"'", "total_cost_usd": 0.25}'
        """
    )
    (agent / "claude").chmod(0o755)
    settings = AgentSettings(
        agent="claude", program=str(agent / "claude"), key_from="AGENT_KEY", user=ACCOUNT,
        sandbox="bubblewrap", bubblewrap=BubblewrapSettings(read_only=(str(agent),)),
    )  # fmt: skip

    result = perform(settings.create_runner(RunnerContext()), package)

    assert result.state is RunState.SUCCEEDED, result
    assert result.report is not None
    assert (result.report.result, result.report.cost_microusd) == ("Read: Do it.", 250_000)
    assert (result.output_tail or "").startswith("[masked] workspace\n")


# The end of a run


def test_sigterm_reaches_the_command_in_its_sandbox_at_a_cancellation(package):
    script = "trap 'echo ended; exit 0' TERM; touch begun; while :; do sleep 0.05; done"
    begun = package.directory / "begun"

    result = perform(runner("sh", "-c", script), package, instruct_when(begun.exists, Instruction.CANCEL))

    # The signal reaches the other processes in the sandbox, too, and the shell may report their ends.
    assert (result.state, (result.output_tail or "")[-6:]) == (RunState.CANCELLED, "ended\n")


def test_command_that_ignores_sigterm_is_killed_with_its_sandbox(package):
    command = runner("sh", "-c", "trap '' TERM; setsid sleep 60 & echo $$; sleep 60", time_limit_seconds=1)

    result = perform(replace(command, grace_seconds=0.3), package)

    assert (result.state, result.reason) == (RunState.FAILED, "The command was ended after its time limit of 1 s.")
    assert processes_in(package) == []


def test_sandbox_ends_with_its_guard(package):
    begun = package.directory / "begun"
    command = runner("sh", "-c", "touch begun; sleep 60")

    def kill_guard():
        if begun.exists():
            inside = processes_in(package)
            guards = [pid for pid in inside if b"guard.py" in cmdline(pid)]
            for pid in guards:
                # The end of the first one ends the second.
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
        return Instruction.CONTINUE

    result = perform(command, package, kill_guard)

    assert result.reason == "The process that guards the command was killed, so the command was ended."
    above = usable_cgroup()
    assert above is None or not Path(above, f"{package.directory.name}-1").exists()
    until(lambda: processes_in(package) == [], "every process of the sandbox has ended")


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def processes_in(package: Package) -> list[int]:
    """The processes of the run: their arguments contain its directory or id."""
    mark = package.directory.name.encode()
    return [
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and mark in cmdline(int(path.name))
    ]


def test_missing_program_fails_with_the_sentence_of_the_doctor(package):
    result = perform(runner("missing-program"), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 125)
    assert result.reason == (
        f"The runner {package.run.runner}: Its program missing-program does not exist. Install it, or correct the "
        "runner's argv."
    )
    assert result.output_tail == "bwrap: execvp missing-program: No such file or directory\n"


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 1\n", None], ids=["refused", "missing"])
def test_run_waits_if_the_host_creates_no_sandbox(package, monkeypatch, tmp_path_factory, program):
    directory = package.directory.parents[2] / "bin"
    directory.mkdir()
    if program is not None:
        (directory / "bwrap").write_text(program)
        (directory / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))

    reason = "could not be started: no sandbox: " if program is not None else "The program bwrap is missing. Install "
    with pytest.raises(HostFault, match=reason):
        perform(runner("true"), package)


def test_package_that_grows_too_large_ends_its_sandbox(package):
    script = "for n in 1 2 3 4; do head -c 8000000 /dev/zero > $n; done; sleep 60"

    result = perform(runner("sh", "-c", script), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 137)
    assert result.reason == TOO_LARGE


def performed_by_account(command: CommandRunner, package: Package) -> Ended:
    """The result of a run whose service has the same account as its commands."""
    if os.geteuid() != 0:
        return perform(command, package)
    account = pwd.getpwnam(ACCOUNT)
    for path in (package.directory.parents[1], *package.directory.parents[1].rglob("*")):
        shutil.chown(path, ACCOUNT)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            # The one that performs the tests may be in a home directory.
            sys.executable = python()
            result = perform(replace(command, account=None), package)
            os.write(write_end, json.dumps([result.state.value, result.reason]).encode())
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        state, reason = json.load(pipe)
    return Ended(state=RunState(state), reason=reason)


TOO_LARGE: Final = "The sandbox was ended: the run's files needed more than 16 MiB, or were more than 1,000,000."
HIDING_PLACES: Final = {
    "directory that can't be listed": "mkdir hidden; for n in 1 2; do head -c 10485760 /dev/zero > hidden/$n; done; "
    "chmod 300 hidden .",
    "directory that can't be entered": "mkdir hidden; for n in 1 2; do head -c 10485760 /dev/zero > hidden/$n; done; "
    "chmod 0 hidden",
    "last moment": "for n in 1 2; do head -c 10485760 /dev/zero > $n; done",
    "outputs": "for n in 1 2; do head -c 10485760 /dev/zero > outputs/$n; done",
}


@pytest.mark.parametrize("script", HIDING_PLACES.values(), ids=HIDING_PLACES)
def test_package_left_too_large_fails_the_run_and_is_removed(package, script):
    result = performed_by_account(runner("sh", "-c", f"echo text > outputs/report; {script}"), package)

    assert (result.state, result.reason) == (RunState.FAILED, TOO_LARGE)
    files = {name for name, _ in list_files(package.directory.parent, package.run.id)[0]}
    assert files >= {"prompt.md", "envelope.json", "event-payload.json", "output.log", "report"}
    assert disk_use([str(package.directory)]).bytes <= 16 * MIB


def test_deep_directories_count_as_too_large(package):
    deep = (
        "import os\nfor number in range(3000):\n    os.mkdir('directory')\n    os.chdir('directory')\n"
        "open('file', 'w').close()"
    )

    result = performed_by_account(runner(python(), "-I", "-S", "-c", deep), package)

    assert (result.state, result.reason) == (RunState.FAILED, TOO_LARGE)
    assert not (package.directory / "directory").exists()


DELETED_FILES: Final = """
import time
files = []
for number in range(2):
    files.append(open("large", "wb"))
    files[-1].write(bytes(10 * 1048576))
    files[-1].flush()
    __import__("os").unlink("large")
time.sleep(60)
"""


MAPPED_FILES: Final = """
import mmap, os, time
maps = []
for number in range(20):
    with open("large", "w+b") as file:
        file.write(bytes(1048576))
        file.flush()
        maps.append(mmap.mmap(file.fileno(), 1048576))
    os.unlink("large")
time.sleep(60)
"""


@pytest.mark.parametrize("script", [DELETED_FILES, MAPPED_FILES], ids=["open", "mapped"])
def test_files_in_use_that_were_deleted_count_for_the_disk(package, script):
    result = performed_by_account(runner(python(), "-I", "-S", "-c", script), package)

    assert (result.state, result.reason) == (RunState.FAILED, TOO_LARGE)


def test_growth_of_shared_paths_counts_for_the_disk(package):
    cache = package.directory.parents[2] / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    (cache / "old").write_bytes(bytes(20 * MIB))
    assert disk_use([str(cache)], changed_since_ns=time.time_ns()).bytes == 0
    script = f"for n in 1 2; do head -c 10485760 /dev/zero > {cache}/$n; done; sleep 60"

    result = perform(runner("sh", "-c", script, bubblewrap={"writable": [str(cache)]}), package)

    assert (result.state, result.reason) == (RunState.FAILED, TOO_LARGE)


SHARING_PROCESSES: Final = """
import mmap, os
memory = mmap.mmap(-1, 32 * 1048576, flags=mmap.MAP_ANONYMOUS | mmap.MAP_SHARED)
for start in range(0, len(memory), 4096): memory[start] = 1
other = os.fork()
for start in range(0, len(memory), 4096): memory[start] = 1
if other: print(other, flush=True)
input()
"""


def test_memory_that_processes_share_counts_once_near_the_limit():
    with subprocess.Popen(
        [python(), "-I", "-S", "-c", SHARING_PROCESSES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        first = int(process.stdout.readline())
        until(lambda: memory_bytes([first], MANY_BYTES) >= 32 * MIB, "the other process has the memory, too")

        quick, exact = (memory_bytes([process.pid, first], limit) for limit in (MANY_BYTES, 16 * MIB))

    assert quick >= 64 * MIB
    assert 32 * MIB <= exact < 64 * MIB
    assert memory_bytes([process.pid], 0) == 0


class EndsBetweenTwoReadings(list[int]):
    """Processes, the first of which is killed after all have been read once."""

    def __init__(self, first: subprocess.Popen[bytes], *others: int):
        super().__init__((first.pid, *others))
        self._first = first
        self._readings = 0

    def __iter__(self) -> Iterator[int]:
        self._readings += 1
        if self._readings == 2:
            self._first.kill()
            self._first.wait()
        return super().__iter__()


def test_process_that_ends_during_the_measurement_counts_no_memory():
    with subprocess.Popen(
        [python(), "-I", "-S", "-c", f"import time; x = b'x' * {32 * MIB}; print(flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        assert memory_bytes(EndsBetweenTwoReadings(process, os.getpid()), 1) == pytest.approx(
            memory_bytes([os.getpid()], 1), abs=16 * MIB
        )


@pytest.mark.parametrize(
    ("events", "is_exceeded"),
    [
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n", False),
        # At its limit, the kernel has found other memory to free.
        ("low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n", False),
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 4\noom_group_kill 1\n", True),
        # The host had no memory left.
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", False),
    ],
)
def test_events_of_a_cgroup_say_whether_its_memory_was_exceeded(tmp_path, events, is_exceeded):
    assert not has_exceeded_memory(str(tmp_path))
    (tmp_path / "memory.events").write_text(events)

    assert has_exceeded_memory(str(tmp_path)) == is_exceeded


@pytest.mark.parametrize("measured_limit", [None, DISK_LIMIT])
def test_cgroup_is_removed_whatever_has_ended_its_sandbox(tmp_path, measured_limit):
    directory = tmp_path / "cgroup"
    directory.mkdir()

    assert limit_that_ended({"directory": str(directory), "limits": {}}, measured_limit) == measured_limit

    assert not directory.exists()


def test_cgroup_limits_memory_with_swap_and_processors(tmp_path):
    above = str(tmp_path)
    assert cgroup_limits(above, 128 * MIB, None) == {
        "memory.max": "134217728", "memory.swap.max": "0", "memory.oom.group": "1"
    }  # fmt: skip
    assert cgroup_limits(above, 128 * MIB, 1.5)["cpu.max"] == "150000 100000"
    assert cgroup_limits(above, 128 * MIB, 0.001)["cpu.max"] == "1000 100000"


def test_limit_of_processors_is_refused_where_it_would_not_hold(package):
    with pytest.raises(Invalid, match="The limit cpus needs a cgroup"):
        settings("true", bubblewrap={"cpus": 2}).prepare_host(package.directory.parent)


def test_exact_limit_of_memory_is_refused_where_it_would_not_hold(package, no_cgroup):
    packages = package.directory.parent
    exact = settings("true", bubblewrap={"limits": "exact"})
    unset = CommandSettings(argv=("true",), user=ACCOUNT, sandbox="bubblewrap")

    with pytest.raises(Invalid, match='or add limits = "approximate" to the runner\'s bubblewrap'):
        exact.prepare_host(packages)
    unset.prepare_host(packages)
    assert "the memory of its commands is only measured" in (unset.warning() or "")
    settings("true").prepare_host(packages)
    assert settings("true").warning() is None


MEMORY_USES: Final = {
    "one process": """
import sys
try: x = bytearray(200 * 1048576)
except MemoryError: sys.exit("refused")
""",
    "several processes": """
import os, signal
for child in range(8):
    if os.fork() == 0:
        x = bytearray(50 * 1048576)
        signal.pause()
        break
""",
    "buffers of sockets": """
import os, signal, socket
keep = []
for child in range(8):
    if os.fork() == 0:
        try:
            while True:
                keep += socket.socketpair()
                keep[-1].setblocking(False)
                try:
                    while True: keep[-1].send(bytes(65536))
                except BlockingIOError: pass
        except OSError:
            signal.pause()
""",
    "small datagrams": """
import os, signal, socket
keep = []
for child in range(8):
    if os.fork() == 0:
        try:
            while True:
                keep += socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                keep[-1].setblocking(False)
                try:
                    while True: keep[-1].send(b"x")
                except BlockingIOError: pass
        except OSError:
            signal.pause()
""",
    "files in memory (memfd)": """
import os
for number in range(10):
    os.write(os.memfd_create("x"), bytes(20 * 1048576))
""",
    "System V segments": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for number in range(10):
    segment = libc.shmget(0, 20 * 1048576, 0o1600)
    if segment < 0: raise SystemExit("refused")
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, 20 * 1048576)
    libc.shmdt(ctypes.c_void_p(address))
""",
    "empty files in `/tmp`": """
import itertools
for number in itertools.count():
    open(f"/tmp/{number}", "w").close()
""",
}


REFUSED_WITHOUT_CGROUP: Final = {"one process", "System V segments"}
"""The program gets an error. The other uses of memory end the sandbox."""


@pytest.mark.parametrize("kind", MEMORY_USES)
def test_no_kind_of_memory_exceeds_the_limit(package, kind, possible_cgroup):
    script = MEMORY_USES[kind] + "\nimport signal; signal.pause()"

    result = perform(runner(python(), "-I", "-S", "-c", script), package)

    assert result.state is RunState.FAILED
    if not possible_cgroup and kind in REFUSED_WITHOUT_CGROUP:
        assert result.output_tail == "refused\n"
    else:
        assert result.reason == "The sandbox was ended: its processes used more than 128 MiB of memory."


def test_command_is_ended_first_if_the_host_has_no_memory_left(package):
    result = perform(runner("cat", "/proc/self/oom_score_adj"), package)

    assert result.output_tail == "1000\n"


# The network


REQUESTS: Final = """
import json, os, socket, sys
from urllib.parse import urlsplit

proxy = urlsplit(os.environ["HTTPS_PROXY"])

def answer_to(request):
    with socket.create_connection((proxy.hostname, proxy.port), 20) as connection:
        connection.sendall(request.encode())
        answer = b""
        while not answer.endswith(b"the end") and (chunk := connection.recv(10000)):
            answer += chunk
        first_line, _, rest = answer.decode().partition("\\r\\n")
        return first_line + "|" + rest.rpartition("\\r\\n")[2].strip()

for request in json.loads(sys.argv[1]):
    print(answer_to(request))
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5)
except OSError as error:
    print(error.strerror)
"""


def test_sandbox_reaches_only_the_allowed_destinations(package):
    closed = free_port()
    with answering(b"the end") as port:
        requests = [
            f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\nhello",
            f"CONNECT localhost:{closed} HTTP/1.1\r\n\r\n",
            "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n",
            f"GET http://localhost:{port}/ HTTP/1.1\r\n\r\n",
            "CONNECT nonsense HTTP/1.1\r\n\r\n",
            "CONNECT " + "x" * 10_000,
        ]
        allowed = [f"localhost:{number}" for number in (port, closed)]
        command = runner(
            python(), "-I", "-S", "-c", REQUESTS, json.dumps(requests), str(port),
            bubblewrap={"network_allow": allowed, "network_private": ["127.0.0.1"]},
        )  # fmt: skip

        result = perform(command, package)

    assert result.state is RunState.SUCCEEDED, result
    assert (result.output_tail or "").splitlines() == [
        "The sandbox refused a connection to 127.0.0.1:1: network_allow does not list it.",
        "HTTP/1.1 200 Connection established|the end",
        f"HTTP/1.1 502 Bad Gateway|localhost:{closed} could not be reached.",
        "HTTP/1.1 403 Forbidden|The sandbox's network_allow does not list 127.0.0.1:1.",
        "HTTP/1.1 405 Method Not Allowed|The sandbox's proxy supports CONNECT only. Use an https URL.",
        "HTTP/1.1 400 Bad Request|CONNECT needs a host and a port.",
        "|",
        "Connection refused",
    ]


def test_run_that_keeps_descriptors_in_flight_prevents_no_other_sandbox(package, possible_cgroup):
    # The kernel counts the descriptors that an account has sent, and nobody has received, in all its sandboxes.
    flood = """
        import os, socket, sys, time
        count = 0
        pairs = []
        try:
            while count < 100_000:
                pairs.append(socket.socketpair())
                for _ in range(200):
                    socket.send_fds(pairs[-1][0], [b"x"], [0] * 100)
                    count += 100
        except OSError:
            pass
        open("flooded", "w").close()
        while not os.path.exists("end"):
            time.sleep(0.05)
    """
    other = write_package(package.directory.parent, sample_run(), b"{}")
    with ThreadPoolExecutor(1) as threads:
        hostile = threads.submit(perform, runner(python(), "-I", "-S", "-c", textwrap.dedent(flood)), package)
        try:
            until(lambda: (package.directory / "flooded").exists() or hostile.done(), "descriptors are in flight")
            assert not hostile.done(), hostile.result()
            result = perform(runner("true", bubblewrap={"network_allow": ["localhost:1"]}), other)
        finally:
            (package.directory / "end").touch()
    assert result.state is RunState.SUCCEEDED, result


def test_allowed_name_with_a_private_address_is_refused(package):
    command = runner(
        python(), "-I", "-S", "-c", REQUESTS, json.dumps(["CONNECT localhost:1 HTTP/1.1\r\n\r\n"]), "1",
        bubblewrap={"network_allow": ["localhost:1"]},
    )  # fmt: skip

    output = perform(command, package).output_tail or ""

    assert "403 Forbidden" in output
    assert "The address of localhost:1 is not public, and not in network_private." in output


def test_proxy_serves_a_limited_number_of_connections(monkeypatch):
    monkeypatch.setattr(egress, "CONNECTIONS_MAX", 2)

    async def try_three():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            proxy = asyncio.create_task(egress._Proxy(EgressRules.of([]), lambda _: None).serve(listener))
            waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            # The proxy takes connections in their order.
            answers = []
            for _ in range(1):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with suppress(ConnectionError):
                    answers.append(await reader.read())
                writer.close()
            for _, writer in waiting:
                writer.close()
            proxy.cancel()
            with suppress(asyncio.CancelledError):
                await proxy
            return answers

    assert asyncio.run(try_three()) in ([b""], [])


# Settings


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sandbox": "docker"}, "'none', 'bubblewrap' or 'container'"),
        ({"bubblewrap": {}}, 'must have sandbox = "bubblewrap" with bubblewrap'),
        ({"sandbox": "bubblewrap", "bubblewrap": {"read_only": ["opt"]}}, "must have absolute paths"),
        (
            {"sandbox": "bubblewrap", "bubblewrap": {"writable": ["/"]}},
            "must have absolute paths without .., and not /",
        ),
        (
            {"sandbox": "bubblewrap", "bubblewrap": {"read_only": ["/srv/a/b"], "writable": ["/srv/a"]}},
            "must have no path inside a writable one",
        ),
        ({"sandbox": "bubblewrap", "bubblewrap": {"network_allow": ["api"]}}, "'api' is no destination"),
        (
            {"sandbox": "bubblewrap", "bubblewrap": {"network": "full", "network_allow": ["a.example:1"]}},
            "must have network none with network_allow",
        ),
        (
            {"sandbox": "bubblewrap", "bubblewrap": {"network_private": ["10.0.0.0/8"]}},
            "must have network_allow with network_private",
        ),
    ],
)
def test_unusable_settings_of_a_sandbox_are_refused(changes, problem):
    with pytest.raises(ValidationError, match=re.escape(problem)):
        CommandSettings(argv=("x",), **changes)


def test_sandbox_is_tried_out_before_the_first_run(package, monkeypatch):
    packages = package.directory.parent
    missing_path = settings("true", bubblewrap={"read_only": ["/nonexistent"]})
    exposing = settings("true", bubblewrap={"read_only": [str(packages.parent.parent)]})

    settings("true").prepare_host(packages)
    for check in (missing_path.prepare_host, missing_path.examine):
        with pytest.raises(Invalid, match="can't create a sandbox here: bwrap: Can't find source path /nonexistent"):
            check(packages)
    with pytest.raises(Invalid, match="so commands in the sandbox would see it"):
        exposing.prepare_host(packages)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Invalid, match="The program bwrap is missing"):
        settings("true").refuse_unusable()


def test_doctor_describes_the_sandbox_and_finds_hidden_programs(package, possible_cgroup):
    packages = package.directory.parent
    top = packages.parent.parent
    (top / "agent").write_text("#!/bin/sh\n")
    (top / "agent").chmod(0o755)
    # As before the service's first start, which lets the account pass this directory.
    packages.parent.chmod(0o700)

    how = "with a cgroup" if possible_cgroup else "without a cgroup: its memory is only measured"
    assert (
        settings("sh")
        .examine(packages)
        .endswith(f" as {ACCOUNT} in a sandbox of bubblewrap {how}, with no network, for at most 60 s")
    )
    assert " without a sandbox, " in CommandSettings(argv=("sh",)).examine(packages)
    with pytest.raises(Invalid, match=rf"Its sandbox does not contain {top}/agent\. Add {top} to read_only"):
        settings(str(top / "agent")).examine(packages)


def test_both_directories_of_a_linked_program_are_named(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "agent.js").write_text("")
    link = tmp_path / "bin" / "agent"
    link.symlink_to("../lib/agent.js")
    linked = f"Its sandbox does not contain {link}, which is a symbolic link to {tmp_path}/lib/agent.js."

    def problem(*read_only):
        return BubblewrapSettings(read_only=tuple(map(str, read_only))).problem_of(str(link))

    assert problem() == (f"{linked} Add {tmp_path}/bin and {tmp_path}/lib to read_only in the runner's bubblewrap.")
    assert problem(tmp_path / "bin") == (f"{linked} Add {tmp_path}/lib to read_only in the runner's bubblewrap.")
    assert problem(tmp_path) is None


def test_root_in_a_sandbox_is_refused():
    if os.geteuid() == 0:
        with pytest.raises(Invalid, match="needs an account other than root"):
            CommandSettings(argv=("x",), sandbox="bubblewrap").refuse_unusable()


def test_summary_says_what_separates_a_command_from_the_host(no_cgroup):
    allowing = {"network_allow": ["a.example:443", "b.example:443"]}

    assert "no sandbox" in CommandSettings(argv=("x",)).summary()
    assert "in bubblewrap without a cgroup: its memory is only measured, with no network" in settings("x").summary()
    assert "with only a.example:443, b.example:443" in settings("x", bubblewrap=allowing).summary()
    assert "with the host's network" in settings("x", bubblewrap={"network": "full"}).summary()


def test_page_of_isolation_lists_the_settings_of_a_sandbox():
    page = (ROOT / "docs" / "isolation.md").read_text()

    missing = [
        name
        for name, field in BubblewrapSettings.model_fields.items()
        if not re.search(rf"\| `{name}` \|.*{re.escape(field.description or '?')}", page)
    ]
    assert missing == []
