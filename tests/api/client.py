"""A client of the API, which runs in the test's process with a real store."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from typing import Any, TypeVar

from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.permission import MayAdminister, MayManage, Role
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management, WebhookWithSecret
from hookmill.runs.package import write_package
from hookmill.web.api import build
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import Routes
from tests.support.alarms import add_alarm
from tests.support.automations import automation_created
from tests.support.service import Answer
from tests.support.triggers import received
from tests.support.world import PUBLIC_URL, World

T = TypeVar("T")
UNREACHED_LIMIT = 1_000_000
"""A rate limit that no test reaches by accident."""
PROMPT = "Look at the delivery."


class Api:
    """The API, and keys of all roles. By default the client's address is 203.0.113.9."""

    def __init__(
        self, world: World, *, requests_per_minute: int = UNREACHED_LIMIT, failures_per_minute: int = UNREACHED_LIMIT
    ) -> None:
        self.world = world
        self.management = world.management
        self.team = world.management.access.operator_of_team()
        self.unexpected_errors: list[tuple[str, BaseException]] = []
        """The errors that the API reported: its name for the place, and the exception."""

        def build_app() -> Any:
            return build(
                world.management,
                trusted_proxies=[ip_network("192.0.2.0/24")],
                now_us=world.clock,
                report_failure=lambda where, error: self.unexpected_errors.append((where, error)),
                requests_per_minute=requests_per_minute,
                failures_per_minute=failures_per_minute,
            )

        self.build_app = build_app
        world.routes = Routes(
            IngressEndpoint(world.ingress, world.clock), lambda: True, build_app, public_url=PUBLIC_URL
        )
        self.admin = self.key("an admin", Role.ADMIN)
        self.manager = self.key("a manager", Role.MANAGER, "default")
        self.viewer = self.key("a viewer", Role.VIEWER, "default")

    def key(self, name: str, role: Role, factory: str | None = None, **choices: Any) -> str:
        """Create a key, and return its token."""
        return self.management.keys.create(self.team, name, role, factory=factory, **choices).token.reveal()

    def factory(self, name: str) -> MayManage:
        """Create a factory, and return permission for all operations in it."""
        self.management.factories.create(self.team, name)
        return self.management.access.operator(name)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        raw: bytes | None = None,
    ) -> Answer:
        """Send a request, by default with the key of a manager of the factory `default`. `path` follows /api/v1."""
        key = self.manager if key is None else key
        sent_headers = list(headers.items() if isinstance(headers, Mapping) else headers)
        if key:
            sent_headers.append(("Authorization", f"Bearer {key}"))
        if "x-forwarded-for" not in {name.lower() for name, _ in sent_headers}:
            sent_headers.append(("X-Forwarded-For", "203.0.113.9"))
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if content and "content-type" not in {name.lower() for name, _ in sent_headers}:
            sent_headers.append(("Content-Type", "application/json"))
        return self.world.request(method, f"/api/v1{path}", headers=sent_headers, body=content)

    def get(self, path: str, **choices: Any) -> Answer:
        return self.request("GET", path, **choices)

    def post(self, path: str, body: Any = None, **choices: Any) -> Answer:
        return self.request("POST", path, body, **choices)

    def patch(self, path: str, body: Any, **choices: Any) -> Answer:
        return self.request("PATCH", path, body, **choices)

    def put(self, path: str, body: Any = None, **choices: Any) -> Answer:
        return self.request("PUT", path, body, **choices)

    def delete(self, path: str, **choices: Any) -> Answer:
        return self.request("DELETE", path, **choices)


class StockedFactory:
    """A factory with one resource of each kind."""

    def __init__(self, api: Api, may: MayManage) -> None:
        management = api.management
        name = may.factory.name
        self.webhook: WebhookWithSecret = management.webhooks.create(may, {"name": f"source of {name}"})
        self.by_url = management.webhooks.create(may, {"name": f"by URL of {name}", "auth_mode": AuthMode.URL_TOKEN})
        self.secret_name = f"SPARE_{name.upper()}"
        self.secret = management.secrets.create(may, self.secret_name)
        trigger = received(self.webhook.webhook.uid, payload={"action": ["opened"]})
        self.automation = automation_created(management, may, f"reader of {name}", prompt=PROMPT, triggers=[trigger])
        answer = api.world.post(self.webhook, json.dumps({"action": "opened", "of": name}).encode())
        assert answer.status == 202
        self.delivery = answer.delivery_id
        (run,) = management.runs.of_delivery(may, self.delivery)
        self.run = "run_" + run.id.hex()
        if api.world.packages is not None:
            write_package(api.world.packages, run, b"{}")
        member = management.members.add(api.team, f"{name}@example.com", f"Member of {name}")
        self.member = member.id
        self.key = management.keys.create(api.team, f"spare of {name}", Role.VIEWER, factory=name).key.id
        self.alarm = add_alarm(api.world.database, may.factory.id, self.webhook.webhook.uid)
        self.installation_alarm = add_alarm(api.world.database, None, f"disk@{name}")
        self.destination = self._add_destination(management, may)
        self.path_parameters = {
            "factory": name,
            "alarm": self.alarm,
            "installation_alarm": self.installation_alarm,
            "uid": self.webhook.webhook.uid,
            "name": self.secret_name,
            "automation": self.automation.id,
            "delivery": self.delivery,
            "run": self.run,
            "file": "event-payload.json",
            "member": self.member,
            "key": self.key,
            "destination": self.destination,
            "installation_destination": self._add_destination(management, api.team),
            "kind": "webhook",
            "attempt": f"{self.run}-1",
        }
        """The values for the variable parts of the API's paths."""

    @staticmethod
    def _add_destination(management: Management, may: MayManage | MayAdminister) -> str:
        existing = management.alarm_destinations.all(may)
        if existing and isinstance(may, MayAdminister):
            # The installation's limit is lower than the number of factories in these tests.
            management.alarm_destinations.delete(may, existing[0].id)
        created = management.alarm_destinations.create(may, DestinationKind.EMAIL, to="ops@example.com")
        return created.destination.id


def concurrently(count: int, act: Callable[[int], T]) -> list[T]:
    """The results of `count` concurrent calls of `act`, each with its number."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(act, range(count)))


def api_for_test(url: str, **choices: Any) -> Iterator[Api]:
    """An API for one test. The test must clear `unexpected_errors` that it has caused: any others fail it."""
    world = World(url)
    try:
        api = Api(world, **choices)
        yield api
        assert api.unexpected_errors == []
    finally:
        world.close()
