"""`hookmill member`."""

import re
from contextlib import closing

import pytest

from hookmill import app
from hookmill.domain.errors import NotFound
from hookmill.settings import read_settings


@pytest.fixture
def ada(log, hookmill):
    """The JSON that the addition of the member ada@example.com printed. She has no role."""
    return hookmill("member", "add", "Ada@Example.com ", "--name", "Ada", "--json").json


def test_new_member_has_no_role(ada):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", ada.pop("created_at"))
    assert ada.pop("member_id").startswith("mbr_")
    assert ada == {
        "email": "ada@example.com",
        "name": "Ada",
        "is_admin": False,
        "roles": {},
        "sign_in_method": None,
        "oidc_issuer": None,
        "oidc_subject": None,
    }


def test_add_says_how_to_give_the_member_a_role(log, hookmill):
    output = hookmill("member", "add", "ada@example.com", "--name", "Ada").out

    assert "is now a member without a role" in output
    assert "member role ada@example.com viewer" in output


def test_list_shows_the_roles_of_each_member(ada, hookmill):
    hookmill("member", "add", "bob@example.com", "--name", "Bob", "--admin")
    hookmill("factory", "create", "payments")
    hookmill("member", "role", "ada@example.com", "manager")
    hookmill("member", "role", ada["member_id"], "viewer", "--factory", "payments")

    assert hookmill("member", "list").out.splitlines() == [
        "EMAIL            NAME  SIGN-IN  ROLES",
        "ada@example.com  Ada   none     default: manager, payments: viewer",
        "bob@example.com  Bob   none     admin of the team",
    ]
    (first, _) = hookmill("member", "list", "--json").json["items"]
    assert first["roles"] == {"default": "manager", "payments": "viewer"}


def test_role_is_removed(ada, hookmill):
    hookmill("member", "role", "ada@example.com", "viewer")

    output = hookmill("member", "role", "ada@example.com", "none").out

    assert output == "Ada (ada@example.com) is now without a role in factory default.\n"
    assert hookmill("member", "list", "--json").json["items"][0]["roles"] == {}


def test_member_becomes_an_admin_and_then_no_longer_is_one(ada, hookmill):
    hookmill("member", "add", "bob@example.com", "--name", "Bob", "--admin")

    output = hookmill("member", "admin", "ada@example.com", "on").out
    member = hookmill("member", "admin", "ada@example.com", "off", "--json").json

    assert output == "Ada (ada@example.com) is an admin, who may do everything in every factory.\n"
    assert member["is_admin"] is False


def test_new_link_replaces_the_previous_one(ada, hookmill):
    first_url = hookmill("member", "link", "ada@example.com").out.splitlines()[-1]
    url = hookmill("member", "link", "ada@example.com", "--json").json["url"]

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/welcome/[\w-]{43}", url)
    assert first_url.rpartition("/")[2] != url.rpartition("/")[2]
    settings = read_settings()
    with closing(app.open_store(settings)) as store:
        sessions = app.build_management(settings, store).sessions
        assert sessions.link_target(url.rpartition("/")[2]).email == "ada@example.com"
        with pytest.raises(NotFound):
            sessions.link_target(first_url.rpartition("/")[2])
