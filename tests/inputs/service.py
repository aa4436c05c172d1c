"""The API and the dashboard in the test's process, on one store that has one object of each kind."""

from collections.abc import Collection, Iterator
from typing import Final

from hookmill.web import api, dashboard
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import Routes
from tests.api.client import Api, StockedFactory
from tests.dashboard.client import Dashboard, Visitor
from tests.support.service import Answer
from tests.support.world import PUBLIC_URL, World

EXCLUDED_PAGES: Final = frozenset(
    {
        "/static/{digest}/{name}",
        "/welcome/{token}",
        "/sign-in/oidc",
        "/sign-in/oidc/callback",
        "/f/{factory}/deliveries/live",
    }
)
"""Pages that show nothing from the store, and the stream, which does not end."""
SUCCESS_STATUSES: Final = {200, 303, 308}


class InProcessService:
    """The API and the dashboard on one store. `path_values` has ids of existing objects, by the names in paths."""

    def __init__(self, world: World):
        self.world = world
        self.management = world.management
        self.api = Api(world)
        self.dashboard = Dashboard(world)
        # `Api` and `Dashboard` have each set routes without the other.
        world.routes = Routes(
            IngressEndpoint(world.ingress, world.clock),
            lambda: True,
            self.api.build_app,
            self.dashboard.make,
            public_url=PUBLIC_URL,
        )
        stocked = StockedFactory(self.api, world.may)
        world.management.secrets.create(world.may, "RUN_TOKEN", "given-secret", for_runs=True)
        self.admin: Visitor = self.dashboard.member("admin@example.com", is_admin=True)
        self.path_values: dict[str, str] = {
            **stocked.path_parameters,
            "webhook": stocked.webhook.webhook.uid,
            "secret": stocked.secret_name,
        }

    def get_everything(self, *variables: str) -> Iterator[tuple[str, Answer]]:
        """Send every GET request of the API and of the dashboard. Yields the path and the answer.

        With `variables`, such as `{run}`, only requests whose path has one of them.
        """

        def is_wanted(path: str) -> bool:
            return not variables or any(variable in path for variable in variables)

        for operation in api.operations(api.application()):
            if operation.method == "GET" and is_wanted(operation.path):
                path = operation.path.removeprefix(api.PREFIX).format(**self.path_values)
                yield path, self.api.get(path, key=self.api.admin)
        for page in dashboard.PAGES:
            if page.method == "GET" and page.path not in EXCLUDED_PAGES and is_wanted(page.path):
                path = page.path.format(**self.path_values)
                yield path, self.admin.get(path)

    def require_success_everywhere(self, *variables: str, except_for: Collection[str] = ()) -> None:
        """Require that every GET request succeeds, and that no request has failed unexpectedly.

        `variables`: those of `get_everything`. `except_for`: paths whose requests may be refused.
        """
        failures = {
            path: answer.status
            for path, answer in self.get_everything(*variables)
            if answer.status not in SUCCESS_STATUSES and path not in except_for
        }

        assert failures == {}
        assert self.api.unexpected_errors == []
        assert self.dashboard.failures == []
