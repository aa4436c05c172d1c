"""SIGTERM stops the service at any line that it executes while it starts an ingress process, and Ctrl-C stops it."""

import os
import signal
from pathlib import Path

import pytest

from tests.faults.sigterm_trials import Situation, stop_server_at_every_line, stop_worker_at_every_line
from tests.support.counts import count
from tests.support.loaded import Forked
from tests.support.ports import free_port
from tests.support.service import Service
from tests.support.waiting import LONG_SECONDS

LINE_STEPS = {
    Situation.PROCESS_STARTS: count(1, usually=9),
    Situation.PROCESS_IS_REPLACED: count(1, usually=4),
    Situation.SERVER_IS_REPLACED: count(1, usually=23),
}
"""The distance of the lines that are tried. A replaced server executes many lines, and most only assign settings."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("situation", list(Situation))
def test_sigterm_at_any_line_stops_the_server(situation: Situation, tmp_path: Path):
    output = tmp_path / "output"
    arguments = (LINE_STEPS[situation], situation, free_port())
    Forked(stop_server_at_every_line, arguments, os.environ, tmp_path, output).wait(280)

    assert count_trials(output) * LINE_STEPS[situation] > 20


def test_sigterm_at_any_line_stops_a_worker(tmp_path: Path):
    output = tmp_path / "output"
    Forked(stop_worker_at_every_line, (), os.environ, tmp_path, output).wait(60)

    assert count_trials(output) > 3


def count_trials(output: Path) -> int:
    *_, last = output.read_text().splitlines()
    print(last)
    assert last.startswith("stopped ")
    return int(last.split()[1])


def test_ctrl_c_stops_all_processes_without_an_error(tmp_path: Path):
    service = Service(tmp_path / "data").start()
    assert service.process is not None

    # Ctrl-C reaches the whole process group.
    os.killpg(service.process.pid, signal.SIGINT)

    assert service.process.wait(LONG_SECONDS) == 0, service.log()
    assert "ERROR" not in service.log()
