"""Error answers: all have the same fields, and none reveals details of the service."""

import json

import pytest

from hookmill.domain.errors import DatabaseUnreachable, DiskFull, Revoked
from hookmill.web.api import problems
from hookmill.web.api.problems import ERROR_CODES, RETRY_SECONDS
from tests.support.triggers import received

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
def test_every_error_has_the_same_fields(shared_api, method, path, status, code):
    answer = shared_api.request(method, path)

    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem = answer.json
    assert set(problem) == {"type", "title", "status", "code", "detail", "errors"}
    assert (problem["type"], problem["status"], problem["code"]) == ("about:blank", status, code)
    assert (problem["title"], ERROR_CODES[code].status) == (ERROR_CODES[code].title, status)


def test_unexpected_error_is_answered_500_without_details(api, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("/a/path/of/ours with a secret")

    monkeypatch.setattr(api.management.webhooks, "all", fail)

    answer = api.get(WEBHOOKS)

    assert answer.problem == (500, "internal_error")
    assert "RuntimeError" not in answer.body.decode()
    assert "path" not in answer.body.decode()
    assert [(where, type(error)) for where, error in api.unexpected_errors] == [("api", RuntimeError)]
    api.unexpected_errors.clear()


def test_unavailable_store_is_answered_503_with_retry_after(api, stocked):
    path = api.world.database.path
    assert path is not None
    api.world.database.discard_connections()
    moved = path.rename(path.with_suffix(".moved"))
    path.mkdir()

    answer = api.get(WEBHOOKS)
    path.rmdir()
    moved.rename(path)

    assert answer.problem == (503, "unavailable")
    assert answer.headers["retry-after"] == str(RETRY_SECONDS)
    assert str(path.parent) not in json.dumps(answer.json)
    assert {type(error) for _, error in api.unexpected_errors} == {DatabaseUnreachable}
    assert api.get(WEBHOOKS).status == 200
    api.unexpected_errors.clear()


def test_nearly_full_disk_refuses_only_operations_that_add_data(api, stocked):
    factory = "/factories/default"
    webhook, automation = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}", f"{factory}/automations/{stocked.automation.id}"
    trigger = received(stocked.webhook.webhook.uid)
    entries_before = len(api.management.audit.of_team(api.team, limit=1_000))
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
    entries_after = len(api.management.audit.of_team(api.team, limit=1_000))
    permitted = [
        api.get(WEBHOOKS),
        api.post(f"{webhook}/rotate", headers={"Idempotency-Key": "another"}),
        api.patch(webhook, {"enabled": False}),
        api.patch(webhook, {"allowed_networks": ["192.0.2.0/24"]}),
        api.patch(automation, {"enabled": False}),
        api.post(f"{factory}/runs/{stocked.run}/cancel"),
        api.delete(automation),
        api.delete(webhook),
        api.delete(f"{factory}/secrets/{stocked.secret_name}"),
        api.delete(f"/keys/{stocked.key}", key=api.admin),
        api.delete(f"/members/{stocked.member}", key=api.admin),
    ]

    assert {answer.problem for answer in refused} == {(503, "unavailable")}
    assert {answer.json["detail"] for answer in refused} == {
        "The disk of the data directory is almost full, so nothing was changed. Free disk space, or lower "
        "free_space_min_mb, and then retry. You can still delete, disable, rotate and cancel."
    }
    assert {answer.headers["retry-after"] for answer in refused} == {str(RETRY_SECONDS)}
    assert entries_after == entries_before
    assert {answer.status for answer in permitted} <= {200, 204}
    assert {type(error) for _, error in api.unexpected_errors} == {DiskFull}
    api.unexpected_errors.clear()


def test_full_disk_is_answered_503_and_changes_nothing(api, stocked):
    webhook = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    automation = f"/factories/default/automations/{stocked.automation.id}"
    before = api.get(automation).body
    with api.world.database.write() as tx:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")

    answer = api.patch(automation, {"prompt": "Look." * 10_000, "enabled": False})

    assert answer.problem == (503, "unavailable")
    assert answer.json["detail"] == (
        "The database can't be changed, because its disk is full. Free disk space, and then retry."
    )
    assert api.get(automation).body == before
    assert api.patch(webhook, {"enabled": False}).status == 200
    assert {type(error) for _, error in api.unexpected_errors} == {DiskFull}
    api.unexpected_errors.clear()


def test_revoked_key_is_answered_like_a_missing_one():
    answer = problems.error_response(problems.api_error_for(Revoked("This API key was revoked. Nothing was done.")))

    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert json.loads(bytes(answer.body))["code"] == "authentication_failed"


def test_factory_defined_by_files_refuses_changes_of_definitions(api, stocked):
    api.management.factories.define_by_files(api.world.may)
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"

    refused = [
        api.post(WEBHOOKS, {"name": "new"}),
        api.patch(path, {"name": "renamed"}),
        api.delete(path),
        api.delete(f"/factories/default/automations/{stocked.automation.id}"),
    ]
    permitted = [api.patch(path, {"enabled": False}), api.post(f"{path}/rotate"), api.post(f"{path}/sync")]

    assert {answer.problem for answer in refused} == {(409, "conflict")}
    assert {answer.status for answer in permitted} == {200}
    assert api.get("/factories/default").json["defined_by_files"] is True


def test_roles_are_granted_and_revoked(api, stocked):
    path = f"/members/{stocked.member}/roles/default"

    granted = api.put(path, {"role": "manager"}, key=api.admin)
    revoked = api.delete(path, key=api.admin)
    invalid_role = api.put(path, {"role": "admin"}, key=api.admin)
    unknown_factory = api.put(f"/members/{stocked.member}/roles/unknown", {"role": "viewer"}, key=api.admin)

    assert (granted.json["roles"], revoked.json["roles"]) == ({"default": "manager"}, {})
    assert (invalid_role.status, invalid_role.json["errors"][0]["pointer"]) == (422, "/role")
    assert unknown_factory.status == 404
