"""Secrets in runs: only the command of the automation gets them, and what it writes about them is masked."""

import json
import os
import shutil
import sqlite3
import threading
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.errors import Conflict, Forbidden, Invalid, NotFound
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.permission import MayManage
from hookmill.domain.run import Ended, Run, RunState
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.domain.secret import SecretValue
from hookmill.management import InstallationConfig, Management
from hookmill.runs.file_writer import RunFileSettings, RunFileWriter
from hookmill.runs.health import HostHealth
from hookmill.runs.masked_files import MASKED_FILE_BYTES_MAX, NOT_MASKED_DIRECTORY
from hookmill.runs.package import Package, PackagesOnHost, write_package
from hookmill.runs.perform import Performer, RunSettings
from hookmill.runs.run_secrets import RunSecretReader
from hookmill.runs.runner import Abandoned, NextInstruction
from hookmill.runs.runners import (
    AgentSettings,
    CommandSettings,
    ContainerSettings,
    HttpSettings,
    PackageSettings,
    RunnerContext,
)
from hookmill.store.keys.sealing import KeyRing, MasterKey
from hookmill.store.runs.files import RunFileStorage
from tests.runs.backlog import Backlog
from tests.runs.samples import sample_run
from tests.runs.test_perform import OUR_EXECUTOR, FunctionRunner, claim, ignore
from tests.runs.worker import microseconds
from tests.support.automations import automation_changed, automation_created
from tests.support.triggers import received

VALUE = "canary-of-a-run-5e1f"
NEW_VALUE = "canary-after-rotation-77aa"
KEYS = KeyRing([MasterKey(b"k" * 32)])
RULES = {
    "command": RunSecretRule(),
    "package": PackageSettings().secret_rule(),
    "platform": HttpSettings(url="https://agents.example.com", secret_from="S").secret_rule(),
}


class Installation:
    """Management operations, and a performer whose runner the test chooses."""

    def __init__(self, backlog: Backlog, *, rules: Mapping[str, RunSecretRule] = RULES, has_packages: bool = True):
        self.backlog = backlog
        self.uid = backlog.webhook()
        self.rules = dict(rules)
        self.packages = backlog.data / "runs"
        config = InstallationConfig(
            public_url="https://hooks.test",
            webhooks_per_factory=20,
            runner_names=tuple(RULES),
            default_runner="command",
            secret_rules=rules,
        )
        self.management = Management(
            backlog.database,
            KEYS,
            config,
            microseconds,
            packages=PackagesOnHost(self.packages) if has_packages else None,
            run_file_storage=RunFileStorage(),
        )
        self.may = self.management.access.operator("fac_one")

    def manager(self, factory: str = "fac_one") -> MayManage:
        """Permission of a member who manages this factory, and is no admin."""
        self.backlog.webhook(factory)
        may = self.management.access.operator(factory)
        return MayManage(actor=may.actor, factory=may.factory, is_admin=False)

    def automation(self, name: str = "deploy", *, may: MayManage | None = None, **changes: Any) -> str:
        triggers = [received(self.uid)]
        arguments = {"prompt": "Do it.", "triggers": triggers, "options": {"secrets": ["GH_TOKEN"]}, **changes}
        return automation_created(self.management, may or self.may, name, **arguments).id

    def perform(self, automation: str, runner: Any, failures: list[Any] | None = None) -> Run:
        key = self.backlog.queue(automation)
        claim(self.backlog)
        self.performer(runner, failures if failures is not None else []).perform(key, 1)
        return self.backlog.run(key)

    def performer(self, runner: Any, failures: list[Any]) -> Performer:
        def report(component: str, error: BaseException):
            failures.append((component, error))

        return Performer(
            database=self.backlog.database,
            executor=OUR_EXECUTOR,
            settings=RunSettings(
                data=self.backlog.data,
                runners={"command": runner},
                secrets=RunSecretReader(master_keys=KEYS, rules=self.rules),
            ),
            clock=microseconds,
            abandon_runs=threading.Event(),
            report_failure=report,
            health=HostHealth(self.packages, report_failure=report, report_recovery=ignore),
            file_writer=RunFileWriter(
                self.backlog.database,
                RunFileSettings(),
                executor=OUR_EXECUTOR,
                host="our-host",
                packages=self.packages,
                should_stop=lambda: False,
                report_failure=report,
            ),
        )

    def names(self, run: Run) -> list[str]:
        return [file.name for file in self.management.run_files.files_of(self.may, run).files]

    def content(self, run: Run, name: str) -> bytes:
        return b"".join(self.management.run_files.read(self.may, run, name))

    def package(self, key: RunKey) -> Path:
        return self.packages / run_id(key)


@pytest.fixture
def installation(sqlite_backlog):
    installation = Installation(sqlite_backlog)
    installation.management.secrets.create(installation.may, "GH_TOKEN", VALUE, for_runs=True)
    return installation


def never_starts(package: Package, _: NextInstruction) -> Ended:
    raise AssertionError("the command was started")


def shell(script: str) -> Any:
    return CommandSettings(argv=("sh", "-c", script)).create_runner(RunnerContext())


# What the command gets, and what is stored


SCRIPT = r"""
test "$GH_TOKEN" = canary-of-a-run-5e1f || exit 9
tr '\0' ' ' < /proc/$PPID/cmdline; tr '\0' ' ' < /proc/$$/cmdline
printf 'token canary-of'; sleep 0.05; echo "-a-run-5e1f; $(printf "user:$GH_TOKEN" | base64)"
printf "$GH_TOKEN" > token.txt
echo "x $GH_TOKEN y" >> prompt.md
printf "https://user:$GH_TOKEN@example.com" > "with $GH_TOKEN.txt"
ln -s ../../hookmill.db link; mkdir dir; echo "$GH_TOKEN" > dir/file
"""


def test_only_the_command_gets_the_value(backlog, tmp_path):
    installation = Installation(backlog)
    installation.management.secrets.create(installation.may, "GH_TOKEN", VALUE, for_runs=True)
    failures: list[Any] = []

    run = installation.perform(installation.automation(), shell(SCRIPT), failures)

    assert (run.state, run.reason, failures) == (RunState.SUCCEEDED, None, [])
    assert "token [masked]; " in (run.output_tail or "")
    other_host = Installation(backlog, has_packages=False)
    for host in (installation, other_host):
        names = host.names(run)
        assert names == ["prompt.md", "envelope.json", "event-payload.json", "envelope.txt", "output.log", "token.txt"]
        contents = {name: host.content(run, name) for name in names}
        assert contents["token.txt"] == b"[masked]"
        assert contents["prompt.md"].endswith(b"x [masked] y\n")
        assert [name for name, content in contents.items() if leaks(content)] == []
        with pytest.raises(NotFound):
            host.content(run, f"with {VALUE}.txt")
    assert not leaks(repr(run).encode())
    if backlog.url.startswith("sqlite"):
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        aside = installation.package(run.id) / NOT_MASKED_DIRECTORY / f"with {VALUE}.txt"
        in_directory = installation.package(run.id) / "dir" / "file"
        assert {path for path in files if leaks(path.read_bytes())} == {aside, in_directory}
        assert any(b"GH_TOKEN" in path.read_bytes() for path in files)


def leaks(content: bytes) -> bool:
    return VALUE.encode() in content or b64encode(f"user:{VALUE}".encode())[8:24] in content


def test_value_is_in_no_argument_of_any_runner(tmp_path, monkeypatch):
    package = Package(run=sample_run(), directory=tmp_path, secrets={"GH_TOKEN": SecretValue(VALUE)})
    container = ContainerSettings(image="i", argv=("true",)).create_runner(RunnerContext())
    agent = AgentSettings(agent="claude").create_runner(RunnerContext())

    for runner in (container, agent, shell("true")):
        assert VALUE not in repr(runner._argv(package))
        assert runner._environment(package)["GH_TOKEN"] == VALUE
    assert "--env=GH_TOKEN" in container._argv(package)
    assert VALUE not in repr(package)


def test_texts_of_a_result_are_masked(installation):
    report = AgentReport(result=f"I used {VALUE}.", input_tokens=1, model=VALUE)
    result = Ended(state=RunState.FAILED, reason=f"No {VALUE}", output_tail=f"{VALUE}\n", report=report)

    run = installation.perform(installation.automation(), FunctionRunner(lambda package, _: result))

    assert (run.state, run.reason, run.output_tail) == (RunState.FAILED, "No [masked]", "[masked]\n")
    with installation.backlog.database.read() as tx:
        report_row = tx.one("SELECT result, model FROM attempt_reports")
    assert (report_row["result"], report_row["model"]) == ("I used [masked].", "[masked]")


def test_only_the_output_is_shown_until_the_files_are_masked(installation):
    def act(package, _):
        (package.directory / "token.txt").write_text(VALUE)
        (package.directory / "output.log").write_text("x")
        return Abandoned()

    # The worker stops, or another one has claimed the run.
    run = installation.perform(installation.automation(), FunctionRunner(act))
    output = installation.management.run_files.output_of(installation.may, run)

    assert (installation.package(run.id) / "token.txt").read_text() == VALUE
    assert (installation.names(run), output.content) == (["output.log"], b"x")
    for name in ("token.txt", "prompt.md"):
        with pytest.raises(NotFound):
            installation.content(run, name)


def test_late_worker_masks_no_file_of_a_later_attempt(installation):
    def act(package, _):
        shutil.rmtree(package.directory)
        write_package(installation.packages, package.run, b"{}")
        (package.directory / "token.txt").write_text(VALUE)
        return Ended(state=RunState.SUCCEEDED)

    run = installation.perform(installation.automation(), FunctionRunner(act))

    assert (installation.package(run.id) / "token.txt").read_text() == VALUE
    assert installation.names(run) == []


def test_files_that_cannot_be_masked_are_neither_shown_nor_stored(installation, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "token.txt").write_text(VALUE)

    def act(package, _):
        with (package.directory / "large").open("wb") as file:
            file.truncate(MASKED_FILE_BYTES_MAX + 1)
        os.link(outside / "token.txt", package.directory / "linked.txt")
        os.mkfifo(package.directory / "pipe")
        return Ended(state=RunState.SUCCEEDED)

    run = installation.perform(installation.automation(), FunctionRunner(act))

    assert [name for name in installation.names(run) if name not in PACKAGE_FILES] == ["linked.txt"]
    assert installation.content(run, "linked.txt") == b"[masked]"
    assert (outside / "token.txt").read_text() == VALUE
    assert (installation.package(run.id) / NOT_MASKED_DIRECTORY / "large").exists()


def test_link_of_the_command_moves_no_file_out_of_the_package(installation, tmp_path):
    def act(package, _):
        (package.directory / f"{VALUE}.txt").write_text("x")
        (package.directory / NOT_MASKED_DIRECTORY).symlink_to(tmp_path)
        return Ended(state=RunState.SUCCEEDED)

    failures: list[Any] = []
    run = installation.perform(installation.automation(), FunctionRunner(act), failures)

    assert run.state is RunState.SUCCEEDED
    assert not (tmp_path / f"{VALUE}.txt").exists()
    assert installation.names(run) == []
    assert len(failures) == 1


PACKAGE_FILES = ["envelope.json", "envelope.txt", "event-payload.json", "prompt.md"]


# Rotation, deletion and settings


def test_next_attempt_gets_the_new_value(installation):
    automation = installation.automation()
    values = []

    def act(package, _):
        values.append(package.secrets["GH_TOKEN"].reveal())
        return Ended(state=RunState.SUCCEEDED)

    installation.perform(automation, FunctionRunner(act))
    installation.management.secrets.replace(installation.may, "GH_TOKEN", NEW_VALUE)
    installation.perform(automation, FunctionRunner(act))

    assert values == [VALUE, NEW_VALUE]


def test_run_without_its_secret_fails_and_starts_no_command(installation):
    automation = installation.automation()
    installation.management.secrets.delete(installation.may, "GH_TOKEN")
    warnings = installation.management.automations.warnings(
        installation.may, installation.management.automations.get(installation.may, automation)
    )
    run = installation.perform(automation, FunctionRunner(never_starts))

    assert run.state is RunState.FAILED
    assert run.reason.startswith("The secret GH_TOKEN does not exist any more, so the command was not started.")
    assert not installation.package(run.id).exists()
    assert ["GH_TOKEN" in warning for warning in warnings] == [True]


def test_secret_of_another_factory_never_replaces_a_deleted_one(installation):
    automation = installation.automation()
    installation.management.secrets.delete(installation.may, "GH_TOKEN")
    installation.management.secrets.create(installation.manager("fac_two"), "GH_TOKEN", NEW_VALUE, for_runs=True)

    run = installation.perform(automation, FunctionRunner(never_starts))

    assert (run.state, "GH_TOKEN does not exist" in run.reason) == (RunState.FAILED, True)


def test_runner_that_allows_the_secret_no_longer_gets_none(installation):
    automation = installation.automation()
    installation.rules["command"] = RunSecretRule(allowed=("NPM_*",))

    run = installation.perform(automation, FunctionRunner(never_starts))

    assert "allows no secret in the variable GH_TOKEN" in run.reason


def test_secret_that_cannot_be_decrypted_fails_the_run(installation):
    automation = installation.automation()
    with installation.backlog.database.write() as tx:
        tx.run("UPDATE secret_versions SET key_id = 'other' WHERE secret_id <> 'sec'")

    run = installation.perform(automation, FunctionRunner(never_starts))

    assert "GH_TOKEN can't be decrypted on this host" in run.reason


# Who may hand which secret to runs


def test_secret_of_a_webhook_is_never_handed_to_runs(installation):
    management, may = installation.management, installation.manager()
    management.webhooks.create(may, {"name": "orders"}, secret=VALUE)

    with pytest.raises(Invalid, match="no secret for runs named WEBHOOK_ORDERS_SECRET") as refused:
        installation.automation("steal", may=may, options={"secrets": ["WEBHOOK_ORDERS_SECRET"]})
    assert refused.value.faults[0].pointer == "/secrets/0"
    with pytest.raises(Conflict, match="is for runs"):
        management.webhooks.create(may, {"name": "by run", "secret_name": "GH_TOKEN"})
    with pytest.raises(Conflict, match="already exists"):
        management.secrets.create(may, "WEBHOOK_ORDERS_SECRET", NEW_VALUE, for_runs=True)


def test_manager_gets_no_secret_of_another_factory(installation):
    may = installation.manager("fac_two")
    texts = set()

    for name in ("GH_TOKEN", "NO_TOKEN"):
        with pytest.raises(Invalid) as refused:
            installation.automation("steal", may=may, options={"secrets": [name]})
        texts.add(str(refused.value).replace(name, "…"))

    assert len(texts) == 1
    with pytest.raises((NotFound, Forbidden)):
        installation.management.secrets.delete(may, "GH_TOKEN")


@pytest.mark.parametrize(
    ("runner", "secrets", "problem"),
    [
        ("package", ["GH_TOKEN"], "it starts no command"),
        ("platform", ["GH_TOKEN"], "it starts no command"),
        ("command", ["NODE_OPTIONS=GH_TOKEN"], "allows no secret in the variable NODE_OPTIONS"),
    ],
)
def test_runner_that_allows_no_secret_is_refused_on_save(installation, runner, secrets, problem):
    with pytest.raises(Invalid, match=problem):
        installation.automation("new", runner=runner, options={"secrets": secrets})

    automation = installation.automation()
    with pytest.raises(Invalid, match=problem):
        automation_changed(
            installation.management, installation.may, automation, runner=runner, options={"secrets": secrets}
        )


def test_automation_whose_secret_is_deleted_can_be_changed(installation):
    automation = installation.automation()
    installation.management.secrets.delete(installation.may, "GH_TOKEN")

    changed = automation_changed(installation.management, installation.may, automation, prompt="Another.")

    assert changed.secrets == ("GH_TOKEN",)


def test_secret_shows_the_automations_that_get_it(installation):
    installation.automation()

    shown = installation.management.secrets.get(installation.may, "GH_TOKEN")

    assert (shown.for_runs, shown.used_by_automations, shown.used_by) == (True, ("deploy",), ())


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        (CommandSettings(argv=("x",), environment={"MODEL_KEY": "1"}), "MODEL_KEY"),
        (CommandSettings(argv=("x",), pass_environment=("API_TOKEN",)), "API_TOKEN"),
        (AgentSettings(agent="claude"), "ANTHROPIC_API_KEY"),
        (AgentSettings(agent="claude", key_variable="OTHER_KEY"), "OTHER_KEY"),
        (ContainerSettings(image="i", argv=("x",)), "CONTAINER_KEY"),
    ],
)
def test_secret_never_replaces_a_variable_of_the_runner(settings, variable):
    rule = settings.secret_rule()

    assert rule.problem_of("r", variable) is not None
    assert rule.problem_of("r", "GH_TOKEN") is None


def test_audit_log_names_secrets_and_no_value(installation):
    automation = installation.automation()
    automation_changed(installation.management, installation.may, automation, options={"secrets": None})

    with closing(sqlite3.connect(installation.backlog.url.removeprefix("sqlite:///"))) as connection:
        details = [json.loads(row[0]) for row in connection.execute("SELECT details FROM audit_log ORDER BY id")]
    assert {"for_runs": True} in details
    assert any(each.get("changed") == ["secrets"] for each in details)
    assert VALUE not in repr(details)
