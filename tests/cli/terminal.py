"""A terminal of a test's own, and what a command sends to it."""

import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl


def on_terminal(*arguments: str, columns: int = 80) -> str:
    """What a terminal of that width is sent."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    command = [sys.executable, "-m", "hookmill", *arguments]
    environment["TERM"] = "xterm-256color"
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    sent = b""
    try:
        while piece := os.read(ours, 65_536):
            sent += piece
    except OSError:
        # Linux reports the closed terminal as an error.
        pass
    assert process.wait(30) == 0, sent.decode()
    os.close(ours)
    return sent.decode().replace("\r\n", "\n")
