"""What must not be under way in any thread of a process while that process forks."""

import os
import threading

whole = threading.Lock()
"""Held by whoever writes or opens something that a copy of this process must not have half of; forking waits for it."""

os.register_at_fork(before=whole.acquire, after_in_parent=whole.release, after_in_child=whole.release)
