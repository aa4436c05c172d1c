"""Automations: the editor with its payload filter, the pages, run policies, schedules and runs by hand."""

import json
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from hookmill.domain.automation import Automation
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.permission import MayManage
from hookmill.domain.run import Run
from hookmill.management import WebhookWithSecret
from hookmill.store.database import open_database
from hookmill.store.pauses import pause_failing
from tests.dashboard.conftest import Installation, expect_heading, expect_text, press
from tests.support.automations import automation_changed, automation_created
from tests.support.counts import only_in_proof
from tests.support.triggers import cron_fired, received

OPENED = {"action": "opened", "pull_request": {"draft": False, "number": 7, "labels": [{"name": "bug"}]}}
CLOSED = OPENED | {"action": "closed"}
NewProfile = Callable[..., BrowserContext]


@pytest.fixture(autouse=True)
def webhook_cleanup(installation):
    """Deletes the webhooks of each test, because a factory may have 20."""
    yield
    for webhook in installation.management.webhooks.all(installation.may):
        installation.management.webhooks.delete(installation.may, webhook.uid)


def create_webhook(
    installation: Installation, name: str, *bodies: Any, may: MayManage | None = None
) -> WebhookWithSecret:
    """Create a webhook, and deliver these bodies to it."""
    webhook = installation.management.webhooks.create(may or installation.may, {"name": name})
    for body in bodies:
        deliver(installation, webhook, body)
    return webhook


def deliver(installation: Installation, webhook: WebhookWithSecret, body: Any) -> str:
    """Returns the delivery's id."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = installation.service.post(webhook, raw)
    assert answer.status == 202
    return answer.delivery_id


def create_automation(
    installation: Installation, name: str, *uids: str, payload: Any = None, may: MayManage | None = None
) -> str:
    """Returns the automation's id."""
    filters = {"webhook_ids": list(uids)} | ({"payload": payload} if payload is not None else {})
    triggers = [{"provider": "webhook", "event": "received", "filter": filters}]
    return automation_created(
        installation.management, may or installation.may, name, prompt="Review it.", triggers=triggers
    ).id


def get_automation(installation: Installation, id_or_name: str) -> Automation:
    return installation.management.automations.get(installation.may, id_or_name)


def runs_of(installation: Installation, name: str) -> list[Run]:
    return [run for run in installation.management.runs.newest(installation.may) if run.automation_name == name]


def open_editor(page: Page, installation: Installation, webhook: WebhookWithSecret, name: str) -> None:
    """Open the editor for a new automation that selects the webhook, and fill in the required fields."""
    page.goto(f"/f/default/automations/new?webhook={webhook.webhook.uid}")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Prompt").fill("Review it.")


def hold_requests(page: Page, url_pattern: str) -> Callable[[], Route]:
    """Hold the requests to these URLs. The returned function waits for the next one, and returns it."""
    routes: list[Route] = []

    def next_request() -> Route:
        deadline = time.monotonic() + 10
        while not routes:
            assert time.monotonic() < deadline, "the page sends a request"
            page.wait_for_timeout(10)
        return routes.pop(0)

    page.route(url_pattern, lambda route: routes.append(route))
    return next_request


def filter_result(page: Page) -> Locator:
    return page.locator("#result")


def test_filter_composed_by_clicks_starts_only_matching_runs(page, installation):
    webhook = create_webhook(installation, "github", OPENED)
    open_editor(page, installation, webhook, "Review")

    press(page, 'action "opened"')
    press(page, 'name "bug"')
    expect(page.get_by_label("Payload filter")).to_have_value(
        '{\n  "action": ["opened"],\n  "pull_request": {"labels": {"name": ["bug"]}}\n}'
    )
    expect(filter_result(page)).to_have_text("Would trigger Webhook check: passed. Payload check: passed.")
    expect(page.get_by_role("row", name='/pull_request/labels/0/name in ["bug"] "bug" yes')).to_be_visible()
    page.get_by_role("button", name="Create").first.click()
    expect_text(page, "Automation created.")
    matching = deliver(installation, webhook, OPENED | {"n": 2})
    deliver(installation, webhook, CLOSED)

    [run] = runs_of(installation, "Review")
    assert delivery_id(run.delivery_key or b"") == matching


def test_editor_updates_the_result_while_the_filter_is_typed(page, installation):
    webhook = create_webhook(installation, "typed", OPENED)
    open_editor(page, installation, webhook, "Typed")
    field = page.get_by_label("Payload filter")

    field.fill('{"action": ["closed"]}')
    expect(filter_result(page)).to_contain_text("Would not trigger Webhook check: passed. Payload check: failed.")
    expect(page.get_by_role("row", name='/action in ["closed"] "opened" no')).to_be_visible()
    expect(field).to_have_attribute("aria-invalid", "false")

    field.fill('{"action":\n  opened}')
    expect(filter_result(page)).to_contain_text("The filter is not valid JSON.")
    expect(page.locator("#filter-faults")).to_contain_text("Line 2, column 3: Expecting value.")
    expect(field).to_have_attribute("aria-invalid", "true")

    field.fill('{"pull_request": {"draft": "no"}}')
    expect(page.locator("#filter-faults")).to_contain_text("/pull_request/draft")

    field.fill("")
    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(field).to_have_attribute("aria-invalid", "false")


def create_webhook_with_event_types(installation: Installation, name: str, *events: str) -> WebhookWithSecret:
    """Create a webhook, and deliver a body of each event type to it."""
    webhook = installation.webhook(name, event_header="X-Kind")
    for number, event in enumerate(events):
        assert installation.service.post(webhook, b'{"n": %d}' % number, headers={"X-Kind": event}).status == 202
    return webhook


def test_event_types_are_clicked_typed_tested_and_saved(page, installation):
    webhook = create_webhook_with_event_types(installation, "typed", "refunded", "paid")
    open_editor(page, installation, webhook, "Payments")
    field = page.get_by_label("Event types")

    page.get_by_role("button", name="paid", exact=True).click()
    expect(field).to_have_value("paid")
    expect(page.get_by_role("button", name="paid", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(filter_result(page)).to_have_text(
        "Would trigger Webhook check: passed. Event check: passed. Payload check: passed."
    )
    expect_heading(page, "Backtest: matches 1 of the last 2")

    field.fill("refunded\n\n chargeback ")
    expect(filter_result(page)).to_contain_text("Would not trigger Webhook check: passed. Event check: failed.")
    expect(page.locator("#outcome")).to_contain_text("event type paid, expected refunded or chargeback")
    expect(page.get_by_role("button", name="paid", exact=True)).to_have_attribute("aria-pressed", "false")

    field.fill("x" * 201)
    expect(page.locator("#event-faults")).to_contain_text("a text of 1 to 200 printable characters")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Payload filter")).to_have_attribute("aria-invalid", "false")

    field.fill("refunded\nchargeback")
    expect(field).to_have_attribute("aria-invalid", "false")
    page.get_by_role("button", name="Create").first.click()
    expect_text(page, "Automation created.")
    expect_text(page, "with event type refunded or chargeback")
    [trigger] = get_automation(installation, "Payments").filters
    assert (trigger.event, trigger.payload) == (("refunded", "chargeback"), None)


def test_editor_shows_the_stored_event_types(page, installation):
    webhook = create_webhook_with_event_types(installation, "stored types", "paid")
    filters = {"webhook_ids": [webhook.webhook.uid], "event": ["Push Hook", "paid"]}
    trigger = {"provider": "webhook", "event": "received", "filter": filters}
    automation = automation_created(installation.management, installation.may, "Stored types", triggers=[trigger])
    page.goto(f"/f/default/automations/{automation.id}/edit")

    expect(page.get_by_label("Event types")).to_have_value("Push Hook\npaid")
    page.get_by_role("button", name="paid", exact=True).click()
    expect(page.get_by_label("Event types")).to_have_value("Push Hook")


def test_second_click_during_the_request_of_the_first_is_kept(page, installation):
    webhook = create_webhook(installation, "quick", OPENED)
    open_editor(page, installation, webhook, "Quick")
    next_request = hold_requests(page, "**/automations/new*")

    press(page, "number 7")
    first = next_request()
    press(page, "draft false")
    first.continue_()
    next_request().continue_()

    expect(page.get_by_label("Payload filter")).to_have_value(
        '{\n  "pull_request": {"number": [7], "draft": [false]}\n}'
    )
    expect(page.get_by_role("button", name="number 7")).to_have_attribute("aria-pressed", "true")


def test_create_buttons_are_disabled_during_the_request_of_a_click(page, installation):
    webhook = create_webhook(installation, "hasty", OPENED)
    open_editor(page, installation, webhook, "Hasty")
    next_request = hold_requests(page, "**/automations/new*")

    press(page, "number 7")
    first = next_request()
    for button in page.get_by_role("button", name="Create").all():
        expect(button).to_be_disabled()
    first.continue_()
    page.unroute("**/automations/new*")
    page.get_by_role("button", name="Create").first.click()

    expect_text(page, "Automation created.")
    assert get_automation(installation, "Hasty").filters[0].payload is not None


def test_text_typed_during_the_request_of_a_click_is_kept(page, installation):
    webhook = create_webhook(installation, "meanwhile", OPENED)
    open_editor(page, installation, webhook, "Meanwhile")
    next_request = hold_requests(page, "**/automations/new*")

    press(page, "number 7")
    first = next_request()
    page.get_by_label("Payload filter").fill('{"mine": [1]}')
    first.continue_()
    next_request().continue_()

    expect(page.get_by_role("row", name="/mine in")).to_be_visible()
    expect(page.get_by_label("Payload filter")).to_have_value('{"mine": [1]}')


def test_check_shows_a_delivery_that_arrived_after_the_page_opened(page, installation):
    webhook = create_webhook(installation, "late")
    open_editor(page, installation, webhook, "Late")
    expect_text(page, "No deliveries from the selected webhooks yet.")

    deliver(installation, webhook, OPENED)
    press(page, "Check")

    expect(page.get_by_role("button", name='action "opened"')).to_be_visible()


def test_check_after_the_end_of_the_session_keeps_the_input(page, installation):
    webhook = create_webhook(installation, "ended", OPENED)
    open_editor(page, installation, webhook, "Ended")
    page.context.clear_cookies()

    page.get_by_label("Payload filter").fill('{"action": ["opened"]}')

    expect(filter_result(page)).to_contain_text("You are signed out.")
    expect(page.get_by_label("Prompt")).to_have_value("Review it.")


def test_delivery_of_an_unselected_webhook_fails_the_webhook_check(page, installation):
    webhook = create_webhook(installation, "one of two", OPENED)
    other = create_webhook(installation, "other of two", CLOSED)
    open_editor(page, installation, webhook, "Other")

    page.get_by_label("other of two").check()
    expect(page.get_by_label("Test on").get_by_role("option")).to_have_count(2)
    page.get_by_label("one of two").uncheck()

    expect(filter_result(page)).to_contain_text(
        "Would not trigger Webhook check: failed. Payload check: passed. "
        "No filter: every delivery of the selected webhooks starts a run. "
        "The delivery is from one of two, which is not selected."
    )
    wait_for_htmx(page)
    filter_result(page).get_by_role("button", name="Select one of two").click()
    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(filter_result(page)).to_be_focused()
    expect(page.get_by_label("one of two")).to_be_checked()
    press(page, "Create")
    expect_text(page, "Automation created.")
    selected_uids = get_automation(installation, "Other").selected_webhook_uids()
    assert selected_uids == {webhook.webhook.uid, other.webhook.uid}


@pytest.mark.parametrize("with_scripts", [True, only_in_proof(False)], ids=["with scripts", "without scripts"])
def test_click_on_a_field_selects_the_webhook_if_none_is_selected(
    new_profile, signed_in_state, installation, with_scripts
):
    name = f"Clicked {'with' if with_scripts else 'without'} scripts"
    create_webhook(installation, "not this one")
    create_webhook(installation, "nor this one")
    page = new_profile(java_script_enabled=with_scripts, storage_state=signed_in_state).new_page()
    page.goto("/f/default/automations/new")
    # The page was opened before this webhook was created, so it has no checkbox for it.
    webhook = create_webhook(installation, "sender", OPENED)
    press(page, "Check")
    expect(page.get_by_label("Test on")).to_contain_text("sender")
    if with_scripts:
        wait_for_htmx(page)
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            page.get_by_label("Test on").select_option(index=0)
        wait_for_htmx(page)
    else:
        page.get_by_label("Test on").select_option(index=0)
        press(page, "Check")
    expect(filter_result(page)).to_contain_text("Incomplete Select a webhook. Its deliveries start the automation.")
    expect(filter_result(page).get_by_role("button", name="Select sender")).to_be_visible()

    press(page, 'action "opened"')

    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(filter_result(page)).to_contain_text("sender is now selected, because it received this delivery.")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Prompt").fill("Review it.")
    press(page, "Create")
    expect_text(page, "Automation created.")
    assert get_automation(installation, name).selected_webhook_uids() == {webhook.webhook.uid}


def wait_for_htmx(page: Page) -> None:
    """Wait until htmx has replaced all parts of the page. A part that is being replaced ignores clicks."""
    expect(page.locator(".htmx-request, .htmx-swapping, .htmx-settling")).to_have_count(0)


@pytest.mark.parametrize("with_scripts", [True, only_in_proof(False)], ids=["with scripts", "without scripts"])
def test_new_automation_replays_the_delivery_that_it_was_tested_on(
    new_profile, signed_in_state, installation, with_scripts
):
    name = f"Tested {'with' if with_scripts else 'without'} scripts"
    webhook = create_webhook(installation, "under test", CLOSED)
    tested_delivery = deliver(installation, webhook, OPENED)
    deliver(installation, webhook, CLOSED | {"n": 2})
    page = new_profile(java_script_enabled=with_scripts, storage_state=signed_in_state).new_page()
    page.goto(f"/f/default/automations/new?delivery={tested_delivery}")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Prompt").fill("Review it.")
    press(page, 'action "opened"')
    press(page, "Create")
    expect_text(page, "Automation created.")
    offer = page.locator("form.offer")
    expect(offer.get_by_role("link")).to_have_attribute("href", f"/f/default/deliveries/{tested_delivery}")
    automation = get_automation(installation, name)

    offer.get_by_role("button", name="Replay the tested delivery").click()

    expect_heading(page, f"Run of {name}")
    [run] = runs_of(installation, name)
    assert delivery_id(run.delivery_key or b"") == tested_delivery
    expect_text(page, "replay 1")
    # A delivery that would not trigger the automation is not offered.
    for delivery in (deliver(installation, webhook, CLOSED | {"n": 3}), "dlv_nobody"):
        page.goto(f"/f/default/automations/{automation.id}?tested_delivery={delivery}")
        expect_heading(page, name)
        expect(offer).to_have_count(0)
    # The automation may change while the page offers the delivery.
    page.goto(f"/f/default/automations/{automation.id}?tested_delivery={tested_delivery}")
    installation.management.automations.set_enabled(installation.may, automation.id, False)
    offer.get_by_role("button").click()
    expect(page.get_by_role("alert")).to_contain_text("is disabled. Enable it first. Nothing was started.")
    expect(offer).to_have_count(0)


@pytest.mark.proof
def test_pages_show_an_automations_runs_despite_many_newer_ones(page, installation):
    webhook = create_webhook(installation, "busy")
    seldom = create_automation(installation, "Seldom", webhook.webhook.uid, payload={"action": ["opened"]})
    often = create_automation(installation, "Often", webhook.webhook.uid)
    create_automation(installation, "Never", webhook.webhook.uid, payload={"action": ["nothing"]})
    deliver(installation, webhook, OPENED)
    [run] = runs_of(installation, "Seldom")
    delivery = delivery_id(run.delivery_key or b"")
    for _ in range(101):
        installation.management.log.replay(installation.may, delivery, often)

    page.goto("/f/default/automations")
    expect(page.get_by_role("row").filter(has_text="Never")).to_contain_text("none yet")
    last_run = page.get_by_role("row").filter(has_text="Seldom").locator("td[data-name='Last run'] a")
    assert str(last_run.get_attribute("href")).endswith(run.id.hex())
    page.goto(f"/f/default/automations/{seldom}")
    expect(page.locator("#run-list tbody tr")).to_have_count(1)
    page.goto(f"/f/default/automations/{often}")
    expect(page.locator("#run-list tbody tr")).to_have_count(20)
    page.get_by_role("link", name="All runs of this automation").click()
    expect(page.locator("#run-list tbody tr")).to_have_count(50)
    expect(page.get_by_label("Automation")).to_have_value(often)


@pytest.mark.proof
def test_action_bar_never_covers_the_focused_element(page, installation):
    webhook = create_webhook(
        installation, "laptop", *[OPENED | {"n": n, "more": {f"k{k}": k for k in range(30)}} for n in range(8)]
    )
    page.set_viewport_size({"width": 1280, "height": 720})
    open_editor(page, installation, webhook, "Covered")
    create = page.get_by_role("button", name="Create")
    expect(create).to_be_in_viewport(ratio=1)
    page.get_by_label("Name", exact=True).focus()
    stops = 0

    while not page.evaluate("document.activeElement.matches('.bar button')"):
        page.keyboard.press("Tab")
        stops += 1
        covered_element = page.evaluate(
            """() => {
                const bar = document.querySelector(".bar"), focused = document.activeElement;
                if (bar.contains(focused) || focused.matches("textarea, .field-tree")) return "";
                const box = focused.getBoundingClientRect(), top = bar.getBoundingClientRect().top;
                return box.bottom > top || box.top < 0 ? focused.outerHTML : "";
            }"""
        )
        assert covered_element == ""
        expect(create).to_be_in_viewport(ratio=1)

    assert stops > 30


def test_backtest_lists_the_stored_deliveries_that_match(page, installation):
    webhook = create_webhook(installation, "tested", CLOSED, *[OPENED | {"n": n} for n in range(8)], CLOSED | {"n": 9})
    open_editor(page, installation, webhook, "Tested")

    page.get_by_label("Payload filter").fill('{"action": ["opened"]}')

    expect_heading(page, "Backtest: matches 8 of the last 10")
    page.get_by_text("When runs start").click()
    page.get_by_label("Separate limit for each value of").fill("/n")
    page.get_by_label("Wait for newer deliveries").fill("3600")
    press(page, "Check")
    expect_text(page, "Their runs have 8 different keys.")
    expect_heading(page, "Not matching (2)")
    expect(filter_result(page)).to_contain_text("Would not trigger")
    page.get_by_role("button", name="test the filter on").first.click()
    expect(filter_result(page)).to_contain_text("Would trigger")
    page.get_by_text("2 more").click()
    page.get_by_label("Payload filter").fill('{"action": ["opened"], "n": {"not_in": [1000]}}')
    expect(page.get_by_role("row", name="/n not_in")).to_be_visible()
    expect(page.locator("details[id^=more-matching] li").first).to_be_visible()
    href = page.locator("#outcome a").first.get_attribute("href")
    assert re.fullmatch(r"/f/default/deliveries/dlv_[0-9a-f]{32}", str(href))


def test_automation_is_created_with_the_keyboard_alone(page, installation):
    webhook = create_webhook(installation, "keys", OPENED)
    page.goto(f"/f/default/automations/new?webhook={webhook.webhook.uid}")

    def tab_to(selector: str) -> None:
        for _ in range(120):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    tab_to("#name")
    page.keyboard.type("By keyboard")
    tab_to("#prompt")
    page.keyboard.type("Do it.")
    tab_to("button[name=add]")
    page.keyboard.press("Space")
    expect(page.locator("button[name=add]").first).to_have_attribute("aria-pressed", "true")
    expect(page.locator("button[name=add]").first).to_be_focused()
    page.locator("#name").focus()
    page.keyboard.press("Enter")

    expect_text(page, "Automation created.")
    assert get_automation(installation, "By keyboard").filters[0].payload is not None


def test_rejected_form_keeps_the_input(page, installation):
    webhook = create_webhook(installation, "kept", OPENED)
    create_automation(installation, "Taken", webhook.webhook.uid)
    open_editor(page, installation, webhook, "Taken")
    page.get_by_label("Prompt").fill("\n two lines\n</textarea><b>")
    page.get_by_label("Payload filter").fill('{ "action":["opened"] }')
    page.get_by_label("Enabled").uncheck()

    page.get_by_role("button", name="Create").last.click()

    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(name).to_have_accessible_description(re.compile("already has an automation named 'Taken'"))
    expect(page.get_by_label("Prompt")).to_have_value("\n two lines\n</textarea><b>")
    expect(page.get_by_label("Payload filter")).to_have_value('{ "action":["opened"] }')
    expect(page.get_by_label("kept")).to_be_checked()
    expect(page.get_by_label("Enabled")).not_to_be_checked()


def test_saving_without_a_change_creates_no_version(page, installation):
    webhook = create_webhook(installation, "same", OPENED)
    prompt = "\nAn empty line first, and \ttabs.\n"
    triggers = [received(webhook.webhook.uid)]
    triggers[0]["filter"]["payload"] = {"n": [1.5, 2**60], "\u202e": {"exists": False}}
    automation = automation_created(installation.management, installation.may, "Same", prompt=prompt, triggers=triggers)

    page.goto(f"/f/default/automations/{automation.id}/edit")
    page.get_by_role("button", name="Save").first.click()

    expect_text(page, "No changes to save")
    assert get_automation(installation, "Same") == automation


def test_saving_over_another_members_change_warns_first(page, installation):
    webhook = create_webhook(installation, "raced", OPENED)
    automation_id = create_automation(installation, "Raced", webhook.webhook.uid)
    page.goto(f"/f/default/automations/{automation_id}/edit")
    automation_changed(installation.management, installation.may, automation_id, prompt="Theirs.")

    page.get_by_label("Prompt").fill("Ours.")
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_role("alert")).to_contain_text("Version 2 of this automation was saved while you were editing")
    assert get_automation(installation, automation_id).prompt == "Theirs."
    page.get_by_role("button", name="Save").first.click()

    expect_text(page, "Automation saved.")
    assert get_automation(installation, automation_id).prompt == "Ours."


def test_deleted_webhooks_of_an_automation_are_shown_and_flagged(page, installation):
    deleted, existing = create_webhook(installation, "gone"), create_webhook(installation, "existing")
    automation_id = create_automation(
        installation, "Selects deleted", deleted.webhook.uid, existing.webhook.uid, "wh_nobody"
    )
    installation.management.webhooks.delete(installation.may, "gone")

    page.goto("/f/default/automations")
    row = page.get_by_role("row").filter(has_text="Selects deleted")
    expect(row).to_contain_text("gone deleted")
    expect(row).to_contain_text("wh_nobody unknown")
    page.goto(f"/f/default/automations/{automation_id}")
    expect(page.locator(".warning")).to_have_count(2)
    page.goto(f"/f/default/automations/{automation_id}/edit")
    expect(page.get_by_label("wh_nobody unknown")).to_be_checked()
    page.get_by_label("gone deleted").uncheck()
    page.get_by_role("button", name="Save").first.click()

    expect_text(page, "Automation saved.")
    selected_uids = get_automation(installation, automation_id).selected_webhook_uids()
    assert selected_uids == {existing.webhook.uid, "wh_nobody"}


def test_several_triggers_are_edited_as_a_json_list(page, installation):
    first = create_webhook(installation, "first of list", OPENED)
    second = create_webhook(installation, "second of list")
    triggers: list[Any] = [received(webhook.webhook.uid) for webhook in (first, second)]
    triggers.append(cron_fired("daily", "@daily"))
    automation = automation_created(
        installation.management, installation.may, "Listed", prompt="Do it.", triggers=triggers
    )
    page.goto(f"/f/default/automations/{automation.id}/edit")
    field = page.get_by_label("Triggers", exact=True)
    expect(filter_result(page)).to_contain_text("Would trigger")
    expect_heading(page, "Trigger 2: would not trigger")

    triggers[0]["filter"]["payload"] = {"action": {}}
    field.fill(json.dumps(triggers))
    expect(page.locator("#filter-faults")).to_contain_text("/0/filter/payload/action")
    triggers[0]["filter"]["payload"] = {"action": ["closed"]}
    field.fill(json.dumps(triggers))
    expect(filter_result(page)).to_contain_text("Would not trigger")
    page.get_by_role("button", name="Save").first.click()

    expect_text(page, "Automation saved.")
    saved = get_automation(installation, automation.id)
    assert saved.spec.as_json()["triggers"] == triggers


def test_automation_defined_by_a_file_can_be_disabled_but_not_edited(page, installation):
    installation.management.factories.create(installation.may_administer, "files")
    may = installation.management.access.operator("files")
    webhook = installation.management.webhooks.create(may, {"name": "hook"})
    triggers = [received(webhook.webhook.uid)]
    automation = automation_created(installation.management, may, "Filed", prompt="Do it.", triggers=triggers)
    installation.management.factories.define_by_files(may)

    page.goto(f"/f/files/automations/{automation.id}")
    expect_text(page, "Definition files define this factory.")
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)
    press(page, "Disable")
    expect_text(page, "Automation disabled.")
    answer = page.goto(f"/f/files/automations/{automation.id}/edit")

    assert answer is not None
    assert answer.status == 409


def test_hostile_payloads_and_names_are_shown_as_text(page, installation):
    name = "<img src=x onerror=alert(1)>\u202e&quot;"
    body = {
        "__proto__": {"x": "polluted"},
        "<script>alert(1)</script>": "</textarea><script>alert(2)</script>",
        "\u202eyek": "\u202e",
        "": {"a/b~c": "pointed"},
        "long": "x" * 200_000,
        "deep": 1,
    }
    raw = json.dumps(body)[:-1].encode() + b', "pit": ' + b"[" * 500 + b"]" * 500 + b"}"
    webhook = create_webhook(installation, name, raw)
    open_editor(page, installation, webhook, name)

    press(page, 'x "polluted"')
    expect(page.get_by_label("Payload filter")).to_have_value('{\n  "__proto__": {"x": ["polluted"]}\n}')
    expect(filter_result(page)).to_contain_text("Would trigger")
    press(page, '"pointed"')
    expect(page.get_by_role("row", name="//a~1b~0c in")).to_be_visible()
    press(page, "alert(2)")
    expect(page.get_by_role("row", name="yes")).to_have_count(3)
    page.get_by_role("button", name="Create").last.click()
    expect_text(page, "Automation created.")
    page.goto("/f/default/automations")

    assert page.evaluate("({}).x") is None
    assert page.locator("main img, main script, main b").count() == 0
    assert "\u202e" not in page.locator("main").inner_text()


@pytest.mark.proof
def test_automation_pages_are_accessible(check_accessibility, installation):
    installation.management.factories.create(installation.may_administer, "checked")
    may = installation.management.access.operator("checked")
    webhook = create_webhook(installation, "github", OPENED, CLOSED, may=may)
    automation_id = create_automation(
        installation, "Review pull requests", webhook.webhook.uid, payload={"action": ["opened"]}, may=may
    )

    def mistype(page: Page) -> None:
        page.get_by_label("Payload filter").fill('{"action": ["opened",\n  "pull_request": {}}')
        expect(filter_result(page)).to_contain_text("The filter is not valid JSON.")

    hostile_delivery = deliver(
        installation,
        webhook,
        {"k" * 300: "v" * 300, "\u202eyek": ["<b>"] * 40, "a": {"b": {"c": {"d": {"e": "x" * 99}}}}},
    )
    check_accessibility(
        "automation-mistyped",
        f"/f/checked/automations/{automation_id}/edit?delivery={hostile_delivery}",
        prepare=mistype,
    )

    payload = {
        "action": {"$any": [["reopened"], {"$prefix": "open", "$not": {"$suffix": "x"}}]},
        "pull_request": {"labels": {"$not": {"name": {"$glob": "*-wip"}}}, "number": {"$gt": 5}},
    }
    with_operators = create_automation(
        installation, "Review by operators", webhook.webhook.uid, payload=payload, may=may
    )

    def unfold_help(page: Page) -> None:
        page.get_by_text("Filter syntax").click()
        expect_text(page, "at least one of the alternatives matches")

    check_accessibility("automation-operators", f"/f/checked/automations/{with_operators}/edit", prepare=unfold_help)


# Run policies


def test_paused_automation_shows_the_reason_and_is_enabled_again(page, installation):
    webhook = create_webhook(installation, "of failures", OPENED)
    automation_id = create_automation(installation, "Fails too often", webhook.webhook.uid)
    automation_changed(installation.management, installation.may, automation_id, policy={"pause_after_failures": 2})
    with closing(open_database(f"sqlite:///{installation.service.data_dir / 'hookmill.db'}")) as database:
        with database.write() as tx:
            tx.run("UPDATE automations SET failures_in_row = 2 WHERE id = :id", id=automation_id)
        pause_failing(database, time.time_ns() // 1_000)
    page.goto(f"/f/default/automations/{automation_id}")
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    expect_text(page, "Its last 2 runs failed. Correct the cause, and enable it again.")
    page.get_by_role("button", name="Enable", exact=True).click()

    expect(page.get_by_text("enabled", exact=True)).to_be_visible()
    assert page.get_by_text("Its last 2 runs failed").count() == 0
    installation.management.automations.delete(installation.may, automation_id)


# Schedules


# Runs by hand


def test_double_click_starts_one_run(page, installation):
    trigger = cron_fired("yearly", "@yearly")
    automation = automation_created(installation.management, installation.may, "Clicked", triggers=[trigger])
    page.goto(f"/f/default/automations/{automation.id}/run")
    posts: list[Route] = []

    def hold_first(route: Route) -> None:
        posts.append(route)
        if len(posts) > 1:
            route.continue_()

    page.route("**/run", hold_first)
    button = page.get_by_role("button", name="Run now")

    box = button.bounding_box()
    assert box is not None
    with page.expect_request("**/run"):
        page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    posts[0].continue_()

    page.wait_for_url(re.compile("/runs/run_"))
    page.unroute_all()
    assert (len(posts), len(runs_of(installation, "Clicked"))) == (1, 1)
    page.go_back()
    button.click()
    page.wait_for_url(re.compile("/runs/run_"))
    assert len(runs_of(installation, "Clicked")) == 2


def test_member_starts_a_run_by_hand(page, installation):
    webhook = create_webhook(installation, "of a run by hand")
    automation_id = create_automation(installation, "By hand", webhook.webhook.uid)
    page.goto(f"/f/default/automations/{automation_id}")
    page.get_by_role("link", name="Run now…").click()
    page.get_by_label("Payload").fill('{"n": ')
    press(page, "Run now")
    expect_text(page, "The payload is not JSON")
    page.get_by_label("Payload").fill('{"n": 1}')
    press(page, "Run now")

    expect(page.get_by_role("status").filter(has_text="Run started.")).to_be_visible()
    expect_text(page, "ada@example.com, by hand")
    [run] = runs_of(installation, "By hand")
    assert (run.person_name, run.has_payload) == ("ada@example.com", True)
    page.goto("/f/default/runs")
    expect(page.get_by_role("row", name="By hand").first).to_contain_text("ada@example.com by hand")
    page.goto(f"/f/default/automations/{automation_id}")
    expect(page.get_by_role("row", name="ada@example.com by hand")).to_be_visible()
    installation.management.automations.set_enabled(installation.may, automation_id, False)
    page.goto(f"/f/default/automations/{automation_id}/run")
    press(page, "Run now")
    expect_text(page, "is disabled. Enable it first.")
    expect(page.get_by_role("link", name="Run now…")).to_have_count(0)
    installation.management.automations.delete(installation.may, automation_id)


def let_an_hour_pass(installation: Installation) -> None:
    """Move the stored schedules an hour into the past."""
    with closing(sqlite3.connect(installation.service.data_dir / "hookmill.db", timeout=10)) as database, database:
        hour = 3_600_000_000
        database.execute(f"UPDATE schedules SET last_at = last_at - {hour}, next_at = next_at - {hour}, "
                         f"anchor = anchor - {hour}")  # fmt: skip


def test_scheduled_run_shows_its_schedule(page, installation):
    trigger = cron_fired("often", "@every 1h")
    automation = automation_created(installation.management, installation.may, "Every hour", triggers=[trigger])
    let_an_hour_pass(installation)
    deadline = time.monotonic() + 10
    while not (runs := runs_of(installation, "Every hour")):
        assert time.monotonic() < deadline, "the schedule fires"
        page.wait_for_timeout(50)
    page.goto(f"/f/default/runs/{run_id(runs[0].id)}")

    expect_text(page, "schedule often")
    expect_text(page, "Scheduled for (UTC)")
    installation.management.automations.delete(installation.may, automation.id)
