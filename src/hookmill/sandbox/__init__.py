"""The sandbox of one command: starts bubblewrap, limits what is inside, and connects it to permitted destinations.

The guard of a command loads these modules, so they import little, and quickly.
"""

from typing import Final

PROXY_PORT: Final = 3128
"""The port of the proxy on the loopback of the sandbox."""
NOT_STARTED: Final = 125
"""The exit status if bubblewrap could not start the command. The output has bubblewrap's message."""
MEMORY_LIMIT: Final = "memory limit"
"""The reason for the end of a sandbox whose processes used too much memory together."""
DISK_LIMIT: Final = "disk limit"
"""The reason for the end of a sandbox whose directories used too much of the disk."""
