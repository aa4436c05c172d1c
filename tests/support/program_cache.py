"""Programs that are installed once, into a cache that all test processes share."""

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached(name: str, install: Callable[[Path], None]) -> Path:
    """The directory of this name in the cache. If it is missing, `install` creates a directory, which is then moved."""
    # Tests of root start these programs as an unprivileged account, which can't enter root's home.
    default = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or default) / "hookmill-tests" / name
    cache.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{cache}.lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
                content = Path(directory, "content")
                install(content)
                content.rename(cache)
    return cache
