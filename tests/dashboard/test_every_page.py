"""What holds for every page, whatever it shows: the keyboard's place is seen, and nothing scrolls sideways."""

import json
from collections import defaultdict
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.permission import Role
from hookmill.domain.webhook import AuthMode
from hookmill.web.dashboard import PAGES
from tests.dashboard.conftest import WIDE, Installation
from tests.dashboard.runners import create_automation, create_manager
from tests.support.counts import are_full, count

NO_PAGES: Final = ("/static/{digest}/{name}", "/live", "/payload")
LONG: Final = "one-name-without-a-place-to-break-it-" + "x" * 60
STOPS_MAX: Final = 250
STOPS_AT_A_TIME: Final = 25
WIDTHS: Final = (360, 320) if are_full() else (320,)
"""In pixels."""
PAGES_TO_A_WALK: Final = count(1, usually=12)
"""Of so many pages one is walked through by keyboard."""

STOP = """() => {
    const element = document.activeElement;
    if (element === document.body || (walked.has(element) && element !== window.last)) return null;
    walked.add(element);
    window.last = element;
    const box = [...element.getClientRects()].find((each) => each.width > 0 && each.height > 0);
    if (!box) return [element.outerHTML.slice(0, 200), "has no place"];
    const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2;
    const x = middle(box.left, box.right, innerWidth), y = middle(box.top, box.bottom, innerHeight);
    const hit = document.elementFromPoint(x, y);
    const isShown = [element, ...(element.labels ?? [])].some((each) => hit !== null && each.contains(hit));
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
    const isMarked = (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1) || boxShadow !== "none";
    const faults = [];
    if (!isMarked || look(element) === resting.get(element)) faults.push("shows no focus");
    if (!isShown) faults.push(`is hidden by ${hit ? hit.outerHTML.slice(0, 100) : "the edge"}`);
    return [element.outerHTML.slice(0, 200), faults.join(", ")];
}"""
"""Where the focus is now, and what is wrong with that. Null once the walk is over."""

REST = (
    f"() => {{ const stop = {STOP};"
    + """
    for (const details of document.querySelectorAll("details")) details.open = true;
    window.look = (element) => {
        const style = getComputedStyle(element);
        return [style.outlineStyle, style.outlineWidth, style.outlineColor, style.boxShadow].join(" ");
    };
    document.activeElement.blur();
    window.resting = new Map([...document.querySelectorAll("*")].map((element) => [element, look(element)]));
    window.walked = new Set();
    window.stops = [];
    window.onkeyup = () => stops.push(stop());
}"""
)
"""Unfolds the page, and notes how everything looks while nothing has the focus. After that, where each key leads."""

TAKE_STOPS = "() => stops.splice(0)"

TOO_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5)
    .map((each) => each.outerHTML.slice(0, 160)).slice(0, 4)"""


@pytest.fixture(scope="module")
def addresses(installation: Installation) -> list[str]:
    """The address of every page, in a factory where there is one of everything, under names that are hard to break."""
    management, may = installation.management, installation.may
    team = installation.may_administer
    webhook = management.webhooks.create(may, LONG, delivery_id_header="X-Event-Id")
    of_provider = management.webhooks.create(
        may, "of a provider", auth_mode=AuthMode.SIGNATURE, signature_scheme="github"
    )
    listens = create_automation(installation, LONG, webhook)
    body = json.dumps({"action": "opened", LONG: {"deep": [1, {LONG: "y" * 300}]}}).encode()
    accepted = installation.service.post(webhook, body, headers={"X-Event-Id": "e" * 200})
    assert accepted.status == 202
    installation.service.post(webhook, body, headers={"X-Event-Id": "e" * 200})
    installation.service.post(webhook, b"no JSON")
    installation.service.post(webhook, token="wrong")
    management.secrets.create(may, "S" * 64)
    create_manager(installation, "m" * 50 + "@" + "long." * 8 + "example.com", LONG)
    (named,) = [each for each in management.members.all(team) if each.name == LONG]
    key = management.keys.create(team, LONG, Role.VIEWER, factory="default").key
    management.factories.create(team, LONG)
    (run,) = management.runs.of_delivery(may, accepted.delivery_id)
    places: dict[str, Any] = defaultdict(
        lambda: "nothing",
        factory="default",
        uid=webhook.webhook.uid,
        webhook=webhook.webhook.uid,
        name="S" * 64,
        secret="S" * 64,
        automation=listens,
        delivery=accepted.delivery_id,
        run="run_" + run.id.hex(),
        member=named.id,
        key=key.id,
        token="nothing",
    )
    paths = [page.path for page in PAGES if page.method == "GET" and not page.path.endswith(NO_PAGES)]
    return [
        *(path.format_map(places) for path in paths),
        f"/f/{LONG}",
        f"/f/default/webhooks/{of_provider.webhook.uid}",
        f"/f/default/automations/{listens}/edit?triggers=list",
        "/f/default/deliveries?label=no-such-label",
    ]


def walk(page: Page) -> list[str]:
    """Where Tab leads, stop by stop, and what is wrong there."""
    page.evaluate(REST)
    stops: list[list[str] | None] = []
    while None not in stops and len(stops) < STOPS_MAX:
        for _ in range(STOPS_AT_A_TIME):
            page.keyboard.press("Tab")
        noted = page.evaluate(TAKE_STOPS)
        assert len(noted) == STOPS_AT_A_TIME
        stops += noted
    if None not in stops:
        return [f"more than {STOPS_MAX} stops"]
    return [": ".join(stop) for stop in stops[: stops.index(None)] if stop is not None and stop[1]]


@pytest.mark.timeout(300)
def test_every_stop_of_the_keyboard_is_seen_and_nothing_scrolls_sideways(
    page: Page, installation: Installation, addresses: list[str]
):
    wrong: dict[str, list[str]] = {}
    seen = 0
    for number, address in enumerate(addresses):
        page.set_viewport_size(WIDE)
        answer = page.goto(installation.url(address))
        assert answer is not None
        assert answer.status < 500, address
        if page.get_by_role("main").count() == 0:
            # A part of a page.
            continue
        seen += answer.ok
        if number % PAGES_TO_A_WALK == 0 and (found := walk(page)):
            wrong[address] = found
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 740})
            if page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
                wrong[f"{address} at {width} px"] = page.evaluate(TOO_WIDE)

    assert wrong == {}
    assert seen >= 30


def test_a_narrow_screen_has_its_menu_behind_one_link(page: Page, installation: Installation):
    page.set_viewport_size({"width": 320, "height": 740})
    page.goto(installation.url("/f/default/deliveries"))
    links = page.get_by_role("navigation", name="Factory").get_by_role("link")
    height = page.get_by_role("banner").evaluate("element => element.getBoundingClientRect().height")
    expect(links.first).to_be_hidden()

    page.get_by_role("link", name="Menu: Deliveries").press("Enter")
    expect(links.first).to_be_visible()
    assert "page" in [link.get_attribute("aria-current") for link in links.all()]
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Automations", exact=True)).to_be_focused()
    # What comes after the menu is not hidden under it.
    assert walk(page) == []
    page.get_by_role("link", name="Close menu").press("Enter")
    expect(links.first).to_be_hidden()
    page.get_by_role("link", name="Menu: Deliveries").press("Enter")
    page.get_by_role("link", name="Automations", exact=True).press("Enter")

    expect(page.get_by_role("link", name="Menu: Automations")).to_be_visible()
    assert height < 60
    page.goto(installation.url("/team/keys"))
    expect(page.get_by_role("link", name="Audit log")).to_be_visible()
    page.get_by_role("link", name="Menu: Team").press("Enter")
    page.get_by_role("link", name="All factories").press("Enter")
    page.wait_for_url(lambda url: "/team" not in url)
