"""`hookmill key`: API keys."""

import shlex
import sqlite3
from contextlib import closing
from typing import Any

import pytest
import time_machine

from hookmill import app
from hookmill.settings import read_settings
from tests.cli.conftest import START_US, Hookmill, LogWriter


@pytest.fixture
def key(log: LogWriter, hookmill: Hookmill) -> Any:
    """A viewer's key named `ci`, as its creation printed it."""
    return hookmill("key", "create", "ci", "--role", "viewer", "--json").json


def caller(token: str) -> Any:
    """Whom the service takes somebody with this token for."""
    settings = read_settings()
    store = app.open_store(settings)
    try:
        return app.build_management(settings, store).access.caller_with_token(token, client=None)
    finally:
        store.close()


def test_creation_prints_the_token_once_and_a_curl_line_to_try_it(
    log: LogWriter, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_BASE_URL", "https://hooks.example.com")

    printed = hookmill("key", "create", "ci", "--role", "manager").out
    (token,) = [line.split()[1] for line in printed.splitlines() if line.startswith("Token")]
    (curl,) = [line for line in printed.splitlines() if line.startswith("curl ")]

    assert printed.startswith(
        "API key ci is ready. It gives access to factory default, as manager, until it is revoked.\n"
    )
    assert shlex.split(curl) == ["curl", "-H", f"Authorization: Bearer {token}", "https://hooks.example.com/api/v1/me"]
    assert token not in hookmill("key", "list").out + hookmill("key", "list", "--json").out


def test_the_token_opens_one_factory_with_that_role(key: Any):
    known = caller(key["token"])

    assert (known.is_admin, [role.value for role in known.roles.values()]) == (False, ["viewer"])


def test_an_admins_key_opens_everything(log: LogWriter, hookmill: Hookmill):
    made = hookmill("key", "create", "ops", "--role", "admin", "--json").json

    assert (made["role"], made["factory"]) == ("admin", None)
    assert caller(made["token"]).is_admin


def test_an_admins_key_is_for_no_single_factory(log: LogWriter, hookmill: Hookmill):
    printed = hookmill("key", "create", "ops", "--role", "admin", "--factory", "default", exit_code=1)

    assert "is for the whole team" in printed.err


def test_a_key_can_be_for_another_factory(log: LogWriter, hookmill: Hookmill):
    hookmill("factory", "create", "payments")

    made = hookmill("key", "create", "ci", "--role", "viewer", "--factory", "payments", "--json").json

    assert made["factory"] == "payments"


def test_a_key_as_json_has_everything_but_the_token(key: Any, hookmill: Hookmill):
    (listed,) = hookmill("key", "list", "--json").json["keys"]

    assert listed == {name: value for name, value in key.items() if name != "token"}
    assert (listed["name"], listed["expires_at"], listed["revoked_at"]) == ("ci", None, None)


def test_the_list_says_what_each_opens_and_whether_it_still_does(key: Any, hookmill: Hookmill):
    with time_machine.travel(START_US / 1_000_000, tick=False):
        gone = hookmill("key", "create", "gone", "--role", "viewer", "--expires-in-days", "1", "--json").json
    with time_machine.travel(START_US / 1_000_000 + 86_401, tick=False):
        hookmill("key", "revoke", key["key_id"], "--yes")
        late = hookmill("key", "create", "late", "--role", "admin", "--expires-in-days", "30", "--json").json

        rows = {row.split()[0]: row for row in hookmill("key", "list").out.splitlines()[1:]}

    assert rows[key["key_id"]].split()[1:] == ["ci", "factory", "default,", "as", "viewer", "revoked", "-"]
    assert "expired 2026-11-22" in rows[gone["key_id"]]
    assert rows[late["key_id"]].split()[2:] == ["all", "factories,", "as", "admin", "until", "2026-12-22", "-"]


def test_an_empty_list_says_how_to_create_one(log: LogWriter, hookmill: Hookmill):
    assert "key create NAME --role viewer" in hookmill("key", "list").out


def test_a_revoked_key_opens_nothing(key: Any, hookmill: Hookmill):
    said = hookmill("key", "revoke", key["key_id"], "--yes").out

    assert said == f"API key ci ({key['key_id']}) is revoked. Its requests get 401.\n"
    assert caller(key["token"]) is None
    assert "is already revoked" in hookmill("key", "revoke", key["key_id"], exit_code=1).err


def test_revoking_asks_and_takes_no_for_an_answer(key: Any, hookmill: Hookmill):
    printed = hookmill("key", "revoke", key["key_id"], stdin=b"n\n", exit_code=1)

    assert f"Revoke API key ci ({key['key_id']})? Its requests get 401 permanently." in printed.err
    assert caller(key["token"]) is not None


def test_revoking_in_json_needs_yes(key: Any, hookmill: Hookmill):
    refused = hookmill("key", "revoke", key["key_id"], "--json", exit_code=2)
    revoked = hookmill("key", "revoke", key["key_id"], "--json", "--yes").json

    assert "--yes" in refused.err
    assert revoked["revoked_at"] is not None


def test_a_key_may_be_named_while_no_other_is_called_so(key: Any, hookmill: Hookmill):
    hookmill("key", "revoke", "ci", "--yes")
    again = hookmill("key", "create", "ci", "--role", "viewer", "--json").json

    assert hookmill("key", "revoke", "ci", "--yes", "--json").json["key_id"] == again["key_id"]
    assert "is already revoked" in hookmill("key", "revoke", "ci", exit_code=1).err
    assert "There is no key 'nobody'" in hookmill("key", "revoke", "nobody", exit_code=1).err


def test_a_name_that_several_keys_have_is_refused_with_their_ids(key: Any, hookmill: Hookmill):
    other = hookmill("key", "create", "ci", "--role", "viewer", "--json").json

    printed = hookmill("key", "revoke", "ci", "--yes", exit_code=1)

    assert printed.err.startswith("2 keys are named 'ci'. Give the id of one of them: ")
    assert key["key_id"] in printed.err
    assert other["key_id"] in printed.err


def test_the_help_tells_api_keys_and_master_keys_apart(hookmill: Hookmill):
    assert "`hookmill keys`" in hookmill("key", "--help").out
    assert "`hookmill key`" in hookmill("keys", "--help").out


@pytest.mark.parametrize("at", [253_402_387_139_000_000, 2**63 - 1, -(2**63)])
def test_stored_end_outside_the_calendar_is_shown_as_its_edge(key: Any, log: LogWriter, hookmill: Hookmill, at: int):
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("UPDATE api_keys SET expires_at = ?", (at,))
        connection.execute("UPDATE audit_log SET details = ?", (f'{{"expires_at": {at}}}',))
    edge = "9999-12-31" if at > 0 else "0001-01-01"

    (shown,) = hookmill("key", "list", "--json").json["keys"]

    assert shown["expires_at"].startswith(edge)
    assert edge in hookmill("key", "list").out
    assert f"expires_at {edge}" in hookmill("audit", "list", "--team").out
    assert hookmill("audit", "list", "--team", "--json").json["entries"][0]["details"] == {
        "expires_at": shown["expires_at"]
    }
