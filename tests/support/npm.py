"""Programs that npm installs into a cache."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support.debian import ProgramUnavailable

INSTALL_SECONDS: Final = 400


def npm_package(package: str) -> Path:
    """The directory in which npm has installed this package, such as `name@1.0`. Raises `ProgramUnavailable`.

    Its programs are in `node_modules/.bin`.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = caches / "hookmill-tests" / package.rpartition("/")[2]
    cache.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{cache}.lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            _install(package, cache)
    return cache


def _install(package: str, cache: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramUnavailable(f"The tests install {package} with npm, and there is no npm. Install Node.js.")
    with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
        content = Path(directory, "content")
        content.mkdir()
        process = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", content, package],
            cwd=content,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
        if process.returncode != 0:
            raise ProgramUnavailable(f"npm could not install {package}: {process.stderr.strip()[-400:]}")
        content.rename(cache)


def linked(tree: Path, directory: Path) -> Path:
    """The tree at a path that another account can reach, unlike the cache."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, target, follow_symlinks=False)

    return Path(shutil.copytree(tree, directory, symlinks=True, copy_function=link))
