"""The operation that cancels many runs: its conditions, its result, and its line in the audit log."""

from typing import Any

import pytest

from hookmill.domain.errors import Invalid, NotFound, Revoked
from hookmill.domain.queue import CancelledRuns
from hookmill.domain.run import RunState
from tests.support.world import World

NONE_CANCELLED = CancelledRuns(cancelled=0, stopping=0)


@pytest.fixture(autouse=True)
def queued_runs(world):
    """Two automations, each with a webhook and three queued runs."""
    for name in ("triage", "review"):
        webhook = world.webhook(f"source of {name}")
        world.automation(name, webhook)
        for number in range(3):
            assert world.post(webhook, b'{"n": %d}' % number).status == 202


def states(world: World) -> list[str]:
    return sorted(f"{run.automation_name} {run.state}" for run in world.management.runs.newest(world.may))


def audit_lines(world: World) -> list[Any]:
    """The subject and the details of each line about this operation."""
    return [
        (entry.subject_name, dict(entry.details))
        for entry in world.management.audit.of_factory(world.may)
        if entry.action == "factory.cancel_runs"
    ]


def test_all_runs_of_a_factory_are_cancelled_in_several_transactions(world, monkeypatch):
    monkeypatch.setattr("hookmill.store.runs.cancellation.BATCH_RUNS", 2)

    result = world.management.runs.cancel_many(world.may, all_runs=True)

    assert result == CancelledRuns(cancelled=6, stopping=0)
    assert set(states(world)) == {"review cancelled", "triage cancelled"}
    assert audit_lines(world) == [("default", {"runs": 6})]


@pytest.mark.parametrize(
    ("conditions", "details"),
    [
        ({"automation": "triage"}, {"automation": "triage"}),
        ({"webhook": "source of triage"}, {"webhook": "source of triage"}),
        ({"automation": "triage", "state": RunState.QUEUED}, {"automation": "triage", "state": "queued"}),
    ],
)
def test_conditions_restrict_the_cancelled_runs_and_are_in_the_audit_log(world, conditions, details):
    assert world.management.runs.count_to_cancel(world.may, **conditions) == 3

    result = world.management.runs.cancel_many(world.may, **conditions)

    assert result == CancelledRuns(cancelled=3, stopping=0)
    assert states(world) == ["review queued"] * 3 + ["triage cancelled"] * 3
    assert audit_lines(world) == [("default", details | {"runs": 3})]


def test_conditions_that_no_run_meets_add_no_line(world):
    cancel_many = world.management.runs.cancel_many

    assert cancel_many(world.may, automation="triage", webhook="source of review") == NONE_CANCELLED
    assert cancel_many(world.may, state=RunState.RUNNING) == NONE_CANCELLED
    assert cancel_many(world.operator_of_new_factory("other"), all_runs=True) == NONE_CANCELLED
    assert audit_lines(world) == []
    assert set(states(world)) == {"review queued", "triage queued"}


@pytest.mark.parametrize(
    ("conditions", "error"),
    [
        ({}, Invalid),
        ({"all_runs": True, "automation": "triage"}, Invalid),
        ({"state": RunState.FAILED}, Invalid),
        ({"automation": "unknown"}, NotFound),
        ({"webhook": "unknown"}, NotFound),
    ],
)
def test_invalid_conditions_are_refused(world, conditions, error):
    with pytest.raises(error):
        world.management.runs.cancel_many(world.may, **conditions)

    assert set(states(world)) == {"review queued", "triage queued"}


def test_key_that_was_revoked_meanwhile_cannot_cancel(world, admin, manager):
    world.management.keys.revoke(admin, manager.actor.id)

    with pytest.raises(Revoked):
        world.management.runs.cancel_many(manager, all_runs=True)

    assert set(states(world)) == {"review queued", "triage queued"}
