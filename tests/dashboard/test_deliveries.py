"""The pages of the delivery log and of its deliveries."""

import json
import re
import time
from typing import Any

import pytest
from playwright.sync_api import expect

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_id
from hookmill.domain.permission import MayManage
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import Installation, expect_heading, expect_text, overflow_pixels, press
from tests.support.automations import automation_created
from tests.support.triggers import received
from tests.support.waiting import until

LOG = "/f/default/deliveries"
HOSTILE_TEXT = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\u0000\u200b{{7*7}}"
HOSTILE_BODIES = {
    "markup in keys and values": json.dumps({HOSTILE_TEXT: HOSTILE_TEXT, "</pre><script>alert(3)</script>": [1]}),
    "one line of 250 KB": json.dumps({"line": "<b>x" * 62_000}),
    "500 nested arrays": "[" * 500 + '"</pre><script>alert(4)</script>"' + "]" * 500,
    "lone surrogate, huge numbers": '{"half": "\\ud83d", "numbers": [1e400, 123456789012345678901234567890]}',
    "bidirectional overrides": json.dumps({"name": "\u202e\u2066abc\u2069", "\u202dkey": "\u061c"}, ensure_ascii=False),
    "5,000 keys": json.dumps({f"key {number}": number for number in range(5_000)}),
}


@pytest.fixture(scope="module")
def webhook(installation):
    return installation.webhook("source")


@pytest.fixture(scope="module")
def automation(installation, webhook):
    payload = {"action": ["opened"], "issue": {"labels": {"not_in": ["wontfix"]}}}
    trigger = received(webhook.webhook.uid, payload=payload)
    return automation_created(installation.management, installation.may, "triage", triggers=[trigger]).name


def deliver(installation: Installation, webhook: WebhookWithSecret, body: str = "", **headers: str) -> str:
    """Returns the id of the accepted delivery."""
    answer = installation.service.post(webhook, (body or f'{{"at": {time.time_ns()}}}').encode(), headers=headers)
    assert answer.status == 202
    return answer.delivery_id


def test_log_shows_each_attempt_with_the_reason_of_its_rejection(page, installation):
    webhook = installation.webhook("labels")
    first = deliver(installation, webhook, '{"n": 1}', **{"X-Service-Delivery-Id": "event 1"})
    duplicate = deliver(installation, webhook, '{"n": 1}', **{"X-Service-Delivery-Id": "event 1"})
    assert installation.service.post(webhook, b"{", headers={}).status == 400
    assert installation.service.post(webhook, token="wrong").status == 401
    assert installation.service.post(webhook, b" " * 262_145).status == 413

    page.goto(f"{LOG}?webhook={webhook.webhook.uid}")

    rows = page.locator("#log tr")
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text("Rejected (too large)")
    expect(rows.nth(1)).to_contain_text("Rejected (auth)")
    expect(rows.nth(1)).to_contain_text("from 127.0.0.1")
    expect(rows.nth(2)).to_contain_text("not JSON at line 1, column 2")
    expect(rows.nth(4)).to_contain_text("event 1")
    assert rows.nth(3).get_attribute("id") == duplicate
    rows.nth(3).get_by_role("link", name="the original").click()
    expect(page).to_have_url(installation.url(f"{LOG}/{first}"))


def test_log_is_filtered_by_label_time_event_and_delivery_id(page, installation):
    webhook = installation.webhook("filtered")
    delivery = deliver(installation, webhook, '{"n": 1}', **{"X-Service-Delivery-Id": "event-a"})
    deliver(installation, webhook, '{"n": 2}', **{"X-Service-Delivery-Id": "event-b"})
    assert installation.service.post(webhook, b"{").status == 400
    page.goto(LOG)
    page.get_by_label("Webhook").select_option(label="filtered")

    page.get_by_label("Event or delivery id").fill("event-a")
    press(page, "Filter")
    expect(page.locator("#log tr[data-key]")).to_have_count(1)
    expect(page.locator("#log tr[data-key]")).to_have_attribute("id", delivery)

    page.get_by_label("Event or delivery id").fill("")
    page.get_by_label("Label").select_option(label="Rejected (invalid JSON)")
    press(page, "Filter")
    expect(page.locator("#log tr[data-key]")).to_have_count(1)

    page.get_by_label("Label").select_option(label="All")
    page.get_by_label("Until (UTC)").fill("2001-01-01T00:00:00")
    press(page, "Filter")
    expect(page.locator("#log-empty")).to_contain_text("No deliveries match")

    page.get_by_label("Until (UTC)").fill("")
    page.get_by_label("Event or delivery id").fill(delivery)
    press(page, "Filter")
    expect(page).to_have_url(installation.url(f"{LOG}/{delivery}"))


def test_event_type_is_shown_and_filters_the_log(page, installation):
    webhook = installation.webhook("typed", event_header="X-Kind")
    delivery = deliver(installation, webhook, '{"n": 1}', **{"X-Kind": "order <paid>"})
    deliver(installation, webhook, '{"n": 2}', **{"X-Kind": "order refunded"})
    page.goto(LOG)
    page.get_by_label("Webhook").select_option(label="typed")

    page.get_by_label("Event type").fill("order <paid>")
    press(page, "Filter")

    expect(page.locator("#log tr[data-key]")).to_have_count(1)
    expect(page.locator(f"#{delivery} td.event")).to_contain_text("order <paid>")
    assert page.get_by_label("Event type").input_value() == "order <paid>"
    page.goto(f"{LOG}/{delivery}")
    expect(page.locator("dl.facts")).to_contain_text("order <paid> (not signed)")


def test_invalid_filter_is_reported_at_its_field(page, installation):
    page.goto(f"{LOG}?since=2026-01-02T00:00&until=2026-01-01T00:00&label=lost")

    expect(page.get_by_label("Until (UTC)")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#until-problem")).to_contain_text("The end must be later than the start")
    expect(page.locator("#label-problem")).to_contain_text("Unknown label")
    assert page.get_by_label("From (UTC)").input_value() == "2026-01-02T00:00"


def test_dropped_attempts_are_shown_in_the_log(page, installation):
    webhook = installation.webhook("flooded")
    for _ in range(60):
        deliver(installation, webhook)
    assert {installation.service.post(webhook, b'{"late": %d}' % number).status for number in range(5)} == {429}
    # The service stores the counts every second.
    until(
        lambda: (
            sum(period.count for period in installation.management.log.dropped_attempts(installation.may, "flooded"))
            == 5
        ),
        "all dropped attempts are counted",
    )

    page.goto(f"{LOG}?webhook={webhook.webhook.uid}")

    expect(page.locator("#log tr").first).to_contain_text(
        re.compile(r"flooded: 5 dropped attempts \(over the rate limit deliveries_per_minute\) between")
    )


def test_delivery_page_explains_why_an_automation_was_triggered(page, installation, webhook, automation):
    started = deliver(installation, webhook, '{"action": "opened", "issue": {"labels": ["bug"]}}')
    not_started = deliver(installation, webhook, '{"action": "closed", "issue": {"labels": ["bug"]}}')

    page.goto(f"{LOG}/{started}")
    triage = page.locator("section.card", has=page.get_by_role("link", name="triage"))
    expect(triage.get_by_text("Would trigger", exact=True)).to_be_visible()
    expect(page.locator("tr", has_text="triage")).to_have_count(1)
    expect(page.locator(".tree")).to_contain_text('"opened"')

    page.goto(f"{LOG}/{not_started}")
    expect(triage.get_by_text("Would not trigger", exact=True)).to_be_visible()
    row = page.locator("tr", has_text="/action")
    expect(row).to_contain_text('in ["opened"]')
    expect(row.get_by_role("cell")).to_have_text(['in ["opened"]', '"closed"', "no"])
    expect_text(page, "This delivery started no run.")


def test_delivery_is_replayed_with_the_keyboard_alone(page, installation, webhook, automation):
    delivery = deliver(installation, webhook, '{"action": "opened", "issue": {"labels": ["again"]}}')
    page.goto(f"{LOG}/{delivery}")

    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "automation":
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").first).to_contain_text("Delivery replayed")
    expect_text(page, "replay 1")
    assert [run.replay_number for run in installation.management.runs.of_delivery(installation.may, delivery)] == [1, 0]


def test_replay_is_rejected_if_no_automation_would_be_triggered(page, installation):
    webhook = installation.webhook("no longer selected")
    create_automation(installation, "deleted", webhook)
    delivery = deliver(installation, webhook)
    page.goto(f"{LOG}/{delivery}")
    installation.management.automations.delete(installation.may, "deleted")

    press(page, "Replay")

    expect(page.get_by_role("alert")).to_contain_text("Nothing was started")
    expect_heading(page, "Delivery")
    expect_text(page, "so a replay would start no run")
    expect(page.get_by_role("button", name="Replay")).to_have_count(0)


def create_automation(
    installation: Installation,
    name: str,
    *webhooks: WebhookWithSecret,
    payload: Any = None,
    may: MayManage | None = None,
    **options: Any,
) -> None:
    filters: dict[str, Any] = {"webhook_ids": [webhook.webhook.uid for webhook in webhooks]}
    if payload is not None:
        filters["payload"] = payload
    trigger = {"provider": "webhook", "event": "received", "filter": filters}
    automation_created(installation.management, may or installation.may, name, triggers=[trigger], **options)


def test_log_shows_how_many_runs_each_delivery_started(page, installation):
    selected, unselected = (installation.webhook(name) for name in ("selected", "unselected"))
    create_automation(installation, "one", selected)
    create_automation(installation, "another", selected, payload={"to": {"not_in": ["one"]}})
    deliver(installation, selected, '{"to": "both"}')
    deliver(installation, selected, '{"to": "both"}')
    deliver(installation, selected, '{"to": "one"}')
    deliver(installation, unselected, '{"to": "nobody"}')

    page.goto(f"{LOG}?webhook={selected.webhook.uid}")
    expect(page.locator("#log td.runs")).to_have_text(["1 run", "2 runs"])
    page.get_by_role("link", name="2 runs").click()
    expect(page).to_have_url(re.compile("/deliveries/dlv_[0-9a-f]+#runs$"))
    expect(page.get_by_role("row").filter(has=page.get_by_text(re.compile("^(one|another)$")))).to_have_count(2)

    page.goto(f"{LOG}?webhook={unselected.webhook.uid}")
    expect(page.locator("#log td.runs")).to_have_text("none")
    expect(page.locator("#log")).to_contain_text("no id")


def test_automations_of_other_webhooks_are_listed_separately(page, installation):
    installation.management.factories.create(installation.may_administer, "apart")
    may = installation.management.access.operator("apart")
    webhook, other, third = (
        installation.management.webhooks.create(may, {"name": name}) for name in ("source", "other", "third")
    )
    create_automation(installation, "outside", other, may=may)
    delivery = deliver(installation, webhook)
    page.goto(f"/f/apart/deliveries/{delivery}")
    other_automation = page.locator(".elsewhere li", has_text="outside")
    expect_text(page, "No automation selects source.")
    expect(other_automation.get_by_text("selects another webhook")).to_be_visible()

    for name in ("first of two", "second of two", "disabled of two"):
        create_automation(installation, name, other, third, may=may, enabled=name != "disabled of two")
    create_automation(installation, "not matching", webhook, may=may, payload={"at": {"exists": False}})
    create_automation(installation, "matching", webhook, may=may)
    installation.management.webhooks.delete(may, webhook.webhook.uid)
    page.goto(f"/f/apart/deliveries/{delivery}")

    assert page.locator("section.card h3 a").all_inner_texts() == ["matching", "not matching"]
    expect(page.locator("section.card .tag.no")).to_have_text(["Would not trigger", "failed", "no"])
    expect(other_automation).to_be_hidden()
    page.locator("summary", has_text=re.compile("automations that select other webhooks")).click()
    expect(other_automation).to_be_visible()
    expect(page.locator(".elsewhere")).to_contain_text("second of two selects other webhooks")
    expect(page.locator(".elsewhere .tag.no")).to_have_count(0)
    expect(page.locator(".facts")).to_contain_text("deleted")


def test_rejected_delivery_has_no_payload_and_no_replay(page, installation, webhook):
    installation.service.post(webhook, token="wrong")
    rejected = installation.management.log.newest(
        installation.may, webhook="source", label=Label.REJECTED_AUTH, limit=1
    )[0]

    page.goto(f"{LOG}/{delivery_id(rejected.key)}")

    expect_text(page, "Only accepted deliveries have")
    expect_text(page, "127.0.0.1")
    expect(page.get_by_role("link", name="Download")).to_have_count(0)
    expect(page.get_by_role("button", name="Replay")).to_have_count(0)


def test_payload_is_downloaded_byte_for_byte(page, installation, webhook):
    body = '{"b":1, "a" : "\\u00e9 é",\n "number": 1.0e2}'
    delivery = deliver(installation, webhook, body)
    page.goto(f"{LOG}/{delivery}")

    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download event-payload.json").click()

    assert downloading.value.suggested_filename == "event-payload.json"
    assert downloading.value.path().read_bytes() == body.encode()
    answer = page.request.get(installation.url(f"{LOG}/{delivery}/payload"))
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("kind", HOSTILE_BODIES)
def test_hostile_payload_is_shown_as_text(page, installation, webhook, kind):
    body = HOSTILE_BODIES[kind]
    delivery = deliver(installation, webhook, body)

    for raw in ("", "?raw=all"):
        answer = page.goto(f"{LOG}/{delivery}{raw}")
        assert answer is not None
        assert answer.status == 200

    assert page.locator("main script, main img, main b, main iframe, main object").count() == 0
    text = page.locator("main").inner_text()
    assert not set(text) & set("\u202e\u202d\u2066\u2069\u061c\u200b\x00")
    assert overflow_pixels(page) <= 0


@pytest.mark.proof
def test_delivery_pages_are_accessible(check_accessibility, installation, automation, webhook):
    other = installation.webhook("looked at")
    body = {"action": "opened", "issue": {"number": 12, "title": HOSTILE_TEXT, "labels": ["bug", None, True]}, "to": {}}
    delivery = deliver(
        installation, webhook, json.dumps(body), **{"X-Service-Delivery-Id": "a-long-event-id-" + "0" * 60}
    )
    deliver(installation, other, '{"n": 1}', **{"X-Service-Delivery-Id": "same"})
    duplicate = deliver(installation, other, '{"n": 1}', **{"X-Service-Delivery-Id": "same"})
    installation.service.post(other, token="wrong")
    quiet = installation.webhook("quiet")
    for name in ("of other webhooks", "another of other webhooks"):
        create_automation(installation, name, other, quiet)
    installation.management.webhooks.set_enabled(installation.may, webhook.webhook.uid, False)

    check_accessibility("deliveries-waiting", f"{LOG}?webhook={quiet.webhook.uid}")
    check_accessibility("deliveries-none", f"{LOG}?until=2001-01-01T00:00")
    check_accessibility(
        "delivery", f"{LOG}/{delivery}", prepare=lambda page: page.locator(".elsewhere summary").click()
    )
    check_accessibility("delivery-duplicate", f"{LOG}/{duplicate}")
    installation.management.webhooks.set_enabled(installation.may, webhook.webhook.uid, True)


def test_new_automation_is_created_from_a_delivery(page, installation):
    webhook = installation.webhook("git host")
    delivery = installation.service.post(webhook, b'{"action": "opened"}').delivery_id
    page.goto(f"{LOG}/{delivery}")

    page.get_by_role("link", name="New automation from this delivery").click()

    expect(page.get_by_role("button", name='action "opened"')).to_be_visible()
    expect(page.get_by_label("git host")).to_be_checked()
