"""`hookmill audit`."""

import getpass


def test_list_shows_actor_action_and_channel_newest_first(webhook, hookmill):
    hookmill("webhook", "change", "source", "--name", "orders")

    header, *rows = hookmill("audit", "list").out.splitlines()

    assert header.split("  ")[0] == "WHEN (UTC)"
    assert [row.split("  ", 1)[1].split() for row in rows[:2]] == [
        [
            "operator",
            getpass.getuser(),
            "cli",
            "webhook.change",
            "orders",
            "name",
            "orders,",
            "before",
            '{"name":',
            '"source"}',
        ],
        [
            *("operator", getpass.getuser(), "cli", "webhook.create", "source"),
            *("secret_name", "WEBHOOK_SOURCE_SECRET"),
        ],
    ]


def test_entry_in_json_names_actor_and_subject(webhook, hookmill):
    hookmill("webhook", "change", "source", "--name", "orders")

    entry = hookmill("audit", "list", "--limit", "1", "--json").json["items"][0]

    assert entry.pop("entry_id").startswith("aud_")
    assert entry.pop("at").endswith("Z")
    assert entry == {
        "action": "webhook.change",
        "actor": {"kind": "operator", "id": getpass.getuser(), "name": getpass.getuser()},
        "channel": "cli",
        "client": None,
        "factory": "default",
        "subject": {"kind": "webhook", "id": webhook["uid"], "name": "orders"},
        "details": {"name": "orders", "before": {"name": "source"}},
    }


def test_only_the_list_of_the_team_has_entries_without_a_factory(webhook, hookmill):
    hookmill("key", "create", "ci", "--role", "viewer", "--expires-in-days", "1")

    factory_entries = hookmill("audit", "list", "--json").json["items"]
    header, newest, *_ = hookmill("audit", "list", "--team").out.splitlines()

    assert "key.create" not in [entry["action"] for entry in factory_entries]
    assert "  FACTORY  " in header
    assert "key.create" in newest
    assert "role viewer, factory default, expires_at 20" in newest


def test_printed_options_list_the_next_page(webhook, hookmill):
    hookmill("webhook", "disable", "source")

    entry_ids = [entry["entry_id"] for entry in hookmill("audit", "list", "--json").json["items"]]
    lines = hookmill("audit", "list", "--limit", "2").out.splitlines()
    options = lines[-1].partition("audit list ")[2].split()
    next_page = hookmill("audit", "list", *options, "--json").json["items"]

    assert options == ["--limit", "2", "--before", entry_ids[1]]
    assert [entry["entry_id"] for entry in next_page] == entry_ids[2:]
