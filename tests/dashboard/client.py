"""The dashboard in the test's own process, with a real store, and visitors that send requests without a browser."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlencode

from hookmill.domain.permission import Role
from hookmill.web.dashboard import build
from hookmill.web.dashboard.access import cookie_name
from hookmill.web.dashboard.page_context import csrf_token_of
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import Application, Routes
from tests.support.service import Answer
from tests.support.world import PUBLIC_URL, Body, World

PASSWORD = "correct horse battery staple"
FORM = "application/x-www-form-urlencoded"
HOST = "hooks.test"
"""The host in `PUBLIC_URL`."""


class Dashboard:
    """The whole service in this process, with the dashboard. `failures` are the errors that the dashboard reported."""

    def __init__(self, world: World, *, is_https: bool = False, **process: Any) -> None:
        """`process` has the arguments of `build` that describe the process: `settings`, `has_room` and `provider`."""
        self.world = world
        self.management = world.management
        self.is_https = is_https
        self.may_administer = world.management.access.operator_of_team()
        self.failures: list[tuple[str, BaseException]] = []

        def make() -> Application:
            return build(
                world.management,
                trusted_proxies=[ip_network("192.0.2.0/24")],
                now_us=world.clock,
                report_failure=lambda where, error: self.failures.append((where, error)),
                is_https=is_https,
                **process,
            )

        self.make = make
        world.routes = Routes(
            IngressEndpoint(world.ingress, world.clock), lambda: True, None, make, public_url=PUBLIC_URL
        )
        self.unauthenticated = Visitor(self, None)

    def member(
        self, email: str, *, is_admin: bool = False, roles: Mapping[str, Role] | None = None, name: str = "Somebody"
    ) -> "Visitor":
        """A new member of the team, signed in."""
        self.management.members.add(self.may_administer, email, name, is_admin=is_admin)
        for factory, role in (roles or {}).items():
            self.management.members.set_role(self.may_administer, email, factory, role)
        link = self.management.sessions.create_link(self.may_administer, email).reveal()
        return Visitor(self, self.management.sessions.accept_link(link, password=PASSWORD, client=None).reveal())

    def audit_entry_count(self) -> int:
        return len(self.management.audit.of_team(self.may_administer, limit=10_000))


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client that sends requests as a browser does, with its session cookie if it has a session."""

    dashboard: Dashboard
    session: str | None

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Body = b"",
    ) -> Answer:
        all_headers = list(headers)
        names = {name.lower() for name, _ in headers}
        if self.session is not None and "cookie" not in names:
            all_headers.append(("Cookie", f"{cookie_name(self.dashboard.is_https)}={self.session}"))
        if "x-forwarded-for" not in names:
            all_headers.append(("X-Forwarded-For", "203.0.113.9"))
        return self.dashboard.world.request(method, path, headers=all_headers, body=body)

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def post(
        self,
        path: str,
        fields: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        *,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """Send a form as a page of the service does. `headers` replace the browser's headers of the same names."""
        pairs = list(fields.items() if isinstance(fields, Mapping) else fields)
        if self.session is not None:
            pairs.append(("csrf", csrf_token_of(self.session)))
        browser_headers = [("Content-Type", FORM), ("Sec-Fetch-Site", "same-origin"), ("Origin", f"https://{HOST}")]
        names = {name.lower() for name, _ in headers}
        return self.request(
            "POST",
            path,
            headers=[*(pair for pair in browser_headers if pair[0].lower() not in names), *headers],
            body=urlencode(pairs).encode(),
        )


@dataclass(frozen=True, slots=True)
class Element:
    tag: str
    attributes: Mapping[str, str]


_BLOCKS: Final = {"dd", "div", "dt", "li", "p", "td", "th"}


class Elements(HTMLParser):
    """All elements of a page, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.all: list[Element] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        self.text += " " if tag in _BLOCKS else ""
        self.all.append(Element(tag, {name: value or "" for name, value in attributes}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def with_tag(self, tag: str) -> list[Element]:
        return [element for element in self.all if element.tag == tag]


def text_of(page: bytes) -> str:
    """The text of a page, with single spaces."""
    return " ".join(Elements(page).text.split())


def redirects_to_sign_in(answer: Answer) -> bool:
    """Whether the visitor must sign in first. False for the redirect after a sign-out."""
    path, _, query = answer.headers.get("location", "").partition("?")
    return answer.status == 303 and path == "/sign-in" and "flash=signed-out" not in query


def dashboard_for_test(url: str, create: Callable[[World], Dashboard] = Dashboard) -> Iterator[Dashboard]:
    """A dashboard for one test. The test fails if the dashboard reports a failure."""
    world = World(url)
    try:
        dashboard = create(world)
        yield dashboard
        assert dashboard.failures == []
    finally:
        world.close()
