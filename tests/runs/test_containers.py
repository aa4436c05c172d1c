"""Runs in containers: the engine's command line, what a container sees, what it may use, and how it ends."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.errors import Invalid
from hookmill.domain.ids import run_id
from hookmill.domain.run import Ended, RunState
from hookmill.domain.secret import SecretValue
from hookmill.domain.workspace import CheckoutCommits
from hookmill.runs.package import Package, write_package
from hookmill.runs.runner import Instruction, NextInstruction
from hookmill.runs.runners import AgentSettings, CommandSettings, ContainerSettings, RunnerContext
from hookmill.runs.runners.account import UnixAccount
from hookmill.runs.runners.container import (
    ContainerOptions,
    ContainerRunner,
    container_name,
    removal_arguments,
)
from tests.faults.parts import Part, kill_part
from tests.runs.answering import answering
from tests.runs.backlog import processes_of
from tests.runs.claude_in_container import KEY
from tests.runs.samples import always_continue, instruct_when, sample_run
from tests.support.automations import automation_created
from tests.support.claude_code import claude_code
from tests.support.counts import only_in_proof
from tests.support.docker import docker
from tests.support.images import debian_archive, import_archive
from tests.support.model_endpoint import ANSWER
from tests.support.podman import IMAGE, podman
from tests.support.service import operator, serving
from tests.support.triggers import received
from tests.support.waiting import until


@pytest.fixture(scope="module")
def engine():
    # In a longer path, Podman notices the end of a container only after 20 seconds.
    directory = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    try:
        engine = podman(directory)
        yield engine
        subprocess.run([engine, "rm", "--all", "--force", "--time=0"], capture_output=True, timeout=60)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def docker_engine():
    with docker(Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))) as engine:
        yield engine


BOTH_ENGINES = pytest.mark.parametrize("engine_name", ["engine", only_in_proof("docker_engine")])


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path / "runs", sample_run(), b'{"a": 1}')


def runner(engine: Path, script: str, **changes: Any) -> ContainerRunner:
    settings = ContainerSettings(
        **{"engine": str(engine), "image": IMAGE, "argv": ("sh", "-c", script), "memory_mb": 64, **changes}
    )
    # BusyBox ignores SIGTERM as the first process of a container.
    return replace(settings.create_runner(RunnerContext()), grace_seconds=0.3)


def perform(runner: ContainerRunner, package: Package, instruction: NextInstruction = always_continue) -> Ended:
    result = runner.run(package, instruction)
    assert isinstance(result, Ended)
    return result


def containers(engine: Path) -> list[str]:
    command = [str(engine), "ps", "--all", "--format", "{{.Names}}"]
    output: str = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return output.split()


# The command line


def test_command_line_of_the_engine(package):
    container = ContainerOptions(
        engine="docker",
        image="registry.example.com/agent:1",
        cpus=0.5,
        memory_mb=512,
        processes_max=64,
        network="agents",
    )
    runner = ContainerRunner(container=container, argv=("agent", "--flag", "$HOME"), account=OWNER)
    run, directory = package.directory.name, package.directory

    arguments = tuple(argument for argument in runner._argv(package) if not argument.startswith("--env="))

    assert arguments == (
        "docker", "run", "--rm", f"--name=hookmill-{run}-1", f"--label=hookmill.run={run}",
        "--network=agents", "--cpus=0.5", "--memory=512m", "--memory-swap=512m", "--pids-limit=64",
        "--read-only", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges", "--user=1000:1001",
        f"--mount=type=bind,src={directory},dst=/package,readonly",
        f"--mount=type=bind,src={directory}/outputs,dst=/output",
        "--workdir=/package",
        "registry.example.com/agent:1", "agent", "--flag", "$HOME",
    )  # fmt: skip


def test_containers_are_removed_by_their_names():
    assert removal_arguments("docker", ["a", "b"]) == ("docker", "rm", "--force", "a", "b")
    assert removal_arguments("/usr/bin/podman", ["a"]) == (
        "/usr/bin/podman", "rm", "--force", "--time=0", "--ignore", "a",
    )  # fmt: skip


OWNER = UnixAccount(name="agent", uid=1000, gid=1001, home="/srv/agent")


@pytest.mark.parametrize(
    ("engine", "account", "user"),
    [
        ("podman", None, "0:0"),
        ("/usr/bin/podman", OWNER, "0:0"),
        ("docker", None, f"{os.geteuid()}:{os.getegid()}"),
        ("docker", OWNER, "1000:1001"),
    ],
)
def test_user_in_the_container_owns_the_package(package, engine, account, user):
    runner = ContainerRunner(container=ContainerOptions(engine=engine, image="x"), argv=("x",), account=account)

    assert f"--user={user}" in runner._argv(package)


def test_values_of_variables_are_in_no_argument(package, monkeypatch):
    monkeypatch.setenv("KEY", "canary")
    settings = ContainerSettings(image="x", argv=("x",), environment={"MODE": "canary"}, pass_environment=("KEY",))

    arguments = settings.create_runner(RunnerContext())._argv(package)

    assert "canary" not in str(arguments)
    variables = [argument.removeprefix("--env=") for argument in arguments if argument.startswith("--env=")]
    assert variables == [
        "HOME=/tmp",
        "HOOKMILL_OUTPUTS_DIR=/output",
        "HOOKMILL_PROMPT_FILE=/package/prompt.md",
        "HOOKMILL_ENVELOPE_FILE=/package/envelope.json",
        "HOOKMILL_PAYLOAD_FILE=/package/event-payload.json",
        "KEY", "MODE", "HOOKMILL_RUN_ID", "HOOKMILL_ATTEMPT", "HOOKMILL_AUTOMATION",
        "HOOKMILL_DELIVERY_ID", "HOOKMILL_WEBHOOK",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"engine": "sh"}, "must be podman or docker"),
        ({"engine": "bin/podman"}, "must be podman or docker, or an absolute path"),
        ({"image": "--privileged"}, "String should match pattern"),
        ({"network": "host"}, "must not be host"),
        ({"network": "container:other"}, "String should match pattern"),
        ({"argv": ()}, "at least 1 item"),
        ({"cpus": 0}, "greater than 0"),
        ({"network_allow": ["api"]}, "'api' is no destination"),
        ({"network": "agents", "network_allow": ["a.example:1"]}, "must have network none with network_allow"),
        ({"network_private": ["10.0.0.0/8"]}, "must have network_allow with network_private"),
    ],
)
def test_unusable_settings_of_a_container_are_refused(changes, problem):
    with pytest.raises(ValidationError, match=problem):
        ContainerSettings(**{"image": "x", "argv": ("x",), **changes})
    if "argv" not in changes:
        with pytest.raises(ValidationError, match=problem):
            agent(container={"image": "x", **changes})


@pytest.mark.parametrize(
    "settings",
    [
        ContainerSettings(image="x", argv=("x",)),
        AgentSettings(agent="claude", sandbox="container", container=ContainerOptions(image="x")),
    ],
)
def test_path_that_no_mount_can_have_is_refused(settings):
    for check in (settings.prepare_host, settings.examine):
        with pytest.raises(Invalid, match="has a comma"):
            check(Path("/data,dst=/etc/runs"))


def test_summary_of_a_container_has_no_values_of_arguments():
    settings = ContainerSettings(image="agent:1", argv=("agent", "secret"), environment={"X": "secret"})

    assert settings.summary() == (
        "agent in agent:1, 1 argument, by podman, 1 processors, 2,048 MiB, 256 processes, network none, "
        "at most 3600 s, keeps 1,048,576 bytes of output, with X"
    )


# Allowed destinations


ALLOWING: Final[dict[str, Any]] = {"network_allow": ("a.example:443", "b.example:443")}


def test_container_with_allowed_destinations_joins_its_pause_container(package):
    settings = ContainerSettings(image="x", argv=("x",), environment={"NO_PROXY": ""}, **ALLOWING)
    runner = settings.create_runner(RunnerContext())
    name = container_name(package.run, package.run.attempt)

    arguments = runner._argv(package)
    network = runner._network(package)

    assert f"--network=container:{name}-network" in arguments
    assert "--env=HTTPS_PROXY=http://127.0.0.1:3128" in arguments
    # The operator's value
    assert "--env=NO_PROXY" in arguments
    assert network is not None
    assert {"--network=none", f"--name={name}-network", "--cap-drop=all", "--read-only"} <= {*network["pause"]}
    assert network["pause"][-3:] == ("--entrypoint=sleep", "x", "2147483647")
    assert network["egress"] == {"destinations": ALLOWING["network_allow"], "private_networks": ()}
    assert ", only a.example:443, b.example:443, at most" in settings.summary()


def test_container_of_docker_without_root_can_not_have_allowed_destinations(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", KEY)
    account = "nobody" if os.geteuid() == 0 else None
    container: dict[str, Any] = {"engine": "docker", "image": "x", **ALLOWING}

    for settings in (
        ContainerSettings(argv=("x",), user=account, **container),
        agent(container=container, user=account),
    ):
        for check in (settings.refuse_unusable, lambda settings=settings: settings.examine(tmp_path / "runs")):
            with pytest.raises(Invalid, match="needs a service that runs as root, and a runner without user"):
                check()
    for usable in ({"engine": "podman"}, {"network_allow": ()}):
        ContainerSettings(argv=("x",), user=account, **{**container, **usable}).refuse_unusable()


# Agents in containers


CLAUDE_IMAGE = "localhost/claude"


def agent(**changes: Any) -> AgentSettings:
    container = {"image": IMAGE, **changes.pop("container", {})}
    return AgentSettings(
        **{"agent": "claude", "key_from": "AGENT_KEY", "sandbox": "container", "container": container, **changes}
    )


def with_workspace(directory: Path) -> Package:
    """A package with a checkout of one file."""

    def check_out(target: Path) -> CheckoutCommits:
        target.mkdir()
        (target / "f").write_text("checked out\n")
        return CheckoutCommits(commit="0" * 40)

    return write_package(directory, sample_run(), b'{"a": 1}', check_out=check_out)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("claude", '"additionalDirectories": ["/package"]'),
        ("codex", "sandbox_mode=danger-full-access"),
        ("aider", "/package/prompt.md"),
        ("goose", "/package/prompt.md"),
    ],
)
def test_arguments_of_an_agent_have_the_paths_in_the_container(tmp_path, name, arguments):
    package = with_workspace(tmp_path / "runs")

    engine_arguments, image, agent_arguments = (
        " ".join(part) for part in parted(agent(agent=name).create_runner(RunnerContext())._argv(package), IMAGE)
    )

    assert image == IMAGE
    assert arguments in agent_arguments
    assert str(tmp_path) not in agent_arguments
    assert f"src={package.directory},dst=/package,readonly" in engine_arguments
    assert f"src={package.workspace},dst=/package/workspace" in engine_arguments
    starts_in = "/package" if name in ("aider", "goose") else "/package/workspace"
    assert f"--workdir={starts_in} " in engine_arguments
    assert ("--interactive" in engine_arguments) == (name not in ("aider", "goose"))


def parted(arguments: tuple[str, ...], separator: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    place = arguments.index(separator)
    return arguments[:place], (separator,), arguments[place + 1 :]


def test_variables_of_an_agent_reach_its_container_without_their_values(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", KEY)
    runner = agent(agent="opencode").create_runner(RunnerContext())
    package = with_workspace(tmp_path / "runs")

    arguments = runner._argv(package)

    assert {
        "--env=ANTHROPIC_API_KEY", "--env=OPENCODE_DISABLE_AUTOUPDATE",
        "--env=HOOKMILL_WORKSPACE=/package/workspace", "--env=HOOKMILL_OUTPUTS_DIR=/package/outputs",
    } <= set(arguments)  # fmt: skip
    assert KEY not in str(arguments)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"container": None}, 'must have container = { image = "…" }'),
        ({"sandbox": "none"}, 'must have sandbox = "container" with container'),
        ({"sandbox": "bubblewrap"}, 'must have sandbox = "container" with container'),
        ({"bubblewrap": {}}, 'must have sandbox = "bubblewrap" with bubblewrap'),
        ({"container": {}}, "Field required"),
    ],
)
def test_agent_has_the_settings_of_its_sandbox_only(changes, problem):
    settings = {"agent": "claude", "sandbox": "container", "container": {"image": "x"}, **changes}

    with pytest.raises(ValidationError, match=problem):
        AgentSettings(**settings)


def test_command_in_a_container_has_a_kind_of_its_own():
    with pytest.raises(ValidationError, match='for a command in a container, set kind = "container"'):
        CommandSettings(argv=("x",), sandbox="container")


def test_secrets_of_a_run_are_no_variables_of_the_engine():
    assert "DOCKER_*" in agent().secret_rule().forbidden
    assert "DOCKER_*" not in AgentSettings(agent="claude").secret_rule().forbidden


def test_summary_and_doctor_describe_the_container_of_an_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", KEY)
    engine = tmp_path / "podman"
    settings = agent(container={"engine": str(engine), "image": "agent:1", "network": "models"})
    with pytest.raises(Invalid, match=r"podman does not exist\. Install it, or correct the runner's engine"):
        settings.examine(tmp_path / "data" / "runs")
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)

    assert settings.is_isolated
    assert settings.summary().startswith(
        f"claude, with the key in AGENT_KEY, in agent:1, by {engine}, 1 processors, 2,048 MiB, 256 processes, "
        "network models, at most 3600 s"
    )
    assert settings.examine(tmp_path / "data" / "runs") == (
        f"starts claude with the key in AGENT_KEY in containers of agent:1 with {engine}, with network models, "
        "for at most 3,600 s"
    )


def test_run_without_its_engine_fails_with_the_sentence_of_the_doctor(package, tmp_path):
    result = perform(runner(tmp_path / "podman", "true"), package)

    assert (result.state, result.reason) == (
        RunState.FAILED,
        f"The runner {package.run.runner}: Its program {tmp_path}/podman does not exist. Install it, or correct the "
        "runner's engine.",
    )


# A real Podman


@BOTH_ENGINES
def test_agent_in_a_container_works_in_its_workspace(engine_name, request, tmp_path, monkeypatch):
    engine = request.getfixturevalue(engine_name)
    monkeypatch.setenv("AGENT_KEY", KEY)
    script = """
        exec 2>&1
        read -r prompt
        pwd; cat f ../event-payload.json; echo; touch g && touch ../x
        echo "review" > ../outputs/summary.md
        echo "$ANTHROPIC_API_KEY ${#ANTHROPIC_API_KEY} ${AGENT_KEY-unset} $HOME"
        echo '{"type": "result", "result": "Read: '"$prompt"'", "total_cost_usd": 0.25}'
    """
    settings = agent(
        program="agent", container={"engine": str(engine), "memory_mb": 64}, environment={"AGENT_SCRIPT": script}
    )

    result = settings.create_runner(RunnerContext()).run(with_workspace(tmp_path / "runs"), always_continue)

    assert isinstance(result, Ended)
    assert result.state is RunState.SUCCEEDED, result
    assert (result.output_tail or "").splitlines()[:4] == [
        "/package/workspace", "checked out", '{"a": 1}', "touch: ../x: Read-only file system",
    ]  # fmt: skip
    assert f"\n[masked] {len(KEY)} unset /tmp\n" in (result.output_tail or "")
    assert result.report == AgentReport(result="Read: Do it.", cost_microusd=250_000)
    assert result.outputs["summary.md"].text == "review\n"
    assert containers(engine) == []


def test_container_sees_the_package_and_writes_only_its_output(engine, package):
    script = """
        exec 2>&1
        cat event-payload.json "$HOOKMILL_PROMPT_FILE" > /output/copy
        touch /package/x; touch /x; touch /tmp/x && id
        ls /; ls /sys/class/net; echo "$HOOKMILL_RUN_ID $MODE $GH_TOKEN ${#GH_TOKEN}"
    """
    with_secret = replace(package, secrets={"GH_TOKEN": SecretValue("canary-of-a-container")})

    result = perform(runner(engine, script, environment={"MODE": "ci"}), with_secret)

    assert result.state is RunState.SUCCEEDED, result
    assert (package.directory / "copy").read_text() == '{"a": 1}' + package.prompt_file.read_text()
    assert not (package.directory / "output").exists()
    assert result.output_tail == (
        "touch: /package/x: Read-only file system\ntouch: /x: Read-only file system\n"
        "uid=0(0) gid=0(0) groups=0(0)\n"
        "bin\ndev\netc\noutput\npackage\nproc\nrun\nsys\ntmp\nvar\n"
        f"lo\n{run_id(package.run.id)} ci [masked] 21\n"
    )
    assert containers(engine) == []


@BOTH_ENGINES
def test_container_reaches_only_the_allowed_destinations(engine_name, request, package):
    engine = request.getfixturevalue(engine_name)
    with answering(b"answer of the host\n") as port:
        script = f"""
            exec 2>&1
            echo "$HTTPS_PROXY"; ls /sys/class/net
            ask() {{ printf "CONNECT $1 HTTP/1.1\\r\\n\\r\\n$2" | busybox nc 127.0.0.1 3128; echo; }}
            ask localhost:{port} hello
            ask localhost:1 hello
            echo | busybox nc 127.0.0.1 {port} || echo "no direct connection"
        """
        allowing = {"network_allow": (f"localhost:{port}",), "network_private": ("127.0.0.1",)}

        result = perform(runner(engine, script, **allowing), package)

    assert result.state is RunState.SUCCEEDED, result
    # The proxy writes its refusal itself, so it may come before earlier output of the container.
    before, refusal, after = (result.output_tail or "").partition(
        "The sandbox refused a connection to localhost:1: network_allow does not list it.\n"
    )
    assert refusal
    output = before + after
    assert output.startswith("http://127.0.0.1:3128\nlo\n")
    assert "Connection established\n\nanswer of the host\n" in output
    assert "The sandbox's network_allow does not list localhost:1." in output
    assert output.endswith("no direct connection\n")
    assert containers(engine) == []


@BOTH_ENGINES
def test_container_that_ends_early_leaves_no_pause_container(engine_name, request, package):
    engine = request.getfixturevalue(engine_name)
    begun = package.directory / "outputs" / "begun"
    command = runner(engine, "touch /output/begun; sleep 60", network_allow=("a.example:443",))

    result = perform(command, package, instruct_when(begun.exists, Instruction.CANCEL))

    assert result.state is RunState.CANCELLED
    assert containers(engine) == []


def test_container_is_not_started_if_its_destinations_can_not_be_limited(engine, package, tmp_path):
    # The engine of another machine names a process that is another one here.
    remote = tmp_path / "podman"
    remote.write_text(f'#!/bin/sh\ncase "$*" in *inspect*) echo {os.getpid()};; *) exec {engine} "$@";; esac\n')
    remote.chmod(0o755)

    result = perform(runner(remote, "echo started", network_allow=("a.example:443",)), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 125)
    assert result.reason == "The container could not be started with its network_allow. The output says why."
    assert result.output_tail == (
        "The container's network could not be limited to network_allow, so it was not started: its pause "
        "container has no process on this machine.\n"
    )
    assert containers(engine) == []


def test_container_can_change_its_workspace(engine, tmp_path):
    package = with_workspace(tmp_path / "runs")
    script = 'pwd; cat "$HOOKMILL_WORKSPACE/f"; echo changed > /workspace/f; cat /package/workspace/f'

    result = perform(runner(engine, script), package)

    assert result.output_tail == "/package\nchecked out\nchanged\n"


def test_container_has_limits_and_no_rights(engine, package):
    rights = perform(runner(engine, "cat /proc/self/status"), package).output_tail or ""
    script = "for n in 1 2 3 4 5 6 7 8 9 10; do sleep 60 & done; wait"
    result = perform(runner(engine, script, processes_max=8), package)

    assert "CapEff:\t0000000000000000\n" in rights
    assert "NoNewPrivs:\t1\n" in rights
    assert "can't fork: Resource temporarily unavailable" in (result.output_tail or "")


def test_container_that_uses_too_much_memory_is_killed(engine, package):
    script = "exec dd if=/dev/zero of=/tmp/zeros bs=1M count=64"

    result = perform(runner(engine, script, memory_mb=16, time_limit_seconds=60), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 137)


def test_container_ends_at_the_time_limit(engine, package):
    check_time_limit(engine, package)

    assert containers(engine) == []


def check_time_limit(engine, package):
    seconds = 2
    result = perform(runner(engine, "echo begun; sleep 60", time_limit_seconds=seconds), package)
    while not result.output_tail and seconds < 20:
        # A busy machine may need more than two seconds to start a container.
        seconds *= 5
        result = perform(runner(engine, "echo begun; sleep 60", time_limit_seconds=seconds), package)

    reason = f"The command was ended after its time limit of {seconds} s."
    assert (result.state, result.reason, result.output_tail) == (RunState.FAILED, reason, "begun\n")


def test_cancelled_container_ends(engine, package):
    begun = package.directory / "outputs" / "begun"

    result = perform(
        runner(engine, "touch /output/begun; sleep 60"), package, instruct_when(begun.exists, Instruction.CANCEL)
    )

    assert result.state is RunState.CANCELLED
    assert containers(engine) == []


def test_missing_image_is_a_failure_with_the_engines_message(engine, package):
    result = perform(runner(engine, "true", image="localhost/missing"), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 125)
    assert result.reason == "The container could not be started. The output has the engine's message."
    assert "localhost/missing" in (result.output_tail or "")


def test_next_attempt_removes_the_container_of_an_earlier_one(engine, package):
    name = container_name(package.run, 1)
    for own_name, network in ((f"{name}-network", "none"), (name, f"container:{name}-network")):
        command = [str(engine), "run", "--detach", f"--name={own_name}", f"--network={network}", IMAGE, "sleep", "60"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert sorted(containers(engine)) == [name, f"{name}-network"]

    command_runner = runner(engine, "true", network_allow=("a.example:443",))
    command_runner.end_earlier_attempts(sample_run(id=package.run.id, attempt=2))

    until(lambda: containers(engine) == [], "the container is removed")


# A service


@pytest.mark.proof
@BOTH_ENGINES
def test_killed_worker_leaves_no_container_and_the_next_one_performs_the_run(engine_name, request, tmp_path):
    engine = request.getfixturevalue(engine_name)
    script = """
        if [ "$HOOKMILL_ATTEMPT" = 1 ]; then echo begun > outputs/begun; sleep 600; fi
        echo '{"type": "result", "result": "Done."}'
    """
    settings = {
        "kind": "agent", "agent": "claude", "program": "agent", "environment": {"AGENT_SCRIPT": script},
        "sandbox": "container", "container": {"engine": str(engine), "image": IMAGE, "memory_mb": 64},
    }  # fmt: skip
    with (
        serving(tmp_path / "data", runners=json.dumps({"agent": settings})) as service,
        service.management() as management,
    ):
        may = operator(management)
        webhook = management.webhooks.create(may, {"name": "w"})
        trigger = received(webhook.webhook.uid)
        automation_created(management, may, "a", prompt="Do it.", runner="agent", triggers=[trigger])
        answer = service.post(webhook, b"{}")
        [run] = management.runs.of_delivery(may, answer.delivery_id)
        until((tmp_path / "data" / "runs" / run_id(run.id) / "outputs" / "begun").exists, service.log)
        first_container = [container_name(run, 1)]
        assert containers(engine) == first_container

        kill_part(service, Part.WORKER)

        until(lambda: management.runs.get(may, run_id(run.id)).state.is_final, service.log)
        ended = management.runs.get(may, run_id(run.id))
        assert (ended.state, ended.attempt) == (RunState.SUCCEEDED, 2)
        assert containers(engine) == []
        assert processes_of(run_id(run.id)) == []


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_claude_code_performs_a_run_in_a_container_with_a_network():
    directory = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    try:
        engine = podman(directory, has_networks=True)
        program = claude_code().resolve()
        hooks = (f"upload {program} /usr/local/bin/claude", 'chmod 755 "$1/usr/local/bin/claude"')
        debian_archive(directory / "claude.tar", ["ca-certificates"], *hooks)
        import_archive(engine, directory / "claude.tar", CLAUDE_IMAGE)
        command = [
            "unshare",
            "--net",
            sys.executable,
            "-m",
            "tests.runs.claude_in_container",
            str(engine),
            CLAUDE_IMAGE,
        ]
        process = subprocess.run(command, capture_output=True, text=True, timeout=200)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    assert process.returncode == 0, process.stderr
    seen = json.loads(process.stdout)
    assert (seen["state"], seen["result"], seen["summary"]) == ("succeeded", ANSWER, "reviewed\n")
    assert set(seen["keys"]) == {KEY}
    assert not seen["is_key_shown"]
    # The tool's result, which the agent has sent to the model.
    assert "/package/workspace\\nchecked out\\ntouch: cannot touch '../x': Read-only file system" in seen["prompts"][1]


# A real Docker


@pytest.mark.proof
def test_container_of_docker_has_its_files_its_limits_and_no_rights(docker_engine, package):
    script = """
        exec 2>&1
        cat event-payload.json > /output/copy; touch /package/x; touch /x; id -u; ls /; ls /sys/class/net
        grep -E "CapEff|NoNewPrivs" /proc/self/status
        for n in 1 2 3 4 5 6 7 8 9 10; do sleep 60 & done; wait
    """

    result = perform(runner(docker_engine, script, processes_max=8), package)

    assert (package.directory / "copy").read_text() == '{"a": 1}'
    output = result.output_tail or ""
    assert "touch: /package/x: Read-only file system\ntouch: /x: Read-only file system\n" in output
    assert f"\n{os.geteuid()}\nbin\ndev\netc\noutput\npackage\nproc\nsys\ntmp\nlo\n" in output
    assert "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n" in output
    assert "can't fork: Resource temporarily unavailable" in output
    assert containers(docker_engine) == []


@pytest.mark.proof
def test_container_of_docker_that_uses_too_much_memory_is_killed(docker_engine, package):
    script = "exec dd if=/dev/zero of=/tmp/zeros bs=1M count=64"

    result = perform(runner(docker_engine, script, memory_mb=16, time_limit_seconds=60), package)

    assert (result.state, result.exit_status) == (RunState.FAILED, 137)


@pytest.mark.proof
def test_container_of_docker_ends_at_the_time_limit(docker_engine, package):
    check_time_limit(docker_engine, package)

    assert containers(docker_engine) == []


@pytest.mark.proof
def test_cancelled_container_of_docker_ends(docker_engine, package):
    begun = package.directory / "outputs" / "begun"
    command = runner(docker_engine, "touch /output/begun; sleep 60")

    result = perform(command, package, instruct_when(begun.exists, Instruction.CANCEL))

    assert result.state is RunState.CANCELLED
    assert containers(docker_engine) == []
