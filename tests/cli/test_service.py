"""`hookmill serve`, `worker` and `migrate`: what they say to people. Some are started as users do."""

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
from tests.support.service import operator, serving
from tests.support.waiting import LONG_SECONDS, until


@dataclass(frozen=True, slots=True)
class Started:
    """A process whose standard output goes to a file."""

    process: "Command | subprocess.Popen[bytes]"
    output: Path

    def announcement(self) -> str:
        """What it says, up to the line with the place of the data, which is the last one."""
        return self._said_until("Data:")

    def announced(self) -> Any:
        """The same of a start with `--json`."""
        return parse_json(self._said_until("{"))

    def _said_until(self, beginning: str) -> str:
        def all_said() -> str:
            ended, said = self.process.poll() is not None, self.output.read_text()
            if said.rpartition("\n")[0].rpartition("\n")[2].startswith(beginning):
                return said
            assert not ended, f"it ended before it was ready: {said}"
            return ""

        return until(all_said, "it is ready")


@contextmanager
def started(*arguments: str, as_users_do: bool = False) -> Iterator[Started]:
    """`hookmill serve` in a process of its own, until the block ends. As users do, a new interpreter loads it."""
    output = Path(tempfile.mkdtemp(), "output")
    process: Command | subprocess.Popen[bytes]
    if as_users_do:
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "hookmill", "serve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    else:
        output.touch()
        process = Command(["serve", *arguments], os.environ, Path.cwd(), output, Path(os.devnull))
    try:
        yield Started(process, output)
    finally:
        process.terminate()
        try:
            process.wait(40)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(output.parent)


@pytest.fixture
def curl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `curl` that understands the options of our line, first in PATH: what is tried is the shell line itself."""
    tool = tmp_path / "bin" / "curl"
    tool.parent.mkdir()
    tool.write_text(
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
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def test_a_first_start_says_how_to_try_it_and_what_it_says_works(data_dir: Path, curl: None, hookmill: Hookmill):
    with started("--port", str(free_port()), as_users_do=True) as service:
        said = service.announcement()
        (line,) = [line for line in said.splitlines() if line.startswith("curl ")]
        answered = json.loads(subprocess.check_output(["sh", "-c", line], timeout=LONG_SECONDS))
        run = _finished_run(hookmill)

    assert f"{data_dir}/runs/<run_id>/event-payload.json" in said
    payload = json.loads((data_dir / "runs" / run["run_id"] / "event-payload.json").read_bytes())
    assert (payload["message"], list(payload)) == ("Hello from curl", ["message", "sent_at"])
    assert (run["delivery_id"], run["automation"]) == (answered["delivery_id"], "first")
    assert stat.S_IMODE((data_dir / "master.key").stat().st_mode) == 0o600


def _finished_run(hookmill: Hookmill) -> dict[str, str]:
    def finished() -> list[dict[str, str]]:
        return [run for run in hookmill("run", "list", "--json").json["runs"] if run["state"] == "succeeded"]

    return until(finished, "the delivery's run has succeeded")[0]


def test_a_second_start_says_what_is_there_and_no_secret(data_dir: Path, hookmill: Hookmill):
    port = str(free_port())
    with started("--port", port, "--json") as service:
        first = service.announced()
        hookmill("factory", "create", "shop")

    with started("--port", port, as_users_do=True) as service:
        said = service.announcement()

    assert first["first_start"] is True
    assert first["webhook"]["url"] == f"http://127.0.0.1:{port}/webhooks/w/{first['webhook']['uid']}"
    assert "Existing: 1 webhook (first), 1 automation (first); 1 other factory: shop.\n" in said
    assert "webhook rotate NAME\n" in said
    assert first["webhook"]["secret"] not in said


def test_starts_print_a_link_to_the_dashboard_until_somebody_can_sign_in(data_dir: Path, hookmill: Hookmill):
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with started("--port", str(port)) as service:
        (link,) = [line for line in service.announcement().splitlines() if "/welcome/" in line]
        answers = [_signed_up(port, link.removeprefix(address)) for _ in range(2)]

    with started("--port", str(port), "--json") as service:
        again = service.announced()

    assert link.startswith(address)
    assert answers == [(303, True), (404, False)]
    assert again["dashboard"] == {"url": address, "signs_in_once": False}


def _signed_up(port: int, path: str) -> tuple[int, bool]:
    """The status that a first admin's form is answered with, and whether they are signed in."""
    form = {"name": "Ada", "email": "ada@example.com", "password": "a few long words", "again": "a few long words"}
    headers = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/x-www-form-urlencoded"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_SECONDS)) as connection:
        connection.request("POST", path, urlencode(form), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Set-Cookie"] is not None


def test_printed_commands_find_a_service_set_by_options(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    port = free_port()
    with started("--port", str(port), "--data-dir", "else where", as_users_do=True) as service:
        said = service.announcement()
        monkeypatch.delenv("HOOKMILL_DATA_DIR")
        (offered,) = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("Deliveries:")]
        listed = subprocess.check_output(["sh", "-c", offered], text=True, cwd="/", timeout=LONG_SECONDS)

    assert f"HOOKMILL_PORT={port} HOOKMILL_DATA_DIR='{tmp_path}/else where'" in offered
    assert listed.startswith("The log has no deliveries.")
    assert not data_dir.exists()


def test_printed_commands_find_a_service_set_by_its_environment(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "of ours.toml").write_text(f"port = {free_port()}\n")
    monkeypatch.setenv("HOOKMILL_CONFIG", "of ours.toml")
    monkeypatch.setenv("HOOKMILL_DATA_DIR", "data")
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    with started() as service:
        said = service.announcement()
        for name in ("HOOKMILL_CONFIG", "HOOKMILL_DATA_DIR"):
            monkeypatch.delenv(name)
        (offered,) = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("Deliveries:")]
        listed = called(offered, tmp_path)

    assert f"HOOKMILL_DATA_DIR={data_dir} HOOKMILL_CONFIG='{tmp_path}/of ours.toml'" in offered
    assert listed.startswith("The log has no deliveries.")
    assert "HOOKMILL_MASTER_KEY with the values of this service\n" in said
    assert "A" * 43 not in said


def called(line: str, tmp_path: Path) -> str:
    """What the shell line prints: the shell says how it calls `hookmill`, which is then called like that."""
    tool, arguments, environment = (tmp_path / name for name in ("bin/hookmill", "arguments", "environment"))
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{arguments}'\nenv -0 > '{environment}'\n")
    tool.chmod(0o755)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", line], env=os.environ | {"PATH": path}, cwd="/", check=True, timeout=LONG_SECONDS)
    told = dict(each.split("=", 1) for each in environment.read_text().split("\0") if each)
    command = Command(arguments.read_text().splitlines(), told, Path("/"), tmp_path / "printed")
    assert command.wait(LONG_SECONDS) == 0, (tmp_path / "printed").read_text()
    return (tmp_path / "printed").read_text()


def test_a_new_master_key_and_the_stop_are_logged(tmp_path: Path):
    with serving(tmp_path / "data") as service:
        with service.management() as management:
            made = management.webhooks.create(operator(management), "before")
        assert service.post(made).status == 202
        rotating = Command(["keys", "rotate", "--yes"], service.environment(), tmp_path, tmp_path / "rotated")
        assert rotating.wait(60) == 0, (tmp_path / "rotated").read_text()
        with service.management() as management:
            made = management.webhooks.create(operator(management), "after")
        assert service.post(made, b'{"n": 2}').status == 202
        until(lambda: "loaded a master key" in service.log(), "the new key is loaded")
        service.stop()

    (taken_up,) = [json.loads(line) for line in service.log().splitlines() if "loaded a master key" in line]
    assert taken_up["key"] == KeyFile(service.data_dir / "master.key").read()[0].id
    # What the start says goes to the same file, once the worker is ready too.
    assert [json.loads(line) for line in service.log().splitlines() if line.startswith("{")][-1]["event"] == "stopped"


def test_a_taken_port_is_reported_before_anything_is_created(data_dir: Path, hookmill: Hookmill):
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        printed = hookmill("serve", "--port", str(number), exit_code=1)

    assert printed.err == (
        f"The service can't listen on 127.0.0.1: port {number} is in use by another process. Stop that process, or "
        "choose another port with --port.\n"
    )
    assert not data_dir.exists()


def test_a_port_that_a_dying_service_still_holds_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as dying:
        # The first look finds it taken; it is gone by the next one.
        rests = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: dying.close())
        monkeypatch.setattr(port, "time", rests)

        with port.hold_port(*dying.getsockname()):
            assert dying.fileno() == -1


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_port_is_reserved_before_anybody_listens(host: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(port, "PORT_SECONDS", 0.0)
    number = free_port()

    with port.hold_port(host, number):
        for other in ("127.0.0.1", "0.0.0.0", "::"):
            with pytest.raises(Conflict, match=f"port {number} is in use by another process"):
                with port.hold_port(other, number):
                    pass
        # The server's processes come and go. In between, nobody else gets the port.
        for _ in range(2):
            with listening_like_the_server(host, number) as listener:
                with socket.create_connection(("127.0.0.1", number)):
                    listener.accept()[0].close()
            with pytest.raises(Conflict), port.hold_port("127.0.0.1", number):
                pass
    # The server closed those connections first, so the system still remembers them.
    with port.hold_port(host, number):
        with listening_like_the_server(host, number), listening_like_the_server(host, number):
            pass


def listening_like_the_server(host: str, number: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_ipv6 = family is socket.AF_INET6
    return socket.create_server((host, number), family=family, reuse_port=True, dualstack_ipv6=is_ipv6)


def test_of_many_services_that_start_at_once_one_gets_the_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(port, "PORT_SECONDS", 0.0)
    hosts = ["127.0.0.1", "0.0.0.0"] * 4
    for _ in range(count(2_000, usually=100)):
        number, together, everybody_tried = free_port(), threading.Barrier(len(hosts)), threading.Barrier(len(hosts))
        outcomes: list[str] = []

        def start(host: str) -> None:
            together.wait(LONG_SECONDS)  # noqa: B023
            with ExitStack() as resources:
                try:
                    resources.enter_context(port.hold_port(host, number))  # noqa: B023
                    outcomes.append("started")  # noqa: B023
                except Conflict:
                    outcomes.append("refused")  # noqa: B023
                everybody_tried.wait(LONG_SECONDS)  # noqa: B023

        threads = [threading.Thread(target=start, args=(host,)) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["refused"] * (len(hosts) - 1) + ["started"]


def test_of_two_services_on_one_port_the_second_is_refused(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    number = str(free_port())
    monkeypatch.setenv("HOOKMILL_PERFORMS_RUNS", "false")
    outputs = [tmp_path / "on one address", tmp_path / "on all addresses"]
    for output in outputs:
        output.touch()
    services = [
        Command(["serve", "--port", number, *arguments], os.environ, Path.cwd(), output)
        for output, arguments in zip(
            outputs, (["--data-dir", "one"], ["--data-dir", "all", "--host", "0.0.0.0"]), strict=True
        )
    ]
    try:
        until(lambda: any(service.poll() is not None for service in services), "one of them is refused")
        refused = next(index for index, service in enumerate(services) if service.poll() is not None)
        started = outputs[1 - refused]
        until(lambda: "Data:" in started.read_text(), "the other is ready")
        still_runs = services[1 - refused].poll() is None
    finally:
        for service in services:
            service.terminate()
        for service in services:
            service.wait(LONG_SECONDS)

    assert f"port {number} is in use by another process" in outputs[refused].read_text()
    assert services[refused].returncode == 1
    assert still_runs


def test_all_problems_of_the_settings_are_reported_together(
    data_dir: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_LOG_LEVEL", "loud")
    monkeypatch.setenv("HOOKMILL_BASE_URL", "hooks.example.com")

    printed = hookmill("serve", "--port", "70000", exit_code=2)

    assert printed.out == ""
    for setting in ("HOOKMILL_LOG_LEVEL", "HOOKMILL_BASE_URL", "HOOKMILL_PORT"):
        assert f"  {setting}: " in printed.err
    assert "Traceback" not in printed.err


def test_a_data_directory_that_cannot_be_made_is_named(hookmill: Hookmill, tmp_path: Path):
    (tmp_path / "file").write_text("")

    printed = hookmill("serve", "--port", str(free_port()), "--data-dir", "file/data", exit_code=1)

    assert str(tmp_path / "file" / "data") in printed.err
    assert "Traceback" not in printed.err


def test_a_worker_of_its_own_is_refused_on_sqlite(data_dir: Path, hookmill: Hookmill):
    printed = hookmill("worker", exit_code=1)

    assert "needs PostgreSQL" in printed.err
    assert "HOOKMILL_DATABASE_URL" in printed.err


def test_a_worker_says_what_it_does_and_ends_at_a_signal(
    data_dir: Path, hookmill: Hookmill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    hookmill("migrate")

    with subprocess.Popen([sys.executable, "-m", "hookmill", "worker"], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        said = worker.stdout.readline()
        worker.terminate()
        worker.wait(LONG_SECONDS)

    assert said == "Performing up to 4 runs at a time. Ctrl-C stops it.\n"


def test_a_worker_performs_runs_whatever_the_setting_of_serve_says(
    data_dir: Path, hookmill: Hookmill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    monkeypatch.setenv("HOOKMILL_PERFORMS_RUNS", "false")
    monkeypatch.setenv("HOOKMILL_PORT", str(free_port()))
    with started() as service:
        service.announcement()
        hookmill("send", "first")
        (run,) = hookmill("run", "list", "--json").json["runs"]
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


def test_a_worker_whose_directory_is_unusable_says_so_and_waits_for_it(
    data_dir: Path, hookmill: Hookmill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    hookmill("migrate")
    runs, log = data_dir / "runs", data_dir / "worker.log"
    runs.write_text("in the way")
    log.touch()
    worker = Command(["worker"], os.environ, data_dir, log)
    try:
        until(lambda: "can't be performed" in log.read_text(), "the worker says what is wrong")
        runs.unlink()
        until(lambda: '"event": "recovered"' in log.read_text(), "the worker says that it goes on")
    finally:
        worker.terminate()
        worker.wait(LONG_SECONDS)

    (failed, recovered) = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")][:2]
    assert failed["why"] == (
        f"Runs can't be performed, as {runs} can't be written to: File exists. Free disk space or inodes, or give the "
        "service's account the right to write there. This worker claims no runs until a test write succeeds."
    )
    assert recovered["what"] == f"A test write in {runs} succeeded: this worker claims runs again."


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_runner_with_a_user_that_cannot_be_used_is_refused(
    data_dir: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch, command: str
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", f"postgresql://127.0.0.1:{free_port()}/x")
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    monkeypatch.setenv("HOOKMILL_PORT", str(free_port()))
    monkeypatch.setenv("HOOKMILL_RUNNERS", '{"agent": {"argv": ["true"], "user": "hookmill-has-no-such-account"}}')

    printed = hookmill(command, exit_code=1)

    assert printed.out == ""
    assert printed.err.startswith(
        "The runner 'agent': This system has no account 'hookmill-has-no-such-account'. Create it, "
    )


def test_migrate_says_whether_there_was_something_to_do(data_dir: Path, hookmill: Hookmill):
    first = hookmill("migrate", "--json").json
    second = hookmill("migrate").out

    assert first == {"changed": True}
    assert second == "The database already has this version's schema.\n"


def test_migrate_works_on_postgresql(
    data_dir: Path, hookmill: Hookmill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)

    assert hookmill("migrate", "--json").json == {"changed": True}
    assert hookmill("migrate", "--json").json == {"changed": False}


def test_a_database_without_set_up_is_reported_with_what_to_do(
    data_dir: Path, hookmill: Hookmill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")

    printed = hookmill("webhook", "list", exit_code=1)

    assert "hookmill migrate" in printed.err
    assert "Traceback" not in printed.err


def test_an_unreachable_postgresql_is_reported_without_its_password(
    data_dir: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", f"postgresql://me:canary@127.0.0.1:{free_port()}/x")

    printed = hookmill("migrate", exit_code=1)

    assert printed.err.startswith("The database can't be used now: ")
    assert "canary" not in printed.err
    assert "Traceback" not in printed.err


def test_a_wrong_master_key_is_reported_without_the_key(
    log: object, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")

    printed = hookmill("webhook", "list", exit_code=1)

    assert "A" * 43 not in printed.err
    assert "key" in printed.err
    assert "Traceback" not in printed.err


def test_without_data_a_command_says_where_it_looked(data_dir: Path, hookmill: Hookmill):
    printed = hookmill("webhook", "list", exit_code=1)

    assert str(data_dir) in printed.err
    assert "hookmill serve" in printed.err


def test_a_file_that_is_no_database_is_reported(log: object, data_dir: Path, hookmill: Hookmill):
    shutil.copyfile(__file__, data_dir / "hookmill.db")

    printed = hookmill("webhook", "list", exit_code=1)

    assert "Traceback" not in printed.err
    assert printed.err.startswith("The database")
