"""Workers and schedules: each due time starts one run, also if workers are killed or clocks are corrected."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from hookmill.domain.ids import run_id
from hookmill.domain.moment import iso
from hookmill.domain.run import Run, RunState
from hookmill.runs import dispatcher as dispatcher_module
from hookmill.runs.dispatcher import Dispatcher
from hookmill.runs.perform import RunSettings
from hookmill.runs.runners import CommandRunner, PackageRunner
from tests.runs.backlog import Backlog, Worker
from tests.runs.schedules import DAY, HOUR, MINUTE, all_runs, move_schedules_back, scheduled_automation
from tests.runs.worker import microseconds
from tests.support.counts import ON_POSTGRES_IN_PROOF, count
from tests.support.waiting import until

ROUNDS = count(100, usually=3)


def wait_for_runs(backlog: Backlog, number: int) -> Sequence[Run]:
    """Wait until so many runs have ended, and return all runs."""
    until(
        lambda: len([run for run in all_runs(backlog) if run.state.is_final]) >= number,
        lambda: f"{number} runs have ended: {backlog.states()}",
    )
    return all_runs(backlog)


@contextmanager
def running(backlog: Backlog, clock: Callable[[], int], *, command: str = "true") -> Iterator[Dispatcher]:
    failures: list[str] = []
    dispatcher = Dispatcher(
        backlog.database,
        RunSettings(
            data=backlog.data,
            runners={"package": PackageRunner(), "command": CommandRunner(argv=("sh", "-c", command))},
        ),
        clock,
        report_failure=lambda component, error: failures.append(f"{component}: {error!r}"),
    )
    dispatcher.launch()
    try:
        yield dispatcher
    finally:
        dispatcher.shutdown(0)
    assert failures == []


class MovableClock:
    def __init__(self):
        self.offset = 0

    def __call__(self) -> int:
        return microseconds() + self.offset


@ON_POSTGRES_IN_PROOF
def test_command_of_a_scheduled_run_gets_the_schedule_and_no_payload(backlog):
    scheduled_automation(backlog, runner="command")
    move_schedules_back(backlog, HOUR + MINUTE)

    with running(backlog, microseconds, command="env | grep ^HOOKMILL_ | sort; ls"):
        [run] = wait_for_runs(backlog, 1)

    assert run.state is RunState.SUCCEEDED, run.output_tail
    assert run.schedule is not None
    assert run.output_tail is not None
    lines = run.output_tail.splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    assert variables["HOOKMILL_SCHEDULE"] == "often"
    assert variables["HOOKMILL_SCHEDULED_AT"] == iso(run.schedule.scheduled_at)
    assert variables["HOOKMILL_RUN_ID"] == run_id(run.id)
    assert not variables.keys() & {"HOOKMILL_DELIVERY_ID", "HOOKMILL_WEBHOOK", "HOOKMILL_PAYLOAD_FILE"}
    files = [line for line in lines if "=" not in line]
    assert files == ["envelope.json", "envelope.txt", "output.log", "outputs", "prompt.md"]
    envelope = json.loads((backlog.data / "runs" / run_id(run.id) / "envelope.json").read_text())
    assert (envelope["schedule"]["name"], envelope["payload"]) == ("often", None)


def test_idle_worker_starts_a_run_when_it_becomes_due(backlog):
    clock = MovableClock()
    with running(backlog, clock):
        # An idle worker is notified of a new schedule.
        scheduled_automation(backlog)
        time.sleep(0.3)
        assert all_runs(backlog) == []
        clock.offset = HOUR + MINUTE

        [run] = wait_for_runs(backlog, 1)

    assert run.state is RunState.SUCCEEDED


@ON_POSTGRES_IN_PROOF
def test_run_starts_within_a_second_of_its_scheduled_time(backlog):
    delays_us = []
    with Worker(backlog):
        scheduled_automation(backlog, cron="@every 1m")
        # A busy machine may stand still at one of these times.
        for count in (1, 2, 3, 4, 5):
            move_schedules_back(backlog, next_due_at(backlog) - microseconds() - 1_000_000)
            run = max(wait_for_runs(backlog, count), key=lambda each: each.created_at)
            assert run.schedule is not None
            delays_us.append(run.created_at - run.schedule.scheduled_at)
            if delays_us[-1] < 1_500_000:
                break

    assert min(delays_us) >= 0
    assert min(delays_us) < 1_500_000


def test_idle_worker_follows_a_corrected_clock(backlog, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "TIDY_SECONDS", 0.2)
    monkeypatch.setattr(dispatcher_module, "RECONSIDER_SECONDS", 0.2)
    clock = MovableClock()
    scheduled_automation(backlog)
    clock.offset = 300 * DAY
    with running(backlog, clock):
        wait_for_runs(backlog, 1)
        clock.offset = 0

        until(lambda: next_due_at(backlog) < microseconds() + DAY, "the schedule continues by the corrected clock")

        clock.offset = HOUR + MINUTE
        wait_for_runs(backlog, 2)


def next_due_at(backlog: Backlog) -> int:
    with backlog.database.read() as tx:
        row = tx.one("SELECT MIN(next_at) AS next_at FROM schedules")
    assert row is not None
    return int(row["next_at"])


@pytest.mark.timeout(count(600, usually=120))
@pytest.mark.parametrize("workers", [1, 3])
def test_each_due_time_starts_one_run_although_workers_are_killed(sqlite_store, postgres_store, tmp_path, workers):
    url = sqlite_store if workers == 1 else postgres_store
    settings: dict[str, Any] = {"dead_after_seconds": 1.5, "attempts_max": 100}
    with Backlog(url, tmp_path / "data") as backlog:
        for number in range(10):
            scheduled_automation(backlog, number=number)
        active_workers = [Worker(backlog, **settings) for _ in range(workers)]
        try:
            for round_number in range(ROUNDS):
                move_schedules_back(backlog, HOUR)
                # The schedules are due now. The worker is killed before, between or after their transactions.
                time.sleep(0.01 * round_number % 0.1)
                active_workers.pop(0).kill()
                active_workers.append(Worker(backlog, **settings))
                wait_for_runs(backlog, 10 * (round_number + 1))
        finally:
            for worker in active_workers:
                worker.kill()
        runs = all_runs(backlog)
    assert len(runs) == 10 * ROUNDS
    assert {run.state for run in runs} == {RunState.SUCCEEDED}
