"""Run options in the API: creation, changes and errors, and the values of fields in runs."""

from typing import Any

import pytest

from hookmill.domain.automation import AutomationSpec
from tests.api.client import PROMPT, Api, StockedFactory
from tests.support.triggers import received

FIELDS = {"pr": "/pull_request/number", "title": {"pointer": "/pull_request/title", "max_characters": 5}}


def create(api: Api, stocked: StockedFactory, **fields: Any) -> Any:
    trigger = received(stocked.webhook.webhook.uid)
    body = {"name": "with options", "prompt": PROMPT, "triggers": [trigger], **fields}
    return api.post("/factories/default/automations", body)


REF = {"pointer": "/pull_request/head/sha"}
BASE = {"pointer": "/pull_request/base/ref"}
RESULTS = [
    {"kind": "github_comment", "destination": "github", "number": "/n"},
    {"kind": "slack", "destination": "team"},
]
SECRETS = ["NPM_TOKEN", "GH_TOKEN=BILLING_GH_TOKEN"]
WORKSPACE = {"repository": "app", "ref": None, "base": None, "depth": 1}


@pytest.mark.parametrize(
    ("option", "given", "shown", "other", "other_shown", "removed"),
    [
        (
            "fields",
            FIELDS,
            {
                "pr": {"pointer": "/pull_request/number", "max_characters": 200},
                "title": {"pointer": "/pull_request/title", "max_characters": 5},
            },
            {"pr": None, "title": {"max_characters": 6}},
            {"title": {"pointer": "/pull_request/title", "max_characters": 6}},
            {},
        ),
        ("secrets", SECRETS, SECRETS, SECRETS[:1], SECRETS[:1], []),
        (
            "workspace",
            {"repository": "app", "ref": REF, "base": "main", "depth": "full"},
            WORKSPACE | {"ref": REF, "base": "main", "depth": 0},
            {"ref": None, "base": BASE},
            WORKSPACE | {"base": BASE, "depth": 0},
            None,
        ),
        ("results", RESULTS, RESULTS, RESULTS[1:], RESULTS[1:], []),
        (
            "concurrency",
            {"key": "/pr", "limit": 2, "when_busy": "skip"},
            {"key": ["/pr"], "limit": 2, "when_busy": "skip"},
            {"limit": 3},
            {"key": ["/pr"], "limit": 3, "when_busy": "skip"},
            None,
        ),
        ("debounce", {"seconds": 5}, {"seconds": 5, "max_seconds": 50}, {"seconds": 6, "max_seconds": 7}, ..., None),
        ("priority", "high", "high", "low", "low", "normal"),
        ("max_running", 3, 3, 4, 4, None),
        ("pause_after_failures", 5, 5, 6, 6, None),
    ],
)
def test_option_is_shown_replaced_kept_and_removed(api, stocked, option, given, shown, other, other_shown, removed):
    for name in ("NPM_TOKEN", "BILLING_GH_TOKEN"):
        body = {"name": name, "value": f"canary-{name}", "for_runs": True}
        assert api.post("/factories/default/secrets", body).json["for_runs"] is True
    created = create(api, stocked, **{option: given}).json
    path = f"/factories/default/automations/{created['automation_id']}"

    read = api.get(path).json[option]
    listed = [item[option] for item in api.get("/factories/default/automations").json["items"] if option in item]
    replaced = api.patch(path, {option: other}).json[option]
    kept = api.patch(path, {"prompt": "Another."}).json[option]
    last = api.patch(path, {option: None}).json

    assert created[option] == read == shown
    assert shown in listed
    assert replaced == kept == (other if other_shown is ... else other_shown)
    assert (last[option], last["version"]) == (removed, 4)


@pytest.mark.parametrize(
    ("options", "pointer", "problem"),
    [
        ({"fields": {"pr": {"pointer": "/a", "max_characters": 0}}}, "/fields/pr/max_characters", "max_characters"),
        ({"secrets": ["PATH=GONE_TOKEN"]}, "/secrets/0", "PATH"),
        ({"workspace": {"repository": "app", "url": "a"}}, "/workspace/url", "Unknown field"),
        ({"workspace": {"repository": "elsewhere"}}, "/workspace/repository", "may not use a repository 'elsewhere'"),
        ({"results": [{"kind": "slack", "destination": "unknown"}]}, "/results/0/destination", "github, team."),
        ({"results": [{"kind": "slack", "destination": "github"}]}, "/results/0/destination", "which gets no slack"),
        ({"debounce": {"seconds": "5"}}, "/debounce/seconds", "whole number"),
        ({"priority": "urgent"}, "/priority", "high"),
    ],
)
def test_invalid_option_is_refused_with_its_pointer(api, stocked, options, pointer, problem):
    refused = create(api, stocked, **options)

    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, pointer)
    assert problem in refused.json["errors"][0]["detail"]


def test_run_shows_the_values_of_its_fields(api, stocked):
    create(api, stocked, fields={**FIELDS, "head": "/pull_request"})

    api.world.post(stocked.webhook, b'{"pull_request": {"number": 9007199254740993, "title": "Fix <b>"}}')
    [run] = [run for run in api.get("/factories/default/runs").json["items"] if run["automation"] == "with options"]
    shown = api.get(f"/factories/default/runs/{run['run_id']}").json

    assert shown["fields"] == {
        "pr": {"type": "number", "value": 9007199254740993, "cut": False},
        "title": {"type": "string", "value": "Fix <", "cut": True},
        "head": {"type": "object", "value": None, "cut": False},
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "workspace": {"repository": "app", "ref": REF, "base": "main", "depth": 7},
            "fields": FIELDS,
            "concurrency": {"key": "/a", "limit": 2, "when_busy": "skip"},
            "debounce": {"seconds": 3},
            "retry": {"attempts": 3, "exit_codes": [75]},
            "priority": "high",
            "max_running": 3,
            "pause_after_failures": 2,
            "results": [{"kind": "github_status", "destination": "github", "context": "review"}],
        },
    ],
)
def test_automation_accepts_each_field_as_the_api_shows_it(api, stocked, options):
    created = create(api, stocked, **options).json
    path = f"/factories/default/automations/{created['automation_id']}"
    fields = {name: created[name] for name in AutomationSpec.__struct_fields__}
    before = api.get(path)

    for name, value in fields.items():
        changed = api.patch(path, {name: value})
        assert (changed.status, changed.json[name]) == (200, value), name
    all_changed = api.patch(path, fields)

    assert (all_changed.status, all_changed.json, all_changed.headers["etag"]) == (
        200,
        before.json,
        before.headers["etag"],
    )


def test_repository_that_is_no_longer_allowed_is_a_warning(api, stocked):
    created = create(api, stocked, workspace={"repository": "app"})
    stored = '{"workspace": {"repository": "gone"}}'
    with api.world.database.write() as tx:
        tx.run("UPDATE automation_versions SET options = :stored WHERE name = 'with options'", stored=stored)

    changed = api.patch(f"/factories/default/automations/{created.json['automation_id']}", {"prompt": "Another."})

    assert changed.status == 200
    assert changed.json["warnings"] == ["The operator allows no repository 'gone' for this factory, so its runs fail."]


def test_destination_that_is_no_longer_allowed_is_a_warning(api, stocked):
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
