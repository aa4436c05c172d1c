"""Lowers the resource limits of running processes, so that their system calls fail."""

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg

CRASH_SECONDS_MAX = 10.0


@contextlib.contextmanager
def lowered_limit(pid: int, kind: int, limit: int) -> Iterator[None]:
    """Lower a soft limit of the process, such as `RLIMIT_FSIZE` or `RLIMIT_NOFILE`, while the block runs."""
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (limit, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, before)


def crash_postgresql_by_failed_writes(url: str) -> bool:
    """Let file writes of the database's server processes fail, as on a full disk, until the server has crashed.

    One of them fails to write the write-ahead log. The server then ends all of them, and recovers. Returns False if
    nothing was written in time. The tests must run as root or as the account of the server, and need `prlimit` of
    util-linux.
    """
    with psycopg.connect(url, autocommit=True) as observer:
        deadline = time.monotonic() + CRASH_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                processes = observer.execute(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                ).fetchall()
            except psycopg.OperationalError:
                return True
            for (pid,) in processes:
                _let_writes_fail(pid)
            time.sleep(0.02)
    return False


def _let_writes_fail(pid: int):
    """Limit the size of files to one byte. The server ignores SIGXFSZ, so its writes fail."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        user, group = process.uids().real, process.gids().real
        # Only the account of the process may change its limits. Root would need a capability that containers lack.
        account: dict[str, Any] = {} if user == os.geteuid() else {"user": user, "group": group, "extra_groups": []}
        command = ["prlimit", f"--pid={pid}", "--fsize=1:"]
        completed = subprocess.run(command, **account, cwd="/", capture_output=True, text=True, timeout=10)
        assert completed.returncode == 0 or not psutil.pid_exists(pid), completed.stderr
