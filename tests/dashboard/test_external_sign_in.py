"""The pages for signing in with OpenID Connect, without a browser, and with a provider that can misbehave."""

import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from hookmill.domain.external_identity import GroupRole
from hookmill.domain.permission import Role
from hookmill.oidc import http
from hookmill.web.dashboard import sign_in_limits as limits
from hookmill.web.dashboard.external_sign_in import NEXT_CHARACTERS_MAX
from tests.dashboard.client import PASSWORD, Dashboard, Elements, Visitor, text_of
from tests.support.passwords import quick_passwords
from tests.support.service import Answer
from tests.support.signing_provider import CLIENT_SECRET, SigningProvider, signing_provider
from tests.support.waiting import until
from tests.support.world import Clock, World

__all__ = ["quick_passwords"]

START: Final = "/sign-in/oidc"
MAPPED: Final = {
    "admin_groups": frozenset({"admins"}),
    "roles_by_group": {
        "developers": (GroupRole(Role.MANAGER, "default"),),
        "planners": (GroupRole(Role.MANAGER, "default"), GroupRole(Role.VIEWER, "not there")),
        "visitors": (GroupRole(Role.VIEWER, "not there"),),
    },
}

NO_ROLE: Final = (
    "The sign-in of the subject 'ada' was refused: none of the groups has a role in oidc_roles or oidc_admin_groups."
)
CreateDashboard = Callable[..., Dashboard]


@pytest.fixture
def provider():
    with signing_provider(Clock()) as running:
        yield running


@pytest.fixture
def create_dashboard(sqlite_store, provider):
    """Creates dashboards whose members sign in at the provider, on one store."""
    dashboards: list[Dashboard] = []

    def create(*, is_https: bool = False, password_sign_in: bool = True, **rules: Any) -> Dashboard:
        world = World(
            sqlite_store,
            clock=provider.clock,
            external_sign_in=provider.rules(**MAPPED | rules),
            password_sign_in=password_sign_in,
        )
        dashboards.append(Dashboard(world, is_https=is_https, provider=provider.client()))
        return dashboards[-1]

    yield create
    for dashboard in dashboards:
        dashboard.world.close()
        assert dashboard.failures == []


@pytest.fixture
def dashboard(create_dashboard):
    return create_dashboard()


class Browser:
    """A browser without a screen: it keeps cookies."""

    def __init__(self, dashboard: Dashboard, client: str = "203.0.113.9") -> None:
        self.dashboard = dashboard
        self.cookies: dict[str, str] = {}
        self._client = client

    def get(self, path: str) -> Answer:
        return self._keep(self._visitor().get(path, headers=self._headers()))

    def post(self, path: str, fields: dict[str, str] | None = None) -> Answer:
        return self._keep(self._visitor().post(path, fields or {}, headers=self._headers()))

    def sign_in(self, provider: SigningProvider, **changes: str) -> Answer:
        """Sign in at the provider. `changes` are of the parameters with which the browser returns."""
        return self.get(provider.callback_path(self.get(START).headers["location"], **changes))

    def is_signed_in(self) -> bool:
        return self.get("/account").status == 200

    def _visitor(self) -> Visitor:
        return Visitor(self.dashboard, self.cookies.get("hookmill"))

    def _headers(self) -> list[tuple[str, str]]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return [("Cookie", cookies), ("X-Forwarded-For", self._client)]

    def _keep(self, answer: Answer) -> Answer:
        for cookie in answer.cookies:
            name, value = cookie.partition(";")[0].split("=", 1)
            self.cookies[name] = value
            if "Max-Age=0" in cookie:
                del self.cookies[name]
        return answer


@pytest.fixture
def browser(dashboard):
    return Browser(dashboard)


def link_path(dashboard: Dashboard, email: str) -> str:
    """The path of a new sign-in link for the member."""
    return f"/welcome/{dashboard.management.sessions.create_link(dashboard.may_administer, email).reveal()}"


def problem_on(answer: Answer) -> str:
    """The text of the page that says why a sign-in failed."""
    assert b'class="problem"' in answer.body
    return text_of(answer.body)


def take_failures(dashboard: Dashboard) -> list[str]:
    """The texts of the reported failures."""
    texts = [str(error) for _, error in dashboard.failures]
    dashboard.failures.clear()
    return texts


# Sign-ins


def test_member_signs_in_and_reaches_the_requested_page(browser, provider):
    page = Elements(browser.get("/sign-in?next=/account").body)
    assert "Sign in with Example ID" in page.text
    [button] = [link for link in page.with_tag("a") if link.attributes["href"].startswith(START)]

    started = browser.get(button.attributes["href"])
    finished = browser.get(provider.callback_path(started.headers["location"]))

    assert (started.status, finished.status, finished.headers["location"]) == (303, 303, "/account")
    assert set(browser.cookies) == {"hookmill", "hookmill-browser"}
    account = text_of(browser.get("/account").body)
    assert "Ada L" in account
    assert "You sign in with Example ID" in account
    assert "Your session ends 12 hours after you signed in" in account
    assert "Change password" not in account


def test_cookie_of_an_attempt_is_bound_to_the_host_and_short_lived(create_dashboard):
    answer = create_dashboard(is_https=True).unauthenticated.get(START)

    [cookie] = answer.cookies
    assert cookie.startswith("__Host-hookmill-attempt=")
    assert set(cookie.split("; ")[1:]) == {"HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax", "Secure"}


def test_provider_gets_no_verifier_and_no_path(browser):
    query = parse_qs(urlsplit(browser.get(f"{START}?next=/account").headers["location"]).query)

    assert set(query) == {
        "tenant",
        "response_type",
        "response_mode",
        "client_id",
        "redirect_uri",
        "scope",
        "state",
        "nonce",
        "code_challenge",
        "code_challenge_method",
    }
    assert not any("/account" in value for values in query.values() for value in values)


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil", "/a\r\nb", "/ä", "/" + "x" * 2_000]
)
def test_unusable_target_leads_to_the_start_page(browser, provider, target):
    started = browser.get(f"{START}?next={quote(target)}")

    assert browser.get(provider.callback_path(started.headers["location"])).headers["location"] == "/"


def test_longest_target_fits_into_a_cookie(browser, provider):
    target = "/" + "x" * (NEXT_CHARACTERS_MAX - 1)

    started = browser.get(f"{START}?next={target}")

    assert len(started.cookies[0]) < 4_096
    assert browser.get(provider.callback_path(started.headers["location"])).headers["location"] == target


def test_member_who_is_signed_in_needs_no_second_sign_in(browser, provider):
    browser.sign_in(provider)

    answer = browser.get(START)

    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_session_ends_and_the_provider_decides_again(browser, provider):
    browser.sign_in(provider)
    provider.clock.advance(seconds=12 * 3600)
    ended = browser.is_signed_in()
    provider.behaviour.person["groups"] = []

    answer = browser.sign_in(provider)

    assert not ended
    assert answer.status == 403
    assert "none of your groups has a role in Hookmill" in problem_on(answer)
    assert not browser.is_signed_in()
    assert take_failures(browser.dashboard) == [f"{NO_ROLE} The provider sent no groups."]


@pytest.mark.parametrize(
    ("rules", "person", "text"),
    [
        ({}, {"groups": ["b'", "a\n"]}, f"{NO_ROLE} The provider sent these groups: 'a\\n', \"b'\"."),
        (
            {},
            {"groups": [f"{number}" * 300 for number in range(1, 8)]},
            f"{NO_ROLE} The provider sent these groups: "
            + ", ".join(f"'{str(number) * 100}'" for number in range(1, 6))
            + ", and 2 more.",
        ),
        (
            {"allowed_groups": frozenset({"staff"})},
            {"groups": ["admins"]},
            "The sign-in of the subject 'ada' was refused: none of the groups is in oidc_allowed_groups. The provider "
            "sent these groups: 'admins'.",
        ),
        (
            {"admin_groups": frozenset(), "roles_by_group": {}},
            {"groups": []},
            "The sign-in of the subject 'ada' was refused: no member is connected to the subject. The provider sent no "
            "groups.",
        ),
        (
            {},
            {"groups": ["admins"], "email": None},
            "The sign-in of the subject 'ada' was refused: the provider sent no usable e-mail address. The provider "
            "sent these groups: 'admins'.",
        ),
    ],
)
def test_refused_person_is_logged_once_with_the_groups(create_dashboard, provider, rules, person, text):
    provider.behaviour.person |= person
    browser = Browser(create_dashboard(**rules))

    answers = [browser.sign_in(provider) for _ in range(3)]

    assert [answer.status for answer in answers] == [403] * 3
    assert take_failures(browser.dashboard) == [text]


def test_address_of_another_member_is_logged_without_the_address(browser, provider):
    dashboard = browser.dashboard
    dashboard.management.members.add(dashboard.may_administer, "ada@example.com", "Ada")
    provider.behaviour.person["groups"] = ["admins"]

    answer = browser.sign_in(provider)

    assert "ada@example.com exists, and is not connected" in problem_on(answer)
    assert take_failures(dashboard) == [
        "The sign-in of the subject 'ada' was refused: another member has the e-mail address. The provider sent these "
        "groups: 'admins'."
    ]


def test_many_refused_people_fill_no_log(browser, provider):
    for number in range(limits.REFUSALS_MAX + 2):
        provider.behaviour.person |= {"sub": f"person {number}", "groups": []}
        browser.sign_in(provider)
    logged = take_failures(browser.dashboard)
    provider.clock.advance(seconds=limits.REFUSAL_SECONDS)
    browser.sign_in(provider)

    assert len(logged) == limits.REFUSALS_MAX
    assert len(take_failures(browser.dashboard)) == 1


# Answers that do not belong to the browser's attempt


def test_answer_is_refused_in_another_browser(dashboard, provider):
    attacker, victim = Browser(dashboard), Browser(dashboard, "198.51.100.1")
    path = provider.callback_path(attacker.get(START).headers["location"])

    without_attempt = victim.get(path)
    victim.get(START)
    with_another_attempt = victim.get(path)

    for answer in (without_attempt, with_another_attempt):
        assert answer.status == 400
        assert "was not started in this browser" in problem_on(answer)
    assert not victim.is_signed_in()
    assert "/token" not in provider.requests


def test_answer_that_comes_twice_leads_to_the_start_page(browser, provider):
    path = provider.callback_path(browser.get(START).headers["location"])
    browser.get(path)

    again = browser.get(path)

    assert (again.status, again.headers["location"]) == (303, "/")


def test_repeated_parameter_is_refused(browser, provider):
    path = provider.callback_path(browser.get(START).headers["location"])

    answer = browser.get(f"{path}&state=x")

    assert answer.status == 400
    assert "ambiguous" in problem_on(answer)
    assert "/token" not in provider.requests


# Refusals and failures


def test_answer_of_another_issuer_is_refused_and_reported(browser, provider):
    answer = browser.sign_in(provider, iss="https://evil.example")

    assert answer.status == 403
    assert "from another sign-in service" in problem_on(answer)
    assert take_failures(browser.dashboard) == ["The answer is from another sign-in service."]


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://evil.example"}, "from another issuer"),
        ({"aud": "another"}, "for another client"),
        ({"nonce": "another"}, "its nonce differs"),
        ({"exp": 1}, "has expired"),
    ],
)
def test_untrusted_token_signs_nobody_in_and_is_reported(browser, provider, claims, reason):
    provider.behaviour.claims = claims

    answer = browser.sign_in(provider)

    assert answer.status == 403
    assert reason in problem_on(answer)
    [failure] = take_failures(browser.dashboard)
    assert reason in failure
    assert not browser.is_signed_in()
    assert set(browser.cookies) == set()


def test_person_who_cancels_at_the_provider_is_not_reported(browser, provider):
    location = browser.get(START).headers["location"]
    state = provider.answer_to(location)["state"]

    answer = browser.get(f"/sign-in/oidc/callback?error=access_denied&error_description=%3Cb%3E&state={state}")

    assert answer.status == 403
    assert "refused the sign-in: access_denied" in problem_on(answer)
    assert b"<b>" not in answer.body


@pytest.mark.parametrize(("path", "failure"), [("/token", "500"), ("/token", "invalid_client"), ("/jwks", "huge")])
def test_failure_of_the_provider_is_explained_and_reported_without_secrets(browser, provider, path, failure):
    callback = provider.callback_path(browser.get(f"{START}?next=/account").headers["location"])
    provider.behaviour.answers = {path: failure}

    answer = browser.get(callback)

    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert "Example ID did not give a valid response, so you are not signed in." in problem_on(answer)
    assert b"/sign-in/oidc?next=%2Faccount" in answer.body
    [reported] = take_failures(browser.dashboard)
    code = parse_qs(urlsplit(callback).query)["code"][0]
    assert provider.issuer + path in reported
    assert not any(secret in reported + text_of(answer.body) for secret in (code, CLIENT_SECRET))


def test_provider_that_can_not_be_reached_is_explained_before_the_browser_leaves(browser, provider):
    provider.behaviour.answers = {"/.well-known/openid-configuration": "500"}

    answers = [browser.get(START) for _ in range(3)]

    assert {answer.status for answer in answers} == {503}
    assert "did not give a valid response" in problem_on(answers[0])
    # A flood of sign-ins must not fill the log.
    assert len(take_failures(browser.dashboard)) == 1


def test_provider_that_hangs_blocks_nobody_else(dashboard, provider, monkeypatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 60.0)
    provider.behaviour.answers = {"/.well-known/openid-configuration": "hang"}
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(Browser(dashboard).get(START)))
        for _ in range(limits.WAITING_PER_ADDRESS + 1)
    ]
    for thread in threads:
        thread.start()
    until(lambda: answers, "the address has as many sign-ins as it may have")
    member = dashboard.member("grace@example.com", is_admin=True)
    pages = [member.get("/account"), dashboard.unauthenticated.get("/sign-in")]
    early_answers = list(answers)
    provider.close()
    for thread in threads:
        thread.join()

    assert [page.status for page in pages] == [200, 200]
    assert [(answer.status, answer.headers["retry-after"]) for answer in early_answers] == [(429, "2")]
    assert [answer.status for answer in answers[1:]] == [503] * limits.WAITING_PER_ADDRESS
    assert provider.requests == ["/.well-known/openid-configuration"]
    take_failures(dashboard)


def test_known_browser_signs_in_while_others_wait_for_the_provider(dashboard, provider, monkeypatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 60.0)
    known = Browser(dashboard)
    known.sign_in(provider)
    del known.cookies["hookmill"]
    waiting = [Browser(dashboard) for _ in range(limits.WAITING_PER_ADDRESS)]
    paths = [provider.callback_path(browser.get(START).headers["location"]) for browser in waiting]
    provider.behaviour.answers = {"/token": "hang"}
    threads = [threading.Thread(target=browser.get, args=(path,)) for browser, path in zip(waiting, paths, strict=True)]
    for thread in threads:
        thread.start()
    until(lambda: provider.requests.count("/token") == 1 + len(threads), "all sign-ins wait for the provider")

    statuses = [Browser(dashboard).get(START).status, known.get(START).status]
    provider.close()
    for thread in threads:
        thread.join()

    assert statuses == [429, 303]
    take_failures(dashboard)


@pytest.mark.parametrize(("failure", "status"), [("invalid_grant", 403), ("invalid_request", 503), ("500", 503)])
def test_many_failed_sign_ins_of_one_address_are_delayed(dashboard, provider, monkeypatch, failure, status):
    monkeypatch.setattr(limits, "GUESSES_PER_CLIENT", 3)
    browser = Browser(dashboard)
    provider.behaviour.answers = {"/token": failure}
    statuses = [browser.sign_in(provider, code="invented").status for _ in range(3)]
    provider.behaviour.answers = {}

    path = provider.callback_path(browser.get(START).headers["location"])
    refused = browser.get(path)

    assert statuses == [status] * 3
    assert (refused.status, refused.headers["retry-after"]) == (429, "300")
    assert refused.body == b"Too many of your sign-ins failed. Wait 5 minutes, and sign in again.\n"
    assert provider.requests.count("/token") == 3
    assert Browser(dashboard, "198.51.100.1").sign_in(provider).status == 303
    dashboard.world.clock.advance(seconds=limits.WINDOW_SECONDS)
    assert browser.get(path).status == 303
    take_failures(dashboard)


# Members, roles and links


def test_page_of_a_member_says_that_groups_decide_the_roles(browser, provider):
    dashboard = browser.dashboard
    admin = dashboard.member("admin@example.com", is_admin=True)
    browser.sign_in(provider)
    [ada] = [each for each in dashboard.management.members.all(dashboard.may_administer) if each.name == "Ada L"]
    path = f"/team/members/{ada.id}"

    page = admin.get(path)
    changes = [
        admin.post(f"{path}/roles", {f"role.{dashboard.world.factory.id}": "viewer"}),
        admin.post(f"{path}/admin", {"is_admin": "yes"}),
    ]
    team, removal = text_of(admin.get("/team").body), text_of(admin.get(f"{path}/remove").body)

    text = text_of(page.body)
    assert "The groups of this member at Example ID decide the roles." in text
    assert "manager in default" in text
    assert f"Issuer {provider.issuer} Subject ada" in text
    assert not Elements(page.body).with_tag("select")
    assert [change.status for change in changes] == [409, 409]
    assert "Ada L ada@example.com Example ID default: manager" in team
    assert "adds this member again" in removal


@pytest.mark.parametrize(("group", "status"), [("planners", 303), ("visitors", 403)])
def test_factory_of_the_settings_that_does_not_exist_is_reported(browser, provider, group, status):
    provider.behaviour.person["groups"] = [group]

    answer = browser.sign_in(provider)

    assert answer.status == status
    assert take_failures(browser.dashboard)[-1:] == [
        "The setting oidc_roles names factories that do not exist: not there."
    ]


def test_hostile_claims_are_escaped(browser, provider):
    hostile = "<script>alert(1)</script>\u202e"
    provider.behaviour.person |= {"sub": hostile.rstrip("\u202e"), "name": hostile, "groups": ["admins"]}

    browser.sign_in(provider)

    [member] = browser.dashboard.management.members.all(browser.dashboard.may_administer)
    for path in ("/account", "/team", f"/team/members/{member.id}", "/team/audit"):
        page = browser.get(path)
        assert page.status == 200
        assert b"<script>alert" not in page.body
        assert "\u202e".encode() not in page.body


def test_member_connects_an_account_with_a_link(browser, provider):
    dashboard = browser.dashboard
    # A member who is signed in with a password opens the link in the same browser.
    grace = dashboard.member("grace@example.com", is_admin=True)
    assert grace.session is not None
    browser.cookies["hookmill"] = grace.session
    provider.behaviour.person = {"sub": "grace", "email": "grace@example.com", "groups": ["admins"]}
    link = link_path(dashboard, "grace@example.com")
    welcome = text_of(browser.get(link).body)

    page = browser.post(f"{link}/oidc")
    [refresh] = [tag for tag in Elements(page.body).with_tag("meta") if tag.attributes.get("http-equiv") == "refresh"]
    finished = browser.get(provider.callback_path(refresh.attributes["content"].removeprefix("0; url=")))

    assert "Connect Example ID" in welcome
    assert "you sign in with your account at Example ID, and its groups decide your roles" in welcome
    assert "or choose a password" in welcome
    assert (page.status, finished.status) == (200, 303)
    assert "You sign in with Example ID" in text_of(browser.get("/account").body)
    assert grace.get("/account").status == 303
    assert browser.get(link).status == 404


def test_form_of_another_site_connects_nobody(dashboard, provider):
    dashboard.management.members.add(dashboard.may_administer, "grace@example.com", "Grace")
    link = link_path(dashboard, "grace@example.com")

    answer = dashboard.unauthenticated.post(f"{link}/oidc", headers=[("Sec-Fetch-Site", "cross-site")])

    assert answer.status == 403
    assert provider.requests == []


# Without passwords, and without a provider


def test_link_signs_in_while_passwords_are_off(create_dashboard):
    dashboard = create_dashboard(password_sign_in=False)
    dashboard.management.members.add(dashboard.may_administer, "grace@example.com", "Grace", is_admin=True)
    link = link_path(dashboard, "grace@example.com")
    browser = Browser(dashboard)
    page = Elements(browser.get(link).body)

    answer = browser.post(link)

    assert not [each for each in page.with_tag("input") if each.attributes.get("type") == "password"]
    assert answer.status == 303
    assert browser.is_signed_in()


def test_passwords_are_hidden_and_refused_if_they_are_off(create_dashboard):
    dashboard = create_dashboard()
    dashboard.member("ada@example.com", is_admin=True)
    without = create_dashboard(password_sign_in=False)

    page = Elements(without.unauthenticated.get("/sign-in").body)
    refused = without.unauthenticated.post("/sign-in", {"email": "ada@example.com", "password": PASSWORD})

    assert "Sign in with Example ID" in page.text
    assert not page.with_tag("input")
    assert refused.status == 403
    assert "Passwords are not accepted here" in text_of(refused.body)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", START), ("GET", f"{START}/callback"), ("POST", "/welcome/x/oidc")]
)
def test_pages_do_not_exist_without_a_provider(sqlite_store, method, path):
    world = World(sqlite_store)
    visitor = Dashboard(world).unauthenticated

    answer = visitor.post(path) if method == "POST" else visitor.get(path)
    page = visitor.get("/sign-in")
    world.close()

    assert answer.status == 404
    assert START.encode() not in page.body
