"""The workflows of GitHub Actions: valid, without permissions that they don't need, and only with commands of make."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.tools import errors_of, report_of

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def jobs(request):
    workflow = yaml.safe_load(request.param.read_text())
    assert workflow["permissions"] == {}
    jobs: dict[str, dict[str, Any]] = workflow["jobs"]
    return jobs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_is_valid(path):
    # YAML 1.1 reads the key `on` as true.
    workflow = {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text()).items()}

    assert errors_of(workflow, "github-workflows") == []


def test_workflows_have_no_known_weakness():
    code, output = report_of("zizmor", "--offline", "--no-progress", "--persona=pedantic", *WORKFLOWS)

    assert code == 0, output


def test_steps_run_targets_of_make_only(jobs):
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]

    for command in commands:
        words = command.removeprefix('sudo env "PATH=$PATH" ').split()
        assert words[0] == "make"
        assert set(words[1:]) <= TARGETS


def test_actions_are_pinned_by_commit(jobs):
    actions = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]

    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


def test_jobs_have_a_deadline_and_no_stored_secret(jobs):
    assert all(job["timeout-minutes"] <= 180 for job in jobs.values())
    assert "secrets." not in str(jobs)


def test_only_the_job_that_publishes_gets_an_identity():
    permissions = {
        (path.stem, name): job["permissions"]
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
    }

    assert permissions == {
        ("tests", "tests"): {"contents": "read"},
        ("release", "build"): {"contents": "read"},
        ("release", "publish"): {"id-token": "write"},
    }
