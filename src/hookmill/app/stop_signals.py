"""The signals that stop a service or a worker."""

import signal
from collections.abc import Sequence
from typing import Final

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP comes when the terminal is closed."""


def signals_to_obey() -> Sequence[signal.Signals]:
    """Those that stop this process. If it was started with `nohup`, it ignores SIGHUP."""
    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOP_SIGNALS if number is not signal.SIGHUP or not is_hangup_ignored]
