"""Finds or installs a Chromium for the tests. Without one, the tests that need it fail."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = (
    # This one renders no window, and takes less than half the processor time of the others.
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
PACKAGES = ("chromium-headless-shell", "chromium")
INSTALL_SECONDS = 600


class BrowserUnavailable(Exception):
    """There is no Chromium, and none could be installed."""


def chromium() -> str:
    """The path of a Chromium: `$CHROMIUM`, the system's, Playwright's, or the distribution's, which is installed now.

    Raises `BrowserUnavailable`.
    """
    if path := os.environ.get("CHROMIUM") or _of_the_system() or _of_playwright():
        return path
    _install()
    if path := _of_the_system():
        return path
    raise BrowserUnavailable(
        "The tests of the dashboard need a Chromium. Install one (Debian: apt-get install chromium), "
        "or set CHROMIUM to the path of one."
    )


def _of_the_system() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _of_playwright() -> str | None:
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "~/.cache/ms-playwright")).expanduser()
    shells = sorted(cache.glob("chromium_headless_shell-*/chrome-*linux*/*headless*shell"))
    paths = shells or sorted(cache.glob("chromium-*/chrome-linux*/chrome"))
    return str(paths[-1]) if paths else None


def _install():
    """Install the distribution's package, if this is root on a system with apt-get. Otherwise, do nothing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    # One of the processes that run tests installs it, and the others wait.
    with Path(tempfile.gettempdir(), "hookmill-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        for command in (["apt-get", "update", "-qq"], *([*install, package] for package in PACKAGES)):
            if _of_the_system():
                return
            subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=INSTALL_SECONDS,
                check=False,
            )
