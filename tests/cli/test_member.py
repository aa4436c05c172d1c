"""`hookmill member`."""

import re
from contextlib import closing
from typing import Any

import pytest

from hookmill import app
from hookmill.domain.errors import NotFound
from hookmill.settings import read_settings
from tests.cli.conftest import Hookmill, LogWriter

HOSTILE = "Ada[red]\u00a0L"


@pytest.fixture
def ada(log: LogWriter, hookmill: Hookmill) -> Any:
    """ada@example.com, as her addition printed her. She has no role yet."""
    return hookmill("member", "add", "Ada@Example.com ", "--name", "Ada", "--json").json


def test_somebody_new_has_no_role_yet(ada: Any):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", ada.pop("created_at"))
    assert ada.pop("member_id").startswith("mbr_")
    assert ada == {"email": "ada@example.com", "name": "Ada", "is_admin": False, "roles": {}}


def test_adding_somebody_says_how_to_give_them_a_role(log: LogWriter, hookmill: Hookmill):
    printed = hookmill("member", "add", "ada@example.com", "--name", "Ada").out

    assert "is now a member without a role" in printed
    assert "member role ada@example.com viewer" in printed


def test_the_list_says_what_each_may_do(ada: Any, hookmill: Hookmill):
    hookmill("member", "add", "bob@example.com", "--name", "Bob", "--admin")
    hookmill("factory", "create", "payments")
    hookmill("member", "role", "ada@example.com", "manager")
    hookmill("member", "role", ada["member_id"], "viewer", "--factory", "payments")

    assert hookmill("member", "list").out.splitlines() == [
        "EMAIL            NAME  ROLES",
        "ada@example.com  Ada   default: manager, payments: viewer",
        "bob@example.com  Bob   admin of the team",
    ]
    (described, _) = hookmill("member", "list", "--json").json["members"]
    assert described["roles"] == {"default": "manager", "payments": "viewer"}


def test_an_empty_list_says_how_to_add_somebody(log: LogWriter, hookmill: Hookmill):
    assert "member add EMAIL --name NAME" in hookmill("member", "list").out


def test_a_role_can_be_taken_away(ada: Any, hookmill: Hookmill):
    hookmill("member", "role", "ada@example.com", "viewer")

    said = hookmill("member", "role", "ada@example.com", "none").out

    assert said == "Ada (ada@example.com) is now without a role in factory default.\n"
    assert hookmill("member", "list", "--json").json["members"][0]["roles"] == {}


def test_admin_is_no_role_in_one_factory(ada: Any, hookmill: Hookmill):
    assert "viewer" in hookmill("member", "role", "ada@example.com", "admin", exit_code=2).err


def test_somebody_becomes_an_admin_and_is_one_no_more(ada: Any, hookmill: Hookmill):
    hookmill("member", "add", "bob@example.com", "--name", "Bob", "--admin")

    said = hookmill("member", "admin", "ada@example.com", "on").out
    ended = hookmill("member", "admin", "ada@example.com", "off", "--json").json

    assert said == "Ada (ada@example.com) is an admin, who may do everything in every factory.\n"
    assert ended["is_admin"] is False


def test_the_last_admin_stays_one(log: LogWriter, hookmill: Hookmill):
    hookmill("member", "add", "bob@example.com", "--name", "Bob", "--admin")

    assert "only admin" in hookmill("member", "admin", "bob@example.com", "off", exit_code=1).err


def test_removal_asks_and_takes_no_for_an_answer(ada: Any, hookmill: Hookmill):
    printed = hookmill("member", "remove", "ada@example.com", stdin=b"n\n", exit_code=1)

    assert printed.err.startswith("Remove Ada (ada@example.com) from the team?")
    assert len(hookmill("member", "list", "--json").json["members"]) == 1


def test_somebody_who_was_removed_is_gone(ada: Any, hookmill: Hookmill):
    removed = hookmill("member", "remove", "ada@example.com", "--yes", "--json").json

    assert removed["removed"] is True
    assert hookmill("member", "list", "--json").json == {"members": []}


def test_a_name_is_printed_as_text_whatever_it_holds(log: LogWriter, hookmill: Hookmill):
    said = hookmill("member", "add", "ada@example.com", "--name", HOSTILE).out

    assert said.startswith("Ada[red]\\u00a0L (ada@example.com) is now a member")
    assert "Ada[red]\\u00a0L" in hookmill("member", "list").out


def test_what_is_no_address_is_refused_with_one_that_is(log: LogWriter, hookmill: Hookmill):
    assert "ada@example.com" in hookmill("member", "add", "ada", "--name", "Ada", exit_code=1).err


def test_a_link_lets_them_choose_a_password_once(ada: Any, hookmill: Hookmill):
    first = hookmill("member", "link", "ada@example.com").out.splitlines()[-1]
    url = hookmill("member", "link", "ada@example.com", "--json").json["url"]

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/welcome/[\w-]{43}", url)
    assert first.rpartition("/")[2] != url.rpartition("/")[2]
    settings = read_settings()
    with closing(app.open_store(settings)) as store:
        sessions = app.build_management(settings, store).sessions
        assert sessions.link_target(url.rpartition("/")[2]).email == "ada@example.com"
        with pytest.raises(NotFound):
            sessions.link_target(first.rpartition("/")[2])


def test_a_link_is_for_somebody_who_is_there(log: LogWriter, hookmill: Hookmill):
    assert (
        "There is no member 'nobody@example.com'" in hookmill("member", "link", "nobody@example.com", exit_code=1).err
    )
