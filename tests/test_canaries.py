"""No secret is in a response, the output of a command, a log, an export, the database, its WAL or a backup."""

import contextlib
import json
import sqlite3
import time
from hashlib import sha256
from typing import Any

import pytest

from hookmill import cli
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.permission import Role
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import sign
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management
from hookmill.store.database import open_database
from hookmill.web.api import application, operations
from tests.faults.audit import wait_until_runs_have_ended
from tests.support.alarms import add_alarm
from tests.support.automations import automation_created
from tests.support.service import Service, operator, serving
from tests.support.triggers import received

SUPPLIED_SECRET = "canary-supplied-secret-7f3a9c1e5b"
URL_TOKEN = "canary-url-token-2d8e6b4f0a"
ALARM_URL_TOKEN = "canary-token-in-the-url-of-alarms-7c1f"
SIGNING_SECRET = "canary-signing-secret-9b1c7d3e5f"
REPLACEMENT_SECRET = "canary-replacement-secret-4e6f8a0b2c"
PASSWORD = "canary password of a member 5a7b"
RUN_SECRET = "canary-run-secret-0e2c4a6b8d"
BODY = "canary-body-1c3e5a7b9d"
DIGEST = sha256(RUN_SECRET.encode()).hexdigest()
RUNNERS = {
    "deploy": {
        "argv": [
            "sh",
            "-c",
            f'printf "$DEPLOY_TOKEN" | sha256sum | grep -q {DIGEST} || exit 9\n'
            'env; echo "token: $DEPLOY_TOKEN"; echo "$DEPLOY_TOKEN" > token.txt; echo "$DEPLOY_TOKEN" >> prompt.md',
        ]
    }
}
"""A command that fails without its secret, and that reveals the secret by accident."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(
        tmp_path_factory.mktemp("canaries") / "data", log_level="debug", runners=json.dumps(RUNNERS)
    ) as running:
        yield running


class Secrets:
    """Secrets of all kinds, created and used as people and senders create and use them."""

    def __init__(self, service: Service, management: Management) -> None:
        self.service = service
        may, team = operator(management), management.access.operator_of_team()
        self.admin_key = management.keys.create(team, "admin", Role.ADMIN).token.reveal()
        self.viewer_key = management.keys.create(team, "viewer", Role.VIEWER, factory="default").token.reveal()
        management.keys.revoke(team, management.keys.all(team)[0].id)
        by_header = management.webhooks.create(may, {"name": "by header"}, secret=SUPPLIED_SECRET)
        by_url = management.webhooks.create(may, {"name": "by URL", "auth_mode": AuthMode.URL_TOKEN}, secret=URL_TOKEN)
        signed = management.webhooks.create(
            may,
            {"name": "signed", "auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github"},
            secret=SIGNING_SECRET,
        )
        generated = management.webhooks.create(may, {"name": "generated"})
        self.generated_secret = generated.reveal()
        automation_created(
            management,
            may,
            "all",
            prompt="Look.",
            triggers=[received(*[each.webhook.uid for each in (by_header, by_url, signed)])],
        )
        management.secrets.create(may, "DEPLOY_TOKEN", RUN_SECRET, for_runs=True)
        automation_created(
            management,
            may,
            "deploy",
            prompt="Deploy.",
            runner="deploy",
            triggers=[received(by_header.webhook.uid)],
            options={"secrets": ["DEPLOY_TOKEN"]},
        )
        alarms = management.alarm_destinations.create(
            may, DestinationKind.WEBHOOK, url=f"https://alarms.example.com/{ALARM_URL_TOKEN}"
        )
        assert alarms.signing_secret is not None
        self.destination, self.alarm_signing_secret = alarms.destination.id, alarms.signing_secret.reveal()
        with open_database(service.read_settings().store_url()) as database:
            self.alarm = add_alarm(database, may.factory.id, generated.webhook.uid)
            self.installation_alarm = add_alarm(database, None, "disk@here")
        link = management.sessions.create_first_link()
        assert link is not None
        self.link = link.reveal()
        self.session = management.sessions.accept_link(
            self.link, password=PASSWORD, email="ada@example.com", name="Ada", client=None
        ).reveal()
        body = json.dumps({"text": BODY}).encode()
        for webhook in (by_header, by_url, generated):
            assert service.post(webhook, body).status == 202
            assert service.post(webhook, body, token="wrong-" + webhook.reveal()).status == 401
            assert service.post(webhook, b"{" + BODY.encode()).status == 400
        scheme = scheme_named("github", None)
        headers = dict(sign(scheme, SIGNING_SECRET, body, signed.url, 0, "1").headers)
        self.signed_delivery = service.request("POST", f"/webhooks/w/{signed.webhook.uid}", headers=headers, body=body)
        management.secrets.replace(may, by_header.webhook.secret_name, REPLACEMENT_SECRET)
        management.webhooks.sync(may, "by header")
        self.created = self.request("POST", "/factories/default/webhooks", {"name": "by API"}, key="once").json
        self.request("POST", "/factories/default/webhooks", {"name": "by API"}, key="once")

    @property
    def by_name(self) -> dict[str, str]:
        return {
            "a supplied secret": SUPPLIED_SECRET,
            "a URL token": URL_TOKEN,
            "a signing secret": SIGNING_SECRET,
            "a replacement secret": REPLACEMENT_SECRET,
            "a secret of a run": RUN_SECRET,
            "a password": PASSWORD,
            "a generated secret": self.generated_secret,
            "an admin's key": self.admin_key,
            "a viewer's key": self.viewer_key,
            "a link": self.link,
            "a session": self.session,
            "a secret of the API": self.created["secret"],
            "a URL of alarms": ALARM_URL_TOKEN,
            "a signing secret of alarms": self.alarm_signing_secret,
            "the master key": (self.service.data_dir / "master.key").read_text().split()[0],
        }

    def request(self, method: str, path: str, body: Any = None, *, key: str = "") -> Any:
        """Send a request to the API, with `key` as its idempotency key."""
        headers = {"Authorization": f"Bearer {self.admin_key}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        content = json.dumps(body).encode() if body is not None else None
        return self.service.request(method, f"/api/v1{path}", headers=headers, body=content)


@pytest.fixture(scope="module")
def secrets(service):
    with service.management() as management:
        yield Secrets(service, management)


def leaks(secrets: Secrets, text: bytes, *, place: str) -> list[str]:
    """The names of the secrets that the text contains."""
    return [f"{name} in {place}" for name, secret in secrets.by_name.items() if secret.encode() in text]


def test_search_finds_every_secret(secrets):
    text = b" ".join(secret.encode() for secret in secrets.by_name.values())

    assert len(leaks(secrets, text, place="text")) == 15
    assert secrets.signed_delivery.status == 202


def test_database_its_wal_and_a_backup_contain_no_secret(secrets, tmp_path):
    data = secrets.service.data_dir
    wait_until_runs_have_ended(secrets.service.read_settings().store_url())
    found_leaks = []
    with contextlib.closing(sqlite3.connect(data / "hookmill.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    for file in [*data.rglob("*"), tmp_path / "backup.db"]:
        if file.is_file() and file.name != "master.key":
            found_leaks += leaks(secrets, file.read_bytes(), place=file.name)

    assert found_leaks == []
    assert BODY.encode() in (tmp_path / "backup.db").read_bytes()


def test_command_gets_its_secret_and_shows_it_to_nobody(secrets):
    wait_until_runs_have_ended(secrets.service.read_settings().store_url())
    path = "/factories/default/runs"
    [run] = [run for run in secrets.request("GET", path).json["items"] if run["automation"] == "deploy"]
    shown = secrets.request("GET", f"{path}/{run['run_id']}")
    files = secrets.request("GET", f"{path}/{run['run_id']}/files").json["files"]
    contents = {
        file["name"]: secrets.request("GET", f"{path}/{run['run_id']}/files/{file['name']}").body for file in files
    }

    assert (run["state"], leaks(secrets, shown.body, place="the run")) == ("succeeded", [])
    assert contents["token.txt"] == b"[masked]\n"
    assert b"token: [masked]\n" in contents["output.log"]
    assert [leak for name, content in contents.items() for leak in leaks(secrets, content, place=name)] == []


def test_log_contains_no_secret_and_no_body(secrets):
    # The service logs that it is ready after its worker is ready.
    while b"ready" not in (log := secrets.service.log_path.read_bytes()):
        time.sleep(0.1)

    assert leaks(secrets, log, place="the log") == []
    assert BODY.encode() not in log


def test_no_api_response_contains_a_secret(secrets):
    def first(collection: str, field: str, prefix: str = "/factories/default") -> str:
        return str(secrets.request("GET", f"{prefix}/{collection}").json["items"][0][field])

    path_parameters = {
        "factory": "default",
        "uid": secrets.created["uid"],
        "kind": "webhook",
        "name": secrets.created["secret_name"],
        "automation": first("automations", "automation_id"),
        "delivery": secrets.signed_delivery.delivery_id,
        "run": first("runs", "run_id"),
        "file": "prompt.md",
        "member": first("members", "member_id", ""),
        "alarm": secrets.alarm,
        "installation_alarm": secrets.installation_alarm,
        "destination": secrets.destination,
    }
    wait_until_runs_have_ended(secrets.service.read_settings().store_url())
    found_leaks, paths = [], []
    for operation in operations(application()):
        if operation.method != "GET":
            continue
        path = operation.path.removeprefix("/api/v1").format(**path_parameters)
        answer = secrets.request("GET", path)
        assert answer.status == 200, path
        paths.append(path)
        found_leaks += leaks(secrets, answer.body + repr(answer.headers).encode(), place=path)

    assert len(paths) > 20
    assert found_leaks == []


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
    "secret show DEPLOY_TOKEN",
    "automation show deploy",
    "key list",
    "keys show",
    "member list",
    "factory list",
    "audit list --team",
    "filter backtest --filter {}",
    "migrate",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_a_secret(secrets, command, monkeypatch, capsysbinary, tmp_path):
    for name, value in secrets.service.environment().items():
        if name.startswith("HOOKMILL_"):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    for options in ([], ["--json"]):
        if "export" in command and options:
            continue
        with pytest.raises(SystemExit) as exit_info:
            cli.main([*command.split(), *options])
        output = capsysbinary.readouterr()

        assert int(exit_info.value.code or 0) == 0, output.err
        assert output.out != b""
        assert leaks(secrets, output.out + output.err, place=command) == []


def test_no_exported_file_contains_a_secret(secrets, monkeypatch, tmp_path):
    for name, value in secrets.service.environment().items():
        if name.startswith("HOOKMILL_"):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["export", "files"])

    texts = {path.name: path.read_bytes() for path in (tmp_path / "files").rglob("*") if path.is_file()}

    assert int(exit_info.value.code or 0) == 0
    assert any(b"SECRET" in text for text in texts.values())
    assert [leak for name, text in texts.items() for leak in leaks(secrets, text, place=name)] == []
