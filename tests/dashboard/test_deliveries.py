"""The delivery log and its deliveries, as people see them."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_id
from hookmill.domain.permission import MayManage, Role
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import PASSWORD, Installation, sign_in
from tests.support.waiting import until

LOG = "/f/default/deliveries"
HOSTILE_TEXT = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\u0000\u200b{{7*7}}"
HOSTILE_BODIES = {
    "markup in keys and values": json.dumps({HOSTILE_TEXT: HOSTILE_TEXT, "</pre><script>alert(3)</script>": [1]}),
    "a line of 250 KB": json.dumps({"line": "<b>x" * 62_000}),
    "500 levels": "[" * 500 + '"</pre><script>alert(4)</script>"' + "]" * 500,
    "half a surrogate pair": '{"half": "\\ud83d", "numbers": [1e400, 123456789012345678901234567890]}',
    "bidirectional overrides": json.dumps({"name": "\u202e\u2066abc\u2069", "\u202dkey": "\u061c"}, ensure_ascii=False),
    "many keys": json.dumps({f"key {number}": number for number in range(5_000)}),
}


@pytest.fixture(scope="module")
def webhook(installation: Installation) -> WebhookWithSecret:
    return installation.management.webhooks.create(installation.may, "source")


@pytest.fixture(scope="module")
def automation(installation: Installation, webhook: WebhookWithSecret) -> str:
    payload = {"action": ["opened"], "issue": {"labels": {"not_in": ["wontfix"]}}}
    trigger = {
        "provider": "webhook",
        "event": "received",
        "filter": {"webhook_ids": [webhook.webhook.uid], "payload": payload},
    }
    return installation.management.automations.create(
        installation.may, "triage", prompt="Look.", triggers=[trigger]
    ).name


def accepted(installation: Installation, webhook: WebhookWithSecret, body: str = "", **headers: str) -> str:
    answer = installation.service.post(webhook, (body or f'{{"at": {time.time_ns()}}}').encode(), headers=headers)
    assert answer.status == 202
    return answer.delivery_id


def test_the_log_shows_what_came_and_why_it_was_refused(
    page: Page, installation: Installation, webhook: WebhookWithSecret
):
    made = installation.management.webhooks.create(installation.may, "labels")
    first = accepted(installation, made, '{"n": 1}', **{"X-Service-Delivery-Id": "event 1"})
    again = accepted(installation, made, '{"n": 1}', **{"X-Service-Delivery-Id": "event 1"})
    assert installation.service.post(made, b"{", headers={}).status == 400
    assert installation.service.post(made, token="wrong").status == 401
    assert installation.service.post(made, b" " * 262_145).status == 413

    page.goto(installation.url(f"{LOG}?webhook={made.webhook.uid}"))

    rows = page.locator("#log tr")
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text("Rejected (too large)")
    expect(rows.nth(1)).to_contain_text("Rejected (auth)")
    expect(rows.nth(1)).to_contain_text("from 127.0.0.1")
    expect(rows.nth(2)).to_contain_text("not JSON at line 1, column 2")
    expect(rows.nth(4)).to_contain_text("event 1")
    assert rows.nth(3).get_attribute("id") == again
    rows.nth(3).get_by_role("link", name="the original").click()
    expect(page).to_have_url(installation.url(f"{LOG}/{first}"))


def test_the_log_is_narrowed_by_label_time_and_event(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "narrowed")
    one = accepted(installation, made, '{"n": 1}', **{"X-Service-Delivery-Id": "event-a"})
    accepted(installation, made, '{"n": 2}', **{"X-Service-Delivery-Id": "event-b"})
    assert installation.service.post(made, b"{").status == 400
    page.goto(installation.url(LOG))
    page.get_by_label("Webhook").select_option(label="narrowed")

    page.get_by_label("Event or delivery id").fill("event-a")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#log tr[data-key]")).to_have_count(1)
    expect(page.locator("#log tr[data-key]")).to_have_attribute("id", one)

    page.get_by_label("Event or delivery id").fill("")
    page.get_by_label("Label").select_option(label="Rejected (invalid JSON)")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#log tr[data-key]")).to_have_count(1)

    page.get_by_label("Label").select_option(label="All")
    page.get_by_label("Until (UTC)").fill("2001-01-01T00:00:00")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#log-empty")).to_contain_text("No deliveries match")

    page.get_by_label("Until (UTC)").fill("")
    page.get_by_label("Event or delivery id").fill(one)
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(installation.url(f"{LOG}/{one}"))


def test_the_event_type_is_shown_and_narrows_the_log(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "typed", event_header="X-Kind")
    sent = accepted(installation, made, '{"n": 1}', **{"X-Kind": "order <paid>"})
    accepted(installation, made, '{"n": 2}', **{"X-Kind": "order refunded"})
    page.goto(installation.url(LOG))
    page.get_by_label("Webhook").select_option(label="typed")

    page.get_by_label("Event type").fill("order <paid>")
    page.get_by_role("button", name="Filter").click()

    expect(page.locator("#log tr[data-key]")).to_have_count(1)
    expect(page.locator(f"#{sent} td.event")).to_contain_text("order <paid>")
    assert page.get_by_label("Event type").input_value() == "order <paid>"
    page.goto(installation.url(f"{LOG}/{sent}"))
    expect(page.locator("dl.facts")).to_contain_text("order <paid> (not signed)")


def test_an_invalid_filter_is_reported_at_its_field(page: Page, installation: Installation):
    page.goto(installation.url(f"{LOG}?since=2026-01-02T00:00&until=2026-01-01T00:00&label=lost"))

    expect(page.get_by_label("Until (UTC)")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#until-problem")).to_contain_text("The end must be later than the start")
    expect(page.locator("#label-problem")).to_contain_text("Unknown label")
    assert page.get_by_label("From (UTC)").input_value() == "2026-01-02T00:00"


def test_older_pages_go_on_where_the_newer_ended(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "pages")
    sent = [accepted(installation, made) for _ in range(53)]
    page.goto(installation.url(f"{LOG}?webhook={made.webhook.uid}"))
    newest = [row.get_attribute("id") for row in page.locator("#log tr[data-key]").all()]

    page.get_by_role("link", name="Older").click()
    page.wait_for_url(re.compile("before="))

    oldest = [row.get_attribute("id") for row in page.locator("#log tr[data-key]").all()]
    assert newest + oldest == sent[::-1]
    expect(page.get_by_role("link", name="Older")).to_be_hidden()
    expect(page.locator("#live")).to_have_count(0)


def test_dropped_attempts_are_shown_at_their_time(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "flooded")
    for _ in range(60):
        accepted(installation, made)
    assert {installation.service.post(made, b'{"late": %d}' % number).status for number in range(5)} == {429}
    # Counters are written down every second, by the minute.
    until(
        lambda: (
            sum(each.count for each in installation.management.log.dropped_attempts(installation.may, "flooded")) == 5
        ),
        "all that was refused is counted",
    )

    page.goto(installation.url(f"{LOG}?webhook={made.webhook.uid}"))

    expect(page.locator("#log tr").first).to_contain_text(
        re.compile(r"flooded: 5 dropped attempts \(over the rate limit\) between")
    )


def test_a_delivery_says_why_it_started_its_run(
    page: Page, installation: Installation, webhook: WebhookWithSecret, automation: str
):
    started = accepted(installation, webhook, '{"action": "opened", "issue": {"labels": ["bug"]}}')
    not_started = accepted(installation, webhook, '{"action": "closed", "issue": {"labels": ["bug"]}}')

    page.goto(installation.url(f"{LOG}/{started}"))
    triage = page.locator("section.card", has=page.get_by_role("link", name="triage"))
    expect(triage.get_by_text("Would trigger", exact=True)).to_be_visible()
    expect(page.locator("tr", has_text="triage")).to_have_count(1)
    expect(page.locator(".tree")).to_contain_text('"opened"')

    page.goto(installation.url(f"{LOG}/{not_started}"))
    expect(triage.get_by_text("Would not trigger", exact=True)).to_be_visible()
    row = page.locator("tr", has_text="/action")
    expect(row).to_contain_text('in ["opened"]')
    expect(row.get_by_role("cell")).to_have_text(['in ["opened"]', '"closed"', "no"])
    expect(page.get_by_text("This delivery started no run.")).to_be_visible()


def test_a_delivery_is_run_again_by_keyboard_alone(
    page: Page, installation: Installation, webhook: WebhookWithSecret, automation: str
):
    sent = accepted(installation, webhook, '{"action": "opened", "issue": {"labels": ["again"]}}')
    page.goto(installation.url(f"{LOG}/{sent}"))

    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "automation":
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").first).to_contain_text("Delivery replayed")
    expect(page.get_by_text("replay 1")).to_be_visible()
    assert [run.replay_number for run in installation.management.runs.of_delivery(installation.may, sent)] == [1, 0]


def test_a_delivery_that_triggers_nothing_is_not_run_again(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "heard no more")
    listen(installation, "fickle", made)
    sent = accepted(installation, made)
    page.goto(installation.url(f"{LOG}/{sent}"))
    installation.management.automations.delete(installation.may, "fickle")

    page.get_by_role("button", name="Replay").click()

    expect(page.get_by_role("alert")).to_contain_text("Nothing was started")
    expect(page.get_by_role("heading", name="Delivery")).to_be_visible()
    expect(page.get_by_text("so a replay would start no run")).to_be_visible()
    expect(page.get_by_role("button", name="Replay")).to_have_count(0)


def listen(
    installation: Installation,
    name: str,
    *made: WebhookWithSecret,
    payload: Any = None,
    may: MayManage | None = None,
    **choices: Any,
) -> None:
    chosen: dict[str, Any] = {"webhook_ids": [each.webhook.uid for each in made]}
    if payload is not None:
        chosen["payload"] = payload
    trigger = {"provider": "webhook", "event": "received", "filter": chosen}
    installation.management.automations.create(
        may or installation.may, name, prompt="Look.", triggers=[trigger], **choices
    )


def test_the_log_says_what_each_delivery_started(page: Page, installation: Installation):
    heard, unheard = (installation.management.webhooks.create(installation.may, name) for name in ("heard", "unheard"))
    for name in ("one", "another"):
        listen(installation, name, heard, payload={"to": {"not_in": ["one"]}} if name == "another" else None)
    accepted(installation, heard, '{"to": "both"}')
    accepted(installation, heard, '{"to": "both"}')
    accepted(installation, heard, '{"to": "one"}')
    accepted(installation, unheard, '{"to": "nobody"}')

    page.goto(installation.url(f"{LOG}?webhook={heard.webhook.uid}"))
    expect(page.locator("#log td.runs")).to_have_text(["1 run", "2 runs"])
    page.get_by_role("link", name="2 runs").click()
    expect(page).to_have_url(re.compile("/deliveries/dlv_[0-9a-f]+#runs$"))
    expect(page.get_by_role("row").filter(has=page.get_by_text(re.compile("^(one|another)$")))).to_have_count(2)

    page.goto(installation.url(f"{LOG}?webhook={unheard.webhook.uid}"))
    expect(page.locator("#log td.runs")).to_have_text("none")
    expect(page.locator("#log")).to_contain_text("no id")


def test_automations_of_other_webhooks_are_not_failures(page: Page, installation: Installation):
    installation.management.factories.create(installation.may_administer, "apart")
    may = installation.management.access.operator("apart")
    made, far, farther = (installation.management.webhooks.create(may, name) for name in ("near", "far", "farther"))
    listen(installation, "a far one", far, may=may)
    sent = accepted(installation, made)
    page.goto(installation.url(f"/f/apart/deliveries/{sent}"))
    far_one = page.locator(".elsewhere li", has_text="a far one")
    expect(page.get_by_text("No automation selects near.")).to_be_visible()
    expect(far_one.get_by_text("selects another webhook")).to_be_visible()

    for name in ("far too", "very far", "off and far"):
        listen(installation, name, far, farther, may=may, enabled=name != "off and far")
    listen(installation, "a close miss", made, may=may, payload={"at": {"exists": False}})
    listen(installation, "willing", made, may=may)
    installation.management.webhooks.delete(may, made.webhook.uid)
    page.goto(installation.url(f"/f/apart/deliveries/{sent}"))

    assert page.locator("section.card h3 a").all_inner_texts() == ["willing", "a close miss"]
    expect(page.locator("section.card .tag.no")).to_have_text(["Would not trigger", "failed", "no"])
    expect(far_one).to_be_hidden()
    page.locator("summary", has_text=re.compile("automations that select other webhooks")).click()
    expect(far_one).to_be_visible()
    expect(page.locator(".elsewhere")).to_contain_text("very far selects other webhooks")
    expect(page.locator(".elsewhere .tag.no")).to_have_count(0)
    expect(page.locator(".facts")).to_contain_text("deleted")


def test_what_was_refused_has_no_payload_and_says_so(
    page: Page, installation: Installation, webhook: WebhookWithSecret
):
    installation.service.post(webhook, token="wrong")
    refused = installation.management.log.newest(
        installation.may, webhook="source", label=Label.REJECTED_AUTH, limit=1
    )[0]

    page.goto(installation.url(f"{LOG}/{delivery_id(refused.key)}"))

    expect(page.get_by_text("Only accepted deliveries have")).to_be_visible()
    expect(page.get_by_text("127.0.0.1")).to_be_visible()
    expect(page.get_by_role("link", name="Download")).to_have_count(0)
    expect(page.get_by_role("button", name="Replay")).to_have_count(0)


def test_a_payload_is_downloaded_byte_for_byte(page: Page, installation: Installation, webhook: WebhookWithSecret):
    body = '{"b":1, "a" : "\\u00e9 é",\n "number": 1.0e2}'
    sent = accepted(installation, webhook, body)
    page.goto(installation.url(f"{LOG}/{sent}"))

    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download event-payload.json").click()

    assert downloading.value.suggested_filename == "event-payload.json"
    assert downloading.value.path().read_bytes() == body.encode()
    answer = page.request.get(installation.url(f"{LOG}/{sent}/payload"))
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("kind", HOSTILE_BODIES)
def test_a_hostile_payload_is_text_and_nothing_else(
    page: Page, installation: Installation, webhook: WebhookWithSecret, kind: str
):
    body = HOSTILE_BODIES[kind]
    sent = accepted(installation, webhook, body)

    for raw in ("", "?raw=all"):
        answer = page.goto(installation.url(f"{LOG}/{sent}{raw}"))
        assert answer is not None
        assert answer.status == 200

    # What the page itself has, and nothing of the payload's.
    assert page.locator("main script, main img, main b, main iframe, main object").count() == 0
    text = page.locator("main").inner_text()
    assert not set(text) & set("\u202e\u202d\u2066\u2069\u061c\u200b\x00")
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0


def test_hostile_names_and_event_ids_are_text_in_the_log(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "<b>mark & up</b>")
    accepted(installation, made, **{"X-Service-Delivery-Id": "<script>alert(1)</script>'\"&amp;"})

    page.goto(installation.url(f"{LOG}?webhook={made.webhook.uid}"))

    row = page.locator("#log tr[data-key]")
    expect(row).to_contain_text("<b>mark & up</b>")
    expect(row).to_contain_text("<script>alert(1)</script>'\"&amp;")


def test_without_scripts_the_log_is_read_and_a_delivery_run_again(
    new_profile: Callable[..., BrowserContext],
    signed_in_state: Any,
    installation: Installation,
    webhook: WebhookWithSecret,
    automation: str,
):
    sent = accepted(installation, webhook, '{"action": "opened", "issue": {"n": "no script"}}')
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto(installation.url(LOG))
    page.get_by_label("Webhook").select_option(label="source")
    page.get_by_role("button", name="Filter").click()

    page.locator(f"#{sent} a").first.click()
    page.get_by_role("button", name="Replay").click()

    expect(page.get_by_text("replay 1")).to_be_visible()


@pytest.fixture
def viewer(signed_out_page: Page, installation: Installation) -> Iterator[Page]:
    admin = installation.may_administer
    installation.management.members.add(admin, "vera@example.com", "Vera")
    installation.management.members.set_role(admin, "vera@example.com", "default", Role.VIEWER)
    link = installation.management.sessions.create_link(admin, "vera@example.com")
    installation.management.sessions.accept_link(link.reveal(), password=PASSWORD, client=None)
    sign_in(signed_out_page, installation, "vera@example.com")
    yield signed_out_page
    installation.management.members.remove(admin, "vera@example.com")


def test_a_viewer_reads_and_runs_nothing(
    viewer: Page, installation: Installation, webhook: WebhookWithSecret, automation: str
):
    sent = accepted(installation, webhook, '{"action": "opened", "issue": {"for": "viewers"}}')
    viewer.goto(installation.url(f"{LOG}/{sent}"))
    expect(viewer.get_by_role("heading", name="Payload")).to_be_visible()
    expect(viewer.get_by_role("button", name="Replay")).to_have_count(0)

    csrf = viewer.locator("input[name=csrf]").first.get_attribute("value") or ""
    refused = viewer.evaluate(
        """([path, csrf]) => fetch(path, {method: "POST", headers: {"X-CSRF-Token": csrf},
            body: new URLSearchParams({})}).then(answer => answer.status)""",
        [f"{LOG}/{sent}/replay", csrf],
    )

    assert refused == 403
    assert [run.replay_number for run in installation.management.runs.of_delivery(installation.may, sent)] == [0]


def test_the_pages_look_right(
    check_accessibility: Any, installation: Installation, automation: str, webhook: WebhookWithSecret
):
    made = installation.management.webhooks.create(installation.may, "looked at")
    body = {"action": "opened", "issue": {"number": 12, "title": HOSTILE_TEXT, "labels": ["bug", None, True]}, "to": {}}
    sent = accepted(installation, webhook, json.dumps(body), **{"X-Service-Delivery-Id": "a-long-event-id-" + "0" * 60})
    accepted(installation, made, '{"n": 1}', **{"X-Service-Delivery-Id": "same"})
    again = accepted(installation, made, '{"n": 1}', **{"X-Service-Delivery-Id": "same"})
    installation.service.post(made, token="wrong")
    quiet = installation.management.webhooks.create(installation.may, "quiet")
    for name in ("listener of others", "another listener of others"):
        listen(installation, name, made, quiet)
    installation.management.webhooks.set_enabled(installation.may, webhook.webhook.uid, False)

    check_accessibility("deliveries", LOG)
    check_accessibility("deliveries-waiting", f"{LOG}?webhook={quiet.webhook.uid}")
    check_accessibility("deliveries-none", f"{LOG}?until=2001-01-01T00:00")
    check_accessibility("delivery", f"{LOG}/{sent}", prepare=lambda page: page.locator(".elsewhere summary").click())
    check_accessibility("delivery-duplicate", f"{LOG}/{again}")
    installation.management.webhooks.set_enabled(installation.may, webhook.webhook.uid, True)


def test_a_delivery_leads_to_an_automation_that_begins_with_it(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "led from")
    sent = installation.service.post(made, b'{"led": "here"}').delivery_id
    page.goto(installation.url(f"{LOG}/{sent}"))

    page.get_by_role("link", name="New automation from this delivery").click()

    expect(page.get_by_role("button", name='led "here"')).to_be_visible()
    expect(page.get_by_label("led from")).to_be_checked()
