"""The live delivery log: in a browser, and its event stream as a program reads it."""

import http.client
import re
import socket
import time

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.permission import Role
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import PASSWORD, Installation, create_first_admin, press
from tests.support.automations import automation_created
from tests.support.service import serving
from tests.support.triggers import received
from tests.support.waiting import stalls

LOG = "/f/default/deliveries"
ON_SCREEN_MS = 500
STALLED_MS = 10_000
"""The limit for the slowest rows, on a busy machine."""
STREAM_END_SECONDS = 12.0
"""Less than the 15 s between two heartbeats of an open stream."""
STOP_SECONDS = 12.0
"""Less than the 15 s for which the server waits for open responses."""
NOW = "performance.timeOrigin + performance.now()"

RECORD_ARRIVALS = """
    window.arrivals = {};
    new MutationObserver((changes) => {
        for (const change of changes)
            for (const row of change.addedNodes)
                if (row.id) window.arrivals[row.id] = NOW;
    }).observe(document.getElementById("log"), {childList: true});
""".replace("NOW", NOW)


@pytest.fixture(scope="module")
def webhook(installation):
    return installation.webhook("live")


def open_live_log(page: Page, installation: Installation, path: str = LOG) -> None:
    page.goto(installation.url(path))
    expect(page.locator("#live-state")).to_have_text("Live")


def deliver(installation: Installation, webhook: WebhookWithSecret, **headers: str) -> str:
    """Returns the id of the accepted delivery."""
    answer = installation.service.post(webhook, b'{"at": %d}' % time.time_ns(), headers=headers)
    assert answer.status == 202
    return answer.delivery_id


def test_delivery_is_on_screen_soon_after_its_202(page, installation, webhook):
    open_live_log(page, installation)
    page.evaluate(RECORD_ARRIVALS)
    answers: dict[str, float] = {}
    with stalls() as stall_seconds:
        for _ in range(12):
            delivery = deliver(installation, webhook)
            answers[delivery] = page.evaluate(NOW)
            # Not a multiple of the interval between polls.
            page.wait_for_timeout(70)

        expect(page.locator(f"#{max(answers)}")).to_be_visible()

    arrivals: dict[str, float] = page.evaluate("window.arrivals")
    delays = sorted(arrivals[delivery] - answered_at for delivery, answered_at in answers.items())
    print(f"on screen after {delays[0]:.0f} to {delays[-1]:.0f} ms, median {delays[len(delays) // 2]:.0f} ms")
    assert delays[-4] - 1_000 * sum(stall_seconds) < ON_SCREEN_MS
    assert delays[-1] < STALLED_MS
    ids = [row.get_attribute("id") or "" for row in page.locator("#log tr[data-key]").all()]
    assert ids == sorted(ids, reverse=True)


def test_delivery_with_a_slow_body_is_inserted_below_newer_ones(page, installation, webhook):
    open_live_log(page, installation)
    body = b'{"slow": %d}' % time.time_ns()
    with socket.create_connection(("127.0.0.1", installation.service.port)) as slow:
        slow.sendall(
            f"POST /webhooks/w/{webhook.webhook.uid} HTTP/1.1\r\nHost: here\r\n"
            f"Authorization: Bearer {webhook.reveal()}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        page.wait_for_timeout(300)
        newer = deliver(installation, webhook)
        expect(page.locator("#log tr[data-key]").first).to_have_attribute("id", newer)
        slow.sendall(body)
        answer = b"".join(iter(lambda: slow.recv(4096), b"")).decode()

    [older] = re.findall("dlv_[0-9a-f]{32}", answer)
    expect(page.locator("#log tr[data-key]").nth(1)).to_have_attribute("id", older)


def test_first_delivery_appears_with_its_number_of_runs(page, installation):
    webhook = installation.webhook("awaited")
    trigger = received(webhook.webhook.uid)
    automation_created(installation.management, installation.may, "waiting", triggers=[trigger])
    open_live_log(page, installation, f"{LOG}?webhook={webhook.webhook.uid}")
    expect(page.locator("#log-empty")).to_contain_text("Waiting for the first delivery…")
    expect(page.get_by_role("link", name="rotate the secret")).to_have_attribute(
        "href", f"/f/default/webhooks/{webhook.webhook.uid}#rotate"
    )

    delivery = deliver(installation, webhook)

    expect(page.locator(f"#{delivery} td.runs")).to_have_text("1 run")
    expect(page.locator("#log-empty")).to_have_count(0)


@pytest.mark.parametrize("filters", ["label=accepted&identity=wanted", "label=accepted&event=wanted"])
def test_only_deliveries_that_match_the_filters_appear(page, installation, filters):
    webhook, other = (installation.webhook(f"{name} {filters}", event_header="X-Kind") for name in ("one", "another"))
    open_live_log(page, installation, f"{LOG}?webhook={webhook.webhook.uid}&{filters}")

    def deliver_with(value: str, webhook: WebhookWithSecret = webhook) -> str:
        return deliver(installation, webhook, **{"X-Service-Delivery-Id": value, "X-Kind": value})

    deliver_with("wanted", other)
    deliver_with("unwanted")
    wanted = deliver_with("wanted")
    deliver_with("wanted")

    expect(page.locator(f"#{wanted}")).to_be_visible()
    page.wait_for_timeout(400)
    expect(page.locator("#log tr[data-key]")).to_have_count(1)


def test_deliveries_during_a_pause_appear_after_it(page, installation, webhook):
    open_live_log(page, installation)
    press(page, "Pause")

    deliveries = [deliver(installation, webhook) for _ in range(3)]

    expect(page.locator("#live-state")).to_have_text("Paused, 3 waiting")
    expect(page.locator(f"#{deliveries[0]}")).to_have_count(0)
    press(page, "Resume")
    for delivery in deliveries:
        expect(page.locator(f"#{delivery}")).to_be_visible()
    expect(page.locator("#live-status")).to_have_text("3 new deliveries")


def test_live_page_keeps_its_length(page, installation):
    webhook = installation.webhook("full")
    for _ in range(50):
        deliver(installation, webhook)
    open_live_log(page, installation, f"{LOG}?webhook={webhook.webhook.uid}")
    expect(page.get_by_role("link", name="Older")).to_be_hidden()
    oldest = page.locator("#log tr[data-key]").last.get_attribute("id")

    delivery = deliver(installation, webhook)

    expect(page.locator(f"#{delivery}")).to_be_visible()
    expect(page.locator("#log tr[data-key]")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("#log tr[data-key]")).to_have_attribute("id", oldest or "")


class StreamClient:
    """A client that reads the event stream of the live log."""

    def __init__(self, installation: Installation, cookie: str, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", installation.service.port, timeout=STREAM_END_SECONDS)
        self.connection.request("GET", f"{LOG}/live", headers={"Cookie": cookie} | headers)
        self.response = self.connection.getresponse()

    def read_until(self, prefix: str) -> str:
        """Read until a line begins with the prefix, or until the stream ends. Returns the text."""
        text = ""
        while line := self.response.readline().decode():
            text += line
            if line.startswith(prefix):
                break
        return text

    def read_to_end(self) -> str:
        return b"".join(iter(self.response.readline, b"")).decode()

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def open_stream(installation):
    """Opens an event stream with a session cookie."""
    streams: list[StreamClient] = []

    def open_one(cookie: str, **headers: str) -> StreamClient:
        streams.append(StreamClient(installation, cookie, **headers))
        return streams[-1]

    yield open_one
    for stream in streams:
        stream.close()


def session_cookie(installation: Installation, email: str = "ada@example.com") -> str:
    """Sign in. Returns the value of the Cookie header."""
    token = installation.management.sessions.sign_in(email, PASSWORD, client=None)
    assert token is not None
    return f"hookmill={token.reveal()}"


def test_reconnected_stream_continues_after_the_last_event(installation, webhook, open_stream):
    cookie = session_cookie(installation)
    first = deliver(installation, webhook)
    missed = [deliver(installation, webhook), deliver(installation, webhook)]

    stream = open_stream(cookie, **{"Last-Event-ID": first})

    events = stream.read_until(f"id: {missed[-1]}")
    assert events.index(f"id: {missed[0]}") < events.index(f"id: {missed[1]}")


def test_stream_ends_soon_after_a_sign_out(installation, open_stream):
    cookie = session_cookie(installation)
    stream = open_stream(cookie)
    stream.read_until("retry")
    signed_out_at = time.monotonic()

    installation.management.sessions.sign_out(cookie.removeprefix("hookmill="))

    assert "event: end\ndata: signed-out" in stream.read_to_end()
    assert time.monotonic() - signed_out_at < STREAM_END_SECONDS


def test_stream_ends_soon_after_the_member_lost_the_role(installation, open_stream):
    may_administer = installation.may_administer
    member = installation.management.members.add(may_administer, "leo@example.com", "Leo")
    installation.management.members.set_role(may_administer, member.id, "default", Role.VIEWER)
    link = installation.management.sessions.create_link(may_administer, "leo@example.com")
    installation.management.sessions.accept_link(link.reveal(), password=PASSWORD, client=None)
    stream = open_stream(session_cookie(installation, "leo@example.com"))
    assert stream.response.status == 200
    stream.read_until("retry")

    installation.management.members.set_role(may_administer, member.id, "default", None)

    assert "event: end\ndata: signed-out" in stream.read_to_end()


def test_fifth_stream_of_a_session_ends_the_first(installation, webhook, open_stream):
    cookie = session_cookie(installation)
    streams = [open_stream(cookie) for _ in range(5)]
    for stream in streams[1:]:
        stream.read_until("retry")

    assert "event: end\ndata: too-many-streams" in streams[0].read_to_end()
    delivery = deliver(installation, webhook)
    for stream in streams[1:]:
        # A stream may begin with rows that the page has.
        assert f"id: {delivery}" in stream.read_until(f"id: {delivery}")


def test_page_shows_that_live_updates_ended_after_a_sign_out(new_profile, installation):
    cookie = session_cookie(installation)
    name, _, value = cookie.partition("=")
    context = new_profile()
    context.add_cookies([{"name": name, "value": value, "url": installation.base_url}])
    page = context.new_page()
    open_live_log(page, installation)

    installation.management.sessions.sign_out(value)

    expect(page.locator("#live-state")).to_have_text(re.compile("Live updates ended"))
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()


def test_open_streams_do_not_delay_a_stop_and_reconnect(tmp_path, browser):
    # A profile of `new_profile` would fail: a stopped service causes errors on the console.
    context = browser.new_context()
    with serving(tmp_path / "data") as service, service.management() as management:
        token = create_first_admin(management)
        installation = Installation(service, management)
        webhook = management.webhooks.create(installation.may, {"name": "before and after"})
        context.add_cookies([{"name": "hookmill", "value": token.reveal(), "url": installation.base_url}])
        page = context.new_page()
        open_live_log(page, installation)
        stream = StreamClient(installation, f"hookmill={token.reveal()}")
        stream.read_until("retry")
        # This client does not read its stream.
        stalled_client = socket.create_connection(("127.0.0.1", service.port))
        stalled_client.sendall(
            f"GET {LOG}/live HTTP/1.1\r\nHost: here\r\nCookie: hookmill={token.reveal()}\r\n\r\n".encode()
        )
        time.sleep(0.3)
        signalled_at = time.monotonic()

        assert service.stop() == 0

        stop_seconds = time.monotonic() - signalled_at
        print(f"stopped in {stop_seconds:.1f} s")
        assert stop_seconds < STOP_SECONDS
        assert "event: end" not in stream.read_to_end(), "a browser does not reconnect after an end event"
        stream.close()
        stalled_client.close()
        service.start()
        delivery = deliver(installation, webhook)
        expect(page.locator(f"#{delivery}")).to_be_visible()
    context.close()


@pytest.mark.proof
def test_live_pages_are_accessible(check_accessibility, installation, webhook):
    def receive_a_delivery(page: Page) -> None:
        expect(page.locator("#live-state")).to_have_text("Live")
        delivery = deliver(installation, webhook)
        expect(page.locator(f"#{delivery}")).to_be_visible()

    check_accessibility("deliveries-live", f"{LOG}?webhook={webhook.webhook.uid}&identity=wanted")
    check_accessibility(
        "deliveries-arriving", f"{LOG}?webhook={webhook.webhook.uid}&label=accepted", prepare=receive_a_delivery
    )
