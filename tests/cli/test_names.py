"""Every `--json` has its names in snake_case. The fixture `hookmill` checks that; here each command prints JSON."""

from pathlib import Path
from typing import Any

import typer.main

from hookmill.cli import app
from hookmill.domain.run import RunState
from tests.cli.conftest import Hookmill, LogWriter, Receiver
from tests.cli.test_docs import commands
from tests.definitions.conftest import write

ENDLESS = {"serve", "worker"}
"""What these print is looked at in `test_service.py`."""
HMAC = '{"header": "X-Signature", "timestamp_header": "X-Time", "content": "{ts}.{body}", "tolerance_seconds": 300}'


def test_every_command_prints_json_with_names_in_snake_case(
    webhook: Any,
    automation: Any,
    log: LogWriter,
    hookmill: Hookmill,
    receiver: Receiver,
    tmp_path: Path,
    postgres_url: str,
):
    delivery = log.add_delivery(webhook["uid"], body=b'{"action": "opened"}')
    run = log.add_run(delivery, automation["automation_id"], RunState.FAILED, attempt=1, output_tail="ended\n")
    queued = log.add_run(log.add_delivery(webhook["uid"]), automation["automation_id"])
    log.add_dropped_attempts(webhook["uid"], "rate_limited", [(0, 3), (1, 4)])
    receiver.status, receiver.answer = 202, b'{"delivery_id": "dlv_1"}'
    signed = ("--mode", "signature", "--scheme", "hmac", "--signature", HMAC, "--secret-from-stdin")
    write(tmp_path / "files", {"webhooks/source.yaml": "secretName: SPARE\ndeliveryIdHeader: X-Id\n"})
    write(tmp_path / "wrong", {"webhooks/source.yaml": "secret_name: SPARE\n"})
    printed: set[str] = set()

    def prints(command: str, *arguments: str, exit_code: int = 0, stdin: bytes = b"") -> Any:
        printed.add(command)
        return hookmill(*command.split(), *arguments, "--json", exit_code=exit_code, stdin=stdin).json

    prints("migrate")
    prints("factory create", "shop")
    prints("factory list")
    prints("factory change", "shop", "--max-running", "2")
    prints("webhook create", "signed", *signed, "--delivery-id-header", "X-Id", stdin=b"given-secret")
    prints("webhook list", "--deleted")
    prints("webhook show", "signed")
    prints("webhook rename", "signed", "renamed")
    prints("webhook disable", "renamed")
    prints("webhook enable", "renamed")
    prints("webhook rotate", "source")
    prints("webhook sync", "source")
    prints("automation create", "filtered", "--prompt", "Look.", "--webhook", "source", "--filter", '{"aB": [1]}')
    prints("automation list")
    prints("automation show", "filtered")
    prints("automation change", "filtered", "--prompt", "Look twice.")
    prints("automation change", "filtered", "--schedule", "nightly=@daily")
    prints("automation run", "filtered")
    prints("automation disable", "filtered")
    prints("automation enable", "filtered")
    prints("delivery list")
    prints("delivery show", delivery)
    prints("delivery replay", delivery)
    prints("run list")
    prints("run queue")
    prints("run show", run)
    prints("run log", run)
    prints("run cancel", queued)
    prints("run cancel", "--all", "--yes")
    prints("filter test", "--delivery", delivery, "--filter", '{"action": ["opened"]}')
    prints("filter backtest", "--filter", '{"action": ["closed"]}')
    prints("scheme list")
    prints("scheme show", "github")
    prints("scheme show", "hmac")
    prints("send", "source", "--url", receiver.url)
    prints("send", "source", "--url", receiver.url, "--times", "2")
    prints("secret create", "GONE")
    prints("secret delete", "GONE", "--yes")
    prints("secret create", "SPARE")
    prints("secret replace", "SPARE")
    prints("secret list")
    prints("secret show", "SPARE")
    prints("member add", "ada@example.com", "--name", "Ada")
    prints("member role", "ada@example.com", "viewer")
    prints("member admin", "ada@example.com", "off")
    prints("member link", "ada@example.com")
    prints("member list")
    prints("member remove", "ada@example.com", "--yes")
    prints("key create", "ci", "--role", "viewer", "--expires-in-days", "9")
    prints("key list")
    prints("key revoke", "ci", "--yes")
    prints("keys show")
    prints("keys add")
    prints("keys rotate")
    prints("export", str(tmp_path / "exported"))
    prints("validate", str(tmp_path / "files"))
    prints("validate", str(tmp_path / "wrong"), exit_code=1)
    prints("automation delete", "filtered")
    prints("plan", str(tmp_path / "files"), "--allow-deletions", exit_code=2)
    prints("webhook delete", "renamed", "--yes")
    prints("apply", str(tmp_path / "files"), "--allow-deletions", exit_code=2)
    prints("audit list", "--limit", "1000", "--team")
    prints("move", "--to", "-", stdin=postgres_url.encode())
    prints("move", "--undo", "--yes")

    known = dict(commands(typer.main.get_command(app), ()))
    assert printed | ENDLESS == {
        name for name, command in known.items() if any("--json" in parameter.opts for parameter in command.params)
    }
    for exported in ("delivery", "run"):
        assert hookmill(exported, "export").json_lines != []
