"""Version tags (ETag): a client can make a change only if the resource has not changed since the client read it."""

import pytest

from hookmill.domain.webhook import WebhookSpec
from tests.api.client import StockedFactory

WEBHOOKS = "/factories/default/webhooks"


def changes_of(stocked: StockedFactory) -> dict[str, tuple[str, str, object]]:
    """A change of each kind of resource that has a version tag: the path, the method and the body."""
    return {
        "webhook": (f"{WEBHOOKS}/{stocked.webhook.webhook.uid}", "PATCH", {"name": "renamed"}),
        "automation": (f"/factories/default/automations/{stocked.automation.id}", "PATCH", {"enabled": False}),
        "secret": (f"/factories/default/secrets/{stocked.secret_name}", "PUT", {"value": "another value"}),
        "member": (f"/members/{stocked.member}", "PATCH", {"is_admin": True}),
    }


@pytest.mark.parametrize("noun", ["webhook", "automation", "secret", "member"])
def test_change_with_an_old_version_tag_is_refused(api, stocked, noun):
    path, method, change = changes_of(stocked)[noun]
    etag = api.get(path, key=api.admin).headers["etag"]
    api.world.clock.advance(seconds=1)

    refused = api.request(method, path, change, headers={"If-Match": '"another-version"'}, key=api.admin)
    etag_after_refusal = api.get(path, key=api.admin).headers["etag"]
    changed = api.request(method, path, change, headers={"If-Match": etag}, key=api.admin)
    late = api.request("DELETE", path, headers={"If-Match": etag}, key=api.admin)

    assert (refused.status, changed.status, late.status) == (412, 200, 412)
    assert refused.json["code"] == "changed"
    assert etag_after_refusal == etag
    assert api.get(path, key=api.admin).status == 200


@pytest.mark.parametrize("noun", ["webhook", "automation", "member"])
def test_answer_to_a_change_has_the_new_version_tag(api, stocked, noun):
    path, method, change = changes_of(stocked)[noun]

    changed = api.request(method, path, change, key=api.admin)

    assert changed.headers["etag"] == api.get(path, key=api.admin).headers["etag"]


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ("*", 200),
        ('"x", {etag}', 200),
        ('"x"', 412),
        ("W/{etag}", 412),
        ("{etag} and more", 422),
        ("unquoted", 422),
    ],
)
def test_if_match_is_evaluated_as_in_http(api, stocked, tags, status):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    etag = api.get(path).headers["etag"]

    assert api.patch(path, {"name": "x"}, headers={"If-Match": tags.format(etag=etag)}).status == status


def test_unchanged_resource_is_answered_304(api, stocked):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    first = api.get(path)

    unchanged = api.get(path, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    api.patch(path, {"name": "renamed"})
    changed = api.get(path, headers={"If-None-Match": first.headers["etag"]})

    assert (unchanged.status, unchanged.body) == (304, b"")
    assert unchanged.headers["etag"] == first.headers["etag"]
    assert (changed.status, changed.json["name"]) == (200, "renamed")


def test_if_match_does_not_create_an_unknown_resource(api):
    assert api.patch(f"{WEBHOOKS}/wh_000", {"name": "x"}, headers={"If-Match": "*"}).status == 404


def test_patch_with_the_fields_of_a_webhook_changes_nothing(api):
    fields = {
        "name": "orders",
        "auth_mode": "signature",
        "signature_scheme": "hmac",
        "signature_options": {"header": "X-Signature"},
        "delivery_id_header": "X-Id",
        "event_header": "X-Kind",
        "allowed_networks": ["192.0.2.0/24"],
        "expect_every": "90m",
        "enabled": False,
    }
    path = f"{WEBHOOKS}/{api.post(WEBHOOKS, fields).json['uid']}"
    before = api.get(path)
    entries = api.get("/factories/default/audit-log").json

    patched = api.patch(path, {name: before.json[name] for name in WebhookSpec.__struct_fields__})

    assert (patched.status, patched.json, patched.headers["etag"]) == (200, before.json, before.headers["etag"])
    assert api.get("/factories/default/audit-log").json == entries


def test_patch_changes_the_authentication_of_a_webhook(api):
    created = api.post(
        WEBHOOKS, {"name": "orders", "auth_mode": "signature", "signature_scheme": "standard_webhooks"}
    ).json
    path = f"{WEBHOOKS}/{created['uid']}"

    refused = api.patch(path, {"auth_mode": "token"})
    changed = api.patch(path, {"auth_mode": "token", "signature_scheme": None}).json

    assert [error["pointer"] for error in refused.json["errors"]] == ["/signature_scheme"]
    assert (changed["auth_mode"], changed["signature_scheme"]) == ("token", None)
    assert api.get("/factories/default/audit-log").json["items"][0]["details"] == {
        "auth_mode": "token",
        "signature_scheme": None,
        "before": {"auth_mode": "signature", "signature_scheme": "standard_webhooks"},
    }
