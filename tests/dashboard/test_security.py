"""The dashboard as a whole, as those meet it who want in, or want somebody else's browser to act for them."""

import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from hookmill.domain.limits import SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.domain.permission import Role
from hookmill.web.dashboard import sign_in, sign_in_limits
from hookmill.web.dashboard.access import PLAIN_COOKIE, SECURE_COOKIE
from hookmill.web.dashboard.application import CONTENT_SECURITY_POLICY, DashboardApplication
from hookmill.web.dashboard.page_context import csrf_token_of
from tests.dashboard.client import (
    FORM,
    HOST,
    PASSWORD,
    Dashboard,
    Elements,
    Visitor,
    dashboard_for_test,
    redirects_to_sign_in,
)
from tests.dashboard.scene import Scene, pages_by_method, scene_for_test
from tests.support.service import Answer, serving
from tests.support.world import World

ORIGIN: Final = ("Origin", f"https://{HOST}")
SENT_FROM_HERE: Final = [("Content-Type", FORM), ORIGIN, ("Sec-Fetch-Site", "same-origin")]
FOREIGN: Final = {
    "a form of another site": [("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")],
    "a form of a sister site": [("Sec-Fetch-Site", "same-site"), ("Origin", "https://other.hooks.test")],
    "a form that hides its site": [("Origin", "null")],
    "a form of another site in an old browser": [("Origin", "https://evil.example")],
    "another port of this host in an old browser": [("Origin", f"https://{HOST}:8443")],
    "no browser at all": [],
    "a site that says both": [("Sec-Fetch-Site", "cross-site"), ORIGIN],
}
ACTS: Final = [page for page in pages_by_method("POST") if page.path not in {"/sign-in", "/welcome/{token}"}]
STATIC: Final = "/static/{digest}/{name}"
STRICTER: Final = dict.fromkeys(
    ("/f/{factory}/deliveries/{delivery}/payload", "/f/{factory}/runs/{run}/files/{file}"),
    "default-src 'none'; sandbox",
)
"""What senders and commands wrote is served with a policy of its own, under which it may do nothing at all."""


@pytest.fixture(scope="module")
def scene(migrated_sqlite: Path) -> Iterator[Scene]:
    yield from scene_for_test(migrated_sqlite)


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def secure_dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    """As it is when people reach the service through https."""
    yield from dashboard_for_test(sqlite_store, lambda world: Dashboard(world, is_https=True))


def kept(world: World) -> str:
    """The digest of everything in the store."""
    with closing(sqlite3.connect(world.url.removeprefix("sqlite:///"))) as connection:
        return sha256("\n".join(connection.iterdump()).encode()).hexdigest()


def cookie_of(answer: Answer) -> Morsel[str]:
    [cookie] = SimpleCookie(answer.headers["set-cookie"]).values()
    return cookie


def signing_in(
    dashboard: Dashboard, email: str, password: str = PASSWORD, *, client: str = "203.0.113.9", **fields: str
) -> Answer:
    form = {"email": email, "password": password, **fields}
    return dashboard.unauthenticated.post("/sign-in", form, headers=[("X-Forwarded-For", client)])


# Forms of others


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_what_another_site_sends_changes_nothing(scene: Scene, headers: list[tuple[str, str]]):
    admin = scene.visitors["admin"]
    before = kept(scene.dashboard.world)

    for page in pages_by_method("POST"):
        body = urlencode(
            {"csrf": csrf_token_of(admin.session or ""), "email": "admin@example.com", "password": PASSWORD}
        )
        answer = admin.request(
            "POST", scene.path_of(page), headers=[("Content-Type", FORM), *headers], body=body.encode()
        )

        assert answer.status == 403, page.path
        assert "set-cookie" not in answer.headers
    assert kept(scene.dashboard.world) == before


@pytest.mark.parametrize("given", ["", "guessed", csrf_token_of(""), csrf_token_of("another session")])
def test_a_form_without_the_sessions_own_token_changes_nothing(scene: Scene, given: str):
    before = kept(scene.dashboard.world)

    for page in ACTS:
        answer = scene.visitors["admin"].request(
            "POST",
            scene.path_of(page),
            headers=[("Content-Type", FORM), ORIGIN, ("Sec-Fetch-Site", "same-origin")],
            body=urlencode({"csrf": given}).encode(),
        )

        assert answer.status == 403, page.path
    assert kept(scene.dashboard.world) == before


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
def test_only_forms_are_read(scene: Scene, kind: str):
    admin = scene.visitors["admin"]
    before = kept(scene.dashboard.world)

    for page in pages_by_method("POST"):
        answer = admin.request(
            "POST",
            scene.path_of(page),
            headers=[("Content-Type", kind), ORIGIN, ("Sec-Fetch-Site", "same-origin")],
            body=urlencode({"csrf": csrf_token_of(admin.session or "")}).encode(),
        )

        assert answer.status == 422, page.path
    assert kept(scene.dashboard.world) == before


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_a_post_acts(scene: Scene, method: str):
    admin = scene.visitors["admin"]
    fields = urlencode({"csrf": csrf_token_of(admin.session or ""), "name": "changed", "is_admin": "yes"})
    before = kept(scene.dashboard.world)

    for page in pages_by_method("POST"):
        answer = admin.request(method, f"{scene.path_of(page)}?{fields}", headers=[ORIGIN])

        assert answer.status in ({200, 303, 405} if method in {"GET", "HEAD"} else {405}), page.path
    assert kept(scene.dashboard.world) == before


def test_looking_changes_nothing(scene: Scene):
    before = kept(scene.dashboard.world)

    for page in pages_by_method("GET"):
        assert scene.visitors["admin"].get(scene.path_of(page)).status in {200, 303}, page.path
    assert kept(scene.dashboard.world) == before


# Sessions


def test_the_cookie_of_an_https_service_is_for_this_host_and_path_alone(secure_dashboard: Dashboard):
    secure_dashboard.member("ada-secure@example.com")

    cookie = cookie_of(signing_in(secure_dashboard, "ada-secure@example.com"))

    assert cookie.key == SECURE_COOKIE == "__Host-hookmill"
    assert (cookie["secure"], cookie["httponly"], cookie["path"], cookie["domain"]) == (True, True, "/", "")
    assert cookie["samesite"].lower() == "lax"


def test_an_https_service_heeds_no_cookie_that_anybody_could_have_set(secure_dashboard: Dashboard):
    ada = secure_dashboard.member("ada-plain@example.com")

    assert ada.get("/account").status == 200
    assert redirects_to_sign_in(ada.get("/account", headers=[("Cookie", f"{PLAIN_COOKIE}={ada.session}")]))


def test_signing_out_takes_the_cookie_away_too(secure_dashboard: Dashboard):
    ada = secure_dashboard.member("ada-out@example.com")

    answer = ada.post("/sign-out")

    cookie = cookie_of(answer)
    assert (cookie.key, cookie.value, cookie["max-age"], cookie["secure"]) == (SECURE_COOKIE, "", "0", True)
    assert redirects_to_sign_in(ada.get("/account"))


def test_a_session_that_was_chosen_before_signing_in_is_not_taken_on(dashboard: Dashboard):
    dashboard.member("ada-fixed@example.com")
    chosen = "c" * 43

    answer = dashboard.unauthenticated.post(
        "/sign-in",
        {"email": "ada-fixed@example.com", "password": PASSWORD},
        headers=[("Cookie", f"{PLAIN_COOKIE}={chosen}")],
    )

    assert answer.status == 303
    assert cookie_of(answer).value != chosen
    assert redirects_to_sign_in(Visitor(dashboard, chosen).get("/account"))


def test_every_sign_in_is_a_new_session(dashboard: Dashboard):
    first = dashboard.member("ada-twice@example.com").session

    sessions = {cookie_of(signing_in(dashboard, "ada-twice@example.com")).value for _ in range(2)}

    assert len({first, *sessions}) == 3
    assert all(len(session) >= 43 for session in sessions)


def test_a_new_password_ends_every_session_but_the_one_it_begins(dashboard: Dashboard):
    here = dashboard.member("ada-new@example.com")
    elsewhere = Visitor(dashboard, cookie_of(signing_in(dashboard, "ada-new@example.com")).value)

    answer = here.post("/account", {"old": PASSWORD, "new": "another long password", "again": "another long password"})

    assert answer.status == 303
    assert redirects_to_sign_in(here.get("/account"))
    assert redirects_to_sign_in(elsewhere.get("/account"))
    assert Visitor(dashboard, cookie_of(answer).value).get("/account").status == 200


@pytest.mark.parametrize("hours", [SESSION_IDLE_HOURS, SESSION_HOURS])
def test_a_session_ends_when_it_rests_and_when_it_is_old(dashboard: Dashboard, hours: int):
    ada = dashboard.member("ada-old@example.com")
    for _ in range(hours // 12 - 1):
        dashboard.world.clock.advance(seconds=12 * 3600 if hours == SESSION_HOURS else 0)
        assert ada.get("/account").status == 200

    dashboard.world.clock.advance(seconds=12 * 3600 if hours == SESSION_HOURS else hours * 3600)

    assert redirects_to_sign_in(ada.get("/account"))


def test_a_live_page_left_open_keeps_no_session_alive(dashboard: Dashboard):
    ada = dashboard.member("ada-watching@example.com", roles={"default": Role.VIEWER})
    polled = "/f/default/runs/rows"
    assert ada.get(polled).status == 200
    assert f'hx-get="{polled}?' in ada.get("/f/default/runs").body.decode()
    for _ in range(SESSION_IDLE_HOURS - 1):
        dashboard.world.clock.advance(seconds=3600)
        assert ada.get(polled).status == 200

    dashboard.world.clock.advance(seconds=3600)

    assert redirects_to_sign_in(ada.get("/account"))


def test_who_is_removed_or_loses_a_role_is_out_at_once(dashboard: Dashboard):
    ada = dashboard.member("ada-gone@example.com", roles={"default": Role.MANAGER})
    assert ada.get("/f/default/audit").status == 200

    dashboard.management.members.set_role(dashboard.may_administer, "ada-gone@example.com", "default", None)
    assert ada.get("/f/default/audit").status == 404

    dashboard.management.members.remove(dashboard.may_administer, "ada-gone@example.com")
    assert redirects_to_sign_in(ada.get("/account"))


def test_a_copy_of_the_store_opens_no_session(dashboard: Dashboard):
    ada = dashboard.member("ada-dump@example.com")
    with closing(sqlite3.connect(dashboard.world.url.removeprefix("sqlite:///"))) as connection:
        dump = "\n".join(connection.iterdump())
        digests = [bytes(digest).hex() for (digest,) in connection.execute("SELECT digest FROM sessions")]

    assert (ada.session or "") not in dump
    assert digests
    assert all(redirects_to_sign_in(Visitor(dashboard, digest).get("/account")) for digest in digests)


# Guesses


def test_nothing_can_be_signed_in_to_before_somebody_has_an_account(dashboard: Dashboard):
    for email in ("admin", "admin@example.com", "operator", ""):
        assert signing_in(dashboard, email, "admin").status in {401, 429}
    for page in pages_by_method("GET"):
        if page.path not in {STATIC, "/sign-in", "/welcome/{token}"}:
            address = re.sub(r"{\w+}", "default", page.path)
            assert redirects_to_sign_in(dashboard.unauthenticated.get(address)), page.path


def test_a_flood_of_guesses_does_not_lock_out_the_right_password(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sign_in_limits, "DELAY_SECONDS_MAX", 0.0)
    dashboard.member("ada-flood@example.com")
    with ThreadPoolExecutor(8) as guessing:
        guesses = list(
            guessing.map(
                lambda number: (
                    signing_in(
                        dashboard, "ada-flood@example.com", f"guess number {number}", client=f"198.51.100.{number}"
                    ).status
                ),
                range(24),
            )
        )

    right = signing_in(dashboard, "ada-flood@example.com", client="203.0.113.77")

    assert set(guesses) == {401}
    assert right.status == 303


def test_a_flood_of_guesses_from_one_address_is_answered_429(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sign_in_limits, "DELAY_SECONDS_MAX", 0.0)
    monkeypatch.setattr(sign_in_limits, "GUESSES_PER_CLIENT", 5)
    dashboard.member("ada-one@example.com")

    answers = [signing_in(dashboard, f"nobody-{n}@example.com", "a guess", client="198.51.100.200") for n in range(7)]
    right = signing_in(dashboard, "ada-one@example.com", client="198.51.100.200")

    assert [answer.status for answer in answers] == [401] * 5 + [429] * 2
    assert answers[-1].headers["retry-after"] == str(sign_in_limits.WINDOW_SECONDS)
    assert right.status == 303


def test_guesses_at_one_account_take_ever_longer(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch):
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(sign_in, "asyncio", SimpleNamespace(sleep=note))

    for number in range(12):
        signing_in(dashboard, "ada-slow@example.com", f"guess number {number}", client=f"198.51.100.{number}")

    assert waited == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_an_unknown_address_is_answered_as_a_wrong_password_is(dashboard: Dashboard):
    dashboard.member("ada-known@example.com")

    known, unknown = (
        signing_in(dashboard, email, "no") for email in ("ada-known@example.com", "ada-nobody@example.com")
    )

    assert known.status == unknown.status == 401
    assert known.body.replace(b"ada-known", b"") == unknown.body.replace(b"ada-nobody", b"")


# Where one is sent


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "https:evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        " //evil.example",
        "javascript:alert(1)",
        "evil.example",
        "/\x00//evil.example",
        "/\u00fc",
        "/\u4ed5\u4e8b",
    ],
)
def test_signing_in_leads_to_no_other_site(dashboard: Dashboard, wanted: str):
    dashboard.member("ada-led@example.com")

    answer = signing_in(dashboard, "ada-led@example.com", next=wanted)

    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_signing_in_leads_to_the_requested_page(dashboard: Dashboard):
    asked_for = dashboard.unauthenticated.get("/f/B%C3%BCro%2F1/audit")
    place = parse_qs(urlsplit(asked_for.headers["location"]).query)["next"][0]
    dashboard.member("ada-named@example.com")

    answer = signing_in(dashboard, "ada-named@example.com", next=place)

    assert (answer.status, answer.headers["location"]) == (303, "/f/B%C3%BCro%2F1/audit")


@pytest.mark.parametrize("host", ["[", "evil.example/account", "a b", "\u00fc"])
def test_a_host_that_is_none_is_no_trouble(dashboard: Dashboard, host: str):
    answer = dashboard.unauthenticated.get("/account", headers=[("Host", host)])

    assert (answer.status, answer.json["code"]) == (421, "misdirected_request")


def test_form_under_a_rebound_host_name_is_refused(dashboard: Dashboard):
    member = dashboard.member("rebound@example.com")
    # All that a browser sends from a page of evil.example, whose name now resolves to this service.
    rebound = [("Host", "evil.example"), ("Origin", "https://evil.example"), ("Sec-Fetch-Site", "same-origin")]

    answer = member.post("/sign-out", headers=rebound)

    assert (answer.status, answer.json["code"]) == (421, "misdirected_request")
    assert member.get("/account").status == 200, "still signed in"


def test_what_a_request_calls_the_host_is_shown_nowhere(scene: Scene):
    lies = [
        # A name without a dot is answered; see `web/hosts.py`.
        ("Host", "evil-host"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "gopher"),
        ("Forwarded", "host=evil.example"),
    ]
    for page in pages_by_method("GET"):
        for visitor in ("unauthenticated client", "admin"):
            answer = scene.visitors[visitor].get(scene.path_of(page), headers=lies)

            assert answer.status != 421, page.path
            for lie in ("evil.example", "evil-host"):
                assert lie.encode() not in answer.body, page.path
                assert lie not in str(answer.headers), page.path


# What every answer says


def trouble(scene: Scene) -> dict[str, Answer]:
    """An answer of every kind that is no page."""
    admin, viewer = scene.visitors["admin"], scene.visitors["viewer"]
    return {
        "303": scene.dashboard.unauthenticated.get("/account"),
        "403": viewer.get("/team"),
        "403 to htmx": viewer.get("/team", headers=[("HX-Request", "true")]),
        "404": admin.get("/f/nothing/here"),
        "404 without a name": admin.get("/f/%ff/audit"),
        "404 of a file": admin.get("/static/any/..%2Fapplication.py"),
        "405": admin.request("DELETE", "/team"),
        "422": admin.post("/team", {"email": "no address", "name": "x"}),
        "to sign in, by htmx": scene.dashboard.unauthenticated.get("/account", headers=[("HX-Request", "true")]),
    }


def test_every_answer_carries_the_headers_that_guard_it(scene: Scene):
    admin = scene.visitors["admin"]
    answers = {page.path: admin.get(scene.path_of(page)) for page in pages_by_method("GET")} | trouble(scene)
    answers["HEAD"] = admin.request("HEAD", "/team")

    for name, answer in answers.items():
        headers = answer.headers
        assert headers["content-security-policy"] == STRICTER.get(name, CONTENT_SECURITY_POLICY), name
        assert headers["x-content-type-options"] == "nosniff", name
        assert headers["referrer-policy"] == "no-referrer", name
        assert headers["cross-origin-opener-policy"] == "same-origin", name
        assert headers["cross-origin-resource-policy"] == "same-origin", name
        if name != STATIC:
            assert headers["cache-control"] == "no-store", name


def test_the_policy_lets_in_nothing_that_stands_in_a_page():
    policy = dict(part.split(" ", 1) for part in CONTENT_SECURITY_POLICY.split("; "))

    assert policy["default-src"] == "'none'"
    assert {policy["script-src"], policy["style-src"], policy["connect-src"]} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_no_page_brings_a_script_a_style_or_anything_from_elsewhere(scene: Scene):
    for page in pages_by_method("GET"):
        answer = scene.visitors["admin"].get(scene.path_of(page))
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        elements = Elements(answer.body)
        assert elements.with_tag("style") == [], page.path
        assert all("src" in script.attributes for script in elements.with_tag("script")), page.path
        for element in elements.all:
            at = f"{page.path}: {element}"
            assert "style" not in element.attributes, at
            assert not [name for name in element.attributes if name.startswith(("on", "hx-on"))], at
            for name in ("src", "href", "action", "hx-get", "hx-post", "sse-connect"):
                assert re.match(r"(?:/(?!/)|#|\?|$)", element.attributes.get(name, "")), at


def test_every_form_that_acts_carries_the_sessions_token(scene: Scene):
    admin = scene.visitors["admin"]
    for page in pages_by_method("GET"):
        answer = admin.get(scene.path_of(page))
        if page.path == "/welcome/{token}" or not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        forms = [form for form in Elements(answer.body).with_tag("form") if form.attributes.get("method") == "post"]
        tokens = [field for field in Elements(answer.body).with_tag("input") if field.attributes.get("name") == "csrf"]

        assert len(tokens) == len(forms), page.path
        assert {token.attributes["value"] for token in tokens} <= {csrf_token_of(admin.session or "")}, page.path


def test_what_was_shown_once_stands_on_no_page(scene: Scene):
    for visitor in ("viewer", "admin"):
        for page in pages_by_method("GET"):
            body = scene.visitors[visitor].get(scene.path_of(page)).body.decode("utf-8", "replace")

            for name, canary in scene.secrets.items():
                if page.path == "/welcome/{token}" and name == "sign-in link":
                    continue
                assert canary not in body, f"{name} on {page.path}"


def test_an_unforeseen_fault_shows_no_details_without_a_session(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch):
    def fails(self: DashboardApplication, context: object) -> None:
        raise RuntimeError("canary: postgresql://me:password@db/x")

    ada = dashboard.member("ada-trouble@example.com")
    monkeypatch.setattr(DashboardApplication, "_page_for", fails)

    answer = ada.get("/account")

    assert answer.status == 500
    assert b"canary" not in answer.body
    assert b"Traceback" not in answer.body
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    [(where, error)] = dashboard.failures
    assert (where, type(error)) == ("dashboard", RuntimeError)
    dashboard.failures.clear()


def test_a_form_that_cannot_be_read_is_refused(dashboard: Dashboard):
    for body in (b"&".join([b"a=1"] * 1_001), b"email=\xff", b"email=%ff%fe"):
        assert dashboard.unauthenticated.request("POST", "/sign-in", headers=SENT_FROM_HERE, body=body).status == 422


def test_a_form_has_the_size_that_its_sender_may_use(dashboard: Dashboard):
    member = dashboard.member("ada-large@example.com")
    sizes = [
        (dashboard.unauthenticated, "/sign-in", 16_384),
        (dashboard.unauthenticated, "/welcome/unknown", 16_384),
        (dashboard.unauthenticated, "/account", 65_536),
        (member, "/account", 1_048_576),
    ]
    for who, path, most in sizes:
        for declared in (True, False):
            statuses = []
            for size in (most, most + 1):
                body = b"email=" + b"x" * (size - 6)
                sent = body if declared else iter([body[:100], body[100:]])
                statuses.append(who.request("POST", path, headers=SENT_FROM_HERE, body=sent).status)
            assert statuses[0] != 413, (path, declared)
            assert statuses[1] == 413, (path, declared)


def test_a_form_of_nobodys_session_is_sent_back_at_a_bounded_size(dashboard: Dashboard):
    body = b"csrf=x&a=" + b"'" * 65_000

    answer = dashboard.unauthenticated.request("POST", "/account", headers=SENT_FROM_HERE, body=body)

    # Once, escaped, for the form; and the beginning of it to be read.
    assert answer.status == 401
    assert len(answer.body) < 6 * len(body)


def test_a_form_that_breaks_off_is_answered_and_not_logged(dashboard: Dashboard):
    def broken() -> Iterator[bytes]:
        yield b"email=a"
        raise OSError("the connection was reset")

    for body in (broken(), iter([b"email="])):
        headers = [*SENT_FROM_HERE, ("Content-Length", "900")]
        answer = dashboard.unauthenticated.request("POST", "/sign-in", headers=headers, body=body)

        assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert dashboard.failures == []


def test_answers_to_unauthenticated_clients_end_the_connection(dashboard: Dashboard):
    member = dashboard.member("ada-stays@example.com")

    for path in ("/sign-in", "/account", "/nothing", "/static/x/hookmill.css"):
        assert dashboard.unauthenticated.get(path).headers["connection"] == "close", path
    assert "connection" not in member.get("/account").headers


# Through the real server


def test_the_service_sets_a_host_cookie_when_its_address_is_https(tmp_path: Path):
    address = "https://hooks.example.com"
    with (
        serving(tmp_path / "data", base_url=address) as service,
        service.management() as management,
    ):
        link = management.sessions.create_first_link()
        assert link is not None
        form = {"name": "Ada", "email": "ada@example.com", "password": PASSWORD, "again": PASSWORD}
        headers = {"Content-Type": FORM, "Sec-Fetch-Site": "same-origin", "Origin": address}
        path = f"/welcome/{link.reveal()}"
        answer = service.request("POST", path, headers=headers, body=urlencode(form).encode())
        cookie = cookie_of(answer)
        again = service.request("GET", path)
        settings = service.request("GET", "/settings", headers={"Cookie": f"{cookie.key}={cookie.value}"})

    assert answer.status == 303
    assert (cookie.key, cookie["secure"], cookie["httponly"]) == ("__Host-hookmill", True, True)
    assert again.status == 404
    assert address.encode() in settings.body
    assert link.reveal() not in service.log()
