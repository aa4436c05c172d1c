"""Workers that are killed, paused and poisoned: every run comes to its end, as one run, attempt by attempt."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from tests.runs.backlog import Backlog, Worker, processes_of
from tests.runs.samples import has_ended
from tests.runs.worker import microseconds
from tests.support.counts import are_full, count
from tests.support.waiting import until

KILLS = count(20, usually=5)
COMMANDS = count(15, usually=5)
PACKAGES = count(35, usually=12)
SOON_SECONDS = 10 if are_full() else 20
"""Ten are promised. Other tests may have the machine."""


FROZEN_SECONDS = 13
"""After 5 s without a heartbeat a worker is dead. The rest is a busy machine's. Locks of the dead one take 15 s."""


def witness(backlog: Backlog, script: str) -> list[str]:
    """A command that first notes run and attempt, then does what `script` says."""
    note = f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {notes(backlog)}; '
    return ["sh", "-c", note + script]


def notes(backlog: Backlog) -> Path:
    return backlog.data.parent / "notes"


def noted(backlog: Backlog) -> Counter[tuple[str, int]]:
    lines = notes(backlog).read_text().splitlines()
    return Counter((run, int(attempt)) for run, attempt in (line.split() for line in lines))


def test_a_worker_killed_repeatedly_loses_and_doubles_nothing(on_sqlite):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    automation = on_sqlite.automation(runner="command")
    command = witness(on_sqlite, "sleep 0.1; echo done")
    keys = []

    has_hit = False
    while len(keys) < KILLS or not has_hit:
        assert len(keys) < 100, "no kill hits a run"
        keys.append(on_sqlite.queue(automation))
        with Worker(on_sqlite, command=command, attempts_max=100) as worker:
            time.sleep(chance.uniform(0, 0.3))
            worker.kill()
        has_hit = has_hit or "running" in on_sqlite.states()
    with Worker(on_sqlite, command=command, attempts_max=100):
        runs = on_sqlite.wait_for_end(*keys)

    performed = noted(on_sqlite)
    assert {run.state for run in runs} == {RunState.SUCCEEDED}
    assert on_sqlite.states() == {"succeeded": len(keys)}
    assert set(performed.values()) == {1}, "no attempt was performed twice"
    for run in runs:
        attempts = {attempt for key, attempt in performed if key == run_id(run.id)}
        assert max(attempts) == run.attempt
        assert processes_of(run_id(run.id)) == []
    assert max(run.attempt for run in runs) > 1


def test_a_killed_worker_takes_its_command_along(on_sqlite):
    key = on_sqlite.queue(on_sqlite.automation(runner="command"))
    with Worker(on_sqlite, command=["sh", "-c", "trap '' TERM; sleep 60"], grace=0.3) as worker:
        until(lambda: processes_of(run_id(key)))
        worker.kill()

    until(lambda: processes_of(run_id(key)) == [], seconds=30)


def test_a_run_begins_again_soon_after_the_next_start(backlog):
    key = backlog.queue(backlog.automation(runner="command"))
    with Worker(backlog, command=["sleep", "60"]) as worker:
        until(lambda: processes_of(run_id(key)))
        worker.kill()

    started = microseconds()
    with Worker(backlog, command=["true"]):
        (run,) = backlog.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
    assert run.started_at is not None
    assert run.started_at - started < SOON_SECONDS * 1_000_000


def test_a_run_that_ends_at_the_next_start_leaves_nothing_running(on_sqlite):
    # Its guard was stopped, so nobody ends it while no worker is there.
    stops_its_guard = 'echo "$$ $PPID" > pids; kill -STOP $PPID; sleep 60'
    key = on_sqlite.queue(on_sqlite.automation(runner="command"))
    pids = on_sqlite.data / "runs" / run_id(key) / "pids"
    with Worker(on_sqlite, command=["sh", "-c", stops_its_guard]) as worker:
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        on_sqlite.request_cancel(key)
        worker.kill()

    with Worker(on_sqlite, command=["true"]):
        (run,) = on_sqlite.wait_for_end(key)
        assert all(has_ended(int(pid)) for pid in pids.read_text().split())

    assert (run.state, run.reason) == (RunState.CANCELLED, "It was cancelled while no worker performed it.")


def test_a_worker_that_stops_leaves_nothing_running_of_a_stopped_guard(on_sqlite, monkeypatch):
    stops_its_guard = 'echo "$$ $PPID" > pids; kill -STOP $PPID; sleep 60'
    key = on_sqlite.queue(on_sqlite.automation(runner="command"))
    pids = on_sqlite.data / "runs" / run_id(key) / "pids"
    with Worker(on_sqlite, command=["sh", "-c", stops_its_guard], grace=0.1) as worker:
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        worker.stop()

    assert all(has_ended(int(pid)) for pid in pids.read_text().split())
    assert on_sqlite.run(key).state is RunState.QUEUED


def test_a_poison_run_is_given_up_while_others_flow(on_sqlite):
    # The guard is the command's parent, and the worker the guard's.
    kill_the_worker = "sleep 0.3; read -r _ _ _ worker _ < /proc/$PPID/stat; kill -9 $worker; sleep 5"
    poison = on_sqlite.queue(on_sqlite.automation(runner="command"))
    others = on_sqlite.queue_many(on_sqlite.automation(runner="package"), 6)
    lives = 0

    while not on_sqlite.run(poison).state.is_final:
        lives += 1
        assert lives < 9
        with Worker(on_sqlite, command=witness(on_sqlite, kill_the_worker)) as worker:
            until(lambda: not worker.is_alive or on_sqlite.run(poison).state.is_final)
    with Worker(on_sqlite, command=["true"]):
        runs = on_sqlite.wait_for_end(*others)

    given_up = on_sqlite.run(poison)
    assert given_up.state is RunState.INTERRUPTED
    assert given_up.reason == "Its worker died while it ran. After 3 such attempts, it is not started again."
    assert noted(on_sqlite) == {(run_id(poison), attempt): 1 for attempt in (1, 2, 3)}
    assert {run.state for run in runs} == {RunState.SUCCEEDED}


def test_two_workers_share_the_runs_and_perform_each_once(on_postgres):
    command = witness(on_postgres, "exit 0")
    with (
        Worker(on_postgres, command=command, slots=8) as one,
        Worker(on_postgres, command=command, slots=8) as two,
    ):
        keys = []
        for factory in ("fac_a", "fac_b", "fac_c", "fac_d"):
            automation = on_postgres.automation(factory, runner="command")
            keys += on_postgres.queue_many(automation, COMMANDS, factory=factory)
            keys += on_postgres.queue_many(on_postgres.automation(factory), PACKAGES, factory=factory)
        runs = on_postgres.wait_for_end(*keys)
        told = [one.stop(), two.stop()]

    assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 1)}
    assert len(noted(on_postgres)) == 4 * COMMANDS
    assert set(noted(on_postgres).values()) == {1}
    with on_postgres.database.read() as tx:
        shares = Counter(row["executor"] for row in tx.all("SELECT executor FROM runs"))
    assert set(shares) == {one.executor, two.executor}
    assert min(shares.values()) > len(keys) // 10
    assert [report["failures"] for report in told] == [[], []]


def test_another_worker_takes_up_what_a_killed_one_had(on_postgres):
    keys = on_postgres.queue_many(on_postgres.automation(runner="command"), 6)
    command = witness(on_postgres, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 60')

    with Worker(on_postgres, command=command, slots=6) as killed:
        until(lambda: on_postgres.states() == {"running": 6})
        with Worker(on_postgres, command=command, slots=2, dead_after_seconds=1.5):
            killed.kill()
            runs = on_postgres.wait_for_end(*keys)

    assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 2)}
    assert set(noted(on_postgres).values()) == {1}


@pytest.mark.parametrize("statement", ["INSERT INTO executors", "INSERT INTO hookmill_engine.workflow_status"])
def test_the_runs_of_a_worker_frozen_in_a_transaction_are_taken_up_soon(on_postgres, tmp_path: Path, statement: str):
    order = tmp_path / "freeze"
    automation = on_postgres.automation(runner="command")
    command = witness(on_postgres, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 60')
    freeze = {"statement": statement, "order": str(order)}

    with Worker(on_postgres, command=command, freeze=freeze, slots=2) as frozen:
        keys = on_postgres.queue_many(automation, 1)
        until(lambda: processes_of(run_id(keys[0])))
        order.touch()
        keys += on_postgres.queue_many(automation, 1)
        until(lambda: not order.exists(), "the worker is frozen")
        began = time.monotonic()
        with Worker(on_postgres, command=["true"]):
            runs = on_postgres.wait_for_end(*keys)
        took = time.monotonic() - began
        frozen.kill()

    assert {run.state for run in runs} == {RunState.SUCCEEDED}
    print(f"taken up after {took:.1f} s")
    assert took < FROZEN_SECONDS


def test_a_worker_that_was_paused_past_its_time_has_no_say_afterwards(on_postgres):
    key = on_postgres.queue(on_postgres.automation(runner="command"))
    command = witness(on_postgres, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 2.5; exit "$HOOKMILL_ATTEMPT"')

    with Worker(on_postgres, command=command) as paused:
        until(lambda: processes_of(run_id(key)))
        paused.pause()
        with Worker(on_postgres, command=command, dead_after_seconds=1.5) as other:
            (run,) = on_postgres.wait_for_end(key)
            paused.resume()
            later = on_postgres.queue_many(on_postgres.automation(), 8)
            on_postgres.wait_for_end(*later)
            other.stop()
        alone = on_postgres.queue(on_postgres.automation())
        on_postgres.wait_for_end(alone)
        paused.stop()

    assert (run.attempt, run.exit_status) == (2, 2)
    assert on_postgres.run(key) == run
    assert on_postgres.column(alone, "executor") == paused.executor
    assert processes_of(run_id(key)) == []


def test_another_worker_takes_the_runs_of_one_that_stops(on_postgres):
    key = on_postgres.queue(on_postgres.automation(runner="command"))
    command = witness(on_postgres, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 60')

    with Worker(on_postgres, command=command, dead_after_seconds=60) as stopped:
        until(lambda: processes_of(run_id(key)))
        with Worker(on_postgres, command=command, dead_after_seconds=60):
            stopped.stop()
            (run,) = on_postgres.wait_for_end(key, seconds=30)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_a_worker_that_resumes_does_not_end_the_next_attempt_on_the_same_host(on_postgres):
    key = on_postgres.queue(on_postgres.automation(runner="command"))
    command = witness(on_postgres, 'test "$HOOKMILL_ATTEMPT" = 1 && exec sleep 60; sleep 4; echo done')

    with Worker(on_postgres, command=command) as frozen:
        until(lambda: processes_of(run_id(key)))
        frozen.pause()
        with Worker(on_postgres, command=command, dead_after_seconds=1):
            until(lambda: (run_id(key), 2) in noted(on_postgres))
            # It finds its guard killed, and kills what that may have left.
            frozen.resume()
            (run,) = on_postgres.wait_for_end(key)

    assert (run.state, run.attempt, run.output_tail) == (RunState.SUCCEEDED, 2, "done\n")
