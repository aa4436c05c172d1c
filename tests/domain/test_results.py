"""Results of runs: what an automation may declare, and which repository, issue and commit a payload can select."""

import json
from typing import Any

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.filters.globs import read_glob
from hookmill.domain.results import (
    RESULTS_MAX,
    DestinationRules,
    PlannedResult,
    ResultDestinationKind,
    plan_results,
)
from hookmill.domain.run_options import RunOptions
from hookmill.domain.spec import read

COMMENT = {"kind": "github_comment", "destination": "github"}
STATUS = {"kind": "github_status", "destination": "github"}
REVIEW = {"kind": "github_review", "destination": "github"}
CHECK = {"kind": "github_check", "destination": "github"}
SHA = "a" * 39 + "1"


def rules(*patterns: str) -> dict[str, DestinationRules]:
    globs = [read_glob(pattern) for pattern in patterns]
    return {
        "github": DestinationRules(
            kind=ResultDestinationKind.GITHUB,
            repositories=tuple(glob for glob in globs if glob is not None),
            has_app=True,
        ),
        "gitea": DestinationRules(kind=ResultDestinationKind.GITEA),
        "token": DestinationRules(kind=ResultDestinationKind.GITHUB),
        "team": DestinationRules(kind=ResultDestinationKind.SLACK),
    }


def plan(declared: dict[str, Any], payload: Any, *patterns: str) -> PlannedResult:
    results = read(RunOptions, {"results": [declared]}).results
    return plan_results(results, json.dumps(payload).encode(), "review", rules(*(patterns or ("acme/*",))))[0]


def pull_request(repository: Any = "acme/shop", number: Any = 7, sha: Any = SHA) -> Any:
    return {"repository": {"full_name": repository}, "pull_request": {"number": number, "head": {"sha": sha}}}


@pytest.mark.parametrize(
    "declared",
    [
        COMMENT,
        {**COMMENT, "repository": "/repo", "number": "/n"},
        {**COMMENT, "update": False},
        {**REVIEW, "number": "/n", "commit": "/sha"},
        {**STATUS, "context": "ci/review", "commit": "/sha"},
        {**CHECK, "context": "ci/review", "repository": "/repo", "commit": "/sha"},
        {"kind": "slack", "destination": "team"},
        {"kind": "webhook", "destination": "ci-1"},
    ],
)
def test_declared_results_are_read_and_written(declared: dict[str, Any]):
    (result,) = read(RunOptions, {"results": [declared]}).results

    assert result.as_json() == declared


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({}, "/results"),
        (["slack"], "/results/0"),
        ([COMMENT, COMMENT], "/results"),
        ([{**COMMENT, "context": f"{n}"} for n in range(RESULTS_MAX + 1)], "/results"),
        ([{"destination": "x"}], "/results/0/kind"),
        ([COMMENT, {"kind": "mail", "destination": "x"}], "/results/1/kind"),
        ([{"kind": ["slack"], "destination": "x"}], "/results/0/kind"),
        ([{"kind": "slack"}], "/results/0/destination"),
        ([{"kind": "slack", "destination": "https://evil.example"}], "/results/0/destination"),
        ([{"kind": "slack", "destination": "team", "url": "https://evil.example"}], "/results/0/url"),
        ([{**COMMENT, "commit": "/sha"}], "/results/0/commit"),
        ([{**COMMENT, "update": "no"}], "/results/0/update"),
        ([{**STATUS, "update": False}], "/results/0/update"),
        ([COMMENT, {**COMMENT, "update": True}], "/results"),
        ([{**COMMENT, "number": "pr"}], "/results/0/number"),
        ([{**STATUS, "context": "a\nb"}], "/results/0/context"),
        ([{**CHECK, "context": ""}], "/results/0/context"),
        ([{**CHECK, "number": "/n"}], "/results/0/number"),
        ([{**STATUS, "context": "x" * 101}], "/results/0/context"),
    ],
)
def test_unusable_results_are_refused(source, place):
    with pytest.raises(Invalid) as caught:
        read(RunOptions, {"results": source})

    assert [fault.pointer for fault in caught.value.faults] == [place]


@pytest.mark.parametrize(
    ("declared", "payload", "target"),
    [
        (COMMENT, pull_request(), "acme/shop#7"),
        (COMMENT, {"repository": {"full_name": "Acme/shop.js"}, "issue": {"number": 1}}, "Acme/shop.js#1"),
        ({**COMMENT, "repository": "/r", "number": "/n/0"}, {"r": "acme/x", "n": [3]}, "acme/x#3"),
        (STATUS, pull_request(), f"acme/shop@{SHA[:12]} hookmill/review"),
        (CHECK, pull_request(), f"acme/shop@{SHA[:12]} hookmill/review"),
        (
            {**STATUS, "context": "ci"},
            {**pull_request(), "pull_request": None, "after": SHA},
            f"acme/shop@{SHA[:12]} ci",
        ),
        ({"kind": "slack", "destination": "team"}, {}, ""),
    ],
)
def test_payload_selects_the_target(declared, payload, target):
    planned = plan(declared, payload)

    assert (planned.refusal, planned.target.text()) == (None, target)


@pytest.mark.parametrize("name", ["merge_group", "check_suite", "check_run", "workflow_run", "workflow_job"])
def test_commit_of_events_without_a_pull_request_is_found(name):
    planned = plan(STATUS, {"repository": {"full_name": "acme/shop"}, name: {"head_sha": SHA}})

    assert (planned.refusal, planned.target.commit) == (None, SHA)


def test_commit_of_a_repository_with_sha_256_is_accepted():
    planned = plan(STATUS, pull_request(sha="a" * 63 + "1"))

    assert (planned.refusal, planned.target.commit) == (None, "a" * 63 + "1")


def test_review_of_an_event_without_a_commit_is_of_the_newest_one():
    payload = {"repository": {"full_name": "acme/shop"}, "issue": {"number": 1}, "comment": {"body": "/review"}}
    planned = plan(REVIEW, payload)

    assert (planned.refusal, planned.target.text(), planned.target.commit) == (None, "acme/shop#1", None)
    assert plan({**REVIEW, "commit": "/nothing"}, payload).refusal is not None


@pytest.mark.parametrize(
    "repository",
    [
        "evil/shop", "acme-evil/shop", "acme", "acme/", "/shop", "acme/shop/../other", "acme/..", "acme/.",
        "../acme/shop",
        "acme/shop?x=1", "acme/shop#1", "acme/%2e%2e", "acme/shop\r\nX: 1", "acme/shop\n", "acme/ shop", "аcme/shop",
        "acme/shop@evil.example", "https://evil.example/acme/shop", "acme\\shop", "acme/" + "x" * 101, "", 7, None,
        ["acme/shop"], {"name": "acme/shop"},
    ],
)  # fmt: skip
def test_payload_cannot_choose_a_repository_that_is_not_allowed(repository):
    planned = plan(COMMENT, pull_request(repository))

    assert planned.refusal is not None
    assert planned.target.text() in ("", f"{repository}#7")
    assert "\n" not in planned.refusal


@pytest.mark.parametrize("number", [0, -1, 1.5, "7", "7/../../other", True, 2**53, None, [7]])
def test_payload_cannot_choose_another_path_by_the_number(number):
    refusal = plan(COMMENT, pull_request(number=number)).refusal

    assert refusal is not None
    assert refusal.endswith("where it must have the number of an issue or a pull request.")


@pytest.mark.parametrize(
    "sha",
    [
        "a" * 39,
        "a" * 41,
        "a" * 63,
        "a" * 65,
        "0" * 64,
        "A" * 40,
        "0" * 40,
        f"{'a' * 38}/.",
        "HEAD",
        "a" * 40 + "\n",
        7,
        None,
    ],
)
def test_payload_cannot_choose_another_path_by_the_commit(sha):
    assert plan(STATUS, pull_request(sha=sha)).refusal is not None
    assert plan(CHECK, pull_request(sha=sha)).refusal is not None


def test_run_without_a_payload_has_no_target():
    (planned,) = plan_results(read(RunOptions, {"results": [COMMENT]}).results, None, "review", rules("acme/*"))

    assert planned.refusal == (
        "The payload has no value at /repository/full_name, where it must have a repository such as owner/name."
    )


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"kind": "github_comment", "destination": "gone"}, "The settings have no destination 'gone' that"),
        ({"kind": "github_comment", "destination": "team"}, "is of the kind slack, which gets no github_comment."),
        ({"kind": "github_check", "destination": "gitea"}, "is of the kind gitea, which gets no github_check."),
        ({"kind": "github_check", "destination": "token"}, "GitHub lets only apps write check runs. Set app_id and"),
    ],
)
def test_result_for_an_unusable_destination_is_refused(declared, problem):
    refusal = plan(declared, pull_request()).refusal

    assert refusal is not None
    assert problem in refusal
