"""Automations that are disabled after failed runs in a row, and limits of running runs with real commands."""

from dataclasses import replace

import pytest

from hookmill.domain.run import RunState
from hookmill.domain.run_policy import Retry, RunPolicy
from hookmill.store import audit, automations, pauses
from tests.runs.backlog import Backlog, Worker
from tests.runs.worker import microseconds
from tests.support.waiting import until

PAYLOAD_DECIDES = ["sh", "-c", "grep -q good event-payload.json"]
GOOD, BAD = b'"good"', b'"bad"'


def queue_each(backlog: Backlog, automation: str, *payloads: bytes) -> None:
    """Perform runs one after the other."""
    for payload in payloads:
        backlog.wait_for_end(backlog.queue(automation, payload=payload))


def stored(backlog: Backlog, automation: str):
    with backlog.database.read() as tx:
        return automations.live_by_id(tx, automation)  # type: ignore[arg-type]


def failing(backlog: Backlog, failures: int, **policy) -> str:
    return backlog.automation(runner="command", policy=RunPolicy(pause_after_failures=failures, **policy))


def test_failures_in_a_row_disable_the_automation(backlog):
    automation = failing(backlog, 3)
    with Worker(backlog, command=PAYLOAD_DECIDES):
        queue_each(backlog, automation, BAD, BAD, GOOD, BAD, BAD)
        before = stored(backlog, automation)
        queue_each(backlog, automation, BAD)
        until(lambda: not stored(backlog, automation).enabled)

    paused = stored(backlog, automation)
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


def test_its_waiting_runs_are_still_performed(backlog):
    automation = failing(backlog, 1)
    first, second = backlog.queue_many(automation, 2, payload=BAD)

    with Worker(backlog, command=PAYLOAD_DECIDES, slots=1):
        runs = backlog.wait_for_end(first, second)

    assert [run.state for run in runs] == [RunState.FAILED, RunState.FAILED]


def test_an_attempt_that_is_retried_is_no_failed_run(on_sqlite):
    automation = failing(on_sqlite, 1, retry=Retry(attempts=2, backoff_seconds=1))
    with Worker(on_sqlite, command=["sh", "-c", 'test "$HOOKMILL_ATTEMPT" = 2']):
        queue_each(on_sqlite, automation, BAD)

    assert stored(on_sqlite, automation).enabled


def test_cancelled_runs_count_for_nothing(on_sqlite):
    automation = failing(on_sqlite, 2)
    with Worker(on_sqlite, command=["sh", "-c", "grep -q good event-payload.json || exit 1; sleep 60"]):
        queue_each(on_sqlite, automation, BAD)
        key = on_sqlite.queue(automation, payload=GOOD)
        until(lambda: on_sqlite.run(key).state is RunState.RUNNING)
        on_sqlite.request_cancel(key)
        on_sqlite.wait_for_end(key)
        enabled = stored(on_sqlite, automation).enabled
        queue_each(on_sqlite, automation, BAD)
        until(lambda: not stored(on_sqlite, automation).enabled)

    assert enabled


def test_a_pause_that_a_killed_worker_left_undone_is_made_up_for(backlog):
    automation = failing(backlog, 2)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET failures_in_row = 2")

    with Worker(backlog, command=PAYLOAD_DECIDES):
        until(lambda: not stored(backlog, automation).enabled)


def test_interrupted_runs_count_as_failed(backlog):
    automation = failing(backlog, 1)
    key = backlog.queue(automation)
    worker = Worker(backlog, command=["sleep", "60"], attempts_max=1, dead_after_seconds=1)
    until(lambda: backlog.run(key).state is RunState.RUNNING)
    worker.kill()

    with Worker(backlog, command=PAYLOAD_DECIDES, attempts_max=1, dead_after_seconds=1):
        backlog.wait_for_end(key)
        until(lambda: not stored(backlog, automation).enabled)

    assert backlog.run(key).state is RunState.INTERRUPTED


def test_enabling_it_again_forgets_its_failures(backlog):
    automation = failing(backlog, 2)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET failures_in_row = 2")
    pauses.pause_failing(backlog.database, microseconds())
    paused = stored(backlog, automation)
    with backlog.database.write() as tx:
        automations.set_enabled(tx, paused, True, microseconds())
    pauses.pause_failing(backlog.database, microseconds())

    assert not paused.enabled
    assert stored(backlog, automation).enabled
    assert stored(backlog, automation).pause_reason is None


def test_a_new_version_starts_without_failures(backlog):
    automation = failing(backlog, 2)
    with backlog.database.write() as tx:
        tx.run("UPDATE automations SET failures_in_row = 1")
    before = stored(backlog, automation)
    with backlog.database.write() as tx:
        automations.save(tx, before, replace(before, version=2))
        row = tx.one("SELECT failures_in_row FROM automations WHERE id = :id", id=automation)

    assert row["failures_in_row"] == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_commands_never_exceed_the_limit(sqlite_store, postgres_store, tmp_path, workers):
    with Backlog(sqlite_store if workers == 1 else postgres_store, tmp_path / "data") as backlog:
        directory = tmp_path / "watch"
        directory.mkdir()
        command = [
            "sh",
            "-c",
            f"touch {directory}/on-$HOOKMILL_RUN_ID; ls {directory} | grep -c on- >> {tmp_path}/counts; sleep 0.05;"
            f" rm {directory}/on-$HOOKMILL_RUN_ID",
        ]
        automation = backlog.automation(runner="command", policy=RunPolicy(max_running=2))
        keys = backlog.queue_many(automation, 20)
        started = [Worker(backlog, command=command) for _ in range(workers)]
        try:
            runs = backlog.wait_for_end(*keys)
        finally:
            for worker in started:
                worker.kill()

    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert all(run.state is RunState.SUCCEEDED for run in runs)
    assert max(counts) == 2
