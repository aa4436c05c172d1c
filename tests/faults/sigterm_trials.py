"""Sends SIGTERM to an HTTP server at each line that it executes while it starts or replaces a process.

If the server does not stop in time, the trials print the line and end.
"""

import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from types import FrameType
from typing import Any

from granian import Granian
from granian.constants import Interfaces, Loops, RuntimeModes
from granian.log import LogLevels

from hookmill.app import http_server
from hookmill.app.http_server import HttpServer
from hookmill.app.stop_signals import STOP_SIGNALS
from hookmill.app.worker_process import StopSignal

STOP_SECONDS_MAX = 30.0
KILL_SECONDS = 60
"""After this time, the server kills a process that did not react to a signal. It is longer than `STOP_SECONDS_MAX`, so
that a kill can't hide a lost signal."""


class Situation(Enum):
    """What the server does while lines are counted. The value is the number of processes that are killed before."""

    PROCESS_STARTS = 0
    PROCESS_IS_REPLACED = 1
    SERVER_IS_REPLACED = 2

    @property
    def files(self) -> tuple[str, ...]:
        """The ends of the paths of the files whose lines are counted."""
        if self is Situation.PROCESS_STARTS:
            return ("/granian/server/mp.py", "/multiprocessing/process.py", "/hookmill/app/http_server.py")
        return ("/granian/server/common.py", "/hookmill/app/http_server.py")


class ReportingApplication:
    """Reports the id of its process when it starts."""

    def __init__(self, events: int):
        """`events` is the descriptor to which it reports."""
        self._events = events

    async def __call__(
        self, _scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ):
        await receive()
        http_server.pass_on_first_signal()
        os.write(self._events, b"started %d\n" % os.getpid())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


class Trial:
    """One server, which gets SIGTERM at the line with this number."""

    def __init__(self, situation: Situation, line: int, port: int):
        self._situation = situation
        self._line = line
        self._lines_left = line
        self._port = port
        self._supervisor = os.getpid()
        self._is_counting = situation is Situation.PROCESS_STARTS
        self._place: str | None = None
        self._has_ended = threading.Event()
        self._reading, self._events = os.pipe()

    def reaches_line(self) -> bool:
        """Run the server until it has stopped. Returns whether it executed the line."""
        # The previous trial may have sent the signal twice.
        signal.sigtimedwait(STOP_SIGNALS, 0)
        controller = threading.Thread(target=self._control)
        controller.start()
        sys.settrace(self._trace)
        try:
            http_server.serve_until_interrupted(self._create_server, lambda: ReportingApplication(self._events))
        finally:
            sys.settrace(None)
            self._has_ended.set()
            controller.join()
            os.close(self._events)
            os.close(self._reading)
        return self._place is not None

    def _create_server(self) -> HttpServer:
        return Granian(
            "a trial",
            interface=Interfaces.ASGI,
            port=self._port,
            loop=Loops.uvloop,
            runtime_mode=RuntimeModes.st,
            log_level=LogLevels.critical,
            respawn_failed_workers=True,
            workers_kill_timeout=KILL_SECONDS,
        )

    def _control(self):
        """Kill processes until the situation is reached. Stop a server that does not reach the line."""
        kills_left = self._situation.value
        stopped_at: float | None = None
        while not self._has_ended.is_set():
            if select.select([self._reading], [], [], 0.05)[0]:
                for event in os.read(self._reading, 1_000).decode().splitlines():
                    name, _, value = event.partition(" ")
                    if name == "reached":
                        self._place, stopped_at = value, time.monotonic()
                    elif kills_left:
                        kills_left -= 1
                        self._is_counting = not kills_left
                        os.kill(int(value), signal.SIGKILL)
                    elif stopped_at is None:
                        self._is_counting = False
                        stopped_at = time.monotonic()
                        os.kill(self._supervisor, signal.SIGTERM)
            if stopped_at is not None and time.monotonic() - stopped_at > STOP_SECONDS_MAX:
                print(f"SIGTERM was lost at line {self._line}, {self._place} ({self._situation.name})", flush=True)
                os.killpg(0, signal.SIGKILL)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(self._situation.files):
            return None
        is_supervisor = os.getpid() == self._supervisor
        if event == "line" and self._is_counting and is_supervisor is not (self._situation is Situation.PROCESS_STARTS):
            self._lines_left -= 1
            if not self._lines_left:
                os.write(self._events, f"reached {frame.f_code.co_filename}:{frame.f_lineno}\n".encode())
                os.kill(self._supervisor, signal.SIGTERM)
                if not is_supervisor:
                    self._wait_for_signal()
        return self._trace

    def _wait_for_signal(self):
        """Wait at this line until the supervisor has passed the signal on to this process."""
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline and signal.SIGTERM not in signal.sigpending():
            time.sleep(0.002)


def stop_worker_at_every_line():
    """Send SIGTERM to a worker at each line that it executes while it waits. Prints the number of trials."""
    trials = 0
    while _waiting_worker_reaches(trials + 1):
        trials += 1
    print(f"stopped {trials} times", flush=True)


def _waiting_worker_reaches(line: int) -> bool:
    """Let a worker wait until SIGTERM stops it at the line with this number. Returns whether it executed this line."""
    stop = StopSignal()
    has_stopped = threading.Event()
    lines_left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines_left
        if frame.f_code.co_filename.endswith(("/threading.py", "/hookmill/app/worker_process.py")) and event == "line":
            lines_left -= 1
            if not lines_left:
                os.kill(os.getpid(), signal.SIGTERM)
        return trace

    def control():
        # While a worker waits, it executes few lines or none.
        if not has_stopped.wait(1) and lines_left > 0:
            os.kill(os.getpid(), signal.SIGTERM)
        if not has_stopped.wait(STOP_SECONDS_MAX):
            print(f"SIGTERM was lost at line {line} of the worker", flush=True)
            os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: stop.send())
    controller = threading.Thread(target=control)
    controller.start()
    sys.settrace(trace)
    stop.wait()
    sys.settrace(None)
    has_stopped.set()
    controller.join()
    return lines_left <= 0


def stop_server_at_every_line(step: int, situation: Situation, port: int):
    """Send SIGTERM to a server at each line, or if `step` is 2 at every other line. Prints the number of trials."""
    multiprocessing.set_start_method("fork", force=True)
    http_server.RESTART_SECONDS = http_server.STOP_INTERVAL_SECONDS = 0.01  # type: ignore[misc]
    http_server.block_stop_signals()
    trials = 0
    while Trial(situation, 1 + trials * step, port).reaches_line():
        trials += 1
    print(f"stopped {trials} times", flush=True)
