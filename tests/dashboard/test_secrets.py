"""Team secrets on the dashboard: shown once, replaced, synced and deleted."""

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Installation


def test_a_secret_that_is_made_here_is_shown_once(page: Page, installation: Installation):
    page.goto(installation.url("/f/default/secrets"))
    page.get_by_label("Name").fill("MADE_HERE")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_role("heading", name="MADE_HERE is created")).to_be_visible()
    value = page.locator("#secret").inner_text()
    page.get_by_role("link", name="All secrets").click()

    expect(page.get_by_role("link", name="MADE_HERE")).to_be_visible()
    assert len(value) == 43
    assert value not in page.content()


def test_a_typed_secret_is_never_shown_even_if_its_name_is_refused(page: Page, installation: Installation):
    page.goto(installation.url("/f/default/secrets"))
    page.get_by_label("Name").fill("no good name")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_label("Name")).to_have_accessible_description(re.compile("can't name a team secret"))
    refused = page.content()

    page.get_by_label("Name").fill("GIVEN")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    page.get_by_role("button", name="Create secret").click()
    expect(page.get_by_role("heading", name="GIVEN is created")).to_be_visible()

    assert "known to me alone" not in refused + page.content()


def test_a_new_value_counts_once_its_webhook_is_synced(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "synced later", secret_name="CHANGING")
    page.goto(installation.url("/f/default/secrets/CHANGING#replace"))
    page.get_by_role("button", name="Replace value").click()
    expect(page.get_by_role("heading", name="CHANGING has a new value")).to_be_visible()
    fresh = page.locator("#secret").inner_text()
    before = (installation.service.post(made, b"1").status, installation.service.post(made, b"2", token=fresh).status)

    page.goto(installation.url("/f/default"))
    expect(page.locator(".concern").filter(has_text="uses an old value of its secret")).to_be_visible()
    page.get_by_role("link", name="Sync for synced later").click()
    page.get_by_role("button", name="Sync").click()
    expect(page.get_by_role("status")).to_contain_text("Only the newest value of its secret works")

    after = (installation.service.post(made, b"3").status, installation.service.post(made, b"4", token=fresh).status)
    assert (before, after) == ((202, 401), (401, 202))


def test_a_secret_in_use_cannot_be_deleted_and_one_that_nothing_uses_can(page: Page, installation: Installation):
    installation.management.webhooks.create(installation.may, "its user", secret_name="IN_USE")
    installation.management.secrets.create(installation.may, "FREE")
    page.goto(installation.url("/f/default/secrets/IN_USE#delete"))
    expect(page.get_by_text("You can't delete a secret while a webhook uses it.")).to_be_visible()

    page.goto(installation.url("/f/default/secrets/FREE#delete"))
    page.get_by_role("button", name="Delete FREE permanently").click()

    expect(page.get_by_role("status")).to_contain_text("Team secret deleted")
    expect(page.get_by_role("link", name="FREE")).to_have_count(0)


def test_secrets_look_right(check_accessibility: Callable[..., None], installation: Installation):
    installation.management.webhooks.create(installation.may, "orders", secret_name="ORDERS")
    installation.management.secrets.replace(installation.may, "ORDERS")

    def unfold_all(page: Page) -> None:
        for summary in page.locator("summary").all():
            summary.click()

    def replace(page: Page) -> None:
        page.get_by_role("button", name="Replace value").click()
        expect(page.get_by_text("Not yet synced")).to_be_visible()

    check_accessibility("secrets", "/f/default/secrets")
    check_accessibility("secret", "/f/default/secrets/ORDERS", prepare=unfold_all)
    check_accessibility("secret-once", "/f/default/secrets/ORDERS#replace", prepare=replace)
