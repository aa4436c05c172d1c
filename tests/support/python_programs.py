"""A Python for other accounts, and programs that uv installs into a cache, each in an environment of its own."""

import shutil
from pathlib import Path

from scripts import bootstrap
from tests.support.debian import ProgramUnavailable
from tests.support.program_cache import cached


def python() -> str:
    """A Python that every account can execute. The one that performs the tests may be in a home directory."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    assert found is not None, "Install Python in /usr: the tests need one that sandboxes contain."
    return found


def python_package(package: str) -> Path:
    """A virtual environment with this package, such as `name==1.0`. It may be moved. Raises `ProgramUnavailable`.

    Its programs are in `bin`. They use the interpreter `python`, which the environment does not contain.
    """
    return cached(package.replace("==", "@"), lambda content: _install(package, content))


def _install(package: str, content: Path):
    try:
        bootstrap.install_uv()
        bootstrap.uv("venv", "--no-project", "--relocatable", "--python", python(), content)
        bootstrap.uv("pip", "install", "--compile-bytecode", "--python", content / "bin" / "python", package)
    except SystemExit as error:
        raise ProgramUnavailable(f"uv could not install {package}. {error}") from None
