"""Limits that the kernel sets to running processes, lowered until what they do fails."""

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg

CRASHED_SECONDS = 10.0


@contextlib.contextmanager
def lowered_limit(pid: int, limit: int, amount: int) -> Iterator[None]:
    """While the block runs, the process has this soft limit, such as `RLIMIT_FSIZE` or `RLIMIT_NOFILE`."""
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (amount, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, limit, before)


def break_log_of_postgresql(url: str) -> bool:
    """Keep the database's server processes from writing to files until the server has crashed, as on a full disk.

    One of them fails to write the write-ahead log. The server then ends all of them, and recovers. Returns False if
    nothing was written in time. Only root, or the account of the server, can do this, with `prlimit` of util-linux.
    """
    with psycopg.connect(url, autocommit=True) as witness:
        deadline = time.monotonic() + CRASHED_SECONDS
        while time.monotonic() < deadline:
            try:
                processes = witness.execute(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                ).fetchall()
            except psycopg.OperationalError:
                return True
            for (pid,) in processes:
                _forbid_writing(pid)
            time.sleep(0.02)
    return False


def _forbid_writing(pid: int) -> None:
    """Limit the files that the process writes to a byte. The server ignores SIGXFSZ, so its writes fail."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        user, group = process.uids().real, process.gids().real
        # Only the process's own account may set it, and root needs a capability that containers lack.
        account: dict[str, Any] = {} if user == os.geteuid() else {"user": user, "group": group, "extra_groups": []}
        command = ["prlimit", f"--pid={pid}", "--fsize=1:"]
        done = subprocess.run(command, **account, cwd="/", capture_output=True, text=True, timeout=10)
        assert done.returncode == 0 or not psutil.pid_exists(pid), done.stderr
