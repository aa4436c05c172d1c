"""`hookmill webhook`."""

import re
import shlex
from typing import Any

import pytest

from tests.cli.conftest import Hookmill, LogWriter

HOSTILE = "a[red]b[/red]\u00a0c"


def test_creation_prints_the_uid_the_complete_url_and_the_secret(log: LogWriter, hookmill: Hookmill):
    made = hookmill("webhook", "create", "orders", "--json").json

    assert made["url"] == f"http://127.0.0.1:8420/webhooks/w/{made['uid']}"
    assert re.fullmatch(r"wh_[0-9a-z]{27}", made["uid"])
    assert len(made["secret"]) >= 43


def test_a_webhook_is_printed_under_the_contracts_names(webhook: Any):
    described = {
        key: webhook[key] for key in ("name", "auth_mode", "secret_name", "signature_scheme", "delivery_id_header")
    }

    assert described == {
        "name": "source",
        "auth_mode": "token",
        "secret_name": "WEBHOOK_SOURCE_SECRET",
        "signature_scheme": None,
        "delivery_id_header": None,
    }
    assert webhook["enabled"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", webhook["created_at"])


def test_a_url_token_is_printed_once_and_then_a_placeholder(log: LogWriter, hookmill: Hookmill):
    made = hookmill("webhook", "create", "orders", "--mode", "url_token", "--json").json
    shown = hookmill("webhook", "show", "orders", "--json").json

    assert made["url"].endswith(f"/webhooks/w/{made['uid']}/{made['secret']}")
    assert shown["url"].endswith(f"/webhooks/w/{made['uid']}/{{token}}")


def test_a_secret_is_never_printed_again(webhook: Any, hookmill: Hookmill):
    for command in (
        ["list"],
        ["list", "--json"],
        ["show", "source"],
        ["show", "source", "--json"],
        ["disable", "source"],
    ):
        assert webhook["secret"] not in hookmill("webhook", *command).out


def test_creation_offers_a_curl_line_with_the_secret(log: LogWriter, hookmill: Hookmill):
    printed = hookmill("webhook", "create", "orders").out

    (curl,) = [line for line in printed.splitlines() if line.startswith("curl ")]
    (secret,) = [line.split()[1] for line in printed.splitlines() if line.startswith("Secret")]
    assert f"Authorization: Bearer {secret}" in shlex.split(curl)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("mode", ["token", "url_token"])
def test_a_secret_that_was_given_is_not_repeated(log: LogWriter, hookmill: Hookmill, mode: str, as_json: list[str]):
    options = ("--secret-from-stdin", *as_json)

    created = hookmill("webhook", "create", "orders", "--mode", mode, *options, stdin=b"chosen-by-us\n").out
    rotated = hookmill("webhook", "rotate", "orders", *options, stdin=b"another-of-ours\n").out

    assert "chosen-by-us" not in created
    assert "another-of-ours" not in rotated


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("mode", ["token", "url_token"])
def test_a_team_secret_that_was_there_is_never_displayed(
    webhook: Any, hookmill: Hookmill, mode: str, as_json: list[str]
):
    named = ("--secret-name", "WEBHOOK_SOURCE_SECRET", "--mode", mode)

    made = hookmill("webhook", "create", "other", *named, *as_json).out

    assert webhook["secret"] not in made
    assert "WEBHOOK_SOURCE_SECRET" in made


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("token", "Senders send the secret in a header of each delivery: Authorization: Bearer SECRET.\n"),
        ("url_token", "Senders post to the URL with the secret in place of {token}.\n"),
    ],
)
def test_with_a_known_secret_it_says_where_senders_put_that(webhook: Any, hookmill: Hookmill, mode: str, said: str):
    made = hookmill("webhook", "create", "other", "--mode", mode, "--secret-name", "WEBHOOK_SOURCE_SECRET").out

    assert "Secret  the value of team secret WEBHOOK_SOURCE_SECRET (not shown)\n" in made
    assert said in made
    assert "curl" not in made


def test_one_can_be_created_disabled_with_the_line_that_enables_it(log: LogWriter, hookmill: Hookmill):
    made = hookmill("webhook", "create", "orders", "--disabled").out

    (offered,) = [line.split() for line in made.splitlines() if "webhook enable" in line]
    assert made.startswith("Webhook orders is created, but disabled: senders get 404.\n")
    assert hookmill(*offered[-3:], "--json").json["enabled"] is True


def test_a_new_name_changes_nothing_else(webhook: Any, hookmill: Hookmill):
    renamed = hookmill("webhook", "rename", "source", "orders", "--json").json

    assert renamed == {**{name: value for name, value in webhook.items() if name != "secret"}, "name": "orders"}


def test_renaming_prints_the_new_name_and_the_old_one(webhook: Any, hookmill: Hookmill):
    printed = hookmill("webhook", "rename", "source", "orders").out

    assert printed == f"Webhook source ({webhook['uid']}) is now named orders. Its URL is unchanged.\n"


def test_sync_takes_the_newest_value_of_the_team_secret(webhook: Any, hookmill: Hookmill):
    hookmill("secret", "replace", "WEBHOOK_SOURCE_SECRET")
    shown = hookmill("webhook", "show", "source").out

    first = hookmill("webhook", "sync", "source").out
    second = hookmill("webhook", "sync", "source").out

    assert "with an older value of its secret" in shown
    assert f"webhook sync {webhook['uid']})" in shown
    assert first == "Webhook source now uses only the newest value of team secret WEBHOOK_SOURCE_SECRET.\n"
    assert second == "Webhook source already uses the newest value of team secret WEBHOOK_SOURCE_SECRET.\n"


def test_rotation_names_the_other_webhooks_with_the_same_secret(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "create", "other", "--secret-name", "WEBHOOK_SOURCE_SECRET")

    printed = hookmill("webhook", "rotate", "source").out

    assert "Other webhooks use team secret WEBHOOK_SOURCE_SECRET too.\n" in printed
    assert printed.endswith("  # other\n")


def test_the_header_with_the_senders_event_id_is_kept(log: LogWriter, hookmill: Hookmill):
    made = hookmill("webhook", "create", "orders", "--delivery-id-header", "X-Event", "--json").json

    assert made["delivery_id_header"] == "X-Event"


def test_the_header_with_the_event_type_is_kept_and_shown(log: LogWriter, hookmill: Hookmill):
    made = hookmill("webhook", "create", "orders", "--event-header", "X-Kind", "--json").json

    assert made["event_header"] == "X-Kind"
    assert "Event type in  X-Kind\n" in hookmill("webhook", "show", "orders").out


def test_rotation_prints_a_new_secret_and_keeps_the_uid(webhook: Any, hookmill: Hookmill):
    rotated = hookmill("webhook", "rotate", "source", "--json").json

    assert rotated["uid"] == webhook["uid"]
    assert rotated["secret"] != webhook["secret"]


def test_disabled_and_enabled_again(webhook: Any, hookmill: Hookmill):
    disabled = hookmill("webhook", "disable", "source", "--json").json
    enabled = hookmill("webhook", "enable", webhook["uid"], "--json").json

    assert (disabled["enabled"], disabled["state"]) == (False, "disabled")
    assert (enabled["enabled"], enabled["state"]) == (True, "enabled")


def test_the_list_shows_each_webhook_on_a_line(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "disable", "source")

    header, row = hookmill("webhook", "list").out.splitlines()

    assert header.split() == ["NAME", "UID", "MODE", "STATE"]
    assert row.split() == ["source", webhook["uid"], "token", "disabled"]


def test_every_label_begins_with_a_capital(webhook: Any, automation: Any, hookmill: Hookmill):
    shown = (
        hookmill("webhook", "show", "source").out + hookmill("automation", "show", "triage").out.partition("\n\n")[0]
    )
    made = hookmill("webhook", "create", "orders").out.split("\n\n")[1] + "\n"
    made += hookmill("key", "create", "ci", "--role", "viewer").out.split("\n\n")[1]

    labels = [line.split("  ")[0] for line in f"{shown}\n{made}".splitlines() if not line.startswith("  ")]

    assert {"UID", "ID"} < set(labels)
    assert [label for label in labels if not label[:1].isupper()] == []


def test_an_empty_list_says_how_to_create_one(log: LogWriter, hookmill: Hookmill):
    assert "webhook create NAME" in hookmill("webhook", "list").out


def test_deletion_without_an_answer_deletes_nothing(webhook: Any, hookmill: Hookmill):
    printed = hookmill("webhook", "delete", "source", exit_code=1)

    assert "Nothing was changed" in printed.err
    assert hookmill("webhook", "show", "source", "--json").json["state"] == "enabled"


def test_deletion_asks_and_takes_no_for_an_answer(webhook: Any, hookmill: Hookmill):
    printed = hookmill("webhook", "delete", "source", stdin=b"n\n", exit_code=1)

    assert f"Delete webhook source ({webhook['uid']})?" in printed.err
    assert hookmill("webhook", "show", "source", "--json").json["state"] == "enabled"


def test_deletion_that_was_agreed_to(webhook: Any, hookmill: Hookmill):
    hookmill("webhook", "delete", "source", stdin=b"y\n")

    assert hookmill("webhook", "list", "--json").json == {"webhooks": []}
    (deleted,) = hookmill("webhook", "list", "--deleted", "--json").json["webhooks"]
    assert (deleted["uid"], deleted["state"]) == (webhook["uid"], "deleted")


def test_deletion_with_json_must_be_agreed_to_beforehand(webhook: Any, hookmill: Hookmill):
    refused = hookmill("webhook", "delete", "source", "--json", exit_code=2)
    deleted = hookmill("webhook", "delete", "source", "--json", "--yes").json

    assert "--yes" in refused.err
    assert deleted["state"] == "deleted"


def test_show_names_the_automations_that_select_it(automation: Any, hookmill: Hookmill):
    hookmill("automation", "disable", "triage")

    assert "Automations  triage (disabled)\n" in hookmill("webhook", "show", "source").out
    assert hookmill("webhook", "show", "source", "--json").json["automations"] == ["triage"]


@pytest.mark.parametrize("command", [["list"], ["show", HOSTILE], ["disable", HOSTILE]])
def test_a_name_is_printed_as_text_whatever_it_holds(log: LogWriter, hookmill: Hookmill, command: list[str]):
    hookmill("webhook", "create", HOSTILE)

    assert "a[red]b[/red]\\u00a0c" in hookmill("webhook", *command).out


def test_a_control_character_in_a_name_is_never_printed_raw(log: LogWriter, hookmill: Hookmill):
    printed = hookmill("webhook", "create", "a\x1b]0;owned\x07", exit_code=1)

    assert "\x1b" not in printed.err
    assert "control character" in printed.err


def test_a_second_webhook_of_the_same_name_is_refused(webhook: Any, hookmill: Hookmill):
    printed = hookmill("webhook", "create", "source", exit_code=1)

    assert printed.out == ""
    assert "already has a webhook named 'source'" in printed.err


def test_an_unknown_webhook_is_named_in_the_error(log: LogWriter, hookmill: Hookmill):
    assert "no webhook 'nope'" in hookmill("webhook", "show", "nope", exit_code=1).err


def test_an_unknown_factory_is_named_with_those_that_exist(log: LogWriter, hookmill: Hookmill):
    assert (
        "No factory is named 'nope'. The factories are: default."
        in hookmill("webhook", "list", "--factory", "nope", exit_code=1).err
    )
