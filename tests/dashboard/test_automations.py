"""Automations: written with the filter editor, looked at, switched and deleted."""

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from hookmill.domain.automation import Automation
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.permission import MayManage, Role
from hookmill.domain.run import Run
from hookmill.management import WebhookWithSecret
from hookmill.store.database import open_database
from hookmill.store.pauses import pause_failing
from tests.dashboard.conftest import PASSWORD, Installation, sign_in

OPENED = {"action": "opened", "pull_request": {"draft": False, "number": 7, "labels": [{"name": "bug"}]}}
CLOSED = OPENED | {"action": "closed"}
Visitor = Callable[..., BrowserContext]


@pytest.fixture(autouse=True)
def room_for_webhooks(installation: Installation) -> Iterator[None]:
    """A factory has room for 20: each test's are deleted after it."""
    yield
    for each in installation.management.webhooks.all(installation.may):
        installation.management.webhooks.delete(installation.may, each.uid)


def webhook(installation: Installation, name: str, *bodies: Any, may: MayManage | None = None) -> WebhookWithSecret:
    """A webhook that these deliveries came in on."""
    made = installation.management.webhooks.create(may or installation.may, name)
    for body in bodies:
        deliver(installation, made, body)
    return made


def deliver(installation: Installation, made: WebhookWithSecret, body: Any) -> str:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = installation.service.post(made, raw)
    assert answer.status == 202
    return answer.delivery_id


def automation(
    installation: Installation, name: str, *uids: str, payload: Any = None, may: MayManage | None = None
) -> str:
    chosen = {"webhook_ids": list(uids)} | ({"payload": payload} if payload is not None else {})
    triggers = [{"provider": "webhook", "event": "received", "filter": chosen}]
    made = installation.management.automations.create(
        may or installation.may, name, prompt="Review it.", triggers=triggers
    )
    return made.id


def runs_of(installation: Installation, name: str) -> list[Run]:
    return [run for run in installation.management.runs.newest(installation.may) if run.automation_name == name]


def begin(page: Page, installation: Installation, made: WebhookWithSecret, name: str) -> None:
    """A new automation, begun from a webhook."""
    page.goto(installation.url(f"/f/default/automations/new?webhook={made.webhook.uid}"))
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Prompt").fill("Review it.")


def held_requests(page: Page, address: str) -> Callable[[], Route]:
    """Requests there wait. Each call gives the next of them, once it is made."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    def next_one() -> Route:
        deadline = time.monotonic() + 10
        while not held:
            assert time.monotonic() < deadline, "no such request was made"
            page.wait_for_timeout(10)
        return held.pop(0)

    page.route(address, hold)
    return next_one


def filter_result(page: Page) -> Any:
    return page.locator("#result")


def test_a_filter_clicked_from_a_delivery_starts_matching_runs(page: Page, installation: Installation):
    made = webhook(installation, "github", OPENED)
    begin(page, installation, made, "Review")

    page.get_by_role("button", name='action "opened"').click()
    page.get_by_role("button", name='name "bug"').click()
    expect(page.get_by_label("Payload filter")).to_have_value(
        '{\n  "action": ["opened"],\n  "pull_request": {"labels": {"name": ["bug"]}}\n}'
    )
    expect(filter_result(page)).to_have_text("Would trigger Webhook check: passed. Payload check: passed.")
    expect(page.get_by_role("row", name='/pull_request/labels/0/name in ["bug"] "bug" yes')).to_be_visible()
    page.get_by_role("button", name="Create").first.click()
    expect(page.get_by_text("Automation created.")).to_be_visible()
    matching = deliver(installation, made, OPENED | {"n": 2})
    deliver(installation, made, CLOSED)

    [run] = runs_of(installation, "Review")
    assert delivery_id(run.delivery_key or b"") == matching


def test_the_result_follows_what_is_typed(page: Page, installation: Installation):
    made = webhook(installation, "typed", OPENED)
    begin(page, installation, made, "Typed")
    typed = page.get_by_label("Payload filter")

    typed.fill('{"action": ["closed"]}')
    expect(filter_result(page)).to_contain_text("Would not trigger Webhook check: passed. Payload check: failed.")
    expect(page.get_by_role("row", name='/action in ["closed"] "opened" no')).to_be_visible()
    expect(typed).to_have_attribute("aria-invalid", "false")

    typed.fill('{"action":\n  opened}')
    expect(filter_result(page)).to_contain_text("The filter is not valid JSON.")
    expect(page.locator("#filter-faults")).to_contain_text("Line 2, column 3: Expecting value.")
    expect(typed).to_have_attribute("aria-invalid", "true")

    typed.fill('{"pull_request": {"draft": "no"}}')
    expect(page.locator("#filter-faults")).to_contain_text("/pull_request/draft")

    typed.fill("")
    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(typed).to_have_attribute("aria-invalid", "false")


def typed_webhook(installation: Installation, name: str, *events: str) -> WebhookWithSecret:
    """A webhook that deliveries of these event types came in on."""
    made = installation.management.webhooks.create(installation.may, name, event_header="X-Kind")
    for number, event in enumerate(events):
        assert installation.service.post(made, b'{"n": %d}' % number, headers={"X-Kind": event}).status == 202
    return made


def test_an_event_type_is_clicked_tried_and_saved(page: Page, installation: Installation):
    made = typed_webhook(installation, "typed", "refunded", "paid")
    begin(page, installation, made, "Payments")
    typed = page.get_by_label("Event types")

    page.get_by_role("button", name="paid", exact=True).click()
    expect(typed).to_have_value("paid")
    expect(page.get_by_role("button", name="paid", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(filter_result(page)).to_have_text(
        "Would trigger Webhook check: passed. Event check: passed. Payload check: passed."
    )
    expect(page.get_by_role("heading", name="Backtest: matches 1 of the last 2")).to_be_visible()

    typed.fill("refunded\n\n chargeback ")
    expect(filter_result(page)).to_contain_text("Would not trigger Webhook check: passed. Event check: failed.")
    expect(page.locator("#outcome")).to_contain_text("event type paid, expected refunded or chargeback")
    expect(page.get_by_role("button", name="paid", exact=True)).to_have_attribute("aria-pressed", "false")

    typed.fill("x" * 201)
    expect(page.locator("#event-faults")).to_contain_text("a text of 1 to 200 printable characters")
    expect(typed).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Payload filter")).to_have_attribute("aria-invalid", "false")

    typed.fill("refunded\nchargeback")
    expect(typed).to_have_attribute("aria-invalid", "false")
    page.get_by_role("button", name="Create").first.click()
    expect(page.get_by_text("Automation created.")).to_be_visible()
    expect(page.get_by_text("with event type refunded or chargeback")).to_be_visible()
    [trigger] = installation.management.automations.get(installation.may, "Payments").triggers
    assert (trigger.event_types, trigger.payload) == (("refunded", "chargeback"), None)


def test_the_editor_begins_with_the_event_types_that_are_stored(page: Page, installation: Installation):
    made = typed_webhook(installation, "stored types", "paid")
    selected = {"webhook_ids": [made.webhook.uid], "event": ["Push Hook", "paid"]}
    trigger = {"provider": "webhook", "event": "received", "filter": selected}
    stored = installation.management.automations.create(
        installation.may, "Stored types", prompt="Look.", triggers=[trigger]
    )
    page.goto(installation.url(f"/f/default/automations/{stored.id}/edit"))

    expect(page.get_by_label("Event types")).to_have_value("Push Hook\npaid")
    page.get_by_role("button", name="paid", exact=True).click()
    expect(page.get_by_label("Event types")).to_have_value("Push Hook")


def test_two_quick_clicks_are_both_in_the_filter(page: Page, installation: Installation):
    made = webhook(installation, "quick", OPENED)
    begin(page, installation, made, "Quick")
    next_request = held_requests(page, "**/automations/new*")

    page.get_by_role("button", name="number 7").click()
    first = next_request()
    page.get_by_role("button", name="draft false").click()
    first.continue_()
    next_request().continue_()

    expect(page.get_by_label("Payload filter")).to_have_value(
        '{\n  "pull_request": {"number": [7], "draft": [false]}\n}'
    )
    expect(page.get_by_role("button", name="number 7")).to_have_attribute("aria-pressed", "true")


def test_nothing_is_saved_while_a_click_is_answered(page: Page, installation: Installation):
    made = webhook(installation, "hasty", OPENED)
    begin(page, installation, made, "Hasty")
    next_request = held_requests(page, "**/automations/new*")

    page.get_by_role("button", name="number 7").click()
    first = next_request()
    for button in page.get_by_role("button", name="Create").all():
        expect(button).to_be_disabled()
    first.continue_()
    page.unroute("**/automations/new*")
    page.get_by_role("button", name="Create").first.click()

    expect(page.get_by_text("Automation created.")).to_be_visible()
    assert installation.management.automations.get(installation.may, "Hasty").triggers[0].payload is not None


def test_what_is_typed_while_a_click_is_answered_is_kept(page: Page, installation: Installation):
    made = webhook(installation, "meanwhile", OPENED)
    begin(page, installation, made, "Meanwhile")
    next_request = held_requests(page, "**/automations/new*")

    page.get_by_role("button", name="number 7").click()
    first = next_request()
    page.get_by_label("Payload filter").fill('{"mine": [1]}')
    first.continue_()
    next_request().continue_()

    expect(page.get_by_role("row", name="/mine in")).to_be_visible()
    expect(page.get_by_label("Payload filter")).to_have_value('{"mine": [1]}')


def test_a_delivery_that_comes_in_meanwhile_is_there_to_be_clicked(page: Page, installation: Installation):
    made = webhook(installation, "late")
    begin(page, installation, made, "Late")
    expect(page.get_by_text("No deliveries from the selected webhooks yet.")).to_be_visible()

    deliver(installation, made, OPENED)
    page.get_by_role("button", name="Check").click()

    expect(page.get_by_role("button", name='action "opened"')).to_be_visible()


def test_a_check_after_the_session_has_ended_leaves_what_was_typed(page: Page, installation: Installation):
    made = webhook(installation, "ended", OPENED)
    begin(page, installation, made, "Ended")
    page.context.clear_cookies()

    page.get_by_label("Payload filter").fill('{"action": ["opened"]}')

    expect(filter_result(page)).to_contain_text("You are signed out.")
    expect(page.get_by_label("Prompt")).to_have_value("Review it.")


def test_a_delivery_of_another_webhook_fails_the_webhook_check(page: Page, installation: Installation):
    made = webhook(installation, "one of two", OPENED)
    other = webhook(installation, "other of two", CLOSED)
    begin(page, installation, made, "Other")

    page.get_by_label("other of two").check()
    expect(page.get_by_label("Test on").get_by_role("option")).to_have_count(2)
    page.get_by_label("one of two").uncheck()

    expect(filter_result(page)).to_contain_text(
        "Would not trigger Webhook check: failed. Payload check: passed. "
        "No filter: every delivery of the selected webhooks starts a run. "
        "The delivery is from one of two, which is not selected."
    )
    settled(page)
    filter_result(page).get_by_role("button", name="Select one of two").click()
    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(filter_result(page)).to_be_focused()
    expect(page.get_by_label("one of two")).to_be_checked()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("Automation created.")).to_be_visible()
    saved = installation.management.automations.get(installation.may, "Other").selected_webhook_uids()
    assert saved == {made.webhook.uid, other.webhook.uid}


@pytest.mark.parametrize("scripts", [True, False])
def test_a_click_on_a_field_chooses_the_webhook_if_none_is_chosen(
    new_profile: Visitor, signed_in_state: Any, installation: Installation, scripts: bool
):
    name = f"Clicked {'with' if scripts else 'without'} scripts"
    webhook(installation, "not this one")
    webhook(installation, "nor this one")
    page = new_profile(java_script_enabled=scripts, storage_state=signed_in_state).new_page()
    page.goto(installation.url("/f/default/automations/new"))
    # A webhook that is younger than the page is not among its boxes.
    made = webhook(installation, "sender", OPENED)
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_label("Test on")).to_contain_text("sender")
    if scripts:
        settled(page)
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            page.get_by_label("Test on").select_option(index=0)
        settled(page)
    else:
        page.get_by_label("Test on").select_option(index=0)
        page.get_by_role("button", name="Check").click()
    expect(filter_result(page)).to_contain_text("Incomplete Select a webhook. Its deliveries start the automation.")
    expect(filter_result(page).get_by_role("button", name="Select sender")).to_be_visible()

    page.get_by_role("button", name='action "opened"').click()

    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(filter_result(page)).to_contain_text("sender is now selected, because it received this delivery.")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Prompt").fill("Review it.")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("Automation created.")).to_be_visible()
    assert installation.management.automations.get(installation.may, name).selected_webhook_uids() == {made.webhook.uid}


def settled(page: Page) -> None:
    """Until what was just swapped in answers: a list or a button that is being replaced takes no click."""
    expect(page.locator(".htmx-request, .htmx-swapping, .htmx-settling")).to_have_count(0)


@pytest.mark.parametrize("scripts", [True, False])
def test_a_new_automation_is_run_on_the_delivery_that_it_was_tried_on(
    new_profile: Visitor, signed_in_state: Any, installation: Installation, scripts: bool
):
    name = f"Tried {'with' if scripts else 'without'} scripts"
    made = webhook(installation, "tried", CLOSED)
    tried = deliver(installation, made, OPENED)
    deliver(installation, made, CLOSED | {"n": 2})
    page = new_profile(java_script_enabled=scripts, storage_state=signed_in_state).new_page()
    page.goto(installation.url(f"/f/default/automations/new?delivery={tried}"))
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Prompt").fill("Review it.")
    page.get_by_role("button", name='action "opened"').click()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("Automation created.")).to_be_visible()
    offer = page.locator("form.offer")
    expect(offer.get_by_role("link")).to_have_attribute("href", f"/f/default/deliveries/{tried}")
    known = installation.management.automations.get(installation.may, name)

    offer.get_by_role("button", name="Replay the tested delivery").click()

    expect(page.get_by_role("heading", name=f"Run of {name}")).to_be_visible()
    [run] = runs_of(installation, name)
    assert delivery_id(run.delivery_key or b"") == tried
    expect(page.get_by_text("replay 1")).to_be_visible()
    # What would not trigger is not offered, and what is offered may have changed since.
    for untried in (deliver(installation, made, CLOSED | {"n": 3}), "dlv_nobody"):
        page.goto(installation.url(f"/f/default/automations/{known.id}?tested_delivery={untried}"))
        expect(page.get_by_role("heading", name=name)).to_be_visible()
        expect(offer).to_have_count(0)
    page.goto(installation.url(f"/f/default/automations/{known.id}?tested_delivery={tried}"))
    installation.management.automations.set_enabled(installation.may, known.id, False)
    offer.get_by_role("button").click()
    expect(page.get_by_role("alert")).to_contain_text("is disabled. Enable it first. Nothing was started.")
    expect(offer).to_have_count(0)


def test_a_run_is_found_from_its_automation_however_many_came_after_it(page: Page, installation: Installation):
    made = webhook(installation, "busy")
    seldom = automation(installation, "Seldom", made.webhook.uid, payload={"action": ["opened"]})
    often = automation(installation, "Often", made.webhook.uid)
    automation(installation, "Never", made.webhook.uid, payload={"action": ["nothing"]})
    deliver(installation, made, OPENED)
    [run] = runs_of(installation, "Seldom")
    delivery = delivery_id(run.delivery_key or b"")
    for _ in range(101):
        installation.management.log.replay(installation.may, delivery, often)

    page.goto(installation.url("/f/default/automations"))
    expect(page.get_by_role("row").filter(has_text="Never")).to_contain_text("none yet")
    last = page.get_by_role("row").filter(has_text="Seldom").locator("td[data-name='Last run'] a")
    assert str(last.get_attribute("href")).endswith(run.id.hex())
    page.goto(installation.url(f"/f/default/automations/{seldom}"))
    expect(page.locator("#run-list tbody tr")).to_have_count(1)
    page.goto(installation.url(f"/f/default/automations/{often}"))
    expect(page.locator("#run-list tbody tr")).to_have_count(20)
    page.get_by_role("link", name="All runs of this automation").click()
    expect(page.locator("#run-list tbody tr")).to_have_count(50)
    expect(page.get_by_label("Automation")).to_have_value(often)


def test_on_a_laptop_the_actions_never_cover_the_focus(page: Page, installation: Installation):
    made = webhook(
        installation, "laptop", *[OPENED | {"n": n, "more": {f"k{k}": k for k in range(30)}} for n in range(8)]
    )
    page.set_viewport_size({"width": 1280, "height": 720})
    begin(page, installation, made, "Reached")
    create = page.get_by_role("button", name="Create")
    expect(create).to_be_in_viewport(ratio=1)
    page.get_by_label("Name", exact=True).focus()
    passed = 0

    while not page.evaluate("document.activeElement.matches('.bar button')"):
        page.keyboard.press("Tab")
        passed += 1
        hidden = page.evaluate(
            """() => {
                const bar = document.querySelector(".bar"), focused = document.activeElement;
                if (bar.contains(focused) || focused.matches("textarea, .field-tree")) return "";
                const box = focused.getBoundingClientRect(), top = bar.getBoundingClientRect().top;
                return box.bottom > top || box.top < 0 ? focused.outerHTML : "";
            }"""
        )
        assert hidden == ""
        expect(create).to_be_in_viewport(ratio=1)

    assert passed > 30


def test_the_backtest_tells_which_stored_deliveries_would_match(page: Page, installation: Installation):
    made = webhook(installation, "tested", CLOSED, *[OPENED | {"n": n} for n in range(8)], CLOSED | {"n": 9})
    begin(page, installation, made, "Tested")

    page.get_by_label("Payload filter").fill('{"action": ["opened"]}')

    expect(page.get_by_role("heading", name="Backtest: matches 8 of the last 10")).to_be_visible()
    page.get_by_text("When runs start").click()
    page.get_by_label("Separate limit for each value of").fill("/n")
    page.get_by_label("Wait for newer deliveries").fill("3600")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("Their runs have 8 different keys.")).to_be_visible()
    expect(page.get_by_role("heading", name="Not matching (2)")).to_be_visible()
    expect(filter_result(page)).to_contain_text("Would not trigger")
    page.get_by_role("button", name="test the filter on").first.click()
    expect(filter_result(page)).to_contain_text("Would trigger")
    page.get_by_text("2 more").click()
    page.get_by_label("Payload filter").fill('{"action": ["opened"], "n": {"not_in": [1000]}}')
    expect(page.get_by_role("row", name="/n not_in")).to_be_visible()
    expect(page.locator("details[id^=more-matching] li").first).to_be_visible()
    href = page.locator("#outcome a").first.get_attribute("href")
    assert re.fullmatch(r"/f/default/deliveries/dlv_[0-9a-f]{32}", str(href))


def test_an_automation_is_written_by_keyboard_alone(page: Page, installation: Installation):
    made = webhook(installation, "keys", OPENED)
    page.goto(installation.url(f"/f/default/automations/new?webhook={made.webhook.uid}"))

    def tab_to(selector: str) -> None:
        for _ in range(120):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab never reaches {selector}")

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

    expect(page.get_by_text("Automation created.")).to_be_visible()
    assert installation.management.automations.get(installation.may, "By keyboard").triggers[0].payload is not None


def test_an_automation_is_written_without_scripts(
    new_profile: Visitor, signed_in_state: Any, installation: Installation
):
    made = webhook(installation, "plain", OPENED)
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    begin(page, installation, made, "Plain")

    page.get_by_role("button", name='action "opened"').click()
    expect(page.get_by_label("Payload filter")).to_have_value('{\n  "action": ["opened"]\n}')
    page.get_by_label("Payload filter").fill('{"action": ["closed"]}')
    page.get_by_role("button", name="Check").click()
    expect(filter_result(page)).to_contain_text("Would not trigger")
    expect(page.get_by_role("heading", name="Backtest: matches 0 of the last 1")).to_be_visible()
    page.get_by_label("Payload filter").fill('{"action": []}')
    page.get_by_role("button", name="Create").last.click()
    expect(page.get_by_role("alert")).to_contain_text("The automation was not saved")
    expect(page.get_by_label("Prompt")).to_have_value("Review it.")
    expect(page.get_by_label("Payload filter")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Payload filter").fill('{"action": ["opened"]}')
    page.get_by_role("button", name="Create").last.click()

    expect(page.get_by_role("heading", name="Plain")).to_be_visible()


def test_what_was_typed_stays_where_saving_fails(page: Page, installation: Installation):
    made = webhook(installation, "kept", OPENED)
    automation(installation, "Taken", made.webhook.uid)
    begin(page, installation, made, "Taken")
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


def test_without_a_webhook_nothing_is_saved_and_the_webhooks_say_so(page: Page, installation: Installation):
    made = webhook(installation, "unchosen", OPENED)
    begin(page, installation, made, "Deaf")
    page.get_by_label("unchosen").uncheck()

    page.get_by_role("button", name="Create").last.click()

    group = page.get_by_role("group", name="Webhooks")
    expect(group).to_have_accessible_description(re.compile("Select at least one webhook"))


def test_saving_without_a_change_makes_no_new_version(page: Page, installation: Installation):
    made = webhook(installation, "same", OPENED)
    prompt = "\nAn empty line first, and \ttabs.\n"
    triggers = [{"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}]
    triggers[0]["filter"]["payload"] = {"n": [1.5, 2**60], "\u202e": {"exists": False}}  # type: ignore[index]
    known = installation.management.automations.create(installation.may, "Same", prompt=prompt, triggers=triggers)

    page.goto(installation.url(f"/f/default/automations/{known.id}/edit"))
    page.get_by_role("button", name="Save").first.click()

    expect(page.get_by_text("No changes to save")).to_be_visible()
    assert installation.management.automations.get(installation.may, "Same") == known


def test_saving_over_another_members_change_warns_first(page: Page, installation: Installation):
    made = webhook(installation, "raced", OPENED)
    known = automation(installation, "Raced", made.webhook.uid)
    page.goto(installation.url(f"/f/default/automations/{known}/edit"))
    installation.management.automations.change(installation.may, known, prompt="Theirs.")

    page.get_by_label("Prompt").fill("Ours.")
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_role("alert")).to_contain_text("Version 2 of this automation was saved while you were editing")
    assert installation.management.automations.get(installation.may, known).prompt == "Theirs."
    page.get_by_role("button", name="Save").first.click()

    expect(page.get_by_text("Automation saved.")).to_be_visible()
    assert installation.management.automations.get(installation.may, known).prompt == "Ours."


def test_webhooks_that_are_gone_stay_visible_and_are_flagged(page: Page, installation: Installation):
    gone, alive = webhook(installation, "gone"), webhook(installation, "alive")
    known = automation(installation, "Haunted", gone.webhook.uid, alive.webhook.uid, "wh_nobody")
    installation.management.webhooks.delete(installation.may, "gone")

    page.goto(installation.url("/f/default/automations"))
    row = page.get_by_role("row").filter(has_text="Haunted")
    expect(row).to_contain_text("gone deleted")
    expect(row).to_contain_text("wh_nobody unknown")
    page.goto(installation.url(f"/f/default/automations/{known}"))
    expect(page.locator(".warning")).to_have_count(2)
    page.goto(installation.url(f"/f/default/automations/{known}/edit"))
    expect(page.get_by_label("wh_nobody unknown")).to_be_checked()
    page.get_by_label("gone deleted").uncheck()
    page.get_by_role("button", name="Save").first.click()

    expect(page.get_by_text("Automation saved.")).to_be_visible()
    kept = installation.management.automations.get(installation.may, known).selected_webhook_uids()
    assert kept == {alive.webhook.uid, "wh_nobody"}


def test_an_automation_is_switched_off_and_deleted(page: Page, installation: Installation):
    made = webhook(installation, "switched")
    known = automation(installation, "Switched", made.webhook.uid)
    page.goto(installation.url(f"/f/default/automations/{known}"))

    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Automation disabled.")).to_be_visible()
    deliver(installation, made, OPENED)
    page.get_by_role("link", name="Delete").click()
    expect(page.get_by_text("Its runs are kept.")).to_be_visible()
    page.get_by_role("button", name="Delete automation").click()

    expect(page.get_by_text("Automation deleted.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="Switched")).to_have_count(0)
    assert runs_of(installation, "Switched") == []


def test_several_triggers_are_edited_as_their_list(page: Page, installation: Installation):
    one, two = webhook(installation, "first of list", OPENED), webhook(installation, "second of list")
    triggers = [
        {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [each.webhook.uid]}}
        for each in (one, two)
    ]
    known = installation.management.automations.create(installation.may, "Listed", prompt="Do it.", triggers=triggers)
    page.goto(installation.url(f"/f/default/automations/{known.id}/edit"))
    typed = page.get_by_label("Triggers", exact=True)
    expect(filter_result(page)).to_contain_text("Would trigger")
    expect(page.get_by_role("heading", name="Trigger 2: would not trigger")).to_be_visible()

    triggers[0]["filter"]["payload"] = {"action": []}  # type: ignore[index]
    typed.fill(json.dumps(triggers))
    expect(page.locator("#filter-faults")).to_contain_text("/0/filter/payload/action")
    triggers[0]["filter"]["payload"] = {"action": ["closed"]}  # type: ignore[index]
    typed.fill(json.dumps(triggers))
    expect(filter_result(page)).to_contain_text("Would not trigger")
    page.get_by_role("button", name="Save").first.click()

    expect(page.get_by_text("Automation saved.")).to_be_visible()
    saved = installation.management.automations.get(installation.may, known.id)
    assert [each.as_json() for each in saved.triggers] == triggers


def test_a_viewer_reads_and_is_offered_no_change(signed_out_page: Page, installation: Installation):
    made = webhook(installation, "viewed", OPENED)
    known = automation(installation, "Viewed", made.webhook.uid)
    admin = installation.may_administer
    installation.management.members.add(admin, "vera@example.com", "Vera")
    installation.management.members.set_role(admin, "vera@example.com", "default", Role.VIEWER)
    link = installation.management.sessions.create_link(admin, "vera@example.com")
    installation.management.sessions.accept_link(link.reveal(), password=PASSWORD, client=None)
    sign_in(signed_out_page, installation, "vera@example.com")

    for path in ("/f/default/automations", f"/f/default/automations/{known}"):
        signed_out_page.goto(installation.url(path))
        expect(signed_out_page.locator("main form, main a.button")).to_have_count(0)
    for path in ("new", f"{known}/edit", f"{known}/delete"):
        answer = signed_out_page.goto(installation.url(f"/f/default/automations/{path}"))
        assert answer is not None
        assert answer.status == 403


def test_where_files_rule_an_automation_is_read_and_switched(page: Page, installation: Installation):
    admin = installation.may_administer
    installation.management.factories.create(admin, "files")
    may = installation.management.access.operator("files")
    made = installation.management.webhooks.create(may, "hook")
    triggers = [{"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}]
    known = installation.management.automations.create(may, "Filed", prompt="Do it.", triggers=triggers)
    installation.management.factories.define_by_files(may)

    page.goto(installation.url(f"/f/files/automations/{known.id}"))
    expect(page.get_by_text("Definition files define this factory.")).to_be_visible()
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Automation disabled.")).to_be_visible()
    answer = page.goto(installation.url(f"/f/files/automations/{known.id}/edit"))

    assert answer is not None
    assert answer.status == 409


def test_hostile_payloads_and_names_are_inert(page: Page, installation: Installation):
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
    made = webhook(installation, name, raw)
    begin(page, installation, made, name)

    page.get_by_role("button", name='x "polluted"').click()
    expect(page.get_by_label("Payload filter")).to_have_value('{\n  "__proto__": {"x": ["polluted"]}\n}')
    expect(filter_result(page)).to_contain_text("Would trigger")
    page.get_by_role("button", name='"pointed"').click()
    expect(page.get_by_role("row", name="//a~1b~0c in")).to_be_visible()
    page.get_by_role("button", name="alert(2)").click()
    expect(page.get_by_role("row", name="yes")).to_have_count(3)
    page.get_by_role("button", name="Create").last.click()
    expect(page.get_by_text("Automation created.")).to_be_visible()
    page.goto(installation.url("/f/default/automations"))

    assert page.evaluate("({}).x") is None
    assert page.locator("main img, main script, main b").count() == 0
    assert "\u202e" not in page.locator("main").inner_text()


def test_looks(check_accessibility, installation: Installation):
    installation.management.factories.create(installation.may_administer, "looks")
    may = installation.management.access.operator("looks")
    bodies = [OPENED | {"n": n, "action": ["opened", "closed"][n % 3 == 0]} for n in range(14)]
    made, gone = webhook(installation, "github", *bodies, may=may), webhook(installation, "gone", may=may)
    uids = (made.webhook.uid, gone.webhook.uid)
    known = automation(installation, "Review pull requests", *uids, payload={"action": ["opened"]}, may=may)
    installation.management.webhooks.delete(may, "gone")
    deliver(installation, made, OPENED | {"n": 20})
    check_accessibility("automations", "/f/looks/automations")
    check_accessibility("automation", f"/f/looks/automations/{known}")
    check_accessibility("automation-edit", f"/f/looks/automations/{known}/edit")
    check_accessibility("automation-delete", f"/f/looks/automations/{known}/delete")
    check_accessibility("automation-list", f"/f/looks/automations/{known}/edit?triggers=list")

    def mistype(page: Page) -> None:
        page.get_by_label("Payload filter").fill('{"action": ["opened",\n  "pull_request": {}}')
        expect(filter_result(page)).to_contain_text("The filter is not valid JSON.")

    hostile = deliver(
        installation, made, {"k" * 300: "v" * 300, "\u202eyek": ["<b>"] * 40, "a": {"b": {"c": {"d": {"e": "x" * 99}}}}}
    )
    check_accessibility("automation-mistyped", f"/f/looks/automations/{known}/edit?delivery={hostile}", prepare=mistype)

    chosen = {
        "action": {"$any": [["reopened"], {"$prefix": "open", "$not": {"$suffix": "x"}}]},
        "pull_request": {"labels": {"$not": {"name": {"$glob": "*-wip"}}}, "number": {"$gt": 5}},
    }
    composed = automation(installation, "Review by operators", made.webhook.uid, payload=chosen, may=may)

    def unfold_help(page: Page) -> None:
        page.get_by_text("Filter syntax").click()
        expect(page.get_by_text("at least one of the alternatives holds")).to_be_visible()

    check_accessibility("automation-operators", f"/f/looks/automations/{composed}/edit", prepare=unfold_help)


# Run policies


def test_a_policy_is_written_shown_changed_and_removed(page: Page, installation: Installation):
    made = webhook(installation, "of policies", OPENED)
    page.goto(installation.url(f"/f/default/automations/new?webhook={made.webhook.uid}"))
    page.get_by_label("Name", exact=True).fill("With policy")
    page.get_by_label("Prompt").fill("Look at it.")
    page.get_by_text("When runs start").click()
    page.get_by_label("Active runs at the same time").fill("0")
    page.get_by_label("Separate limit for each value of").fill("/pull_request/number")
    page.get_by_label("While that many are active").select_option("replaces the oldest")
    page.get_by_label("Wait for newer deliveries").fill("30")
    page.get_by_label("Priority").select_option("high")
    page.get_by_label("Running at the same time, in all").fill("4")
    page.get_by_text("When runs fail").click()
    page.get_by_label("Only for these exit codes").fill("75, x")
    page.get_by_label("Attempts at most").fill("3")
    page.get_by_label("Disable after failed runs").fill("5")
    page.get_by_role("button", name="Create", exact=True).last.click()
    expect(page.get_by_text("limit must be a whole number from 1 to 1,000")).to_be_visible()
    page.get_by_label("Active runs at the same time").fill("2")
    page.get_by_role("button", name="Create", exact=True).last.click()
    expect(page.get_by_text("exit_codes must be a list of up to 32 whole numbers")).to_be_visible()
    page.get_by_label("Only for these exit codes").fill("75, 111")
    page.get_by_role("button", name="Create", exact=True).last.click()

    expect(page.get_by_text("at most 2 active runs for each /pull_request/number; a new run replaces")).to_be_visible()
    [created] = [
        each for each in installation.management.automations.all(installation.may) if each.name == "With policy"
    ]
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("Wait at most")).to_have_value("300")
    page.get_by_label("Active runs at the same time").fill("")
    page.get_by_label("Separate limit for each value of").fill("")
    expect(page.get_by_label("Only for these exit codes")).to_have_value("75, 111")
    for label in ("Attempts at most", "Only for these exit codes", "Wait before the second attempt"):
        page.get_by_label(label).fill("")
    page.get_by_label("Longest wait between attempts").fill("")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_text("Automation saved")).to_be_visible()
    changed = installation.management.automations.get(installation.may, created.id)

    assert created.policy.as_json() == {
        "concurrency": {"key": ["/pull_request/number"], "limit": 2, "when_busy": "replace"},
        "debounce": {"seconds": 30, "max_seconds": 300},
        "retry": {"attempts": 3, "backoff_seconds": 30, "max_backoff_seconds": 3600, "exit_codes": [75, 111]},
        "priority": "high",
        "max_running": 4,
        "pause_after_failures": 5,
    }
    assert changed.policy.as_json() == {
        "debounce": {"seconds": 30, "max_seconds": 300},
        "priority": "high",
        "max_running": 4,
        "pause_after_failures": 5,
    }
    installation.management.automations.delete(installation.may, created.id)


def test_a_save_of_something_else_keeps_the_policy(page: Page, installation: Installation):
    made = webhook(installation, "of kept policies", OPENED)
    key = automation(installation, "Keeps its policy", made.webhook.uid)
    retry = {"attempts": 2, "backoff_seconds": 5, "max_backoff_seconds": 9}
    policy = {"concurrency": {"key": ["/a", "/b"], "limit": 3, "when_busy": "skip"}, "retry": retry, "priority": "low"}
    installation.management.automations.change(installation.may, key, policy=policy)
    page.goto(installation.url(f"/f/default/automations/{key}/edit"))
    page.get_by_label("Prompt").fill("Something else.")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_text("Automation saved")).to_be_visible()

    changed = installation.management.automations.get(installation.may, key)
    assert (changed.prompt, changed.policy.as_json()) == ("Something else.", policy)
    installation.management.automations.delete(installation.may, key)


def test_a_paused_automation_says_why_and_is_enabled_again(page: Page, installation: Installation):
    made = webhook(installation, "of failures", OPENED)
    key = automation(installation, "Fails too often", made.webhook.uid)
    installation.management.automations.change(installation.may, key, policy={"pause_after_failures": 2})
    with closing(open_database(f"sqlite:///{installation.service.data_dir / 'hookmill.db'}")) as database:
        with database.write() as tx:
            tx.run("UPDATE automations SET failures_in_row = 2 WHERE id = :id", id=key)
        pause_failing(database, time.time_ns() // 1_000)
    page.goto(installation.url(f"/f/default/automations/{key}"))
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    expect(page.get_by_text("Its last 2 runs failed. Correct the cause, and enable it again.")).to_be_visible()
    page.get_by_role("button", name="Enable", exact=True).click()

    expect(page.get_by_text("enabled", exact=True)).to_be_visible()
    assert page.get_by_text("Its last 2 runs failed").count() == 0
    installation.management.automations.delete(installation.may, key)


# Schedules


def automation_named(installation: Installation, name: str) -> Automation:
    return installation.management.automations.get(installation.may, name)


def test_schedules_are_written_shown_changed_and_removed(page: Page, installation: Installation):
    made = webhook(installation, "beside schedules", OPENED)
    page.goto(installation.url(f"/f/default/automations/new?webhook={made.webhook.uid}"))
    page.get_by_label("Name", exact=True).fill("Scheduled")
    page.get_by_label("Prompt").fill("Look at it.")
    first = page.get_by_role("group", name="Schedule 1")
    first.get_by_label("Schedule name").fill("nightly")
    first.get_by_label("Times", exact=True).fill("0 3 * *")
    first.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Add another schedule").click()
    second = page.get_by_role("group", name="Schedule 2")
    second.get_by_label("Schedule name").fill("often")
    second.get_by_label("Times", exact=True).fill("@every 30m")
    second.get_by_label("Missed times").select_option("start no run")
    page.get_by_role("button", name="Create", exact=True).last.click()
    expect(page.get_by_text("Schedule 1: cron must be a text with five fields")).to_be_visible()
    first.get_by_label("Times", exact=True).fill("0 3 * * *")
    page.get_by_role("button", name="Create", exact=True).last.click()

    expect(page.get_by_text("0 3 * * * (Europe/Berlin); next 2")).to_be_visible()
    expect(page.get_by_text("@every 30m (UTC, skips missed times); next 2")).to_be_visible()
    created = automation_named(installation, "Scheduled")
    page.get_by_role("link", name="Edit", exact=True).click()
    first.get_by_label("Schedule name").fill("")
    first.get_by_label("Times", exact=True).fill("")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_text("Automation saved")).to_be_visible()
    changed = automation_named(installation, "Scheduled")

    assert [schedule.schedule_json() for schedule in created.schedules] == [
        {"name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin"},
        {"name": "often", "cron": "@every 30m", "catch_up": "none"},
    ]
    assert [schedule.name for schedule in changed.schedules] == ["often"]
    assert changed.triggers == created.triggers
    page.goto(installation.url("/f/default/automations"))
    expect(page.get_by_role("row", name="Scheduled")).to_contain_text("Schedule often, next 2")
    installation.management.automations.delete(installation.may, created.id)


def test_an_automation_with_schedules_alone_needs_no_webhook(page: Page, installation: Installation):
    page.goto(installation.url("/f/default/automations/new"))
    page.get_by_label("Name", exact=True).fill("Only scheduled")
    page.get_by_label("Prompt").fill("Look at it.")
    page.get_by_role("button", name="Create", exact=True).last.click()
    expect(page.get_by_text("Select at least one webhook, or add a schedule.")).to_be_visible()
    page.get_by_role("group", name="Schedule 1").get_by_label("Schedule name").fill("daily")
    page.get_by_role("group", name="Schedule 1").get_by_label("Times", exact=True).fill("@daily")
    page.get_by_label("Payload filter").fill('{"a": [1]}')
    page.get_by_role("button", name="Create", exact=True).last.click()
    expect(page.get_by_text("Select a webhook, or remove the event types and the payload filter.")).to_be_visible()
    page.get_by_label("Payload filter").fill("")
    page.get_by_role("button", name="Create", exact=True).last.click()

    expect(page.get_by_text("Automation created. Its schedules start runs.")).to_be_visible()
    created = automation_named(installation, "Only scheduled")
    assert (created.triggers, [schedule.name for schedule in created.schedules]) == ((), ["daily"])
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Prompt").fill("Look twice.")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_text("Automation saved")).to_be_visible()
    assert automation_named(installation, "Only scheduled").all_triggers == created.all_triggers
    installation.management.automations.delete(installation.may, created.id)


def test_a_list_of_triggers_contains_the_schedules(page: Page, installation: Installation):
    made = webhook(installation, "of a list", OPENED)
    key = automation(installation, "Listed with a schedule", made.webhook.uid)
    trigger = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "daily", "cron": "@daily"}}
    triggers = [
        *(each.as_json() for each in automation_named(installation, "Listed with a schedule").triggers),
        trigger,
    ]
    installation.management.automations.change(installation.may, key, triggers=triggers)
    page.goto(installation.url(f"/f/default/automations/{key}/edit?triggers=list"))
    typed = page.get_by_label("Triggers", exact=True)

    assert json.loads(typed.input_value()) == triggers
    typed.fill(json.dumps([*triggers, trigger | {"schedule": {"name": "hourly", "cron": "@hourly"}}]))
    page.get_by_role("button", name="Save", exact=True).last.click()

    expect(page.get_by_text("Automation saved")).to_be_visible()
    assert [schedule.name for schedule in automation_named(installation, "Listed with a schedule").schedules] == [
        "daily",
        "hourly",
    ]
    installation.management.automations.delete(installation.may, key)


# Runs by hand


def test_a_run_is_started_by_hand_after_a_confirmation(page: Page, installation: Installation):
    key = automation(installation, "By hand", webhook(installation, "of a run by hand").webhook.uid)
    page.goto(installation.url(f"/f/default/automations/{key}"))
    page.get_by_role("link", name="Run now…").click()
    page.get_by_label("Payload").fill('{"n": ')
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("The payload is not JSON")).to_be_visible()
    page.get_by_label("Payload").fill('{"n": 1}')
    page.get_by_role("button", name="Run now").click()

    expect(page.get_by_role("status").filter(has_text="Run started.")).to_be_visible()
    expect(page.get_by_text("ada@example.com, by hand")).to_be_visible()
    [run] = runs_of(installation, "By hand")
    assert (run.person_name, run.has_payload) == ("ada@example.com", True)
    page.goto(installation.url("/f/default/runs"))
    expect(page.get_by_role("row", name="By hand").first).to_contain_text("ada@example.com by hand")
    page.goto(installation.url(f"/f/default/automations/{key}"))
    expect(page.get_by_role("row", name="ada@example.com by hand")).to_be_visible()
    installation.management.automations.set_enabled(installation.may, key, False)
    page.goto(installation.url(f"/f/default/automations/{key}/run"))
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("is disabled. Enable it first.")).to_be_visible()
    expect(page.get_by_role("link", name="Run now…")).to_have_count(0)
    installation.management.automations.delete(installation.may, key)


def let_an_hour_pass(installation: Installation) -> None:
    """Move the stored schedules an hour into the past."""
    with closing(sqlite3.connect(installation.service.data_dir / "hookmill.db", timeout=10)) as database, database:
        hour = 3_600_000_000
        database.execute(f"UPDATE schedules SET last_at = last_at - {hour}, next_at = next_at - {hour}, "
                         f"anchor = anchor - {hour}")  # fmt: skip


def test_a_scheduled_run_names_its_schedule(page: Page, installation: Installation, check_accessibility: Any):
    trigger = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "often", "cron": "@every 1h"}}
    made = installation.management.automations.create(
        installation.may, "Every hour", prompt="Look.", triggers=[trigger]
    )
    let_an_hour_pass(installation)
    deadline = time.monotonic() + 10
    while not (runs := runs_of(installation, "Every hour")):
        assert time.monotonic() < deadline, "the schedule fires"
        page.wait_for_timeout(50)
    page.goto(installation.url(f"/f/default/runs/{run_id(runs[0].id)}"))

    expect(page.get_by_text("schedule often")).to_be_visible()
    expect(page.get_by_text("Scheduled for (UTC)")).to_be_visible()
    check_accessibility("run-of-schedule", f"/f/default/runs/{run_id(runs[0].id)}")
    check_accessibility("automation-scheduled", f"/f/default/automations/{made.id}")
    check_accessibility("automation-scheduled-editor", f"/f/default/automations/{made.id}/edit")
    check_accessibility("automation-run", f"/f/default/automations/{made.id}/run")
    installation.management.automations.delete(installation.may, made.id)
