"""SIGTERM at any line around the start of an ingress process stops the service."""

import os
from pathlib import Path

import pytest

from tests.faults.signalled import Situation, stop_at_every_line, stop_waiting_at_every_line
from tests.support.counts import count
from tests.support.loaded import Forked
from tests.support.ports import free_port

STEP = {
    Situation.PROCESS_STARTS: count(1, usually=5),
    Situation.PROCESS_IS_REPLACED: count(1, usually=2),
    Situation.SERVER_IS_REPLACED: count(1, usually=11),
}
"""Of a replaced server the lines are many, and most of them only assign settings."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("situation", list(Situation))
def test_sigterm_at_any_line_stops_the_server(situation: Situation, tmp_path: Path):
    output = tmp_path / "output"
    Forked(stop_at_every_line, (STEP[situation], situation, free_port()), os.environ, tmp_path, output).wait(280)

    assert trials(output) * STEP[situation] > 20


def test_sigterm_at_any_line_stops_a_worker(tmp_path: Path):
    output = tmp_path / "output"
    Forked(stop_waiting_at_every_line, (), os.environ, tmp_path, output).wait(60)

    assert trials(output) > 3


def trials(output: Path) -> int:
    *_, last = output.read_text().splitlines()
    print(last)
    assert last.startswith("stopped ")
    return int(last.split()[1])
