"""Decisions about held runs: which start, which wait, and which end without a start."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

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
def backlog(store_url: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(store_url, tmp_path / "data") as backlog:
        with backlog.database.write() as tx:
            executors.heartbeat(tx, WORKER, 1)
        yield backlog


def queue_rule(when_busy: WhenBusy = WhenBusy.QUEUE, *, limit: int = 1) -> RunPolicy:
    return RunPolicy(concurrency=Concurrency(key_pointers=("/pr",), limit=limit, when_busy=when_busy))


def arrive(backlog: Backlog, automation: str, *prs: int) -> list[RunKey]:
    return [backlog.queue(automation, payload=json.dumps({"pr": pr}).encode()) for pr in prs]


def decide(backlog: Backlog, *, at: int | None = None) -> None:
    with backlog.database.write() as tx:
        held.decide(tx, at or microseconds())


def begin(backlog: Backlog, *, most: int = 10) -> list[RunKey]:
    """Claim what may start, as a worker does."""
    with backlog.database.write() as tx:
        claimed = claims.claim(tx, executor=WORKER, at_most=most, after=FactoryId(""), now=microseconds())
    return [each.run for each in claimed]


def end(backlog: Backlog, key: RunKey, state: RunState = RunState.SUCCEEDED) -> None:
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
    """Of each run: its state, or why it may not start yet."""
    runs = [backlog.run(key) for key in keys]
    return [run.hold.name if run.hold is not None else run.state.value for run in runs]


# Queue


def test_new_runs_start_only_after_a_decision(backlog):
    keys = arrive(backlog, backlog.automation(policy=queue_rule()), 1)

    before = begin(backlog)
    decide(backlog)

    assert before == []
    assert begin(backlog) == keys


def test_one_run_of_each_key_starts_and_the_others_wait_in_order(backlog):
    first, second, other, third = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1, 2, 1)

    decide(backlog)
    started = begin(backlog)
    waiting = states(backlog, second, third)
    end(backlog, first)
    decide(backlog)

    assert set(started) == {first, other}
    assert waiting == ["BUSY", "BUSY"]
    assert begin(backlog) == [second]
    assert states(backlog, third) == ["BUSY"]


def test_a_limit_admits_as_many_runs(backlog):
    keys = arrive(backlog, backlog.automation(policy=queue_rule(limit=2)), 1, 1, 1)

    decide(backlog)

    assert begin(backlog) == keys[:2]


def test_without_a_key_all_runs_of_the_automation_share_the_limit(backlog):
    policy = RunPolicy(concurrency=Concurrency())
    keys = arrive(backlog, backlog.automation(policy=policy), 1, 2)
    others = arrive(backlog, backlog.automation(policy=policy), 3)

    decide(backlog)

    assert set(begin(backlog)) == {keys[0], *others}


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED])
def test_any_end_lets_the_next_run_start(backlog, state):
    first, second = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1)
    decide(backlog)
    begin(backlog)

    end(backlog, first, state)
    decide(backlog)

    assert begin(backlog) == [second]


def test_a_run_that_is_cancelled_before_it_begins_lets_the_next_run_start(backlog):
    first, second = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1)
    decide(backlog)

    backlog.request_cancel(first)
    decide(backlog)

    assert begin(backlog) == [second]


def test_a_waiting_run_can_be_cancelled(backlog):
    first, second, third = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1, 1)
    decide(backlog)
    begin(backlog)

    backlog.request_cancel(second)
    end(backlog, first)
    decide(backlog)

    assert states(backlog, second) == ["cancelled"]
    assert begin(backlog) == [third]


def test_a_run_whose_worker_died_stays_active(backlog):
    first, second = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1)
    decide(backlog)
    begin(backlog)

    with backlog.database.write() as tx:
        executors.requeue(tx, [first], attempts_max=3, now=microseconds())
    decide(backlog)

    assert begin(backlog) == [first]
    assert states(backlog, second) == ["BUSY"]


def test_a_run_that_died_too_often_lets_the_next_run_start(backlog):
    first, second = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1)
    decide(backlog)
    begin(backlog)

    with backlog.database.write() as tx:
        executors.requeue(tx, [first], attempts_max=1, now=microseconds())
    decide(backlog)

    assert begin(backlog) == [second]


# Skip


def test_a_new_run_is_skipped_while_one_is_active(backlog):
    first, second = arrive(backlog, backlog.automation(policy=queue_rule(WhenBusy.SKIP)), 1, 1)

    decide(backlog)
    begin(backlog)
    (third,) = arrive(backlog, backlog.run(first).automation_id, 1)
    decide(backlog)

    skipped = [backlog.run(key) for key in (second, third)]
    assert [run.state for run in skipped] == [RunState.SKIPPED] * 2
    assert [run.replaced_by for run in skipped] == [first] * 2
    assert skipped[0].reason == f"Skipped, because {run_id(first)} with the same key was active."
    assert all(run.finished_at is not None and run.attempt == 0 for run in skipped)


def test_a_new_run_starts_after_the_active_one_ended(backlog):
    automation = backlog.automation(policy=queue_rule(WhenBusy.SKIP))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    begin(backlog)
    end(backlog, first)

    (second,) = arrive(backlog, automation, 1)
    decide(backlog)

    assert begin(backlog) == [second]


# Replace


def test_a_new_run_replaces_what_waits_and_stops_what_runs(backlog):
    automation = backlog.automation(policy=queue_rule(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    begin(backlog)
    second, third = arrive(backlog, automation, 1, 1)
    decide(backlog)

    stopping, waiting = backlog.run(first), begin(backlog)
    end(backlog, first, RunState.CANCELLED)
    decide(backlog)

    assert stopping.cancel_requested_at is not None
    assert stopping.state is RunState.RUNNING
    assert waiting == []
    assert states(backlog, first, second) == ["replaced", "replaced"]
    assert (backlog.run(first).replaced_by, backlog.run(second).replaced_by) == (third, third)
    assert begin(backlog) == [third]


def test_a_run_that_ends_by_itself_while_it_is_replaced_keeps_its_result(backlog):
    automation = backlog.automation(policy=queue_rule(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    begin(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog)

    end(backlog, first, RunState.SUCCEEDED)
    decide(backlog)

    assert states(backlog, first) == ["succeeded"]
    assert begin(backlog) == [second]


def test_a_run_that_has_not_begun_is_replaced_immediately(backlog):
    automation = backlog.automation(policy=queue_rule(WhenBusy.REPLACE))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog)
    decide(backlog)

    assert states(backlog, first) == ["replaced"]
    assert begin(backlog) == [second]


def test_with_a_limit_of_two_the_two_newest_stay(backlog):
    automation = backlog.automation(policy=queue_rule(WhenBusy.REPLACE, limit=2))
    first, second = arrive(backlog, automation, 1, 1)
    decide(backlog)
    begin(backlog)
    (third,) = arrive(backlog, automation, 1)
    decide(backlog)

    assert backlog.run(first).cancel_requested_at is not None
    assert backlog.run(second).cancel_requested_at is None
    end(backlog, first, RunState.CANCELLED)
    decide(backlog)
    assert begin(backlog) == [third]


# Debounce


def debounced(seconds: int = 10, most: int = 25) -> RunPolicy:
    return RunPolicy(
        concurrency=Concurrency(key_pointers=("/pr",)), debounce=Debounce(seconds=seconds, max_seconds=most)
    )


def test_only_the_newest_delivery_starts_a_run_once_it_is_quiet(backlog):
    automation = backlog.automation(policy=debounced())
    first, second = arrive(backlog, automation, 1, 1)
    (other,) = arrive(backlog, automation, 2)
    decide(backlog)
    due_at = backlog.run(second).due_at
    assert due_at is not None

    with backlog.database.read() as tx:
        next_due_at = held.next_due_at(tx)
        is_due_before, is_due = (held.needs_decision(tx, at) for at in (due_at - 1, due_at))
    decide(backlog, at=due_at - SECOND)
    early = begin(backlog)
    decide(backlog, at=due_at + SECOND)

    assert due_at == backlog.run(second).created_at + 10 * SECOND
    assert next_due_at in (due_at, backlog.run(other).created_at + 10 * SECOND)
    assert (is_due_before, is_due) == (False, True)
    assert early == []
    assert states(backlog, first) == ["superseded"]
    assert backlog.run(first).reason == f"Superseded by {run_id(second)}, which is newer and has the same key."
    assert set(begin(backlog)) == {second, other}


def test_a_steady_stream_starts_a_run_at_the_maximum(backlog):
    automation = backlog.automation(policy=debounced(seconds=10, most=25))
    (first,) = arrive(backlog, automation, 1)
    begins = backlog.run(first).created_at
    newest = first
    for passed in (8, 16, 24):
        (newest,) = arrive(backlog, automation, 1)
        with backlog.database.write() as tx:
            tx.run("UPDATE runs SET created_at = :at WHERE id = :id", at=begins + passed * SECOND, id=newest)
        decide(backlog, at=begins + passed * SECOND)
    assert backlog.run(newest).due_at == begins + 25 * SECOND

    decide(backlog, at=begins + 25 * SECOND)

    assert begin(backlog) == [newest]
    assert backlog.states() == {"superseded": 3, "running": 1}


def test_a_debounced_run_waits_for_its_key_too(backlog):
    automation = backlog.automation(policy=debounced(seconds=1))
    (first,) = arrive(backlog, automation, 1)
    decide(backlog, at=microseconds() + 5 * SECOND)
    begin(backlog)
    (second,) = arrive(backlog, automation, 1)
    decide(backlog, at=microseconds() + 5 * SECOND)
    waiting = states(backlog, second)

    end(backlog, first)
    decide(backlog, at=microseconds() + 5 * SECOND)

    assert waiting == ["BUSY"]
    assert begin(backlog) == [second]


# Priority, and many runs


def test_higher_priority_starts_first_within_a_factory(backlog):
    low, normal, high = (
        backlog.queue(backlog.automation(policy=RunPolicy(priority=priority)))
        for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    )

    assert begin(backlog) == [high, normal, low]


@pytest.mark.parametrize("when_busy", list(WhenBusy))
def test_a_flood_with_one_key_is_decided_in_parts(backlog, monkeypatch, when_busy):
    monkeypatch.setattr(held, "DECISIONS_MAX", 7)
    automation = backlog.automation(policy=queue_rule(when_busy))
    arrive(backlog, automation, *[1] * 40)
    performed = []

    for _ in range(100):
        decide(backlog)
        for key in begin(backlog, most=1):
            performed.append(key)
            end(backlog, key, RunState.CANCELLED if backlog.run(key).cancel_requested_at else RunState.SUCCEEDED)

    counted = backlog.states()
    assert counted.get("queued", 0) == counted.get("running", 0) == 0
    assert sum(counted.values()) == 40
    if when_busy is WhenBusy.QUEUE:
        assert counted == {"succeeded": 40}
        assert performed == sorted(performed)


def test_pages_show_held_runs_and_those_that_never_started(backlog):
    automation = backlog.automation(policy=queue_rule(WhenBusy.SKIP))
    arrive(backlog, automation, 1, 1)
    waiting = arrive(backlog, backlog.automation(policy=queue_rule()), 1, 1)
    decide(backlog)

    assert len(backlog.page(state=RunState.SKIPPED)) == 1
    assert len(backlog.page(state=RunState.SKIPPED, automation=automation)) == 1
    assert len(backlog.page(state=RunState.QUEUED)) == 3
    assert len(backlog.page()) == 4
    assert backlog.run(waiting[1]).hold is Hold.BUSY


def test_the_policy_of_the_newest_waiting_run_counts(backlog):
    automation = backlog.automation(policy=queue_rule())
    first, second, third, fourth = arrive(backlog, automation, 1, 1, 1, 1)
    decide(backlog)
    begin(backlog)
    with backlog.database.write() as tx:
        tx.run(
            "INSERT INTO automation_versions"
            " (automation_id, version, name, prompt, runner, triggers, policy, created_at)"
            " SELECT automation_id, 2, name, prompt, runner, triggers, :policy, 0 FROM automation_versions"
            " WHERE automation_id = :id",
            id=automation,
            policy=json.dumps(queue_rule(limit=2).as_json()),
        )
        tx.run("UPDATE runs SET automation_version = 2 WHERE id = :id", id=fourth)

    end(backlog, first)
    decide(backlog)

    assert begin(backlog) == [second, third]


def test_many_due_retries_are_decided_in_parts(backlog, monkeypatch):
    monkeypatch.setattr(held, "DECISIONS_MAX", 3)
    keys = [backlog.queue(backlog.automation()) for _ in range(8)]
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET hold = :retry, due_at = 1", retry=int(Hold.RETRY))

    for _ in range(3):
        decide(backlog)

    assert begin(backlog) == keys


def test_a_long_queue_is_replaced_in_parts(backlog, monkeypatch):
    monkeypatch.setattr(held, "DECISIONS_MAX", 3)
    automation = backlog.automation(policy=queue_rule())
    (first, *waiting) = arrive(backlog, automation, *[1] * 9)
    for _ in range(4):
        decide(backlog)
    begin(backlog)
    with backlog.database.write() as tx:
        tx.run(
            "UPDATE automation_versions SET policy = :policy",
            policy=json.dumps(queue_rule(WhenBusy.REPLACE).as_json()),
        )
    (newest,) = arrive(backlog, automation, 1)

    for _ in range(5):
        decide(backlog)
    end(backlog, first, RunState.CANCELLED)
    decide(backlog)

    assert begin(backlog) == [newest]
    assert set(states(backlog, *waiting)) == {"replaced"}
