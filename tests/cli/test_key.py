"""`hookmill key`: API keys."""

import shlex
from typing import Any

import pytest
import time_machine

from hookmill import app
from hookmill.settings import read_settings
from tests.cli.conftest import START_US


@pytest.fixture
def key(log, hookmill):
    """The JSON that the creation of the key `ci` printed. The key has the role viewer in the factory `default`."""
    return hookmill("key", "create", "ci", "--role", "viewer", "--json").json


def caller_with(token: str) -> Any:
    """The caller that the service authenticates by this token."""
    settings = read_settings()
    store = app.open_store(settings)
    try:
        return app.build_management(settings, store).access.caller_with_token(token, client=None)
    finally:
        store.close()


def test_create_prints_the_token_once_and_a_curl_command(log, hookmill, monkeypatch):
    monkeypatch.setenv("HOOKMILL_BASE_URL", "https://hooks.example.com")

    output = hookmill("key", "create", "ci", "--role", "manager").out
    (token,) = [line.split()[1] for line in output.splitlines() if line.startswith("Token")]
    (curl,) = [line for line in output.splitlines() if line.startswith("curl ")]

    assert output.startswith(
        "API key ci is ready. It gives access to factory default, as manager, until it is revoked.\n"
    )
    assert shlex.split(curl) == ["curl", "-H", f"Authorization: Bearer {token}", "https://hooks.example.com/api/v1/me"]
    assert token not in hookmill("key", "list").out + hookmill("key", "list", "--json").out


def test_token_gives_the_role_in_one_factory(key):
    caller = caller_with(key["token"])

    assert (caller.is_admin, [role.value for role in caller.roles.values()]) == (False, ["viewer"])


def test_token_of_an_admin_key_gives_access_as_admin(log, hookmill):
    key = hookmill("key", "create", "ops", "--role", "admin", "--json").json

    assert (key["role"], key["factory"]) == ("admin", None)
    assert caller_with(key["token"]).is_admin


def test_key_is_created_for_another_factory(log, hookmill):
    hookmill("factory", "create", "payments")

    key = hookmill("key", "create", "ci", "--role", "viewer", "--factory", "payments", "--json").json

    assert key["factory"] == "payments"


def test_list_in_json_has_every_field_but_the_token(key, hookmill):
    (row,) = hookmill("key", "list", "--json").json["items"]

    assert row == {name: value for name, value in key.items() if name not in ("token", "api_url")}
    assert (row["name"], row["expires_at"], row["revoked_at"]) == ("ci", None, None)


def test_list_shows_the_access_and_the_state_of_each_key(key, hookmill):
    with time_machine.travel(START_US / 1_000_000, tick=False):
        expired = hookmill("key", "create", "gone", "--role", "viewer", "--expires-in-days", "1", "--json").json
    with time_machine.travel(START_US / 1_000_000 + 86_401, tick=False):
        hookmill("key", "revoke", key["key_id"], "--yes")
        admin = hookmill("key", "create", "late", "--role", "admin", "--expires-in-days", "30", "--json").json

        rows = {row.split()[0]: row for row in hookmill("key", "list").out.splitlines()[1:]}

    assert rows[key["key_id"]].split()[1:] == ["ci", "factory", "default,", "as", "viewer", "revoked", "-"]
    assert "expired 2026-11-22" in rows[expired["key_id"]]
    assert rows[admin["key_id"]].split()[2:] == ["all", "factories,", "as", "admin", "until", "2026-12-22", "-"]


def test_revoked_key_is_rejected(key, hookmill):
    output = hookmill("key", "revoke", key["key_id"], "--yes").out

    assert output == f"API key ci ({key['key_id']}) is revoked. Its requests get 401.\n"
    assert caller_with(key["token"]) is None
    assert "is already revoked" in hookmill("key", "revoke", key["key_id"], exit_code=1).err


def test_key_is_revoked_by_its_name(key, hookmill):
    hookmill("key", "revoke", "ci", "--yes")
    second = hookmill("key", "create", "ci", "--role", "viewer", "--json").json

    assert hookmill("key", "revoke", "ci", "--yes", "--json").json["key_id"] == second["key_id"]
    assert "is already revoked" in hookmill("key", "revoke", "ci", exit_code=1).err
    assert "There is no key 'nobody'" in hookmill("key", "revoke", "nobody", exit_code=1).err


def test_name_of_several_keys_is_refused_with_their_ids(key, hookmill):
    other = hookmill("key", "create", "ci", "--role", "viewer", "--json").json

    result = hookmill("key", "revoke", "ci", "--yes", exit_code=1)

    assert result.err.startswith("2 keys are named 'ci'. Give the id of one of them: ")
    assert key["key_id"] in result.err
    assert other["key_id"] in result.err


def test_help_of_api_keys_and_of_master_keys_names_the_other_command(hookmill):
    assert "`hookmill keys`" in hookmill("key", "--help").out
    assert "`hookmill key`" in hookmill("keys", "--help").out


@pytest.mark.parametrize("expires_at", [253_402_387_139_000_000, 2**63 - 1, -(2**63)])
def test_stored_expiry_outside_the_calendar_is_shown_as_its_edge(key, log, hookmill, expires_at):
    log.execute("UPDATE api_keys SET expires_at = ?", (expires_at,))
    log.execute("UPDATE audit_log SET details = ?", (f'{{"expires_at": {expires_at}}}',))
    edge = "9999-12-31" if expires_at > 0 else "0001-01-01"

    (shown,) = hookmill("key", "list", "--json").json["items"]

    assert shown["expires_at"].startswith(edge)
    assert edge in hookmill("key", "list").out
    assert f"expires_at {edge}" in hookmill("audit", "list", "--team").out
    assert hookmill("audit", "list", "--team", "--json").json["items"][0]["details"] == {
        "expires_at": shown["expires_at"]
    }
