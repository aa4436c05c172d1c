"""Creates .venv from a lock file. It needs only Python and pip: `bootstrap.py run|dev|lock`.

`run` installs what the service needs, and `dev` also what tests and checks need. `lock` writes the lock files.

.venv is a link to the environment in use. Another set of packages gets a new environment, and the old one stays until
`make clean`: a running service loads some of its modules later.
"""

import fcntl
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = ROOT / ".tools"
VENV: Final = ROOT / ".venv"
ENVIRONMENTS: Final = TOOLS / "environments"
STAMP: Final = ".stamp"
"""The file in a complete environment that identifies its content."""
UV: Final = TOOLS / "bin" / "uv"
# In an activated environment, this is the Python that the environment was created from.
PYTHON: Final = str(Path(sys.executable).resolve())
SERVICE_LOCK: Final = ROOT / "requirements.lock"
BUILD_LOCK: Final = ROOT / "requirements-build.lock"
DEV_LOCK: Final = ROOT / "requirements-dev.lock"
TOOLS_LOCK: Final = ROOT / "requirements-tools.lock"
LOCKS: Final = {"run": (SERVICE_LOCK, BUILD_LOCK), "dev": (DEV_LOCK,)}
LOCKED: Final = ["--require-hashes", "--only-binary", ":all:"]
"""Options for installing exactly what a lock file contains."""
COMPILE: Final = (
    "pip compile --quiet --universal --python-version 3.11 --generate-hashes --only-binary :all:"
    " --no-header --no-annotate"
).split()


def install(purpose: str) -> None:
    """Make .venv an environment with what the lock files list, for this Python. `dev` includes `run`."""
    current = {each: _fingerprint(*locks, ROOT / "pyproject.toml") for each, locks in LOCKS.items()}
    usable = (current["dev"], current[purpose])
    if _stamp_of(VENV) in usable:
        return
    for fingerprint in usable:
        if _stamp_of(environment := _environment_of(fingerprint)) == fingerprint:
            _use(environment)
            return
    environment = _environment_of(current[purpose])
    names = " and ".join(lock.name for lock in LOCKS[purpose])
    print(f"hookmill: installing {names} into .venv", file=sys.stderr, flush=True)
    install_uv()
    # An incomplete one is in nobody's use.
    uv("venv", "--clear", "--no-project", "--prompt", "hookmill", "--python", PYTHON, environment)
    # Otherwise each of many test processes would compile the modules that it loads.
    compiled = ["--compile-bytecode"] if purpose == "dev" else []
    uv("pip", "sync", "--python", environment / "bin" / "python", *LOCKED, *compiled, *LOCKS[purpose])
    itself = ["--no-deps", "--no-build-isolation", "--offline", "-e"]
    uv("pip", "install", "--python", environment / "bin" / "python", *itself, ROOT)
    (environment / STAMP).write_text(current[purpose])
    _use(environment)


def _environment_of(fingerprint: str) -> Path:
    return ENVIRONMENTS / fingerprint[:16]


def _stamp_of(environment: Path) -> str:
    stamp = environment / STAMP
    return stamp.read_text() if stamp.exists() else ""


def _use(environment: Path) -> None:
    """Make .venv a link to the environment."""
    if VENV.is_dir() and not VENV.is_symlink():
        # An environment that something else has created there.
        VENV.rename(tempfile.mkdtemp(prefix="replaced-", dir=TOOLS))
    draft = TOOLS / "venv"
    draft.unlink(missing_ok=True)
    draft.symlink_to(environment.relative_to(ROOT))
    draft.replace(VENV)


def write_locks(options: list[str]) -> None:
    """Write the lock files from pyproject.toml. Versions that still fit stay. `options` are for `uv pip compile`."""
    install_uv()
    uv(*COMPILE, *options, "--group", "pyproject.toml:tools", "-o", TOOLS_LOCK.name)
    service = ["pyproject.toml", "--all-extras"]
    uv(*COMPILE, *options, *service, "-o", SERVICE_LOCK.name)
    uv(*COMPILE, *options, "--group", "pyproject.toml:build", "-c", SERVICE_LOCK.name, "-o", BUILD_LOCK.name)
    groups = ["--group", "build", "--group", "dev", "--group", "oracles"]
    pinned = ["-c", SERVICE_LOCK.name, "-c", BUILD_LOCK.name]
    uv(*COMPILE, *options, *service, *groups, *pinned, "-o", DEV_LOCK.name)


def install_uv() -> None:
    stamp = TOOLS / ".stamp"
    if stamp.exists() and stamp.read_text() == _fingerprint(TOOLS_LOCK):
        return
    call(PYTHON, "-m", "pip", "install", "--quiet", "--upgrade", "--target", TOOLS, *LOCKED, "-r", TOOLS_LOCK)
    stamp.write_text(_fingerprint(TOOLS_LOCK))


def uv(*arguments: str | Path) -> None:
    call(UV, *arguments, "--quiet")


def call(*command: str | Path) -> None:
    result = subprocess.run(command, cwd=ROOT, env=_environment(), stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(
            f"hookmill: set-up failed at `{' '.join(map(str, command[:4]))} …`. See the lines above; if the network "
            "was the reason, check it and pip's settings for a proxy or an index. Then run the command again."
        )


def _environment() -> dict[str, str]:
    """The environment for pip and uv, without variables that change where they install.

    uv gets pip's settings for its index and certificates.
    """
    excluded = (
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
        "PIP_REQUIRE_VIRTUALENV",
    )
    environment = {name: value for name, value in os.environ.items() if name not in excluded}
    listing = subprocess.run([PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    uv_names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "cert": "SSL_CERT_FILE"}
    for name, value in re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listing, re.MULTILINE):
        if name in uv_names:
            environment.setdefault(uv_names[name], value.replace("\\n", " ").strip())
    cache = Path(environment.get("UV_CACHE_DIR") or environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not os.access(next(path for path in (cache, *cache.parents) if path.exists()), os.W_OK):
        environment |= {"UV_NO_CACHE": "1", "PIP_NO_CACHE_DIR": "1"}
    return environment | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def _fingerprint(*files: Path) -> str:
    # .venv contains its own path and that of its Python. If one of them changes, .venv must be created again.
    identity = "\0".join((str(ROOT), PYTHON, sys.version, platform.machine()))
    return hashlib.sha256(identity.encode() + b"\0".join(file.read_bytes() for file in files)).hexdigest()


if __name__ == "__main__":
    TOOLS.mkdir(exist_ok=True)
    # Of two `make` commands at the same time, the second one waits, and then has nothing to do.
    with (TOOLS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if sys.argv[1] == "lock":
            write_locks(sys.argv[2:])
        else:
            install(sys.argv[1])
