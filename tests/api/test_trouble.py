"""When something is wrong here: told in one shape, without a word of what lies behind it."""

import json
from pathlib import Path

import pytest

from hookmill.domain.errors import DiskFull, Revoked, StoreUnavailable
from hookmill.web.api import problems
from hookmill.web.api.problems import ERROR_CODES, RETRY_SECONDS
from tests.api.client import Api, Stocked

WEBHOOKS = "/factories/default/webhooks"
WEBHOOK = f"{WEBHOOKS}/wh_000"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", WEBHOOK, 404, "not_found"),
        ("PUT", "/me", 405, "method_not_allowed"),
        ("GET", f"{WEBHOOKS}?limit=x", 422, "invalid"),
        ("POST", WEBHOOKS, 415, "unsupported_media_type"),
        ("GET", "/members", 403, "forbidden"),
    ],
)
def test_every_refusal_has_the_same_shape(shared_api: Api, method, path, status, code):
    answer = shared_api.ask(method, path)

    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    told = answer.json
    assert set(told) == {"type", "title", "status", "code", "detail", "errors"}
    assert (told["type"], told["status"], told["code"]) == ("about:blank", status, code)
    assert (told["title"], ERROR_CODES[code].status) == (ERROR_CODES[code].title, status)


def test_a_conflict_says_what_is_in_the_way(api: Api):
    api.post(WEBHOOKS, {"name": "taken"})

    answer = api.post(WEBHOOKS, {"name": "taken"})

    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert "taken" in answer.json["detail"]


def test_an_unforeseen_fault_is_answered_without_details(api: Api, monkeypatch: pytest.MonkeyPatch):
    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError("/a/path/of/ours with a secret")

    monkeypatch.setattr(api.management.webhooks, "all", break_down)

    answer = api.get(WEBHOOKS)

    assert (answer.status, answer.json["code"]) == (500, "internal_error")
    assert "RuntimeError" not in answer.body.decode()
    assert "path" not in answer.body.decode()
    assert [(where, type(error)) for where, error in api.unforeseen] == [("api", RuntimeError)]
    api.unforeseen.clear()


def test_a_store_that_does_not_answer_is_503_with_retry_after(api: Api, stocked: Stocked):
    path = api.world.database.path
    assert path is not None
    api.world.database.discard_connections()
    hidden = path.rename(path.with_suffix(".away"))
    Path(path).mkdir()

    answer = api.get(WEBHOOKS)
    Path(path).rmdir()
    hidden.rename(path)

    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == str(RETRY_SECONDS)
    assert str(path.parent) not in json.dumps(answer.json)
    assert {type(error) for _, error in api.unforeseen} == {StoreUnavailable}
    assert api.get(WEBHOOKS).status == 200
    api.unforeseen.clear()


def test_nearly_full_disk_refuses_only_what_adds(api: Api, stocked: Stocked):
    factory = "/factories/default"
    webhook, automation = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}", f"{factory}/automations/{stocked.automation.id}"
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [stocked.webhook.webhook.uid]}}
    lines = len(api.management.audit.of_team(api.team, limit=1_000))
    api.world.has_room = False

    refused = [
        api.post(WEBHOOKS, {"name": "new"}, headers={"Idempotency-Key": "once"}),
        api.patch(webhook, {"name": "renamed", "enabled": False}),
        api.post(f"{factory}/automations", {"name": "new", "prompt": "Look.", "triggers": [trigger]}),
        api.patch(automation, {"prompt": "Else.", "enabled": False}),
        api.post(f"{automation}/runs"),
        api.post(f"{factory}/secrets", {"name": "NEW"}),
        api.post(f"{factory}/deliveries/{stocked.delivery}/replay"),
        api.post("/factories", {"name": "new"}, key=api.admin),
        api.post("/members", {"email": "new@example.com", "name": "New"}, key=api.admin),
        api.post("/keys", {"name": "new", "role": "admin"}, key=api.admin),
    ]
    lines_of_refused = len(api.management.audit.of_team(api.team, limit=1_000)) - lines
    done = [
        api.get(WEBHOOKS),
        api.post(f"{webhook}/rotate", headers={"Idempotency-Key": "another"}),
        api.patch(webhook, {"enabled": False}),
        api.patch(automation, {"enabled": False}),
        api.post(f"{factory}/runs/{stocked.run}/cancel"),
        api.delete(automation),
        api.delete(webhook),
        api.delete(f"{factory}/secrets/{stocked.secret_name}"),
        api.delete(f"/keys/{stocked.key}", key=api.admin),
        api.delete(f"/members/{stocked.member}", key=api.admin),
    ]

    assert {(answer.status, answer.json["code"]) for answer in refused} == {(503, "unavailable")}
    assert {answer.json["detail"] for answer in refused} == {
        "The disk of the data directory is almost full, so nothing was changed. Free disk space, or lower "
        "free_space_min_mb, and then retry. You can still delete, disable, rotate and cancel."
    }
    assert {answer.headers["retry-after"] for answer in refused} == {str(RETRY_SECONDS)}
    assert lines_of_refused == 0
    assert {answer.status for answer in done} <= {200, 204}
    assert {type(error) for _, error in api.unforeseen} == {DiskFull}
    api.unforeseen.clear()


def test_full_disk_is_reported_and_no_part_of_a_change_is_made(api: Api, stocked: Stocked):
    webhook = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    automation = f"/factories/default/automations/{stocked.automation.id}"
    before = api.get(automation).body
    with api.world.database.write() as tx:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")

    answer = api.patch(automation, {"prompt": "Look." * 10_000, "enabled": False})

    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert answer.json["detail"] == (
        "The database can't be changed, because its disk is full. Free disk space, and then retry."
    )
    assert api.get(automation).body == before
    assert api.patch(webhook, {"enabled": False}).status == 200
    assert {type(error) for _, error in api.unforeseen} == {DiskFull}
    api.unforeseen.clear()


def test_each_fault_is_logged(api: Api, monkeypatch: pytest.MonkeyPatch):
    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(api.management.webhooks, "all", break_down)
    for _ in range(3):
        api.get(WEBHOOKS)

    assert len(api.unforeseen) == 3
    api.unforeseen.clear()


def test_a_revoked_key_is_answered_like_a_missing_one():
    answer = problems.error_response(problems.api_error_for(Revoked("This API key was revoked. Nothing was done.")))

    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert json.loads(bytes(answer.body))["code"] == "authentication_failed"


def test_a_factory_of_files_refuses_changes_to_definitions_only(api: Api, stocked: Stocked):
    api.management.factories.define_by_files(api.world.may)
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"

    refused = [
        api.post(WEBHOOKS, {"name": "new"}),
        api.patch(path, {"name": "renamed"}),
        api.delete(path),
        api.delete(f"/factories/default/automations/{stocked.automation.id}"),
    ]
    done = [api.patch(path, {"enabled": False}), api.post(f"{path}/rotate"), api.post(f"{path}/sync")]

    assert {(answer.status, answer.json["code"]) for answer in refused} == {(409, "conflict")}
    assert {answer.status for answer in done} == {200}
    assert api.get("/factories/default").json["defined_by_files"] is True


def test_part_of_a_change_is_not_kept_when_the_rest_is_refused(api: Api, stocked: Stocked):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    before = api.get(path).body

    answer = api.patch(path, {"name": "renamed", "delivery_id_header": "Authorization"})

    assert answer.status == 422
    assert api.get(path).body == before


def test_the_last_admin_of_the_team_stays(api: Api):
    only = api.post("/members", {"email": "only@example.com", "name": "Only", "is_admin": True}, key=api.admin).json

    for answer in (
        api.delete(f"/members/{only['member_id']}", key=api.admin),
        api.patch(f"/members/{only['member_id']}", {"is_admin": False}, key=api.admin),
    ):
        assert (answer.status, answer.json["code"]) == (409, "conflict")


def test_roles_are_given_and_taken(api: Api, stocked: Stocked):
    path = f"/members/{stocked.member}/roles/default"

    given = api.put(path, {"role": "manager"}, key=api.admin)
    taken = api.delete(path, key=api.admin)
    too_high = api.put(path, {"role": "admin"}, key=api.admin)
    nowhere = api.put(f"/members/{stocked.member}/roles/nowhere", {"role": "viewer"}, key=api.admin)

    assert (given.json["roles"], taken.json["roles"]) == ({"default": "manager"}, {})
    assert (too_high.status, too_high.json["errors"][0]["pointer"]) == (422, "/role")
    assert nowhere.status == 404
