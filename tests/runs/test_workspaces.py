"""Runs with a workspace: what their command finds, how the attempt ends without one, and what is left afterwards."""

import fcntl
import json
import os
import pwd
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hookmill.domain.ids import FactoryId, RunKey, SecretId, TeamId, run_id
from hookmill.domain.run import Ended, Run, RunState
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import Retry
from hookmill.domain.secret import SecretValue
from hookmill.domain.workspace import DEFAULT_REF, FULL_DEPTH, CheckoutCommits, Workspace
from hookmill.maintenance import run_retention
from hookmill.metrics import ATTEMPTS, Metrics
from hookmill.runs.observation import RunObserver
from hookmill.runs.package import Package, write_package
from hookmill.runs.perform import WORKSPACE_RETRY, Performer
from hookmill.runs.runner import Abandoned, NextInstruction, Runner
from hookmill.runs.runners import AgentSettings, CommandSettings, ContainerSettings, RunnerContext
from hookmill.runs.runners.agent_presets import AGENT_PRESETS
from hookmill.runs.workspaces.checkouts import Checkouts
from hookmill.runs.workspaces.preparation import Workspaces
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.sandbox.disk import UNMEASURABLE, DiskUse
from hookmill.store import secrets
from hookmill.store.keys.binding import bind_master_key
from hookmill.store.keys.sealing import KeyRing, MasterKey
from tests.faults.small_disk import SmallDisk, ext4_disk
from tests.runs.backlog import Backlog
from tests.runs.samples import always_continue, sample_run
from tests.runs.test_perform import claim, new_performer, with_settings
from tests.runs.worker import microseconds
from tests.support.automations import automation_created
from tests.support.git_server import SourceRepository, git, serve_over_http, tree_entry
from tests.support.service import operator, serving
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import until

KEYS = KeyRing([MasterKey(b"k" * 32)])
PASSWORD = "ghp_not-a-real-token-8Rr"
SHA = {"pointer": "/sha"}
BASED = {"repository": "app", "base": {"pointer": "/base"}}


@dataclass
class Recorder:
    """A runner that records what it finds in the package, and ends as it is told."""

    result: Ended | Abandoned = field(default_factory=lambda: Ended(state=RunState.SUCCEEDED))
    grace_seconds: float = 0
    packages: list[Package] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    envelopes: list[Any] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """The files that have changed since the base."""

    def end_earlier_attempts(self, run: Run): ...

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        self.packages.append(package)
        self.envelopes.append(json.loads(package.envelope_file.read_text()))
        if package.workspace is not None:
            self.files += [path.name for path in sorted(package.workspace.iterdir()) if path.name != ".git"]
            if "base" in self.envelopes[-1]["workspace"]:
                self.changes += git(package.workspace, "diff", "--name-only", "hookmill/base...HEAD", "--").splitlines()
        return self.result


class Scene:
    """A backlog, a source repository, and a performer whose runner `recorder` gets workspaces."""

    def __init__(self, backlog: Backlog, directory: Path):
        self.backlog = backlog
        self.source = SourceRepository.create(directory / "source")
        self.recorder = Recorder()
        self.failures: list[Any] = []
        self.room: Callable[[], DiskUse] = lambda: UNMEASURABLE

    def performer(self, runner: Runner | None = None, **settings: Any) -> Performer:
        repository = RepositorySettings(**{"url": str(self.source.directory), **settings})
        return with_settings(
            new_performer(self.backlog, self.failures, recorder=runner or self.recorder),
            workspaces=Workspaces(
                repositories={"app": repository},
                runners={"recorder"},
                checkouts=Checkouts(self.backlog.data, self.room),
                database=self.backlog.database,
                master_keys=KEYS,
            ),
        )

    def claimed_run(self, workspace: Mapping[str, Any], payload: Any = None, runner: str = "recorder") -> RunKey:
        automation = self.backlog.automation(runner=runner)
        key = self.backlog.queue(automation, payload=json.dumps(payload).encode())
        with self.backlog.database.write() as tx:
            tx.run(
                "UPDATE automation_versions SET options = :options WHERE automation_id = :id",
                options=json.dumps({"workspace": workspace}),
                id=automation,
            )
        claim(self.backlog)
        return key

    def perform(self, workspace: Mapping[str, Any], payload: Any = None, **settings: Any) -> Run:
        key = self.claimed_run(workspace, payload)
        self.performer(**settings).perform(key, 1)
        return self.backlog.run(key)

    def package(self) -> Path:
        [package] = (self.backlog.data / "runs").iterdir()
        return package


@pytest.fixture
def scene(sqlite_backlog, tmp_path):
    return Scene(sqlite_backlog, tmp_path)


def test_run_finds_the_commit_of_its_payload_and_leaves_no_checkout(scene):
    commit = scene.source.commit(old="x")
    scene.source.commit(new="x")

    run = scene.perform({"repository": "app", "ref": SHA}, {"sha": commit})

    assert run.state is RunState.SUCCEEDED
    assert scene.recorder.files == ["old"]
    assert scene.recorder.envelopes[0]["workspace"] == {
        "repository": "app",
        "ref": {"value": commit, "trust": "untrusted"},
        "commit": commit,
    }
    assert sorted(path.name for path in scene.package().iterdir()) == [
        "envelope.json", "envelope.txt", "event-payload.json", "prompt.md",
    ]  # fmt: skip


def test_command_can_compare_the_checkout_with_the_base_of_its_payload(scene):
    base = scene.source.commit(old="x")
    commit = scene.source.commit(new="x")
    workspace = {"repository": "app", "ref": SHA, "base": {"pointer": "/base"}}

    run = scene.perform(workspace, {"sha": commit, "base": base})

    assert run.state is RunState.SUCCEEDED
    assert scene.recorder.changes == ["new"]
    assert scene.recorder.envelopes[0]["workspace"] == {
        "repository": "app",
        "ref": {"value": commit, "trust": "untrusted"},
        "commit": commit,
        "base": {"value": base, "trust": "untrusted"},
        "base_commit": base,
        "merge_base": base,
    }
    prompt = scene.recorder.packages[0].prompt_file.read_text()
    assert "`git diff hookmill/base...HEAD --`" in prompt
    assert "The payload has chosen the base." in prompt
    assert base not in prompt


def test_prompt_says_where_the_files_are_and_that_a_chosen_checkout_is_untrusted(scene):
    commit = scene.source.commit()
    scene.perform({"repository": "app", "ref": SHA}, {"sha": commit})
    prompts = [scene.recorder.packages[0].prompt_file.read_text()]
    shutil.rmtree(scene.package())
    scene.perform({"repository": "app"})
    prompts.append(scene.recorder.packages[1].prompt_file.read_text())

    for prompt in prompts:
        assert "Repository: app\n" in prompt
        assert "the attached file is ../event-payload.json" in prompt
        assert commit not in prompt
        assert "hookmill/base" not in prompt
    assert ["The payload has chosen the commit" in prompt for prompt in prompts] == [True, False]


@pytest.mark.parametrize(
    ("workspace", "payload", "reason"),
    [
        ({"repository": "app", "ref": SHA}, {}, "The ref of the workspace, at /sha in the payload, is missing."),
        (
            {"repository": "app", "ref": SHA},
            {"sha": "--upload-pack=touch"},
            "in the payload, has a part between slashes",
        ),
        ({"repository": "app", "ref": SHA}, {"sha": "0" * 40}, "has no commit with the id of the workspace's ref"),
        ({"repository": "app", "ref": "gone"}, {}, "has no branch or tag with the name of the workspace's ref"),
        (BASED, {}, "The base of the workspace, at /base in the payload, is missing."),
        (BASED, {"base": {"repository": "other", "ref": "main"}}, "at /base in the payload, is not a string."),
        (BASED, {"base": "--upload-pack=touch"}, "The base of the workspace, at /base in the payload, has a part"),
        (BASED, {"base": "gone"}, "has no branch or tag with the name of the workspace's base"),
        ({"repository": "other"}, {}, "The service started without a repository 'other' for this factory."),
    ],
)
def test_workspace_that_a_run_may_not_have_fails_the_run(scene, workspace, payload, reason):
    scene.source.commit()

    run = scene.perform(workspace, payload)

    assert run.state is RunState.FAILED
    assert reason in (run.reason or "")
    assert scene.recorder.packages == []
    assert list((scene.backlog.data / "runs").glob("*")) == list((scene.backlog.data / "runs").glob(".*")) == []


@pytest.mark.parametrize(
    ("payload", "state"), [({}, RunState.FAILED), ({"sha": "0" * 40}, RunState.QUEUED)], ids=["unusable", "missing"]
)
def test_only_a_ref_that_may_exist_later_is_tried_again(scene, payload, state):
    scene.source.commit()
    key = scene.claimed_run({"repository": "app", "ref": SHA}, payload)

    with_settings(scene.performer(), retry_rules={"recorder": Retry(attempts=2, backoff_seconds=1)}).perform(key, 1)

    assert scene.backlog.run(key).state is state


def test_repository_of_another_factory_fails_the_run(scene):
    scene.source.commit()

    run = scene.perform({"repository": "app"}, factories=("another",))

    assert (run.state, scene.recorder.packages) == (RunState.FAILED, [])


def test_unreachable_repository_is_tried_again_and_then_interrupts_the_run(scene):
    key = scene.claimed_run({"repository": "app"})
    performer = scene.performer(url="http://127.0.0.1:1/app.git")

    performer.perform(key, 1)
    while (run := scene.backlog.run(key)).state is RunState.QUEUED:
        with scene.backlog.database.write() as tx:
            tx.run("UPDATE runs SET hold = NULL, due_at = NULL")
        claim(scene.backlog)
        performer.perform(key, run.attempt + 1)

    assert run.attempt == WORKSPACE_RETRY.attempts
    assert run.state is RunState.INTERRUPTED
    assert (run.reason or "").startswith("The repository 'app' (127.0.0.1:1) could not be read: fatal: ")


@pytest.mark.parametrize(
    "settings", [{"factories": ("another",)}, {"url": "http://127.0.0.1:1/app.git"}], ids=["refused", "unavailable"]
)
def test_attempt_that_gets_no_workspace_is_counted_as_failed(scene, settings):
    metrics = Metrics()
    key = scene.claimed_run({"repository": "app"})
    performer = replace(scene.performer(**settings), observer=RunObserver(["recorder"], metrics=metrics))

    performer.perform(key, 1)

    counted = {labels: count for labels, [count] in metrics.values()[ATTEMPTS.name] if count}
    assert counted == {("recorder", "failed"): 1}


def test_full_disk_returns_the_run_to_the_queue(scene):
    scene.source.commit()
    key = scene.claimed_run({"repository": "app"})
    scene.backlog.data.mkdir()
    (scene.backlog.data / "repositories").write_text("not a directory")

    result = scene.performer().perform(key, 1)

    run = scene.backlog.run(key)
    assert result == Abandoned()
    assert (run.state, run.attempt) == (RunState.QUEUED, 0)


@pytest.mark.parametrize("is_stopping", [False, True], ids=["cancelled", "stopping"])
def test_run_ends_while_its_workspace_is_made(scene, is_stopping):
    scene.source.commit()
    key = scene.claimed_run({"repository": "app"})
    performer = scene.performer()
    if is_stopping:
        performer.abandon_runs.set()
    else:
        with scene.backlog.database.write() as tx:
            tx.run("UPDATE runs SET cancel_requested_at = 1")

    result = performer.perform(key, 1)

    assert scene.recorder.packages == []
    if is_stopping:
        assert result == Abandoned()
    else:
        assert isinstance(result, Ended)
        assert (result.state, result.reason) == (RunState.CANCELLED, "It was cancelled while its workspace was made.")


@pytest.mark.parametrize(
    ("workspace", "settings"),
    [
        ({"repository": "app"}, {"url": "/nonexistent/app.git"}),
        ({"repository": "app", "ref": "gone"}, {}),
        ({"repository": "app", "base": "unrelated"}, {}),
        ({"repository": "app"}, {"disk_bytes_max": 1_048_576}),
    ],
    ids=["unavailable", "missing", "refused", "too large"],
)
def test_run_that_is_cancelled_while_its_workspace_fails_is_cancelled(scene, workspace, settings):
    scene.source.commit(f="x")
    scene.source.git("checkout", "-q", "--orphan", "unrelated")
    scene.source.commit(g="x")
    scene.source.git("checkout", "-q", "main")
    scene.source.commit(large="0" * 2_000_000)
    key = scene.claimed_run(workspace)
    calls = iter(range(1_000))

    def cancel_after_the_first_tick():
        if next(calls) == 1:
            with scene.backlog.database.write() as tx:
                tx.run("UPDATE runs SET cancel_requested_at = 1")
        return UNMEASURABLE

    scene.room = cancel_after_the_first_tick
    scene.performer(**settings).perform(key, 1)

    run = scene.backlog.run(key)
    assert (run.state, scene.recorder.packages) == (RunState.CANCELLED, [])
    assert (run.reason or "").startswith("It was cancelled")
    with scene.backlog.database.read() as tx:
        assert tx.one("SELECT 1 FROM automations WHERE failures_in_row > 0") is None


@pytest.mark.parametrize("attempts_max", [1, 2])
@pytest.mark.parametrize("rooms", [0, 1], ids=["before", "meanwhile"])
def test_run_is_not_failed_by_a_disk_that_is_nearly_full(scene, rooms, attempts_max):
    """If only the workspace may be the reason, the number of attempts is limited."""
    scene.source.commit()
    key = scene.claimed_run({"repository": "app"})
    calls = iter(range(1_000))

    scene.room = lambda: UNMEASURABLE if next(calls) < rooms else DiskUse(0, 0)
    performer = with_settings(scene.performer(), attempts_max=attempts_max)
    result = performer.perform(key, 1)

    run = scene.backlog.run(key)
    if rooms and attempts_max == 1:
        assert run.state is RunState.INTERRUPTED
        assert "free_space_min_mb" in (run.reason or "")
    else:
        assert (result, run.state, run.attempt) == (Abandoned(), RunState.QUEUED, rooms)
    assert performer.health.may_claim()
    assert performer.health.runners_at_fault() == {"recorder"}


def test_malformed_commit_fails_the_run_at_its_first_attempt(scene):
    scene.source.commit(f="x")
    blob = scene.source.git("rev-parse", "HEAD:f")
    scene.source.branch("bad", scene.source.store("tree", tree_entry("100644", ".git", blob)))

    run = scene.perform({"repository": "app", "ref": "bad"})

    assert (run.state, run.failures) == (RunState.FAILED, 0)
    assert "has a malformed object" in (run.reason or "")


@pytest.mark.parametrize("has_repositories", [True, False])
def test_runner_that_starts_nothing_here_gets_no_checkout(scene, has_repositories):
    key = scene.claimed_run({"repository": "app", "ref": "main"}, runner="package")
    performer = scene.performer()
    if not has_repositories:
        assert performer.settings.workspaces is not None
        performer = with_settings(performer, workspaces=replace(performer.settings.workspaces, repositories={}))

    performer.perform(key, 1)

    assert scene.backlog.run(key).state is RunState.SUCCEEDED
    envelope = json.loads((scene.package() / "envelope.json").read_text())
    assert envelope["workspace"] == {"repository": "app", "ref": {"value": "main", "trust": "trusted"}, "commit": None}
    assert not (scene.backlog.data / "repositories").exists()


def test_next_attempt_replaces_the_workspace_of_a_dead_worker(scene):
    scene.source.commit(f="x")
    key = scene.claimed_run({"repository": "app"})
    scene.recorder.result = Abandoned()
    scene.performer().perform(key, 1)
    (scene.package() / "workspace" / "left").touch()

    scene.recorder.result = Ended(state=RunState.SUCCEEDED)
    scene.performer().perform(key, 1)

    assert scene.recorder.files == ["f", "f"]
    assert not (scene.package() / "workspace").exists()


@pytest.mark.parametrize("script", ["mv {name} moved; ln -s {target} {name}", "ln -s {target} {name}/link"])
@pytest.mark.parametrize("name", ["workspace", "outputs"])
def test_links_that_a_command_leaves_are_not_followed(scene, tmp_path, name, script):
    scene.source.commit(f="x")
    target = tmp_path / "files of the host"
    target.mkdir()
    (target / "summary.md").write_text("not written by the run")
    command = script.format(name=name, target=shlex.quote(str(target)))
    settings = CommandSettings(argv=("sh", "-c", f'cd "${{HOOKMILL_WORKSPACE%/*}}"; {command}'))
    key = scene.claimed_run({"repository": "app"})

    result = scene.performer(settings.create_runner(RunnerContext())).perform(key, 1)

    assert isinstance(result, Ended)
    assert (result.state, result.outputs) == (RunState.SUCCEEDED, {})
    assert [path.name for path in target.iterdir()] == ["summary.md"]
    assert not os.path.lexists(scene.package() / "workspace")
    assert not (scene.package() / "summary.md").exists()


def test_git_configuration_that_a_run_leaves_is_never_used(scene, tmp_path):
    scene.source.commit(f="x", **{".gitattributes": "* filter=evil diff=evil"})
    marker = tmp_path / "executed"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(marker))}\n")
    evil.chmod(0o755)
    key = scene.claimed_run({"repository": "app"})
    scene.recorder.result = Abandoned()
    scene.performer().perform(key, 1)
    checkout = scene.package() / "workspace"
    with (checkout / ".git" / "config").open("a") as config:
        config.write(f'[core]\nfsmonitor = "{evil}"\nhooksPath = "{tmp_path}"\nsshCommand = "{evil}"\n')
        config.write(f'[filter "evil"]\nsmudge = "{evil}"\nclean = "{evil}"\n')
    for hook in ("post-checkout", "reference-transaction"):
        (tmp_path / hook).symlink_to(evil)

    scene.recorder.result = Ended(state=RunState.SUCCEEDED)
    scene.performer().perform(key, 1)
    scene.performer().perform(scene.claimed_run({"repository": "app"}), 1)

    assert len(scene.recorder.packages) == 3
    assert not marker.exists()


def test_retention_removes_a_workspace_that_a_dead_worker_left(scene):
    scene.source.commit(f="x")
    key = scene.claimed_run({"repository": "app"})
    scene.recorder.result = Abandoned()
    scene.performer().perform(key, 1)
    packages = scene.backlog.data / "runs"

    run_retention(scene.backlog.database, packages, microseconds())
    is_kept_while_it_runs = (scene.package() / "workspace").exists()
    with scene.backlog.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = :now", now=microseconds())
    run_retention(scene.backlog.database, packages, microseconds())

    assert is_kept_while_it_runs
    assert not (scene.package() / "workspace").exists()
    assert (scene.package() / "prompt.md").exists()


@pytest.fixture
def small_disk(tmp_path):
    with SmallDisk(tmp_path) as disk:
        yield disk


def test_service_gives_its_runs_workspaces_and_removes_mirrors(small_disk, tmp_path):
    """It removes mirrors that are unused, and those that leave runs too little of the disk."""
    source = SourceRepository.create(tmp_path / "source")
    source.commit(f="checked out")
    data = small_disk.directory / "data"
    repository = RepositorySettings(url=str(source.directory))
    Checkouts(data).check_out("app", repository, DEFAULT_REF, FULL_DEPTH, tmp_path / "earlier")
    [used] = (data / "repositories").glob("*.git")
    unused = used.with_name("old-0123456789ab-1.git")
    unused.mkdir()
    if small_disk.is_mounted:
        with (used / "large").open("wb") as large:
            os.posix_fallocate(large.fileno(), 0, 40 * 1024 * 1024)
    with serving(
        data,
        free_space_min_mb=12,
        runners=json.dumps({"agent": {"argv": ["sh", "-c", 'cat "$HOOKMILL_WORKSPACE/f"']}}),
        repositories=json.dumps({"app": {"url": str(source.directory), "factories": ["default"]}}),
    ) as service:
        until(lambda: used.exists() is not small_disk.is_mounted, "the large mirror is removed")
        with service.management() as management:
            may = operator(management)
            automation = automation_created(
                management,
                may,
                "with a workspace",
                prompt="Look.",
                triggers=[
                    {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "a", "cron": "@yearly"}}
                ],
                runner="agent",
                options={"workspace": {"repository": "app"}},
            )
            run = management.automations.start_run(may, automation.id)
            until(lambda: management.runs.get(may, run_id(run.id)).state.is_final, "the run has ended")
            ended = management.runs.get(may, run_id(run.id))

    assert (ended.state, ended.output_tail) == (RunState.SUCCEEDED, "checked out")
    assert not unused.exists()


def test_service_starts_on_a_full_disk_because_it_removes_mirrors(tmp_path):
    with ext4_disk(tmp_path / "disk", megabytes=200):
        data = tmp_path / "disk" / "data"
        data.mkdir(mode=0o700)
        mirror = data / "repositories" / "old-0123456789ab-1.git"
        mirror.mkdir(parents=True)
        (mirror / "large").write_bytes(bytes(80 * 1024 * 1024))
        # The database needs no space of its own.
        shutil.copyfile(migrated_sqlite_file(), data / "hookmill.db")
        (tmp_path / "log").touch()
        (data / "service.log").symlink_to(tmp_path / "log")
        for size in (65_536, 512):
            with suppress(OSError), (tmp_path / "disk" / "filler").open("ab", buffering=0) as filler:
                while True:
                    filler.write(bytes(size))

        with serving(data, free_space_min_mb=12):
            assert not mirror.exists()


def test_slow_repository_leaves_slots_to_other_runs(tmp_path):
    source = SourceRepository.create(tmp_path / "source")
    source.commit(f="checked out")
    data = tmp_path / "data"
    with serving(
        data,
        runs_at_once=2,
        runners=json.dumps({"agent": {"argv": ["true"]}}),
        repositories=json.dumps({"app": {"url": str(source.directory), "factories": ["default"]}}),
    ) as service:
        with service.management() as management:
            may = operator(management)
            trigger = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "a", "cron": "@yearly"}}
            with_workspace, without = (
                automation_created(management, may, name, triggers=[trigger], runner="agent", options=options)
                for name, options in (("with", {"workspace": {"repository": "app"}}), ("without", {}))
            )

            def start(automation):
                return run_id(management.automations.start_run(may, automation.id).id)

            def state(run):
                return management.runs.get(may, run).state

            first = start(with_workspace)
            until(lambda: state(first).is_final, "the first run makes the mirror")
            [lock] = (data / "repositories").glob("*.lock")
            with lock.open("ab") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                slow = [start(with_workspace) for _ in range(4)]
                until(lambda: RunState.RUNNING in map(state, slow), "a run waits for the mirror")
                other = start(without)
                until(lambda: state(other).is_final, "the other run ends")
                meanwhile = [state(run) for run in slow]
            until(lambda: all(state(run).is_final for run in slow), "the runs get their workspaces")
            ended = [management.runs.get(may, run) for run in (first, other, *slow)]

    assert sorted(meanwhile) == [RunState.QUEUED] * 3 + [RunState.RUNNING]
    assert {(run.state, run.attempt) for run in ended} == {(RunState.SUCCEEDED, 1)}
    assert '"level": "error"' not in service.log()


# Credentials


def store_secret(backlog: Backlog, name: str, value: str):
    backlog.webhook()
    with backlog.database.write() as tx:
        bind_master_key(tx, KEYS)
        secrets.add_secret(tx, SecretId("sec_git"), TeamId("team"), name, 1, factory=FactoryId("fac_one"))
        secrets.add_version(tx, SecretId("sec_git"), SecretValue(value), KEYS, 1)


@pytest.mark.parametrize("source", ["secret", "secret_from"])
def test_password_of_a_repository_reaches_neither_the_run_nor_a_file(scene, tmp_path, monkeypatch, source):
    scene.source.commit(f="x")
    if source == "secret":
        store_secret(scene.backlog, "GIT_TOKEN", PASSWORD)
    else:
        monkeypatch.setenv("GIT_TOKEN", PASSWORD)
    settings = CommandSettings(
        argv=("sh", "-c", 'env; cat "$HOOKMILL_WORKSPACE/.git/config"; ls "$HOOKMILL_WORKSPACE"')
    )

    with serve_over_http(scene.source.directory / ".git", password=PASSWORD) as server:
        key = scene.claimed_run({"repository": "app"})
        performer = scene.performer(settings.create_runner(RunnerContext()), url=server.url, **{source: "GIT_TOKEN"})
        performer.perform(key, 1)

    run = scene.backlog.run(key)
    assert run.state is RunState.SUCCEEDED, run.reason
    assert server.users
    output = (scene.package() / "output.log").read_text()
    assert f"HOOKMILL_WORKSPACE={scene.package()}/workspace\n" in output
    assert output.endswith("\nf\n")
    for path in tmp_path.rglob("*"):
        if path.is_file() and source in path.parts:
            assert PASSWORD.encode() not in path.read_bytes(), path
    assert PASSWORD not in output
    assert PASSWORD not in repr(scene.failures)


@pytest.mark.parametrize("value", [None, "two\nlines"])
def test_unusable_password_is_named_and_not_shown(scene, value):
    if value is not None:
        store_secret(scene.backlog, "GIT_TOKEN", value)

    run = scene.perform({"repository": "app"}, url="http://127.0.0.1:1/app.git", secret="GIT_TOKEN")

    assert "The team secret GIT_TOKEN for the repository 'app' does not exist, or has no usable value." in (
        run.reason or ""
    )
    assert "lines" not in (run.reason or "")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, ", which must contain the password of the repository 'app', is not set. Set it for every process"),
        (" ", ", which must contain the password of the repository 'app', is empty. Set it for every process"),
        ("two\nlines", " has no usable password for the repository 'app': it must be one line of at most 4,096"),
    ],
)
def test_variable_without_a_password_is_named(scene, monkeypatch, value, problem):
    monkeypatch.delenv("GIT_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("GIT_TOKEN", value)

    run = scene.perform({"repository": "app"}, url="http://127.0.0.1:1/app.git", secret_from="GIT_TOKEN")

    assert f"The variable GIT_TOKEN{problem}" in (run.reason or "")
    assert "lines" not in (run.reason or "")


# What a command gets


def package_with_workspace(directory: Path, *, has_payload: bool = True) -> Package:
    run = sample_run(options=RunOptions(workspace=Workspace(repository="app")))

    def check_out(target: Path) -> CheckoutCommits:
        (target / "src").mkdir(parents=True)
        (target / "src" / "code").write_text("x")
        (target / "outside").symlink_to("/etc/passwd")
        return CheckoutCommits(commit="0" * 40)

    return write_package(directory / "runs", run, b"{}" if has_payload else None, check_out=check_out)


def test_command_starts_in_the_package_and_can_write_to_its_workspace(tmp_path):
    package = package_with_workspace(tmp_path)
    script = 'pwd; echo changed > "$HOOKMILL_WORKSPACE/src/code"; cat workspace/src/code'
    runner = CommandSettings(argv=("sh", "-c", script)).create_runner(RunnerContext())

    result = runner.run(package, always_continue)

    assert isinstance(result, Ended)
    assert result.output_tail == f"{package.directory}\nchanged\n"


def test_workspace_belongs_to_the_user_of_the_runner():
    directory = Path(tempfile.mkdtemp(prefix="hookmill-"))
    try:
        directory.chmod(0o711)
        package = package_with_workspace(directory)
        package.directory.parent.chmod(0o711)
        script = 'id -un; touch "$HOOKMILL_WORKSPACE/src/new"; stat -c %U "$HOOKMILL_WORKSPACE/src/code" workspace'
        user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        runner = CommandSettings(argv=("sh", "-c", script), user=user).create_runner(RunnerContext())
        owner_outside = Path("/etc/passwd").stat().st_uid

        result = runner.run(package, always_continue)

        assert isinstance(result, Ended)
        assert (result.state, result.output_tail) == (RunState.SUCCEEDED, f"{user}\n{user}\n{user}\n")
        assert Path("/etc/passwd").stat().st_uid == owner_outside
    finally:
        shutil.rmtree(directory)


AGENT = """
import json, os, sys
print(json.dumps({"type": "result", "result": json.dumps([os.getcwd(), sys.argv[1:], sys.stdin.read()[:6]])}))
"""


@pytest.fixture
def agent_program(tmp_path):
    path = tmp_path / "agent"
    path.write_text(f"#!/usr/bin/env python3\n{AGENT}")
    path.chmod(0o755)
    return str(path)


def test_agent_starts_in_the_workspace_and_may_read_the_package(tmp_path, agent_program):
    package = package_with_workspace(tmp_path)
    runner = AgentSettings(agent="claude", program=agent_program).create_runner(RunnerContext())

    result = runner.run(package, always_continue)

    assert isinstance(result, Ended)
    assert result.report is not None
    directory, arguments, prompt = json.loads(result.report.result or "")
    assert directory == str(package.workspace)
    assert json.loads(arguments[-1].removeprefix("--settings=")) == {
        "permissions": {"additionalDirectories": [str(package.directory)]}
    }
    assert prompt == "Do it."


@pytest.mark.parametrize("agent", ["aider", "gemini", "goose", "opencode"])
def test_agent_that_would_execute_code_of_its_directory_starts_outside_the_workspace(tmp_path, agent):
    package = package_with_workspace(tmp_path)
    script = tmp_path / "agent"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)

    result = (
        AgentSettings(agent=agent, program=str(script)).create_runner(RunnerContext()).run(package, always_continue)
    )

    assert isinstance(result, Ended)
    assert result.output_tail == f"{package.directory}\n"


@pytest.mark.parametrize("agent", AGENT_PRESETS)
def test_arguments_of_agents_name_files_of_the_package_by_absolute_paths(tmp_path, agent):
    package = package_with_workspace(tmp_path)
    runner = AgentSettings(agent=agent).create_runner(RunnerContext())

    with_workspace = runner._argv(package)
    without = runner._argv(replace(package, commit=None))

    assert not {"prompt.md", "event-payload.json"} & {*with_workspace}
    assert [argument for argument in without if argument.startswith("--settings")] == []
    for name in {"prompt.md", "event-payload.json"} & {*without}:
        assert str(package.directory / name) in with_workspace


def test_container_mounts_the_workspace_writable(tmp_path):
    package = package_with_workspace(tmp_path)
    runner = ContainerSettings(image="agent:1", argv=("agent",)).create_runner(RunnerContext())

    arguments = runner._argv(package)
    without = runner._argv(replace(package, commit=None))

    assert f"--mount=type=bind,src={package.workspace},dst=/workspace" in arguments
    assert "--env=HOOKMILL_WORKSPACE=/workspace" in arguments
    assert not any("workspace" in argument.lower() for argument in without)


# Settings


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "https://git.example.com/team/app.git", "secret": "GIT_TOKEN"},
        {"url": "https://git.example.com:8443/app.git", "secret_from": "GIT_TOKEN", "username": "deploy"},
        {"url": "ssh://git@git.example.com:2222/app.git"},
        {"url": "git@git.example.com:team/app.git"},
        {"url": "/srv/git/app.git", "factories": ["default"]},
        {"url": "http://127.0.0.1:3000/app.git", "secret": "GIT_TOKEN"},
    ],
)
def test_repository_settings_are_accepted(settings):
    repository = RepositorySettings(**settings)

    assert "team" not in repository.summary()
    assert "/srv" not in repository.summary()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://git.example.com/app.git"}, "http is not encrypted"),
        ({"url": "https://user:pw@git.example.com/app.git"}, "without a password"),
        ({"url": "https://git.example.com/app.git?token=x"}, "without a password"),
        ({"url": "https:///app.git"}, "without a password"),
        ({"url": "ext::sh -c id"}, "visible ASCII characters"),
        ({"url": "ext::sh"}, "must be an https URL"),
        ({"url": "file:///srv/git/app.git"}, "must be an https URL"),
        ({"url": "-oProxyCommand=x:app.git"}, "must be an https URL"),
        ({"url": "ssh://-oProxyCommand=x/app.git"}, "must be an https URL"),
        ({"url": "--upload-pack=x"}, "must be an https URL"),
        ({"url": "relative/app.git"}, "must be an https URL"),
        ({"url": "/srv/git/app.git", "secret": "GIT_TOKEN"}, "only an https URL has a password"),
        ({"url": "https://git.example.com/a", "secret": "A", "secret_from": "B"}, "and not both"),
        ({"url": "https://git.example.com/a", "secret": "no-name"}, "can't name a team secret"),
        ({"url": "https://git.example.com/a", "secret_from": "HOOKMILL_MASTER_KEY"}, "must not begin with HOOKMILL_"),
        ({"url": "https://git.example.com/a", "username": "a:b"}, "username"),
    ],
)
def test_unusable_repository_settings_are_refused(settings, problem):
    with pytest.raises(ValidationError, match=problem):
        RepositorySettings(**settings)
