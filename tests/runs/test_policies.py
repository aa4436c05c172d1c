"""Run policies while several workers perform runs and are killed. Commands record whether runs of a key overlap."""

import json
import time
from collections import Counter
from itertools import groupby, pairwise

import pytest

from hookmill.domain.run import Run, RunState
from hookmill.domain.run_policy import Concurrency, Debounce, RunPolicy, WhenBusy
from hookmill.store.runs import held
from tests.runs.backlog import Backlog, Worker
from tests.support.counts import ON_POSTGRES_IN_PROOF, count, only_in_proof
from tests.support.waiting import until

KEYS = count(20, usually=6)
RUNS = count(200, usually=15)


def overlap_recorder(backlog: Backlog, seconds: float) -> list[str]:
    """A command that records its run, and whether another run with the same key is active. It takes some seconds."""
    directory = backlog.data.parent / "overlap-recorder"
    directory.mkdir()
    script = f"""
        key=$(tr -dc 0-9 < event-payload.json)
        exec 9> {directory}/lock-$key
        flock -n 9 || echo $key >> {directory}/overlaps
        echo $HOOKMILL_RUN_ID >> {directory}/performed
        sleep {seconds}
    """
    return ["sh", "-c", script]


def overlaps(backlog: Backlog) -> list[str]:
    file = backlog.data.parent / "overlap-recorder" / "overlaps"
    return file.read_text().split() if file.exists() else []


def perform_while_a_worker_is_killed(
    backlog: Backlog, policy: RunPolicy, *, workers: int, seconds: float, runs: int
) -> list[list[Run]]:
    """Queue runs while workers perform them, and kill one worker. Returns the runs of each key, oldest first."""
    automation = backlog.automation(runner="command", policy=policy)
    command = overlap_recorder(backlog, seconds)
    keys = []
    active_workers = [
        Worker(backlog, command=command, dead_after_seconds=1.5, attempts_max=100) for _ in range(workers)
    ]
    try:
        for number in range(runs):
            keys.append(backlog.queue(automation, payload=json.dumps({"pr": number * 7 % KEYS}).encode()))
            if number == runs // 2:
                active_workers.pop(0).kill()
                active_workers.append(Worker(backlog, command=command, dead_after_seconds=1.5, attempts_max=100))
            time.sleep(0.002)
        ended = backlog.wait_for_end(*keys)
    finally:
        for worker in active_workers:
            worker.kill()
    ended.sort(key=lambda run: (run.policy_key or b"", run.id))
    return [list(group) for _, group in groupby(ended, key=lambda run: run.policy_key)]


@pytest.mark.parametrize(
    ("workers", "when_busy"),
    [
        (1, WhenBusy.REPLACE),
        (3, WhenBusy.QUEUE),
        *(only_in_proof(1, when_busy) for when_busy in (WhenBusy.QUEUE, WhenBusy.SKIP)),
        *(only_in_proof(3, when_busy) for when_busy in (WhenBusy.REPLACE, WhenBusy.SKIP)),
    ],
)
def test_at_most_one_run_of_a_key_is_active(sqlite_store, postgres_store, tmp_path, when_busy, workers):
    url = sqlite_store if workers == 1 else postgres_store
    policy = RunPolicy(concurrency=Concurrency(key=("/pr",), when_busy=when_busy))
    with Backlog(url, tmp_path / "data") as backlog:
        groups = perform_while_a_worker_is_killed(backlog, policy, workers=workers, seconds=0.03, runs=RUNS)

        assert overlaps(backlog) == []
    assert len(groups) == KEYS
    assert sum(map(len, groups)) == RUNS
    states = Counter(run.state for group in groups for run in group)
    match when_busy:
        case WhenBusy.QUEUE:
            assert states == {RunState.SUCCEEDED: RUNS}
        case WhenBusy.SKIP:
            assert states.keys() <= {RunState.SUCCEEDED, RunState.SKIPPED}
            assert {group[0].state for group in groups} == {RunState.SUCCEEDED}
        case WhenBusy.REPLACE:
            assert states.keys() <= {RunState.SUCCEEDED, RunState.REPLACED}
            assert {group[-1].state for group in groups} == {RunState.SUCCEEDED}
    not_performed = [run for group in groups for run in group if run.state is not RunState.SUCCEEDED]
    assert all(run.replaced_by is not None for run in not_performed)


@ON_POSTGRES_IN_PROOF
def test_debounced_deliveries_of_a_key_start_one_run(backlog):
    policy = RunPolicy(concurrency=Concurrency(key=("/pr",)), debounce=Debounce(seconds=2, max_seconds=60))
    groups = perform_while_a_worker_is_killed(backlog, policy, workers=1, seconds=0.01, runs=60)

    assert len(groups) == KEYS
    for group in groups:
        # A slow machine may need more than two seconds between two deliveries of a key.
        assert group[-1].state is RunState.SUCCEEDED
        assert {run.state for run in group} <= {RunState.SUCCEEDED, RunState.SUPERSEDED}
        for run, next_run in pairwise(group):
            if run.state is RunState.SUCCEEDED:
                assert next_run.created_at - run.created_at > 1_900_000


@ON_POSTGRES_IN_PROOF
def test_replaced_command_ends_before_the_next_one_starts(backlog):
    policy = RunPolicy(concurrency=Concurrency(when_busy=WhenBusy.REPLACE))
    automation = backlog.automation(runner="command", policy=policy)
    # The command ignores SIGTERM.
    command = overlap_recorder(backlog, 60)
    command[2] = f"trap '' TERM; {command[2]}"
    with Worker(backlog, command=command, grace=0.5) as worker:
        first = backlog.queue(automation, payload=b'{"pr": 1}')
        until(lambda: backlog.run(first).state is RunState.RUNNING)
        second = backlog.queue(automation, payload=b'{"pr": 1}')
        until(lambda: backlog.run(second).state is RunState.RUNNING)

        assert backlog.run(first).state is RunState.REPLACED
        assert backlog.run(first).replaced_by == second
        backlog.request_cancel(second)
        backlog.wait_for_end(second)
        worker.kill()
    assert overlaps(backlog) == []


@ON_POSTGRES_IN_PROOF
def test_run_is_replaced_even_if_no_slot_is_free(backlog):
    policy = RunPolicy(concurrency=Concurrency(when_busy=WhenBusy.REPLACE))
    automation = backlog.automation(runner="command", policy=policy)
    with Worker(backlog, command=["sh", "-c", 'test "$(cat event-payload.json)" = 2 || sleep 60'], slots=1):
        first = backlog.queue(automation, payload=b"1")
        until(lambda: backlog.run(first).state is RunState.RUNNING)
        second = backlog.queue(automation, payload=b"2")
        runs = backlog.wait_for_end(first, second, seconds=30)

    assert [run.state for run in runs] == [RunState.REPLACED, RunState.SUCCEEDED]


@ON_POSTGRES_IN_PROOF
def test_debounced_run_starts_without_a_further_commit(backlog):
    policy = RunPolicy(debounce=Debounce(seconds=1, max_seconds=1))
    with Worker(backlog):
        key = backlog.queue(backlog.automation(policy=policy))
        (run,) = backlog.wait_for_end(key)

    assert run.state is RunState.SUCCEEDED
    assert run.started_at is not None
    assert (run.started_at - run.created_at) / 1e6 > 0.9


@ON_POSTGRES_IN_PROOF
def test_waiting_run_starts_if_the_end_of_the_previous_run_was_missed(backlog):
    policy = RunPolicy(concurrency=Concurrency())
    automation = backlog.automation(policy=policy)
    first, second = backlog.queue_many(automation, 2)
    with backlog.database.write() as tx:
        held.decide(tx, 1)
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1 WHERE id = :id", id=first)

    with Worker(backlog):
        (run,) = backlog.wait_for_end(second)

    assert run.state is RunState.SUCCEEDED
