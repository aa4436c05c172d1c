"""A browser at the dashboard of a real service. Whatever a page complains of, or asks of others, fails its test."""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Dialog,
    Page,
    Playwright,
    Request,
    ViewportSize,
    sync_playwright,
)

from hookmill.domain.permission import MayManage
from hookmill.management import Management
from tests.support.browser import chromium
from tests.support.service import Service, operator, serving

PASSWORD = "correct horse battery staple"
SCREENSHOTS = Path(os.environ.get("HOOKMILL_TEST_SCREENSHOTS", "test-artefacts/screenshots"))
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-gpu-rasterization"]
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 360, "height": 740}
ALL_RULES: dict[str, Any] = {}
CONTRAST: dict[str, Any] = {"runOnly": ["color-contrast"]}
"""What another colour scheme can change."""


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """For one file's tests: as long as it is there an event loop runs in this thread, and others want their own."""
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    launched = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGUMENTS)
    yield launched
    launched.close()


@dataclass(slots=True)
class House:
    """A served installation, and how to get into it."""

    service: Service
    management: Management
    complaints: list[str] = field(default_factory=list)

    @property
    def may(self) -> MayManage:
        return operator(self.management)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def at(self, path: str) -> str:
        return self.address + path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One service for a file's tests, on SQLite, with an admin, ada@example.com."""
    with serving(tmp_path_factory.mktemp("house") / "data") as service, service.management() as management:
        link = management.sessions.first_link()
        assert link is not None
        management.sessions.accept_link(
            link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
        )
        yield House(service, management)


@pytest.fixture
def visitor(browser: Browser, house: House) -> Iterator[Callable[..., BrowserContext]]:
    """Makes browsers' profiles. In each, every complaint of a page is kept, and so is every request to elsewhere."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def refuse(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def note_if_to_elsewhere(request: Request) -> None:
        if not request.url.startswith((house.address, "data:", "blob:")):
            complaints.append(f"request to elsewhere: {request.url[:200]}")

    def come(**choices: Any) -> BrowserContext:
        context = browser.new_context(**choices)
        context.set_default_timeout(10_000)
        context.on("console", lambda message: complaints.append(f"console: {message.text}"))
        context.on("weberror", lambda error: complaints.append(f"error: {error.error}"))
        context.on("dialog", refuse)
        context.on("request", note_if_to_elsewhere)
        contexts.append(context)
        return context

    yield come
    for context in contexts:
        context.close()
    # An answer with an error status is noted by the browser itself: tests ask for those on purpose.
    assert [each for each in complaints if "Failed to load resource: the server responded" not in each] == []


def sign_in(page: Page, house: House, email: str = "ada@example.com") -> None:
    page.goto(house.at("/sign-in"))
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(r"/(f/|$)"))


@pytest.fixture(scope="module")
def signed_in_state(browser: Browser, house: House) -> Any:
    """What the admin's browser holds after signing in once."""
    context = browser.new_context()
    page = context.new_page()
    sign_in(page, house)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(visitor: Callable[..., BrowserContext], signed_in_state: Any) -> Page:
    """The admin's browser, signed in."""
    return visitor(storage_state=signed_in_state).new_page()


@pytest.fixture
def stranger(visitor: Callable[..., BrowserContext]) -> Page:
    """Somebody's browser, not signed in."""
    return visitor().new_page()


@pytest.fixture
def looks(visitor: Callable[..., BrowserContext], signed_in_state: Any, house: House) -> Callable[..., None]:
    """Looks at a page in light and dark, wide and narrow: keeps pictures, and asks axe-core what shuts people out."""

    def look(
        name: str, path: str, *, state: Any = signed_in_state, prepare: Callable[[Page], None] | None = None
    ) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page = visitor(storage_state=state, viewport=WIDE).new_page()
        page.goto(house.at(path))
        if prepare is not None:
            prepare(page)
        _look(page, f"{name}-light", ALL_RULES)
        page.emulate_media(color_scheme="dark")
        _look(page, f"{name}-dark", CONTRAST)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(NARROW)
        _look(page, f"{name}-narrow", ALL_RULES)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} px wider than a narrow screen"

    return look


def _look(page: Page, name: str, rules: dict[str, Any]) -> None:
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
    assert findings(page, rules) == [], name


def findings(page: Page, rules: dict[str, Any]) -> list[str]:
    """What axe-core finds serious or critical, each with the element."""
    # The content security policy keeps scripts of others out, axe's too: it runs in a world of its own.
    found = Axe().run(page, options=rules | {"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']}: {json.dumps(node['target'])} {node.get('failureSummary', '')}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]
