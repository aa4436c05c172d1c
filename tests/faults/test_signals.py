"""SIGTERM stops the service at any line that it executes while it starts an ingress process.

Ctrl-C, and the end of the terminal, stop it, too.
"""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.faults.sigterm_trials import Situation, stop_server_at_every_line, stop_worker_at_every_line
from tests.support.counts import count
from tests.support.loaded import Command, Forked, hookmill
from tests.support.ports import free_port
from tests.support.service import Service, serving
from tests.support.waiting import LONG_SECONDS, until

LINE_STEPS = {
    Situation.PROCESS_STARTS: count(1, usually=9),
    Situation.PROCESS_IS_REPLACED: count(1, usually=4),
    Situation.SERVER_IS_REPLACED: count(1, usually=23),
}
"""The distance of the lines that are tried. A replaced server executes many lines, and most only assign settings."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("situation", list(Situation))
def test_sigterm_at_any_line_stops_the_server(situation, tmp_path):
    output = tmp_path / "output"
    arguments = (LINE_STEPS[situation], situation, free_port())
    Forked(stop_server_at_every_line, arguments, os.environ, tmp_path, output).wait(280)

    assert count_trials(output) * LINE_STEPS[situation] > 20


def test_sigterm_at_any_line_stops_a_worker(tmp_path):
    output = tmp_path / "output"
    Forked(stop_worker_at_every_line, (), os.environ, tmp_path, output).wait(60)

    assert count_trials(output) > 3


# SIGHUP: the terminal is closed.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signal_of_a_terminal_stops_all_processes_without_an_error(tmp_path, number):
    service = Service(tmp_path / "data").start()
    assert service.process is not None

    # It reaches the whole process group.
    os.killpg(service.process.pid, number)

    assert service.process.wait(LONG_SECONDS) == 0, service.log()
    assert "ERROR" not in service.log()
    assert '"level": "error"' not in service.log()


def test_closed_terminal_stops_a_separate_worker(tmp_path, postgres_url):
    with serving(tmp_path / "data", database_url=postgres_url, performs_runs=False) as service:
        (tmp_path / "output").touch()
        worker = Command(["worker"], service.environment(), tmp_path, tmp_path / "output")
        until(lambda: "Performing" in (tmp_path / "output").read_text(), "the worker performs runs")
        worker.send_signal(signal.SIGHUP)

        assert worker.wait(LONG_SECONDS) == 0, (tmp_path / "output").read_text()


def serve_with_nohup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    hookmill("serve")


def test_service_with_nohup_survives_its_terminal(tmp_path):
    service = Service(tmp_path / "data", port=free_port())
    service.data_dir.mkdir()
    process = Forked(serve_with_nohup, (), service.environment(), service.data_dir, service.log_path)
    try:
        until(lambda: "is ready at" in service.log(), service.log)
        ingress = psutil.Process(process.pid).children()
        os.killpg(process.pid, signal.SIGHUP)

        # The signal is pending, so nothing waits for it.
        until(lambda: "ShdPnd:\t0000000000000001\n" in Path(f"/proc/{process.pid}/status").read_text(), "it is pending")
        assert service.request("GET", "/readyz").status == 200
        assert psutil.Process(process.pid).children() == ingress
    finally:
        process.terminate()
        assert process.wait(LONG_SECONDS) == 0


def count_trials(output: Path) -> int:
    *_, last = output.read_text().splitlines()
    print(last)
    assert last.startswith("stopped ")
    return int(last.split()[1])
