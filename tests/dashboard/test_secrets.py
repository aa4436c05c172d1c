"""Team secrets in the dashboard: shown once, replaced, synced and deleted."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import expect_heading, expect_text, press


def test_generated_secret_is_shown_once(page, installation):
    page.goto("/f/default/secrets")
    page.get_by_label("Name").fill("GENERATED")
    press(page, "Create secret")
    expect_heading(page, "GENERATED is created")
    value = page.locator("#secret").inner_text()
    page.get_by_role("link", name="All secrets").click()

    expect(page.get_by_role("link", name="GENERATED")).to_be_visible()
    assert len(value) == 43
    assert value not in page.content()


def test_typed_secret_is_never_shown_even_if_its_name_is_rejected(page, installation):
    page.goto("/f/default/secrets")
    page.get_by_label("Name").fill("no good name")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    press(page, "Create secret")
    expect(page.get_by_label("Name")).to_have_accessible_description(re.compile("can't name a team secret"))
    rejection_page = page.content()

    page.get_by_label("Name").fill("TYPED")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    press(page, "Create secret")
    expect_heading(page, "TYPED is created")

    assert "known to me alone" not in rejection_page + page.content()


@pytest.mark.proof
def test_secret_pages_are_accessible(check_accessibility, installation):
    installation.webhook("orders", secret_name="ORDERS")
    installation.management.secrets.replace(installation.may, "ORDERS")

    def unfold_all(page: Page) -> None:
        for summary in page.locator("summary").all():
            summary.click()

    def replace(page: Page) -> None:
        press(page, "Replace value")
        expect_text(page, "Not yet synced")

    check_accessibility("secret", "/f/default/secrets/ORDERS", prepare=unfold_all)
    check_accessibility("secret-once", "/f/default/secrets/ORDERS#replace", prepare=replace)
