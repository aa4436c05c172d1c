"""Signing in with OpenID Connect: a real browser, a real service and a real provider."""

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.external_identity import ExternalIdentity, IdentityKey
from tests.dashboard.conftest import Installation, create_first_admin, expect_heading, expect_text, press
from tests.support.openid_provider import serving_openid
from tests.support.ports import free_port
from tests.support.service import serving

USERS: Final[dict[str, dict[str, Any]]] = {
    "grace": {"email": "grace@example.com", "name": "Grace H", "groups": ["developers"]},
    "root": {"email": "root@example.com", "name": "Root", "groups": ["platform", "developers"]},
    "guest": {"email": "guest@example.com", "name": "Guest", "groups": ["visitors"]},
}


@pytest.fixture(scope="module")
def provider_and_installation(tmp_path_factory):
    directory, port = tmp_path_factory.mktemp("openid"), free_port()
    base_url = f"http://127.0.0.1:{port}"
    with (
        serving_openid(directory, f"{base_url}/sign-in/oidc/callback", USERS) as provider,
        serving(
            directory / "data",
            port=port,
            base_url=base_url,
            oidc_admin_groups="platform",
            oidc_roles='{"developers": "manager@default"}',
            **provider.settings(),
        ) as service,
        service.management() as management,
    ):
        create_first_admin(management)
        yield provider, Installation(service, management, other_url=provider.issuer)


@pytest.fixture(scope="module")
def installation(provider_and_installation):
    return provider_and_installation[1]


@pytest.fixture
def provider(provider_and_installation):
    provider = provider_and_installation[0]
    yield provider
    provider.set_users(USERS)


def enter_user(page: Page, user: str) -> None:
    """Fill in and send the form of the provider."""
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(user)
    press(page, "Log in")


def sign_in(page: Page, installation: Installation, user: str) -> None:
    page.goto("/sign-in")
    page.get_by_role("link", name="Sign in with Example ID").click()
    enter_user(page, user)


def test_person_signs_in_at_the_provider_and_out_again(signed_out_page, installation, provider):
    page = signed_out_page
    page.goto("/account")
    page.get_by_role("link", name="Sign in with Example ID").click()
    enter_user(page, "grace")

    expect(page).to_have_url(installation.url("/account"))
    expect_text(page, "You sign in with Example ID")
    cookies = {cookie["name"]: cookie for cookie in page.context.cookies(installation.base_url)}
    assert set(cookies) == {"hookmill", "hookmill-browser"}
    page.goto("/f/default")
    expect(page.get_by_role("link", name="Create webhook").first).to_be_visible()
    expect(page.get_by_role("link", name="Team", exact=True)).to_have_count(0)
    press(page, "Sign out")
    expect_heading(page, "Sign in")
    page.goto("/account")
    expect(page).to_have_url(re.compile("/sign-in"))


def test_member_connects_an_account_with_a_link(signed_out_page, installation, provider):
    page = signed_out_page
    provider.set_users(USERS | {"edsger": {"email": "edsger@example.com", "groups": ["developers"]}})
    installation.management.members.add(installation.may_administer, "edsger@example.com", "Edsger")
    token = installation.management.sessions.create_link(installation.may_administer, "edsger@example.com").reveal()
    page.goto(f"/welcome/{token}")

    press(page, "Connect Example ID")
    enter_user(page, "edsger")

    page.wait_for_url(re.compile(r"/f/default"))
    page.goto("/account")
    expect_text(page, "You sign in with Example ID")


@pytest.mark.proof
def test_pages_of_signing_in_are_accessible(check_accessibility, installation, provider):
    management, may = installation.management, installation.may_administer
    token = management.sessions.create_link(may, "ada@example.com").reveal()
    key = IdentityKey(provider.issuer, "lin")
    lin = ExternalIdentity(key=key, email="lin@example.com", name="Lin", groups=frozenset({"developers"}))
    management.external_sign_ins.sign_in(lin, client=None)
    [member] = [each for each in management.members.all(may) if each.identity == key]

    check_accessibility("sign-in-refused", "/sign-in/oidc/callback?state=x", signed_in=False)
    check_accessibility("welcome-oidc", f"/welcome/{token}", signed_in=False)
    check_accessibility("team-oidc", "/team")
    check_accessibility("member-oidc", f"/team/members/{member.id}")
