"""Finds or installs strace, which shows the order of a program's system calls. Only it can detect a missing sync."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "strace"]


class StraceUnavailable(Exception):
    """There is no strace. The text says what was tried and what to do."""


def strace() -> str:
    """The path of strace. If it is missing, root installs it with apt-get. Raises `StraceUnavailable`."""
    with (Path(tempfile.gettempdir()) / "hookmill-strace.lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = shutil.which("strace") or _install()
    trial = subprocess.run([path, "-o", os.devnull, "true"], capture_output=True, text=True)
    if trial.returncode != 0:
        raise StraceUnavailable(
            f"{path} can't trace a process here: {trial.stderr.strip()[:300]}. These tests need it: allow ptrace "
            "(in a container: --cap-add SYS_PTRACE)."
        )
    return path


def _install() -> str:
    """Install strace, and return its path. Raises `StraceUnavailable`."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise StraceUnavailable(
            "There is no strace, and these tests need it. Install your system's package of that name. "
            "(If root runs the tests on Debian or Ubuntu, they install it.)"
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    failures = []
    for command in (INSTALL, ["apt-get", "update"], INSTALL):
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
        if (path := shutil.which("strace")) is not None:
            return path
        failures.append(f"`{' '.join(command)}`: {result.stderr.strip()[-200:]}")
    raise StraceUnavailable(f"There is no strace, and it could not be installed. {' '.join(failures)}")
