"""A lock that delays forks of this process while one of its threads writes a log line or opens a socket pair."""

import os
import threading

no_fork = threading.Lock()
"""Hold this lock while a log line is written or a socket pair is opened. Otherwise, a forked child could inherit a
half-written line, or one end of the pair."""

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)
