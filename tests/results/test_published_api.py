"""The requests to GitHub fit the description of its API that GitHub publishes."""

import fcntl
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from hookmill.domain.result_text import comment_body, status_body
from hookmill.domain.run import RunState
from tests.domain.test_result_text import result
from tests.support.debian import ProgramUnavailable

PACKAGE: Final = "@octokit/openapi@23.0.2"
DOWNLOAD_SECONDS: Final = 300
DESCRIPTION: Final = "package/generated/api.github.com.json"
COMMENTS: Final = "/repos/{owner}/{repo}/issues/{issue_number}/comments"
STATUSES: Final = "/repos/{owner}/{repo}/statuses/{sha}"


@pytest.fixture(scope="module")
def published_paths() -> Any:
    """The paths of GitHub's API. npm downloads the description into a cache first."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = caches / "hookmill-tests" / "octokit-openapi-23.0.2.json"
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_suffix(".lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            _download(cache)
    return json.loads(cache.read_bytes())["paths"]


def _download(cache: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramUnavailable(
            "The tests download GitHub's description with npm, and there is none. Install Node.js."
        )
    with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
        process = subprocess.run(
            [npm, "pack", "--silent", PACKAGE], cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
        if process.returncode != 0:
            raise ProgramUnavailable(f"npm could not download {PACKAGE}: {process.stderr.strip()[-400:]}")
        (archive,) = Path(directory).glob("*.tgz")
        with tarfile.open(archive) as files:
            member = files.extractfile(DESCRIPTION)
            assert member is not None
            content = Path(directory, "description.json")
            content.write_bytes(member.read())
        content.rename(cache)


def body_schema(paths: Any, path: str) -> Any:
    """The schema of the body of a POST request, which refuses unknown fields."""
    schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    for each in schema["properties"].values():
        if each.pop("nullable", False):
            each["type"] = [each["type"], "null"]
    return schema | {"additionalProperties": False}


@pytest.mark.proof
def test_requests_fit_the_published_description_of_github(published_paths: Any):
    statuses, comments = body_schema(published_paths, STATUSES), body_schema(published_paths, COMMENTS)

    jsonschema.validate(status_body(result(RunState.RUNNING, has_ended=False), "ci"), statuses)
    for state in RunState:
        jsonschema.validate(status_body(result(state), "ci"), statuses)
    jsonschema.validate({"body": comment_body(result(summary="# Done"))}, comments)
    names = [each["$ref"].rpartition("/")[2] for each in published_paths[COMMENTS]["get"]["parameters"]]
    assert {"since", "per-page", "page"} <= set(names)
