"""The detection of dead executors."""

import pytest

from hookmill.runs.heartbeats import Heartbeats
from hookmill.store.runs.executors import ExecutorId

A, B = ExecutorId("a"), ExecutorId("b")


def test_executor_without_a_new_heartbeat_for_the_timeout_is_dead():
    heartbeats = Heartbeats(6)

    results = [heartbeats.dead_executors({A: 1, B: second}, now=float(second)) for second in range(8)]

    assert results[:6] == [{}] * 6
    assert results[6:] == [{A: 1}, {A: 1}]


def test_new_heartbeat_restarts_the_timeout():
    heartbeats = Heartbeats(6)

    results = [heartbeats.dead_executors({A: second // 5}, now=float(second)) for second in range(40)]

    assert results == [{}] * 40


@pytest.mark.parametrize("clock_offset_us", [-(10**16), 10**16])
def test_clock_of_another_host_does_not_affect_death_detection(clock_offset_us):
    heartbeats = Heartbeats(6)

    results = [heartbeats.dead_executors({A: clock_offset_us + second}, now=float(second)) for second in range(10)]

    assert results == [{}] * 10


def test_executor_is_not_dead_if_its_heartbeats_were_not_watched():
    heartbeats = Heartbeats(6)
    heartbeats.dead_executors({A: 1}, now=0)
    heartbeats.dead_executors({A: 1}, now=1)

    assert heartbeats.dead_executors({A: 1}, now=301) == {}
    assert heartbeats.dead_executors({A: 1}, now=302) == {}


def test_first_observation_declares_no_executor_dead():
    assert Heartbeats(6).dead_executors({A: 1}, now=1_000_000) == {}
