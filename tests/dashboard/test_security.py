"""Attacks on the dashboard: forged forms, foreign sessions, guessed passwords, redirects and injected content."""

import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from http.cookies import Morsel, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from hookmill.domain.limits import SESSION_IDLE_HOURS
from hookmill.domain.permission import Role
from hookmill.web.dashboard import sign_in_limits
from hookmill.web.dashboard.access import PLAIN_COOKIE, SECURE_COOKIE, require_nothing
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
SAME_ORIGIN_FORM: Final = [("Content-Type", FORM), ORIGIN, ("Sec-Fetch-Site", "same-origin")]
FOREIGN_ORIGINS: Final = {
    "another site": [("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")],
    "another subdomain": [("Sec-Fetch-Site", "same-site"), ("Origin", "https://other.hooks.test")],
    "null origin": [("Origin", "null")],
    "another site, old browser": [("Origin", "https://evil.example")],
    "another port, old browser": [("Origin", f"https://{HOST}:8443")],
    "no origin": [],
    "contradicting headers": [("Sec-Fetch-Site", "cross-site"), ORIGIN],
}
FORMS_OF_MEMBERS: Final = [
    page for page in pages_by_method("POST") if page.path not in {"/sign-in", "/welcome/{token}"}
]
STATIC: Final = "/static/{digest}/{name}"
STRICTER_POLICIES: Final = dict.fromkeys(
    ("/f/{factory}/deliveries/{delivery}/payload", "/f/{factory}/runs/{run}/files/{file}"),
    "default-src 'none'; sandbox",
)
"""Content of senders and commands is served with a policy that forbids everything."""


@pytest.fixture(scope="module")
def scene(migrated_sqlite):
    yield from scene_for_test(migrated_sqlite)


@pytest.fixture
def secure_dashboard(sqlite_store):
    """The dashboard of a service whose base URL is https."""
    yield from dashboard_for_test(sqlite_store, lambda world: Dashboard(world, is_https=True))


def store_digest(world: World) -> str:
    """A digest of everything in the store."""
    with closing(sqlite3.connect(world.url.removeprefix("sqlite:///"))) as connection:
        return sha256("\n".join(connection.iterdump()).encode()).hexdigest()


def cookie_of(answer: Answer) -> Morsel[str]:
    [cookie] = SimpleCookie(answer.headers["set-cookie"]).values()
    return cookie


def submit_sign_in(
    dashboard: Dashboard, email: str, password: str = PASSWORD, *, client: str = "203.0.113.9", **fields: str
) -> Answer:
    form = {"email": email, "password": password, **fields}
    return dashboard.unauthenticated.post("/sign-in", form, headers=[("X-Forwarded-For", client)])


# Forged forms


@pytest.mark.parametrize("headers", FOREIGN_ORIGINS.values(), ids=FOREIGN_ORIGINS)
def test_form_of_another_site_is_refused_and_changes_nothing(scene, headers):
    admin = scene.visitors["admin"]
    digest_before = store_digest(scene.dashboard.world)

    for page in pages_by_method("POST"):
        body = urlencode(
            {"csrf": csrf_token_of(admin.session or ""), "email": "admin@example.com", "password": PASSWORD}
        )
        answer = admin.request(
            "POST", scene.path_of(page), headers=[("Content-Type", FORM), *headers], body=body.encode()
        )

        assert answer.status == 403, page.path
        assert "set-cookie" not in answer.headers
    assert store_digest(scene.dashboard.world) == digest_before


@pytest.mark.parametrize("token", ["", "guessed", csrf_token_of(""), csrf_token_of("another session")])
def test_form_without_the_csrf_token_of_its_session_is_refused(scene, token):
    digest_before = store_digest(scene.dashboard.world)

    for page in FORMS_OF_MEMBERS:
        answer = scene.visitors["admin"].request(
            "POST",
            scene.path_of(page),
            headers=SAME_ORIGIN_FORM,
            body=urlencode({"csrf": token}).encode(),
        )

        assert answer.status == 403, page.path
    assert store_digest(scene.dashboard.world) == digest_before


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
def test_body_of_another_content_type_is_rejected(scene, content_type):
    admin = scene.visitors["admin"]
    digest_before = store_digest(scene.dashboard.world)

    for page in pages_by_method("POST"):
        answer = admin.request(
            "POST",
            scene.path_of(page),
            headers=[("Content-Type", content_type), ORIGIN, ("Sec-Fetch-Site", "same-origin")],
            body=urlencode({"csrf": csrf_token_of(admin.session or "")}).encode(),
        )

        assert answer.status == 422, page.path
    assert store_digest(scene.dashboard.world) == digest_before


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_post_changes_anything(scene, method):
    admin = scene.visitors["admin"]
    fields = urlencode({"csrf": csrf_token_of(admin.session or ""), "name": "changed", "is_admin": "yes"})
    digest_before = store_digest(scene.dashboard.world)

    for page in pages_by_method("POST"):
        answer = admin.request(method, f"{scene.path_of(page)}?{fields}", headers=[ORIGIN])

        assert answer.status in ({200, 303, 405} if method in {"GET", "HEAD"} else {405}), page.path
    assert store_digest(scene.dashboard.world) == digest_before


def test_opening_every_page_changes_nothing(scene):
    digest_before = store_digest(scene.dashboard.world)

    for page in pages_by_method("GET"):
        assert scene.visitors["admin"].get(scene.path_of(page)).status in {200, 303}, page.path
    assert store_digest(scene.dashboard.world) == digest_before


# Sessions


def test_session_cookie_of_an_https_service_is_bound_to_its_host(secure_dashboard):
    secure_dashboard.member("ada-secure@example.com")

    cookie = cookie_of(submit_sign_in(secure_dashboard, "ada-secure@example.com"))

    assert cookie.key == SECURE_COOKIE == "__Host-hookmill"
    assert (cookie["secure"], cookie["httponly"], cookie["path"], cookie["domain"]) == (True, True, "/", "")
    assert cookie["samesite"].lower() == "lax"


def test_https_service_ignores_the_cookie_without_a_host_prefix(secure_dashboard):
    ada = secure_dashboard.member("ada-plain@example.com")

    assert ada.get("/account").status == 200
    assert redirects_to_sign_in(ada.get("/account", headers=[("Cookie", f"{PLAIN_COOKIE}={ada.session}")]))


def test_sign_out_ends_the_session_and_deletes_the_cookie(secure_dashboard):
    ada = secure_dashboard.member("ada-out@example.com")

    answer = ada.post("/sign-out")

    cookie = cookie_of(answer)
    assert (cookie.key, cookie.value, cookie["max-age"], cookie["secure"]) == (SECURE_COOKIE, "", "0", True)
    assert redirects_to_sign_in(ada.get("/account"))


def test_sign_in_does_not_adopt_a_session_chosen_by_the_client(dashboard):
    dashboard.member("ada-fixed@example.com")
    chosen_token = "c" * 43

    answer = dashboard.unauthenticated.post(
        "/sign-in",
        {"email": "ada-fixed@example.com", "password": PASSWORD},
        headers=[("Cookie", f"{PLAIN_COOKIE}={chosen_token}")],
    )

    assert answer.status == 303
    assert cookie_of(answer).value != chosen_token
    assert redirects_to_sign_in(Visitor(dashboard, chosen_token).get("/account"))


def test_every_sign_in_starts_a_new_session(dashboard):
    first = dashboard.member("ada-twice@example.com").session

    sessions = {cookie_of(submit_sign_in(dashboard, "ada-twice@example.com")).value for _ in range(2)}

    assert len({first, *sessions}) == 3
    assert all(len(session) >= 43 for session in sessions)


def test_password_change_ends_all_sessions_and_starts_a_new_one(dashboard):
    ada = dashboard.member("ada-new@example.com")
    other_session = Visitor(dashboard, cookie_of(submit_sign_in(dashboard, "ada-new@example.com")).value)

    answer = ada.post("/account", {"old": PASSWORD, "new": "another long password", "again": "another long password"})

    assert answer.status == 303
    assert redirects_to_sign_in(ada.get("/account"))
    assert redirects_to_sign_in(other_session.get("/account"))
    assert Visitor(dashboard, cookie_of(answer).value).get("/account").status == 200


def test_polls_of_an_open_page_do_not_keep_the_session_alive(dashboard):
    ada = dashboard.member("ada-watching@example.com", roles={"default": Role.VIEWER})
    poll_path = "/f/default/runs/rows"
    assert ada.get(poll_path).status == 200
    assert f'hx-get="{poll_path}?' in ada.get("/f/default/runs").body.decode()
    for _ in range(SESSION_IDLE_HOURS - 1):
        dashboard.world.clock.advance(seconds=3600)
        assert ada.get(poll_path).status == 200

    dashboard.world.clock.advance(seconds=3600)

    assert redirects_to_sign_in(ada.get("/account"))


def test_removal_of_a_role_or_member_takes_effect_immediately(dashboard):
    ada = dashboard.member("ada-gone@example.com", roles={"default": Role.MANAGER})
    assert ada.get("/f/default/audit").status == 200

    dashboard.management.members.set_role(dashboard.may_administer, "ada-gone@example.com", "default", None)
    assert ada.get("/f/default/audit").status == 404

    dashboard.management.members.remove(dashboard.may_administer, "ada-gone@example.com")
    assert redirects_to_sign_in(ada.get("/account"))


def test_copy_of_the_store_contains_no_usable_session(dashboard):
    ada = dashboard.member("ada-dump@example.com")
    with closing(sqlite3.connect(dashboard.world.url.removeprefix("sqlite:///"))) as connection:
        dump = "\n".join(connection.iterdump())
        digests = [bytes(digest).hex() for (digest,) in connection.execute("SELECT digest FROM sessions")]

    assert (ada.session or "") not in dump
    assert digests
    assert all(redirects_to_sign_in(Visitor(dashboard, digest).get("/account")) for digest in digests)


# Guessed passwords


def test_installation_without_members_has_no_default_account(dashboard):
    for email in ("admin", "admin@example.com", "operator", ""):
        assert submit_sign_in(dashboard, email, "admin").status in {401, 429}
    for page in pages_by_method("GET"):
        if page.requirement is not require_nothing:
            path = re.sub(r"{\w+}", "default", page.path)
            assert redirects_to_sign_in(dashboard.unauthenticated.get(path)), page.path


def test_flood_of_guesses_does_not_lock_out_the_right_password(dashboard, monkeypatch):
    monkeypatch.setattr(sign_in_limits, "DELAY_SECONDS_MAX", 0.0)
    dashboard.member("ada-flood@example.com")
    with ThreadPoolExecutor(8) as threads:
        guesses = list(
            threads.map(
                lambda number: (
                    submit_sign_in(
                        dashboard, "ada-flood@example.com", f"guess number {number}", client=f"198.51.100.{number}"
                    ).status
                ),
                range(24),
            )
        )

    answer = submit_sign_in(dashboard, "ada-flood@example.com", client="203.0.113.77")

    assert set(guesses) == {401}
    assert answer.status == 303


def test_flood_of_guesses_from_one_address_gets_429(dashboard, monkeypatch):
    monkeypatch.setattr(sign_in_limits, "DELAY_SECONDS_MAX", 0.0)
    monkeypatch.setattr(sign_in_limits, "GUESSES_PER_CLIENT", 5)
    dashboard.member("ada-one@example.com")

    guesses = [
        submit_sign_in(dashboard, f"nobody-{n}@example.com", "a guess", client="198.51.100.200") for n in range(7)
    ]
    answer = submit_sign_in(dashboard, "ada-one@example.com", client="198.51.100.200")

    assert [guess.status for guess in guesses] == [401] * 5 + [429] * 2
    assert guesses[-1].headers["retry-after"] == str(sign_in_limits.WINDOW_SECONDS)
    assert answer.status == 303


def test_unknown_email_gets_the_same_answer_as_a_wrong_password(dashboard):
    dashboard.member("ada-known@example.com")

    known, unknown = (
        submit_sign_in(dashboard, email, "no") for email in ("ada-known@example.com", "ada-nobody@example.com")
    )

    assert known.status == unknown.status == 401
    assert known.body.replace(b"ada-known", b"") == unknown.body.replace(b"ada-nobody", b"")


# Redirects and host names


@pytest.mark.parametrize(
    "next_url",
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
def test_sign_in_redirects_to_no_other_site(dashboard, next_url):
    dashboard.member("ada-led@example.com")

    answer = submit_sign_in(dashboard, "ada-led@example.com", next=next_url)

    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_sign_in_redirects_to_the_requested_page(dashboard):
    redirect = dashboard.unauthenticated.get("/f/B%C3%BCro%2F1/audit")
    next_url = parse_qs(urlsplit(redirect.headers["location"]).query)["next"][0]
    dashboard.member("ada-named@example.com")

    answer = submit_sign_in(dashboard, "ada-named@example.com", next=next_url)

    assert (answer.status, answer.headers["location"]) == (303, "/f/B%C3%BCro%2F1/audit")


@pytest.mark.parametrize("host", ["[", "evil.example/account", "a b", "\u00fc"])
def test_invalid_host_header_is_rejected(dashboard, host):
    answer = dashboard.unauthenticated.get("/account", headers=[("Host", host)])

    assert answer.problem == (421, "misdirected_request")


def test_form_under_a_rebound_host_name_is_refused(dashboard):
    member = dashboard.member("rebound@example.com")
    # The headers of a browser on a page of evil.example, whose name now resolves to this service (DNS rebinding).
    rebinding_headers = [
        ("Host", "evil.example"),
        ("Origin", "https://evil.example"),
        ("Sec-Fetch-Site", "same-origin"),
    ]

    answer = member.post("/sign-out", headers=rebinding_headers)

    assert answer.problem == (421, "misdirected_request")
    assert member.get("/account").status == 200, "the session has not ended"


def test_host_names_from_request_headers_are_on_no_page(scene):
    forged_headers = [
        # A name without a dot is accepted; see `web/hosts.py`.
        ("Host", "evil-host"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "gopher"),
        ("Forwarded", "host=evil.example"),
    ]
    for page in pages_by_method("GET"):
        for visitor in ("unauthenticated client", "admin"):
            answer = scene.visitors[visitor].get(scene.path_of(page), headers=forged_headers)

            assert answer.status != 421, page.path
            for name in ("evil.example", "evil-host"):
                assert name.encode() not in answer.body, page.path
                assert name not in str(answer.headers), page.path


# The content of answers


def answers_without_a_page(scene: Scene) -> dict[str, Answer]:
    """Redirects and errors, one of every kind."""
    admin, viewer = scene.visitors["admin"], scene.visitors["viewer"]
    return {
        "303": scene.dashboard.unauthenticated.get("/account"),
        "403": viewer.get("/team"),
        "403, htmx": viewer.get("/team", headers=[("HX-Request", "true")]),
        "404": admin.get("/f/nothing/here"),
        "404, invalid UTF-8": admin.get("/f/%ff/audit"),
        "404, static file": admin.get("/static/any/..%2Fapplication.py"),
        "405": admin.request("DELETE", "/team"),
        "422": admin.post("/team", {"email": "no address", "name": "x"}),
        "to sign in, htmx": scene.dashboard.unauthenticated.get("/account", headers=[("HX-Request", "true")]),
    }


def test_every_answer_has_the_security_headers(scene):
    admin = scene.visitors["admin"]
    answers = answers_without_a_page(scene)
    answers |= {page.path: admin.get(scene.path_of(page)) for page in pages_by_method("GET")}
    answers["HEAD"] = admin.request("HEAD", "/team")

    for name, answer in answers.items():
        headers = answer.headers
        assert headers["content-security-policy"] == STRICTER_POLICIES.get(name, CONTENT_SECURITY_POLICY), name
        assert headers["x-content-type-options"] == "nosniff", name
        assert headers["referrer-policy"] == "no-referrer", name
        assert headers["cross-origin-opener-policy"] == "same-origin", name
        assert headers["cross-origin-resource-policy"] == "same-origin", name
        if name != STATIC:
            assert headers["cache-control"] == "no-store", name


def test_content_security_policy_allows_no_inline_code():
    policy = dict(part.split(" ", 1) for part in CONTENT_SECURITY_POLICY.split("; "))

    assert policy["default-src"] == "'none'"
    assert {policy["script-src"], policy["style-src"], policy["connect-src"]} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_no_page_has_inline_code_or_content_of_other_hosts(scene):
    for page in pages_by_method("GET"):
        answer = scene.visitors["admin"].get(scene.path_of(page))
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        elements = Elements(answer.body)
        assert elements.with_tag("style") == [], page.path
        assert all("src" in script.attributes for script in elements.with_tag("script")), page.path
        for element in elements.all:
            place = f"{page.path}: {element}"
            assert "style" not in element.attributes, place
            assert not [name for name in element.attributes if name.startswith(("on", "hx-on"))], place
            for name in ("src", "href", "action", "hx-get", "hx-post", "sse-connect"):
                assert re.match(r"(?:/(?!/)|#|\?|$)", element.attributes.get(name, "")), place


def test_every_form_contains_the_csrf_token_of_the_session(scene):
    admin = scene.visitors["admin"]
    for page in pages_by_method("GET"):
        answer = admin.get(scene.path_of(page))
        if page.path == "/welcome/{token}" or not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        forms = [form for form in Elements(answer.body).with_tag("form") if form.attributes.get("method") == "post"]
        tokens = [field for field in Elements(answer.body).with_tag("input") if field.attributes.get("name") == "csrf"]

        assert len(tokens) == len(forms), page.path
        assert {token.attributes["value"] for token in tokens} <= {csrf_token_of(admin.session or "")}, page.path


def test_secrets_that_were_shown_once_are_on_no_page(scene):
    for visitor in ("viewer", "admin"):
        for page in pages_by_method("GET"):
            body = scene.visitors[visitor].get(scene.path_of(page)).body.decode("utf-8", "replace")

            for name, canary in scene.secrets.items():
                if page.path == "/welcome/{token}" and name == "sign-in link":
                    continue
                assert canary not in body, f"{name} on {page.path}"


def test_error_page_of_an_unexpected_exception_shows_no_details(dashboard, monkeypatch):
    def fail(self: DashboardApplication, context: object) -> None:
        raise RuntimeError("canary: postgresql://me:password@db/x")

    ada = dashboard.member("ada-error@example.com")
    monkeypatch.setattr(DashboardApplication, "_page_for", fail)

    answer = ada.get("/account")

    assert answer.status == 500
    assert b"canary" not in answer.body
    assert b"Traceback" not in answer.body
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    [(where, error)] = dashboard.failures
    assert (where, type(error)) == ("dashboard", RuntimeError)
    dashboard.failures.clear()


def test_unparsable_form_is_rejected(dashboard):
    for body in (b"&".join([b"a=1"] * 1_001), b"email=\xff", b"email=%ff%fe"):
        assert dashboard.unauthenticated.request("POST", "/sign-in", headers=SAME_ORIGIN_FORM, body=body).status == 422


def test_maximum_size_of_a_form_depends_on_the_page_and_session(dashboard):
    member = dashboard.member("ada-large@example.com")
    sizes = [
        (dashboard.unauthenticated, "/sign-in", 16_384),
        (dashboard.unauthenticated, "/welcome/unknown", 16_384),
        (member, "/account", 1_048_576),
    ]
    for visitor, path, bytes_max in sizes:
        for is_chunked in (False, True):
            statuses = []
            for size in (bytes_max, bytes_max + 1):
                form = b"email=" + b"x" * (size - 6)
                body = iter([form[:100], form[100:]]) if is_chunked else form
                statuses.append(visitor.request("POST", path, headers=SAME_ORIGIN_FORM, body=body).status)
            assert statuses[0] != 413, (path, is_chunked)
            assert statuses[1] == 413, (path, is_chunked)


def test_truncated_form_gets_400_and_is_not_logged(dashboard):
    def broken_connection() -> Iterator[bytes]:
        yield b"email=a"
        raise OSError("the connection was reset")

    for body in (broken_connection(), iter([b"email="])):
        headers = [*SAME_ORIGIN_FORM, ("Content-Length", "900")]
        answer = dashboard.unauthenticated.request("POST", "/sign-in", headers=headers, body=body)

        assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert dashboard.failures == []


def test_answers_to_unauthenticated_clients_end_the_connection(dashboard):
    member = dashboard.member("ada-stays@example.com")

    for path in ("/sign-in", "/account", "/nothing", "/static/x/hookmill.css"):
        assert dashboard.unauthenticated.get(path).headers["connection"] == "close", path
    assert "connection" not in member.get("/account").headers


# Through the real server


def test_service_with_an_https_base_url_sets_a_host_cookie(tmp_path):
    base_url = "https://hooks.example.com"
    with serving(tmp_path / "data", base_url=base_url) as service, service.management() as management:
        link = management.sessions.create_first_link()
        assert link is not None
        form = {"name": "Ada", "email": "ada@example.com", "password": PASSWORD, "again": PASSWORD}
        headers = {"Content-Type": FORM, "Sec-Fetch-Site": "same-origin", "Origin": base_url}
        path = f"/welcome/{link.reveal()}"
        answer = service.request("POST", path, headers=headers, body=urlencode(form).encode())
        cookie = cookie_of(answer)
        used_link = service.request("GET", path)
        settings = service.request("GET", "/settings", headers={"Cookie": f"{cookie.key}={cookie.value}"})

    assert answer.status == 303
    assert (cookie.key, cookie["secure"], cookie["httponly"]) == ("__Host-hookmill", True, True)
    assert used_link.status == 404
    assert base_url.encode() in settings.body
    assert link.reveal() not in service.log()
