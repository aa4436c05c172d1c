"""A dashboard with one of everything behind it, somebody of every role in front, and what was shown once."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hookmill.domain.permission import MayManage, Role
from hookmill.domain.webhook import AuthMode
from hookmill.runs.package import write_package
from hookmill.web.dashboard import PAGES
from hookmill.web.dashboard.application import Page
from tests.dashboard.client import Dashboard, Visitor
from tests.support.world import World

VISITORS: Final = ("stranger", "viewer", "manager", "admin", "other factory's manager")
BODY: Final = {"action": "opened", "sender": {"login": "ada"}}


class Scene:
    """The factory `default`, stocked. `places` are the parts of its addresses, `shown_once` what no page may hold."""

    def __init__(self, world: World) -> None:
        self.dashboard = Dashboard(world)
        management = self.dashboard.management
        self.may: MayManage = world.may
        self.shown_once: dict[str, str] = {}
        world.elsewhere("other")
        self.visitors = {
            "stranger": self.dashboard.stranger,
            "viewer": self.dashboard.member("viewer@example.com", roles={"default": Role.VIEWER}),
            "manager": self.dashboard.member("manager@example.com", roles={"default": Role.MANAGER}),
            "admin": self.dashboard.member("admin@example.com", is_admin=True),
            "other factory's manager": self.dashboard.member("other@example.com", roles={"other": Role.MANAGER}),
        }
        for name, visitor in self.visitors.items():
            self.shown_once[f"session of the {name}"] = visitor.session or "no session"

        webhook = management.webhooks.create(self.may, "source")
        by_url = management.webhooks.create(self.may, "by URL", auth_mode=AuthMode.URL_TOKEN)
        given = management.webhooks.create(self.may, "given", secret="canary-that-somebody-typed")
        assert given.webhook.has_secret
        automation = world.automation("reader", webhook, by_url, payload={"action": ["opened"]})
        answer = world.post(webhook, json.dumps(BODY).encode())
        assert answer.status == 202
        assert world.post(webhook, json.dumps(BODY).encode()).status == 202
        assert world.post(by_url, b'{"action": "closed"}').status == 202
        assert world.post(webhook, b"not JSON").status == 400
        assert world.post(webhook, token="wrong-credential-canary").status == 401
        (run,) = management.runs.of_delivery(self.may, answer.delivery_id)
        assert world.packages is not None
        write_package(world.packages, run, json.dumps(BODY).encode())
        key = management.keys.create(self.dashboard.team, "pipeline", Role.VIEWER, factory="default")
        spare = management.members.add(self.dashboard.team, "spare@example.com", "Spare")
        link = management.sessions.create_link(self.dashboard.team, spare.id)
        self.shown_once |= {
            "webhook's secret": webhook.reveal(),
            "URL token": by_url.reveal(),
            "secret that was typed": "canary-that-somebody-typed",
            "wrong credential": "wrong-credential-canary",
            "team secret": management.secrets.create(self.may, "SPARE").reveal(),
            "API key's token": key.token.reveal(),
            "sign-in link": link.reveal(),
        }
        self.places = {
            "factory": "default",
            "uid": webhook.webhook.uid,
            "webhook": webhook.webhook.uid,
            "name": "SPARE",
            "secret": "SPARE",
            "automation": automation.id,
            "delivery": answer.delivery_id,
            "run": "run_" + run.id.hex(),
            "file": "event-payload.json",
            "member": spare.id,
            "key": key.key.id,
        }

    def address(self, page: Page) -> str:
        """The page of this scene that a page of the dashboard stands for."""
        if page.path == "/static/{digest}/{name}":
            return "/static/any/hookmill.css"
        if page.path == "/welcome/{token}":
            return f"/welcome/{self.shown_once['sign-in link']}"
        return page.path.format(**self.places)

    def visitor(self, name: str) -> Visitor:
        return self.visitors[name]


def pages_by_method(method: str) -> list[Page]:
    return [page for page in PAGES if page.method == method]


def living_scene(migrated: Path) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as directory:
        world = World(f"sqlite:///{shutil.copy(migrated, directory)}")
        try:
            scene = Scene(world)
            yield scene
            assert scene.dashboard.unforeseen == []
        finally:
            world.close()
