"""Decisions about held runs: which start, which wait, and which end without a start."""

import json

import pytest
from msgspec import structs

from hookmill.domain.ids import FactoryId, RunKey, run_id
from hookmill.domain.run import Ended, Hold, RunState
from hookmill.domain.run_policy import Concurrency, Debounce, Priority, RunPolicy, WhenBusy
from hookmill.store.runs import attempts, claims, executors, held
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds

WORKER = ExecutorId("worker")
SECOND = 1_000_000


@pytest.fixture
def backlog(store_url, tmp_path):
    with Backlog(store_url, tmp_path / "data") as backlog:
        with backlog.database.write() as tx:
            executors.heartbeat(tx, WORKER, 1)
        yield backlog


def concurrency_policy(when_busy: WhenBusy = WhenBusy.QUEUE, *, limit: int = 1) -> RunPolicy:
    return RunPolicy(concurrency=Concurrency(key=("/pr",), limit=limit, when_busy=when_busy))


def arrive(backlog: Backlog, automation: str, *prs: int) -> list[RunKey]:
    return [backlog.queue(automation, payload=json.dumps({"pr": pr}).encode()) for pr in prs]


def decide(backlog: Backlog, *, at: int | None = None):
    with backlog.database.write() as tx:
        held.decide(tx, at or microseconds())


def needs_decision(backlog: Backlog) -> bool:
    with backlog.database.read() as tx:
        return held.needs_decision(tx, microseconds())


def claim(backlog: Backlog, *, at_most: int = 10) -> list[RunKey]:
    with backlog.database.write() as tx:
        claimed = claims.claim(tx, executor=WORKER, at_most=at_most, after=FactoryId(""), now=microseconds())
    return [claimed_run.run for claimed_run in claimed]


def end(backlog: Backlog, key: RunKey, state: RunState = RunState.SUCCEEDED):
    run = backlog.run(key)
    with backlog.database.write() as tx:
        assert attempts.finish(
            tx,
            key,
            Ended(state=state),
            executor=WORKER,
            attempt=run.attempt,
            now=microseconds(),
            policy_key=run.policy_key,
        )


def states(backlog: Backlog, *keys: RunKey) -> list[str]:
    """Of each run: the hold, or the state if it is not held."""
    runs = [backlog.run(key) for key in keys]
    return [run.hold.name if run.hold is not None else run.state.value for run in runs]


# Queue


def test_new_runs_start_only_after_a_decision(backlog):
    keys = arrive(backlog, backlog.automation(policy=concurrency_policy()), 1)

    claimed_before = claim(backlog)
    decide(backlog)

    assert claimed_before == []
    assert claim(backlog) == keys


def test_one_run_of_each_key_starts_and_others_wait_in_order(backlog):
    first, second, other, third = arrive(backlog, backlog.automation(policy=concurrency_policy()), 1, 1, 2, 1)

    decide(backlog)
    claimed = claim(backlog)
    waiting = states(backlog, second, third)
    end(backlog, first)
    decide(backlog)

    assert set(claimed) == {first, other}
    assert waiting == ["BUSY", "BUSY"]
    assert claim(backlog) == [second]
    assert states(backlog, third) == ["BUSY"]


def test_limit_of_two_lets_two_runs_of_a_key_start(backlog):
    keys = arrive(backlog, backlog.automation(policy=concurrency_policy(limit=2)), 1, 1, 1)

    decide(backlog)

    assert claim(backlog) == keys[:2]


def test_runs_of_an_automation_without_a_key_share_the_limit(backlog):
    policy = RunPolicy(concurrency=Concurrency())
    keys = arrive(backlog, backlog.automation(policy=policy), 1, 2)
    others = arrive(backlog, backlog.automation(policy=policy), 3)

    decide(backlog)

    assert set(claim(backlog)) == {keys[0], *others}


# Skip


def test_new_run_is_skipped_while_another_is_active(backlog):
    first, second = arrive(backlog, backlog.automation(policy=concurrency_policy(WhenBusy.SKIP)), 1, 1)

    decide(backlog)
    claim(backlog)
    (third,) = arrive(backlog, backlog.run(first).automation_id, 1)
    decide(backlog)

    skipped = [backlog.run(key) for key in (second, third)]
    assert [run.state for run in skipped] == [RunState.SKIPPED] * 2
    assert [run.replaced_by for run in skipped] == [first] * 2
    assert skipped[0].reason == f"Skipped, because {run_id(first)} with the same key was active."
    assert all(run.finished_at is not None and run.attempt == 0 for run in skipped)


def test_new_run_is_not_skipped_after_the_active_one_ended(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.SKIP))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    claim(backlog)
    end(backlog, first)

    (second,) = arrive(backlog, automation, 1)
    decide(backlog)

    assert claim(backlog) == [second]


# Replace


def test_new_run_replaces_waiting_runs_and_stops_the_running_one(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    claim(backlog)
    second, third = arrive(backlog, automation, 1, 1)
    decide(backlog)

    stopping, claimed_meanwhile = backlog.run(first), claim(backlog)
    end(backlog, first, RunState.CANCELLED)
    decide(backlog)

    assert stopping.cancel_requested_at is not None
    assert stopping.state is RunState.RUNNING
    assert claimed_meanwhile == []
    assert states(backlog, first, second) == ["replaced", "replaced"]
    assert (backlog.run(first).replaced_by, backlog.run(second).replaced_by) == (third, third)
    assert claim(backlog) == [third]


def test_replaced_run_that_ends_by_itself_keeps_its_result(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    claim(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog)

    end(backlog, first, RunState.SUCCEEDED)
    decide(backlog)

    assert states(backlog, first) == ["succeeded"]
    assert claim(backlog) == [second]


def stop(backlog: Backlog, key: RunKey):
    end(backlog, key, RunState.CANCELLED)


def die(backlog: Backlog, key: RunKey):
    with backlog.database.write() as tx:
        executors.requeue(tx, [key], attempts_max=3, now=microseconds())


def release(backlog: Backlog, key: RunKey):
    with backlog.database.write() as tx:
        attempts.release(tx, key, executor=WORKER, attempt=1, counts_as_attempt=True, now=microseconds())


@pytest.mark.parametrize("worker_ends_it", [stop, die, release])
def test_reason_of_a_replaced_run_names_the_run_that_replaced_it(backlog, worker_ends_it):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    claim(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog)

    worker_ends_it(backlog, first)

    run = backlog.run(first)
    assert (run.state, run.replaced_by) == (RunState.REPLACED, second)
    assert run.reason == f"Replaced by {run_id(second)}, which has the same key."


def test_unclaimed_run_is_replaced_immediately(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog)
    decide(backlog)

    assert states(backlog, first) == ["replaced"]
    assert claim(backlog) == [second]


def test_replace_with_a_limit_of_two_keeps_the_two_newest(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE, limit=2))
    first, second = arrive(backlog, automation, 1, 1)
    decide(backlog)
    claim(backlog)
    (third,) = arrive(backlog, automation, 1)
    decide(backlog)

    assert backlog.run(first).cancel_requested_at is not None
    assert backlog.run(second).cancel_requested_at is None
    end(backlog, first, RunState.CANCELLED)
    decide(backlog)
    assert claim(backlog) == [third]


def arrive_at(backlog: Backlog, automation: str, *seconds: float) -> list[RunKey]:
    """Runs of one key, recorded in this order, whose deliveries arrived this many seconds after a fixed time."""
    base = 1_700_000_000 * SECOND
    return [backlog.queue(automation, payload=b'{"pr": 1}', now=base + int(at * SECOND)) for at in seconds]


def test_delivery_that_is_recorded_late_does_not_replace_the_newer_run(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (newer,) = arrive_at(backlog, automation, 0.001)
    decide(backlog)
    claim(backlog)

    (older,) = arrive_at(backlog, automation, 0)
    decide(backlog)
    decide(backlog)

    assert states(backlog, newer, older) == ["running", "replaced"]
    assert backlog.run(newer).cancel_requested_at is None
    assert backlog.run(older).replaced_by == newer


def test_late_delivery_replaces_only_runs_that_are_older(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE, limit=2))
    second, fourth = arrive_at(backlog, automation, 2, 4)
    decide(backlog)
    claim(backlog)

    (first,) = arrive_at(backlog, automation, 1)
    decide(backlog)
    stopping_after_first = [backlog.run(run).cancel_requested_at is not None for run in (second, fourth)]
    (third,) = arrive_at(backlog, automation, 3)
    decide(backlog)
    stopping_after_third = [backlog.run(run).cancel_requested_at is not None for run in (second, fourth)]
    end(backlog, second, RunState.CANCELLED)
    decide(backlog)

    assert states(backlog, first) == ["replaced"]
    assert backlog.run(first).replaced_by == fourth
    assert stopping_after_first == [False, False]
    assert stopping_after_third == [True, False]
    assert claim(backlog) == [third]


def test_late_delivery_starts_after_a_newer_run_that_is_being_cancelled(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (newer,) = arrive_at(backlog, automation, 1)
    decide(backlog)
    claim(backlog)
    backlog.request_cancel(newer)

    (older,) = arrive_at(backlog, automation, 0)
    decide(backlog)
    assert states(backlog, newer, older) == ["running", "BUSY"]
    end(backlog, newer, RunState.CANCELLED)
    decide(backlog)

    assert states(backlog, newer) == ["cancelled"]
    assert claim(backlog) == [older]


@pytest.mark.parametrize("is_active", [True, False], ids=["active", "waiting"])
@pytest.mark.parametrize(("seconds_ahead", "stays"), [(29, True), (31, False)])
def test_run_of_a_host_whose_clock_is_far_ahead_is_replaced(backlog, seconds_ahead, stays, is_active):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    if not is_active:
        (active,) = arrive_at(backlog, automation, -1)
        decide(backlog)
        assert claim(backlog) == [active]
    (ahead,) = arrive_at(backlog, automation, seconds_ahead)
    decide(backlog)
    assert claim(backlog) == ([ahead] if is_active else [])

    (present,) = arrive_at(backlog, automation, 0)
    decide(backlog)
    decide(backlog)

    if is_active:
        is_replaced = [backlog.run(ahead).cancel_requested_at is not None, states(backlog, present) == ["replaced"]]
    else:
        is_replaced = [state == "replaced" for state in states(backlog, ahead, present)]
    assert is_replaced == [not stays, stays]


def test_clock_is_not_ahead_if_one_of_several_new_runs_is_as_late(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE))
    (active,) = arrive_at(backlog, automation, 40)
    decide(backlog)
    assert claim(backlog) == [active]

    late, older = arrive_at(backlog, automation, 0, 39)
    decide(backlog)

    assert backlog.run(active).cancel_requested_at is None
    assert states(backlog, late, older) == ["replaced", "replaced"]


@pytest.mark.parametrize("seconds", [4, 0], ids=["newest", "late"])
def test_new_run_stops_all_active_runs_above_a_lower_limit(backlog, seconds):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.REPLACE, limit=3))
    active = arrive_at(backlog, automation, 1, 2, 3)
    decide(backlog)
    assert claim(backlog) == active
    (new,) = arrive_at(backlog, automation, seconds)
    change_policy(backlog, automation, concurrency_policy(WhenBusy.REPLACE, limit=1), new)

    decide(backlog)

    newest = max(active[-1], new)
    for run in active:
        assert backlog.run(run).replaced_by == (newest if run != newest else None)
        assert (backlog.run(run).cancel_requested_at is not None) == (run != newest)
    assert states(backlog, new) == (["BUSY"] if new == newest else ["replaced"])


# Debounce


def debounce_policy(seconds: int = 10, max_seconds: int = 25) -> RunPolicy:
    return RunPolicy(concurrency=Concurrency(key=("/pr",)), debounce=Debounce(seconds=seconds, max_seconds=max_seconds))


def test_debounced_key_starts_only_the_newest_run_after_a_quiet_time(backlog):
    automation = backlog.automation(policy=debounce_policy())
    first, second = arrive(backlog, automation, 1, 1)
    (other,) = arrive(backlog, automation, 2)
    decide(backlog)
    due_at = backlog.run(second).due_at
    assert due_at is not None

    with backlog.database.read() as tx:
        next_due_at = held.next_due_at(tx)
        is_due_before, is_due = (held.needs_decision(tx, at) for at in (due_at - 1, due_at))
    decide(backlog, at=due_at - SECOND)
    claimed_early = claim(backlog)
    decide(backlog, at=backlog.run(other).created_at + 11 * SECOND)

    assert due_at == backlog.run(second).created_at + 10 * SECOND
    assert next_due_at in (due_at, backlog.run(other).created_at + 10 * SECOND)
    assert (is_due_before, is_due) == (False, True)
    assert claimed_early == []
    assert states(backlog, first) == ["superseded"]
    assert backlog.run(first).reason == f"Superseded by {run_id(second)}, which is newer and has the same key."
    assert set(claim(backlog)) == {second, other}


def test_steady_stream_starts_a_run_after_the_maximum_time(backlog):
    automation = backlog.automation(policy=debounce_policy(seconds=10, max_seconds=25))
    (first,) = arrive(backlog, automation, 1)
    first_created_at = backlog.run(first).created_at
    newest = first
    for seconds in (8, 16, 24):
        (newest,) = arrive(backlog, automation, 1)
        with backlog.database.write() as tx:
            tx.run("UPDATE runs SET created_at = :at WHERE id = :id", at=first_created_at + seconds * SECOND, id=newest)
        decide(backlog, at=first_created_at + seconds * SECOND)
    assert backlog.run(newest).due_at == first_created_at + 25 * SECOND

    decide(backlog, at=first_created_at + 25 * SECOND)

    assert claim(backlog) == [newest]
    assert backlog.states() == {"superseded": 3, "running": 1}


def test_debounced_run_of_a_host_whose_clock_is_far_ahead_is_superseded(backlog):
    automation = backlog.automation(policy=debounce_policy())
    base = 1_700_000_000 * SECOND

    def arrive_and_decide(at, *, id_at=None):
        key: RunKey = backlog.queue(automation, now=base + (at if id_at is None else id_at) * SECOND)
        decide(backlog, at=base + at * SECOND)
        return key

    ahead = arrive_and_decide(0, id_at=3_600)
    first, second, third = (arrive_and_decide(at) for at in (1, 9, 18))
    decide(backlog, at=base + 25 * SECOND)
    before_the_maximum_time = claim(backlog)
    decide(backlog, at=base + 26 * SECOND)

    assert states(backlog, ahead, first, second) == ["superseded"] * 3
    assert before_the_maximum_time == []
    assert claim(backlog) == [third]


def test_debounced_run_waits_for_the_active_run_of_its_key(backlog):
    automation = backlog.automation(policy=debounce_policy(seconds=1))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog, at=microseconds() + 5 * SECOND)
    claim(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog, at=microseconds() + 5 * SECOND)
    waiting = states(backlog, second)

    end(backlog, first)
    decide(backlog, at=microseconds() + 5 * SECOND)

    assert waiting == ["BUSY"]
    assert claim(backlog) == [second]


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["active run ended", "another waiting run was cancelled"])
def test_waiting_run_is_not_superseded_by_a_run_that_arrives_later(backlog, is_cancelled):
    automation = backlog.automation(policy=debounce_policy(seconds=10))

    def arrive_and_wait():
        (key,) = arrive(backlog, automation, 1)
        decide(backlog, at=microseconds() + 15 * SECOND)
        return key

    active = arrive_and_wait()
    assert claim(backlog) == [active]
    first, second = arrive_and_wait(), arrive_and_wait()
    (debounced,) = arrive(backlog, automation, 1)
    decide(backlog)
    assert states(backlog, first, second, debounced) == ["BUSY", "BUSY", "DEBOUNCE"]

    if is_cancelled:
        backlog.request_cancel(second)
    else:
        end(backlog, active)
    decide(backlog)

    if is_cancelled:
        assert states(backlog, active, first, debounced) == ["running", "BUSY", "DEBOUNCE"]
    else:
        assert states(backlog, first, second, debounced) == ["queued", "BUSY", "DEBOUNCE"]
    assert backlog.run(debounced).due_at == backlog.run(debounced).created_at + 10 * SECOND


# Priority, pages, and many runs


def test_run_of_higher_priority_starts_first_within_a_factory(backlog):
    low, normal, high = (
        backlog.queue(backlog.automation(policy=RunPolicy(priority=priority)))
        for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    )

    assert claim(backlog) == [high, normal, low]


def test_pages_contain_held_and_skipped_runs(backlog):
    automation = backlog.automation(policy=concurrency_policy(WhenBusy.SKIP))
    arrive(backlog, automation, 1, 1)
    waiting = arrive(backlog, backlog.automation(policy=concurrency_policy()), 1, 1)
    decide(backlog)

    assert len(backlog.page(state=RunState.SKIPPED)) == 1
    assert len(backlog.page(state=RunState.SKIPPED, automation=automation)) == 1
    assert len(backlog.page(state=RunState.QUEUED)) == 3
    assert len(backlog.page()) == 4
    assert backlog.run(waiting[1]).hold is Hold.BUSY


def change_policy(backlog: Backlog, automation: str, policy: RunPolicy, *runs: RunKey):
    """Give the automation a second version with this policy, to which these runs belong."""
    with backlog.database.write() as tx:
        tx.run(
            "INSERT INTO automation_versions"
            " (automation_id, version, name, prompt, runner, triggers, policy, options, created_at)"
            " SELECT automation_id, 2, name, prompt, runner, triggers, :policy, options, 0 FROM automation_versions"
            " WHERE automation_id = :id",
            id=automation,
            policy=json.dumps(policy.as_json()),
        )
        for key in runs:
            tx.run("UPDATE runs SET automation_version = 2 WHERE id = :id", id=key)


def change_stored_policy(backlog: Backlog, policy: RunPolicy):
    """Change the policy of all runs, also of those that wait already."""
    with backlog.database.write() as tx:
        tx.run("UPDATE automation_versions SET policy = :policy", policy=json.dumps(policy.as_json()))


def test_policy_of_the_newest_held_run_applies_to_its_key(backlog):
    automation = backlog.automation(policy=concurrency_policy())
    first, second, third, fourth = arrive(backlog, automation, 1, 1, 1, 1)
    decide(backlog)
    claim(backlog)
    change_policy(backlog, automation, concurrency_policy(limit=2), fourth)

    end(backlog, first)
    decide(backlog)

    assert claim(backlog) == [second, third]


@pytest.mark.parametrize("is_released", [True, False], ids=["active run released", "another waiting run cancelled"])
def test_waiting_run_is_not_skipped_while_the_active_run_stays_active(backlog, is_released):
    automation = backlog.automation(policy=concurrency_policy())
    active, waiting, other_waiting = arrive(backlog, automation, 1, 1, 1)
    decide(backlog)
    assert claim(backlog) == [active]
    skip = concurrency_policy(WhenBusy.SKIP)
    (debounced,) = arrive(backlog, automation, 1)
    newer_policy = structs.replace(skip, debounce=Debounce(seconds=10, max_seconds=25))
    change_policy(backlog, automation, newer_policy, debounced)
    decide(backlog)
    assert states(backlog, waiting, other_waiting, debounced) == ["BUSY", "BUSY", "DEBOUNCE"]

    if is_released:
        release(backlog, active)
    else:
        backlog.request_cancel(other_waiting)
    decide(backlog)

    assert states(backlog, waiting, debounced) == ["BUSY", "DEBOUNCE"]


def test_many_due_retries_are_decided_in_parts(backlog, monkeypatch):
    monkeypatch.setattr(held, "DECISIONS_MAX", 3)
    keys = [backlog.queue(backlog.automation()) for _ in range(8)]
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET hold = :retry, due_at = 1", retry=int(Hold.RETRY))

    for _ in range(3):
        decide(backlog)

    assert claim(backlog) == keys


def test_late_delivery_lets_all_waiting_runs_be_replaced(backlog, monkeypatch):
    monkeypatch.setattr(held, "DECISIONS_MAX", 3)
    automation = backlog.automation(policy=concurrency_policy())
    (first,) = arrive_at(backlog, automation, 0)
    waiting = arrive_at(backlog, automation, *range(2, 12))
    for _ in range(5):
        decide(backlog)
    claim(backlog)
    change_stored_policy(backlog, concurrency_policy(WhenBusy.REPLACE))
    (late,) = arrive_at(backlog, automation, 1)

    for _ in range(6):
        decide(backlog)

    assert set(states(backlog, late, *waiting[:-1])) == {"replaced"}
    assert states(backlog, waiting[-1]) == ["BUSY"]
    assert backlog.run(first).cancel_requested_at is not None
    assert not needs_decision(backlog)
