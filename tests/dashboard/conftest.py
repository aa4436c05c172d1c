"""A browser at the dashboard of a real service. Whatever a page complains of, or asks of others, fails its test."""

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

from hookmill.domain.permission import MayManage
from hookmill.management import Management
from tests.support.browser import chromium
from tests.support.counts import are_full
from tests.support.passwords import quick_passwords
from tests.support.service import Service, operator, serving
from tests.support.waiting import LONG_SECONDS

__all__ = ["quick_passwords"]

PASSWORD = "correct horse battery staple"
SCREENSHOTS = Path(os.environ.get("HOOKMILL_TEST_SCREENSHOTS", "test-artefacts/screenshots"))
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-gpu-rasterization",
    # None in reserve. Profiles don't share one, whatever the limit.
    "--renderer-process-limit=1",
]
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 360, "height": 740}
ALL_RULES: dict[str, Any] = {}
CONTRAST: dict[str, Any] = {"runOnly": ["color-contrast"]}
"""What another colour scheme can change."""
ALL_BUT_CONTRAST: dict[str, Any] = {"rules": {"color-contrast": {"enabled": False}}}
"""Contrast takes axe-core longer than everything else, and pages share their colours."""
REMEMBER_COLOURS = """() => {
    const { prototype } = axe.commons.color.Color, { parseString } = prototype, known = new Map();
    prototype.parseString = function (text) {
        if (!known.has(text)) {
            parseString.call(this, text);
            known.set(text, [this.red, this.green, this.blue, this.alpha]);
        }
        [this.red, this.green, this.blue, this.alpha] = known.get(text);
        return this;
    };
}"""
"""A page has a dozen colours, and axe-core reads them anew for every element."""


# What is waited for comes by itself; how soon is asked where a test says so.
expect.set_options(timeout=1_000 * LONG_SECONDS)


@pytest.fixture(scope="session")
def launched() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """A browser for all files' tests, as its start takes longer than most of them, and the loop that it needs."""
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
def browser(launched: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """For one file's tests: meanwhile an event loop runs in this thread. Other files' tests want their own."""
    browser, loop = launched
    asyncio._set_running_loop(loop)
    yield browser
    for context in browser.contexts:
        context.close()
    asyncio._set_running_loop(None)


@dataclass(slots=True)
class Installation:
    """A served installation, and how to get into it."""

    service: Service
    management: Management

    @property
    def may(self) -> MayManage:
        return operator(self.management)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def at(self, path: str) -> str:
        return self.address + path


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One service for a file's tests, on SQLite, with an admin, ada@example.com."""
    with serving(tmp_path_factory.mktemp("installation") / "data") as service, service.management() as management:
        link = management.sessions.create_first_link()
        assert link is not None
        management.sessions.accept_link(
            link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
        )
        yield Installation(service, management)


class Profile:
    """A browser's profile in which every complaint of a page is kept, and so is every request to elsewhere."""

    def __init__(self, browser: Browser, installation: Installation, **choices: Any) -> None:
        self.complaints: list[str] = []
        self._installation = installation
        self.context = browser.new_context(**choices)
        self.context.set_default_timeout(1_000 * LONG_SECONDS)
        self.context.on("console", lambda message: self.complaints.append(f"console: {message.text}"))
        self.context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))
        self.context.on("dialog", self._refuse)
        self.context.on("request", self._note_if_to_elsewhere)

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_if_to_elsewhere(self, request: Request) -> None:
        if not request.url.startswith((self._installation.address, "data:", "blob:")):
            self.complaints.append(f"request to elsewhere: {request.url[:200]}")

    def give_complaints(self) -> list[str]:
        """Those since the last time, without what the browser notes itself: an answer with an error status, which tests
        ask for on purpose, and that a test was faster with a field than the page was with its first one."""
        noted = ("Failed to load resource: the server responded", "Autofocus processing was blocked")
        given = [each for each in self.complaints if not any(note in each for note in noted)]
        self.complaints.clear()
        return given


@pytest.fixture
def new_profile(browser: Browser, installation: Installation) -> Iterator[Callable[..., BrowserContext]]:
    """Makes browsers' profiles."""
    profiles: list[Profile] = []

    def come(**choices: Any) -> BrowserContext:
        profiles.append(Profile(browser, installation, **choices))
        return profiles[-1].context

    yield come
    for profile in profiles:
        profile.context.close()
    assert [complaint for profile in profiles for complaint in profile.give_complaints()] == []


def sign_in(page: Page, installation: Installation, email: str = "ada@example.com") -> None:
    page.goto(installation.at("/sign-in"))
    enter_credentials(page, email)
    page.wait_for_url(re.compile(r"/(f/|$)"))


def enter_credentials(page: Page, email: str = "ada@example.com") -> None:
    """On the page for signing in."""
    address = page.get_by_label("E-mail address")
    # The page puts the focus there when it is drawn first, which may be late in a tab that was opened beside another.
    expect(address).to_be_focused()
    address.fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture(scope="module")
def signed_in_state(browser: Browser, installation: Installation) -> Any:
    """What the admin's browser holds after signing in once."""
    context = browser.new_context()
    page = context.new_page()
    sign_in(page, installation)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="module")
def kept_profile(browser: Browser, installation: Installation) -> Iterator[Profile]:
    """One for all of a file's tests, as a new one takes longer than to open a page. One page stays open: with the last
    would go the process that pages are drawn in."""
    profile = Profile(browser, installation)
    profile.context.new_page()
    yield profile
    profile.context.close()


@pytest.fixture
def admins_profile(kept_profile: Profile, signed_in_state: Any) -> Iterator[BrowserContext]:
    """In which the admin is signed in, and no page of an earlier test is open."""
    context = kept_profile.context
    sign_in_again(context, signed_in_state)
    yield context
    for page in context.pages[1:]:
        page.close()
    assert kept_profile.give_complaints() == []


def sign_in_again(context: BrowserContext, state: Any) -> None:
    context.clear_cookies()
    context.add_cookies(state["cookies"])


@pytest.fixture
def page(admins_profile: BrowserContext) -> Page:
    """The admin's browser, signed in."""
    return admins_profile.new_page()


@pytest.fixture
def signed_out_page(new_profile: Callable[..., BrowserContext]) -> Page:
    """Somebody's browser, not signed in."""
    return new_profile().new_page()


@pytest.fixture
def check_accessibility(
    new_profile: Callable[..., BrowserContext],
    admins_profile: BrowserContext,
    signed_in_state: Any,
    installation: Installation,
) -> Callable[..., None]:
    """Asks axe-core what shuts people out of a page, and that it is no wider than a narrow screen. With full counts it
    asks in light and dark, wide and narrow, and pictures are kept; else each page is asked about in one of these, and
    one in three pages about its contrasts."""

    def look(name: str, path: str, *, signed_in: bool = True, prepare: Callable[[Page], None] | None = None) -> None:
        context = admins_profile if signed_in else new_profile()
        page = context.new_page()
        page.set_viewport_size(WIDE)
        page.goto(installation.at(path))
        if prepare is not None:
            prepare(page)
        # The content security policy keeps scripts of others out, axe's too: the debugger may bring it all the same.
        page.evaluate(AXE_SCRIPT)
        page.evaluate(REMEMBER_COLOURS)
        if are_full():
            _look(page, f"{name}-light", ALL_RULES)
            page.emulate_media(color_scheme="dark")
            _look(page, f"{name}-dark", CONTRAST)
            page.emulate_media(color_scheme="light")
            page.set_viewport_size(NARROW)
            _look(page, f"{name}-narrow", ALL_RULES)
        else:
            number = crc32(name.encode())
            is_narrow, is_dark, rules = number & 1, number & 2, ALL_BUT_CONTRAST if number % 3 else ALL_RULES
            page.emulate_media(color_scheme="dark" if is_dark else "light")
            page.set_viewport_size(NARROW if is_narrow else WIDE)
            _look(page, f"{name}-{'narrow' if is_narrow else 'wide'}-{'dark' if is_dark else 'light'}", rules)
            page.set_viewport_size(NARROW)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} px wider than a narrow screen"
        # A page that stays open goes on asking for what is new.
        page.close()
        sign_in_again(admins_profile, signed_in_state)

    return look


def _look(page: Page, name: str, rules: dict[str, Any]) -> None:
    if are_full():
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        _keep_picture(page, SCREENSHOTS / f"{name}.png")
    assert findings(page, rules) == [], name


def _keep_picture(page: Page, path: Path) -> None:
    """Of the whole page. Playwright's own is packed closer, which takes more time than the picture."""
    debugger = page.context.new_cdp_session(page)
    taken = debugger.send("Page.captureScreenshot", {"captureBeyondViewport": True, "optimizeForSpeed": True})
    debugger.detach()
    path.write_bytes(base64.b64decode(taken["data"]))


def findings(page: Page, rules: dict[str, Any]) -> list[str]:
    """What axe-core, which is in the page, finds serious or critical, each with the element."""
    # What passes is longer than the page, and nobody reads it. What would be preloaded is for rules about playing by
    # itself, which are less than serious, and about turned screens, which are off.
    options = rules | {"resultTypes": ["violations"], "preload": False}
    found = page.evaluate("options => axe.run(options).then((results) => results.violations)", options)
    return [
        f"{each['id']}: {json.dumps(node['target'])} {node.get('failureSummary', '')}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]
