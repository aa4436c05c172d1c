"""The API in the test's own process, in front of a real store, and the keys to it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from typing import Any, TypeVar

from hookmill.domain.permission import MayManage, Role
from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from hookmill.runs.package import write_package
from hookmill.web.api import build
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import Routes
from tests.support.service import Answer
from tests.support.world import PUBLIC_URL, World

T = TypeVar("T")
ENOUGH = 1_000_000
"""A budget that no test uses up by accident."""
PROMPT = "Look at the delivery."


class Api:
    """The whole service in this process, with the API in it. Requests come from 203.0.113.9 unless said otherwise."""

    def __init__(self, world: World, *, requests_per_minute: int = ENOUGH, failures_per_minute: int = ENOUGH) -> None:
        self.world = world
        self.management = world.management
        self.team = world.management.access.operator_of_team()
        self.unforeseen: list[tuple[str, BaseException]] = []

        def make() -> Any:
            return build(
                world.management,
                trusted_proxies=[ip_network("192.0.2.0/24")],
                now_us=world.clock,
                report_failure=lambda where, error: self.unforeseen.append((where, error)),
                requests_per_minute=requests_per_minute,
                failures_per_minute=failures_per_minute,
            )

        self.make = make
        world.routes = Routes(IngressEndpoint(world.ingress, world.clock), lambda: True, make, public_url=PUBLIC_URL)
        self.admin = self.key("an admin", Role.ADMIN)
        self.manager = self.key("a manager", Role.MANAGER, "default")
        self.viewer = self.key("a viewer", Role.VIEWER, "default")

    def key(self, name: str, role: Role, factory: str | None = None, **choices: Any) -> str:
        """A new key's token."""
        return self.management.keys.create(self.team, name, role, factory=factory, **choices).token.reveal()

    def factory(self, name: str) -> MayManage:
        """Permission over a new factory."""
        self.management.factories.create(self.team, name)
        return self.management.access.operator(name)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        raw: bytes | None = None,
    ) -> Answer:
        """One request, by default as the manager of the factory `default`. `path` begins after /api/v1."""
        key = self.manager if key is None else key
        given = list(headers.items() if isinstance(headers, Mapping) else headers)
        if key:
            given.append(("Authorization", f"Bearer {key}"))
        if "x-forwarded-for" not in {name.lower() for name, _ in given}:
            given.append(("X-Forwarded-For", "203.0.113.9"))
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if content and "content-type" not in {name.lower() for name, _ in given}:
            given.append(("Content-Type", "application/json"))
        return self.world.request(method, f"/api/v1{path}", headers=given, body=content)

    def get(self, path: str, **choices: Any) -> Answer:
        return self.ask("GET", path, **choices)

    def post(self, path: str, body: Any = None, **choices: Any) -> Answer:
        return self.ask("POST", path, body, **choices)

    def patch(self, path: str, body: Any, **choices: Any) -> Answer:
        return self.ask("PATCH", path, body, **choices)

    def put(self, path: str, body: Any = None, **choices: Any) -> Answer:
        return self.ask("PUT", path, body, **choices)

    def delete(self, path: str, **choices: Any) -> Answer:
        return self.ask("DELETE", path, **choices)


class Stocked:
    """A factory with one of everything in it, by the names that addresses use."""

    def __init__(self, api: Api, may: MayManage) -> None:
        management = api.management
        name = may.factory.name
        self.webhook: WebhookWithSecret = management.webhooks.create(may, f"source of {name}")
        self.by_url = management.webhooks.create(may, f"by URL of {name}", auth_mode=AuthMode.URL_TOKEN)
        self.secret_name = f"SPARE_{name.upper()}"
        self.secret = management.secrets.create(may, self.secret_name)
        trigger = {
            "provider": "webhook",
            "event": "received",
            "filter": {"webhook_ids": [self.webhook.webhook.uid], "payload": {"action": ["opened"]}},
        }
        self.automation = management.automations.create(may, f"reader of {name}", prompt=PROMPT, triggers=[trigger])
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
        self.places = {
            "factory": name,
            "uid": self.webhook.webhook.uid,
            "name": self.secret_name,
            "automation": self.automation.id,
            "delivery": self.delivery,
            "run": self.run,
            "file": "event-payload.json",
            "member": self.member,
            "key": self.key,
            "kind": "webhook",
        }


def at_once(number: int, act: Callable[[int], T]) -> list[T]:
    """What each of so many acts gave that were under way at the same time."""
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(act, range(number)))


def living_api(url: str, **choices: Any) -> Iterator[Api]:
    """An API for as long as a test lasts, in which nothing unforeseen may happen."""
    world = World(url)
    try:
        api = Api(world, **choices)
        yield api
        assert api.unforeseen == []
    finally:
        world.close()
