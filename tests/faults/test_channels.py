"""A change in one process applies immediately at the ingress of another, in each channel: the API, the command line and
definition files."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hookmill import cli
from hookmill.domain.permission import MayManage, Role
from hookmill.management import Management
from tests.faults.test_two_processes import Pair, paired
from tests.support.counts import count

ROUNDS = count(8, usually=1)


@pytest.fixture(scope="module")
def pair(postgres_server, tmp_path_factory):
    """Two services on one PostgreSQL. Operators use the first one, senders the second one."""
    url = postgres_server.create_database()
    yield from paired(tmp_path_factory.mktemp("channels"), url, services=2, deliveries_per_minute=100_000)
    postgres_server.drop_database(url)


class Channel:
    """A channel through which the tests change the webhook `source`, in a factory of its own."""

    uid: str
    """The uid of the webhook that `create` has created."""

    def __init__(self, pair: Pair, management: Management, factory: str):
        self.pair = pair
        self.management = management
        self.factory = factory
        team = management.access.operator_of_team()
        management.factories.create(team, factory)
        self.may: MayManage = management.access.operator(factory)
        management.secrets.create(self.may, self.secret_name, "value-0-0123456789")
        self.token = "value-0-0123456789"

    @property
    def secret_name(self) -> str:
        return f"OF_{self.factory.upper()}"

    def replace_secret(self, value: str):
        """Store a new value of the team secret. The webhook uses it only after a sync."""
        self.management.secrets.replace(self.may, self.secret_name, value)

    def status(self) -> int:
        """What the second service answers to a delivery with `token`."""
        headers = {"Authorization": f"Bearer {self.token}", "X-Service-Delivery-Id": f"{next(_numbers)}"}
        path = f"/webhooks/w/{self.uid}"
        return self.pair.services[1].request("POST", path, headers=headers, body=b"{}").status


_numbers = iter(range(1_000_000))


class ApiChannel(Channel):
    def __init__(self, pair: Pair, management: Management):
        super().__init__(pair, management, "by_api")
        team = management.access.operator_of_team()
        self.key = management.keys.create(team, "channels", Role.MANAGER, factory=self.factory).token.reveal()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        answer = self.pair.services[0].request(
            method,
            f"/api/v1/factories/{self.factory}{path}",
            headers=headers,
            body=json.dumps(body).encode() if body is not None else None,
        )
        assert answer.status < 300, answer.body
        return answer.json if answer.body else None

    def create(self):
        self.uid = self.call("POST", "/webhooks", {"name": "source", "secret_name": self.secret_name})["uid"]

    def disable(self):
        self.call("PATCH", f"/webhooks/{self.uid}", {"enabled": False})

    def enable(self):
        self.call("PATCH", f"/webhooks/{self.uid}", {"enabled": True})

    def rotate(self):
        self.call("POST", f"/webhooks/{self.uid}/rotate", {})

    def sync(self):
        self.call("POST", f"/webhooks/{self.uid}/sync")

    def delete(self):
        self.call("DELETE", f"/webhooks/{self.uid}")


class CommandChannel(Channel):
    name = "by_command"

    def __init__(self, pair: Pair, management: Management, monkeypatch: pytest.MonkeyPatch, directory: Path):
        super().__init__(pair, management, self.name)
        self.directory = directory
        for name, value in pair.services[0].environment().items():
            if name.startswith("HOOKMILL_"):
                monkeypatch.setenv(name, value)
        monkeypatch.chdir(directory)

    def run(self, *arguments: str, exit_code: int = 0):
        with pytest.raises(SystemExit) as exited:
            cli.main([*arguments, "--factory", self.factory])
        assert int(exited.value.code or 0) == exit_code, arguments

    def create(self):
        self.run("webhook", "create", "source", "--secret-name", self.secret_name)
        self.uid = self.management.webhooks.get(self.may, "source").uid

    def disable(self):
        self.run("webhook", "disable", "source")

    def enable(self):
        self.run("webhook", "enable", "source")

    def rotate(self):
        self.run("webhook", "rotate", "source")

    def sync(self):
        self.run("webhook", "sync", "source")

    def delete(self):
        self.run("webhook", "delete", "source", "--yes")


class FilesChannel(CommandChannel):
    name = "by_files"

    def apply(self, text: str | None, *options: str):
        """Apply a definition file with the webhook, or none if `text` is None."""
        for name in ("webhooks", "automations"):
            (self.directory / name).mkdir(exist_ok=True)
        file = self.directory / "webhooks" / "source.yaml"
        if text is None:
            file.unlink()
        else:
            file.write_text(f"secretName: {self.secret_name}\n{text}")
        self.run("apply", str(self.directory), *options)

    def create(self):
        self.apply("")
        self.uid = self.management.webhooks.get(self.may, "source").uid

    def disable(self):
        self.apply("enabled: false\n")

    def enable(self):
        self.apply("enabled: true\n")

    def rotate(self):
        # A file contains no secret, so applying it syncs a value that was stored before.
        self.replace_secret(f"another-value-{next(_numbers)}-0123456789")
        self.apply("enabled: true\n")

    def sync(self):
        self.apply("enabled: true\n")

    def delete(self):
        self.apply(None, "--allow-deletions")


@pytest.mark.parametrize("channel", ["api", "command", "files"])
def test_change_in_any_channel_applies_immediately_in_another_service(pair, channel, monkeypatch, tmp_path):
    with pair.management() as management:
        channels: Mapping[str, Callable[[], Any]] = {
            "api": lambda: ApiChannel(pair, management),
            "command": lambda: CommandChannel(pair, management, monkeypatch, tmp_path),
            "files": lambda: FilesChannel(pair, management, monkeypatch, tmp_path),
        }
        tested = channels[channel]()
        statuses: dict[str, set[int]] = {}

        def deliver_after(change):
            statuses.setdefault(change, set()).add(tested.status())

        for number in range(ROUNDS):
            tested.create()
            deliver_after("create")
            tested.disable()
            deliver_after("disable")
            tested.enable()
            deliver_after("enable")
            tested.replace_secret(f"value-{number}-synced-0123456789")
            deliver_after("a new value")
            tested.sync()
            deliver_after("sync, with the old value")
            tested.token = f"value-{number}-synced-0123456789"
            deliver_after("sync, with the new value")
            tested.rotate()
            deliver_after("rotate")
            tested.delete()
            deliver_after("delete")
            tested.replace_secret(f"value-{number + 1}-0123456789")
            tested.token = f"value-{number + 1}-0123456789"

    assert statuses == {
        "create": {202},
        "disable": {404},
        "enable": {202},
        "a new value": {202},
        "sync, with the old value": {401},
        "sync, with the new value": {202},
        "rotate": {401},
        "delete": {404},
    }
