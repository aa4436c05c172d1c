"""The requests to GitHub fit the description of its API that GitHub publishes."""

from typing import Any, Final

import jsonschema
import pytest

from hookmill.domain.check_run import check_run_body
from hookmill.domain.github_app import PERMISSIONS, permissions_to_request
from hookmill.domain.result_text import RunResult, comment_body, status_body
from hookmill.domain.run import RunState
from tests.domain.test_result_text import result
from tests.support.github_api import github_description

COMMENTS: Final = "/repos/{owner}/{repo}/issues/{issue_number}/comments"
STATUSES: Final = "/repos/{owner}/{repo}/statuses/{sha}"
CHECK_RUNS: Final = "/repos/{owner}/{repo}/check-runs"
CHECK_RUN: Final = "/repos/{owner}/{repo}/check-runs/{check_run_id}"
CHECK_RUNS_OF_COMMIT: Final = "/repos/{owner}/{repo}/commits/{ref}/check-runs"
TOKENS: Final = "/app/installations/{installation_id}/access_tokens"
INSTALLATION: Final = "/repos/{owner}/{repo}/installation"
ANNOTATIONS: Final = '[{"path": "a.py", "start_line": 1, "annotation_level": "notice", "message": "x", "title": "y"}]'


@pytest.fixture(scope="module")
def published():
    return github_description()


def body_schema(paths: Any, path: str, method: str = "post") -> Any:
    """The schema of the body of a request, which refuses unknown fields."""
    schema = paths[path][method]["requestBody"]["content"]["application/json"]["schema"]
    for each in schema["properties"].values():
        if each.pop("nullable", False):
            each["type"] = [each["type"], "null"]
    return schema | {"additionalProperties": False}


@pytest.mark.proof
def test_requests_fit_the_published_description_of_github(published):
    paths = published["paths"]
    statuses, comments = body_schema(paths, STATUSES), body_schema(paths, COMMENTS)

    jsonschema.validate(status_body(result(RunState.RUNNING, has_ended=False), "ci"), statuses)
    for state in RunState:
        jsonschema.validate(status_body(result(state), "ci"), statuses)
    jsonschema.validate({"body": comment_body(result(summary="# Done"))}, comments)
    names = [each["$ref"].rpartition("/")[2] for each in paths[COMMENTS]["get"]["parameters"]]
    assert {"since", "per-page", "page"} <= set(names)


def check_run(of: RunResult) -> dict[str, Any]:
    return check_run_body(of, name="ci", commit="a" * 40, started_at=of.at, details_url=of.url)


@pytest.mark.proof
def test_check_runs_fit_the_published_description_of_github(published):
    paths = published["paths"]
    create, change = body_schema(paths, CHECK_RUNS), body_schema(paths, CHECK_RUN, "patch")
    for schema in (create, change):
        schema["properties"]["output"]["additionalProperties"] = False
        schema["properties"]["output"]["properties"]["annotations"]["items"]["additionalProperties"] = False

    bodies = [check_run(result(RunState.RUNNING, has_ended=False))]
    bodies += [check_run(result(state, summary="# Done", annotations=ANNOTATIONS)) for state in RunState]
    for body in bodies:
        jsonschema.validate(body, create)
        jsonschema.validate({name: value for name, value in body.items() if name != "head_sha"}, change)
    assert len(bodies[-1]["output"]["annotations"]) == 1
    parameters = paths[CHECK_RUNS_OF_COMMIT]["get"]["parameters"]
    names = {each.get("name") or each["$ref"].rpartition("/")[2] for each in parameters}
    assert {"check-name", "filter", "per-page", "page"} <= names


@pytest.mark.proof
def test_requests_for_tokens_fit_the_published_description_of_github(published):
    schemas = published["components"]["schemas"]
    tokens = body_schema(published["paths"], TOKENS)
    permissions = tokens["properties"].pop("permissions")["$ref"].rpartition("/")[2]
    tokens["properties"]["permissions"] = schemas[permissions] | {"additionalProperties": False}

    for kind, names in PERMISSIONS.items():
        requested = permissions_to_request(kind, dict.fromkeys(names, "write"))
        assert set(requested) == set(names)
        jsonschema.validate({"repositories": ["shop"], "permissions": requested}, tokens)
    assert {"id", "app_id", "app_slug", "permissions"} <= set(schemas["installation"]["required"])
    assert {"token", "expires_at"} <= set(schemas["installation-token"]["required"])
    assert {"id", "external_id", "app"} <= set(schemas["check-run"]["required"])
    assert {"permissions", "installations_count"} <= set(schemas["integration"]["properties"])
    assert "get" in published["paths"][INSTALLATION]
