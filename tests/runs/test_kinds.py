"""The kinds of runners: what the operator's settings create."""

from typing import Any

import pytest
from pydantic import ValidationError

from hookmill.app.worker_process import _create_runner
from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import write_package
from hookmill.runs.runner import HostFault
from hookmill.runs.runners import RUNNER_KINDS, CommandSettings, RunnerContext
from hookmill.settings import Settings
from tests.runs.samples import always_continue, sample_run

REQUIRED: dict[str, dict[str, Any]] = {
    "agent": {"agent": "claude"},
    "command": {"argv": ["x"]},
    "container": {"image": "x", "argv": ["x"]},
    "package": {},
    "http": {"url": "https://x", "secret_from": "X"},
}
"""The settings that a runner of each kind must have."""


def test_runner_without_a_kind_is_a_command(tmp_path):
    settings = Settings(runners={"agent": {"argv": ["sh", "-c", "echo done"]}})  # type: ignore[dict-item]

    runner = settings.all_runners()["agent"].create_runner(RunnerContext())
    ended = runner.run(write_package(tmp_path, sample_run(), b"{}"), always_continue)

    assert isinstance(ended, Ended)
    assert (ended.state, ended.output_tail) == (RunState.SUCCEEDED, "done\n")


def test_runner_of_the_kind_package_executes_nothing(tmp_path):
    settings = Settings(runners={"agent": {"kind": "package"}})  # type: ignore[dict-item]

    runner = settings.all_runners()["agent"].create_runner(RunnerContext())
    package = write_package(tmp_path, sample_run(), b"{}")
    ended = runner.run(package, always_continue)

    assert isinstance(ended, Ended)
    assert ended.state is RunState.SUCCEEDED
    assert not (package.directory / "output.log").exists()


def test_built_in_runner_comes_before_those_of_the_operator():
    settings = Settings(runners={"b": {"kind": "package"}, "a": {"argv": ["x"]}})  # type: ignore[dict-item]

    assert list(settings.all_runners()) == list(settings.runner_names()) == ["package", "a", "b"]


@pytest.mark.parametrize("kind", RUNNER_KINDS)
def test_every_kind_can_be_named_in_the_settings(kind):
    settings = Settings(runners={"agent": {"kind": kind, **REQUIRED[kind]}})  # type: ignore[dict-item]

    assert type(settings.runners["agent"]) is RUNNER_KINDS[kind]


def test_runner_that_cannot_be_created_makes_only_its_own_runs_wait(tmp_path):
    settings = CommandSettings(argv=("true",), user="no-such-account")

    runner = _create_runner("agent", settings, RunnerContext())
    with pytest.raises(HostFault, match="has no account 'no-such-account'") as fault:
        runner.run(write_package(tmp_path, sample_run(), b"{}"), always_continue)

    assert fault.value.runner == "agent"
    assert not fault.value.counts_as_attempt


def test_built_in_name_is_refused():
    with pytest.raises(ValidationError, match="not 'package'"):
        Settings(runners={"package": {"argv": ["x"]}})  # type: ignore[dict-item]
