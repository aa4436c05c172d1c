"""A Python for other accounts, and programs that uv installs into a cache, each in an environment of its own."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from scripts import bootstrap
from tests.support.debian import ProgramUnavailable


def python() -> str:
    """A Python that every account can execute. The one that performs the tests may be in a home directory."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    assert found is not None, "Install Python in /usr: the tests need one that sandboxes contain."
    return found


def python_package(package: str) -> Path:
    """A virtual environment with this package, such as `name==1.0`. It may be moved. Raises `ProgramUnavailable`.

    Its programs are in `bin`. They use the interpreter `python`, which the environment does not contain.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = caches / "hookmill-tests" / package.replace("==", "@")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{cache}.lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            _install(package, cache)
    return cache


def _install(package: str, cache: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
        content = Path(directory, "content")
        try:
            bootstrap.install_uv()
            bootstrap.uv("venv", "--no-project", "--relocatable", "--python", python(), content)
            bootstrap.uv("pip", "install", "--compile-bytecode", "--python", content / "bin" / "python", package)
        except SystemExit as error:
            raise ProgramUnavailable(f"uv could not install {package}. {error}") from None
        content.rename(cache)
