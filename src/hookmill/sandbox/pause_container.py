"""The network of a container whose command may reach permitted destinations only.

An engine can't wait between the creation of a network and the start of the command in it. So a first container, the
pause container, has the network, with only a loopback, and executes the image's `sleep`. When the proxy listens there,
a second container joins this network, and executes the command.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from hookmill.sandbox import NOT_STARTED
from hookmill.sandbox.launch import start_egress

PAUSE_ARGV: Final = ("sleep", "2147483647")
"""The command of the pause container. Not every `sleep` knows `infinity`."""
ANSWER_BYTES_MAX: Final = 1_000
START_SECONDS_MAX: Final = 5.0
"""How long the process of a started pause container may take until it executes `sleep`."""


def prepare_network(spec: Mapping[str, Any], has_begun: Callable[[], None]) -> None:
    """Start the pause container and the proxy. If this fails, print the reason and end this process with `NOT_STARTED`.

    The spec: `pause` (the command line that starts the pause container), `inspect` (the one that prints its process id)
    and `egress` (as for `create_sandbox`). `has_begun` is called when the engine's client has started. Raises `OSError`
    if it can't be started.
    """
    with subprocess.Popen(spec["pause"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as client:
        has_begun()
    if client.returncode != 0:
        _refuse("its pause container could not be started")
    try:
        start_egress(_pause_process(spec["inspect"]), spec["egress"])
    except OSError as error:
        _refuse(error.strerror or str(error))


def _pause_process(inspect: Sequence[str]) -> int:
    """The process of the pause container on this machine. Raises `OSError`."""
    command_line = "".join(f"{argument}\0" for argument in PAUSE_ARGV).encode()
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        answer = subprocess.run(inspect, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout[:ANSWER_BYTES_MAX]
        try:
            process = int(answer)
            with open(f"/proc/{process}/cmdline", "rb") as file:  # noqa: PTH123 - pathlib loads slowly
                # The engine may be on another machine, where the number means another process.
                if file.read() == command_line:
                    return process
        except (OSError, ValueError):
            pass
        # The client of the engine may end before the process executes `sleep`.
        time.sleep(0.02)
    raise OSError(0, "its pause container has no process on this machine")


def _refuse(reason: str) -> NoReturn:
    print(
        f"The container's network could not be limited to network_allow, so it was not started: {reason}.", flush=True
    )
    os._exit(NOT_STARTED)
