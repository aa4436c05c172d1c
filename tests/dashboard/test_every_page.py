"""Properties of every page: it is accessible, its focused element is visible, and it doesn't scroll sideways."""

import json
from collections import defaultdict
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.permission import Role
from hookmill.domain.webhook import AuthMode
from hookmill.store.database import open_database, sqlite_url
from hookmill.web.dashboard import PAGES
from tests.dashboard.conftest import WIDE
from tests.dashboard.runners import create_automation, create_manager
from tests.support.alarms import add_alarm
from tests.support.counts import are_full, count

NOT_PAGES: Final = ("/static/{digest}/{name}", "/live", "/payload")
LONG_NAME: Final = "one-name-without-a-place-to-break-it-" + "x" * 60
TAB_STOPS_MAX: Final = 250
KEYS_PER_BATCH: Final = 25
WIDTHS: Final = (360, 320) if are_full() else (320,)
"""In pixels."""
PAGE_STEP: Final = count(1, usually=4)
"""One page in so many is opened."""
KEYBOARD_CHECK_EVERY: Final = count(1, usually=4)
"""One of the opened pages in so many is checked with the keyboard."""

CHECK_FOCUS = """() => {
    const element = document.activeElement;
    if (element === document.body || (visited.has(element) && element !== window.last)) return null;
    visited.add(element);
    window.last = element;
    const box = [...element.getClientRects()].find((each) => each.width > 0 && each.height > 0);
    if (!box) return [element.outerHTML.slice(0, 200), "is not rendered"];
    const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2;
    const x = middle(box.left, box.right, innerWidth), y = middle(box.top, box.bottom, innerHeight);
    const hit = document.elementFromPoint(x, y);
    const isShown = [element, ...(element.labels ?? [])].some((each) => hit !== null && each.contains(hit));
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
    const isMarked = (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1) || boxShadow !== "none";
    const faults = [];
    if (!isMarked || outline(element) === unfocused.get(element)) faults.push("shows no focus");
    if (!isShown) faults.push(`is hidden by ${hit ? hit.outerHTML.slice(0, 100) : "the edge"}`);
    return [element.outerHTML.slice(0, 200), faults.join(", ")];
}"""
"""Returns the focused element and its faults, or null if the focus has left the page or returned to its start."""

PREPARE = (
    f"() => {{ const checkFocus = {CHECK_FOCUS};"
    + """
    for (const details of document.querySelectorAll("details")) details.open = true;
    window.outline = (element) => {
        const style = getComputedStyle(element);
        return [style.outlineStyle, style.outlineWidth, style.outlineColor, style.boxShadow].join(" ");
    };
    document.activeElement.blur();
    window.unfocused = new Map([...document.querySelectorAll("*")].map((element) => [element, outline(element)]));
    window.visited = new Set();
    window.results = [];
    window.onkeyup = () => results.push(checkFocus());
}"""
)
"""Unfolds the page, and stores the outline of every element without the focus. Then every key adds a result."""

TAKE_RESULTS = "() => results.splice(0)"

TOO_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5)
    .map((each) => each.outerHTML.slice(0, 160)).slice(0, 4)"""


@pytest.fixture(scope="module")
def paths(installation):
    """The paths of all pages. The factory has one object of every kind, and their names have no place to break."""
    management, may, may_administer = installation.management, installation.may, installation.may_administer
    networks = ["127.0.0.1", *(f"2001:db8:ffff:ffff:ffff:ffff:ffff:{number:x}00/120" for number in range(160, 223))]
    webhook = management.webhooks.create(
        may, {"name": LONG_NAME, "delivery_id_header": "X-Event-Id", "allowed_networks": networks}
    )
    provider_webhook = management.webhooks.create(
        may, {"name": "of a provider", "auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github"}
    )
    automation_id = create_automation(installation, LONG_NAME, webhook)
    body = json.dumps({"action": "opened", LONG_NAME: {"deep": [1, {LONG_NAME: "y" * 300}]}}).encode()
    accepted = installation.service.post(webhook, body, headers={"X-Event-Id": "e" * 200})
    assert accepted.status == 202
    installation.service.post(webhook, body, headers={"X-Event-Id": "e" * 200})
    installation.service.post(webhook, b"no JSON")
    installation.service.post(webhook, token="wrong")
    management.secrets.create(may, "S" * 64)
    create_manager(installation, "m" * 50 + "@" + "long." * 8 + "example.com", LONG_NAME)
    (member,) = [member for member in management.members.all(may_administer) if member.name == LONG_NAME]
    key = management.keys.create(may_administer, LONG_NAME, Role.VIEWER, factory="default").key
    management.factories.create(may_administer, LONG_NAME)
    (run,) = management.runs.of_delivery(may, accepted.delivery_id)
    with open_database(sqlite_url(installation.service.data_dir / "hookmill.db")) as database:
        alarm = add_alarm(database, may.factory.id, webhook.webhook.uid, name=LONG_NAME)
    parameters: dict[str, Any] = defaultdict(
        lambda: "nothing",
        factory="default",
        uid=webhook.webhook.uid,
        webhook=webhook.webhook.uid,
        name="S" * 64,
        secret="S" * 64,
        automation=automation_id,
        delivery=accepted.delivery_id,
        run="run_" + run.id.hex(),
        member=member.id,
        key=key.id,
        alarm=alarm,
        token="nothing",
    )
    patterns = [page.path for page in PAGES if page.method == "GET" and not page.path.endswith(NOT_PAGES)]
    return [
        *(pattern.format_map(parameters) for pattern in patterns),
        f"/f/{LONG_NAME}",
        f"/f/default/webhooks/{provider_webhook.webhook.uid}",
        f"/f/default/automations/{automation_id}/edit?triggers=list",
        "/f/default/deliveries?label=no-such-label",
    ]


def focus_faults(page: Page) -> list[str]:
    """Press Tab until the focus has been on all elements that it reaches. Returns the elements with faults."""
    page.evaluate(PREPARE)
    results: list[list[str] | None] = []
    while None not in results and len(results) < TAB_STOPS_MAX:
        for _ in range(KEYS_PER_BATCH):
            page.keyboard.press("Tab")
        batch = page.evaluate(TAKE_RESULTS)
        assert len(batch) == KEYS_PER_BATCH
        results += batch
    if None not in results:
        return [f"more than {TAB_STOPS_MAX} elements"]
    return [": ".join(result) for result in results[: results.index(None)] if result is not None and result[1]]


@pytest.mark.timeout(300)
def test_every_page_marks_the_focus_and_fits_narrow_screens(page, installation, paths):
    faults: dict[str, list[str]] = {}
    pages_shown = 0
    for number, path in enumerate(paths[::PAGE_STEP]):
        uses_keyboard = number % KEYBOARD_CHECK_EVERY == 0
        if uses_keyboard:
            page.set_viewport_size(WIDE)
        answer = page.goto(path)
        assert answer is not None
        assert answer.status < 500, path
        if page.get_by_role("main").count() == 0:
            # The answer is a part of a page.
            continue
        pages_shown += answer.ok
        if uses_keyboard and (page_faults := focus_faults(page)):
            faults[path] = page_faults
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 740})
            if page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
                faults[f"{path} at {width} px"] = page.evaluate(TOO_WIDE)

    assert faults == {}
    assert pages_shown * PAGE_STEP >= 30


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_every_page_is_accessible(page, installation, paths, check_accessibility):
    for path in paths:
        page.goto(path)
        # Other answers are parts of pages.
        if page.get_by_role("main").count():
            check_accessibility(path.partition("?")[0].strip("/").replace("/", "-"), path)


def test_menu_of_a_narrow_screen_opens_and_closes_by_link(page, installation):
    page.set_viewport_size({"width": 320, "height": 740})
    page.goto("/f/default/deliveries")
    links = page.get_by_role("navigation", name="Factory").get_by_role("link")
    height = page.get_by_role("banner").evaluate("element => element.getBoundingClientRect().height")
    expect(links.first).to_be_hidden()

    page.get_by_role("link", name="Menu: Deliveries").press("Enter")
    expect(links.first).to_be_visible()
    assert "page" in [link.get_attribute("aria-current") for link in links.all()]
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Automations", exact=True)).to_be_focused()
    # The open menu does not cover the elements after it.
    assert focus_faults(page) == []
    page.get_by_role("link", name="Close menu").press("Enter")
    expect(links.first).to_be_hidden()
    page.get_by_role("link", name="Menu: Deliveries").press("Enter")
    page.get_by_role("link", name="Automations", exact=True).press("Enter")

    expect(page.get_by_role("link", name="Menu: Automations")).to_be_visible()
    assert height < 60
    page.goto("/team/keys")
    expect(page.get_by_role("link", name="Audit log")).to_be_visible()
    page.get_by_role("link", name="Menu: Team").press("Enter")
    page.get_by_role("link", name="All factories").press("Enter")
    page.wait_for_url(lambda url: "/team" not in url)
