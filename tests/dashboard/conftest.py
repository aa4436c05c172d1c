"""A browser, and an installation whose dashboard it opens.

A test fails if one of its pages shows a dialog, reports an error, or sends a request to another host.
"""

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Dialog,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from hookmill.domain.permission import MayAdminister, MayManage, Role
from hookmill.domain.secret import SecretValue
from hookmill.management import Management, WebhookWithSecret
from tests.dashboard.client import PASSWORD, Dashboard, Visitor, dashboard_for_test
from tests.support.browser import chromium
from tests.support.counts import are_full
from tests.support.passwords import quick_passwords
from tests.support.service import Service, operator, serving
from tests.support.waiting import LONG_SECONDS

__all__ = ["PASSWORD", "quick_passwords"]

SCREENSHOTS = Path(os.environ.get("HOOKMILL_TEST_SCREENSHOTS", "test-artefacts/screenshots"))
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-gpu-rasterization",
    # This prevents a spare renderer process. Each profile has a renderer of its own in spite of this limit.
    "--renderer-process-limit=1",
]
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 360, "height": 740}
# Options of axe-core.
ALL_RULES: dict[str, Any] = {}
CONTRAST: dict[str, Any] = {"runOnly": ["color-contrast"]}
"""The only rule whose result depends on the colour scheme."""
ALL_BUT_CONTRAST: dict[str, Any] = {"rules": {"color-contrast": {"enabled": False}}}
"""The contrast rule takes longer than all others together, and pages share their colours."""
CACHE_COLOURS = """() => {
    const { prototype } = axe.commons.color.Color, { parseString } = prototype, cache = new Map();
    prototype.parseString = function (text) {
        if (!cache.has(text)) {
            parseString.call(this, text);
            cache.set(text, [this.red, this.green, this.blue, this.alpha]);
        }
        [this.red, this.green, this.blue, this.alpha] = cache.get(text);
        return this;
    };
}"""
"""A page has a dozen colours, and axe-core parses them again for every element."""


# This limits how long a failing test waits. Tests of a delay measure the time themselves.
expect.set_options(timeout=1_000 * LONG_SECONDS)


@pytest.fixture(scope="session")
def browser_and_loop() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """A browser for the tests of all files, and its event loop. Starting it takes longer than most tests."""
    with sync_playwright() as playwright:
        loop = asyncio.get_running_loop()
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=CHROMIUM_ARGUMENTS, timeout=1_000 * LONG_SECONDS
        )
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def browser(browser_and_loop: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser. Its loop is this thread's running loop only during one file, because other files run their own."""
    browser, loop = browser_and_loop
    asyncio._set_running_loop(loop)
    yield browser
    for context in browser.contexts:
        context.close()
    asyncio._set_running_loop(None)


@dataclass(slots=True)
class Installation:
    """A running service, and the management operations on its store."""

    service: Service
    management: Management
    other_url: str = "data:"
    """The beginning of URLs of another host that pages may open."""

    @property
    def may(self) -> MayManage:
        """Permission for the factory `default`."""
        return operator(self.management)

    @property
    def may_administer(self) -> MayAdminister:
        return self.management.access.operator_of_team()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def url(self, path: str) -> str:
        return self.base_url + path

    def webhook(self, name: str, **fields: Any) -> WebhookWithSecret:
        return self.management.webhooks.create(self.may, {"name": name, **fields})


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A service on SQLite for the tests of one file, with an admin, ada@example.com."""
    data_dir = tmp_path_factory.mktemp("installation") / "data"
    repositories = '{"app": {"url": "https://git.example.com/app.git"}}'
    with serving(data_dir, repositories=repositories) as service, service.management() as management:
        create_first_admin(management)
        yield Installation(service, management)


def create_first_admin(management: Management) -> SecretValue:
    """Create the admin ada@example.com. Returns the token of a session."""
    link = management.sessions.create_first_link()
    assert link is not None
    return management.sessions.accept_link(
        link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
    )


class Profile:
    """A profile of the browser. `problems` are console messages, errors, dialogs, and requests to other hosts."""

    def __init__(self, browser: Browser, installation: Installation, **options: Any) -> None:
        self.problems: list[str] = []
        self._installation = installation
        self.context = browser.new_context(base_url=installation.base_url, **options)
        self.context.set_default_timeout(1_000 * LONG_SECONDS)
        self.context.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        self.context.on("weberror", lambda error: self.problems.append(f"error: {error.error}"))
        self.context.on("dialog", self._dismiss)
        self.context.on("request", self._check_host)

    def _dismiss(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check_host(self, request: Request) -> None:
        installation = self._installation
        if not request.url.startswith((installation.base_url, installation.other_url, "data:", "blob:")):
            self.problems.append(f"request to another host: {request.url[:200]}")

    def take_problems(self) -> list[str]:
        """Return the problems since the last call, without messages of the browser that tests cause on purpose."""
        # Tests request pages with an error status, and focus a field before the page focuses its first one.
        ignored = ("Failed to load resource: the server responded", "Autofocus processing was blocked")
        problems = [problem for problem in self.problems if not any(text in problem for text in ignored)]
        self.problems.clear()
        return problems


@pytest.fixture
def new_profile(browser: Browser, installation: Installation) -> Iterator[Callable[..., BrowserContext]]:
    """Creates profiles of the browser. Nobody is signed in to them."""
    profiles: list[Profile] = []

    def create(**options: Any) -> BrowserContext:
        profiles.append(Profile(browser, installation, **options))
        return profiles[-1].context

    yield create
    for profile in profiles:
        profile.context.close()
    assert [problem for profile in profiles for problem in profile.take_problems()] == []


def sign_in(page: Page, installation: Installation, email: str = "ada@example.com") -> None:
    page.goto("/sign-in")
    enter_credentials(page, email)
    page.wait_for_url(re.compile(r"/(f/|$)"))


def enter_credentials(page: Page, email: str = "ada@example.com") -> None:
    """Fill in and send the form of the sign-in page."""
    email_field = page.get_by_label("E-mail address")
    # The page focuses the field at its first rendering, which may be late in a background tab.
    expect(email_field).to_be_focused()
    email_field.fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def expect_text(page: Page, text: str) -> None:
    expect(page.get_by_text(text)).to_be_visible()


def expect_heading(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def sign_in_new_viewer(page: Page, installation: Installation, email: str, name: str) -> None:
    """Create a viewer of the factory `default`, and sign in as this member."""
    installation.management.members.add(installation.may_administer, email, name)
    installation.management.members.set_role(installation.may_administer, email, "default", Role.VIEWER)
    link = installation.management.sessions.create_link(installation.may_administer, email)
    installation.management.sessions.accept_link(link.reveal(), password=PASSWORD, client=None)
    sign_in(page, installation, email)


@pytest.fixture(scope="module")
def signed_in_state(installation: Installation) -> Any:
    """The cookies of a browser in which the admin is signed in with a password."""
    session = installation.management.sessions.sign_in("ada@example.com", PASSWORD, client=None)
    assert session is not None
    return {"cookies": [{"name": "hookmill", "value": session.reveal(), "domain": "127.0.0.1", "path": "/"}]}


@pytest.fixture(scope="module")
def shared_profile(browser: Browser, installation: Installation) -> Iterator[Profile]:
    """A profile for the tests of one file: creating one takes longer than opening a page.

    One page stays open, because the renderer process ends with its last page.
    """
    profile = Profile(browser, installation)
    profile.context.new_page()
    yield profile
    profile.context.close()


@pytest.fixture
def admin_profile(shared_profile: Profile, signed_in_state: Any) -> Iterator[BrowserContext]:
    """The shared profile, in which the admin is signed in and no page of an earlier test is open."""
    context = shared_profile.context
    restore_cookies(context, signed_in_state)
    yield context
    for page in context.pages[1:]:
        page.close()
    assert shared_profile.take_problems() == []


def restore_cookies(context: BrowserContext, state: Any) -> None:
    context.clear_cookies()
    context.add_cookies(state["cookies"])


@pytest.fixture
def page(admin_profile: BrowserContext) -> Page:
    """An empty page of a browser in which the admin is signed in."""
    return admin_profile.new_page()


@pytest.fixture
def signed_out_page(new_profile: Callable[..., BrowserContext]) -> Page:
    """An empty page of a browser in which nobody is signed in."""
    return new_profile().new_page()


@pytest.fixture
def check_accessibility(
    new_profile: Callable[..., BrowserContext],
    admin_profile: BrowserContext,
    signed_in_state: Any,
    installation: Installation,
) -> Callable[..., None]:
    """Checks a page with axe-core, and that it doesn't scroll sideways on a narrow screen.

    With full counts, it checks each page in both colour schemes and both widths, and saves screenshots. Otherwise, it
    checks one page in two, each in one combination of these, and the contrast of one in three of them.
    """

    def check(name: str, path: str, *, signed_in: bool = True, prepare: Callable[[Page], None] | None = None) -> None:
        context = admin_profile if signed_in else new_profile()
        page = context.new_page()
        page.set_viewport_size(WIDE)
        page.goto(path)
        if prepare is not None:
            prepare(page)
        if are_full():
            _check_rules(page, f"{name}-light", ALL_RULES)
            page.emulate_media(color_scheme="dark")
            _check_rules(page, f"{name}-dark", CONTRAST)
            page.emulate_media(color_scheme="light")
            page.set_viewport_size(NARROW)
            _check_rules(page, f"{name}-narrow", ALL_RULES)
        elif (number := crc32(name.encode())) & 4:
            is_narrow, is_dark, rules = number & 1, number & 2, ALL_BUT_CONTRAST if number % 3 else ALL_RULES
            page.emulate_media(color_scheme="dark" if is_dark else "light")
            page.set_viewport_size(NARROW if is_narrow else WIDE)
            _check_rules(page, f"{name}-{'narrow' if is_narrow else 'wide'}-{'dark' if is_dark else 'light'}", rules)
        page.set_viewport_size(NARROW)
        overflow = overflow_pixels(page)
        assert overflow <= 0, f"{name} is {overflow} px wider than a narrow screen"
        # Otherwise, a live page would continue to poll.
        page.close()
        restore_cookies(admin_profile, signed_in_state)

    return check


def overflow_pixels(page: Page) -> int:
    """By how much the page is wider than the screen."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def _check_rules(page: Page, name: str, rules: dict[str, Any]) -> None:
    # `evaluate` uses the debugger, so the content security policy does not block it.
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(AXE_SCRIPT)
        page.evaluate(CACHE_COLOURS)
    if are_full():
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        _save_screenshot(page, SCREENSHOTS / f"{name}.png")
    assert accessibility_violations(page, rules) == [], name


def _save_screenshot(page: Page, path: Path) -> None:
    """Save an image of the whole page. Playwright's own function compresses it more, which takes longer."""
    debugger = page.context.new_cdp_session(page)
    screenshot = debugger.send("Page.captureScreenshot", {"captureBeyondViewport": True, "optimizeForSpeed": True})
    debugger.detach()
    path.write_bytes(base64.b64decode(screenshot["data"]))


def accessibility_violations(page: Page, rules: dict[str, Any]) -> list[str]:
    """The serious and critical violations that axe-core detects, each with its element. The page must load it first."""
    # Listing what passes takes long. Preloading serves only rules about autoplay, which are less than serious, and
    # about screen orientation, which are off.
    options = rules | {"resultTypes": ["violations"], "preload": False}
    violations = page.evaluate("options => axe.run(options).then((results) => results.violations)", options)
    return [
        f"{violation['id']}: {json.dumps(node['target'])} {node.get('failureSummary', '')}"
        for violation in violations
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


# Without a browser


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def viewer(dashboard: Dashboard) -> Visitor:
    return dashboard.member("viewer@example.com", roles={"default": Role.VIEWER})


@pytest.fixture
def manager(dashboard: Dashboard) -> Visitor:
    return dashboard.member("manager@example.com", roles={"default": Role.MANAGER})


@pytest.fixture
def admin(dashboard: Dashboard) -> Visitor:
    return dashboard.member("admin@example.com", is_admin=True)
