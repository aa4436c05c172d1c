"""Programs of Debian's packages. They are unpacked into a cache. Installing a package would start its service."""

import fcntl
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.program_cache import cached

DOWNLOAD_SECONDS: Final = 400
_DIRECTORIES: Final = ("usr/bin", "usr/sbin", "bin", "sbin")


class ProgramUnavailable(Exception):
    """There is no such program. The text says what was tried and what to do."""


def program(name: str, *, package: str) -> str:
    """The path of a program: the system's, or the one of Debian's package, which is unpacked now.

    Raises `ProgramUnavailable`.
    """
    if installed := shutil.which(name, path=os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"):
        return installed
    content = unpacked(package)
    found = shutil.which(name, path=os.pathsep.join(str(content / directory) for directory in _DIRECTORIES))
    if found is None:
        raise ProgramUnavailable(f"The package {package} contains no {name}. Install {name} on this system.")
    return found


def unpacked(package: str) -> Path:
    """The directory with the content of one of Debian's packages. It is unpacked now, if it has not been before.

    Raises `ProgramUnavailable`.
    """
    return cached(package, partial(_unpack, package))


def _unpack(package: str, content: Path):
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ProgramUnavailable(
            f"There is no {package}, and these tests need it. Install your system's package of that name. (On Debian "
            "and Ubuntu, the tests download it.)"
        )
    tried = []
    directory = content.parent
    with (directory.parent / "apt-get.lock").open("ab") as lock:
        # If two `apt-get update` run at the same time, one fails.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["apt-get", "download", package], ["apt-get", "update"], ["apt-get", "download", package]):
            process = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
            if archives := list(directory.glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", archives[0], content], check=True, timeout=DOWNLOAD_SECONDS)
                return
            tried.append(f"`{' '.join(command)}`: {process.stderr.strip()[-200:]}")
    raise ProgramUnavailable(f"There is no {package}, and it could not be downloaded. {' '.join(tried)}")
