"""The team's pages: members, keys, factories; and the settings that are in force."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from hookmill.app.effective_settings import effective_settings
from hookmill.domain.permission import Role
from hookmill.settings import Settings
from hookmill.web.dashboard.team import is_local_url
from tests.dashboard.client import Dashboard, Elements, Visitor, dashboard_for_test
from tests.dashboard.conftest import PASSWORD, Installation

HOSTILE = "<script>alert(1)</script>\u202e\"'{{7*7}}"


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def admin(dashboard: Dashboard) -> Visitor:
    return dashboard.member("admin@example.com", is_admin=True, name="Ada")


def text_of(body: bytes) -> str:
    return re.sub(r"\s+", " ", Elements(body).text)


# In a browser


def test_somebody_is_added_with_a_role_and_signs_in_by_their_link(
    page: Page, signed_out_page: Page, installation: Installation
):
    page.goto(installation.url("/team"))
    page.get_by_label("Name").fill("Grace")
    page.get_by_label("E-mail address").fill("grace@example.com")
    page.get_by_role("button", name="Add member and create link").click()
    expect(page.get_by_role("status")).to_have_text("Grace is now a member: viewer in default.")
    expect(page.locator("main")).not_to_contain_text("has no role in a factory yet")
    link = page.locator("#new-link").inner_text()
    page.get_by_role("link", name="Back to Grace").click()
    expect(page.locator("body")).not_to_contain_text(link)

    signed_out_page.goto(link)
    signed_out_page.get_by_label("Password", exact=True).fill(PASSWORD)
    signed_out_page.get_by_label("Confirm password").fill(PASSWORD)
    signed_out_page.get_by_role("button", name="Set password and sign in").click()

    signed_out_page.wait_for_url(re.compile("/f/default"))
    expect(
        signed_out_page.get_by_role("navigation", name="Factory").get_by_role("link", name="Deliveries")
    ).to_be_visible()
    expect(signed_out_page.get_by_role("link", name="Team", exact=True)).to_have_count(0)
    expect(signed_out_page.get_by_role("link", name="Secrets", exact=True)).to_have_count(0)


def test_the_teams_pages_look_right(check_accessibility: Callable[..., None], installation: Installation):
    admin = installation.may_administer
    member = installation.management.members.add(admin, "hostile@example.com", HOSTILE)
    installation.management.members.set_role(admin, member.id, "default", Role.MANAGER)
    key = installation.management.keys.create(admin, HOSTILE, Role.VIEWER, factory="default").key

    def make_link(page: Page) -> None:
        page.get_by_role("button", name="Create link").click()
        expect(page.locator("#new-link")).to_be_visible()

    def add_without_a_role(page: Page) -> None:
        page.get_by_label("Name").fill(HOSTILE)
        page.get_by_label("E-mail address").fill("no-role@example.com")
        page.get_by_label("Role").select_option("no role yet")
        page.get_by_role("button", name="Add member and create link").click()
        expect(page.get_by_role("link", name="assign a role")).to_be_visible()
        expect(page.get_by_text(f"The link starts with {installation.base_url}, so it works only")).to_be_visible()

    def make_key(page: Page) -> None:
        page.get_by_label("Name").fill("for the looks")
        page.get_by_role("button", name="Create API key").click()
        expect(page.locator("#new-token")).to_be_visible()

    def refuse(page: Page) -> None:
        page.get_by_label("Name").fill("Ada")
        page.get_by_label("E-mail address").fill("ada@example.com")
        page.get_by_role("button", name="Add member and create link").click()
        expect(page.get_by_role("alert")).to_contain_text("is already a member")

    check_accessibility("team", "/team")
    check_accessibility("team-refused", "/team", prepare=refuse)
    check_accessibility("team-member", f"/team/members/{member.id}")
    check_accessibility("team-member-removal", f"/team/members/{member.id}/remove")
    check_accessibility("team-link", f"/team/members/{member.id}", prepare=make_link)
    check_accessibility("team-added", "/team", prepare=add_without_a_role)
    check_accessibility("team-keys", "/team/keys")
    check_accessibility("team-key", "/team/keys", prepare=make_key)
    check_accessibility("team-key-revocation", f"/team/keys/{key.id}/revoke")
    check_accessibility("team-factories", "/team/factories")
    check_accessibility("settings", "/settings")


# Without one


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"name": "Ada", "email": "nowhere"}, "email", "is not an e-mail address"),
        ({"name": " ", "email": "new@example.com"}, "name", "name must have 1 to 100 characters"),
        ({"name": "Ada", "email": "ADMIN@example.com "}, "email", "admin@example.com is already a member"),
        ({"role": "owner in default"}, "role", "Unknown role 'owner in default'"),
        ({"role": "admin in default"}, "role", "Unknown role 'admin in default'"),
        ({"role": "viewer"}, "role", "Unknown role 'viewer'"),
        ({"role": "manager in none"}, "role", "Unknown role 'manager in none'"),
    ],
)
def test_a_member_who_cannot_be_added_is_reported_at_the_field(
    admin: Visitor, dashboard: Dashboard, fields: dict[str, str], field: str, said: str
):
    before = dashboard.audit_entry_count()
    fields = {"name": "New", "email": "new@example.com"} | fields

    answer = admin.post("/team", fields)

    [wrong] = [each for each in Elements(answer.body).all if "aria-invalid" in each.attributes]
    typed = {
        each.attributes.get("name"): each.attributes.get("value") for each in Elements(answer.body).with_tag("input")
    }
    assert answer.status == 422
    assert wrong.attributes["name"] == field
    assert said in text_of(answer.body)
    assert {name: typed[name] for name in ("name", "email")} == {name: fields[name] for name in ("name", "email")}
    assert dashboard.audit_entry_count() == before


@pytest.mark.parametrize(
    ("base", "is_here"),
    [
        ("http://127.0.0.1:8420", True),
        ("http://localhost:8420", True),
        ("http://[::1]:8420", True),
        ("http://0.0.0.0:8420", True),
        ("https://hooks.example.com", False),
        ("https://localhost.example.com", False),
        ("http://10.0.0.7:8420", False),
        ("http://[2001:db8::1]", False),
    ],
)
def test_a_base_url_that_leads_everybody_to_themselves_is_known(base: str, is_here: bool):
    assert is_local_url(base) is is_here


def test_a_refused_form_keeps_the_role_that_was_chosen(admin: Visitor):
    for chosen in ("viewer in default", "manager in default", "admin", ""):
        answer = admin.post("/team", {"name": "Ada", "email": "nowhere", "role": chosen})

        options = [each.attributes for each in Elements(answer.body).with_tag("option")]
        assert [each["value"] for each in options if "selected" in each] == [chosen]


@pytest.mark.parametrize("factory", ["default", " in in in ", "<b>in</b> \"'"])
def test_every_choice_of_the_form_makes_the_member_that_it_says(admin: Visitor, dashboard: Dashboard, factory: str):
    if factory != "default":
        factory = dashboard.management.factories.create(dashboard.may_administer, factory).name
    offered = [each.attributes["value"] for each in Elements(admin.get("/team").body).with_tag("option")]
    made = {}

    for number, role in enumerate(offered):
        email = f"{number}@example.com"
        answer = admin.post("/team", {"name": "New", "email": email, "role": role})
        member = dashboard.management.members.get(dashboard.may_administer, email)
        made[role] = (member.is_admin, dict(member.roles))
        [link] = re.findall(r"https://hooks\.test/welcome/([\w-]+)", answer.body.decode())
        assert dashboard.management.sessions.link_target(link).email == email
        assert answer.headers["cache-control"] == "no-store"
        assert ("has no role in a factory yet" in text_of(answer.body)) is (role == "")
        assert "base_url" not in text_of(answer.body)

    assert offered[0].startswith("viewer in ")
    assert made[f"viewer in {factory}"] == (False, {factory: Role.VIEWER})
    assert made[f"manager in {factory}"] == (False, {factory: Role.MANAGER})
    assert made["admin"] == (True, {})
    assert made[""] == (False, {})
    assert len(made) == len(offered)


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"name": "", "role": "viewer in default"}, "name", "name must have 1 to 100 characters"),
        ({"name": "x", "role": "viewer"}, "role", "A viewer's key is for one factory"),
        ({"name": "x", "role": "admin in default"}, "role", "is for the whole team"),
        ({"name": "x", "role": "viewer in none"}, "role", "There is no factory 'none'"),
        ({"name": "x", "role": "owner in default"}, "role", "There is no role 'owner'"),
        ({"name": "x", "role": "admin", "expires": "2020-01-01"}, "expires", "would already be expired"),
        ({"name": "x", "role": "admin", "expires": "tomorrow"}, "expires", "a date such as"),
        ({"name": "x", "role": "admin", "expires": "9999-12-31"}, "expires", "after the year 2999"),
    ],
)
def test_a_key_that_cannot_be_created_is_reported_at_the_field(
    admin: Visitor, dashboard: Dashboard, fields: dict[str, str], field: str, said: str
):
    answer = admin.post("/team/keys", fields)

    [wrong] = [each for each in Elements(answer.body).all if "aria-invalid" in each.attributes]
    assert answer.status == 422
    assert wrong.attributes["name"] == field
    assert said in text_of(answer.body)
    assert dashboard.management.keys.all(dashboard.may_administer) == []


@pytest.mark.parametrize("factory", ["default", " in in in ", "<b>in</b> \"'"])
def test_every_choice_of_the_form_makes_the_key_that_it_says(admin: Visitor, dashboard: Dashboard, factory: str):
    if factory != "default":
        factory = dashboard.management.factories.create(dashboard.may_administer, factory).name
    offered = [each.attributes["value"] for each in Elements(admin.get("/team/keys").body).with_tag("option")]

    answers = [admin.post("/team/keys", {"name": f"key {role}", "role": role}).status for role in offered]

    made = {(key.role, key.factory_name) for key in dashboard.management.keys.all(dashboard.may_administer)}
    assert set(answers) == {200}
    assert {(Role.VIEWER, factory), (Role.MANAGER, factory), (Role.ADMIN, None)} <= made
    assert len(made) == len(offered)


def test_a_key_is_good_to_the_end_of_its_last_day(admin: Visitor, dashboard: Dashboard):
    admin.post("/team/keys", {"name": "short", "role": "admin", "expires": "2030-12-31"})

    [key] = dashboard.management.keys.all(dashboard.may_administer)

    assert key.expires_at == datetime(2031, 1, 1, tzinfo=UTC).timestamp() * 1_000_000


def test_a_keys_token_comes_with_a_line_to_try_it(admin: Visitor, dashboard: Dashboard):
    answer = admin.post("/team/keys", {"name": "pipeline", "role": "viewer in default"})

    found = re.search(
        r"curl -H 'Authorization: Bearer (hmk_[\w-]+)' https://hooks.test/api/v1/me", text_of(answer.body)
    )
    assert found is not None
    caller = dashboard.management.access.caller_with_token(found[1], client=None)
    assert caller is not None
    assert answer.headers["cache-control"] == "no-store"


def test_roles_that_stay_are_not_written_down_again(admin: Visitor, dashboard: Dashboard):
    member = dashboard.management.members.add(dashboard.may_administer, "bob@example.com", "Bob")
    factory = dashboard.world.factory
    elsewhere = dashboard.world.elsewhere("other").factory
    path = f"/team/members/{member.id}/roles"

    admin.post(path, {f"role.{factory.id}": "manager", f"role.{elsewhere.id}": ""})
    before = dashboard.audit_entry_count()
    admin.post(path, {f"role.{factory.id}": "manager", f"role.{elsewhere.id}": ""})

    assert dashboard.management.members.get(dashboard.may_administer, member.id).roles == {"default": Role.MANAGER}
    assert dashboard.audit_entry_count() == before


@pytest.mark.parametrize("role", ["admin", "owner", "viewer "])
def test_a_role_that_is_none_changes_nothing(admin: Visitor, dashboard: Dashboard, role: str):
    member = dashboard.management.members.add(dashboard.may_administer, "bob@example.com", "Bob")
    elsewhere = dashboard.world.elsewhere("other").factory
    fields = {f"role.{dashboard.world.factory.id}": "viewer", f"role.{elsewhere.id}": role}

    answer = admin.post(f"/team/members/{member.id}/roles", fields)

    assert answer.status == 422
    assert dashboard.management.members.get(dashboard.may_administer, member.id).roles == {}


@pytest.mark.parametrize(("act", "fields"), [("admin", {"is_admin": "no"}), ("remove", {})])
def test_the_only_admin_stays_one(admin: Visitor, dashboard: Dashboard, act: str, fields: dict[str, str]):
    [member] = dashboard.management.members.all(dashboard.may_administer)

    answer = admin.post(f"/team/members/{member.id}/{act}", fields)

    assert answer.status == 409
    assert "is the team's only admin" in text_of(answer.body)
    assert admin.get("/team").status == 200


def test_a_factorys_name_is_taken_once_and_can_stand_in_an_address(admin: Visitor):
    first = admin.post("/team/factories", {"name": "payments"})
    second = admin.post("/team/factories", {"name": "payments"})
    unreachable = admin.post("/team/factories", {"name": ".."})

    assert (first.status, second.status, unreachable.status) == (303, 422, 422)
    assert "A factory named 'payments' already exists" in text_of(second.body)
    assert "its name is part of URLs" in text_of(unreachable.body)


def test_names_that_mean_harm_are_words_on_every_page(admin: Visitor, dashboard: Dashboard):
    member = dashboard.management.members.add(dashboard.may_administer, "hostile@example.com", HOSTILE)
    key = dashboard.management.keys.create(dashboard.may_administer, HOSTILE, Role.ADMIN).key
    dashboard.management.factories.create(dashboard.may_administer, HOSTILE)

    for path in (
        "/team",
        f"/team/members/{member.id}",
        f"/team/members/{member.id}/remove",
        "/team/keys",
        f"/team/keys/{key.id}/revoke",
        "/team/factories",
        "/team/audit",
    ):
        body = admin.get(path).body.decode()

        assert "<script>alert" not in body
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in body
        assert "\u202e" not in re.sub(r'value="[^"]*"', "", body)
        assert "49" not in text_of(body.encode()).replace("2049", "")


# Settings


def test_every_setting_is_shown_and_no_secret_of_it(sqlite_store: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOOKMILL_PORT", "9000")
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", "postgresql://me:canary/1@db.canary.example/hookmill")
    settings = Settings(
        master_key="canary-key",  # type: ignore[arg-type]
        s3_bucket="files",
        s3_access_key_id="canary-key-id",  # type: ignore[arg-type]
        s3_secret_access_key="canary-key",  # type: ignore[arg-type]
        trusted_proxies=("10.0.0.0/8",),
        runners={
            "agent": {  # type: ignore[dict-item]
                "argv": ["/usr/bin/agent", "--token", "canary-argument"],
                "environment": {"AGENT_KEY": "canary-variable"},
                "pass_environment": ["HOME"],
            }
        },
    )

    def with_facts(world: Any) -> Dashboard:
        return Dashboard(world, settings=effective_settings(settings))

    body = b""
    for dashboard in dashboard_for_test(sqlite_store, with_facts):
        body = dashboard.member("admin@example.com", is_admin=True).get("/settings").body

    rows = {each.attributes["id"] for each in Elements(body).with_tag("tr") if "id" in each.attributes}
    words = text_of(body)
    assert rows == set(Settings.model_fields)
    assert b"canary" not in body
    assert "port 9000 HOOKMILL_PORT" in words
    assert "database_url set: PostgreSQL HOOKMILL_DATABASE_URL" in words
    assert "master_key set settings file" in words
    assert "master_key_previous not set default" in words
    assert "agent: /usr/bin/agent, 2 arguments, at most 3600 s" in words
    assert "with AGENT_KEY, HOME" in words
