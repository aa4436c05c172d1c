"""Shortens the service's deadlines as its interpreter starts, so that a test needn't wait as long as an attacker must.

Only PYTHONPATH leads here: the command, the wiring and the code that keeps the deadlines are the real ones.
"""

import os
import sys
import time

COMMAND = " ".join(sys.orig_argv)

if COMMAND.endswith(" serve") or "multiprocessing" in COMMAND:
    from hookmill.app import serve
    from hookmill.web import ingress

    vars(serve)["HEADER_MILLISECONDS"] = int(os.environ["HOOKMILL_TEST_HEADER_MILLISECONDS"])
    vars(ingress)["BODY_SECONDS"] = float(os.environ["HOOKMILL_TEST_BODY_SECONDS"])

if "hookmill.store.writer" in COMMAND:
    time.sleep(float(os.environ["HOOKMILL_TEST_WRITER_SECONDS"]))
