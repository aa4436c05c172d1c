"""Coming in, and going out."""

import re
from typing import Any

from playwright.sync_api import Page, expect

from hookmill.domain.permission import Role
from tests.dashboard.conftest import PASSWORD, House, sign_in


def test_a_stranger_is_sent_to_sign_in_and_from_there_to_where_they_wanted(stranger: Page, house: House):
    stranger.goto(house.at("/account"))
    expect(stranger).to_have_url(house.at("/sign-in?next=%2Faccount"))

    stranger.get_by_label("E-mail address").fill("ada@example.com")
    stranger.get_by_label("Password").fill(PASSWORD)
    stranger.get_by_role("button", name="Sign in").click()

    expect(stranger).to_have_url(house.at("/account"))
    expect(stranger.get_by_role("heading", name="Your account")).to_be_visible()


def test_a_wrong_password_says_no_more_than_an_unknown_address(stranger: Page, house: House):
    said = []
    for email in ("ada@example.com", "nobody@example.com"):
        stranger.goto(house.at("/sign-in"))
        stranger.get_by_label("E-mail address").fill(email)
        stranger.get_by_label("Password").fill("not the password at all")
        stranger.get_by_role("button", name="Sign in").click()
        said.append(stranger.get_by_role("alert").inner_text())

    assert said[0] == said[1] == "Address and password don't belong together."


def test_who_signs_out_is_a_stranger_again(stranger: Page, house: House):
    sign_in(stranger, house)
    state: Any = stranger.context.cookies()

    stranger.get_by_role("button", name="Sign out").click()
    expect(stranger.get_by_role("heading", name="Sign in")).to_be_visible()

    stranger.context.add_cookies(state)
    stranger.goto(house.at("/account"))
    expect(stranger).to_have_url(re.compile("/sign-in"))


def test_a_link_lets_a_member_choose_a_password_once(stranger: Page, house: House):
    admin = house.management.access.operator_of_team()
    house.management.members.add(admin, "grace@example.com", "Grace")
    house.management.members.set_role(admin, "grace@example.com", "default", Role.VIEWER)
    link = house.at(f"/welcome/{house.management.sessions.link_for(admin, 'grace@example.com').reveal()}")

    stranger.goto(link)
    stranger.get_by_label("Password").fill(PASSWORD)
    stranger.get_by_label("The same once more").fill(PASSWORD)
    stranger.get_by_role("button", name="Set password and sign in").click()
    stranger.wait_for_url(re.compile("/f/default"))

    stranger.goto(link)
    expect(stranger.get_by_role("heading", name="Not found")).to_be_visible()


def test_the_session_is_out_of_reach_of_scripts_and_other_sites(stranger: Page, house: House):
    sign_in(stranger, house)

    [cookie] = stranger.context.cookies()

    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/")
    assert stranger.evaluate("document.cookie") == ""


def test_signing_in_looks_right(looks, house: House):
    looks("sign-in", "/sign-in", state=None)
    looks("account", "/account")
    looks("not-found", "/account/nothing")
