"""Runs the HTTP server until SIGINT, SIGTERM or SIGHUP, and restarts it if it ends by itself. No signal is lost.

The server handles signals with Python's signal handlers. Such a handler runs some time after the signal, and a process
that is forked in between never runs it. The server's main loop could also overlook what a handler has set. So these
signals are blocked: the kernel keeps them until a thread waits for them.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from granian.server.common import AbstractServer

from hookmill.app import log
from hookmill.app.stop_signals import STOP_SIGNALS, signals_to_obey

HttpServer: TypeAlias = AbstractServer[Any]
RESTART_SECONDS: Final = 1.0
"""The pause before the HTTP server is restarted."""
STOP_INTERVAL_SECONDS: Final = 0.1
"""Interval between orders to stop, because the server's main loop may overlook one."""


def block_stop_signals() -> None:
    """Keep `STOP_SIGNALS` until a thread waits for them.

    Call it before this process has threads. Threads and forked processes inherit this.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def serve_until_interrupted(
    create_server: Callable[[], HttpServer],
    create_application: Callable[[], Any],
    *,
    is_restartable: Callable[[], bool] = lambda: True,
) -> None:
    """Run the HTTP server until one of `signals_to_obey`, and restart it if it ends by itself.

    Call `block_stop_signals` before. The server ends if one of its processes ends twice within seconds. If
    `is_restartable` then returns False, this raises `SystemExit`. `create_application` is called in each process of the
    server. The application must call `pass_on_first_signal`.
    """
    # The server itself will handle SIGHUP, and restart its processes.
    obeyed_signals = signals_to_obey()
    server = create_server()
    is_interrupted, has_ended = threading.Event(), threading.Event()

    def stop_after_signal() -> None:
        signal.sigwait(obeyed_signals)
        is_interrupted.set()
        while not has_ended.wait(STOP_INTERVAL_SECONDS):
            server.interrupt_signal = True
            server.main_loop_interrupt.set()

    threading.Thread(target=stop_after_signal, name="signals", daemon=True).start()
    try:
        while True:
            try:
                server.serve(target_loader=create_application, wrap_loader=False)
            except SystemExit:
                if not is_restartable() and not is_interrupted.is_set():
                    raise
            if is_interrupted.is_set():
                return
            log.error("ingress", "the ingress ended repeatedly; restarting it")
            time.sleep(RESTART_SECONDS)
            server = create_server()
    finally:
        has_ended.set()


def pass_on_first_signal() -> None:
    """Let the first SIGTERM stop this process of the server. Later signals have no effect.

    SIGINT never stops it: Ctrl-C also reaches the supervisor, which then sends SIGTERM. Otherwise, the supervisor would
    report an unexpected end.

    The application calls this when it starts. The server's handlers alone would lose a signal while the event loop does
    not run. And two signals within milliseconds, such as those of a service manager and of the supervisor, could block
    the process.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        number = signal.sigwait([signal.SIGTERM])
        # The loop is closed if the process is ending for another reason.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, number)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _deliver(number: int) -> None:
    """Signal this process. Runs in the event loop's thread, which gets the signals. So the loop still runs."""
    # The signal is still blocked. So it is delivered once, even if it has come again meanwhile.
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
