"""A dashboard with one object of every kind, a visitor of every role, and the values that no page may contain."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.permission import MayManage, Role
from hookmill.domain.webhook import AuthMode
from hookmill.oidc.provider import Provider
from hookmill.runs.package import write_package
from hookmill.web.dashboard import PAGES
from hookmill.web.dashboard.application import Page
from tests.dashboard.client import Dashboard
from tests.support.alarms import add_alarm
from tests.support.signing_provider import signing_provider
from tests.support.world import Clock, World

VISITORS: Final = ("unauthenticated client", "viewer", "manager", "admin", "other factory's manager")
BODY: Final = {"action": "opened", "sender": {"login": "ada"}}


class Scene:
    """The factory `default` with its objects, and its visitors by role.

    `path_parameters` are the values of the parameters in the paths of pages. `secrets` are tokens, credentials and
    links: none of them may be on a page that is opened with GET.
    """

    def __init__(self, world: World, provider: Provider) -> None:
        self.dashboard = Dashboard(world, provider=provider)
        management = self.dashboard.management
        self.may: MayManage = world.may
        self.secrets: dict[str, str] = {}
        world.operator_of_new_factory("other")
        self.visitors = {
            "unauthenticated client": self.dashboard.unauthenticated,
            "viewer": self.dashboard.member("viewer@example.com", roles={"default": Role.VIEWER}),
            "manager": self.dashboard.member("manager@example.com", roles={"default": Role.MANAGER}),
            "admin": self.dashboard.member("admin@example.com", is_admin=True),
            "other factory's manager": self.dashboard.member("other@example.com", roles={"other": Role.MANAGER}),
        }
        for name, visitor in self.visitors.items():
            self.secrets[f"session of the {name}"] = visitor.session or "no session"

        webhook = management.webhooks.create(self.may, {"name": "source"})
        url_webhook = management.webhooks.create(self.may, {"name": "by URL", "auth_mode": AuthMode.URL_TOKEN})
        typed_webhook = management.webhooks.create(self.may, {"name": "typed secret"}, secret="canary-that-was-typed")
        assert typed_webhook.webhook.has_secret
        automation = world.automation("reader", webhook, url_webhook, payload={"action": ["opened"]})
        answer = world.post(webhook, json.dumps(BODY).encode())
        assert answer.status == 202
        assert world.post(webhook, json.dumps(BODY).encode()).status == 202
        assert world.post(url_webhook, b'{"action": "closed"}').status == 202
        assert world.post(webhook, b"not JSON").status == 400
        assert world.post(webhook, token="wrong-credential-canary").status == 401
        (run,) = management.runs.of_delivery(self.may, answer.delivery_id)
        assert world.packages is not None
        write_package(world.packages, run, json.dumps(BODY).encode())
        may_administer = self.dashboard.may_administer
        key = management.keys.create(may_administer, "pipeline", Role.VIEWER, factory="default")
        spare_member = management.members.add(may_administer, "spare@example.com", "Spare")
        destinations = management.alarm_destinations
        to_chat = destinations.create(self.may, DestinationKind.SLACK, url="https://hooks.example.com/canary-of-a-chat")
        to_webhook = destinations.create(
            may_administer, DestinationKind.WEBHOOK, url="https://hooks.example.com/?token=canary-of-a-webhook"
        )
        assert to_webhook.signing_secret is not None
        link = management.sessions.create_link(may_administer, spare_member.id)
        self.secrets |= {
            "webhook's secret": webhook.reveal(),
            "URL token": url_webhook.reveal(),
            "secret that was typed": "canary-that-was-typed",
            "wrong credential": "wrong-credential-canary",
            "team secret": management.secrets.create(self.may, "SPARE").reveal(),
            "API key's token": key.token.reveal(),
            "sign-in link": link.reveal(),
            "URL of a chat": "canary-of-a-chat",
            "URL of a webhook for alarms": "canary-of-a-webhook",
            "signing secret of alarms": to_webhook.signing_secret.reveal(),
        }
        self.path_parameters = {
            "factory": "default",
            "uid": webhook.webhook.uid,
            "webhook": webhook.webhook.uid,
            "name": "SPARE",
            "secret": "SPARE",
            "automation": automation.id,
            "delivery": answer.delivery_id,
            "run": "run_" + run.id.hex(),
            "file": "event-payload.json",
            "member": spare_member.id,
            "key": key.key.id,
            "alarm": add_alarm(world.database, world.factory.id, webhook.webhook.uid),
            "installation_alarm": add_alarm(world.database, None, "disk@here", name="disk of here"),
            "destination": to_chat.destination.id,
            "installation_destination": to_webhook.destination.id,
        }

    def path_of(self, page: Page) -> str:
        if page.path == "/static/{digest}/{name}":
            return "/static/any/hookmill.css"
        return page.path.format(**self.path_parameters, token=self.secrets["sign-in link"])


def pages_by_method(method: str) -> list[Page]:
    return [page for page in PAGES if page.method == method]


def scene_for_test(migrated_database: Path) -> Iterator[Scene]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory, signing_provider(clock) as provider:
        url = f"sqlite:///{shutil.copy(migrated_database, directory)}"
        world = World(url, clock=clock, external_sign_in=provider.rules())
        try:
            scene = Scene(world, provider.client())
            yield scene
            assert scene.dashboard.failures == []
        finally:
            world.close()
