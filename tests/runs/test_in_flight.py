"""The runs that are in flight in this process, and the detection of dead executors."""

import pytest

from hookmill.domain.ids import RunKey
from hookmill.runs.in_flight import Heartbeats, InFlight
from hookmill.store.runs.executors import ExecutorId

A, B = ExecutorId("a"), ExecutorId("b")
KEY, OTHER = RunKey(b"one" * 4), RunKey(b"two" * 4)


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


def test_run_added_twice_is_in_flight_until_it_is_removed_twice():
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.add(KEY, 2)

    in_flight.remove(KEY)

    assert in_flight.count == 1
    assert in_flight.keys_not_in_flight([KEY, OTHER]) == {OTHER}
    in_flight.remove(KEY)
    assert in_flight.keys_not_in_flight([KEY]) == {KEY}
    assert in_flight.wait_until_empty(0)


def test_attempt_begins_only_once():
    in_flight = InFlight()
    in_flight.add(KEY, 2)

    assert not in_flight.begin(KEY, 1)
    assert [in_flight.begin(KEY, 2) for _ in range(2)] == [True, False]


def test_discarded_attempt_does_not_begin():
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.discard(KEY, 1)

    assert not in_flight.begin(KEY, 1)
    assert in_flight.count == 0


def test_discarded_attempt_stays_in_flight_if_it_had_begun():
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.begin(KEY, 1)
    in_flight.discard(KEY, 1)

    assert in_flight.count == 1


def test_run_claimed_again_with_the_same_attempt_begins_again():
    # After a host fault the run is requeued with the same attempt. It may be claimed before the first thread ends.
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.begin(KEY, 1)
    in_flight.add(KEY, 1)
    in_flight.remove(KEY)

    assert in_flight.begin(KEY, 1)


def test_wait_until_no_run_is_in_flight_ends_at_the_deadline():
    in_flight = InFlight()
    in_flight.add(KEY, 1)

    assert not in_flight.wait_until_empty(0.01)
