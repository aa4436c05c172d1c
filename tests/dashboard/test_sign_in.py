"""Signing in and out, and forms that are submitted after their session has ended."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.permission import Role
from hookmill.domain.webhook import WebhookState
from hookmill.web.dashboard import PAGES, pages
from hookmill.web.dashboard.access import require_nothing
from hookmill.web.dashboard.kept_form import ACTIONS, NEVER_SENT_BACK
from hookmill.web.dashboard.page_context import csrf_token_of
from tests.dashboard.client import FORM, HOST, Dashboard, Elements, Visitor, dashboard_for_test
from tests.dashboard.conftest import Installation, enter_credentials, sign_in
from tests.support.service import Answer


def test_cookies_are_unavailable_to_scripts_and_other_sites(signed_out_page: Page, installation: Installation):
    sign_in(signed_out_page, installation)

    cookies = {cookie["name"]: cookie for cookie in signed_out_page.context.cookies()}

    assert set(cookies) == {"hookmill", "hookmill-browser"}
    assert {(cookie["httpOnly"], cookie["sameSite"], cookie["path"]) for cookie in cookies.values()} == {
        (True, "Lax", "/")
    }
    assert signed_out_page.evaluate("document.cookie") == ""


def test_sign_in_and_account_pages_are_accessible(check_accessibility: Callable[..., None], installation: Installation):
    check_accessibility("sign-in", "/sign-in", signed_in=False)
    check_accessibility("account", "/account")
    check_accessibility("not-found", "/account/nothing")
    check_accessibility("menu", "/f/default/deliveries#menu")


# Forms of a session that has ended

PROMPT = 'Look at it.\n\n  </textarea><script>alert(1)</script> & "quoted" \u202e'


def end_session(installation: Installation, page: Page) -> None:
    """End the session in the service. The browser keeps its cookie."""
    [cookie] = [cookie for cookie in page.context.cookies() if cookie["name"] == "hookmill"]
    installation.management.sessions.sign_out(cookie["value"])


def test_form_of_an_ended_session_is_resubmitted_after_a_sign_in(signed_out_page: Page, installation: Installation):
    webhook = installation.management.webhooks.create(installation.may, "of an ended session")
    sign_in(signed_out_page, installation)
    signed_out_page.goto(installation.url(f"/f/default/automations/new?webhook={webhook.webhook.uid}"))
    signed_out_page.get_by_label("Name", exact=True).fill("resubmitted")
    signed_out_page.get_by_label("Prompt").fill(PROMPT)
    signed_out_page.get_by_label("Payload filter").fill('{"action": ["opened"]}')
    end_session(installation, signed_out_page)

    signed_out_page.get_by_role("button", name="Create").last.click()
    expect(signed_out_page.get_by_role("heading", name="You are signed out")).to_be_visible()
    expect(signed_out_page.get_by_text("<script>alert(1)</script>")).to_be_visible()
    with signed_out_page.context.expect_page() as opening:
        signed_out_page.get_by_role("link", name="Sign in (opens a new tab)").click()
    second_tab = opening.value
    enter_credentials(second_tab)
    expect(second_tab.get_by_role("status")).to_contain_text("return to your form")
    second_tab.close()
    signed_out_page.get_by_role("button", name="Submit again").click()
    expect(signed_out_page.get_by_role("heading", name="Submit this form?")).to_be_visible()
    automations = installation.management.automations.all(installation.may)
    assert "resubmitted" not in {automation.name for automation in automations}
    signed_out_page.get_by_role("button", name="Create an automation").click()

    expect(signed_out_page.get_by_text("Automation created.")).to_be_visible()
    automation = installation.management.automations.get(installation.may, "resubmitted")
    assert automation.prompt == PROMPT
    assert automation.selected_webhook_uids() == {webhook.webhook.uid}


@pytest.mark.parametrize("is_signed_in", [True, False], ids=["signed in", "signed out"])
def test_form_of_another_site_is_refused_and_not_shown_again(
    signed_out_page: Page, installation: Installation, is_signed_in: bool
):
    name = f"target of a {'signed-in' if is_signed_in else 'signed-out'} browser"
    webhook = installation.management.webhooks.create(installation.may, name)
    sign_in(signed_out_page, installation)
    token = signed_out_page.locator("input[name=csrf]").first.get_attribute("value")
    if not is_signed_in:
        end_session(installation, signed_out_page)
    action = installation.url(f"/f/default/webhooks/{webhook.webhook.uid}/delete")
    fields = f'<input name="csrf" value="{token}"><input name="planted" value="planted words">'
    attack = f'<form method="post" action="{action}">{fields}<button>Win a prize</button></form>'

    signed_out_page.goto(f"data:text/html,{quote(attack)}")
    signed_out_page.get_by_role("button", name="Win a prize").click()

    expect(signed_out_page.get_by_role("alert")).to_contain_text("was not sent from a page of this service")
    assert "planted words" not in signed_out_page.content()
    assert signed_out_page.locator("main form").count() == 0
    assert installation.management.webhooks.get(installation.may, webhook.webhook.uid).state is WebhookState.ENABLED


@pytest.mark.proof
def test_resubmission_pages_are_accessible(check_accessibility: Callable[..., None], installation: Installation):
    def fill(page: Page) -> None:
        page.get_by_label("Name", exact=True).fill("a long name " + "x" * 80)
        page.get_by_label("Use my own").check()
        page.get_by_label("Secret value").fill("a secret")

    def submit_signed_out(page: Page) -> None:
        fill(page)
        page.context.clear_cookies()
        page.get_by_role("button", name="Create webhook").click()
        expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()

    def submit_with_old_token(page: Page) -> None:
        fill(page)
        page.locator("main input[name=csrf]").evaluate("field => { field.value = 'of another session' }")
        page.get_by_role("button", name="Create webhook").click()
        expect(page.get_by_role("heading", name="Submit this form?")).to_be_visible()

    check_accessibility("form-kept-signed-out", "/f/default/webhooks/new", prepare=submit_signed_out)
    check_accessibility("form-kept", "/f/default/webhooks/new", prepare=submit_with_old_token)


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


SAME_ORIGIN = [("Content-Type", FORM), ("Sec-Fetch-Site", "same-origin"), ("Origin", f"https://{HOST}")]
OTHER_SITE = [("Content-Type", FORM), ("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")]


def submit(
    visitor: Visitor, path: str, fields: Sequence[tuple[str, str]], headers: Sequence[tuple[str, str]] = SAME_ORIGIN
) -> Answer:
    """Submit these fields. Unlike `Visitor.post`, this adds no CSRF token."""
    return visitor.request("POST", path, headers=headers, body=urlencode(fields).encode())


def fields_of(answer: Answer) -> list[tuple[str, str]]:
    """The fields of the form on the page, with their initial values."""
    inputs = Elements(answer.body.partition(b"<main")[2]).with_tag("input")
    return [
        (field.attributes["name"], field.attributes.get("value", "")) for field in inputs if "name" in field.attributes
    ]


def test_secret_must_be_typed_again_before_the_form_is_resubmitted(dashboard: Dashboard):
    roles = {"default": Role.MANAGER}
    signed_out = dashboard.member("ada@example.com", roles=roles)
    signed_in = dashboard.member("grace@example.com", roles=roles)
    dashboard.management.sessions.sign_out(signed_out.session or "")
    form = [
        ("csrf", csrf_token_of(signed_out.session or "")),
        ("name", "TYPED"),
        ("secret_from", "own"),
        ("secret", "canary-1"),
    ]
    path = "/f/default/secrets"

    first = submit(signed_out, path, form)
    second = submit(signed_in, path, fields_of(first))
    retyped = [(name, "typed-again" if name == "secret" else value) for name, value in fields_of(second)]
    third = submit(signed_in, path, retyped)

    assert (first.status, second.status, third.status) == (401, 403, 200)
    assert "www-authenticate" not in first.headers
    assert ("secret", "") in fields_of(second)
    assert b"canary" not in first.body + second.body
    assert dashboard.management.secrets.get(dashboard.world.may, "TYPED").has_value


def test_form_with_the_token_of_another_session_must_be_confirmed(dashboard: Dashboard):
    other_admin = dashboard.member("ada@example.com", is_admin=True)
    admin = dashboard.member("grace@example.com", is_admin=True, name="Grace")
    entries_before = dashboard.audit_entry_count()
    for token in (csrf_token_of(other_admin.session or ""), "guessed", csrf_token_of("")):
        fields = [("csrf", token), ("name", "<b>'\"planted"), ("x", "1"), ("x", "2")]
        answer = submit(admin, "/team/factories?x=1&y='\"<", fields)

        page = Elements(answer.body)
        [form] = [form for form in page.with_tag("form") if form.attributes["action"] != "/sign-out"]
        assert answer.status == 403
        assert form.attributes["action"] == "/team/factories?x=1&y='\"<"
        assert fields_of(answer) == [
            ("csrf", csrf_token_of(admin.session or "")), ("name", "<b>'\"planted"), ("x", "1"), ("x", "2"),
        ]  # fmt: skip
        assert "Create a factory" in page.text
        assert "Grace (grace@example.com)" in page.text
        # No script or trigger on the page submits the form automatically.
        assert {script.attributes["src"].rpartition("/")[2] for script in page.with_tag("script")} == {
            "htmx.min.js", "sse.js", "hookmill.js",
        }  # fmt: skip
        assert not [name for element in page.all for name in element.attributes if name.startswith("hx-t")]
    assert dashboard.audit_entry_count() == entries_before


def test_form_without_a_token_or_of_another_site_is_not_shown_again(dashboard: Dashboard):
    other_admin = dashboard.member("ada@example.com", is_admin=True)
    admin = dashboard.member("grace@example.com", is_admin=True)
    with_token = [("csrf", csrf_token_of(admin.session or "")), ("name", "planted")]
    entries_before = dashboard.audit_entry_count()

    answers = [
        submit(admin, "/team/factories", [("name", "planted")]),
        submit(admin, "/team/factories", [("csrf", ""), ("name", "planted")]),
        *(
            submit(visitor, "/team/factories", with_token, OTHER_SITE)
            for visitor in (admin, other_admin, dashboard.unauthenticated)
        ),
    ]

    assert {answer.status for answer in answers} == {403}
    assert not [answer for answer in answers if b"planted" in answer.body]
    assert dashboard.audit_entry_count() == entries_before


def test_resubmitted_form_still_requires_the_permission(dashboard: Dashboard):
    viewer = dashboard.member("vera@example.com", roles={"default": Role.VIEWER})

    confirmation = submit(viewer, "/team/factories", [("csrf", "of another session"), ("name", "mine")])
    refusal = submit(viewer, "/team/factories", fields_of(confirmation))

    assert (confirmation.status, refusal.status) == (403, 403)
    assert "Submit this form?" in Elements(confirmation.body).text
    assert "Not allowed" in Elements(refusal.body).text


def test_every_form_of_members_has_a_description_of_its_action():
    paths = {page.path for page in PAGES if page.method == "POST" and page.requirement is not require_nothing}

    assert set(ACTIONS) == paths


def test_every_password_field_is_excluded_from_resubmission():
    names = set()
    for template in (Path(pages.__file__).parent / "templates").rglob("*.html"):
        for field in re.findall(r"<input\b[^>]*\btype=\"password\"[^>]*", template.read_text()):
            names |= set(re.findall(r"\bname=\"(\w+)\"", field))

    assert names == set(NEVER_SENT_BACK)
