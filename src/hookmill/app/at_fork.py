"""A lock that keeps a process from forking while one of its threads writes or opens a file."""

import os
import threading

no_fork = threading.Lock()
"""Hold it while writing a log line or opening a socket pair: a forked child must not inherit half of either."""

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)
