"""What the contract says of the dashboard: what is managed there, and what is shown where."""

import html
import re

import pytest

from tests.dashboard.client import Dashboard, Visitor
from tests.spec import spec


@pytest.fixture
def admin(world) -> Visitor:
    return Dashboard(world).member("ada@example.com", is_admin=True, name="Ada")


@spec("is performed in a dashboard and through definition files")
def test_a_webhook_is_created_toggled_rotated_and_its_log_read_in_the_dashboard(world, admin):
    created = admin.post("/f/default/webhooks/new", {"name": "source", "mode": "token", "secret_from": "generate"})
    [webhook] = world.management.webhooks.all(world.may)
    page = f"/f/default/webhooks/{webhook.uid}"
    shown = html.unescape(created.body.decode())
    secret = re.search(r"Authorization: Bearer ([\w-]{43})", shown)
    assert secret is not None

    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}", "X-Service-Delivery-Id": "one event"}
        return int(world.request("POST", f"/webhooks/w/{webhook.uid}", headers=headers, body=b'{"n": 1}').status)

    accepted = status(secret[1])
    admin.post(f"{page}/disable")
    disabled = status(secret[1])
    admin.post(f"{page}/enable")
    enabled = status(secret[1])
    log = admin.get("/f/default/deliveries").body.decode()
    admin.post(f"{page}/rotate", {"secret_from": "generate"})
    rotated = status(secret[1])

    assert (accepted, disabled, enabled, rotated) == (202, 404, 202, 401)
    assert "one event" in log
    assert "Duplicate" in log


@spec("name: Label shown in the automation editor.")
def test_the_automation_editor_shows_webhooks_by_their_names(world, admin):
    made = world.webhook("Pushes to the main branch")

    editor = admin.get("/f/default/automations/new").body.decode()

    assert "Pushes to the main branch" in editor
    assert f'value="{made.webhook.uid}"' in editor
