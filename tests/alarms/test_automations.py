"""Alarms about automations: runs that fail, and runs that wait."""

from collections.abc import Callable
from typing import Any

import pytest

from hookmill.domain.alarm import AlarmKind
from hookmill.domain.ids import AutomationId
from hookmill.domain.run import RunState
from hookmill.store import alarm_inputs
from hookmill.store.runs import held
from tests.alarms.conftest import claim, finish
from tests.store.query_plans import query_plans, scans_many_runs
from tests.support.automations import automation_created
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.triggers import received
from tests.support.world import World

FAILING = (AlarmKind.RUNS_FAILING, "triage")
WAITING = (AlarmKind.RUNS_WAITING, "triage")

Perform = Callable[..., None]


@pytest.fixture
def perform(world):
    """Sends a delivery for each state, and ends its run in this state."""
    source = world.webhook()

    def perform(*states: RunState):
        for state in states:
            world.clock.advance(seconds=1)
            assert world.post(source, b"%d" % world.clock.now).status == 202
            [run] = claim(world)
            finish(world, run, state)

    return perform


def automation(world: World, **options: Any) -> AutomationId:
    """An automation for all deliveries of the webhook `source`."""
    source = world.management.webhooks.get(world.may, "source")
    trigger = received(source.uid)
    created = automation_created(world.management, world.may, "triage", triggers=[trigger], **options)
    return created.id


FAILED, SUCCEEDED = RunState.FAILED, RunState.SUCCEEDED


@ON_POSTGRES_IN_PROOF
def test_automation_with_failed_runs_in_a_row_is_reported_until_one_succeeds(watch, world, perform):
    automation(world)
    perform(FAILED, FAILED, FAILED, FAILED, SUCCEEDED, FAILED, FAILED, RunState.INTERRUPTED)
    perform(RunState.CANCELLED, FAILED)
    watch.evaluate()
    before = watch.open()
    perform(FAILED)
    watch.evaluate()
    raised = watch.open()
    perform(SUCCEEDED)
    watch.evaluate(minutes=11)

    assert (before, list(raised), watch.open()) == ({}, [FAILING], {})
    assert raised[FAILING].summary == "At least the last 5 runs failed."
    assert [event.value for event, _ in watch.events()] == ["raised", "resolved"]


def test_automation_that_paused_itself_is_reported_until_it_is_enabled(watch, world, perform):
    paused = automation(world, policy={"pause_after_failures": 2})
    perform(FAILED, FAILED)
    watch.evaluate()
    raised = watch.open()
    watch.evaluate(minutes=30)
    still_open = watch.open()
    world.management.automations.set_enabled(world.may, paused, True)
    watch.evaluate(minutes=11)

    assert raised[FAILING].summary == "The automation was disabled because of its failures. Its last 2 runs failed."
    assert (list(still_open), watch.open()) == ([FAILING], {})


def test_run_that_waits_for_a_worker_is_reported_until_it_starts(watch, world, perform):
    automation(world)
    source = world.management.webhooks.secret_for_sending(world.may, "source")
    world.post(source)
    watch.evaluate(minutes=15)
    before = watch.open()
    watch.evaluate(minutes=1)
    raised = watch.open()
    claim(world)
    watch.evaluate(minutes=11)

    assert (before, list(raised), watch.open()) == ({}, [WAITING], {})
    assert raised[WAITING].summary == "A run has waited for a worker for more than 15 min."


def test_run_that_no_worker_has_decided_about_is_reported(watch, world, perform):
    automation(world, policy={"concurrency": {"key": "/n", "limit": 1}})
    world.post(world.management.webhooks.secret_for_sending(world.may, "source"))

    watch.evaluate(minutes=18)

    assert list(watch.open()) == [WAITING]


@ON_POSTGRES_IN_PROOF
def test_run_that_waited_behind_another_is_no_waiting_run(watch, world, perform):
    """The run is an hour old when it may start, and a worker claims it within a minute."""
    automation(world, policy={"concurrency": {"key": "/n", "limit": 1}})
    source = world.management.webhooks.secret_for_sending(world.may, "source")
    world.post(source, b"1")
    world.post(source, b"2")
    [first] = claim(world)
    watch.evaluate(minutes=60)
    finish(world, first, SUCCEEDED)
    with world.database.write() as tx:
        held.decide(tx, world.clock.now)
    watch.evaluate(minutes=1)
    [second] = claim(world)
    watch.evaluate(minutes=1)

    assert second != first
    assert watch.open() == {}


def test_search_for_waiting_runs_is_limited_and_reads_no_ended_runs(watch, world, perform, monkeypatch):
    monkeypatch.setattr(alarm_inputs, "RUNS_READ", 3)
    automation(world)
    source = world.management.webhooks.secret_for_sending(world.may, "source")
    world.post_many([(source, b"%d" % number) for number in range(5)])

    with world.database.read() as tx:
        found = alarm_inputs.waiting_runs(tx, b"\xff" * 16)
    plans = query_plans(world.database, lambda tx: alarm_inputs.waiting_runs(tx, b"\xff" * 16))

    assert len(found) == 3
    if world.database.on_sqlite:
        assert [plan for plan in plans if scans_many_runs(plan)] == []
