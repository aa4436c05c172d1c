"""Team secrets in the dashboard: shown once, replaced, synced and deleted."""

import re

import pytest
from playwright.sync_api import Page, expect


def test_generated_secret_is_shown_once(page, installation):
    page.goto(installation.url("/f/default/secrets"))
    page.get_by_label("Name").fill("GENERATED")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_role("heading", name="GENERATED is created")).to_be_visible()
    value = page.locator("#secret").inner_text()
    page.get_by_role("link", name="All secrets").click()

    expect(page.get_by_role("link", name="GENERATED")).to_be_visible()
    assert len(value) == 43
    assert value not in page.content()


def test_typed_secret_is_never_shown_even_if_its_name_is_rejected(page, installation):
    page.goto(installation.url("/f/default/secrets"))
    page.get_by_label("Name").fill("no good name")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_label("Name")).to_have_accessible_description(re.compile("can't name a team secret"))
    rejection_page = page.content()

    page.get_by_label("Name").fill("TYPED")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_role("heading", name="TYPED is created")).to_be_visible()

    assert "known to me alone" not in rejection_page + page.content()


def test_new_value_works_only_after_the_webhook_is_synced(page, installation):
    webhook = installation.management.webhooks.create(installation.may, "synced later", secret_name="CHANGING")
    page.goto(installation.url("/f/default/secrets/CHANGING#replace"))
    page.get_by_role("button", name="Replace value").click()
    expect(page.get_by_role("heading", name="CHANGING has a new value")).to_be_visible()
    new_value = page.locator("#secret").inner_text()
    before = [installation.service.post(webhook, token=token).status for token in (None, new_value)]

    page.goto(installation.url("/f/default"))
    expect(page.locator(".concern").filter(has_text="uses an old value of its secret")).to_be_visible()
    page.get_by_role("link", name="Sync for synced later").click()
    page.get_by_role("button", name="Sync").click()
    expect(page.get_by_role("status")).to_contain_text("Only the newest value of its secret works")

    after = [installation.service.post(webhook, token=token).status for token in (None, new_value)]
    assert (before, after) == ([202, 401], [401, 202])


def test_secret_can_be_deleted_only_if_no_webhook_uses_it(page, installation):
    installation.management.webhooks.create(installation.may, "user of a secret", secret_name="IN_USE")
    installation.management.secrets.create(installation.may, "FREE")
    page.goto(installation.url("/f/default/secrets/IN_USE#delete"))
    expect(page.get_by_text("You can't delete a secret while a webhook uses it.")).to_be_visible()

    page.goto(installation.url("/f/default/secrets/FREE#delete"))
    page.get_by_role("button", name="Delete FREE permanently").click()

    expect(page.get_by_role("status")).to_contain_text("Team secret deleted")
    expect(page.get_by_role("link", name="FREE")).to_have_count(0)


@pytest.mark.proof
def test_secret_pages_are_accessible(check_accessibility, installation):
    installation.management.webhooks.create(installation.may, "orders", secret_name="ORDERS")
    installation.management.secrets.replace(installation.may, "ORDERS")

    def unfold_all(page: Page) -> None:
        for summary in page.locator("summary").all():
            summary.click()

    def replace(page: Page) -> None:
        page.get_by_role("button", name="Replace value").click()
        expect(page.get_by_text("Not yet synced")).to_be_visible()

    check_accessibility("secret", "/f/default/secrets/ORDERS", prepare=unfold_all)
    check_accessibility("secret-once", "/f/default/secrets/ORDERS#replace", prepare=replace)
