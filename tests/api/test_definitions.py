"""Definition files through the API: planned, applied and exported by a manager's key."""

from decimal import Decimal
from typing import Any

import pytest

from tests.api.client import Api
from tests.support.automations import automation_created
from tests.support.service import Answer
from tests.support.triggers import received

DEFINITIONS = "/factories/default/definitions"
FILES = {"webhooks/repo.yaml": "secretName: REPO_SECRET\n"}


@pytest.fixture
def api_with_secret(each_api: Api) -> Api:
    each_api.request("POST", "/factories/default/secrets", {"name": "REPO_SECRET"})
    return each_api


def apply(api: Api, files: dict[str, str], **options: Any) -> Answer:
    return api.request("POST", f"{DEFINITIONS}/apply", {"files": files, **options})


def plan(api: Api, files: dict[str, str]) -> Any:
    answer = api.request("POST", f"{DEFINITIONS}/plan", {"files": files})
    assert answer.status == 200, answer.body
    return answer.json


def test_files_are_planned_applied_and_exported(api_with_secret):
    planned = plan(api_with_secret, FILES)
    applied = apply(api_with_secret, FILES, expected_digest=planned["digest"])

    assert (planned["applied"], planned["changes"], planned["takes_over"]) == (False, True, True)
    assert planned["lines"][-1] == "+ webhook repo: authMode token, secretName REPO_SECRET"
    assert applied.json == planned | {"applied": True, "webhooks": applied.json["webhooks"]}
    assert [webhook["name"] for webhook in applied.json["webhooks"]] == ["repo"]
    assert plan(api_with_secret, FILES)["changes"] is False
    exported = api_with_secret.request("GET", DEFINITIONS).json["files"]
    assert plan(api_with_secret, exported)["changes"] is False
    entry = api_with_secret.request("GET", "/factories/default/audit-log").json["items"][0]
    assert (entry["channel"], entry["actor"]["kind"]) == ("files", "key")


def test_plan_finds_what_was_changed_since_the_apply(api_with_secret):
    uid = apply(api_with_secret, FILES).json["webhooks"][0]["uid"]
    api_with_secret.request("PATCH", f"/factories/default/webhooks/{uid}", {"enabled": False})

    enabled = {"webhooks/repo.yaml": f"{FILES['webhooks/repo.yaml']}enabled: true\n"}

    assert plan(api_with_secret, enabled)["lines"] == ["~ webhook repo: enable"]


def test_plan_has_the_exact_numbers_of_filters(api_with_secret):
    management = api_with_secret.management
    may = management.access.operator("default")
    uid = management.webhooks.create(may, {"name": "repo"}).webhook.uid
    trigger = received(uid, payload={"price": [Decimal("0.12345678901234567890123")]})
    automation_created(management, may, "a", triggers=[trigger])
    trigger_text = "{provider: webhook, event: received, filter: {webhook_ids: ['webhook:repo']}}"
    text = f"---\ntriggers: [{trigger_text}]\n---\nLook.\n"

    answer = api_with_secret.request(
        "POST", f"{DEFINITIONS}/plan", {"files": FILES | {"automations/a/automation.md": text}}
    )

    assert b"[0.12345678901234567890123]" in answer.body


def test_problems_have_their_place(api_with_secret):
    files = {"webhooks/Repo.yaml": "", "webhooks/repo.yaml": "secretName: REPO_SECRET\nauthMode: none\n"}

    refused = [api_with_secret.request("POST", f"{DEFINITIONS}/{act}", {"files": files}) for act in ("plan", "apply")]

    for answer in refused:
        assert (answer.status, answer.json["code"]) == (422, "invalid")
        places = [(error["file"], error["line"], error["column"]) for error in answer.json["errors"]]
        assert places == [("webhooks/Repo.yaml", 1, 1), ("webhooks/repo.yaml", 2, 11)]
    assert api_with_secret.request("GET", "/factories/default/webhooks").json["items"] == []


def test_webhook_without_a_file_is_deleted_only_with_consent(api_with_secret):
    apply(api_with_secret, FILES)

    assert plan(api_with_secret, {})["needs_consent"] is not None
    assert apply(api_with_secret, {}).json["code"] == "consent_required"
    assert apply(api_with_secret, {}, allow_deletions=True).json["webhooks"] == []


def test_plan_of_another_state_is_not_applied(api_with_secret):
    planned = plan(api_with_secret, FILES)
    apply(api_with_secret, FILES)

    answer = apply(api_with_secret, FILES, expected_digest=planned["digest"])

    assert (answer.status, answer.json["code"]) == (412, "changed")
