"""Everything that can be done on the dashboard, done by a person who has a keyboard and nothing else."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from hookmill.domain.webhook import WebhookState
from tests.dashboard.conftest import PASSWORD, Installation
from tests.dashboard.runners import create_automation, create_manager, installation_with_runners
from tests.support.waiting import until

STOPS_MAX = 120
LOOK_FOR = "found => { window.wanted = found; }"
IS_THERE = """() => window.wanted?.length && wanted.every((each) => each.isConnected)
    ? wanted.includes(document.activeElement) : null"""
"""Whether the focus is there. Null if what was looked for is gone, or another page is."""
NEW_PASSWORD = "another long password"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation_with_runners(tmp_path_factory.mktemp("installation") / "data") as installation:
        yield installation


class Keyboard:
    """Somebody at a page, with ten fingers and no pointer."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def to(self, wanted: Locator, *, key: str = "Tab") -> None:
        """Tab until one of these has the focus."""
        expect(wanted.first).to_be_attached()
        # Keys don't wait for a page as clicks do, and its scripts hear nothing before it is loaded.
        self.page.wait_for_load_state()
        wanted.evaluate_all(LOOK_FOR)
        for _ in range(STOPS_MAX):
            # Finding something by its role reads the whole page: only when it isn't what it was.
            if (is_there := self.page.evaluate(IS_THERE)) is None:
                wanted.evaluate_all(LOOK_FOR)
                is_there = self.page.evaluate(IS_THERE)
            if is_there:
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{key} never reaches {wanted}")

    def field(self, label: str) -> None:
        self.to(self.page.get_by_label(label, exact=True))

    def type(self, label: str, text: str) -> None:
        """What stood in the field is replaced."""
        self.field(label)
        self.press("ControlOrMeta+A")
        self.page.keyboard.type(text)

    def choose(self, label: str, option: str) -> None:
        """One of a list, by the beginning of its name."""
        chosen = ""
        for _ in range(3):
            self.field(label)
            self.page.keyboard.type(option)
            chosen = self.page.get_by_label(label, exact=True).evaluate("list => list.selectedOptions[0].label")
            if chosen.startswith(option):
                return
            # Somebody who stops for a second begins a new name, and a space opens the list.
            self.press("Escape")
            self.page.wait_for_timeout(1_500)
        raise AssertionError(f"{chosen} is chosen, not {option}")

    def button(self, name: str | re.Pattern[str], *, exact: bool = True) -> None:
        self.to(self.page.get_by_role("button", name=name, exact=exact))
        self.press("Enter")

    def link(self, name: str | re.Pattern[str], *, exact: bool = True) -> None:
        self.to(self.page.get_by_role("link", name=name, exact=exact))
        self.press("Enter")

    def unfold(self, name: str) -> None:
        """Open what is folded, or fold what is open."""
        self.to(self.page.locator("summary", has_text=re.compile(rf"^\s*{name}")))
        self.press("Enter")

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def reads(self, said: str) -> None:
        expect(self.page.get_by_role("status").filter(has_text=said).first).to_be_visible()

    def heading(self, name: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_role("heading", name=name).first).to_be_visible()


@pytest.fixture
def keyboard(page: Page) -> Keyboard:
    return Keyboard(page)


def test_coming_in_changing_the_password_and_going_out(signed_out_page: Page, installation: Installation):
    keyboard = Keyboard(signed_out_page)
    signed_out_page.goto(installation.url(create_manager(installation, "kay@example.com", "Kay")))
    keyboard.type("Password", PASSWORD)
    keyboard.type("Confirm password", PASSWORD)
    keyboard.button("Set password and sign in")
    keyboard.heading("default")

    keyboard.link("Kay")
    keyboard.heading("Your account")
    keyboard.to(signed_out_page.get_by_role("link", name="Skip to content"), key="Shift+Tab")
    expect(signed_out_page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    keyboard.press("Enter")
    keyboard.press("Tab")
    expect(signed_out_page.get_by_label("Old password")).to_be_focused()
    signed_out_page.keyboard.type("not the old one")
    keyboard.type("New password", NEW_PASSWORD)
    keyboard.type("Confirm new password", NEW_PASSWORD)
    keyboard.button("Change password")
    expect(signed_out_page.get_by_role("alert")).to_contain_text("The old password is wrong")
    keyboard.type("Old password", PASSWORD)
    keyboard.type("New password", NEW_PASSWORD)
    keyboard.type("Confirm new password", NEW_PASSWORD)
    keyboard.press("Enter")
    keyboard.reads("Password changed")

    keyboard.button("Sign out")
    keyboard.reads("You are signed out")
    expect(signed_out_page.get_by_label("E-mail address")).to_be_focused()
    signed_out_page.keyboard.type("kay@example.com")
    keyboard.type("Password", NEW_PASSWORD)
    keyboard.press("Enter")
    keyboard.heading("default")


def test_a_webhook_from_its_creation_to_its_end(keyboard: Keyboard, installation: Installation):
    page = keyboard.page
    page.goto(installation.url("/f/default"))
    keyboard.link("Create webhook")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("by keyboard")
    keyboard.press("Tab")
    keyboard.press("ArrowDown")
    keyboard.choose("Signature scheme", "Stripe")
    expect(page.get_by_text("Setup:")).to_be_visible()
    keyboard.button("Create webhook")
    keyboard.heading("by keyboard is created")
    keyboard.type("The provider's secret", "whsec_" + "a" * 32)
    keyboard.button("Save secret")
    keyboard.reads("The provider's secret is saved")
    [made] = [each for each in installation.management.webhooks.all(installation.may) if each.name == "by keyboard"]
    assert (made.signature_scheme, made.state) == ("stripe", WebhookState.ENABLED)

    keyboard.unfold("Disable")
    keyboard.button("Disable webhook")
    keyboard.reads("Webhook disabled")
    keyboard.unfold("Enable")
    keyboard.button("Enable webhook")
    keyboard.reads("Webhook enabled")
    keyboard.unfold("Rotate secret")
    keyboard.type("New secret", "whsec_" + "b" * 32)
    keyboard.button("Rotate secret now")
    keyboard.heading("by keyboard has a new secret")
    keyboard.link("View webhook")
    keyboard.unfold("Rename")
    keyboard.type("New name", "renamed by keyboard")
    keyboard.press("Enter")
    keyboard.reads("Webhook renamed")
    keyboard.unfold("Change the delivery id header")
    keyboard.type("Header", "X-Event-Id")
    keyboard.button("Save delivery id header")
    keyboard.reads("Delivery id header changed")
    keyboard.unfold("Delete")
    keyboard.button("Delete renamed by keyboard permanently")
    keyboard.reads("Webhook deleted")


def test_a_secret_is_copied_used_replaced_synced_rotated_and_deleted(
    keyboard: Keyboard, installation: Installation, page: Page
):
    context: BrowserContext = page.context
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=installation.base_url)
    page.goto(installation.url("/f/default/secrets"))
    keyboard.type("Name", "BY_KEYBOARD")
    keyboard.button("Create secret")
    keyboard.heading("BY_KEYBOARD is created")
    shown = page.get_by_role("region", name="The new value").locator("code").inner_text()
    keyboard.button("Copy")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == shown
    keyboard.link("All secrets")
    keyboard.heading("Create a secret")

    page.goto(installation.url("/f/default/webhooks/new"))
    keyboard.type("Name", "uses it")
    keyboard.to(page.get_by_role("radio", name="Generate a"))
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    keyboard.choose("Team secret", "BY_KEYBOARD")
    keyboard.button("Create webhook")
    keyboard.heading("uses it is ready")
    keyboard.link("View webhook")
    keyboard.link("BY_KEYBOARD")
    keyboard.unfold("Replace the value")
    keyboard.to(page.get_by_role("radio", name="Generate a"))
    keyboard.press("ArrowDown")
    keyboard.type("Secret value", "known to me alone")
    keyboard.button("Replace value")
    keyboard.heading("BY_KEYBOARD has a new value")
    keyboard.button("Sync uses it")
    keyboard.reads("Only the newest value of its secret works")
    keyboard.unfold("Rotate secret")
    keyboard.button("Rotate secret now")
    keyboard.heading("uses it has a new secret")
    secret = page.locator("#secret").inner_text()
    keyboard.button("Copy", exact=False)
    keyboard.link("View webhook")
    used = next(each for each in installation.management.webhooks.all(installation.may) if each.name == "uses it")
    path = used.ingress_path()
    bearer = {"Authorization": f"Bearer {secret}"}
    assert installation.service.request("POST", path, headers=bearer, body=b"{}").status == 202

    keyboard.unfold("Delete")
    keyboard.button("Delete uses it permanently")
    keyboard.reads("Webhook deleted")
    keyboard.link("Secrets")
    keyboard.link("BY_KEYBOARD")
    keyboard.unfold("Delete")
    keyboard.button("Delete BY_KEYBOARD permanently")
    keyboard.reads("Team secret deleted")


def test_the_log_is_narrowed_paused_and_read(keyboard: Keyboard, installation: Installation):
    page = keyboard.page
    made = installation.management.webhooks.create(installation.may, "read by keyboard")
    sent = installation.service.post(made, b'{"outer": {"inner": [1, 2]}, "plain": true}').delivery_id
    installation.service.post(made, b"no JSON")
    page.goto(installation.url("/f/default"))
    keyboard.link("Deliveries")
    keyboard.choose("Webhook", "read by keyboard")
    keyboard.choose("Label", "Accepted")
    keyboard.button("Filter")
    page.wait_for_url(re.compile("label=accepted"))
    expect(page.get_by_role("row")).to_have_count(2)
    row = page.get_by_role("row").nth(1)
    keyboard.to(row.get_by_role("link"))
    keyboard.press("Enter")
    keyboard.heading("Payload")
    assert sent in page.url
    folded = page.get_by_role("group", name="Payload as a tree").locator("details").first
    was_open = folded.evaluate("element => element.open")
    for expected in (not was_open, was_open):
        keyboard.to(folded.locator("summary").first)
        keyboard.press("Space")
        assert folded.evaluate("element => element.open") is expected
    keyboard.unfold("Raw payload")
    expect(page.get_by_label("Raw payload")).to_contain_text('{"outer": {"inner": [1, 2]}')

    keyboard.to(page.get_by_role("link", name="Deliveries", exact=True), key="Shift+Tab")
    keyboard.press("Enter")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    keyboard.button("Pause")
    later = installation.service.post(made, b'{"while": "paused"}').delivery_id
    expect(page.get_by_text("Paused, 1 waiting")).to_be_visible()
    expect(page.locator(f"#{later}")).to_have_count(0)
    keyboard.button("Resume")
    expect(page.locator(f"#{later}")).to_be_visible()
    installation.management.webhooks.delete(installation.may, made.webhook.uid)


def test_an_automation_is_edited_tried_disabled_and_deleted(keyboard: Keyboard, installation: Installation):
    page = keyboard.page
    made = installation.management.webhooks.create(installation.may, "listened to by keyboard")
    create_automation(installation, "Edited by keyboard", made)
    for number in range(3):
        installation.service.post(made, b'{"number": %d}' % number)
    page.goto(installation.url("/f/default/automations"))
    keyboard.link("Edited by keyboard")
    keyboard.link("Edit")
    keyboard.heading("Edit Edited by keyboard")
    keyboard.type("Prompt", "Look again.")
    keyboard.type("Payload filter", '{"number": [0, 1]}')
    keyboard.heading(re.compile("Backtest: matches 2 of the last 3"))
    keyboard.button(re.compile("^test the filter"))
    expect(page.get_by_text("Would trigger", exact=True).first).to_be_visible()
    keyboard.button("Save")
    keyboard.reads("Automation saved")
    saved = installation.management.automations.get(installation.may, "Edited by keyboard")
    assert saved.prompt == "Look again."
    assert saved.triggers[0].payload is not None

    keyboard.button("Disable")
    expect(page.get_by_role("button", name="Enable", exact=True)).to_be_visible()
    keyboard.button("Enable")
    expect(page.get_by_role("button", name="Disable", exact=True)).to_be_visible()
    keyboard.link("Delete…")
    keyboard.button("Delete automation")
    page.wait_for_url(re.compile("/automations(\\?|$)"))
    assert "Edited by keyboard" not in {each.name for each in installation.management.automations.all(installation.may)}
    installation.management.webhooks.delete(installation.may, made.webhook.uid)


def test_a_run_is_opened_while_it_runs_and_cancelled(keyboard: Keyboard, installation: Installation):
    page = keyboard.page
    made = installation.management.webhooks.create(installation.may, "started by keyboard")
    create_automation(installation, "Cancelled by keyboard", made, runner="waits")
    [run] = installation.management.runs.of_delivery(installation.may, installation.service.post(made).delivery_id)
    until(
        lambda: installation.management.runs.get(installation.may, run_id(run.id)).state is RunState.RUNNING,
        "the run runs",
    )
    page.goto(installation.url("/f/default"))
    keyboard.link("Runs")
    keyboard.choose("Webhook", "started by keyboard")
    keyboard.button("Filter")
    page.wait_for_url(re.compile("webhook=wh_"))
    keyboard.to(page.get_by_role("row", name="Cancelled by keyboard").get_by_role("link").first)
    keyboard.press("Enter")
    expect(page.get_by_text("it waits")).to_be_visible()
    keyboard.unfold("Full prompt")
    expect(page.get_by_label("Prompt")).to_contain_text("Look at it.")
    keyboard.to(page.get_by_role("button", name="Cancel run"), key="Shift+Tab")
    keyboard.press("Enter")

    keyboard.reads("Cancellation requested")
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()


def test_the_team_is_managed(keyboard: Keyboard, installation: Installation):
    page = keyboard.page
    page.goto(installation.url("/f/default"))
    keyboard.link("Team")
    keyboard.type("Name", "Grace")
    keyboard.type("E-mail address", "grace@example.com")
    keyboard.choose("Role", "admin of the whole team")
    keyboard.button("Add member and create link")
    keyboard.reads("Grace is now a member: admin of the whole team.")
    keyboard.link("Back to Grace")
    keyboard.button("Remove admin role")
    keyboard.reads("Admin role saved")
    keyboard.button("Create link")
    keyboard.heading("Sign-in link for Grace")
    keyboard.link("assign a role")
    keyboard.choose("Role in default", "viewer")
    keyboard.button("Save roles")
    keyboard.reads("Roles saved")
    keyboard.link("Remove from the team…")
    keyboard.heading("Remove Grace?")
    keyboard.button("Remove from the team")
    keyboard.reads("Member removed")

    keyboard.link("Factories")
    keyboard.type("Name", "by keyboard")
    keyboard.press("Enter")
    keyboard.reads("Factory created")

    keyboard.link("API keys")
    keyboard.type("Name", "pipeline")
    keyboard.choose("Role", "manager in by keyboard")
    keyboard.field("Last valid day (UTC)")
    page.keyboard.type("12312099")
    keyboard.button("Create API key")
    token = page.locator("#new-token").inner_text()
    answered = installation.service.request("GET", "/api/v1/me", headers={"Authorization": f"Bearer {token}"})
    keyboard.link("All API keys")
    expect(page.get_by_role("row", name="pipeline")).to_contain_text("manager in by keyboard")
    expect(page.get_by_role("row", name="pipeline")).to_contain_text("2100-01-01 00:00:00")
    expect(page.locator("body")).not_to_contain_text(token)
    keyboard.link("Revoke… pipeline")
    keyboard.button("Revoke")
    expect(page.get_by_role("row", name="pipeline")).to_contain_text(re.compile(r"revoked \d{4}-"))
    refused = installation.service.request("GET", "/api/v1/me", headers={"Authorization": f"Bearer {token}"})
    assert (answered.status, refused.status) == (200, 401)

    for number in range(60):
        installation.management.secrets.create(installation.may, f"PAGED_{number}")
    keyboard.link("Audit log")
    expect(page.get_by_text("PAGED_59", exact=True)).to_be_visible()
    keyboard.link("Older")
    expect(page.get_by_text("PAGED_0", exact=True)).to_be_visible()
    keyboard.link("Newest")
    expect(page.get_by_text("PAGED_59", exact=True)).to_be_visible()
    keyboard.link("Settings")
    keyboard.heading("Settings")
    keyboard.link("All factories")
    keyboard.link("default", exact=False)
    keyboard.heading("default")
