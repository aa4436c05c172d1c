"""Signing in and out, and forms that are sent after their session has ended."""

import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.webhook import WebhookState
from tests.dashboard.client import FORM
from tests.dashboard.conftest import Installation, expect_heading, press, sign_in


def test_cookies_are_unavailable_to_scripts_and_other_sites(signed_out_page, installation):
    sign_in(signed_out_page, installation)

    cookies = {cookie["name"]: cookie for cookie in signed_out_page.context.cookies()}

    assert set(cookies) == {"hookmill", "hookmill-browser"}
    assert {(cookie["httpOnly"], cookie["sameSite"], cookie["path"]) for cookie in cookies.values()} == {
        (True, "Lax", "/")
    }
    assert signed_out_page.evaluate("document.cookie") == ""


def test_sign_in_and_account_pages_are_accessible(check_accessibility, installation):
    check_accessibility("sign-in", "/sign-in", signed_in=False)
    check_accessibility("account", "/account")
    check_accessibility("not-found", "/account/nothing")
    check_accessibility("menu", "/f/default/deliveries#menu")


# Forms of a session that has ended


def end_session(installation: Installation, page: Page) -> None:
    """End the session in the service. The browser keeps its cookie."""
    [cookie] = [cookie for cookie in page.context.cookies() if cookie["name"] == "hookmill"]
    installation.management.sessions.sign_out(cookie["value"])


def test_form_of_an_ended_session_changes_nothing_and_says_so(signed_out_page, installation):
    sign_in(signed_out_page, installation)
    signed_out_page.goto("/f/default/webhooks/new")
    signed_out_page.get_by_label("Name", exact=True).fill("of an ended session")
    end_session(installation, signed_out_page)

    press(signed_out_page, "Create webhook")

    expect_heading(signed_out_page, "Sign in")
    expect(signed_out_page.get_by_role("status")).to_contain_text("nothing was changed")
    webhooks = installation.management.webhooks.all(installation.may)
    assert "of an ended session" not in {webhook.name for webhook in webhooks}


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_form_of_an_ended_session_is_answered_whatever_its_size(installation, size):
    host = installation.url("").removeprefix("http://").rstrip("/")
    headers = {"Content-Type": FORM, "Sec-Fetch-Site": "same-origin", "Content-Length": str(size)}

    def parts() -> Iterator[bytes]:
        # Not as fast as the loopback: the rest is on its way when the first part has arrived.
        for _ in range(10):
            yield b"x" * (size // 10)
            time.sleep(0.02)

    with closing(HTTPConnection(host)) as connection:
        connection.request("POST", "/account", body=parts(), headers=headers)

        assert connection.getresponse().getheader("Location") == "/sign-in?flash=session-ended"


@pytest.mark.parametrize("is_signed_in", [True, False], ids=["signed in", "signed out"])
def test_form_of_another_site_is_refused(signed_out_page, installation, is_signed_in):
    name = f"target of a {'signed-in' if is_signed_in else 'signed-out'} browser"
    webhook = installation.webhook(name)
    sign_in(signed_out_page, installation)
    token = signed_out_page.locator("input[name=csrf]").first.get_attribute("value")
    if not is_signed_in:
        end_session(installation, signed_out_page)
    action = installation.url(f"/f/default/webhooks/{webhook.webhook.uid}/delete")
    fields = f'<input name="csrf" value="{token}">'
    attack = f'<form method="post" action="{action}">{fields}<button>Win a prize</button></form>'

    signed_out_page.goto(f"data:text/html,{quote(attack)}")
    press(signed_out_page, "Win a prize")

    expect(signed_out_page.get_by_role("alert")).to_contain_text("was not sent from a page of this service")
    assert installation.management.webhooks.get(installation.may, webhook.webhook.uid).state is WebhookState.ENABLED
