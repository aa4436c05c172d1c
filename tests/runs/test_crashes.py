"""Workers that are killed, frozen and stopped: every run ends, and no attempt is performed twice."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from hookmill.domain.run_policy import RunPolicy
from hookmill.runs.dispatcher import Dispatcher
from hookmill.runs.perform import RunSettings
from hookmill.store.runs import executors
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog, Worker, processes_of
from tests.runs.samples import has_ended
from tests.runs.worker import microseconds
from tests.support.counts import are_full, count
from tests.support.waiting import stalls, until

KILLS = count(20, usually=5)
COMMANDS = count(15, usually=5)
"""There are four times as many. They must occupy the slots of two workers."""
SLOTS = 8
PACKAGES = count(35, usually=12)
SOON_SECONDS = 10 if are_full() else 20
"""The documented limit is ten. Other tests may delay this one."""

FROZEN_SECONDS = 13
"""After the start of another worker. A worker is dead after 5 s without a heartbeat. Its locks last for 15 s, of which
a busy machine needs some for that start."""


def recording_command(backlog: Backlog, script: str) -> list[str]:
    """A command that records its run and attempt, and then executes the script."""
    record = f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {record_file(backlog)}; '
    return ["sh", "-c", record + script]


def wait_for_file(path: object) -> str:
    """A script that ends when the file exists."""
    return f"until test -e {path}; do sleep 0.05; done; "


def record_file(backlog: Backlog) -> Path:
    return backlog.data.parent / "performed-attempts"


def performed_attempts(backlog: Backlog) -> Counter[tuple[str, int]]:
    """How often each attempt of each run was performed."""
    file = record_file(backlog)
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter((run, int(attempt)) for run, attempt in (line.split() for line in lines))


def test_repeatedly_killed_worker_loses_and_doubles_no_run(sqlite_backlog):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    automation = sqlite_backlog.automation(runner="command")
    command = recording_command(sqlite_backlog, "sleep 0.1; echo done")
    keys = []

    has_interrupted_a_run = False
    while len(keys) < KILLS or not has_interrupted_a_run:
        assert len(keys) < 100, "no kill interrupts a run"
        keys.append(sqlite_backlog.queue(automation))
        with Worker(sqlite_backlog, command=command, attempts_max=100) as worker:
            time.sleep(chance.uniform(0, 0.3))
            worker.kill()
        has_interrupted_a_run = has_interrupted_a_run or "running" in sqlite_backlog.states()
    with Worker(sqlite_backlog, command=command, attempts_max=100):
        runs = sqlite_backlog.wait_for_end(*keys)

    performed = performed_attempts(sqlite_backlog)
    assert {run.state for run in runs} == {RunState.SUCCEEDED}
    assert sqlite_backlog.states() == {"succeeded": len(keys)}
    assert set(performed.values()) == {1}, "no attempt was performed twice"
    for run in runs:
        attempts = {attempt for key, attempt in performed if key == run_id(run.id)}
        assert max(attempts) == run.attempt
        assert processes_of(run_id(run.id)) == []
    assert max(run.attempt for run in runs) > 1


def test_command_ends_when_its_worker_is_killed(sqlite_backlog):
    key = sqlite_backlog.queue(sqlite_backlog.automation(runner="command"))
    with Worker(sqlite_backlog, command=["sh", "-c", "trap '' TERM; sleep 60"], grace=0.3) as worker:
        until(lambda: processes_of(run_id(key)))
        worker.kill()

    until(lambda: processes_of(run_id(key)) == [], seconds=30)


def test_interrupted_run_restarts_soon_after_the_next_worker_starts(backlog):
    key = backlog.queue(backlog.automation(runner="command"))
    with Worker(backlog, command=["sleep", "60"]) as worker:
        until(lambda: processes_of(run_id(key)))
        worker.kill()

    with stalls() as stall_seconds, Worker(backlog, command=["true"]):
        started = microseconds()
        (run,) = backlog.wait_for_end(key)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
    assert run.started_at is not None
    assert (run.started_at - started) / 1_000_000 - sum(stall_seconds) < SOON_SECONDS


def test_run_cancelled_between_two_workers_leaves_no_process(sqlite_backlog):
    # The guard is stopped, so the command goes on until the next worker starts.
    stop_guard = 'echo "$$ $PPID" > pids; kill -STOP $PPID; sleep 60'
    key = sqlite_backlog.queue(sqlite_backlog.automation(runner="command"))
    pids = sqlite_backlog.data / "runs" / run_id(key) / "pids"
    with Worker(sqlite_backlog, command=["sh", "-c", stop_guard]) as worker:
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        sqlite_backlog.request_cancel(key)
        worker.kill()

    with Worker(sqlite_backlog, command=["true"]):
        (run,) = sqlite_backlog.wait_for_end(key)
        assert all(has_ended(int(pid)) for pid in pids.read_text().split())

    assert (run.state, run.reason) == (RunState.CANCELLED, "It was cancelled while no worker performed it.")


def test_stopping_worker_ends_a_stopped_guard_and_its_command(sqlite_backlog, monkeypatch):
    stop_guard = 'echo "$$ $PPID" > pids; kill -STOP $PPID; sleep 60'
    key = sqlite_backlog.queue(sqlite_backlog.automation(runner="command"))
    pids = sqlite_backlog.data / "runs" / run_id(key) / "pids"
    with Worker(sqlite_backlog, command=["sh", "-c", stop_guard], grace=0.1) as worker:
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        worker.stop()

    assert all(has_ended(int(pid)) for pid in pids.read_text().split())
    assert sqlite_backlog.run(key).state is RunState.QUEUED


def test_run_that_kills_its_worker_is_interrupted_after_three_attempts(sqlite_backlog):
    # The guard is the parent of the command, and the worker started the process that forked the guard.
    started = sqlite_backlog.data.parent / "started"
    kill_worker = wait_for_file(f"{started}-$HOOKMILL_ATTEMPT") + (
        "read -r _ _ _ forker _ < /proc/$PPID/stat; read -r _ _ _ worker _ < /proc/$forker/stat; "
        "kill -9 $worker; sleep 60"
    )
    poison = sqlite_backlog.queue(sqlite_backlog.automation(runner="command"))
    others = sqlite_backlog.queue_many(sqlite_backlog.automation(runner="package"), 6)
    starts = 0

    while not sqlite_backlog.run(poison).state.is_final:
        starts += 1
        assert starts < 9
        with Worker(sqlite_backlog, command=recording_command(sqlite_backlog, kill_worker)) as worker:
            # `Worker` has received the first message of the process, which may die now.
            started.with_name(f"started-{starts}").touch()
            until(lambda: not worker.is_alive or sqlite_backlog.run(poison).state.is_final)
    with Worker(sqlite_backlog, command=["true"]):
        runs = sqlite_backlog.wait_for_end(*others)

    poison_run = sqlite_backlog.run(poison)
    assert poison_run.state is RunState.INTERRUPTED
    assert poison_run.reason == (
        "Its worker died while it ran. It is not started again, because a dead worker or a fault of the host ended 3 "
        "attempts."
    )
    assert performed_attempts(sqlite_backlog) == {(run_id(poison), attempt): 1 for attempt in (1, 2, 3)}
    assert {run.state for run in runs} == {RunState.SUCCEEDED}


def test_two_workers_share_runs_and_perform_each_once(postgres_backlog):
    are_full = postgres_backlog.data.parent / "both-workers-are-full"
    command = recording_command(postgres_backlog, wait_for_file(are_full))
    # On a busy machine, one of them may get no processor time for some seconds.
    with (
        Worker(postgres_backlog, command=command, slots=SLOTS, dead_after_seconds=60) as one,
        Worker(postgres_backlog, command=command, slots=SLOTS, dead_after_seconds=60) as two,
    ):
        keys = []
        for factory in ("fac_a", "fac_b", "fac_c", "fac_d"):
            automation = postgres_backlog.automation(factory, runner="command")
            keys += postgres_backlog.queue_many(automation, COMMANDS, factory=factory)
            keys += postgres_backlog.queue_many(postgres_backlog.automation(factory), PACKAGES, factory=factory)
        # A worker that is slower than the other one still fills its slots.
        until(lambda: len(performed_attempts(postgres_backlog)) == 2 * SLOTS, "commands occupy all slots")
        are_full.touch()
        runs = postgres_backlog.wait_for_end(*keys)
        reports = [one.stop(), two.stop()]

    assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 1)}
    assert len(performed_attempts(postgres_backlog)) == 4 * COMMANDS
    assert set(performed_attempts(postgres_backlog).values()) == {1}
    with postgres_backlog.database.read() as tx:
        shares = Counter(row["executor"] for row in tx.all("SELECT executor FROM runs"))
    assert set(shares) == {one.executor, two.executor}
    assert min(shares.values()) >= SLOTS
    assert [report["failures"] for report in reports] == [[], []]


def test_another_worker_performs_the_runs_of_a_killed_one(postgres_backlog):
    keys = postgres_backlog.queue_many(postgres_backlog.automation(runner="command"), 6)
    command = recording_command(postgres_backlog, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 60')

    with Worker(postgres_backlog, command=command, slots=6) as killed:
        until(lambda: postgres_backlog.states() == {"running": 6})
        with Worker(postgres_backlog, command=command, slots=2, dead_after_seconds=1.5):
            killed.kill()
            runs = postgres_backlog.wait_for_end(*keys)

    assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 2)}
    assert set(performed_attempts(postgres_backlog).values()) == {1}


def test_runs_of_a_worker_frozen_in_a_transaction_are_requeued_soon(postgres_backlog, tmp_path):
    trigger_file = tmp_path / "freeze"
    # Because of the limit, a claim is a transaction of several statements.
    automation = postgres_backlog.automation(runner="command", policy=RunPolicy(max_running=9))
    command = recording_command(postgres_backlog, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 60')
    freeze = {"statement": "INSERT INTO executors", "trigger_file": str(trigger_file)}

    with Worker(postgres_backlog, command=command, freeze=freeze, slots=2) as frozen:
        keys = postgres_backlog.queue_many(automation, 1)
        until(lambda: processes_of(run_id(keys[0])))
        trigger_file.touch()
        keys += postgres_backlog.queue_many(automation, 1)
        until(lambda: not trigger_file.exists(), "the worker is frozen")
        with stalls() as stall_seconds, Worker(postgres_backlog, command=["true"]):
            # A busy machine needs seconds to start a worker.
            began = time.monotonic()
            runs = postgres_backlog.wait_for_end(*keys)
        seconds = time.monotonic() - began - sum(stall_seconds)
        frozen.kill()

    assert {run.state for run in runs} == {RunState.SUCCEEDED}
    print(f"performed after {seconds:.1f} s")
    assert seconds < FROZEN_SECONDS


def test_worker_paused_beyond_the_timeout_overwrites_no_result(postgres_backlog):
    key = postgres_backlog.queue(postgres_backlog.automation(runner="command"))
    is_paused = postgres_backlog.data.parent / "is-paused"
    command = recording_command(postgres_backlog, wait_for_file(is_paused) + 'exit "$HOOKMILL_ATTEMPT"')

    with Worker(postgres_backlog, command=command) as paused:
        until(lambda: processes_of(run_id(key)))
        paused.pause()
        # Now the command ends, and the worker can't record the result.
        is_paused.touch()
        with Worker(postgres_backlog, command=command, dead_after_seconds=1.5) as other:
            (run,) = postgres_backlog.wait_for_end(key)
            paused.resume()
            later_keys = postgres_backlog.queue_many(postgres_backlog.automation(), 8)
            postgres_backlog.wait_for_end(*later_keys)
            other.stop()
        last_key = postgres_backlog.queue(postgres_backlog.automation())
        postgres_backlog.wait_for_end(last_key)
        paused.stop()

    assert (run.attempt, run.exit_status) == (2, 2)
    assert postgres_backlog.run(key) == run
    assert postgres_backlog.column(last_key, "executor") == paused.executor
    assert processes_of(run_id(key)) == []


def test_another_worker_performs_the_runs_of_a_stopped_one(postgres_backlog):
    key = postgres_backlog.queue(postgres_backlog.automation(runner="command"))
    command = recording_command(postgres_backlog, 'test "$HOOKMILL_ATTEMPT" = 2 || sleep 60')

    with Worker(postgres_backlog, command=command, dead_after_seconds=60) as stopped:
        until(lambda: processes_of(run_id(key)))
        with Worker(postgres_backlog, command=command, dead_after_seconds=60):
            stopped.stop()
            (run,) = postgres_backlog.wait_for_end(key, seconds=30)

    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_worker_that_waits_for_its_commands_to_end_is_not_dead(postgres_backlog):
    """It stops them longer than a worker without heartbeats counts as alive."""
    key = postgres_backlog.queue(postgres_backlog.automation(runner="command"))
    script = 'test "$HOOKMILL_ATTEMPT" = 2 && exit; trap "" TERM; for i in $(seq 60); do sleep 0.1; done'
    settings: dict[str, Any] = {"command": recording_command(postgres_backlog, script), "dead_after_seconds": 2}

    with Worker(postgres_backlog, grace=20, **settings) as stopped:
        until(lambda: performed_attempts(postgres_backlog))
        with Worker(postgres_backlog, **settings) as other:
            report = stopped.stop()
            (run,) = postgres_backlog.wait_for_end(key, seconds=30)
            other_report = other.stop()

    assert (report["failures"], other_report["failures"]) == ([], [])
    assert (run.state, run.attempt, run.counted_attempts) == (RunState.SUCCEEDED, 2, 1)


def test_worker_frozen_before_it_requeues_a_lost_run_takes_no_run(postgres_backlog, monkeypatch):
    """It has found that none of its threads performs the run. Meanwhile, another worker claims it."""
    key = postgres_backlog.queue(postgres_backlog.automation(runner="command"))
    dispatcher = Dispatcher(
        postgres_backlog.database, RunSettings(data=postgres_backlog.data, runners={}), microseconds
    )
    with postgres_backlog.database.write() as tx:
        executors.heartbeat(tx, ExecutorId("other"), microseconds())
        tx.run(
            "UPDATE runs SET state = 'running', attempt = 1, claimed_at = 1, executor = :own", own=dispatcher.executor
        )
    claimed_by = executors.runs_claimed_by

    def freeze_after(tx, executor, **options):
        found = claimed_by(tx, executor, **options)
        if not options:
            with postgres_backlog.database.write() as other:
                other.run("UPDATE runs SET attempt = 2, executor = 'other'")
        return found

    monkeypatch.setattr(executors, "runs_claimed_by", freeze_after)
    dispatcher._requeue_lost({key})

    run = postgres_backlog.run(key)
    assert (run.state, run.attempt, postgres_backlog.column(key, "executor")) == (RunState.RUNNING, 2, "other")


def test_resumed_worker_does_not_end_the_next_attempt_on_its_host(postgres_backlog):
    key = postgres_backlog.queue(postgres_backlog.automation(runner="command"))
    command = recording_command(postgres_backlog, 'test "$HOOKMILL_ATTEMPT" = 1 && exec sleep 60; sleep 4; echo done')

    with Worker(postgres_backlog, command=command) as frozen:
        until(lambda: processes_of(run_id(key)))
        frozen.pause()
        with Worker(postgres_backlog, command=command, dead_after_seconds=1):
            until(lambda: (run_id(key), 2) in performed_attempts(postgres_backlog))
            # The other worker has killed the guard. The resumed one kills processes that the guard may have left.
            frozen.resume()
            (run,) = postgres_backlog.wait_for_end(key)

    assert (run.state, run.attempt, run.output_tail) == (RunState.SUCCEEDED, 2, "done\n")
