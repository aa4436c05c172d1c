"""Opens the standard streams that the process was started without, such as with `>&-` or by some supervisors."""

import os
import sys


def open_missing_streams() -> None:
    """Open /dev/null for each closed standard stream. Call it before the process opens anything.

    Otherwise, the next opened files and sockets would get these descriptors, and Python has no stream to print to.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    # Python sets a stream to None if its descriptor was closed.
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
