"""Coming in, and going out; and what becomes of a form that was being filled in meanwhile."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.permission import Role
from hookmill.domain.webhook import WebhookState
from hookmill.web.dashboard import PAGES, pages
from hookmill.web.dashboard.kept_form import ACTIONS, NEVER_SENT_BACK
from hookmill.web.dashboard.page_context import csrf_token_of
from tests.dashboard.client import FORM, HOST, Dashboard, Elements, Visitor, dashboard_for_test
from tests.dashboard.conftest import PASSWORD, Installation, enter_credentials, sign_in
from tests.support.service import Answer


def test_a_visitor_signs_in_and_arrives_at_the_requested_page(signed_out_page: Page, installation: Installation):
    signed_out_page.goto(installation.url("/account"))
    expect(signed_out_page).to_have_url(installation.url("/sign-in?next=%2Faccount"))

    signed_out_page.get_by_label("E-mail address").fill("ada@example.com")
    signed_out_page.get_by_label("Password").fill(PASSWORD)
    signed_out_page.get_by_role("button", name="Sign in").click()

    expect(signed_out_page).to_have_url(installation.url("/account"))
    expect(signed_out_page.get_by_role("heading", name="Your account")).to_be_visible()


def test_a_wrong_password_says_no_more_than_an_unknown_address(signed_out_page: Page, installation: Installation):
    said = []
    for email in ("ada@example.com", "nobody@example.com"):
        signed_out_page.goto(installation.url("/sign-in"))
        signed_out_page.get_by_label("E-mail address").fill(email)
        signed_out_page.get_by_label("Password").fill("not the password at all")
        signed_out_page.get_by_role("button", name="Sign in").click()
        said.append(signed_out_page.get_by_role("alert").inner_text())

    assert said[0] == said[1] == "Wrong e-mail address or password."


def test_a_member_who_signs_out_has_no_access(signed_out_page: Page, installation: Installation):
    sign_in(signed_out_page, installation)
    state: Any = signed_out_page.context.cookies()

    signed_out_page.get_by_role("button", name="Sign out").click()
    expect(signed_out_page.get_by_role("heading", name="Sign in")).to_be_visible()

    signed_out_page.context.add_cookies(state)
    signed_out_page.goto(installation.url("/account"))
    expect(signed_out_page).to_have_url(re.compile("/sign-in"))


def test_a_link_lets_a_member_choose_a_password_once(signed_out_page: Page, installation: Installation):
    admin = installation.may_administer
    installation.management.members.add(admin, "grace@example.com", "Grace")
    installation.management.members.set_role(admin, "grace@example.com", "default", Role.VIEWER)
    link = installation.url(
        f"/welcome/{installation.management.sessions.create_link(admin, 'grace@example.com').reveal()}"
    )

    signed_out_page.goto(link)
    signed_out_page.get_by_label("Password", exact=True).fill(PASSWORD)
    signed_out_page.get_by_label("Confirm password").fill(PASSWORD)
    signed_out_page.get_by_role("button", name="Set password and sign in").click()
    signed_out_page.wait_for_url(re.compile("/f/default"))

    signed_out_page.goto(link)
    expect(signed_out_page.get_by_role("heading", name="Not found")).to_be_visible()


def test_the_session_is_out_of_reach_of_scripts_and_other_sites(signed_out_page: Page, installation: Installation):
    sign_in(signed_out_page, installation)

    cookies = {each["name"]: each for each in signed_out_page.context.cookies()}

    assert set(cookies) == {"hookmill", "hookmill-browser"}
    assert {(each["httpOnly"], each["sameSite"], each["path"]) for each in cookies.values()} == {(True, "Lax", "/")}
    assert signed_out_page.evaluate("document.cookie") == ""


def test_signing_in_looks_right(check_accessibility, installation: Installation):
    check_accessibility("sign-in", "/sign-in", signed_in=False)
    check_accessibility("account", "/account")
    check_accessibility("not-found", "/account/nothing")
    check_accessibility("menu", "/f/default/deliveries#menu")


# Forms of a session that has ended

TYPED = 'Look at it.\n\n  </textarea><script>alert(1)</script> & "quoted" \u202e'


def end(installation: Installation, page: Page) -> None:
    """The session ends on the service; the browser hears nothing of it."""
    [cookie] = [each for each in page.context.cookies() if each["name"] == "hookmill"]
    installation.management.sessions.sign_out(cookie["value"])


def test_a_form_outlives_its_session_and_is_sent_on_request(signed_out_page: Page, installation: Installation):
    made = installation.management.webhooks.create(installation.may, "outliving")
    sign_in(signed_out_page, installation)
    signed_out_page.goto(installation.url(f"/f/default/automations/new?webhook={made.webhook.uid}"))
    signed_out_page.get_by_label("Name", exact=True).fill("outlives")
    signed_out_page.get_by_label("Prompt").fill(TYPED)
    signed_out_page.get_by_label("Payload filter").fill('{"action": ["opened"]}')
    end(installation, signed_out_page)

    signed_out_page.get_by_role("button", name="Create").last.click()
    expect(signed_out_page.get_by_role("heading", name="You are signed out")).to_be_visible()
    expect(signed_out_page.get_by_text("<script>alert(1)</script>")).to_be_visible()
    with signed_out_page.context.expect_page() as opening:
        signed_out_page.get_by_role("link", name="Sign in (opens a new tab)").click()
    beside = opening.value
    enter_credentials(beside)
    expect(beside.get_by_role("status")).to_contain_text("return to your form")
    beside.close()
    signed_out_page.get_by_role("button", name="Submit again").click()
    expect(signed_out_page.get_by_role("heading", name="Submit this form?")).to_be_visible()
    assert "outlives" not in {each.name for each in installation.management.automations.all(installation.may)}
    signed_out_page.get_by_role("button", name="Create an automation").click()

    expect(signed_out_page.get_by_text("Automation created.")).to_be_visible()
    written = installation.management.automations.get(installation.may, "outlives")
    assert written.prompt == TYPED
    assert written.selected_webhook_uids() == {made.webhook.uid}


@pytest.mark.parametrize("is_signed_in", [True, False])
def test_a_page_of_another_site_gets_nothing_sent_nor_kept(
    signed_out_page: Page, installation: Installation, is_signed_in: bool
):
    made = installation.management.webhooks.create(installation.may, f"aimed at {is_signed_in}")
    sign_in(signed_out_page, installation)
    token = signed_out_page.locator("input[name=csrf]").first.get_attribute("value")
    if not is_signed_in:
        end(installation, signed_out_page)
    action = installation.url(f"/f/default/webhooks/{made.webhook.uid}/delete")
    fields = f'<input name="csrf" value="{token}"><input name="planted" value="planted words">'
    attack = f'<form method="post" action="{action}">{fields}<button>Win a prize</button></form>'

    signed_out_page.goto(f"data:text/html,{quote(attack)}")
    signed_out_page.get_by_role("button", name="Win a prize").click()

    expect(signed_out_page.get_by_role("alert")).to_contain_text("was not sent from a page of this service")
    assert "planted words" not in signed_out_page.content()
    assert signed_out_page.locator("main form").count() == 0
    assert installation.management.webhooks.get(installation.may, made.webhook.uid).state is WebhookState.ENABLED


def test_a_form_that_was_kept_looks_right(check_accessibility: Callable[..., None], installation: Installation):
    def fill(page: Page) -> None:
        page.get_by_label("Name", exact=True).fill("a long name " + "x" * 80)
        page.get_by_label("Use my own").check()
        page.get_by_label("Secret value").fill("a secret")

    def send_signed_out(page: Page) -> None:
        fill(page)
        page.context.clear_cookies()
        page.get_by_role("button", name="Create webhook").click()
        expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()

    def send_stale(page: Page) -> None:
        fill(page)
        page.locator("main input[name=csrf]").evaluate("field => { field.value = 'of another session' }")
        page.get_by_role("button", name="Create webhook").click()
        expect(page.get_by_role("heading", name="Submit this form?")).to_be_visible()

    check_accessibility("form-kept-signed-out", "/f/default/webhooks/new", prepare=send_signed_out)
    check_accessibility("form-kept", "/f/default/webhooks/new", prepare=send_stale)


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


OURS = [("Content-Type", FORM), ("Sec-Fetch-Site", "same-origin"), ("Origin", f"https://{HOST}")]
THEIRS = [("Content-Type", FORM), ("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")]


def sent(
    who: Visitor, path: str, fields: Sequence[tuple[str, str]], headers: Sequence[tuple[str, str]] = OURS
) -> Answer:
    """These fields and no others."""
    return who.request("POST", path, headers=headers, body=urlencode(fields).encode())


def fields_of(answer: Answer) -> list[tuple[str, str]]:
    """What the page's form would send, with nothing typed into it."""
    body = answer.body.partition(b"<main")[2]
    return [
        (each.attributes["name"], each.attributes.get("value", ""))
        for each in Elements(body).with_tag("input")
        if "name" in each.attributes
    ]


def test_a_secret_is_not_kept_but_asked_for_again(dashboard: Dashboard):
    roles = {"default": Role.MANAGER}
    first = dashboard.member("ada@example.com", roles=roles)
    second = dashboard.member("grace@example.com", roles=roles)
    dashboard.management.sessions.sign_out(first.session or "")
    form = [
        ("csrf", csrf_token_of(first.session or "")),
        ("name", "GIVEN"),
        ("secret_from", "own"),
        ("secret", "canary-1"),
    ]
    path = "/f/default/secrets"

    signed_out = sent(first, path, form)
    asked_again = sent(second, path, fields_of(signed_out))
    answers = [
        sent(second, path, [(name, "typed-again" if name == "secret" else value) for name, value in fields])
        for fields in (fields_of(asked_again),)
    ]

    assert [answer.status for answer in (signed_out, asked_again, *answers)] == [401, 403, 200]
    assert "www-authenticate" not in signed_out.headers
    assert ("secret", "") in fields_of(asked_again)
    assert not [answer for answer in (signed_out, asked_again) if b"canary" in answer.body]
    assert dashboard.management.secrets.get(dashboard.world.may, "GIVEN").has_value


def test_a_form_of_another_session_does_nothing_until_its_reader_sends_it(dashboard: Dashboard):
    first = dashboard.member("ada@example.com", is_admin=True)
    admin = dashboard.member("grace@example.com", is_admin=True, name="Grace")
    before = dashboard.audit_entry_count()
    for given in (csrf_token_of(first.session or ""), "guessed", csrf_token_of("")):
        answer = sent(
            admin, "/team/factories?x=1&y='\"<", [("csrf", given), ("name", "<b>'\"planted"), ("x", "1"), ("x", "2")]
        )

        [form] = [each for each in Elements(answer.body).with_tag("form") if each.attributes["action"] != "/sign-out"]
        assert answer.status == 403
        assert form.attributes["action"] == "/team/factories?x=1&y='\"<"
        assert fields_of(answer) == [
            ("csrf", csrf_token_of(admin.session or "")), ("name", "<b>'\"planted"), ("x", "1"), ("x", "2"),
        ]  # fmt: skip
        assert "Create a factory" in Elements(answer.body).text
        assert "Grace (grace@example.com)" in Elements(answer.body).text
        # Nothing on the page sends it: only its reader does.
        assert {each.attributes["src"].rpartition("/")[2] for each in Elements(answer.body).with_tag("script")} == {
            "htmx.min.js", "sse.js", "hookmill.js",
        }  # fmt: skip
        assert not [name for each in Elements(answer.body).all for name in each.attributes if name.startswith("hx-t")]
    assert dashboard.audit_entry_count() == before

    # A form that never had a token, and one of another site, come to nothing at all.
    for fields, headers in (
        ([], OURS),
        ([("csrf", "")], OURS),
        ([("csrf", csrf_token_of(admin.session or ""))], THEIRS),
    ):
        for who in (admin, Visitor(dashboard, first.session), dashboard.unauthenticated):
            if who is admin or headers is THEIRS:
                answer = sent(who, "/team/factories", [*fields, ("name", "planted")], headers)
                assert answer.status == 403
                assert b"planted" not in answer.body
    assert dashboard.audit_entry_count() == before


def test_what_a_person_may_not_do_is_refused_when_they_send_it(dashboard: Dashboard):
    viewer = dashboard.member("vera@example.com", roles={"default": Role.VIEWER})

    asked = sent(viewer, "/team/factories", [("csrf", "another's"), ("name", "mine")])
    refused = sent(viewer, "/team/factories", fields_of(asked))

    assert (asked.status, refused.status) == (403, 403)
    assert "Submit this form?" in Elements(asked.body).text
    assert "Not allowed" in Elements(refused.body).text


def test_every_form_that_acts_says_what_it_would_do():
    assert set(ACTIONS) == {page.path for page in PAGES if page.method == "POST"} - {"/sign-in", "/welcome/{token}"}


def test_no_password_or_secret_is_sent_back_into_a_form():
    found = set()
    for template in (Path(pages.__file__).parent / "templates").rglob("*.html"):
        for field in re.findall(r"<input\b[^>]*\btype=\"password\"[^>]*", template.read_text()):
            found |= set(re.findall(r"\bname=\"(\w+)\"", field))

    assert found == set(NEVER_SENT_BACK)
