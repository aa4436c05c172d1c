"""Every task on the dashboard, done with the keyboard alone."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from hookmill.domain.webhook import WebhookState
from tests.dashboard.conftest import PASSWORD, expect_text
from tests.dashboard.runners import create_automation, create_manager, installation_with_runners
from tests.support.waiting import until

KEYS_MAX = 120
SET_TARGETS = "elements => { window.targets = elements; }"
IS_FOCUSED = """() => window.targets?.length && targets.every((each) => each.isConnected)
    ? targets.includes(document.activeElement) : null"""
"""Whether a target has the focus. Null if a target is no longer in the page, or if this is another page."""
NEW_PASSWORD = "another long password"


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    with installation_with_runners(tmp_path_factory.mktemp("installation") / "data") as installation:
        yield installation


class Keyboard:
    """A keyboard at a page, without a pointer."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def focus(self, target: Locator, *, key: str = "Tab") -> None:
        """Press the key until one of the target's elements has the focus."""
        expect(target.first).to_be_attached()
        # Clicks wait for the page, keys don't. Before the page is loaded, its scripts ignore keys.
        self.page.wait_for_load_state()
        target.evaluate_all(SET_TARGETS)
        for _ in range(KEYS_MAX):
            # A search by role reads the whole page, so it is repeated only if the elements were replaced.
            if (is_focused := self.page.evaluate(IS_FOCUSED)) is None:
                target.evaluate_all(SET_TARGETS)
                is_focused = self.page.evaluate(IS_FOCUSED)
            if is_focused:
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{key} does not reach {target}")

    def focus_field(self, label: str) -> None:
        self.focus(self.page.get_by_label(label, exact=True))

    def type(self, label: str, text: str) -> None:
        """Replace the text of the field."""
        self.focus_field(label)
        self.press("ControlOrMeta+A")
        self.page.keyboard.type(text)

    def select(self, label: str, option: str) -> None:
        """Select an option by the beginning of its name."""
        selected = ""
        for _ in range(3):
            self.focus_field(label)
            self.page.keyboard.type(option)
            selected = self.page.get_by_label(label, exact=True).evaluate("list => list.selectedOptions[0].label")
            if selected.startswith(option):
                return
            # After a pause of a second, the browser starts a new search, and a space opens the list.
            self.press("Escape")
            self.page.wait_for_timeout(1_500)
        raise AssertionError(f"{selected} is selected, not {option}")

    def press_button(self, name: str | re.Pattern[str], *, exact: bool = True) -> None:
        self.focus(self.page.get_by_role("button", name=name, exact=exact))
        self.press("Enter")

    def follow_link(self, name: str | re.Pattern[str], *, exact: bool = True) -> None:
        self.focus(self.page.get_by_role("link", name=name, exact=exact))
        self.press("Enter")

    def unfold(self, name: str) -> None:
        self.focus(self.page.locator("summary", has_text=re.compile(rf"^\s*{name}")))
        self.press("Enter")

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def expect_status(self, message: str) -> None:
        expect(self.page.get_by_role("status").filter(has_text=message).first).to_be_visible()

    def expect_heading(self, name: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_role("heading", name=name).first).to_be_visible()


@pytest.fixture
def keyboard(page):
    return Keyboard(page)


@pytest.mark.proof
def test_member_sets_and_changes_the_password_and_signs_out(signed_out_page, installation):
    keyboard = Keyboard(signed_out_page)
    signed_out_page.goto(create_manager(installation, "kay@example.com", "Kay"))
    keyboard.type("Password", PASSWORD)
    keyboard.type("Confirm password", PASSWORD)
    keyboard.press_button("Set password and sign in")
    keyboard.expect_heading("default")

    keyboard.follow_link("Kay")
    keyboard.expect_heading("Your account")
    keyboard.focus(signed_out_page.get_by_role("link", name="Skip to content"), key="Shift+Tab")
    expect(signed_out_page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    keyboard.press("Enter")
    keyboard.press("Tab")
    expect(signed_out_page.get_by_label("Old password")).to_be_focused()
    signed_out_page.keyboard.type("not the old one")
    keyboard.type("New password", NEW_PASSWORD)
    keyboard.type("Confirm new password", NEW_PASSWORD)
    keyboard.press_button("Change password")
    expect(signed_out_page.get_by_role("alert")).to_contain_text("The old password is wrong")
    keyboard.type("Old password", PASSWORD)
    keyboard.type("New password", NEW_PASSWORD)
    keyboard.type("Confirm new password", NEW_PASSWORD)
    keyboard.press("Enter")
    keyboard.expect_status("Password changed")

    keyboard.press_button("Sign out")
    keyboard.expect_status("You are signed out")
    expect(signed_out_page.get_by_label("E-mail address")).to_be_focused()
    signed_out_page.keyboard.type("kay@example.com")
    keyboard.type("Password", NEW_PASSWORD)
    keyboard.press("Enter")
    keyboard.expect_heading("default")


@pytest.mark.proof
def test_webhook_is_created_managed_and_deleted(keyboard, installation):
    page = keyboard.page
    page.goto("/f/default")
    keyboard.follow_link("Create webhook")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("by keyboard")
    keyboard.press("Tab")
    keyboard.press("ArrowDown")
    keyboard.select("Signature scheme", "Stripe")
    expect_text(page, "Setup:")
    keyboard.press_button("Create webhook")
    keyboard.expect_heading("by keyboard is created")
    keyboard.type("The provider's secret", "whsec_" + "a" * 32)
    keyboard.press_button("Save secret")
    keyboard.expect_status("The provider's secret is saved")
    webhook = installation.management.webhooks.get(installation.may, "by keyboard")
    assert (webhook.signature_scheme, webhook.state) == ("stripe", WebhookState.ENABLED)

    keyboard.unfold("Disable")
    keyboard.press_button("Disable webhook")
    keyboard.expect_status("Webhook disabled")
    keyboard.unfold("Enable")
    keyboard.press_button("Enable webhook")
    keyboard.expect_status("Webhook enabled")
    keyboard.unfold("Rotate secret")
    keyboard.type("New secret", "whsec_" + "b" * 32)
    keyboard.press_button("Rotate secret now")
    keyboard.expect_heading("by keyboard has a new secret")
    keyboard.follow_link("View webhook")
    keyboard.unfold("Change")
    keyboard.type("Name", "renamed by keyboard")
    keyboard.type("Delivery id header (optional)", "X-Event-Id")
    keyboard.press("Enter")
    keyboard.expect_status("Webhook changed")
    keyboard.unfold("Delete")
    keyboard.press_button("Delete renamed by keyboard permanently")
    keyboard.expect_status("Webhook deleted")


@pytest.mark.proof
def test_secret_is_copied_used_replaced_synced_rotated_and_deleted(keyboard, installation):
    page = keyboard.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=installation.base_url)
    page.goto("/f/default/secrets")
    keyboard.type("Name", "BY_KEYBOARD")
    keyboard.press_button("Create secret")
    keyboard.expect_heading("BY_KEYBOARD is created")
    value = page.get_by_role("region", name="The new value").locator("code").inner_text()
    keyboard.press_button("Copy")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == value
    keyboard.follow_link("All secrets")
    keyboard.expect_heading("Create a secret")

    page.goto("/f/default/webhooks/new")
    keyboard.type("Name", "uses it")
    keyboard.focus(page.get_by_role("radio", name="Generate a"))
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    keyboard.select("Team secret", "BY_KEYBOARD")
    keyboard.press_button("Create webhook")
    keyboard.expect_heading("uses it is ready")
    keyboard.follow_link("View webhook")
    keyboard.follow_link("BY_KEYBOARD")
    keyboard.unfold("Replace the value")
    keyboard.focus(page.get_by_role("radio", name="Generate a"))
    keyboard.press("ArrowDown")
    keyboard.type("Secret value", "known to me alone")
    keyboard.press_button("Replace value")
    keyboard.expect_heading("BY_KEYBOARD has a new value")
    keyboard.press_button("Sync uses it")
    keyboard.expect_status("Only the newest value of its secret works")
    keyboard.unfold("Rotate secret")
    keyboard.press_button("Rotate secret now")
    keyboard.expect_heading("uses it has a new secret")
    secret = page.locator("#secret").inner_text()
    keyboard.press_button("Copy", exact=False)
    keyboard.follow_link("View webhook")
    path = installation.management.webhooks.get(installation.may, "uses it").ingress_path()
    bearer = {"Authorization": f"Bearer {secret}"}
    assert installation.service.request("POST", path, headers=bearer, body=b"{}").status == 202

    keyboard.unfold("Delete")
    keyboard.press_button("Delete uses it permanently")
    keyboard.expect_status("Webhook deleted")
    keyboard.follow_link("Secrets")
    keyboard.follow_link("BY_KEYBOARD")
    keyboard.unfold("Delete")
    keyboard.press_button("Delete BY_KEYBOARD permanently")
    keyboard.expect_status("Team secret deleted")


@pytest.mark.proof
def test_log_is_filtered_opened_paused_and_resumed(keyboard, installation):
    page = keyboard.page
    webhook = installation.webhook("read by keyboard")
    delivery = installation.service.post(webhook, b'{"outer": {"inner": [1, 2]}, "plain": true}').delivery_id
    installation.service.post(webhook, b"no JSON")
    page.goto("/f/default")
    keyboard.follow_link("Deliveries")
    keyboard.select("Webhook", "read by keyboard")
    keyboard.select("Label", "Accepted")
    keyboard.press_button("Filter")
    page.wait_for_url(re.compile("label=accepted"))
    expect(page.get_by_role("row")).to_have_count(2)
    row = page.get_by_role("row").nth(1)
    keyboard.focus(row.get_by_role("link"))
    keyboard.press("Enter")
    keyboard.expect_heading("Payload")
    assert delivery in page.url
    details = page.get_by_role("group", name="Payload as a tree").locator("details").first
    was_open = details.evaluate("element => element.open")
    for expected in (not was_open, was_open):
        keyboard.focus(details.locator("summary").first)
        keyboard.press("Space")
        assert details.evaluate("element => element.open") is expected
    keyboard.unfold("Raw payload")
    expect(page.get_by_label("Raw payload")).to_contain_text('{"outer": {"inner": [1, 2]}')

    keyboard.focus(page.get_by_role("link", name="Deliveries", exact=True), key="Shift+Tab")
    keyboard.press("Enter")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    keyboard.press_button("Pause")
    later = installation.service.post(webhook, b'{"while": "paused"}').delivery_id
    expect_text(page, "Paused, 1 waiting")
    expect(page.locator(f"#{later}")).to_have_count(0)
    keyboard.press_button("Resume")
    expect(page.locator(f"#{later}")).to_be_visible()
    installation.management.webhooks.delete(installation.may, webhook.webhook.uid)


@pytest.mark.proof
def test_automation_is_edited_tested_disabled_and_deleted(keyboard, installation):
    page = keyboard.page
    webhook = installation.webhook("listened to by keyboard")
    create_automation(installation, "Edited by keyboard", webhook)
    for number in range(3):
        installation.service.post(webhook, b'{"number": %d}' % number)
    page.goto("/f/default/automations")
    keyboard.follow_link("Edited by keyboard")
    keyboard.follow_link("Edit")
    keyboard.expect_heading("Edit Edited by keyboard")
    keyboard.type("Prompt", "Look again.")
    keyboard.type("Payload filter", '{"number": [0, 1]}')
    keyboard.expect_heading(re.compile("Backtest: matches 2 of the last 3"))
    keyboard.press_button(re.compile("^test the filter"))
    expect(page.get_by_text("Would trigger", exact=True).first).to_be_visible()
    keyboard.press_button("Save")
    keyboard.expect_status("Automation saved")
    saved = installation.management.automations.get(installation.may, "Edited by keyboard")
    assert saved.prompt == "Look again."
    assert saved.triggers[0].payload is not None

    keyboard.press_button("Disable")
    expect(page.get_by_role("button", name="Enable", exact=True)).to_be_visible()
    keyboard.press_button("Enable")
    expect(page.get_by_role("button", name="Disable", exact=True)).to_be_visible()
    keyboard.follow_link("Delete…")
    keyboard.press_button("Delete automation")
    page.wait_for_url(re.compile("/automations(\\?|$)"))
    automations = installation.management.automations.all(installation.may)
    assert "Edited by keyboard" not in {automation.name for automation in automations}
    installation.management.webhooks.delete(installation.may, webhook.webhook.uid)


@pytest.mark.proof
def test_run_in_progress_is_opened_and_cancelled(keyboard, installation):
    page = keyboard.page
    webhook = installation.webhook("started by keyboard")
    create_automation(installation, "Cancelled by keyboard", webhook, runner="waits")
    [run] = installation.management.runs.of_delivery(installation.may, installation.service.post(webhook).delivery_id)
    until(
        lambda: installation.management.runs.get(installation.may, run_id(run.id)).state is RunState.RUNNING,
        "the run is running",
    )
    page.goto("/f/default")
    keyboard.follow_link("Runs")
    keyboard.select("Webhook", "started by keyboard")
    keyboard.press_button("Filter")
    page.wait_for_url(re.compile("webhook=wh_"))
    keyboard.focus(page.get_by_role("row", name="Cancelled by keyboard").get_by_role("link").first)
    keyboard.press("Enter")
    expect_text(page, "it waits")
    keyboard.unfold("Full prompt")
    expect(page.get_by_label("Prompt")).to_contain_text("Look at it.")
    keyboard.focus(page.get_by_role("button", name="Cancel run"), key="Shift+Tab")
    keyboard.press("Enter")

    keyboard.expect_status("Cancellation requested")
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()


@pytest.mark.proof
def test_members_factories_and_api_keys_are_managed(keyboard, installation):
    page = keyboard.page
    page.goto("/f/default")
    keyboard.follow_link("Team")
    keyboard.type("Name", "Grace")
    keyboard.type("E-mail address", "grace@example.com")
    keyboard.select("Role", "admin of the whole team")
    keyboard.press_button("Add member and create link")
    keyboard.expect_status("Grace is now a member: admin of the whole team.")
    keyboard.follow_link("Back to Grace")
    keyboard.press_button("Remove admin role")
    keyboard.expect_status("Admin role saved")
    keyboard.press_button("Create link")
    keyboard.expect_heading("Sign-in link for Grace")
    keyboard.follow_link("assign a role")
    keyboard.select("Role in default", "viewer")
    keyboard.press_button("Save roles")
    keyboard.expect_status("Roles saved")
    keyboard.follow_link("Remove from the team…")
    keyboard.expect_heading("Remove Grace?")
    keyboard.press_button("Remove from the team")
    keyboard.expect_status("Member removed")

    keyboard.follow_link("Factories")
    keyboard.type("Name", "by keyboard")
    keyboard.press("Enter")
    keyboard.expect_status("Factory created")

    keyboard.follow_link("API keys")
    keyboard.type("Name", "pipeline")
    keyboard.select("Role", "manager in by keyboard")
    keyboard.focus_field("Last valid day (UTC)")
    page.keyboard.type("12312099")
    keyboard.press_button("Create API key")
    token = page.locator("#new-token").inner_text()
    accepted = installation.service.request("GET", "/api/v1/me", headers={"Authorization": f"Bearer {token}"})
    keyboard.follow_link("All API keys")
    expect(page.get_by_role("row", name="pipeline")).to_contain_text("manager in by keyboard")
    expect(page.get_by_role("row", name="pipeline")).to_contain_text("2100-01-01 00:00:00")
    expect(page.locator("body")).not_to_contain_text(token)
    keyboard.follow_link("Revoke… pipeline")
    keyboard.press_button("Revoke")
    expect(page.get_by_role("row", name="pipeline")).to_contain_text(re.compile(r"revoked \d{4}-"))
    rejected = installation.service.request("GET", "/api/v1/me", headers={"Authorization": f"Bearer {token}"})
    assert (accepted.status, rejected.status) == (200, 401)

    for number in range(60):
        installation.management.secrets.create(installation.may, f"PAGED_{number}")
    keyboard.follow_link("Audit log")
    expect(page.get_by_text("PAGED_59", exact=True)).to_be_visible()
    keyboard.follow_link("Older")
    expect(page.get_by_text("PAGED_0", exact=True)).to_be_visible()
    keyboard.follow_link("Newest")
    expect(page.get_by_text("PAGED_59", exact=True)).to_be_visible()
    keyboard.follow_link("Settings")
    keyboard.expect_heading("Settings")
    keyboard.follow_link("All factories")
    keyboard.follow_link("default", exact=False)
    keyboard.expect_heading("default")
