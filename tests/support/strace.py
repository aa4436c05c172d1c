"""strace, which shows in what order a program asks the kernel for things: nothing else tells a sync that is missing
from one that is there."""

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
    """Where it is. As root on Debian and its like it is installed if it is missing; elsewhere it must be there."""
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
            "(As root on Debian or Ubuntu they would do so themselves.)"
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    tried = []
    for command in (INSTALL, ["apt-get", "update"], INSTALL):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
        if (found := shutil.which("strace")) is not None:
            return found
        tried.append(f"`{' '.join(command)}`: {done.stderr.strip()[-200:]}")
    raise StraceUnavailable(f"There is no strace, and it could not be installed. {' '.join(tried)}")
