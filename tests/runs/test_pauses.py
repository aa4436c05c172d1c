"""Automations that are disabled after failed runs in a row, and limits of running runs with real commands."""

import pytest
from msgspec import structs

from hookmill.domain.run import RunState
from hookmill.domain.run_policy import Retry, RunPolicy
from hookmill.store import audit, automations, pauses
from tests.runs.backlog import Backlog, Worker
from tests.runs.worker import microseconds
from tests.support.counts import ON_POSTGRES_IN_PROOF, only_in_proof
from tests.support.waiting import until

SUCCEED_IF_GOOD = ["sh", "-c", "grep -q good event-payload.json"]
GOOD, BAD = b'"good"', b'"bad"'


def perform_in_turn(backlog: Backlog, automation: str, *payloads: bytes):
    """Queue a run for each payload, one after the other has ended."""
    for payload in payloads:
        backlog.wait_for_end(backlog.queue(automation, payload=payload))


def stored_automation(backlog: Backlog, automation: str):
    with backlog.database.read() as tx:
        return automations.live_by_id(tx, automation)  # type: ignore[arg-type]


def pausing_automation(backlog: Backlog, failures: int, **policy) -> str:
    """A new automation that is paused after so many failed runs in a row."""
    return backlog.automation(runner="command", policy=RunPolicy(pause_after_failures=failures, **policy))


@ON_POSTGRES_IN_PROOF
def test_consecutive_failed_runs_disable_the_automation(backlog):
    automation = pausing_automation(backlog, 3)
    with Worker(backlog, command=SUCCEED_IF_GOOD):
        perform_in_turn(backlog, automation, BAD, BAD, GOOD, BAD, BAD)
        before = stored_automation(backlog, automation)
        perform_in_turn(backlog, automation, BAD)
        until(lambda: not stored_automation(backlog, automation).enabled)

    paused = stored_automation(backlog, automation)
    with backlog.database.read() as tx:
        [entry] = audit.newest(tx, "team", factory=None, before=None, limit=10)  # type: ignore[arg-type]
    assert before.enabled
    assert before.pause_reason is None
    assert paused.pause_reason == "Its last 3 runs failed."
    assert (entry.action, entry.subject_id, entry.actor_kind, entry.channel) == (
        "automation.pause",
        automation,
        "service",
        "service",
    )


@ON_POSTGRES_IN_PROOF
def test_queued_runs_of_a_paused_automation_are_still_performed(backlog):
    automation = pausing_automation(backlog, 1)
    first, second = backlog.queue_many(automation, 2, payload=BAD)

    with Worker(backlog, command=SUCCEED_IF_GOOD, slots=1):
        runs = backlog.wait_for_end(first, second)

    assert [run.state for run in runs] == [RunState.FAILED, RunState.FAILED]


def test_retried_attempt_does_not_count_as_a_failed_run(sqlite_backlog):
    automation = pausing_automation(sqlite_backlog, 1, retry=Retry(attempts=2, backoff_seconds=1))
    with Worker(sqlite_backlog, command=["sh", "-c", 'test "$HOOKMILL_ATTEMPT" = 2']):
        perform_in_turn(sqlite_backlog, automation, BAD)

    assert stored_automation(sqlite_backlog, automation).enabled


def test_cancelled_run_is_neither_a_failure_nor_a_success(sqlite_backlog):
    automation = pausing_automation(sqlite_backlog, 2)
    with Worker(sqlite_backlog, command=["sh", "-c", "grep -q good event-payload.json || exit 1; sleep 60"]):
        perform_in_turn(sqlite_backlog, automation, BAD)
        key = sqlite_backlog.queue(automation, payload=GOOD)
        until(lambda: sqlite_backlog.run(key).state is RunState.RUNNING)
        sqlite_backlog.request_cancel(key)
        sqlite_backlog.wait_for_end(key)
        was_enabled = stored_automation(sqlite_backlog, automation).enabled
        perform_in_turn(sqlite_backlog, automation, BAD)
        until(lambda: not stored_automation(sqlite_backlog, automation).enabled)

    assert was_enabled


@ON_POSTGRES_IN_PROOF
def test_next_worker_performs_the_pause_that_a_killed_one_missed(backlog):
    automation = pausing_automation(backlog, 2)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET failures_in_row = 2")

    with Worker(backlog, command=SUCCEED_IF_GOOD):
        until(lambda: not stored_automation(backlog, automation).enabled)


@ON_POSTGRES_IN_PROOF
def test_interrupted_run_counts_as_failed(backlog):
    automation = pausing_automation(backlog, 1)
    key = backlog.queue(automation)
    worker = Worker(backlog, command=["sleep", "60"], attempts_max=1, dead_after_seconds=1)
    until(lambda: backlog.run(key).state is RunState.RUNNING)
    worker.kill()

    with Worker(backlog, command=SUCCEED_IF_GOOD, attempts_max=1, dead_after_seconds=1):
        backlog.wait_for_end(key)
        until(lambda: not stored_automation(backlog, automation).enabled)

    assert backlog.run(key).state is RunState.INTERRUPTED


def test_enabling_an_automation_resets_its_failure_count(backlog):
    automation = pausing_automation(backlog, 2)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET failures_in_row = 2")
    pauses.pause_failing(backlog.database, microseconds())
    paused = stored_automation(backlog, automation)
    with backlog.database.write() as tx:
        automations.set_enabled(tx, paused, True, microseconds())
    pauses.pause_failing(backlog.database, microseconds())

    assert not paused.enabled
    assert stored_automation(backlog, automation).enabled
    assert stored_automation(backlog, automation).pause_reason is None


def test_new_version_of_an_automation_resets_its_failure_count(backlog):
    automation = pausing_automation(backlog, 2)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET failures_in_row = 1")
    before = stored_automation(backlog, automation)
    with backlog.database.write() as tx:
        automations.save(tx, before, structs.replace(before, version=2, unreadable_parts={}))
        row = tx.one("SELECT failures_in_row FROM automations WHERE id = :id", id=automation)

    assert row["failures_in_row"] == 0


@pytest.mark.parametrize("workers", [1, only_in_proof(3)])
def test_running_commands_never_exceed_max_running(sqlite_store, postgres_store, tmp_path, workers):
    with Backlog(sqlite_store if workers == 1 else postgres_store, tmp_path / "data") as backlog:
        directory = tmp_path / "running"
        directory.mkdir()
        counts_file = tmp_path / "counts"
        # Each command waits up to 10 s until two commands have run at the same time.
        command = [
            "sh",
            "-c",
            f"touch {directory}/on-$HOOKMILL_RUN_ID; for i in $(seq 200); do"
            f" ls {directory} | grep -c on- >> {counts_file}; grep -qx 2 {counts_file} && break; sleep 0.05; done;"
            f" sleep 0.05; rm {directory}/on-$HOOKMILL_RUN_ID",
        ]
        automation = backlog.automation(runner="command", policy=RunPolicy(max_running=2))
        keys = backlog.queue_many(automation, 20)
        active_workers = [Worker(backlog, command=command) for _ in range(workers)]
        try:
            runs = backlog.wait_for_end(*keys)
        finally:
            for worker in active_workers:
                worker.kill()

    counts = [int(line) for line in counts_file.read_text().split()]
    assert all(run.state is RunState.SUCCEEDED for run in runs)
    assert max(counts) == 2
