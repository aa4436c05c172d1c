"""Run options in the API: creation, changes and errors, and the values of fields in runs."""

from typing import Any

import pytest

from hookmill.web.api.bodies import AutomationChanges
from tests.api.client import PROMPT, Api, StockedFactory

FIELDS = {"pr": "/pull_request/number", "title": {"pointer": "/pull_request/title", "max_characters": 5}}


def create(api: Api, stocked: StockedFactory, **fields: Any) -> Any:
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [stocked.webhook.webhook.uid]}}
    body = {"name": "with options", "prompt": PROMPT, "triggers": [trigger], **fields}
    return api.post("/factories/default/automations", body)


def test_new_fields_are_shown_and_listed(api: Api, stocked: StockedFactory):
    created = create(api, stocked, fields=FIELDS)
    listed = api.get("/factories/default/automations").json["items"]

    fields = {
        "pr": {"pointer": "/pull_request/number", "max_characters": 200},
        "title": {"pointer": "/pull_request/title", "max_characters": 5},
    }
    assert (created.status, created.json["fields"]) == (201, fields)
    assert [item["fields"] for item in listed if item["name"] == "with options"] == [fields]


def test_fields_are_replaced_kept_and_removed(api: Api, stocked: StockedFactory):
    path = f"/factories/default/automations/{create(api, stocked, fields=FIELDS).json['automation_id']}"

    replaced = api.patch(path, {"fields": {"action": "/action"}}).json
    unchanged = api.patch(path, {"prompt": "Another."}).json
    removed = api.patch(path, {"fields": None}).json

    assert replaced["fields"] == unchanged["fields"] == {"action": {"pointer": "/action", "max_characters": 200}}
    assert (removed["fields"], removed["version"]) == ({}, 4)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"Pr": "/a"}, "/fields"),
        ({"pr": "a"}, "/fields/pr"),
        ({"pr": {"pointer": "/a", "max_characters": 0}}, "/fields/pr/max_characters"),
        ([], "/fields"),
    ],
)
def test_invalid_field_is_refused_with_its_pointer(api: Api, stocked: StockedFactory, fields: Any, pointer: str):
    refused = create(api, stocked, fields=fields)

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer


def test_run_shows_the_values_of_its_fields(api: Api, stocked: StockedFactory):
    create(api, stocked, fields={**FIELDS, "head": "/pull_request"})

    api.world.post(stocked.webhook, b'{"pull_request": {"number": 9007199254740993, "title": "Fix <b>"}}')
    [run] = [run for run in api.get("/factories/default/runs").json["items"] if run["automation"] == "with options"]
    shown = api.get(f"/factories/default/runs/{run['run_id']}").json

    assert shown["fields"] == {
        "pr": {"type": "number", "value": 9007199254740993, "cut": False},
        "title": {"type": "string", "value": "Fix <", "cut": True},
        "head": {"type": "object", "value": None, "cut": False},
    }


def test_secrets_are_shown_replaced_kept_and_removed(api: Api, stocked: StockedFactory):
    for name in ("NPM_TOKEN", "BILLING_GH_TOKEN"):
        body = {"name": name, "value": f"canary-{name}", "for_runs": True}
        assert api.post("/factories/default/secrets", body).json["for_runs"] is True
    created = create(api, stocked, secrets=["NPM_TOKEN", "GH_TOKEN=BILLING_GH_TOKEN"])
    path = f"/factories/default/automations/{created.json['automation_id']}"
    users = api.get("/factories/default/secrets/NPM_TOKEN").json["used_by_automations"]

    replaced = api.patch(path, {"secrets": ["NPM_TOKEN"]}).json
    unchanged = api.patch(path, {"prompt": "Another."}).json
    removed = api.patch(path, {"secrets": None}).json

    assert (created.status, created.json["secrets"]) == (201, ["NPM_TOKEN", "GH_TOKEN=BILLING_GH_TOKEN"])
    assert users == ["with options"]
    assert replaced["secrets"] == unchanged["secrets"] == ["NPM_TOKEN"]
    assert (removed["secrets"], removed["version"]) == ([], 4)


@pytest.mark.parametrize(
    ("secrets", "pointer"),
    [(["a-b"], "/secrets/0"), (["GONE_TOKEN"], "/secrets/0"), (["PATH=GONE_TOKEN"], "/secrets/0"), ("A", "/secrets")],
)
def test_unusable_secret_is_refused_with_its_pointer(api: Api, stocked: StockedFactory, secrets: Any, pointer: str):
    refused = create(api, stocked, secrets=secrets)

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer


# Workspaces

REF = {"pointer": "/pull_request/head/sha"}
BASE = {"pointer": "/pull_request/base/ref"}


def test_workspace_is_shown_replaced_kept_and_removed(api: Api, stocked: StockedFactory):
    created = create(api, stocked, workspace={"repository": "app", "ref": REF, "base": "main", "depth": "full"})
    path = f"/factories/default/automations/{created.json['automation_id']}"

    replaced = api.patch(path, {"workspace": {"repository": "app", "base": BASE}}).json
    unchanged = api.patch(path, {"prompt": "Another."}).json
    removed = api.patch(path, {"workspace": None}).json

    assert (created.status, created.json["workspace"]) == (
        201,
        {
            "repository": "app",
            "ref": None,
            "ref_pointer": "/pull_request/head/sha",
            "base": "main",
            "base_pointer": None,
            "depth": 0,
        },
    )
    assert replaced["workspace"] == {
        "repository": "app",
        "ref": None,
        "ref_pointer": None,
        "base": None,
        "base_pointer": "/pull_request/base/ref",
        "depth": 1,
    }
    assert (unchanged["workspace"], unchanged["version"]) == (replaced["workspace"], 3)
    assert removed["workspace"] is None


@pytest.mark.parametrize(
    "options",
    [
        {"workspace": {"repository": "app"}},
        {"workspace": {"repository": "app", "ref": "main", "base": BASE, "depth": "full"}},
        {"workspace": {"repository": "app", "ref": REF, "base": "main", "depth": 7}},
        {
            "fields": FIELDS,
            "concurrency": {"key": "/a", "limit": 2, "when_busy": "skip"},
            "debounce": {"seconds": 3},
            "priority": "high",
            "max_running": 3,
            "pause_after_failures": 2,
        },
        {"retry": {"attempts": 3, "exit_codes": [75]}, "concurrency": {}},
        {
            "results": [
                {"kind": "github_comment", "destination": "github", "number": "/n"},
                {"kind": "github_status", "destination": "github", "context": "review"},
            ]
        },
    ],
)
def test_automation_accepts_each_field_as_the_api_shows_it(api: Api, stocked: StockedFactory, options: Any):
    created = create(api, stocked, **options).json
    path = f"/factories/default/automations/{created['automation_id']}"
    fields = {name: created[name] for name in AutomationChanges.model_fields}

    for name, value in fields.items():
        changed = api.patch(path, {name: value})
        assert (changed.status, changed.json[name]) == (200, value), name
    all_changed = api.patch(path, fields)

    assert (all_changed.status, {name: all_changed.json[name] for name in fields}) == (200, fields)
    assert all_changed.json["version"] == created["version"]


@pytest.mark.parametrize(
    ("workspace", "pointer", "problem"),
    [
        ({"repository": "app", "ref": "main", "ref_pointer": "/a"}, "/workspace/ref", "either ref or ref_pointer"),
        ({"repository": "app", "base_pointer": "a"}, "/workspace/base_pointer", "must be a JSON pointer"),
        ({"repository": "unknown"}, "/workspace/repository", "The operator allowed: app."),
        ({"repository": "elsewhere"}, "/workspace/repository", "may not use a repository 'elsewhere'"),
        ({"repository": REF}, "/workspace/repository", "can't come from the payload"),
        ({"repository": "https://git.example.com/app.git"}, "/workspace/repository", "one that the operator allows"),
        ({"repository": "app", "ref": "--upload-pack=x"}, "/workspace/ref", "has a part between slashes"),
        ({"repository": "app", "base": "--upload-pack=x"}, "/workspace/base", "has a part between slashes"),
        ({"repository": "app", "base": {"pointer": "x"}}, "/workspace/base/pointer", "The pointer of the"),
        ({"repository": "app", "depth": "all"}, "/workspace/depth", "must be full, or a whole number"),
    ],
)
def test_invalid_workspace_is_refused_with_its_pointer(
    api: Api, stocked: StockedFactory, workspace: Any, pointer: str, problem: str
):
    refused = create(api, stocked, workspace=workspace)

    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, pointer)
    assert problem in refused.json["errors"][0]["detail"]


def test_repository_that_is_no_longer_allowed_is_a_warning(api: Api, stocked: StockedFactory):
    created = create(api, stocked, workspace={"repository": "app"})
    stored = '{"workspace": {"repository": "gone"}}'
    with api.world.database.write() as tx:
        tx.run("UPDATE automation_versions SET options = :stored WHERE name = 'with options'", stored=stored)

    changed = api.patch(f"/factories/default/automations/{created.json['automation_id']}", {"prompt": "Another."})

    assert changed.status == 200
    assert changed.json["warnings"] == ["The operator allows no repository 'gone' for this factory, so its runs fail."]


RESULTS = [
    {"kind": "github_comment", "destination": "github", "number": "/n"},
    {"kind": "slack", "destination": "team"},
]


def test_results_are_shown_replaced_and_removed(api: Api, stocked: StockedFactory):
    created = create(api, stocked, results=RESULTS).json
    path = f"/factories/default/automations/{created['automation_id']}"

    replaced = api.patch(path, {"results": RESULTS[1:]}).json
    removed = api.patch(path, {"results": None}).json

    assert created["results"] == RESULTS
    assert (replaced["results"], removed["results"]) == (RESULTS[1:], [])


def test_invalid_result_is_refused_with_its_pointer(api: Api, stocked: StockedFactory):
    refused = create(api, stocked, results=[{"kind": "slack", "destination": "team", "url": "https://evil.example"}])

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == "/results/0"


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"kind": "slack", "destination": "unknown"}, "'unknown'. The operator allowed: github, team."),
        ({"kind": "slack", "destination": "elsewhere"}, "may not use a destination 'elsewhere'"),
        ({"kind": "slack", "destination": "github"}, "is of the kind github, which gets no slack"),
    ],
)
def test_result_for_an_unusable_destination_is_refused_with_its_pointer(
    api: Api, stocked: StockedFactory, result: Any, problem: str
):
    refused = create(api, stocked, results=[RESULTS[0], result])

    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/results/1/destination")
    assert problem in refused.json["errors"][0]["detail"]


def test_destination_that_is_no_longer_allowed_is_a_warning(api: Api, stocked: StockedFactory):
    path = f"/factories/default/automations/{create(api, stocked, results=RESULTS).json['automation_id']}"
    stored = '{"results": [{"kind": "slack", "destination": "gone"}]}'
    with api.world.database.write() as tx:
        tx.run("UPDATE automation_versions SET options = :stored WHERE name = 'with options'", stored=stored)

    changed = api.patch(path, {"prompt": "Another.", "results": [{"kind": "slack", "destination": "gone"}]})

    assert changed.status == 200
    assert changed.json["warnings"] == [
        "A result is not delivered: Factory 'default' may not use a destination 'gone'. The operator allowed: github, "
        "team."
    ]
