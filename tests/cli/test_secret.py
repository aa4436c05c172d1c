"""`hookmill secret`."""

from typing import Any

import pytest

from tests.cli.conftest import Hookmill, LogWriter

GIVEN = "a-value-of-our-own"


@pytest.fixture
def shared(log: LogWriter, hookmill: Hookmill) -> Any:
    """Team secret SHARED with a value of ours, and the webhook `orders` that uses it."""
    hookmill("secret", "create", "SHARED", "--from-stdin", stdin=GIVEN.encode())
    return hookmill("webhook", "create", "orders", "--secret-name", "SHARED", "--json").json


def test_a_value_that_is_generated_is_printed_once(log: LogWriter, hookmill: Hookmill):
    printed = hookmill("secret", "create", "STRIPE").out
    (value,) = [line.split()[1] for line in printed.splitlines() if line.startswith("Value")]

    assert len(value) >= 43
    assert "Save it now: it is not shown again.\n" in printed
    assert "webhook create NAME --secret-name STRIPE\n" in printed
    assert printed.endswith("Or write in a definition file: secretName: STRIPE\n")
    for again in (["show", "STRIPE"], ["show", "STRIPE", "--json"], ["list"], ["list", "--json"]):
        assert value not in hookmill("secret", *again).out


@pytest.mark.parametrize("command", [["create", "NEW"], ["replace", "OLD"]])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_value_that_was_given_is_not_repeated(
    log: LogWriter, hookmill: Hookmill, command: list[str], as_json: list[str]
):
    hookmill("secret", "create", "OLD")

    printed = hookmill("secret", *command, "--from-stdin", *as_json, stdin=f"{GIVEN}\n".encode())

    assert GIVEN not in printed.out + printed.err


def test_a_secret_as_json_has_everything_but_the_value(shared: Any, hookmill: Hookmill):
    described = hookmill("secret", "show", "SHARED", "--json").json

    assert described.pop("created_at") == described.pop("changed_at")
    assert described == {
        "name": "SHARED",
        "has_value": True,
        "used_by": ["orders"],
        "used_elsewhere": False,
        "not_synced": [],
    }


def test_the_list_says_who_uses_each(shared: Any, hookmill: Hookmill):
    hookmill("factory", "create", "payments")
    hookmill("webhook", "create", "p", "--secret-name", "SHARED", "--factory", "payments")
    hookmill("secret", "create", "UNUSED")
    hookmill("webhook", "create", "repo", "--mode", "signature", "--scheme", "github")

    header, *rows = hookmill("secret", "list").out.splitlines()

    assert header.split("  ")[0] == "NAME"
    assert [(row.split()[0], row.rpartition("  ")[2]) for row in rows] == [
        ("SHARED", "orders, webhooks of other factories"),
        ("UNUSED", "nothing"),
        ("WEBHOOK_REPO_SECRET", "repo"),
    ]
    assert "no value yet" in rows[2]


def test_an_empty_list_says_how_to_create_one(log: LogWriter, hookmill: Hookmill):
    assert "secret create NAME" in hookmill("secret", "list").out


def test_replacing_a_value_names_the_webhooks_that_need_a_sync(shared: Any, hookmill: Hookmill):
    replaced = hookmill("secret", "replace", "SHARED").out
    (offered,) = [line for line in replaced.splitlines() if "webhook sync" in line]
    before = hookmill("webhook", "show", "orders", "--json").json
    hookmill(*offered.partition("#")[0].split()[-3:])

    assert offered.endswith("# orders")
    assert before["secret_is_current"] is False
    assert hookmill("webhook", "show", "orders", "--json").json["secret_is_current"] is True


def test_replacing_a_value_as_json_names_the_webhooks_that_are_not_synced(shared: Any, hookmill: Hookmill):
    replaced = hookmill("secret", "replace", "SHARED", "--json").json

    assert replaced["not_synced"] == ["orders"]
    assert len(replaced["value"]) >= 43


def test_replacing_a_value_warns_of_other_factories(shared: Any, hookmill: Hookmill):
    hookmill("factory", "create", "payments")

    printed = hookmill("secret", "replace", "SHARED", "--factory", "payments").out

    assert "Webhooks of other factories use it too" in printed


def test_a_secret_in_use_is_not_deleted_and_nobody_is_asked(shared: Any, hookmill: Hookmill):
    printed = hookmill("secret", "delete", "SHARED", exit_code=1)

    assert printed.err == "Team secret SHARED is used by 'orders'. Delete this webhook first.\n"


def test_a_secret_that_several_webhooks_use_names_them_all(shared: Any, hookmill: Hookmill):
    hookmill("webhook", "create", "returns", "--secret-name", "SHARED")

    printed = hookmill("secret", "delete", "SHARED", exit_code=1)

    assert printed.err == "Team secret SHARED is used by 'orders', 'returns'. Delete these webhooks first.\n"


def test_where_files_define_the_factory_a_secret_is_for_a_file(shared: Any, hookmill: Hookmill):
    hookmill("export", "ops")
    hookmill("apply", "ops", exit_code=2)

    printed = hookmill("secret", "create", "STRIPE").out

    assert printed.endswith("To use it, write in a webhook's file: secretName: STRIPE\n")
    assert "webhook create" not in printed


def test_deletion_asks_and_takes_no_for_an_answer(log: LogWriter, hookmill: Hookmill):
    hookmill("secret", "create", "STRIPE")

    printed = hookmill("secret", "delete", "STRIPE", stdin=b"n\n", exit_code=1)

    assert "Delete team secret STRIPE?" in printed.err
    assert [one["name"] for one in hookmill("secret", "list", "--json").json["secrets"]] == ["STRIPE"]


def test_a_deleted_secret_is_gone(log: LogWriter, hookmill: Hookmill):
    hookmill("secret", "create", "STRIPE")

    refused = hookmill("secret", "delete", "STRIPE", "--json", exit_code=2)
    deleted = hookmill("secret", "delete", "STRIPE", "--json", "--yes").json

    assert "--yes" in refused.err
    assert deleted["deleted"] is True
    assert "There is no team secret 'STRIPE'" in hookmill("secret", "show", "STRIPE", exit_code=1).err


def test_a_name_that_is_taken_is_refused(shared: Any, hookmill: Hookmill):
    assert "team secret named SHARED already exists" in hookmill("secret", "create", "SHARED", exit_code=1).err
