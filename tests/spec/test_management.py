"""The dashboard and the HTTP API manage webhooks, and show their deliveries."""

import html
import re

import pytest

from tests.api.client import Api
from tests.dashboard.client import Dashboard
from tests.spec import shows
from tests.support.world import World


@pytest.fixture
def signed_in_admin(world):
    """An admin of the team, signed in to the dashboard."""
    return Dashboard(world).member("ada@example.com", is_admin=True, name="Ada")


@shows("MANAGE-2")
def test_dashboard_manages_a_webhook_and_shows_its_deliveries(world, signed_in_admin):
    form = {"/name": "source", "/auth_mode": "token", "secret_from": "generate"}
    created = signed_in_admin.post("/f/default/webhooks/new", form)
    [webhook] = world.management.webhooks.all(world.may)
    page = f"/f/default/webhooks/{webhook.uid}"
    first_secret = secret_in(created.body)

    accepted = status_of_post(world, webhook.uid, first_secret)
    signed_in_admin.post(f"{page}/disable")
    disabled = status_of_post(world, webhook.uid, first_secret)
    signed_in_admin.post(f"{page}/enable")
    enabled = status_of_post(world, webhook.uid, first_secret)
    log = signed_in_admin.get("/f/default/deliveries").body.decode()
    second_secret = secret_in(signed_in_admin.post(f"{page}/rotate", {"secret_from": "generate"}).body)
    rotated = [status_of_post(world, webhook.uid, secret) for secret in (first_secret, second_secret)]
    signed_in_admin.post(f"{page}/delete")
    deleted = status_of_post(world, webhook.uid, second_secret)

    assert (accepted, disabled, enabled, rotated, deleted) == (202, 404, 202, [401, 202], 404)
    assert "one event" in log
    assert "Duplicate" in log


@shows("MANAGE-3")
def test_api_manages_a_webhook_and_lists_its_deliveries(world):
    api = Api(world)
    webhooks = "/factories/default/webhooks"

    created = api.post(webhooks, {"name": "source"}).json
    uid, first_secret = created["uid"], created["secret"]
    accepted = status_of_post(world, uid, first_secret)
    api.patch(f"{webhooks}/{uid}", {"enabled": False})
    disabled = status_of_post(world, uid, first_secret)
    api.patch(f"{webhooks}/{uid}", {"enabled": True})
    enabled = status_of_post(world, uid, first_secret)
    log = api.get("/factories/default/deliveries").json["items"]
    second_secret = api.post(f"{webhooks}/{uid}/rotate").json["secret"]
    rotated = [status_of_post(world, uid, secret) for secret in (first_secret, second_secret)]
    api.delete(f"{webhooks}/{uid}")
    deleted = status_of_post(world, uid, second_secret)

    assert (accepted, disabled, enabled, rotated, deleted) == (202, 404, 202, [401, 202], 404)
    assert sorted(row["label"] for row in log) == ["Accepted", "Duplicate"]


@shows("WEBHOOK-7")
def test_automation_editor_shows_webhooks_by_their_names(world, signed_in_admin):
    webhook = world.webhook("Pushes to the main branch")

    editor = signed_in_admin.get("/f/default/automations/new").body.decode()

    assert "Pushes to the main branch" in editor
    assert f'value="{webhook.webhook.uid}"' in editor


@shows("FILTER-8")
@pytest.mark.parametrize(
    ("payload_filter", "result"),
    [
        ('{"n": [1]}', "Would trigger Webhook check: passed. Payload check: passed."),
        ('{"n": [2]}', "Would not trigger Webhook check: passed. Payload check: failed."),
    ],
)
def test_automation_editor_tests_a_filter_on_a_stored_delivery(world, signed_in_admin, payload_filter, result):
    webhook = world.webhook()
    delivery = world.post(webhook, b'{"n": 1}').delivery_id
    form = {"do": "check", "webhook": webhook.webhook.uid, "filter": payload_filter, "delivery": delivery}

    editor = signed_in_admin.post("/f/default/automations/new", form)

    assert result in text_of(editor.body)
    assert world.management.automations.all(world.may) == []


def status_of_post(world: World, uid: str, secret: str) -> int:
    """The status of a delivery. All deliveries have the same id, so later ones are duplicates."""
    headers = {"Authorization": f"Bearer {secret}", "X-Service-Delivery-Id": "one event"}
    return int(world.request("POST", f"/webhooks/w/{uid}", headers=headers, body=b'{"n": 1}').status)


def secret_in(page: bytes) -> str:
    """The secret that the page shows after a creation or a rotation."""
    secret = re.search(r"Authorization: Bearer ([\w-]{43})", html.unescape(page.decode()))
    assert secret is not None
    return secret[1]


def text_of(page: bytes) -> str:
    """The text of the page, without tags and with single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.decode())).split())
