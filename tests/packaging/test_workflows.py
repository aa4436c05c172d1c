"""The workflows of GitHub Actions: valid, without permissions that they don't need, and only with commands of make."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.tools import errors_of, report_of

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


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
