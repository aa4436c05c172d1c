"""A pull request arrives, and the service reports the run to GitHub, also after kill -9. See also test_review.py."""

import json
import os
import threading

import pytest

from hookmill.app import open_store
from hookmill.app.worker_process import StopSignal, work
from hookmill.settings import read_settings
from tests.support.counts import only_in_proof
from tests.support.loaded import Forked
from tests.support.waiting import LONG_SECONDS


def work_until_ready(started_by_serve: bool):
    """Start a worker, print the names of its threads, and stop it."""
    settings = read_settings()
    open_store(settings, create=True).close()
    stop = StopSignal()
    stop.send(grace_seconds=0)
    work(
        settings,
        stop,
        lambda: print("threads:", sorted({thread.name for thread in threading.enumerate()}), flush=True),
        build="0123456789ab",
        started_by_serve=started_by_serve,
    )


@pytest.mark.parametrize(("started_by_serve", "sends_results"), [(True, False), only_in_proof(False, True)])
def test_only_workers_that_perform_runs_send_results(tmp_path, started_by_serve, sends_results):
    destination = {"kind": "webhook", "url": "https://ci.example.com/hook", "secret_from": "CI_SECRET"}
    environment = os.environ | {
        "HOOKMILL_DATA_DIR": str(tmp_path / "data"),
        "HOOKMILL_PERFORMS_RUNS": "false",
        "HOOKMILL_DESTINATIONS": json.dumps({"ci": destination}),
    }

    worker = Forked(work_until_ready, (started_by_serve,), environment, tmp_path, tmp_path / "output")

    assert worker.wait(LONG_SECONDS) == 0, (tmp_path / "output").read_text()
    threads = (tmp_path / "output").read_text()
    assert "'alarm destinations'" in threads
    assert ("'results'" in threads) is sends_results
