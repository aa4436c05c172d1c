"""Secrets leave no trace: not in any answer, not in logs, exports, the database, its WAL or a backup."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookmill import cli
from hookmill.domain.permission import Role
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import sign
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management
from hookmill.web.api import application, operations
from tests.faults.audit import wait_until_runs_have_ended
from tests.support.service import Service, operator, serving

GIVEN = "canary-given-secret-7f3a9c1e5b"
IN_URL = "canary-url-token-2d8e6b4f0a"
SIGNING = "canary-signing-secret-9b1c7d3e5f"
REPLACED = "canary-replaced-secret-4e6f8a0b2c"
PASSWORD = "canary password of a member 5a7b"
BODY = "canary-body-1c3e5a7b9d"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("canaries") / "data", log_level="debug") as running:
        yield running


class SecretHolders:
    """Everything secret that there is, each made as people make it, and used as senders and people use it."""

    def __init__(self, service: Service, management: Management) -> None:
        self.service = service
        may, team = operator(management), management.access.operator_of_team()
        self.admin_key = management.keys.create(team, "admin", Role.ADMIN).token.reveal()
        self.viewer_key = management.keys.create(team, "viewer", Role.VIEWER, factory="default").token.reveal()
        management.keys.revoke(team, management.keys.all(team)[0].id)
        by_header = management.webhooks.create(may, "by header", secret=GIVEN)
        by_url = management.webhooks.create(may, "by URL", auth_mode=AuthMode.URL_TOKEN, secret=IN_URL)
        signed = management.webhooks.create(
            may, "signed", auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret=SIGNING
        )
        generated = management.webhooks.create(may, "generated")
        self.generated = generated.reveal()
        management.automations.create(
            may,
            "all",
            prompt="Look.",
            triggers=[
                {
                    "provider": "webhook",
                    "event": "received",
                    "filter": {"webhook_ids": [each.webhook.uid for each in (by_header, by_url, signed)]},
                }
            ],
        )
        link = management.sessions.create_first_link()
        assert link is not None
        self.link = link.reveal()
        self.session = management.sessions.accept_link(
            self.link, password=PASSWORD, email="ada@example.com", name="Ada", client=None
        ).reveal()
        body = json.dumps({"said": BODY}).encode()
        for made in (by_header, by_url, generated):
            assert service.post(made, body).status == 202
            assert service.post(made, body, token="wrong-" + made.reveal()).status == 401
            assert service.post(made, b"{" + BODY.encode()).status == 400
        scheme = scheme_named("github", None)
        headers = dict(sign(scheme, SIGNING, body, signed.url, 0, "1").headers)
        self.signed = service.request("POST", f"/webhooks/w/{signed.webhook.uid}", headers=headers, body=body)
        management.secrets.replace(may, by_header.webhook.secret_name, REPLACED)
        management.webhooks.sync(may, "by header")
        self.created = self.ask("POST", "/factories/default/webhooks", {"name": "by API"}, repeat="once").json
        self.ask("POST", "/factories/default/webhooks", {"name": "by API"}, repeat="once")

    @property
    def secrets(self) -> dict[str, str]:
        return {
            "a given secret": GIVEN,
            "a URL token": IN_URL,
            "a signing secret": SIGNING,
            "a replaced secret": REPLACED,
            "a password": PASSWORD,
            "a generated secret": self.generated,
            "an admin's key": self.admin_key,
            "a viewer's key": self.viewer_key,
            "a link": self.link,
            "a session": self.session,
            "a secret of the API": self.created["secret"],
            "the master key": (self.service.data_dir / "master.key").read_text().split()[0],
        }

    def ask(self, method: str, path: str, body: Any = None, *, repeat: str = "") -> Any:
        headers = {"Authorization": f"Bearer {self.admin_key}", "Content-Type": "application/json"}
        if repeat:
            headers["Idempotency-Key"] = repeat
        sent = json.dumps(body).encode() if body is not None else None
        return self.service.request(method, f"/api/v1{path}", headers=headers, body=sent)


@pytest.fixture(scope="module")
def secret_holders(service: Service) -> Iterator[SecretHolders]:
    with service.management() as management:
        yield SecretHolders(service, management)


def found(secret_holders: SecretHolders, text: bytes, *, where: str) -> list[str]:
    """Which secrets the text holds, whole or by their telling part."""
    return [f"{name} in {where}" for name, secret in secret_holders.secrets.items() if secret.encode() in text]


def test_the_canaries_would_be_found(secret_holders: SecretHolders):
    held = b" ".join(secret.encode() for secret in secret_holders.secrets.values())

    assert len(found(secret_holders, held, where="here")) == 12
    assert secret_holders.signed.status == 202


def test_no_secret_is_in_the_database_its_wal_or_a_backup(secret_holders: SecretHolders, tmp_path: Path):
    data = secret_holders.service.data_dir
    wait_until_runs_have_ended(secret_holders.service.read_settings().store_url())
    traces = []
    with contextlib.closing(sqlite3.connect(data / "hookmill.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    for file in [*data.rglob("*"), tmp_path / "backup.db"]:
        if file.is_file() and file.name != "master.key":
            traces += found(secret_holders, file.read_bytes(), where=file.name)

    assert traces == []
    assert BODY.encode() in (tmp_path / "backup.db").read_bytes()


def test_no_secret_and_no_body_is_in_the_log(secret_holders: SecretHolders):
    # The service says that it is ready when its worker is, too.
    while b"ready" not in (log := secret_holders.service.log_path.read_bytes()):
        time.sleep(0.1)

    assert found(secret_holders, log, where="the log") == []
    assert BODY.encode() not in log


def test_no_answer_of_the_api_holds_a_secret(secret_holders: SecretHolders):
    def first(collection: str, field: str, prefix: str = "/factories/default") -> str:
        return str(secret_holders.ask("GET", f"{prefix}/{collection}").json["items"][0][field])

    named = {
        "factory": "default",
        "uid": secret_holders.created["uid"],
        "kind": "webhook",
        "name": secret_holders.created["secret_name"],
        "automation": first("automations", "automation_id"),
        "delivery": secret_holders.signed.delivery_id,
        "run": first("runs", "run_id"),
        "file": "prompt.md",
        "member": first("members", "member_id", ""),
    }
    wait_until_runs_have_ended(secret_holders.service.read_settings().store_url())
    traces, asked = [], []
    for operation in operations(application()):
        if operation.method != "GET":
            continue
        path = operation.path.removeprefix("/api/v1").format(**named)
        answer = secret_holders.ask("GET", path)
        assert answer.status == 200, path
        asked.append(path)
        traces += found(secret_holders, answer.body + repr(answer.headers).encode(), where=path)

    assert len(asked) > 20
    assert traces == []


COMMANDS = (
    "webhook list",
    "webhook show signed",
    "automation list",
    "automation show all",
    "delivery list",
    "delivery export",
    "run list",
    "run export",
    "secret list",
    "secret show WEBHOOK_BY_HEADER_SECRET",
    "key list",
    "keys show",
    "member list",
    "factory list",
    "audit list --team",
    "filter backtest --filter {}",
    "migrate",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_a_secret(
    secret_holders: SecretHolders,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
):
    for name, value in secret_holders.service.environment().items():
        if name.startswith("HOOKMILL_"):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    for form in ([], ["--json"]):
        if "export" in command and form:
            continue
        with pytest.raises(SystemExit) as ended:
            cli.main([*command.split(), *form])
        printed = capsysbinary.readouterr()

        assert int(ended.value.code or 0) == 0, printed.err
        assert printed.out != b""
        assert found(secret_holders, printed.out + printed.err, where=command) == []


def test_no_exported_file_holds_a_secret(
    secret_holders: SecretHolders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name, value in secret_holders.service.environment().items():
        if name.startswith("HOOKMILL_"):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", "files"])

    texts = {path.name: path.read_bytes() for path in (tmp_path / "files").rglob("*") if path.is_file()}

    assert int(ended.value.code or 0) == 0
    assert any(b"SECRET" in text for text in texts.values())
    assert [trace for name, text in texts.items() for trace in found(secret_holders, text, where=name)] == []
