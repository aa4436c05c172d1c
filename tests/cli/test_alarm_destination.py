"""`hookmill alarm destination`."""

import pytest

URL = b"https://hooks.example.com/secret-path"


@pytest.fixture
def webhook_destination(log, hookmill):
    """The JSON that the creation of a webhook for alarms printed."""
    return hookmill("alarm", "destination", "add", "webhook", "--url-from-stdin", "--json", stdin=URL).json


def test_add_prints_the_signing_secret_once_and_never_the_url(log, hookmill):
    output = hookmill("alarm", "destination", "add", "webhook", "--url-from-stdin", stdin=URL).out
    (secret,) = [line.split()[1] for line in output.splitlines() if line.startswith("Secret")]
    (test_command,) = [line for line in output.splitlines() if line.startswith("To send a test: ")]

    listed = hookmill("alarm", "destination", "list").out + hookmill("alarm", "destination", "list", "--json").out

    assert output.startswith("Alarms are now sent to https://hooks.example.com/… (all kinds).\n")
    assert " alarm destination test ald_" in test_command
    assert secret.startswith("whsec_")
    assert secret not in listed
    assert "secret-path" not in output + listed


def test_list_in_json_has_every_field_but_the_secret(webhook_destination, hookmill):
    (row,) = hookmill("alarm", "destination", "list", "--json").json["items"]

    assert row == {name: value for name, value in webhook_destination.items() if name != "signing_secret"}
    assert row == {
        "destination_id": row["destination_id"],
        "kind": "webhook",
        "target": "https://hooks.example.com/…",
        "factory": "default",
        "alarm_kinds": [],
        "includes_factories": False,
        "created_at": row["created_at"],
        "last_sent_at": None,
        "waiting": 0,
        "failed": 0,
        "last_problem": None,
    }


def test_destination_of_the_installation_is_apart_from_those_of_factories(log, hookmill):
    kinds = ("--alarm", "disk_low", "--alarm", "clock_wrong", "--include-factories")
    added = hookmill(
        "alarm", "destination", "add", "slack", "--url-from-stdin", "--installation", *kinds, "--json", stdin=URL
    ).json

    output = hookmill("alarm", "destination", "list", "--installation").out

    assert (added["factory"], added["alarm_kinds"], added["signing_secret"]) == (
        None,
        ["disk_low", "clock_wrong"],
        None,
    )
    assert added["destination_id"] in output
    assert "There are no alarm destinations here yet. Add one: " in hookmill("alarm", "destination", "list").out


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (("email", "--to", "ops@example.com"), b"", "Set smtp_host and smtp_sender"),
        (("slack",), b"", "A slack destination needs a URL"),
        (("slack", "--url-from-stdin"), b"http://hooks.example.com/secret-path", "must begin with https://"),
        (("slack", "--url-from-stdin"), b"https://192.168.0.1/secret-path", "is not a public address"),
        (("slack", "--url-from-stdin", "--include-factories"), URL, "Only a destination of the installation"),
    ],
)
def test_unusable_destination_is_refused(log, hookmill, arguments, stdin, problem):
    result = hookmill("alarm", "destination", "add", *arguments, stdin=stdin, exit_code=1)

    assert problem in result.err
    assert "secret-path" not in result.err


def test_email_destination_needs_a_mail_server_in_the_settings(log, hookmill, monkeypatch):
    monkeypatch.setenv("HOOKMILL_SMTP_HOST", "mail.example.com")
    refused = hookmill("alarm", "destination", "list", exit_code=2)
    monkeypatch.setenv("HOOKMILL_SMTP_SENDER", "hookmill@example.com")

    output = hookmill("alarm", "destination", "add", "email", "--to", "ops@example.com").out

    assert "smtp_sender: set smtp_host and smtp_sender together" in refused.err
    assert output.startswith("Alarms are now sent to ops@example.com (all kinds).\n")
    assert "Secret" not in output


def test_add_says_that_alarms_are_open_already(log, hookmill):
    add = ("alarm", "destination", "add", "slack", "--url-from-stdin", "--installation")
    without_alarms = hookmill(*add, stdin=URL).out
    log.add_alarm(None, "disk@here")

    output = hookmill(*add, stdin=URL).out

    assert "were raised before" not in without_alarms
    last_line = output.splitlines()[-1]
    assert last_line.startswith("Alarms that were raised before are not sent. To list those that are open: ")
    assert last_line.endswith(" alarm list --open --installation")


def test_test_says_whether_the_destination_accepted_it(log, hookmill, receiver, monkeypatch):
    monkeypatch.setenv("HOOKMILL_ALARM_PRIVATE_ADDRESSES", "true")
    added = hookmill("alarm", "destination", "add", "slack", "--url-from-stdin", stdin=receiver.url.encode()).out
    (destination,) = [line.split()[1] for line in added.splitlines() if line.startswith("ID")]
    receiver.status = 200
    accepted = hookmill("alarm", "destination", "test", destination)
    receiver.status = 500
    refused = hookmill("alarm", "destination", "test", destination, "--json", exit_code=1)
    monkeypatch.setenv("HOOKMILL_ALARM_PRIVATE_ADDRESSES", "false")
    unreachable = hookmill("alarm", "destination", "test", destination, exit_code=1)

    assert accepted.out == f"{receiver.url} accepted the test.\n"
    assert refused.json == {
        "destination_id": destination,
        "sent": False,
        "problem": f"{receiver.url} answered with the status 500.",
    }
    assert "has no public address, so nothing was sent." in unreachable.out


def test_destination_is_removed_after_a_confirmation(webhook_destination, hookmill):
    identifier = webhook_destination["destination_id"]
    kept = hookmill("alarm", "destination", "remove", identifier, stdin=b"n\n", exit_code=1)
    removed = hookmill("alarm", "destination", "remove", identifier, "--yes", "--json").json

    assert f"Remove alarm destination https://hooks.example.com/… ({identifier})?" in kept.err
    assert removed["deleted"] is True
    assert "There is no alarm destination" in hookmill("alarm", "destination", "test", identifier, exit_code=1).err
