"""`hookmill webhook`."""

import re
import shlex

import pytest


def test_create_in_json_uses_the_names_of_the_contract(webhook):
    fields = {
        key: webhook[key] for key in ("name", "auth_mode", "secret_name", "signature_scheme", "delivery_id_header")
    }

    assert fields == {
        "name": "source",
        "auth_mode": "token",
        "secret_name": "WEBHOOK_SOURCE_SECRET",
        "signature_scheme": None,
        "delivery_id_header": None,
    }
    assert webhook["enabled"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", webhook["created_at"])


def test_url_token_is_printed_once_and_then_a_placeholder(log, hookmill):
    created = hookmill("webhook", "create", "orders", "--mode", "url_token", "--json").json
    shown = hookmill("webhook", "show", "orders", "--json").json

    assert created["url"].endswith(f"/webhooks/w/{created['uid']}/{created['secret']}")
    assert shown["url"].endswith(f"/webhooks/w/{created['uid']}/{{token}}")


def test_create_prints_a_curl_command_with_the_secret(log, hookmill):
    output = hookmill("webhook", "create", "orders").out

    (curl,) = [line for line in output.splitlines() if line.startswith("curl ")]
    (secret,) = [line.split()[1] for line in output.splitlines() if line.startswith("Secret")]
    assert f"Authorization: Bearer {secret}" in shlex.split(curl)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("mode", ["token", "url_token"])
def test_chosen_secret_is_never_printed(log, hookmill, mode, as_json):
    options = ("--secret-from-stdin", *as_json)

    created = hookmill("webhook", "create", "orders", "--mode", mode, *options, stdin=b"chosen-secret\n").out
    rotated = hookmill("webhook", "rotate", "orders", *options, stdin=b"another-chosen-secret\n").out

    assert "chosen-secret" not in created
    assert "another-chosen-secret" not in rotated


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("mode", ["token", "url_token"])
def test_value_of_an_existing_team_secret_is_never_printed(webhook, hookmill, mode, as_json):
    options = ("--secret-name", "WEBHOOK_SOURCE_SECRET", "--mode", mode)

    output = hookmill("webhook", "create", "other", *options, *as_json).out

    assert webhook["secret"] not in output
    assert "WEBHOOK_SOURCE_SECRET" in output


@pytest.mark.parametrize(
    ("mode", "instruction"),
    [
        ("token", "Senders send the secret in a header of each delivery: Authorization: Bearer SECRET.\n"),
        ("url_token", "Senders post to the URL with the secret in place of {token}.\n"),
    ],
)
def test_create_with_an_existing_secret_says_where_senders_put_it(webhook, hookmill, mode, instruction):
    output = hookmill("webhook", "create", "other", "--mode", mode, "--secret-name", "WEBHOOK_SOURCE_SECRET").out

    assert "Secret  the value of team secret WEBHOOK_SOURCE_SECRET (not shown)\n" in output
    assert instruction in output
    assert "curl" not in output


def test_sync_adopts_the_newest_value_of_the_team_secret(webhook, hookmill):
    hookmill("secret", "replace", "WEBHOOK_SOURCE_SECRET")
    before = hookmill("webhook", "show", "source").out

    first = hookmill("webhook", "sync", "source").out
    second = hookmill("webhook", "sync", "source").out

    assert "with an older value of its secret" in before
    assert "webhook sync source)" in before
    assert first == "Webhook source now uses only the newest value of team secret WEBHOOK_SOURCE_SECRET.\n"
    assert second == "Webhook source already uses the newest value of team secret WEBHOOK_SOURCE_SECRET.\n"


def test_enable_syncs_the_secret(webhook, hookmill):
    hookmill("webhook", "disable", "source")
    hookmill("secret", "replace", "WEBHOOK_SOURCE_SECRET")

    output = hookmill("webhook", "enable", "source").out

    assert output.endswith("is enabled. Deliveries with the newest value of WEBHOOK_SOURCE_SECRET are accepted.\n")
    assert hookmill("webhook", "show", "source", "--json").json["secret_is_current"] is True
    actions = [entry["action"] for entry in hookmill("audit", "list", "--json").json["items"]]
    assert actions[:2] == ["webhook.enable", "webhook.sync"]


@pytest.mark.parametrize(("name", "argument"), [("ci", "ci"), ("our ci", "wh_"), ("wh_ci", "wh_")])
def test_hint_names_the_webhook_and_the_factory(log, hookmill, name, argument):
    hookmill("factory", "create", "pay")

    created = hookmill("webhook", "create", name, "--factory", "pay", "--secret-from-stdin", stdin=b"x" * 40).out

    assert re.search(f"hookmill send {argument}[A-Za-z0-9_-]* --factory pay\n", created)


def test_rotate_names_the_other_webhooks_with_the_same_secret(webhook, hookmill):
    hookmill("webhook", "create", "other", "--secret-name", "WEBHOOK_SOURCE_SECRET")

    output = hookmill("webhook", "rotate", "source").out

    assert "Other webhooks use team secret WEBHOOK_SOURCE_SECRET too.\n" in output
    assert output.endswith("  # other\n")


@pytest.mark.parametrize(
    ("option", "given", "field", "stored", "line"),
    [
        ("--name", ["returns"], "name", "returns", "Name  returns"),
        ("--secret-name", ["OTHER"], "secret_name", "OTHER", "Secret name  OTHER"),
        ("--delivery-id-header", ["X-Id"], "delivery_id_header", "X-Id", "Delivery id header  X-Id"),
        ("--event-header", ["X-Kind"], "event_header", "X-Kind", "Event type header  X-Kind"),
        (
            "--allowed-network",
            ["::1/128", "10.0.0.1"],
            "allowed_networks",
            ["10.0.0.1", "::1"],
            "networks  10.0.0.1, ::1",
        ),
        ("--expect-every", ["90m"], "expect_every", "1h30m", "Expect a delivery every  1h30m"),
    ],
)
def test_field_is_set_shown_and_reset(log, hookmill, option, given, field, stored, line):
    hookmill("secret", "create", "OTHER")
    default = hookmill("webhook", "create", "orders", "--json").json
    options = [text for value in given for text in (option, value)]
    changed = hookmill("webhook", "change", default["uid"], *options).out
    shown = hookmill("webhook", "show", default["uid"], "--json").json
    reset = [] if field in ("name", "secret_name") else ["--reset", field]

    assert changed.endswith(f"{line}\n")
    assert shown[field] == stored
    if reset:
        assert hookmill("webhook", "change", default["uid"], *reset, "--json").json[field] == default[field]


def test_authentication_is_changed_with_the_fields_that_need_it(log, hookmill):
    hookmill("webhook", "create", "orders", "--mode", "signature", "--scheme", "standard_webhooks")

    refused = hookmill("webhook", "change", "orders", "--mode", "token", exit_code=1)
    changed = hookmill("webhook", "change", "orders", "--mode", "token", "--reset", "signature_scheme", "--json").json
    hookmill("webhook", "change", "orders", "--scheme", "slack", "--reset", "signature_scheme", exit_code=2)

    assert "can only be used with auth mode signature" in refused.err
    assert (changed["auth_mode"], changed["signature_scheme"]) == ("token", None)


def test_unclear_network_is_refused_and_changes_nothing(webhook, hookmill):
    refused = hookmill("webhook", "change", "source", "--allowed-network", "10.1.2.3/8", exit_code=1)
    hookmill("webhook", "change", "source", exit_code=2)
    hookmill(
        "webhook", "change", "source", "--reset", "allowed_networks", "--allowed-network", "10.0.0.0/8", exit_code=2
    )

    assert "Write 10.0.0.0/8 for the whole network, or 10.1.2.3 for this address alone." in refused.err
    assert hookmill("webhook", "show", "source", "--json").json["allowed_networks"] == []


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ({"BASE_URL": "https://hooks.example.com"}, True),
        ({"BASE_URL": "http://hooks.example.com"}, True),
        ({"BASE_URL": "http://hooks.example.com:8420"}, False),
        ({"BASE_URL": "https://hooks.example.com", "TRUSTED_PROXIES": "127.0.0.1"}, False),
        ({}, False),
    ],
)
def test_networks_behind_an_unknown_proxy_cause_a_warning(webhook, hookmill, monkeypatch, settings, warns):
    for name, value in settings.items():
        monkeypatch.setenv(f"HOOKMILL_{name}", value)

    without = hookmill("webhook", "show", "source").err
    changed = hookmill("webhook", "change", "source", "--allowed-network", "192.0.2.7").err
    shown = hookmill("webhook", "show", "source", "--json").err

    assert without == ""
    assert ("Set trusted_proxies to the network of the proxy" in changed) is warns
    assert changed == shown


def test_webhook_is_disabled_and_enabled_again(webhook, hookmill):
    disabled = hookmill("webhook", "disable", "source", "--json").json
    enabled = hookmill("webhook", "enable", webhook["uid"], "--json").json

    assert (disabled["enabled"], disabled["state"]) == (False, "disabled")
    assert (enabled["enabled"], enabled["state"]) == (True, "enabled")


def test_list_shows_each_webhook_in_one_line(webhook, hookmill):
    hookmill("webhook", "disable", "source")

    header, row = hookmill("webhook", "list").out.splitlines()

    assert header.split() == ["NAME", "UID", "MODE", "STATE"]
    assert row.split() == ["source", webhook["uid"], "token", "disabled"]


def test_every_label_begins_with_a_capital_letter(webhook, automation, hookmill):
    shown = (
        hookmill("webhook", "show", "source").out + hookmill("automation", "show", "triage").out.partition("\n\n")[0]
    )
    created = hookmill("webhook", "create", "orders").out.split("\n\n")[1] + "\n"
    created += hookmill("key", "create", "ci", "--role", "viewer").out.split("\n\n")[1]

    labels = [line.split("  ")[0] for line in f"{shown}\n{created}".splitlines() if not line.startswith("  ")]

    assert {"UID", "ID"} < set(labels)
    assert [label for label in labels if not label[:1].isupper()] == []


def test_deleted_webhook_waits_for_no_secret(log, hookmill):
    hookmill("webhook", "create", "pulls", "--mode", "signature", "--scheme", "github")
    hookmill("webhook", "delete", "pulls", "--yes")

    output = hookmill("webhook", "list", "--deleted").out

    assert "deleted" in output
    assert "waiting for" not in output


def test_show_names_the_automations_that_select_the_webhook(automation, hookmill):
    hookmill("automation", "disable", "triage")

    assert "Automations  triage (disabled)\n" in hookmill("webhook", "show", "source").out
    assert hookmill("webhook", "show", "source", "--json").json["automations"] == ["triage"]


def test_control_characters_in_a_refused_name_are_not_printed(log, hookmill):
    result = hookmill("webhook", "create", "a\x1b]0;owned\x07", exit_code=1)

    assert "\x1b" not in result.err
    assert "control character" in result.err
