"""The main tasks on the dashboard, in a browser without JavaScript."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from tests.dashboard.conftest import PASSWORD, expect_heading, expect_text
from tests.dashboard.runners import create_automation, create_manager, installation_with_runners
from tests.support.waiting import until


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    with installation_with_runners(tmp_path_factory.mktemp("installation") / "data") as installation:
        yield installation


@pytest.fixture
def page(new_profile, signed_in_state):
    """An empty page of a browser without JavaScript, in which the admin is signed in."""
    return new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()


def press(page: Page, name: str | re.Pattern[str]) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def follow(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).first.click()


def unfold(page: Page, name: str) -> None:
    page.locator("main summary", has_text=re.compile(rf"^\s*{name}")).click()


def expect_status(page: Page, message: str) -> None:
    expect(page.get_by_role("status").filter(has_text=message).first).to_be_visible()


@pytest.mark.proof
def test_member_sets_changes_and_signs_in_with_a_password(new_profile, installation):
    page = new_profile(java_script_enabled=False, viewport={"width": 360, "height": 740}).new_page()
    page.goto(create_manager(installation, "noah@example.com", "Noah"))
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Confirm password").fill(PASSWORD)
    press(page, "Set password and sign in")

    follow(page, "Menu")
    follow(page, "Noah")
    page.get_by_label("Old password").fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill("another long password")
    page.get_by_label("Confirm new password").fill("another long password")
    press(page, "Change password")
    expect_status(page, "Password changed")

    follow(page, "Menu")
    press(page, "Sign out")
    page.get_by_label("E-mail address").fill("noah@example.com")
    page.get_by_label("Password").fill("another long password")
    press(page, "Sign in")
    expect_heading(page, "default")


@pytest.mark.proof
def test_webhook_and_its_secret_are_created_changed_and_deleted(page, installation):
    page.goto("/f/default/secrets")
    page.get_by_label("Name").fill("PLAIN")
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("known to me alone")
    press(page, "Create secret")
    expect_heading(page, "PLAIN is created")

    page.goto("/f/default/webhooks/new")
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("Use an existing team secret").check()
    page.get_by_label("Team secret", exact=True).select_option("PLAIN")
    press(page, "Create webhook")
    follow(page, "View webhook")
    path = installation.management.webhooks.get(installation.may, "plain").ingress_path()

    def status_with(secret: str):
        headers = {"Authorization": f"Bearer {secret}"}
        body = b'{"at": %d}' % time.time_ns()
        return installation.service.request("POST", path, headers=headers, body=body).status

    assert status_with("known to me alone") == 202
    unfold(page, "Disable")
    press(page, "Disable webhook")
    expect_status(page, "Webhook disabled")
    assert status_with("known to me alone") == 404
    unfold(page, "Enable")
    press(page, "Enable webhook")
    expect_status(page, "Webhook enabled")
    unfold(page, "Rotate secret")
    page.get_by_label("Use my own").check()
    page.get_by_label("New secret", exact=True).fill("a second one, just as good")
    press(page, "Rotate secret now")
    expect_status(page, "The webhook uses your secret")
    assert (status_with("known to me alone"), status_with("a second one, just as good")) == (401, 202)

    follow(page, "Secrets")
    follow(page, "PLAIN")
    unfold(page, "Replace the value")
    press(page, "Replace value")
    new_value = page.locator("#secret").inner_text()
    press(page, "Sync plain")
    expect_status(page, "Only the newest value of its secret works")
    assert status_with(new_value) == 202
    unfold(page, "Change")
    page.get_by_label("Name", exact=True).fill("plainer")
    press(page, "Save changes")
    expect_status(page, "Webhook changed")
    unfold(page, "Delete")
    press(page, "Delete plainer permanently")
    expect_status(page, "Webhook deleted")
    assert status_with(new_value) == 404
    follow(page, "Secrets")
    follow(page, "PLAIN")
    unfold(page, "Delete")
    press(page, "Delete PLAIN permanently")
    expect_status(page, "Team secret deleted")


@pytest.mark.proof
def test_log_is_filtered_and_paged_and_a_delivery_is_replayed(page, installation):
    webhook = installation.webhook("logged plainly")
    create_automation(installation, "runs plainly", webhook)
    deliveries = [installation.service.post(webhook, b'{"number": %d}' % number).delivery_id for number in range(55)]
    page.goto("/f/default/deliveries")
    page.get_by_label("Webhook").select_option(label="logged plainly")
    page.get_by_label("Label").select_option(label="Accepted")
    press(page, "Filter")
    page.wait_for_url(re.compile("label=accepted"))
    first_page = [row.get_attribute("id") for row in page.locator("#log tr[id]").all()]
    follow(page, "Older")
    page.wait_for_url(re.compile("before="))
    second_page = [row.get_attribute("id") for row in page.locator("#log tr[id]").all()]
    assert first_page + second_page == deliveries[::-1]

    page.locator(f"#{deliveries[0]}").get_by_role("link").first.click()
    expect_heading(page, "Payload")
    unfold(page, "Raw payload")
    expect(page.get_by_label("Raw payload")).to_have_text('{"number": 0}')
    page.get_by_label("Automation to replay for").select_option(label="runs plainly")
    press(page, "Replay")
    expect_status(page, "Delivery replayed")
    runs = installation.management.runs.of_delivery(installation.may, deliveries[0])
    assert [run.replay_number for run in runs] == [1, 0]
    installation.management.automations.delete(installation.may, "runs plainly")
    installation.management.webhooks.delete(installation.may, webhook.webhook.uid)


@pytest.mark.proof
def test_automation_is_created_and_its_run_is_cancelled(page, installation):
    webhook = installation.webhook("listened to plainly")
    installation.service.post(webhook, b'{"action": "opened"}')
    page.goto("/f/default/automations")
    follow(page, "New automation")
    page.get_by_label("Name", exact=True).fill("Plain")
    page.get_by_label("Runner").select_option("waits")
    page.get_by_label("Prompt").fill("Look at it.")
    page.get_by_label("listened to plainly").check()
    press(page, "Check")
    page.get_by_role("button", name='action "opened"').click()
    expect(page.get_by_label("Payload filter")).to_have_value(re.compile("opened"))
    page.get_by_label("Payload filter").fill('{"action": ["closed"]}')
    press(page, "Check")
    expect(page.get_by_text("Would not trigger", exact=True).first).to_be_visible()
    press(page, "Create")
    expect_status(page, "Automation created")
    follow(page, "Edit")
    page.get_by_label("Payload filter").fill('{"action": ["opened"]}')
    press(page, "Save")
    expect_status(page, "Automation saved")

    [run] = installation.management.runs.of_delivery(
        installation.may, installation.service.post(webhook, b'{"action": "opened", "now": true}').delivery_id
    )
    until(
        lambda: installation.management.runs.get(installation.may, run_id(run.id)).state is RunState.RUNNING,
        "the run is running",
    )
    follow(page, "Runs")
    page.get_by_role("row", name="Plain").get_by_role("link").first.click()
    press(page, "Cancel run")
    expect_status(page, "Cancellation requested")
    until(
        lambda: installation.management.runs.get(installation.may, run_id(run.id)).state is RunState.CANCELLED,
        "the run is cancelled",
    )
    page.reload()
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()

    follow(page, "Automations")
    press(page, "Disable Plain")
    expect_status(page, "Automation disabled")
    follow(page, "Delete…")
    press(page, "Delete automation")
    expect(page.get_by_role("link", name="Plain", exact=True)).to_have_count(0)
    installation.management.webhooks.delete(installation.may, webhook.webhook.uid)


@pytest.mark.proof
def test_members_and_api_keys_are_managed_and_audited(page, installation):
    page.goto("/team/factories")
    page.get_by_label("Name").fill("payments")
    press(page, "Create factory")
    expect(page.get_by_role("link", name="payments")).to_be_visible()

    follow(page, "Members")
    page.get_by_label("Name").fill("Linus")
    page.get_by_label("E-mail address").fill("linus@example.com")
    page.get_by_label("Role", exact=True).select_option(label="viewer in payments")
    press(page, "Add member and create link")
    expect_status(page, "Linus is now a member: viewer in payments.")
    expect_text(page, "/welcome/")
    follow(page, "Back to Linus")
    expect(page.get_by_label("Role in payments")).to_have_value("viewer")
    page.get_by_label("Role in payments").select_option("manager")
    press(page, "Save roles")
    expect_status(page, "Roles saved")
    expect(page.get_by_label("Role in payments")).to_have_value("manager")
    press(page, "Make admin")
    expect(page.get_by_role("button", name="Remove admin role")).to_be_visible()
    press(page, "Create link")
    expect_text(page, "/welcome/")
    follow(page, "Back to Linus")
    follow(page, "Remove from the team…")
    press(page, "Remove from the team")
    expect_status(page, "Member removed")
    expect(page.get_by_role("row", name="Linus")).to_have_count(0)

    follow(page, "API keys")
    page.get_by_label("Name").fill("plain key")
    page.get_by_label("Role").select_option(label="admin of the whole team")
    press(page, "Create API key")
    expect_text(page, "a team admin")
    follow(page, "All API keys")
    follow(page, "Revoke… plain key")
    press(page, "Revoke")
    expect(page.get_by_role("row", name="plain key")).to_contain_text("revoked")

    for number in range(50):
        installation.management.secrets.create(installation.may, f"PAGED_{number}")
    follow(page, "Audit log")
    expect(page.get_by_text("PAGED_49", exact=True)).to_be_visible()
    follow(page, "Older")
    expect(page.get_by_role("row", name="created factory payments")).to_be_visible()
    follow(page, "Newest")
    expect(page.get_by_text("PAGED_49", exact=True)).to_be_visible()
    follow(page, "Settings")
    expect(page.get_by_role("row", name="data_dir")).to_contain_text("HOOKMILL_DATA_DIR")
    page.goto("/f/default/audit")
    expect(page.get_by_text("PAGED_49", exact=True)).to_be_visible()
    follow(page, "Files")
    expect_text(page, "in the dashboard, on the command line")
