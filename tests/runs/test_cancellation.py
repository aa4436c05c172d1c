"""Cancellation of many runs while a worker performs some of them."""

import json
from typing import Any

from hookmill.domain.queue import CancelledRuns
from hookmill.domain.run import RunState
from hookmill.domain.run_policy import Concurrency, RunPolicy
from hookmill.management import InstallationConfig, Management
from hookmill.store.keys.sealing import KeyRing, MasterKey
from tests.runs.backlog import Backlog
from tests.runs.test_dispatcher import GateRunner, running
from tests.runs.worker import microseconds
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.waiting import until

ONE_RUN_PER_KEY = RunPolicy(concurrency=Concurrency(key=("/pr",)))


def cancel_many(backlog: Backlog, **conditions: Any) -> CancelledRuns:
    config = InstallationConfig(
        public_url="https://hooks.test", webhooks_per_factory=20, runner_names=("gate",), default_runner="gate"
    )
    management = Management(backlog.database, KeyRing([MasterKey(b"k" * 32)]), config, microseconds)
    return management.runs.cancel_many(management.access.operator("fac_one"), **conditions)


@ON_POSTGRES_IN_PROOF
def test_no_further_run_of_a_key_starts_when_all_runs_are_cancelled(backlog, monkeypatch):
    monkeypatch.setattr("hookmill.store.runs.cancellation.BATCH_RUNS", 7)
    gate = GateRunner()
    automation = backlog.automation(runner="gate", policy=ONE_RUN_PER_KEY)
    keys = [backlog.queue(automation, payload=json.dumps({"pr": number % 3}).encode()) for number in range(60)]
    with running(backlog, gate=gate, slots=6):
        until(lambda: gate.active == 3, "one run of each key is running")

        result = cancel_many(backlog, all_runs=True)
        runs = backlog.wait_for_end(*keys)

    assert result == CancelledRuns(cancelled=57, stopping=3)
    assert {run.state for run in runs} == {RunState.CANCELLED}
    assert sum(run.attempt for run in runs) == len(gate.factories) == 3


def test_all_runs_end_if_cancelled_while_runs_start_and_end(backlog, monkeypatch):
    monkeypatch.setattr("hookmill.store.runs.cancellation.BATCH_RUNS", 7)
    automation = backlog.automation(policy=ONE_RUN_PER_KEY)
    keys = [backlog.queue(automation, payload=json.dumps({"pr": number % 4}).encode()) for number in range(60)]
    keys += backlog.queue_many(backlog.automation(), 60)
    with running(backlog):
        until(lambda: backlog.states().get("succeeded", 0) > 3, "some runs have ended")

        result = cancel_many(backlog, all_runs=True)
        runs = backlog.wait_for_end(*keys)

    assert result.cancelled == sum(run.state is RunState.CANCELLED and run.attempt == 0 for run in runs)
    assert {run.state for run in runs} == {RunState.CANCELLED, RunState.SUCCEEDED}
