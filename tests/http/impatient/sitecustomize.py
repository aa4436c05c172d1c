"""Shortens the service's deadlines before its command begins, so that a test needn't wait as long as an attacker must.

Only PYTHONPATH leads here: the command, the wiring and the code that keeps the deadlines are the real ones.
"""

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

from hookmill.app import connections, serve
from hookmill.store.admission import writer
from hookmill.web import delivery_body

# While a start waits until it is ready, an hour passes every second.
vars(serve)["time"] = SimpleNamespace(monotonic=lambda: 3600 * time.monotonic(), sleep=time.sleep)
vars(serve)["HEADER_MILLISECONDS"] = int(os.environ["HOOKMILL_TEST_HEADER_MILLISECONDS"])
vars(delivery_body)["BODY_SECONDS"] = float(os.environ["HOOKMILL_TEST_BODY_SECONDS"])

vars(connections)["WRITE_SECONDS"] = float(os.environ["HOOKMILL_TEST_WRITE_SECONDS"])
vars(connections)["CHECK_UNCROWDED_SECONDS"] = 0.5

main = writer.main


def late(channel: socket.socket, url: str) -> None:
    while not Path(os.environ["HOOKMILL_TEST_WRITER_GATE"]).exists():
        time.sleep(0.01)
    main(channel, url)


writer.main = late
