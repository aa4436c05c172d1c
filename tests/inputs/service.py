"""API and dashboard in the test's own process, in front of one store with one of everything in it."""

from collections.abc import Iterator
from typing import Final

from hookmill.web import api, dashboard
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import Routes
from tests.api.client import Api, Stocked
from tests.dashboard.client import Dashboard, Visitor
from tests.support.service import Answer
from tests.support.world import PUBLIC_URL, World

NOT_OPENED: Final = frozenset({"/static/{digest}/{name}", "/welcome/{token}", "/f/{factory}/deliveries/live"})
"""Pages that show nothing of the store, and the stream, which does not end."""


class Service:
    """Both over one store. `places` are the variable parts of addresses: ids of things that exist."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.management = world.management
        self.api = Api(world)
        self.dashboard = Dashboard(world)
        # Each of the two made routes for itself alone.
        world.routes = Routes(
            IngressEndpoint(world.ingress, world.clock),
            lambda: True,
            self.api.make,
            self.dashboard.make,
            public_url=PUBLIC_URL,
        )
        stocked = Stocked(self.api, world.may)
        self.admin: Visitor = self.dashboard.member("admin@example.com", is_admin=True)
        self.places: dict[str, str] = {
            **stocked.places,
            "webhook": stocked.webhook.webhook.uid,
            "secret": stocked.secret_name,
        }

    def every_page(self) -> Iterator[tuple[str, Answer]]:
        """Every operation of the API that reads, and every page of the dashboard, with its answer."""
        for operation in api.operations(api.application()):
            if operation.method == "GET":
                path = operation.path.removeprefix(api.PREFIX).format(**self.places)
                yield path, self.api.get(path, key=self.api.admin)
        for page in dashboard.PAGES:
            if page.method == "GET" and page.path not in NOT_OPENED:
                path = page.path.format(**self.places)
                yield path, self.admin.get(path)

    def must_open(self) -> None:
        """Every list and every page opens, and nothing unforeseen happened before."""
        closed = {path: answer.status for path, answer in self.every_page() if answer.status not in OPENED}

        assert closed == {}
        assert self.api.unforeseen == []
        assert self.dashboard.failures == []


OPENED: Final = {200, 303, 308}
