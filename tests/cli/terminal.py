"""Runs a command on a pseudo-terminal."""

import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from fcntl import ioctl


def terminal_output(*arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """The output of the command on a terminal with 80 columns. `variables` are added to its environment."""
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    command = [sys.executable, "-m", "hookmill", *arguments]
    environment |= {"TERM": "xterm-256color", **(variables or {})}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(controller, 65_536):
            output += chunk
    except OSError:
        # Linux reports the closed terminal as an error.
        pass
    assert process.wait(30) == 0, output.decode()
    os.close(controller)
    return output.decode().replace("\r\n", "\n")
