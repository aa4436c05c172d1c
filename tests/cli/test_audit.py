"""`hookmill audit`."""

import getpass
from typing import Any

from tests.cli.conftest import Hookmill, LogWriter


def test_the_list_has_actor_action_and_channel_newest_first(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "rename", "source", "orders")

    header, *rows = hookmill("audit", "list").out.splitlines()

    assert header.split("  ")[0] == "WHEN (UTC)"
    assert [row.split("  ", 1)[1].split() for row in rows[:2]] == [
        ["operator", getpass.getuser(), "cli", "webhook.rename", "orders", "before", "source"],
        [
            *("operator", getpass.getuser(), "cli", "webhook.create", "source"),
            *("auth_mode", "token,", "secret_name", "WEBHOOK_SOURCE_SECRET,", "enabled", "true"),
        ],
    ]


def test_an_act_as_json_names_actor_and_subject(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "rename", "source", "orders")

    act = hookmill("audit", "list", "--limit", "1", "--json").json["entries"][0]

    assert act.pop("entry_id").startswith("aud_")
    assert act.pop("at").endswith("Z")
    assert act == {
        "action": "webhook.rename",
        "actor": {"kind": "operator", "id": getpass.getuser(), "name": getpass.getuser()},
        "channel": "cli",
        "client": None,
        "factory": "default",
        "subject": {"kind": "webhook", "id": webhook["uid"], "name": "orders"},
        "details": {"before": "source"},
    }


def test_only_the_teams_list_has_what_belongs_to_no_factory(webhook: Any, hookmill: Hookmill):
    hookmill("key", "create", "ci", "--role", "viewer", "--expires-in-days", "1")

    of_factory = hookmill("audit", "list", "--json").json["entries"]
    header, newest, *_ = hookmill("audit", "list", "--team").out.splitlines()

    assert "key.create" not in [act["action"] for act in of_factory]
    assert "  FACTORY  " in header
    assert "key.create" in newest
    assert "role viewer, factory default, expires_at 20" in newest


def test_another_factorys_acts_are_not_in_the_list(webhook: Any, hookmill: Hookmill):
    hookmill("factory", "create", "payments")

    assert hookmill("audit", "list", "--factory", "payments").out == "The audit log has no entries yet.\n"


def test_pages_follow_on_each_other_by_the_line_that_is_offered(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "disable", "source")

    whole = [act["entry_id"] for act in hookmill("audit", "list", "--json").json["entries"]]
    first = hookmill("audit", "list", "--limit", "2").out.splitlines()
    offered = first[-1].partition("audit list ")[2].split()
    second = hookmill("audit", "list", *offered, "--json").json["entries"]

    assert offered == ["--limit", "2", "--before", whole[1]]
    assert [act["entry_id"] for act in second] == whole[2:]


def test_what_is_no_entry_is_refused(log: LogWriter, hookmill: Hookmill):
    assert "'dlv_1' is not an entry's id" in hookmill("audit", "list", "--before", "dlv_1", exit_code=1).err


def test_names_of_others_cannot_take_over_the_terminal(log: LogWriter, hookmill: Hookmill):
    hookmill("webhook", "create", "a[red]\u202eb")

    assert "a[red]\\u202eb" in hookmill("audit", "list").out
