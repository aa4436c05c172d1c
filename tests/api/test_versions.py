"""Entity tags: whoever changes a thing can say which version of it they have seen."""

import pytest

from tests.api.client import Api, Stocked

WEBHOOKS = "/factories/default/webhooks"


def things(stocked: Stocked) -> dict[str, tuple[str, str, object]]:
    """Everything that has a tag: its path, and a change of it."""
    return {
        "webhook": (f"{WEBHOOKS}/{stocked.webhook.webhook.uid}", "PATCH", {"name": "renamed"}),
        "automation": (f"/factories/default/automations/{stocked.automation.id}", "PATCH", {"enabled": False}),
        "secret": (f"/factories/default/secrets/{stocked.secret_name}", "PUT", {"value": "another value"}),
        "member": (f"/members/{stocked.member}", "PATCH", {"is_admin": True}),
    }


@pytest.mark.parametrize("noun", ["webhook", "automation", "secret", "member"])
def test_a_change_to_an_old_version_is_refused(api: Api, stocked: Stocked, noun):
    path, method, change = things(stocked)[noun]
    seen = api.get(path, key=api.admin).headers["etag"]
    api.world.clock.advance(seconds=1)

    refused = api.ask(method, path, change, headers={"If-Match": '"of-another-time"'}, key=api.admin)
    unchanged = api.get(path, key=api.admin).headers["etag"]
    made = api.ask(method, path, change, headers={"If-Match": seen}, key=api.admin)
    late = api.ask("DELETE", path, headers={"If-Match": seen}, key=api.admin)

    assert (refused.status, made.status, late.status) == (412, 200, 412)
    assert refused.json["code"] == "changed"
    assert unchanged == seen
    assert api.get(path, key=api.admin).status == 200


@pytest.mark.parametrize("noun", ["webhook", "automation", "member"])
def test_the_answer_to_a_change_has_the_tag_of_what_it_became(api: Api, stocked: Stocked, noun):
    path, method, change = things(stocked)[noun]

    changed = api.ask(method, path, change, key=api.admin)

    assert changed.headers["etag"] == api.get(path, key=api.admin).headers["etag"]


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ("*", 200),
        ('"x", {seen}', 200),
        ('"x"', 412),
        ("W/{seen}", 412),
        ("{seen} and more", 422),
        ("unquoted", 422),
    ],
)
def test_a_condition_holds_for(api: Api, stocked: Stocked, tags, status):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    seen = api.get(path).headers["etag"]

    assert api.patch(path, {"name": "x"}, headers={"If-Match": tags.format(seen=seen)}).status == status


def test_whoever_has_it_already_is_not_sent_it_again(api: Api, stocked: Stocked):
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    first = api.get(path)

    again = api.get(path, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    api.patch(path, {"name": "renamed"})
    after_a_change = api.get(path, headers={"If-None-Match": first.headers["etag"]})

    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert (after_a_change.status, after_a_change.json["name"]) == (200, "renamed")


def test_a_condition_does_not_open_what_is_not_there(api: Api):
    assert api.patch(f"{WEBHOOKS}/wh_000", {"name": "x"}, headers={"If-Match": "*"}).status == 404
