"""Who has what, and who is dead."""

import pytest

from hookmill.domain.ids import RunKey
from hookmill.runs.in_flight import Heartbeats, InFlight
from hookmill.store.runs.executors import ExecutorId

A, B = ExecutorId("a"), ExecutorId("b")
KEY, OTHER = RunKey(b"one" * 4), RunKey(b"two" * 4)


def test_a_heartbeat_that_stands_still_for_long_enough_is_a_death():
    heartbeats = Heartbeats(6)

    judged = [heartbeats.dead_executors({A: 1, B: second}, now=float(second)) for second in range(8)]

    assert judged[:6] == [{}] * 6
    assert judged[6:] == [{A: 1}, {A: 1}]


def test_a_heartbeat_that_moves_starts_the_wait_again():
    heartbeats = Heartbeats(6)

    judged = [heartbeats.dead_executors({A: second // 5}, now=float(second)) for second in range(40)]

    assert judged == [{}] * 40


@pytest.mark.parametrize("years", [-10, 10])
def test_what_another_hosts_clock_says_does_not_matter(years):
    heartbeats = Heartbeats(6)

    judged = [heartbeats.dead_executors({A: years * 10**15 + second}, now=float(second)) for second in range(10)]

    assert judged == [{}] * 10


def test_who_did_not_look_on_has_seen_nobody_die():
    heartbeats = Heartbeats(6)
    heartbeats.dead_executors({A: 1}, now=0)
    heartbeats.dead_executors({A: 1}, now=1)

    assert heartbeats.dead_executors({A: 1}, now=301) == {}
    assert heartbeats.dead_executors({A: 1}, now=302) == {}


def test_a_new_process_reaps_nobody_before_it_watched():
    assert Heartbeats(6).dead_executors({A: 1}, now=1_000_000) == {}


def test_a_run_held_twice_is_in_flight_until_both_release_it():
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.add(KEY, 2)

    in_flight.remove(KEY)

    assert in_flight.count == 1
    assert in_flight.keys_not_in_flight([KEY, OTHER]) == {OTHER}
    in_flight.remove(KEY)
    assert in_flight.keys_not_in_flight([KEY]) == {KEY}
    assert in_flight.wait_until_empty(0)


def test_an_attempt_begins_once():
    in_flight = InFlight()
    in_flight.add(KEY, 2)

    assert not in_flight.begin(KEY, 1)
    assert [in_flight.begin(KEY, 2) for _ in range(2)] == [True, False]


def test_an_attempt_that_could_not_be_started_does_not_begin():
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.discard(KEY, 1)

    assert not in_flight.begin(KEY, 1)
    assert in_flight.count == 0


def test_an_attempt_that_began_although_its_start_failed_stays_in_flight():
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.begin(KEY, 1)
    in_flight.discard(KEY, 1)

    assert in_flight.count == 1


def test_a_run_that_is_claimed_again_with_the_same_attempt_begins_again():
    # A fault of the host takes the attempt back. The run may be claimed again before the first thread has ended.
    in_flight = InFlight()
    in_flight.add(KEY, 1)
    in_flight.begin(KEY, 1)
    in_flight.add(KEY, 1)
    in_flight.remove(KEY)

    assert in_flight.begin(KEY, 1)


def test_waiting_until_nothing_is_in_flight_ends_at_the_deadline():
    in_flight = InFlight()
    in_flight.add(KEY, 1)

    assert not in_flight.wait_until_empty(0.01)
