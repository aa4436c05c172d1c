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
        found = shutil.which("strace") or _installed()
    works = subprocess.run([found, "-o", os.devnull, "true"], capture_output=True, text=True)
    if works.returncode != 0:
        raise StraceUnavailable(
            f"{found} can't trace a process here: {works.stderr.strip()[:300]}. These tests need it: allow ptrace "
            "(in a container: --cap-add SYS_PTRACE)."
        )
    return found


def _installed() -> str:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise StraceUnavailable(
            "There is no strace, and these tests need it. Install your system's package of that name. "
            "(If root runs the tests on Debian or Ubuntu, they install it.)"
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    tried = []
    for command in (INSTALL, ["apt-get", "update"], INSTALL):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
        if (found := shutil.which("strace")) is not None:
            return found
        tried.append(f"`{' '.join(command)}`: {done.stderr.strip()[-200:]}")
    raise StraceUnavailable(f"There is no strace, and it could not be installed. {' '.join(tried)}")
