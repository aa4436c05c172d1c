"""Webhooks on the dashboard: made in one page, their secret shown once, and everything that can be done with them."""

import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from hookmill.domain.permission import MayManage, Role
from hookmill.domain.signatures.catalogue import find
from hookmill.domain.signatures.sign import sign
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import PASSWORD, Installation, sign_in

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe"


@pytest.fixture
def made(installation: Installation) -> Callable[..., WebhookWithSecret]:
    """Makes webhooks, and takes them away again: a factory may have twenty."""
    for webhook in installation.management.webhooks.all(installation.may):
        if webhook.name != "first":
            installation.management.webhooks.delete(installation.may, webhook.uid)
    return lambda name, **choices: installation.management.webhooks.create(installation.may, name, **choices)


def at(installation: Installation, one: WebhookWithSecret) -> str:
    return installation.url(f"/f/default/webhooks/{one.webhook.uid}")


def unfold(page: Page, name: str) -> None:
    page.locator("summary", has_text=re.compile(f"^{name}$")).click()


def test_a_token_webhook_shows_its_secret_once_with_a_curl_line(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    page.goto(installation.url("/f/default"))
    page.get_by_role("link", name="Create webhook").click()
    page.get_by_label("Name", exact=True).fill("by token")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.get_by_role("heading", name="by token is ready")).to_be_visible()
    secret = page.locator("#secret").inner_text()
    command = page.locator("#curl").inner_text()

    sent = subprocess.run(["sh", "-c", f"{command} -s"], capture_output=True, timeout=20, check=True).stdout
    page.get_by_role("link", name="View webhook").click()

    assert b'"delivery_id":"dlv_' in sent
    assert secret in command
    expect(page.get_by_role("row").filter(has_text="Accepted")).to_have_count(1)
    assert secret not in page.content()


def test_suggested_secret_name_is_the_one_that_is_used(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    page.goto(installation.url("/f/default/webhooks/new"))
    page.get_by_label("Name", exact=True).fill("受信")

    suggestion = page.get_by_label("Name of the team secret").get_attribute("placeholder")

    assert suggestion == made("受信").webhook.secret_name


def test_a_url_token_is_shown_once_and_then_a_placeholder(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    page.goto(installation.url("/f/default/webhooks/new"))
    page.get_by_label("Name", exact=True).fill("by URL")
    page.get_by_label("Token in the URL").check()
    page.get_by_role("button", name="Create webhook").click()
    shown = page.locator("#url").inner_text()
    secret = page.locator("#secret").inner_text()
    page.get_by_role("link", name="View webhook").click()
    afterwards = page.locator("#url").inner_text()

    assert shown.endswith(f"/{secret}")
    assert afterwards == shown.replace(secret, "{token}")


def test_a_providers_webhook_accepts_once_its_secret_is_set(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    page.goto(installation.url("/f/default/webhooks/new"))
    expect(page.get_by_label("Signature scheme")).to_be_hidden()
    page.get_by_label("Name", exact=True).fill("code host")
    page.get_by_label("Signature.").check()
    page.get_by_label("Signature scheme").select_option("github")
    expect(page.get_by_text("open Settings, Webhooks")).to_be_visible()
    expect(page.get_by_label("HMAC options, as JSON")).to_be_hidden()
    expect(page.get_by_label("Answer the provider's signed challenges")).to_be_hidden()
    page.get_by_role("button", name="Create webhook").click()
    expect(page.get_by_role("heading", name="code host is created")).to_be_visible()

    page.get_by_role("textbox", name="The provider's secret").fill("agreed upon")
    page.get_by_role("button", name="Save secret").click()
    expect(page.get_by_role("status")).to_have_text("The provider's secret is saved.")
    body = b'{"action": "opened"}'
    webhook = installation.management.webhooks.get(installation.may, "code host")
    signed = sign(find("github"), "agreed upon", body, "", time.time_ns() // 1000, "event-1")
    answer = installation.service.request("POST", webhook.ingress_path(), headers=dict(signed.headers), body=body)

    assert answer.status == 202


@pytest.mark.parametrize(
    ("filled", "field", "problem"),
    [
        ({"name": "first"}, "name", "already has a webhook named"),
        ({"delivery_id_header": "Authorization"}, "delivery_id_header", "carries credentials"),
        ({"event_header": "Cookie"}, "event_header", "carries credentials"),
        ({"secret_name": "0"}, "secret_name", "can't name a team secret"),
    ],
)
def test_what_cannot_be_used_is_said_at_its_field_and_the_rest_stays(
    page: Page,
    installation: Installation,
    made: Callable[..., WebhookWithSecret],
    filled: dict[str, str],
    field: str,
    problem: str,
):
    page.goto(installation.url("/f/default/webhooks/new"))
    for name, value in {"name": "kept", **filled}.items():
        page.locator(f"#{name}").fill(value)
    page.get_by_role("button", name="Create webhook").click()

    place = page.locator(f"#{field}")
    expect(place).to_have_attribute("aria-invalid", "true")
    expect(place).to_have_accessible_description(re.compile(problem))
    expect(page.locator("#name")).to_have_value({"name": "kept", **filled}["name"])


def test_a_custom_signature_is_described_fixed_and_accepted(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    page.goto(installation.url("/f/default/webhooks/new"))
    page.get_by_label("Name", exact=True).fill("own")
    page.get_by_label("Signature.").check()
    page.get_by_label("Signature scheme").select_option("hmac")
    page.get_by_label("HMAC options, as JSON").fill('{"header": "X-Signature", "encoding": "hexx"}')
    page.get_by_label("Use my own").check()
    page.get_by_label("Secret value").fill("a secret to be typed twice")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("#problem-options")).to_contain_text("'hexx' is none of hex")
    assert "a secret to be typed twice" not in page.content()

    page.get_by_label("HMAC options, as JSON").fill('{"header": "X-Signature", "encoding": "hex"}')
    page.get_by_label("Secret value").fill("a secret to be typed twice")
    page.get_by_role("button", name="Create webhook").click()

    expect(page.get_by_role("heading", name="own is ready")).to_be_visible()
    assert "a secret to be typed twice" not in page.content()


def test_help_and_team_secrets_work_without_javascript(
    new_profile: Callable[..., BrowserContext],
    signed_in_state: Any,
    installation: Installation,
    made: Callable[..., WebhookWithSecret],
):
    installation.management.secrets.create(installation.may, "SHARED_SECRET", "of the whole team")
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto(installation.url("/f/default/webhooks/new"))
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("Signature.").check()
    page.get_by_label("Signature scheme").select_option("github")
    page.get_by_role("button", name="Show setup instructions").click()
    expect(page.get_by_text("open Settings, Webhooks")).to_be_visible()
    page.get_by_label("Use an existing team secret").check()
    page.get_by_label("Team secret", exact=True).select_option("SHARED_SECRET")
    page.get_by_role("button", name="Create webhook").click()

    expect(page.get_by_role("heading", name="plain is ready")).to_be_visible()
    assert installation.management.webhooks.get(installation.may, "plain").secret_name == "SHARED_SECRET"
    assert "of the whole team" not in page.content()


def test_rotating_shows_the_new_secret_once_and_shuts_the_old_one_out(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("rotated")
    page.goto(at(installation, one) + "#rotate")
    page.get_by_role("button", name="Rotate secret now").click()
    expect(page.get_by_role("heading", name="rotated has a new secret")).to_be_visible()
    fresh = page.locator("#secret").inner_text()

    assert installation.service.post(one, b"1").status == 401
    assert installation.service.post(one, b"2", token=fresh).status == 202


def test_a_webhook_is_disabled_and_enabled(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("toggled")
    page.goto(at(installation, one))
    unfold(page, "Disable")
    page.get_by_role("button", name="Disable webhook").click()
    expect(page.get_by_role("status")).to_contain_text("Senders receive 404")
    while_disabled = installation.service.post(one, b"1").status

    unfold(page, "Enable")
    page.get_by_role("button", name="Enable webhook").click()
    expect(page.get_by_role("status")).to_contain_text("Webhook enabled")

    assert (while_disabled, installation.service.post(one, b"1").status) == (404, 202)


def test_a_hostile_name_is_shown_and_does_nothing(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("to be renamed")
    page.goto(at(installation, one))
    unfold(page, "Rename")
    page.get_by_label("New name").fill(HOSTILE)
    page.get_by_role("button", name="Rename webhook").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>")
    expect(page.get_by_role("heading", level=1)).to_contain_text("\\u202egnp.exe")
    page.goto(installation.url("/f/default"))
    expect(page.get_by_role("link", name="alert(1)").first).to_be_visible()


def test_an_unusable_delivery_id_header_is_reported_at_its_field(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("headed")
    page.goto(at(installation, one))
    unfold(page, "Change the delivery id header")
    page.get_by_label("Header", exact=True).fill("Cookie")
    page.get_by_role("button", name="Save delivery id header").click()
    expect(page.get_by_label("Header", exact=True)).to_have_accessible_description(re.compile("carries credentials"))

    page.get_by_label("Header", exact=True).fill("X-Event-Id")
    page.get_by_role("button", name="Save delivery id header").click()

    expect(page.get_by_role("status")).to_contain_text("Delivery id header changed")
    assert installation.management.webhooks.get(installation.may, "headed").delivery_id_header == "X-Event-Id"


def test_the_event_type_header_is_changed_where_no_scheme_knows_it(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("typed")
    page.goto(at(installation, one))
    unfold(page, "Change the event type header")
    page.get_by_label("Event type header").fill("X-Kind")
    page.get_by_role("button", name="Save event type header").click()

    expect(page.get_by_role("status")).to_contain_text("Event type header changed")
    expect(page.get_by_text("header X-Kind")).to_be_visible()
    assert installation.management.webhooks.get(installation.may, "typed").event_header == "X-Kind"


def test_deleting_names_the_automations_that_lose_it(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("doomed")
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [one.webhook.uid]}}
    installation.management.automations.create(installation.may, "bereft", prompt="Look.", triggers=[trigger])
    page.goto(at(installation, one))
    unfold(page, "Delete")
    expect(page.locator("#delete .warning")).to_contain_text("1 automation selects this webhook")
    expect(page.locator("#delete .warning")).to_contain_text("bereft")
    page.get_by_role("button", name="Delete doomed permanently").click()

    expect(page.get_by_role("status")).to_contain_text("Webhook deleted")
    expect(page.get_by_text("selects webhook “doomed”, which is deleted")).to_be_visible()
    assert installation.service.post(one, b"1").status == 404
    installation.management.automations.delete(installation.may, "bereft")


def test_in_a_factory_defined_by_files_only_state_and_secret_change_here(
    page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    filed = factory(installation, "filed")
    one = installation.management.webhooks.create(filed, "in a file")
    installation.management.factories.define_by_files(filed)
    page.goto(installation.url(f"/f/filed/webhooks/{one.webhook.uid}"))

    expect(page.get_by_text("hookmill apply")).to_be_visible()
    assert page.locator("summary").all_inner_texts() == ["Disable", "Rotate secret"]


def test_a_viewer_sees_a_webhook_and_no_way_to_change_it(
    signed_out_page: Page, installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("looked at")
    admin = installation.may_administer
    installation.management.members.add(admin, "vi@example.com", "Vi")
    installation.management.members.set_role(admin, "vi@example.com", "default", Role.VIEWER)
    link = installation.management.sessions.create_link(admin, "vi@example.com")
    installation.management.sessions.accept_link(link.reveal(), password=PASSWORD, client=None)
    sign_in(signed_out_page, installation, "vi@example.com")

    signed_out_page.goto(at(installation, one))
    expect(signed_out_page.get_by_role("heading", name="looked at")).to_be_visible()
    assert signed_out_page.locator("main form").count() == 0
    signed_out_page.goto(installation.url("/f/default/webhooks/new"))
    expect(signed_out_page.get_by_role("heading", name="Not allowed")).to_be_visible()


def test_webhooks_look_right(
    check_accessibility: Callable[..., None], installation: Installation, made: Callable[..., WebhookWithSecret]
):
    one = made("orders", delivery_id_header="X-Event-Id")
    for number in range(4):
        installation.service.post(one, b'{"order": %d}' % number)
    installation.service.post(one, b'{"order": 1}')
    installation.service.post(one, b"no JSON at all")
    installation.service.post(one, b"{}", token="wrong")
    path = f"/f/default/webhooks/{one.webhook.uid}"

    def choose_a_provider(page: Page) -> None:
        page.get_by_label("Signature.").check()
        page.get_by_label("Signature scheme").select_option("discord")
        expect(page.get_by_text("Setup:")).to_be_visible()

    def unfold_all(page: Page) -> None:
        for summary in page.locator("summary").all():
            summary.click()

    def rotate(page: Page) -> None:
        page.get_by_role("button", name="Rotate secret now").click()
        expect(page.get_by_text("once.")).to_be_visible()

    check_accessibility("webhook", path, prepare=unfold_all)
    check_accessibility("webhook-once", path + "#rotate", prepare=rotate)
    check_accessibility("webhook-new", "/f/default/webhooks/new", prepare=choose_a_provider)


def factory(installation: Installation, name: str) -> MayManage:
    installation.management.factories.create(installation.may_administer, name)
    return installation.management.access.operator(name)
