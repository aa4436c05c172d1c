"""Webhooks in the dashboard: how they are created, changed, rotated and deleted, and what viewers can see."""

import re
import subprocess
import time

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.signatures.catalogue import find
from hookmill.domain.signatures.sign import sign
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import Installation, expect_heading, expect_text, press
from tests.support.automations import automation_created
from tests.support.triggers import received


@pytest.fixture
def create_webhook(installation):
    """Creates webhooks. Those of earlier tests are deleted, because a factory may have 20."""
    for webhook in installation.management.webhooks.all(installation.may):
        if webhook.name != "first":
            installation.management.webhooks.delete(installation.may, webhook.uid)
    return installation.webhook


def page_url(installation: Installation, webhook: WebhookWithSecret) -> str:
    return installation.url(f"/f/default/webhooks/{webhook.webhook.uid}")


def unfold(page: Page, name: str) -> None:
    page.locator("summary", has_text=re.compile(f"^{name}$")).click()


def test_secret_of_a_token_webhook_is_shown_once_in_a_curl_command(page, installation, create_webhook):
    page.goto("/f/default")
    page.get_by_role("link", name="Create webhook").click()
    page.get_by_label("Name", exact=True).fill("by token")
    press(page, "Create webhook")
    expect_heading(page, "by token is ready")
    secret = page.locator("#secret").inner_text()
    command = page.locator("#curl").inner_text()

    output = subprocess.run(["sh", "-c", f"{command} -s"], capture_output=True, timeout=20, check=True).stdout
    page.get_by_role("link", name="View webhook").click()

    assert b'"delivery_id":"dlv_' in output
    assert secret in command
    expect(page.get_by_role("row").filter(has_text="Accepted")).to_have_count(1)
    assert secret not in page.content()


def test_suggested_secret_name_is_the_name_that_is_used(page, installation, create_webhook):
    page.goto("/f/default/webhooks/new")
    page.get_by_label("Name", exact=True).fill("受信")

    suggestion = page.get_by_label("Name of the team secret").get_attribute("placeholder")

    assert suggestion == create_webhook("受信").webhook.secret_name


def test_signature_webhook_accepts_deliveries_after_its_secret_is_set(page, installation, create_webhook):
    page.goto("/f/default/webhooks/new")
    expect(page.get_by_label("Signature scheme")).to_be_hidden()
    page.get_by_label("Name", exact=True).fill("code host")
    page.get_by_label("Signature.").check()
    page.get_by_label("Signature scheme").select_option("github")
    expect_text(page, "open Settings, Webhooks")
    expect(page.get_by_label("HMAC options, as JSON")).to_be_hidden()
    expect(page.get_by_label("Answer the provider's signed challenges")).to_be_hidden()
    press(page, "Create webhook")
    expect_heading(page, "code host is created")

    page.get_by_role("textbox", name="The provider's secret").fill("agreed upon")
    press(page, "Save secret")
    expect(page.get_by_role("status")).to_have_text("The provider's secret is saved.")
    body = b'{"action": "opened"}'
    webhook = installation.management.webhooks.get(installation.may, "code host")
    signed = sign(find("github"), "agreed upon", body, "", time.time_ns() // 1000, "event-1")
    answer = installation.service.request("POST", webhook.ingress_path(), headers=dict(signed.headers), body=body)

    assert answer.status == 202


def test_invalid_hmac_options_are_reported_and_can_be_corrected(page, installation, create_webhook):
    page.goto("/f/default/webhooks/new")
    page.get_by_label("Name", exact=True).fill("own")
    page.get_by_label("Signature.").check()
    page.get_by_label("Signature scheme").select_option("hmac")
    page.get_by_label("HMAC options, as JSON").fill('{"header": "X-Signature", "encoding": "hexx"}')
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("a typed secret")
    press(page, "Create webhook")
    expect(page.locator("#problem-signature_options")).to_contain_text("'hexx' is none of hex")
    assert "a typed secret" not in page.content()

    page.get_by_label("HMAC options, as JSON").fill('{"header": "X-Signature", "encoding": "hex"}')
    page.get_by_label("Secret value").fill("a typed secret")
    press(page, "Create webhook")

    expect_heading(page, "own is ready")
    assert "a typed secret" not in page.content()


def test_setup_instructions_and_team_secrets_work_without_scripts(
    new_profile, signed_in_state, installation, create_webhook
):
    installation.management.secrets.create(installation.may, "SHARED_SECRET", "of the whole team")
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto("/f/default/webhooks/new")
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("Signature.").check()
    page.get_by_label("Signature scheme").select_option("github")
    press(page, "Show setup instructions")
    expect_text(page, "open Settings, Webhooks")
    page.get_by_label("Use an existing team secret").check()
    page.get_by_label("Team secret", exact=True).select_option("SHARED_SECRET")
    press(page, "Create webhook")

    expect_heading(page, "plain is ready")
    assert installation.management.webhooks.get(installation.may, "plain").secret_name == "SHARED_SECRET"
    assert "of the whole team" not in page.content()


def test_deletion_warns_about_automations_that_select_the_webhook(page, installation, create_webhook):
    webhook = create_webhook("obsolete")
    trigger = received(webhook.webhook.uid)
    automation_created(installation.management, installation.may, "triage", triggers=[trigger])
    page.goto(page_url(installation, webhook))
    unfold(page, "Delete")
    expect(page.locator("#delete .warning")).to_contain_text("1 automation selects this webhook")
    expect(page.locator("#delete .warning")).to_contain_text("triage")
    press(page, "Delete obsolete permanently")

    expect(page.get_by_role("status")).to_contain_text("Webhook deleted")
    expect_text(page, "selects webhook “obsolete”, which is deleted")
    assert installation.service.post(webhook, b"1").status == 404
    installation.management.automations.delete(installation.may, "triage")


def test_only_state_and_secret_of_a_webhook_in_a_file_can_change(page, installation, create_webhook):
    installation.management.factories.create(installation.may_administer, "filed")
    may = installation.management.access.operator("filed")
    webhook = installation.management.webhooks.create(may, {"name": "in a file"})
    installation.management.factories.define_by_files(may)
    page.goto(f"/f/filed/webhooks/{webhook.webhook.uid}")

    expect_text(page, "hookmill apply")
    assert page.locator("summary").all_inner_texts() == ["Disable", "Rotate secret"]


@pytest.mark.proof
def test_webhook_pages_are_accessible(check_accessibility, installation, create_webhook):
    webhook = create_webhook("orders", delivery_id_header="X-Event-Id")
    for number in range(4):
        installation.service.post(webhook, b'{"order": %d}' % number)
    installation.service.post(webhook, b'{"order": 1}')
    installation.service.post(webhook, b"no JSON at all")
    installation.service.post(webhook, b"{}", token="wrong")
    path = f"/f/default/webhooks/{webhook.webhook.uid}"

    def choose_a_provider(page: Page) -> None:
        page.get_by_label("Signature.").check()
        page.get_by_label("Signature scheme").select_option("discord")
        expect_text(page, "Setup:")

    def unfold_all(page: Page) -> None:
        for summary in page.locator("summary").all():
            summary.click()

    def rotate(page: Page) -> None:
        press(page, "Rotate secret now")
        expect_text(page, "once.")

    check_accessibility("webhook", path, prepare=unfold_all)
    check_accessibility("webhook-once", path + "#rotate", prepare=rotate)
    check_accessibility("webhook-new", "/f/default/webhooks/new", prepare=choose_a_provider)
