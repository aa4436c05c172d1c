"""The worker process as `serve` sees it. It loads the engine in its own process, and `serve` starts without."""

import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

from hookmill.app import log

DRAIN_SECONDS: Final = 10
"""How long runs under way may take to end when the service is told to stop."""
STOPPING_SECONDS: Final = 10
"""How long, after that, the process may take to leave what is not over for the next start."""
READY: Final = "ready"
LEAVE: Final = "leave"
WORKER: Final = (
    # A Ctrl-C at the terminal reaches every process of the service; the worker ends when `serve` lets it go.
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "from hookmill.app.worker_process import work_beside_serve; work_beside_serve()"
)


class Companion:
    """The worker process beside the ingress: kept alive while the service is, and let go with it.

    It is not part of the ingress process, whose interpreter every request needs: a run's work must not be felt there.
    """

    def __init__(self) -> None:
        self._leaving = threading.Event()
        self._ready = threading.Event()
        self._process = self._start()
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)
        self._watch.start()

    def close(self) -> None:
        self._leaving.set()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as line:
            line.write(LEAVE.encode())
        try:
            self._process.wait(DRAIN_SECONDS + STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def wait_until_ready(self, seconds: float) -> bool:
        return self._ready.wait(seconds)

    def _keep_alive(self) -> None:
        while True:
            assert self._process.stdout is not None
            if self._process.stdout.readline():
                self._ready.set()
            code = self._process.wait()
            if self._leaving.wait(1.0):
                return
            log.trouble("worker", f"the worker process ended with {code}; starting another")
            self._process = self._start()
