"""One running service for the tests of a module, with a factory that has one resource of each kind."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.permission import Role
from hookmill.management import Management
from hookmill.runs.package import write_package
from hookmill.store.database import open_database
from tests.support.alarms import add_alarm
from tests.support.automations import automation_created
from tests.support.service import Service, operator, serving
from tests.support.triggers import received

RUN_SECRET = "canary-run-secret-5e1b9d"
SIGNING_SECRET = "canary-signing-secret-8c2f4a"
DESTINATION_TOKEN = "canary-alarm-destination-3d7e6b"
_NUMBERS = itertools.count()


class Scene:
    """Keys of all roles, and the resources of the factory `default`."""

    def __init__(self, service: Service, management: Management) -> None:
        self.service = service
        self.management = management
        self.may, self.team = operator(management), management.access.operator_of_team()
        management.factories.create(self.team, "other")
        self.keys = {
            "viewer": self._key("viewer", Role.VIEWER, "default"),
            "manager": self._key("manager", Role.MANAGER, "default"),
            "admin": self._key("admin", Role.ADMIN),
            "other manager": self._key("other manager", Role.MANAGER, "other"),
        }
        self.webhook = management.webhooks.create(self.may, {"name": "source", "event_header": "X-Event"})
        by_url = management.webhooks.create(self.may, {"name": "by URL", "auth_mode": "url_token"})
        management.webhooks.create(
            self.may,
            {"name": "signed", "auth_mode": "signature", "signature_scheme": "github"},
            secret=SIGNING_SECRET,
        )
        management.secrets.create(self.may, "DEPLOY_TOKEN", RUN_SECRET, for_runs=True)
        self.automation = automation_created(
            management, self.may, "triage", triggers=[received(self.webhook.webhook.uid)]
        )
        destination = management.alarm_destinations.create(
            self.may, DestinationKind.WEBHOOK, url=f"https://alarms.example/{DESTINATION_TOKEN}"
        )
        assert destination.signing_secret is not None
        with open_database(service.read_settings().store_url()) as database:
            add_alarm(database, self.may.factory.id, self.webhook.webhook.uid)
            add_alarm(database, None, "disk@here")
        self.canaries = [
            *self.keys.values(),
            self.webhook.reveal(),
            by_url.reveal(),
            RUN_SECRET,
            SIGNING_SECRET,
            DESTINATION_TOKEN,
            destination.signing_secret.reveal(),
        ]
        self.ids: dict[str, str] = {}
        self.deliver({"action": "opened"})

    def _key(self, name: str, role: Role, factory: str | None = None) -> str:
        return self.management.keys.create(self.team, name, role, factory=factory).token.reveal()

    def deliver(self, payload: Any, event: str = "push") -> dict[str, str]:
        """Send a delivery, which starts a run. Returns the arguments that tools take, by name."""
        body = json.dumps(payload, ensure_ascii=False).encode()
        # The same payload is another event each time.
        headers = {"X-Event": event, "X-Service-Delivery-Id": str(next(_NUMBERS))}
        answer = self.service.post(self.webhook, body, headers=headers)
        assert answer.status == 202
        runs = self.management.runs.of_delivery(self.may, answer.delivery_id)
        (run,) = [run for run in runs if run.automation_name == "triage"]
        self.package = write_package(self.service.data_dir / "runs", run, body).directory
        self.ids = {
            "factory": "default",
            "uid": self.webhook.webhook.uid,
            "automation": self.automation.id,
            "delivery": answer.delivery_id,
            "run": f"run_{run.id.hex()}",
            "file": "event-payload.json",
        }
        return self.ids


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Iterator[Scene]:
    with (
        serving(tmp_path_factory.mktemp("mcp") / "data", performs_runs=False, log_level="debug") as service,
        service.management() as management,
    ):
        yield Scene(service, management)
