"""The dashboard in the test's own process, in front of a real store, and people who look at it without a browser."""

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
"""What `World` says the service is called."""


class Dashboard:
    """The whole service in this process, with the dashboard in it."""

    def __init__(self, world: World, *, is_https: bool = False, **process: Any) -> None:
        """`process` has the arguments of `build` about the process: `settings` and `has_room`."""
        self.world = world
        self.management = world.management
        self.is_https = is_https
        self.team = world.management.access.operator_of_team()
        self.unforeseen: list[tuple[str, BaseException]] = []

        def make() -> Application:
            return build(
                world.management,
                trusted_proxies=[ip_network("192.0.2.0/24")],
                now_us=world.clock,
                report_failure=lambda where, error: self.unforeseen.append((where, error)),
                is_https=is_https,
                **process,
            )

        self.make = make
        world.routes = Routes(
            IngressEndpoint(world.ingress, world.clock), lambda: True, None, make, public_url=PUBLIC_URL
        )
        self.stranger = Visitor(self, None)

    def member(
        self, email: str, *, is_admin: bool = False, roles: Mapping[str, Role] | None = None, name: str = "Somebody"
    ) -> "Visitor":
        """Somebody new in the team, signed in."""
        self.management.members.add(self.team, email, name, is_admin=is_admin)
        for factory, role in (roles or {}).items():
            self.management.members.set_role(self.team, email, factory, role)
        link = self.management.sessions.create_link(self.team, email).reveal()
        return Visitor(self, self.management.sessions.accept_link(link, password=PASSWORD, client=None).reveal())

    def audit_lines(self) -> int:
        return len(self.management.audit.of_team(self.team, limit=10_000))


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody's browser, as far as the server can tell."""

    dashboard: Dashboard
    session: str | None

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Body = b"",
    ) -> Answer:
        given = list(headers)
        names = {name.lower() for name, _ in given}
        if self.session is not None and "cookie" not in names:
            given.append(("Cookie", f"{cookie_name(self.dashboard.is_https)}={self.session}"))
        if "x-forwarded-for" not in names:
            given.append(("X-Forwarded-For", "203.0.113.9"))
        return self.dashboard.world.request(method, path, headers=given, body=body)

    def get(self, path: str, **choices: Any) -> Answer:
        return self.ask("GET", path, **choices)

    def post(
        self,
        path: str,
        fields: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        *,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """A form, as a page of the service sends it."""
        pairs = list(fields.items() if isinstance(fields, Mapping) else fields)
        if self.session is not None:
            pairs.append(("csrf", csrf_token_of(self.session)))
        ours = [("Content-Type", FORM), ("Sec-Fetch-Site", "same-origin"), ("Origin", f"https://{HOST}")]
        named = {name.lower() for name, _ in headers}
        return self.ask(
            "POST",
            path,
            headers=[*(pair for pair in ours if pair[0].lower() not in named), *headers],
            body=urlencode(pairs).encode(),
        )


@dataclass(frozen=True, slots=True)
class Element:
    tag: str
    attributes: Mapping[str, str]


_BLOCKS: Final = {"dd", "div", "dt", "li", "p", "td", "th"}


class Elements(HTMLParser):
    """Every element of a page, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[Element] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        self.text += " " if tag in _BLOCKS else ""
        self.found.append(Element(tag, {name: value or "" for name, value in attributes}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[Element]:
        return [each for each in self.found if each.tag == tag]


def is_sign_in(answer: Answer) -> bool:
    """Whether the visitor is sent to sign in, and not there because they signed out."""
    place, _, query = answer.headers.get("location", "").partition("?")
    return answer.status == 303 and place == "/sign-in" and "flash=" not in query


def living(url: str, make: Callable[[World], Dashboard] = Dashboard) -> Iterator[Dashboard]:
    """A dashboard for as long as a test lasts, in which nothing unforeseen may happen."""
    world = World(url)
    try:
        dashboard = make(world)
        yield dashboard
        assert dashboard.unforeseen == []
    finally:
        world.close()
