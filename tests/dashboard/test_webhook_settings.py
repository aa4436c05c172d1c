"""The settings of a webhook in the forms for creating and for changing it, and a warning about allowed networks."""

from dataclasses import replace

import pytest

from hookmill.domain.networks import EVERY_CLIENT_IS_THE_PROXY
from tests.dashboard.client import Elements, text_of


def test_page_warns_if_every_client_has_the_address_of_the_proxy(dashboard, viewer):
    limited = dashboard.world.webhook("limited", allowed_networks=["192.0.2.0/24"]).webhook.uid
    unlimited = dashboard.world.webhook("unlimited").webhook.uid

    def warns(uid: str) -> bool:
        return EVERY_CLIENT_IS_THE_PROXY in Elements(viewer.get(f"/f/default/webhooks/{uid}").body).text

    before = warns(limited)
    installation = dashboard.management.webhooks._installation
    installation.config = replace(installation.config, lacks_trusted_proxies=True)

    assert [before, warns(limited), warns(unlimited)] == [False, True, False]


@pytest.mark.parametrize(
    ("field", "unusable", "problem", "usable", "stored", "text"),
    [
        (
            "delivery_id_header",
            "Authorization",
            "carries credentials",
            "X-Event-Id",
            "X-Event-Id",
            "X-Event-Id",
        ),
        ("event_header", "Cookie", "carries credentials", "X-Kind", "X-Kind", "header X-Kind"),
        (
            "allowed_networks",
            "192.0.2.0/24\n2001:db8::1/32",
            "2001:db8::/32 for the",
            "192.0.2.0/24\n2001:db8::/32",
            ["192.0.2.0/24", "2001:db8::/32"],
            "192.0.2.0/24, 2001:db8::/32",
        ),
        ("expect_every", "1 hour", "is not a time", "60m", "1h", "Expected a delivery every 1h"),
        ("name", "taken", "already has a webhook named", "renamed", "renamed", "renamed"),
    ],
)
def test_setting_is_refused_at_its_field_and_stored_by_both_forms(
    dashboard, field, unusable, problem, usable, stored, text, manager
):
    dashboard.world.webhook("taken")
    create = {"/name": "created", "/auth_mode": "token", "secret_from": "generate"}
    existing = dashboard.world.webhook("changed").webhook
    path = f"/f/default/webhooks/{existing.uid}"
    change = {"revision": str(existing.revision)}

    refusals = [
        manager.post("/f/default/webhooks/new", create | {f"/{field}": unusable}),
        manager.post(f"{path}/change", change | {f"/{field}": unusable}),
    ]
    created = manager.post("/f/default/webhooks/new", create | {f"/{field}": usable})
    [webhook] = [
        each for each in dashboard.management.webhooks.all(dashboard.world.may) if each.name not in {"taken", "changed"}
    ]
    dashboard.management.webhooks.delete(dashboard.world.may, webhook.uid)
    changed = manager.post(f"{path}/change", change | {f"/{field}": usable})
    changed_webhook = dashboard.management.webhooks.get(dashboard.world.may, existing.uid)

    for refused in refusals:
        [invalid_field] = [element for element in Elements(refused.body).all if "aria-invalid" in element.attributes]
        assert (refused.status, invalid_field.attributes["name"]) == (422, f"/{field}")
        assert problem in text_of(refused.body)
    assert (created.status, changed.status) == (200, 303)
    for each in (webhook, changed_webhook):
        assert getattr(each, field) in (stored, tuple(stored))
    assert text in text_of(manager.get(path).body)


def test_form_that_was_loaded_before_a_change_resets_nothing(dashboard, manager):
    webhook = dashboard.world.webhook("orders").webhook
    path = f"/f/default/webhooks/{webhook.uid}"
    form = {"revision": str(webhook.revision), "/name": "sales", "/allowed_networks": ""}
    dashboard.management.webhooks.change(dashboard.world.may, webhook.uid, {"allowed_networks": ["192.0.2.0/24"]})

    refused = manager.post(f"{path}/change", form)
    [revision] = [
        each.attributes["value"] for each in Elements(refused.body).all if each.attributes.get("name") == "revision"
    ]
    unchanged = dashboard.management.webhooks.get(dashboard.world.may, webhook.uid)
    saved_again = manager.post(f"{path}/change", form | {"revision": revision})

    assert refused.status == 422
    assert "was changed while you were editing" in text_of(refused.body)
    assert (unchanged.name, unchanged.allowed_networks) == ("orders", ("192.0.2.0/24",))
    assert saved_again.status == 303


def test_webhook_whose_scheme_a_new_catalogue_lacks_has_its_page(dashboard, manager):
    uid = dashboard.world.webhook("orders", auth_mode="signature", signature_scheme="github").webhook.uid
    with dashboard.world.database.write() as tx:
        tx.run("UPDATE webhooks SET signature_scheme = 'gone' WHERE uid = :uid", uid=uid)

    page = manager.get(f"/f/default/webhooks/{uid}")
    disabled = manager.post(f"/f/default/webhooks/{uid}/disable")

    assert "This version can't use the signature scheme 'gone'" in text_of(page.body)
    assert disabled.status == 303
