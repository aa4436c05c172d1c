"""Programs that npm installs into a cache."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.debian import ProgramUnavailable
from tests.support.program_cache import cached

INSTALL_SECONDS: Final = 400


def npm_package(package: str) -> Path:
    """The directory in which npm has installed this package, such as `name@1.0`. Raises `ProgramUnavailable`.

    Its programs are in `node_modules/.bin`.
    """
    return cached(package.rpartition("/")[2], lambda content: _install(package, content))


def _install(package: str, content: Path):
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramUnavailable(f"The tests install {package} with npm, and there is no npm. Install Node.js.")
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


def linked(tree: Path, directory: Path) -> Path:
    """The tree at a path that another account can reach, unlike the cache."""

    def link(source: str, target: str):
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, target, follow_symlinks=False)

    return Path(shutil.copytree(tree, directory, symlinks=True, copy_function=link))
