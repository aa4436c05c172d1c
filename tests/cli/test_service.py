"""`hookmill serve`, `worker` and `migrate`: their output. Some tests start them in a new interpreter, as users do."""

import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from hookmill.app import port
from hookmill.domain.errors import Conflict
from hookmill.store.keys.key_file import KeyFile
from tests.cli.conftest import Hookmill, parse_json
from tests.support.counts import count
from tests.support.loaded import Command
from tests.support.ports import free_port
from tests.support.service import create_webhook, serving
from tests.support.waiting import LONG_SECONDS, until


@dataclass(frozen=True, slots=True)
class StartedService:
    """A process of `hookmill serve` whose standard output goes to a file."""

    process: "Command | subprocess.Popen[bytes]"
    output_path: Path

    def announcement(self) -> str:
        """The text that a start prints. Its last line names the data directory."""
        return self._wait_for_output("Data:")

    def announcement_in_json(self) -> Any:
        """The announcement of a start with `--json`."""
        return parse_json(self._wait_for_output("{"))

    def _wait_for_output(self, start_of_last_line: str) -> str:
        def complete_output() -> str:
            # In this order: a process that has ended writes no more output.
            has_ended, output = self.process.poll() is not None, self.output_path.read_text()
            if output.rpartition("\n")[0].rpartition("\n")[2].startswith(start_of_last_line):
                return output
            assert not has_ended, f"it ended before it was ready: {output}"
            return ""

        return until(complete_output, "the service is ready")


@contextmanager
def started(*arguments: str, in_new_interpreter: bool = False) -> Iterator[StartedService]:
    """`hookmill serve` in a process of its own, until the block ends.

    A user's shell starts a new interpreter. Without it, the start is faster.
    """
    output_path = Path(tempfile.mkdtemp(), "output")
    process: Command | subprocess.Popen[bytes]
    if in_new_interpreter:
        with output_path.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "hookmill", "serve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    else:
        output_path.touch()
        process = Command(["serve", *arguments], os.environ, Path.cwd(), output_path, Path(os.devnull))
    try:
        yield StartedService(process, output_path)
    finally:
        process.terminate()
        try:
            process.wait(40)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(output_path.parent)


@pytest.fixture
def curl(tmp_path, monkeypatch):
    """A program `curl`, first in PATH, that accepts the options of the printed command."""
    program = tmp_path / "bin" / "curl"
    program.parent.mkdir()
    program.write_text(
        textwrap.dedent(
            f"""\
            #!{sys.executable}
            import sys, urllib.request
            arguments, headers, body = sys.argv[1:], {{}}, None
            while len(arguments) > 1:
                option, value, *arguments = arguments
                if option == "-H":
                    name, _, content = value.partition(": ")
                    headers[name] = content
                elif option == "-d":
                    body = value.encode()
                else:
                    sys.exit(f"unknown option {{option}}")
            print(urllib.request.urlopen(urllib.request.Request(arguments[0], body, headers)).read().decode())
            """
        )
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_first_start_prints_a_curl_command_that_starts_a_run(data_dir, curl, hookmill):
    with started("--port", str(free_port()), in_new_interpreter=True) as service:
        announcement = service.announcement()
        (command,) = [line for line in announcement.splitlines() if line.startswith("curl ")]
        answer = json.loads(subprocess.check_output(["sh", "-c", command], timeout=LONG_SECONDS))
        run = _finished_run(hookmill)

    assert f"{data_dir}/runs/<run_id>/event-payload.json" in announcement
    payload = json.loads((data_dir / "runs" / run["run_id"] / "event-payload.json").read_bytes())
    assert (payload["message"], list(payload)) == ("Hello from curl", ["message", "sent_at"])
    assert (run["delivery_id"], run["automation"]) == (answer["delivery_id"], "first")
    assert stat.S_IMODE((data_dir / "master.key").stat().st_mode) == 0o600


def _finished_run(hookmill: Hookmill) -> dict[str, str]:
    def succeeded_runs() -> list[dict[str, str]]:
        return [run for run in hookmill("run", "list", "--json").json["items"] if run["state"] == "succeeded"]

    return until(succeeded_runs, "the delivery's run has succeeded")[0]


def test_service_without_standard_streams_performs_runs(data_dir, hookmill, monkeypatch):
    number = free_port()
    monkeypatch.setenv("HOOKMILL_PORT", str(number))
    # A supervisor may start a service without them.
    command = 'exec "$@" <&- >&- 2>&-'
    with subprocess.Popen(["sh", "-c", command, "sh", sys.executable, "-m", "hookmill", "serve"]) as process:
        try:
            until(lambda: process.poll() is not None or _is_ready(number), "the service is ready")
            # Otherwise, a file or a socket of the service would be its standard output.
            streams = {str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)}
            hookmill("send", "first")
            run = _finished_run(hookmill)
        finally:
            process.terminate()

    assert run["automation"] == "first"
    assert streams == {os.devnull}


def _is_ready(number: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", number, timeout=LONG_SECONDS)) as connection:
        try:
            connection.request("GET", "/readyz")
        except OSError:
            return False
        return connection.getresponse().status == 200


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_command_without_a_standard_stream_succeeds(data_dir, closed):
    command = f'exec "$@" {closed}'
    result = subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-m", "hookmill", "scheme", "list"], capture_output=True, check=True
    )

    assert result.stderr == b""


def test_second_start_lists_what_exists_and_prints_no_secret(data_dir, hookmill):
    port = str(free_port())
    with started("--port", port, "--json") as service:
        first = service.announcement_in_json()
        hookmill("factory", "create", "shop")

    with started("--port", port, in_new_interpreter=True) as service:
        announcement = service.announcement()

    assert first["first_start"] is True
    assert first["webhook"]["url"] == f"http://127.0.0.1:{port}/webhooks/w/{first['webhook']['uid']}"
    assert "Existing: 1 webhook (first), 1 automation (first); 1 other factory: shop.\n" in announcement
    assert "webhook rotate NAME\n" in announcement
    assert first["webhook"]["secret"] not in announcement


def test_start_prints_a_sign_up_link_until_there_is_an_admin(data_dir, hookmill):
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    with started("--port", str(port)) as service:
        (link,) = [line for line in service.announcement().splitlines() if "/welcome/" in line]
        answers = [_sign_up(port, link.removeprefix(base_url)) for _ in range(2)]

    with started("--port", str(port), "--json") as service:
        second = service.announcement_in_json()

    assert link.startswith(base_url)
    assert answers == [(303, True), (404, False)]
    # There is an admin now, so the service prints no link that signs in once.
    assert second["dashboard"] == {"url": base_url, "signs_in_once": False}


def _sign_up(port: int, path: str) -> tuple[int, bool]:
    """Send the form that creates the first admin. Returns the status, and whether the answer sets a cookie."""
    form = {"name": "Ada", "email": "ada@example.com", "password": "a few long words", "again": "a few long words"}
    headers = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/x-www-form-urlencoded"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_SECONDS)) as connection:
        connection.request("POST", path, urlencode(form), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Set-Cookie"] is not None


def test_printed_commands_work_for_a_service_with_options_and_environment_variables(tmp_path, data_dir, monkeypatch):
    port = free_port()
    (tmp_path / "a file.toml").touch()
    monkeypatch.setenv("HOOKMILL_CONFIG", "a file.toml")
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    with started("--port", str(port), "--data-dir", "a directory") as service:
        announcement = service.announcement()
        for name in ("HOOKMILL_CONFIG", "HOOKMILL_DATA_DIR"):
            monkeypatch.delenv(name)
        (command,) = [line.partition(": ")[2] for line in announcement.splitlines() if line.startswith("Deliveries:")]
        output = run_printed_command(command, tmp_path)

    assert f"HOOKMILL_PORT={port} HOOKMILL_DATA_DIR='{tmp_path}/a directory'" in command
    assert f"HOOKMILL_CONFIG='{tmp_path}/a file.toml'" in command
    assert not data_dir.exists()
    assert output.startswith("The log has no deliveries.")
    assert "HOOKMILL_MASTER_KEY with the values of this service\n" in announcement
    assert "A" * 43 not in announcement


def run_printed_command(command: str, tmp_path: Path) -> str:
    """The output of a shell command that calls `hookmill`.

    The shell only notes the arguments and the environment of this call. `Command` then makes the call, which is faster.
    """
    program, arguments, environment = (tmp_path / name for name in ("bin/hookmill", "arguments", "environment"))
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{arguments}'\nenv -0 > '{environment}'\n")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", command], env=os.environ | {"PATH": path}, cwd="/", check=True, timeout=LONG_SECONDS)
    variables = dict(line.split("=", 1) for line in environment.read_text().split("\0") if line)
    process = Command(arguments.read_text().splitlines(), variables, Path("/"), tmp_path / "output")
    assert process.wait(LONG_SECONDS) == 0, (tmp_path / "output").read_text()
    return (tmp_path / "output").read_text()


def test_new_master_key_and_stop_are_logged(tmp_path):
    with serving(tmp_path / "data") as service:
        with service.management() as management:
            webhook = create_webhook(management, "before")
        assert service.post(webhook).status == 202
        rotation = Command(["keys", "rotate", "--yes"], service.environment(), tmp_path, tmp_path / "rotated")
        assert rotation.wait(60) == 0, (tmp_path / "rotated").read_text()
        with service.management() as management:
            webhook = create_webhook(management, "after")
        assert service.post(webhook, b'{"n": 2}').status == 202
        until(lambda: "loaded a master key" in service.log(), "the new key is loaded")
        service.stop()

    (loaded,) = [json.loads(line) for line in service.log().splitlines() if "loaded a master key" in line]
    assert loaded["key"] == KeyFile(service.data_dir / "master.key").read()[0].id
    # The announcement of the start is in the same file, and may be its last lines.
    *_, newest = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    assert newest["event"] == "stopped"


def test_port_in_use_is_reported_before_anything_is_created(data_dir, hookmill):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port_number = listener.getsockname()[1]
        result = hookmill("serve", "--port", str(port_number), exit_code=1)

    other = port_number + 1
    assert result.err == (
        f"The service can't listen on 127.0.0.1: port {port_number} is in use by another process. Stop that process, "
        f"or choose another port: set HOOKMILL_PORT={other}, or start with --port {other}.\n"
    )
    assert not data_dir.exists()


def test_refusal_of_the_highest_port_suggests_a_lower_one(monkeypatch):
    monkeypatch.setattr(port, "PORT_SECONDS", 0.0)

    with port.hold_port("127.0.0.1", port.PORT_MAX), pytest.raises(Conflict, match="HOOKMILL_PORT=65534"):
        with port.hold_port("127.0.0.1", port.PORT_MAX):
            pass


def test_start_waits_for_a_port_that_a_stopping_service_still_holds(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as stopping_service:
        # The first attempt fails. The port is free before the second one.
        fake_time = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: stopping_service.close())
        monkeypatch.setattr(port, "time", fake_time)

        with port.hold_port(*stopping_service.getsockname()):
            assert stopping_service.fileno() == -1


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_port_is_reserved_before_a_process_listens(host, monkeypatch):
    monkeypatch.setattr(port, "PORT_SECONDS", 0.0)
    number = free_port()

    with port.hold_port(host, number):
        for other_host in ("127.0.0.1", "0.0.0.0", "::"):
            with pytest.raises(Conflict, match=f"port {number} is in use by another process"):
                with port.hold_port(other_host, number):
                    pass
        # The port stays reserved when a process of the server ends, and until another one listens.
        for _ in range(2):
            with listen_like_the_server(host, number) as listener:
                with socket.create_connection(("127.0.0.1", number)):
                    listener.accept()[0].close()
            with pytest.raises(Conflict), port.hold_port("127.0.0.1", number):
                pass
    # The server closed those connections first, so the system still has them in the state TIME-WAIT.
    with port.hold_port(host, number):
        with listen_like_the_server(host, number), listen_like_the_server(host, number):
            pass


def listen_like_the_server(host: str, number: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_ipv6 = family is socket.AF_INET6
    return socket.create_server((host, number), family=family, reuse_port=True, dualstack_ipv6=is_ipv6)


def test_only_one_of_many_services_that_start_together_gets_the_port(monkeypatch):
    monkeypatch.setattr(port, "PORT_SECONDS", 0.0)
    hosts = ["127.0.0.1", "0.0.0.0"] * 4
    for _ in range(count(2_000, usually=100)):
        number, start_barrier, end_barrier = free_port(), threading.Barrier(len(hosts)), threading.Barrier(len(hosts))
        outcomes: list[str] = []

        def start(host: str) -> None:
            start_barrier.wait(LONG_SECONDS)  # noqa: B023
            with ExitStack() as resources:
                try:
                    resources.enter_context(port.hold_port(host, number))  # noqa: B023
                    outcomes.append("started")  # noqa: B023
                except Conflict:
                    outcomes.append("refused")  # noqa: B023
                end_barrier.wait(LONG_SECONDS)  # noqa: B023

        threads = [threading.Thread(target=start, args=(host,)) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["refused"] * (len(hosts) - 1) + ["started"]


def test_all_invalid_settings_are_reported_together(data_dir, hookmill, monkeypatch):
    monkeypatch.setenv("HOOKMILL_LOG_LEVEL", "loud")
    monkeypatch.setenv("HOOKMILL_BASE_URL", "hooks.example.com")

    result = hookmill("serve", "--port", "70000", exit_code=2)

    assert result.out == ""
    for setting in ("HOOKMILL_LOG_LEVEL", "HOOKMILL_BASE_URL", "HOOKMILL_PORT"):
        assert f"  {setting}: " in result.err
    assert "Traceback" not in result.err


def test_data_directory_that_cannot_be_created_is_named(hookmill, tmp_path):
    (tmp_path / "file").write_text("")

    result = hookmill("serve", "--port", str(free_port()), "--data-dir", "file/data", exit_code=1)

    assert str(tmp_path / "file" / "data") in result.err
    assert "Traceback" not in result.err


def test_worker_command_is_refused_on_sqlite(data_dir, hookmill):
    result = hookmill("worker", exit_code=1)

    assert "needs PostgreSQL" in result.err
    assert "HOOKMILL_DATABASE_URL" in result.err


def test_worker_prints_its_capacity_and_stops_on_sigterm(data_dir, hookmill, postgres_url, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    hookmill("migrate")

    with subprocess.Popen([sys.executable, "-m", "hookmill", "worker"], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            line = worker.stdout.readline()
            worker.terminate()
            exit_code = worker.wait(LONG_SECONDS)
        finally:
            worker.kill()

    assert (line, exit_code) == ("Performing up to 4 runs at a time. Ctrl-C stops it.\n", 0)


def test_worker_command_ignores_the_setting_performs_runs(data_dir, hookmill, postgres_url, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    monkeypatch.setenv("HOOKMILL_PERFORMS_RUNS", "false")
    monkeypatch.setenv("HOOKMILL_PORT", str(free_port()))
    with started() as service:
        service.announcement()
        hookmill("send", "first")
        (run,) = hookmill("run", "list", "--json").json["items"]
        output = data_dir / "worker.json"
        output.touch()
        worker = Command(["worker", "--json"], os.environ, Path.cwd(), output, data_dir / "worker.log")
        try:
            assert _finished_run(hookmill)["run_id"] == run["run_id"]
        finally:
            worker.terminate()
            worker.wait(LONG_SECONDS)

    assert run["state"] == "queued"
    assert parse_json(output.read_text()) == {"runs_at_once": 4, "data_dir": str(data_dir)}


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_runner_with_an_unknown_user_is_refused(data_dir, hookmill, monkeypatch, command):
    # The command is refused before it connects; `worker` needs PostgreSQL.
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", f"postgresql://127.0.0.1:{free_port()}/x")
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    monkeypatch.setenv("HOOKMILL_PORT", str(free_port()))
    monkeypatch.setenv("HOOKMILL_RUNNERS", '{"agent": {"argv": ["true"], "user": "hookmill-has-no-such-account"}}')

    result = hookmill(command, exit_code=1)

    assert result.out == ""
    assert result.err.startswith(
        "The runner 'agent': This system has no account 'hookmill-has-no-such-account'. Create it, "
    )


def test_memory_reserve_that_the_host_does_not_have_is_refused(data_dir, hookmill, monkeypatch):
    monkeypatch.setenv("HOOKMILL_FREE_MEMORY_MIN_MB", "1000000000")
    monkeypatch.setenv("HOOKMILL_PORT", str(free_port()))

    result = hookmill("serve", exit_code=1)

    assert result.out == ""
    assert "It can never have 1,000,000,000 MiB (free_memory_min_mb) available" in result.err


def test_migrate_says_whether_it_changed_the_database(data_dir, hookmill):
    first = hookmill("migrate", "--json").json
    second = hookmill("migrate").out

    assert first == {"changed": True}
    assert second == "The database already has this version's schema.\n"


def test_empty_database_is_reported_with_the_command_migrate(data_dir, hookmill, postgres_url, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")

    result = hookmill("webhook", "list", exit_code=1)

    assert "hookmill migrate" in result.err
    assert "Traceback" not in result.err


def test_unreachable_postgresql_is_reported_without_the_password(data_dir, hookmill, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", f"postgresql://me:canary@127.0.0.1:{free_port()}/x")

    result = hookmill("migrate", exit_code=1)

    assert result.err.startswith("The database can't be used now: ")
    assert "canary" not in result.err
    assert "Traceback" not in result.err


@pytest.mark.usefixtures("log")
def test_wrong_master_key_is_reported_without_the_key(hookmill, monkeypatch):
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")

    result = hookmill("webhook", "list", exit_code=1)

    assert "A" * 43 not in result.err
    assert "Another master key encrypts the secrets of this database." in result.err
    assert "Traceback" not in result.err


def test_command_without_an_installation_names_the_data_directory(data_dir, hookmill):
    result = hookmill("webhook", "list", exit_code=1)

    assert str(data_dir) in result.err
    assert "hookmill serve" in result.err


@pytest.mark.usefixtures("log")
def test_file_that_is_no_database_is_reported(data_dir, hookmill):
    shutil.copyfile(__file__, data_dir / "hookmill.db")

    result = hookmill("webhook", "list", exit_code=1)

    assert "Traceback" not in result.err
    assert result.err.startswith("The database")
