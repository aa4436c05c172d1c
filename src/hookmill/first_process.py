"""Lets `hookmill` be the first process of a container (PID 1).

The kernel gives orphans of the container to its first process, which must reap them. It also drops signals that this
process does not handle.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Final

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these signals to both processes."""


def continue_in_child_of_first_process() -> None:
    """In the first process of a container, return only in a child. The first process ends with the child's exit status.

    Call it before the process has threads. In any other process, it has no effect.
    """
    if os.getpid() != 1:
        return
    # Blocked signals wait for `sigwaitinfo`.
    original_mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *_PASSED_ON))
    # If SIGCHLD is ignored, the kernel drops the status of children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, original_mask)
        return
    # Loaded only here: few processes need it, and each command loads this module.
    from hookmill.prctl import protect_memory

    # The environment may contain keys.
    protect_memory()
    while True:
        received = signal.sigwaitinfo((signal.SIGCHLD, *_PASSED_ON))
        is_from_process = received.si_code <= 0
        if received.si_signo == signal.SIGCHLD:
            _reap(child)
        elif is_from_process or received.si_signo not in _FROM_TERMINAL:
            os.kill(child, received.si_signo)


def _reap(child: int) -> None:
    """Reap the processes that have ended. If one of them is the child, end with its exit status."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                # Like a shell, if a signal ended the child.
                sys.exit(code if code >= 0 else 128 - code)
