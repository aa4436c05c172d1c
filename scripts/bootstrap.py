"""Makes .venv from the lock files, with nothing but Python and pip to start from.

`run` installs what the service needs, `dev` also what tests and checks need, `lock` writes the lock
files again. Where nothing has changed nothing is done: a stamp says what each thing was made from.
"""

import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = ROOT / ".tools"
VENV: Final = ROOT / ".venv"
UV: Final = TOOLS / "bin" / "uv"
LOG: Final = TOOLS / "setup.log"
# Behind an activated environment stands the Python that outlives it.
PYTHON: Final = str(Path(sys.executable).resolve())

TOOLS_LOCK: Final = ROOT / "requirements-tools.lock"
RUN_LOCK: Final = ROOT / "requirements.lock"
DEV_LOCK: Final = ROOT / "requirements-dev.lock"

TOOLS_STAMP: Final = TOOLS / ".stamp"
VENV_STAMP: Final = VENV / ".stamp-venv"
RUN_STAMP: Final = VENV / ".stamp-run"
DEV_STAMP: Final = VENV / ".stamp-dev"
PROJECT_STAMP: Final = VENV / ".stamp-project"

LOCKED: Final = "--require-hashes --only-binary :all:".split()
# Without headers and comments a lock reads the same wherever it was made; index addresses uv leaves out by itself.
COMPILE: Final = (
    "pip compile --quiet --universal --python-version 3.11 --generate-hashes --only-binary :all:"
    " --no-header --no-annotate"
).split()

NETWORK_ADVICE: Final = " Check the network (or pip's proxy and index settings), then run the same command again."

Command = Sequence[str | Path]


class SetupFailed(Exception):
    """Set-up cannot go on. The text says why, and what to do about it."""


def main(arguments: Sequence[str]) -> None:
    if os.name != "posix" or platform.python_implementation() != "CPython":
        raise SetupFailed("CPython on Linux or macOS is needed.")
    match arguments:
        case ["run"]:
            install_for_running()
        case ["dev"]:
            install_for_development()
        case ["lock", *options]:
            write_locks(options)
        case _:
            raise SetupFailed("say what to set up: run, dev or lock.")


def install_for_running() -> None:
    if runs_already() and project_is_current():
        return
    with set_up_alone():
        make_venv()
        if not runs_already():
            # `install` leaves alone what only development needs; `sync` would take it away.
            install_packages(RUN_LOCK, "install", "-r")
            write_stamp(RUN_STAMP, RUN_LOCK)
        install_project()


def install_for_development() -> None:
    if is_current(DEV_STAMP, DEV_LOCK) and project_is_current():
        return
    with set_up_alone():
        make_venv()
        if not is_current(DEV_STAMP, DEV_LOCK):
            # `sync` takes away all that the lock does not name, and so hookmill itself.
            PROJECT_STAMP.unlink(missing_ok=True)
            # As pip does. Else four test processes would compile at once what each of them loads.
            install_packages(DEV_LOCK, "sync", "--compile-bytecode")
            write_stamp(DEV_STAMP, DEV_LOCK)
        install_project()


def write_locks(options: Sequence[str]) -> None:
    """The three lock files, made again from pyproject.toml. A version stays as it is while it fits."""
    with set_up_alone():
        install_uv()
        compile_lock(TOOLS_LOCK, ["--group", "pyproject.toml:tools"], options)
        compile_lock(RUN_LOCK, ["pyproject.toml", "--group", "install"], options)
        groups = ["--group", "install", "--group", "dev", "--group", "oracles"]
        everything = ["pyproject.toml", *groups, "-c", RUN_LOCK.name]
        compile_lock(DEV_LOCK, everything, options)


def runs_already() -> bool:
    # What development needs contains what running needs.
    return is_current(RUN_STAMP, RUN_LOCK) or is_current(DEV_STAMP, DEV_LOCK)


def make_venv() -> None:
    install_uv()
    if has_stamp(VENV_STAMP, venv_fingerprint()):
        return
    say("making .venv")
    call([UV, "venv", "--quiet", "--clear", "--no-project", "--python", PYTHON, VENV], "make .venv")
    VENV_STAMP.write_text(venv_fingerprint())


def install_uv() -> None:
    wanted = fingerprint(TOOLS_LOCK.read_text(), platform.machine())
    if has_stamp(TOOLS_STAMP, wanted) and UV.exists():
        return
    python = next((each for each in (PYTHON, sys.executable) if has_pip(each)), None)
    if python is None:
        raise SetupFailed(f"{PYTHON} has no pip. Install it (Debian and Ubuntu: apt install python3-pip).")
    say("fetching uv")
    pip: Command = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--retries",
        "2",
        "--upgrade",
        "--target",
        TOOLS,
    ]
    call([*pip, *LOCKED, "-r", TOOLS_LOCK], "install uv", NETWORK_ADVICE)
    TOOLS_STAMP.write_text(wanted)


def install_packages(lock: Path, *command: str) -> None:
    packages = sum(1 for line in lock.read_text().splitlines() if "==" in line)
    say(f"installing {packages} packages from {lock.name}")
    name, *option = command
    uv: Command = [UV, "pip", name, "--quiet", "--python", VENV / "bin" / "python"]
    call([*uv, *LOCKED, *option, lock], "install the packages", NETWORK_ADVICE)


def install_project() -> None:
    """Puts the `hookmill` command and package into .venv, as links to this work tree."""
    if project_is_current():
        return
    uv: Command = [UV, "pip", "install", "--quiet", "--python", VENV / "bin" / "python"]
    options = ["--no-deps", "--no-build-isolation", "--offline", "--reinstall-package", "hookmill"]
    call([*uv, *options, "-e", ROOT], "install hookmill itself")
    PROJECT_STAMP.write_text(project_fingerprint())


def compile_lock(lock: Path, sources: Sequence[str], options: Sequence[str]) -> None:
    call([UV, *COMPILE, *options, *sources, "-o", lock.name], f"write {lock.name}", NETWORK_ADVICE)


def project_is_current() -> bool:
    return has_stamp(PROJECT_STAMP, project_fingerprint())


def is_current(stamp: Path, lock: Path) -> bool:
    return has_stamp(stamp, fingerprint(lock.read_text(), venv_fingerprint()))


def write_stamp(stamp: Path, lock: Path) -> None:
    stamp.write_text(fingerprint(lock.read_text(), venv_fingerprint()))


def has_stamp(stamp: Path, expected: str) -> bool:
    try:
        return stamp.read_text() == expected
    except FileNotFoundError:
        return False


def venv_fingerprint() -> str:
    # An environment names its own place and its Python's: moved or upgraded, it has to be made again.
    return fingerprint(str(ROOT), PYTHON, sys.version, platform.machine())


def project_fingerprint() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = [project["build-system"], project["project"], project["tool"]["hatch"]]
    version = (ROOT / "src" / "hookmill" / "__init__.py").read_text()
    return fingerprint(json.dumps(installed), version, venv_fingerprint())


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@contextmanager
def set_up_alone() -> Iterator[None]:
    """Two `make` commands at once take turns: the second finds the work done."""
    started = time.monotonic()
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        LOG.write_text("")
        yield
    say(f"done in {time.monotonic() - started:.1f} s")


def call(command: Command, purpose: str, advice: str = "") -> None:
    """Runs quietly. What the command says goes into the log; when it fails, its first complaint is shown."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    with LOG.open("a") as log:
        log.write(said)
    if done.returncode != 0:
        lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
        complaint = next((line for line in lines if line.lower().startswith("error")), lines[-1])
        raise SetupFailed(f"could not {purpose} ({complaint}).{advice} Details: .tools/{LOG.name}")


def has_pip(python: str) -> bool:
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


@functools.cache
def environment() -> dict[str, str]:
    """Our own environment without what would lead pip or uv elsewhere, or make them talk."""
    names = os.environ.copy()
    for foreign in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
        names.pop(foreign, None)
    names |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_NO_INPUT": "1",
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    cache = Path(names.get("UV_CACHE_DIR") or names.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not can_write_below(cache):
        names |= {"UV_NO_CACHE": "1", "PIP_NO_CACHE_DIR": "1"}
    return what_pip_is_told() | names


def what_pip_is_told() -> dict[str, str]:
    """pip's settings for reaching its index, in uv's words: one configuration is enough for both."""
    words = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "cert": "SSL_CERT_FILE"}
    listing = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(listing, capture_output=True, text=True).stdout
    settings = re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", told, re.MULTILINE)
    return {words[name]: value.replace("\\n", " ").strip() for name, value in settings if name in words}


def can_write_below(folder: Path) -> bool:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


def say(text: str) -> None:
    print(f"hookmill: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SetupFailed as failure:
        say(f"set-up failed: {failure}")
        sys.exit(1)
    except OSError as failure:
        say(f"set-up failed: {failure.strerror}: {failure.filename}")
        sys.exit(1)
