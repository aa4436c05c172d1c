"""Shortens the deadlines of a service under test before its command begins, so that tests wait for seconds only.

`ShortDeadlineService` adds this file to PYTHONPATH. The command and the code that applies the deadlines are the real
ones.
"""

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

from hookmill.app import connections, serve
from hookmill.store.admission import writer
from hookmill.web import delivery_body

# While the service waits for its parts to be ready, its clock advances by an hour each second.
vars(serve)["time"] = SimpleNamespace(monotonic=lambda: 3600 * time.monotonic(), sleep=time.sleep)
vars(serve)["HEADER_MILLISECONDS"] = int(os.environ["HOOKMILL_TEST_HEADER_MILLISECONDS"])
vars(delivery_body)["BODY_SECONDS"] = float(os.environ["HOOKMILL_TEST_BODY_SECONDS"])

vars(connections)["WRITE_SECONDS"] = float(os.environ["HOOKMILL_TEST_WRITE_SECONDS"])
vars(connections)["CHECK_UNCROWDED_SECONDS"] = 0.5

main = writer.main


def start_late(channel: socket.socket, url: str):
    while not Path(os.environ["HOOKMILL_TEST_WRITER_GATE"]).exists():
        time.sleep(0.01)
    main(channel, url)


writer.main = start_late
