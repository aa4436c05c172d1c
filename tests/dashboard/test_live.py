"""The log as it grows before one's eyes."""

import http.client
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from hookmill.domain.permission import Role
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import PASSWORD, Installation
from tests.support.service import serving

LOG = "/f/default/deliveries"
ON_SCREEN_MS = 500
STALLED_MS = 10_000
"""For single rows, on a machine that does much else."""
SHUT_OUT_SECONDS = 12.0
"""A stream that goes on says something every 15 s."""
STOPPED_SECONDS = 12.0
"""A server that waits for open streams takes 15 s."""
NOW = "performance.timeOrigin + performance.now()"

NOTE_ARRIVALS = """
    window.arrivals = {};
    new MutationObserver((changes) => {
        for (const change of changes)
            for (const row of change.addedNodes)
                if (row.id) window.arrivals[row.id] = NOW;
    }).observe(document.getElementById("log"), {childList: true});
""".replace("NOW", NOW)


@pytest.fixture(scope="module")
def webhook(installation: Installation) -> WebhookWithSecret:
    return installation.management.webhooks.create(installation.may, "live")


def watch(page: Page, installation: Installation, path: str = LOG) -> None:
    page.goto(installation.url(path))
    expect(page.locator("#live-state")).to_have_text("Live")


def post(installation: Installation, webhook: WebhookWithSecret, **headers: str) -> str:
    answer = installation.service.post(webhook, b'{"at": %d}' % time.time_ns(), headers=headers)
    assert answer.status == 202
    return answer.delivery_id


def test_a_row_is_on_screen_soon_after_its_202(page: Page, installation: Installation, webhook: WebhookWithSecret):
    watch(page, installation)
    page.evaluate(NOTE_ARRIVALS)
    answered: dict[str, float] = {}
    for _ in range(12):
        sent = post(installation, webhook)
        answered[sent] = page.evaluate(NOW)
        # Not in step with whoever looks at intervals.
        page.wait_for_timeout(70)

    expect(page.locator(f"#{max(answered)}")).to_be_visible()

    arrivals: dict[str, float] = page.evaluate("window.arrivals")
    took = sorted(arrivals[sent] - at for sent, at in answered.items())
    print(f"on screen after {took[0]:.0f} to {took[-1]:.0f} ms, median {took[len(took) // 2]:.0f} ms")
    assert took[-4] < ON_SCREEN_MS
    assert took[-1] < STALLED_MS
    ids = [row.get_attribute("id") or "" for row in page.locator("#log tr[data-key]").all()]
    assert ids == sorted(ids, reverse=True)


def test_a_body_that_took_its_time_comes_in_below_those_that_overtook_it(
    page: Page, installation: Installation, webhook: WebhookWithSecret
):
    watch(page, installation)
    body = b'{"slow": %d}' % time.time_ns()
    with socket.create_connection(("127.0.0.1", installation.service.port)) as slow:
        slow.sendall(
            f"POST /webhooks/w/{webhook.webhook.uid} HTTP/1.1\r\nHost: here\r\n"
            f"Authorization: Bearer {webhook.reveal()}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        page.wait_for_timeout(300)
        quick = post(installation, webhook)
        expect(page.locator("#log tr[data-key]").first).to_have_attribute("id", quick)
        slow.sendall(body)
        answer = b"".join(iter(lambda: slow.recv(4096), b"")).decode()

    [late] = re.findall("dlv_[0-9a-f]{32}", answer)

    expect(page.locator("#log tr[data-key]").nth(1)).to_have_attribute("id", late)


def test_the_page_shows_the_first_delivery_with_its_runs(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "awaited")
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}
    installation.management.automations.create(installation.may, "waiting", prompt="Look.", triggers=[trigger])
    watch(page, installation, f"{LOG}?webhook={made.webhook.uid}")
    expect(page.locator("#log-empty")).to_contain_text("Waiting for the first delivery…")
    expect(page.get_by_role("link", name="rotate the secret")).to_have_attribute(
        "href", f"/f/default/webhooks/{made.webhook.uid}#rotate"
    )

    sent = post(installation, made)

    expect(page.locator(f"#{sent} td.runs")).to_have_text("1 run")
    expect(page.locator("#log-empty")).to_have_count(0)


def test_only_rows_that_match_appear(page: Page, installation: Installation, webhook: WebhookWithSecret):
    other = installation.management.webhooks.create(installation.may, "another")
    watch(page, installation, f"{LOG}?webhook={webhook.webhook.uid}&label=accepted&identity=wanted")

    post(installation, other, **{"X-Service-Delivery-Id": "wanted"})
    post(installation, webhook, **{"X-Service-Delivery-Id": "unwanted"})
    wanted = post(installation, webhook, **{"X-Service-Delivery-Id": "wanted"})
    post(installation, webhook, **{"X-Service-Delivery-Id": "wanted"})

    expect(page.locator(f"#{wanted}")).to_be_visible()
    page.wait_for_timeout(400)
    expect(page.locator("#log tr[data-key]")).to_have_count(1)


def test_only_rows_of_the_event_type_appear(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "typed", event_header="X-Kind")
    watch(page, installation, f"{LOG}?webhook={made.webhook.uid}&event=paid")

    post(installation, made, **{"X-Kind": "refunded", "X-Service-Delivery-Id": "1"})
    wanted = post(installation, made, **{"X-Kind": "paid", "X-Service-Delivery-Id": "2"})

    expect(page.locator(f"#{wanted}")).to_be_visible()
    page.wait_for_timeout(400)
    expect(page.locator("#log tr[data-key]")).to_have_count(1)


def test_while_paused_rows_wait_and_nothing_is_lost(page: Page, installation: Installation, webhook: WebhookWithSecret):
    watch(page, installation)
    page.get_by_role("button", name="Pause").click()

    sent = [post(installation, webhook) for _ in range(3)]

    expect(page.locator("#live-state")).to_have_text("Paused, 3 waiting")
    expect(page.locator(f"#{sent[0]}")).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    for each in sent:
        expect(page.locator(f"#{each}")).to_be_visible()
    expect(page.locator("#live-status")).to_have_text("3 new deliveries")


def test_the_page_stays_as_long_as_it_was(page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "full")
    for _ in range(50):
        post(installation, made)
    watch(page, installation, f"{LOG}?webhook={made.webhook.uid}")
    expect(page.get_by_role("link", name="Older")).to_be_hidden()
    oldest = page.locator("#log tr[data-key]").last.get_attribute("id")

    sent = post(installation, made)

    expect(page.locator(f"#{sent}")).to_be_visible()
    expect(page.locator("#log tr[data-key]")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("#log tr[data-key]")).to_have_attribute("id", oldest or "")


class Listening:
    """A stream as a program reads it."""

    def __init__(self, installation: Installation, cookie: str, path: str = f"{LOG}/live", **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", installation.service.port, timeout=SHUT_OUT_SECONDS)
        self.connection.request("GET", path, headers={"Cookie": cookie} | headers)
        self.response = self.connection.getresponse()

    def until(self, wanted: str) -> str:
        """Read on until a line begins so; what was read. At the stream's end too."""
        read = ""
        while line := self.response.readline().decode():
            read += line
            if wanted and line.startswith(wanted):
                break
        return read

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def listen(installation: Installation) -> Iterator[Callable[..., Listening]]:
    listening: list[Listening] = []

    def begin(cookie: str, *path: str, **headers: str) -> Listening:
        listening.append(Listening(installation, cookie, *path, **headers))
        return listening[-1]

    yield begin
    for each in listening:
        each.close()


def cookie_of(installation: Installation, email: str = "ada@example.com") -> str:
    token = installation.management.sessions.sign_in(email, PASSWORD, client=None)
    assert token is not None
    return f"hookmill={token.reveal()}"


def test_a_stream_goes_on_where_it_broke(
    installation: Installation, webhook: WebhookWithSecret, listen: Callable[..., Listening]
):
    cookie = cookie_of(installation)
    first = post(installation, webhook)
    missed = [post(installation, webhook), post(installation, webhook)]

    stream = listen(cookie, **{"Last-Event-ID": first})

    read = stream.until(f"id: {missed[-1]}")
    assert read.index(f"id: {missed[0]}") < read.index(f"id: {missed[1]}")


def test_a_stream_ends_soon_after_its_session(installation: Installation, listen: Callable[..., Listening]):
    cookie = cookie_of(installation)
    stream = listen(cookie)
    stream.until("retry")
    since = time.monotonic()

    installation.management.sessions.sign_out(cookie.removeprefix("hookmill="))

    assert "event: end\ndata: signed-out" in stream.until("")
    assert time.monotonic() - since < SHUT_OUT_SECONDS


def test_a_stream_ends_soon_after_a_role_was_taken_away(installation: Installation, listen: Callable[..., Listening]):
    admin = installation.may_administer
    member = installation.management.members.add(admin, "leo@example.com", "Leo")
    installation.management.members.set_role(admin, member.id, "default", Role.VIEWER)
    link = installation.management.sessions.create_link(admin, "leo@example.com")
    installation.management.sessions.accept_link(link.reveal(), password=PASSWORD, client=None)
    stream = listen(cookie_of(installation, "leo@example.com"))
    assert stream.response.status == 200
    stream.until("retry")

    installation.management.members.set_role(admin, member.id, "default", None)

    assert "event: end\ndata: signed-out" in stream.until("")


def test_a_fifth_stream_of_one_session_ends_the_first(
    installation: Installation, webhook: WebhookWithSecret, listen: Callable[..., Listening]
):
    cookie = cookie_of(installation)
    streams = [listen(cookie) for _ in range(5)]
    for stream in streams[1:]:
        stream.until("retry")

    assert "event: end\ndata: too-many-streams" in streams[0].until("")
    sent = post(installation, webhook)
    for stream in streams[1:]:
        assert f"id: {sent}" in stream.until("id:")


def test_a_client_without_a_session_gets_no_stream(installation: Installation):
    answer = installation.service.request("GET", f"{LOG}/live")

    assert (answer.status, answer.headers["location"]) == (303, f"/sign-in?next={'%2Ff%2Fdefault%2Fdeliveries%2Flive'}")


def test_a_page_whose_session_ended_says_that_it_is_no_longer_live(
    new_profile: Callable[..., BrowserContext], installation: Installation
):
    cookie = cookie_of(installation)
    name, _, value = cookie.partition("=")
    context = new_profile()
    context.add_cookies([{"name": name, "value": value, "url": installation.base_url}])
    page = context.new_page()
    watch(page, installation)

    installation.management.sessions.sign_out(value)

    expect(page.locator("#live-state")).to_have_text(re.compile("Live updates ended"))
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()


def test_open_streams_do_not_delay_a_stop_and_reconnect(tmp_path: Path, browser: Browser):
    # The browser's own context: a service that is gone is told of on the console.
    context = browser.new_context()
    with serving(tmp_path / "data") as service, service.management() as management:
        link = management.sessions.create_first_link()
        assert link is not None
        token = management.sessions.accept_link(
            link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
        )
        installation = Installation(service, management)
        made = management.webhooks.create(installation.may, "before and after")
        context.add_cookies([{"name": "hookmill", "value": token.reveal(), "url": installation.base_url}])
        page = context.new_page()
        watch(page, installation)
        stream = Listening(installation, f"hookmill={token.reveal()}")
        stream.until("retry")
        # One that doesn't read.
        deaf = socket.create_connection(("127.0.0.1", service.port))
        deaf.sendall(f"GET {LOG}/live HTTP/1.1\r\nHost: here\r\nCookie: hookmill={token.reveal()}\r\n\r\n".encode())
        time.sleep(0.3)
        since = time.monotonic()

        assert service.stop() == 0

        took = time.monotonic() - since
        print(f"stopped {took:.1f} s after it was told to")
        assert took < STOPPED_SECONDS
        assert "event: end" not in stream.until(""), "a browser that is told of an end doesn't come again"
        stream.close()
        deaf.close()
        service.start()
        sent = post(installation, made)
        expect(page.locator(f"#{sent}")).to_be_visible()
    context.close()


def test_the_live_page_keeps_to_its_narrow_screen(
    check_accessibility: Any, installation: Installation, webhook: WebhookWithSecret
):
    def arrive(page: Page) -> None:
        expect(page.locator("#live-state")).to_have_text("Live")
        sent = post(installation, webhook)
        expect(page.locator(f"#{sent}")).to_be_visible()

    check_accessibility("deliveries-live", f"{LOG}?webhook={webhook.webhook.uid}&identity=wanted", prepare=None)
    check_accessibility("deliveries-arriving", f"{LOG}?webhook={webhook.webhook.uid}&label=accepted", prepare=arrive)
