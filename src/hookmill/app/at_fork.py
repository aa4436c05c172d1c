"""What must not be under way in any thread of a process while that process forks."""

import os
import threading

no_fork = threading.Lock()
"""Held while something is written or opened that a copy of this process must not have half of; forking waits for it."""

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)
