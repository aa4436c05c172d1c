"""The pages of the team (members, API keys and factories), and the page of the effective settings."""

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from hookmill.app.effective_settings import effective_settings
from hookmill.domain.permission import Role
from hookmill.settings import Settings
from hookmill.web.dashboard.team import is_local_url
from tests.dashboard.client import Dashboard, Elements, dashboard_for_test, text_of
from tests.dashboard.conftest import PASSWORD, expect_text, press
from tests.support.world import World

HOSTILE = "<script>alert(1)</script>\u202e\"'{{77*77777}}"


@pytest.fixture
def admin(dashboard):
    return dashboard.member("admin@example.com", is_admin=True, name="Ada")


# In a browser


def test_new_member_signs_in_with_the_link_and_has_the_role(page, signed_out_page, installation):
    page.goto("/team")
    page.get_by_label("Name").fill("Grace")
    page.get_by_label("E-mail address").fill("grace@example.com")
    press(page, "Add member and create link")
    expect(page.get_by_role("status")).to_have_text("Grace is now a member: viewer in default.")
    expect(page.locator("main")).not_to_contain_text("has no role in a factory yet")
    link = page.locator("#new-link").inner_text()
    page.get_by_role("link", name="Back to Grace").click()
    expect(page.locator("body")).not_to_contain_text(link)

    signed_out_page.goto(link)
    signed_out_page.get_by_label("Password", exact=True).fill(PASSWORD)
    signed_out_page.get_by_label("Confirm password").fill(PASSWORD)
    press(signed_out_page, "Set password and sign in")

    signed_out_page.wait_for_url(re.compile("/f/default"))
    expect(
        signed_out_page.get_by_role("navigation", name="Factory").get_by_role("link", name="Deliveries")
    ).to_be_visible()
    expect(signed_out_page.get_by_role("link", name="Team", exact=True)).to_have_count(0)
    expect(signed_out_page.get_by_role("link", name="Secrets", exact=True)).to_have_count(0)


@pytest.mark.proof
def test_team_pages_are_accessible(check_accessibility, installation):
    may_administer = installation.may_administer
    member = installation.management.members.add(may_administer, "hostile@example.com", HOSTILE)
    installation.management.members.set_role(may_administer, member.id, "default", Role.MANAGER)

    def create_link(page: Page) -> None:
        press(page, "Create link")
        expect(page.locator("#new-link")).to_be_visible()

    def add_without_a_role(page: Page) -> None:
        page.get_by_label("Name").fill(HOSTILE)
        page.get_by_label("E-mail address").fill("no-role@example.com")
        page.get_by_label("Role").select_option("no role yet")
        press(page, "Add member and create link")
        expect(page.get_by_role("link", name="assign a role")).to_be_visible()
        expect_text(page, f"The link starts with {installation.base_url}, so it works only")

    def create_key(page: Page) -> None:
        page.get_by_label("Name").fill("pipeline")
        press(page, "Create API key")
        expect(page.locator("#new-token")).to_be_visible()

    def add_existing_member(page: Page) -> None:
        page.get_by_label("Name").fill("Ada")
        page.get_by_label("E-mail address").fill("ada@example.com")
        press(page, "Add member and create link")
        expect(page.get_by_role("alert")).to_contain_text("is already a member")

    check_accessibility("team-refused", "/team", prepare=add_existing_member)
    check_accessibility("team-link", f"/team/members/{member.id}", prepare=create_link)
    check_accessibility("team-added", "/team", prepare=add_without_a_role)
    check_accessibility("team-key", "/team/keys", prepare=create_key)


# Without a browser


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
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
def test_rejected_member_form_reports_the_problem_at_the_field(admin, dashboard, fields, field, problem):
    entries_before = dashboard.audit_entry_count()
    fields = {"name": "New", "email": "new@example.com"} | fields

    answer = admin.post("/team", fields)

    page = Elements(answer.body)
    [invalid_field] = [element for element in page.all if "aria-invalid" in element.attributes]
    values = {element.attributes.get("name"): element.attributes.get("value") for element in page.with_tag("input")}
    assert answer.status == 422
    assert invalid_field.attributes["name"] == field
    assert problem in text_of(answer.body)
    assert (values["name"], values["email"]) == (fields["name"], fields["email"])
    assert dashboard.audit_entry_count() == entries_before


@pytest.mark.parametrize(
    ("base_url", "is_local"),
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
def test_base_url_that_works_only_on_one_machine_is_local(base_url, is_local):
    assert is_local_url(base_url) is is_local


def test_rejected_member_form_keeps_the_selected_role(admin):
    for role in ("viewer in default", "manager in default", "admin", ""):
        answer = admin.post("/team", {"name": "Ada", "email": "nowhere", "role": role})

        options = [option.attributes for option in Elements(answer.body).with_tag("option")]
        assert [option["value"] for option in options if "selected" in option] == [role]


@pytest.mark.parametrize("factory", ["default", " in in in ", "<b>in</b> \"'"])
def test_every_role_option_creates_a_member_with_this_role(admin, dashboard, factory):
    if factory != "default":
        factory = dashboard.management.factories.create(dashboard.may_administer, factory).name
    options = [option.attributes["value"] for option in Elements(admin.get("/team").body).with_tag("option")]
    roles_by_option = {}

    for number, option in enumerate(options):
        email = f"{number}@example.com"
        answer = admin.post("/team", {"name": "New", "email": email, "role": option})
        member = dashboard.management.members.get(dashboard.may_administer, email)
        roles_by_option[option] = (member.is_admin, dict(member.roles))
        [link] = re.findall(r"https://hooks\.test/welcome/([\w-]+)", answer.body.decode())
        assert dashboard.management.sessions.link_target(link).email == email
        assert answer.headers["cache-control"] == "no-store"
        assert ("has no role in a factory yet" in text_of(answer.body)) is (option == "")
        assert "base_url" not in text_of(answer.body)

    assert options[0].startswith("viewer in ")
    assert roles_by_option[f"viewer in {factory}"] == (False, {factory: Role.VIEWER})
    assert roles_by_option[f"manager in {factory}"] == (False, {factory: Role.MANAGER})
    assert roles_by_option["admin"] == (True, {})
    assert roles_by_option[""] == (False, {})
    assert len(roles_by_option) == len(options)


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
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
def test_rejected_key_form_reports_the_problem_at_the_field(admin, dashboard, fields, field, problem):
    answer = admin.post("/team/keys", fields)

    [invalid_field] = [element for element in Elements(answer.body).all if "aria-invalid" in element.attributes]
    assert answer.status == 422
    assert invalid_field.attributes["name"] == field
    assert problem in text_of(answer.body)
    assert dashboard.management.keys.all(dashboard.may_administer) == []


@pytest.mark.parametrize("factory", ["default", " in in in ", "<b>in</b> \"'"])
def test_every_role_option_creates_a_key_with_this_role(admin, dashboard, factory):
    if factory != "default":
        factory = dashboard.management.factories.create(dashboard.may_administer, factory).name
    options = [option.attributes["value"] for option in Elements(admin.get("/team/keys").body).with_tag("option")]

    statuses = [admin.post("/team/keys", {"name": f"key {option}", "role": option}).status for option in options]

    roles = {(key.role, key.factory_name) for key in dashboard.management.keys.all(dashboard.may_administer)}
    assert set(statuses) == {200}
    assert {(Role.VIEWER, factory), (Role.MANAGER, factory), (Role.ADMIN, None)} <= roles
    assert len(roles) == len(options)


def test_key_is_valid_until_the_end_of_its_last_day(admin, dashboard):
    admin.post("/team/keys", {"name": "short", "role": "admin", "expires": "2030-12-31"})

    [key] = dashboard.management.keys.all(dashboard.may_administer)

    assert key.expires_at == datetime(2031, 1, 1, tzinfo=UTC).timestamp() * 1_000_000


def test_new_key_is_shown_with_a_curl_command_that_uses_it(admin, dashboard):
    answer = admin.post("/team/keys", {"name": "pipeline", "role": "viewer in default"})

    command = re.search(
        r"curl -H 'Authorization: Bearer (hmk_[\w-]+)' https://hooks.test/api/v1/me", text_of(answer.body)
    )
    assert command is not None
    caller = dashboard.management.access.caller_with_token(command[1], client=None)
    assert caller is not None
    assert answer.headers["cache-control"] == "no-store"


def test_unchanged_roles_add_no_audit_entry(admin, dashboard):
    member = dashboard.management.members.add(dashboard.may_administer, "bob@example.com", "Bob")
    factory = dashboard.world.factory
    elsewhere = dashboard.world.operator_of_new_factory("other").factory
    path = f"/team/members/{member.id}/roles"

    admin.post(path, {f"role.{factory.id}": "manager", f"role.{elsewhere.id}": ""})
    entries_before = dashboard.audit_entry_count()
    admin.post(path, {f"role.{factory.id}": "manager", f"role.{elsewhere.id}": ""})

    assert dashboard.management.members.get(dashboard.may_administer, member.id).roles == {"default": Role.MANAGER}
    assert dashboard.audit_entry_count() == entries_before


@pytest.mark.parametrize("role", ["admin", "owner", "viewer "])
def test_form_with_an_unknown_role_changes_no_role(admin, dashboard, role):
    member = dashboard.management.members.add(dashboard.may_administer, "bob@example.com", "Bob")
    elsewhere = dashboard.world.operator_of_new_factory("other").factory
    fields = {f"role.{dashboard.world.factory.id}": "viewer", f"role.{elsewhere.id}": role}

    answer = admin.post(f"/team/members/{member.id}/roles", fields)

    assert answer.status == 422
    assert dashboard.management.members.get(dashboard.may_administer, member.id).roles == {}


def test_factory_name_must_be_unique_and_usable_in_a_url(admin):
    created = admin.post("/team/factories", {"name": "payments"})
    duplicate = admin.post("/team/factories", {"name": "payments"})
    unusable = admin.post("/team/factories", {"name": ".."})

    assert (created.status, duplicate.status, unusable.status) == (303, 422, 422)
    assert "A factory named 'payments' already exists" in text_of(duplicate.body)
    assert "its name is part of URLs" in text_of(unusable.body)


def test_hostile_names_are_shown_as_text_on_every_page(admin, dashboard):
    member = dashboard.management.members.add(dashboard.may_administer, "hostile@example.com", HOSTILE)
    key = dashboard.management.keys.create(dashboard.may_administer, HOSTILE, Role.ADMIN).key
    dashboard.management.factories.create(dashboard.may_administer, HOSTILE)
    webhook = dashboard.world.webhook(HOSTILE)
    dashboard.world.post(webhook, headers=[("X-Service-Delivery-Id", HOSTILE.encode().decode("latin-1"))])

    for path in (
        "/f/default",
        f"/f/default/webhooks/{webhook.webhook.uid}",
        "/f/default/deliveries",
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
        # The template engine did not evaluate `{{77*77777}}`.
        assert "5988829" not in body


# Settings


def test_settings_page_shows_every_setting_but_no_secret(sqlite_store, monkeypatch):
    monkeypatch.setenv("HOOKMILL_PORT", "9000")
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", "postgresql://me:canary/1@db.canary.example/hookmill")
    settings = Settings(
        master_key="canary-key",  # type: ignore[arg-type]
        s3_bucket="files",
        s3_access_key_id="canary-key-id",  # type: ignore[arg-type]
        s3_secret_access_key="canary-key",  # type: ignore[arg-type]
        metrics_token="canary-token-of-prometheus",  # type: ignore[arg-type]
        otlp_headers="authorization=canary",  # type: ignore[arg-type]
        trusted_proxies=("10.0.0.0/8",),
        runners={
            "agent": {  # type: ignore[dict-item]
                "argv": ["/usr/bin/agent", "--token", "canary-argument"],
                "environment": {"AGENT_KEY": "canary-variable"},
                "pass_environment": ["HOME"],
            },
            "inbox": {"kind": "package"},  # type: ignore[dict-item]
        },
    )

    def create_dashboard(world: World) -> Dashboard:
        return Dashboard(world, settings=effective_settings(settings))

    body = b""
    for dashboard in dashboard_for_test(sqlite_store, create_dashboard):
        body = dashboard.member("admin@example.com", is_admin=True).get("/settings").body

    rows = {row.attributes["id"] for row in Elements(body).with_tag("tr") if "id" in row.attributes}
    text = text_of(body)
    assert rows == set(Settings.model_fields)
    assert b"canary" not in body
    assert "port 9000 HOOKMILL_PORT" in text
    assert "database_url set: PostgreSQL HOOKMILL_DATABASE_URL" in text
    assert "master_key set settings file" in text
    assert "master_key_previous not set default" in text
    assert "inbox: only writes the run's files" in text
    assert "agent: /usr/bin/agent, 2 arguments, no sandbox, at most 3600 s" in text
    assert "with AGENT_KEY, HOME" in text
