"""Calls each command that has `--json`. `parse_json` then requires that the names in its output are in snake_case."""

from typing import Any

import typer.main

from hookmill.cli import app
from hookmill.domain.run import RunState
from tests.cli.test_docs import commands
from tests.definitions.conftest import write

ENDLESS_COMMANDS = {"serve", "worker"}
"""`test_service.py` checks their output."""
COMMANDS_WITH_A_SERVER = {"login", "context remove"}
"""`test_remote.py` checks their output."""
SIGNATURE_OPTIONS = (
    '{"header": "X-Signature", "timestamp_header": "X-Time", "content": "{ts}.{body}", "tolerance_seconds": 300}'
)


def test_names_in_the_json_of_every_command_are_in_snake_case(
    webhook, automation, log, hookmill, receiver, tmp_path, postgres_url, monkeypatch
):
    delivery = log.add_delivery(webhook["uid"], body=b'{"action": "opened"}')
    failed_run = log.add_run(delivery, automation["automation_id"], RunState.FAILED, attempt=1, output_tail="ended\n")
    queued_run = log.add_run(log.add_delivery(webhook["uid"]), automation["automation_id"])
    log.add_dropped_attempts(webhook["uid"], "rate_limited", {0: 3, 1: 4})
    receiver.status, receiver.answer = 202, b'{"delivery_id": "dlv_1"}'
    signed = ("--mode", "signature", "--scheme", "hmac", "--signature", SIGNATURE_OPTIONS, "--secret-from-stdin")
    write(tmp_path / "files", {"webhooks/source.yaml": "secretName: SPARE\ndeliveryIdHeader: X-Id\n"})
    write(tmp_path / "wrong", {"webhooks/source.yaml": "secret_name: SPARE\n"})
    called: set[str] = set()

    def call(command: str, *arguments: str, exit_code: int = 0, stdin: bytes = b"") -> Any:
        called.add(command)
        return hookmill(*command.split(), *arguments, "--json", exit_code=exit_code, stdin=stdin).json

    call("migrate")
    # A run waits, and there is no worker.
    call("doctor", exit_code=1)
    call("factory create", "shop")
    call("factory list")
    call("factory change", "shop", "--max-running", "2")
    call("webhook create", "signed", *signed, "--delivery-id-header", "X-Id", stdin=b"chosen-secret")
    call("webhook list", "--deleted")
    call("webhook show", "signed")
    call("webhook change", "signed", "--name", "renamed", "--reset", "allowed_networks", "--expect-every", "1h")
    call("webhook disable", "renamed")
    call("webhook enable", "renamed")
    call("webhook rotate", "source")
    call("webhook sync", "source")
    call("automation create", "filtered", "--prompt", "Look.", "--webhook", "source", "--filter", '{"aB": [1]}')
    call("automation list")
    call("automation show", "filtered")
    call("automation change", "filtered", "--prompt", "Look twice.")
    call("automation change", "filtered", "--schedule", "nightly=@daily")
    call("automation run", "filtered")
    call("automation disable", "filtered")
    call("automation enable", "filtered")
    call("delivery list")
    call("delivery show", delivery)
    call("delivery replay", delivery)
    call("run list")
    call("run queue")
    call("run show", failed_run)
    call("run log", failed_run)
    call("run cancel", queued_run)
    call("run cancel", "--all", "--yes")
    call("filter test", "--delivery", delivery, "--filter", '{"action": ["opened"]}')
    call("filter backtest", "--filter", '{"action": ["closed"]}')
    call("scheme list")
    call("scheme show", "github")
    call("scheme show", "hmac")
    call("send", "source", "--url", receiver.url)
    call("send", "source", "--url", receiver.url, "--times", "2")
    call("secret create", "GONE")
    call("secret delete", "GONE", "--yes")
    call("secret create", "SPARE")
    call("secret replace", "SPARE")
    call("secret list")
    call("secret show", "SPARE")
    call("member add", "ada@example.com", "--name", "Ada")
    call("member role", "ada@example.com", "viewer")
    call("member admin", "ada@example.com", "off")
    call("member link", "ada@example.com")
    call("member list")
    call("member remove", "ada@example.com", "--yes")
    call("key create", "ci", "--role", "viewer", "--expires-in-days", "9")
    call("key list")
    call("key revoke", "ci", "--yes")
    monkeypatch.setenv("HOOKMILL_ALARM_PRIVATE_ADDRESSES", "true")
    destination = call("alarm destination add", "webhook", "--url-from-stdin", stdin=receiver.url.encode())[
        "destination_id"
    ]
    call("alarm destination list")
    call("alarm destination test", destination)
    call("alarm destination remove", destination, "--yes")
    call("context list")
    call("context use", "local")
    call("keys show")
    call("keys add")
    call("keys rotate")
    call("export", str(tmp_path / "exported"))
    call("validate", str(tmp_path / "files"))
    call("validate", str(tmp_path / "wrong"), exit_code=1)
    call("automation delete", "filtered")
    call("plan", str(tmp_path / "files"), "--allow-deletions", exit_code=2)
    call("webhook delete", "renamed", "--yes")
    call("apply", str(tmp_path / "files"), "--allow-deletions")
    alarm = log.add_alarm("default", webhook["uid"])
    call("alarm list")
    call("alarm show", alarm)
    call("alarm snooze", alarm, "--hours", "1")
    call("alarm wake", alarm)
    call("audit list", "--limit", "1000", "--team")
    call("backup", str(tmp_path / "backup"), "--with-run-packages")
    call("restore", str(tmp_path / "backup"), "--check")
    log.execute("DELETE FROM identities")
    call("verify", exit_code=1)
    call("move", "--to", "-", stdin=postgres_url.encode())
    call("move", "--undo", "--yes")

    all_commands = dict(commands(typer.main.get_command(app), ()))
    assert called | ENDLESS_COMMANDS | COMMANDS_WITH_A_SERVER == {
        name
        for name, command in all_commands.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    for group in ("delivery", "run"):
        assert hookmill(group, "export").json_lines != []
