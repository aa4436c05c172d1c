"""Many runs are cancelled in one operation: its conditions, its result, and its line in the audit log."""

from typing import Any

import pytest

from hookmill.domain.errors import Invalid, NotFound, Revoked
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.domain.queue import CancelledRuns
from hookmill.domain.run import RunState
from tests.support.world import World

NOTHING = CancelledRuns(cancelled=0, stopping=0)


@pytest.fixture
def queued(world: World) -> World:
    """Two automations, each with a webhook and three queued runs."""
    for name in ("triage", "review"):
        webhook = world.webhook(f"source of {name}")
        world.automation(name, webhook)
        for number in range(3):
            assert world.post(webhook, b'{"n": %d}' % number).status == 202
    return world


def states(world: World) -> list[str]:
    return sorted(f"{run.automation_name} {run.state}" for run in world.management.runs.newest(world.may))


def lines(world: World) -> list[Any]:
    return [
        (entry.subject_name, dict(entry.details))
        for entry in world.management.audit.of_factory(world.may)
        if entry.action == "factory.cancel_runs"
    ]


def test_all_runs_of_a_factory_are_cancelled_in_several_transactions(queued: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hookmill.store.runs.cancellation.BATCH_RUNS", 2)

    result = queued.management.runs.cancel_many(queued.may, all_runs=True)

    assert result == CancelledRuns(cancelled=6, stopping=0)
    assert set(states(queued)) == {"review cancelled", "triage cancelled"}
    assert lines(queued) == [("default", {"runs": 6})]


@pytest.mark.parametrize(
    ("conditions", "details"),
    [
        ({"automation": "triage"}, {"automation": "triage"}),
        ({"webhook": "source of triage"}, {"webhook": "source of triage"}),
        ({"automation": "triage", "state": RunState.QUEUED}, {"automation": "triage", "state": "queued"}),
    ],
)
def test_conditions_restrict_the_runs_and_are_in_the_audit_log(
    queued: World, conditions: dict[str, Any], details: dict[str, str]
):
    assert queued.management.runs.count_to_cancel(queued.may, **conditions) == 3

    result = queued.management.runs.cancel_many(queued.may, **conditions)

    assert result == CancelledRuns(cancelled=3, stopping=0)
    assert states(queued) == ["review queued"] * 3 + ["triage cancelled"] * 3
    assert lines(queued) == [("default", details | {"runs": 3})]


def test_conditions_that_no_run_meets_leave_no_line(queued: World):
    cancel_many = queued.management.runs.cancel_many

    assert cancel_many(queued.may, automation="triage", webhook="source of review") == NOTHING
    assert cancel_many(queued.may, state=RunState.RUNNING) == NOTHING
    assert cancel_many(queued.elsewhere("other"), all_runs=True) == NOTHING
    assert lines(queued) == []
    assert set(states(queued)) == {"review queued", "triage queued"}


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
def test_unusable_conditions_change_nothing(queued: World, conditions: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        queued.management.runs.cancel_many(queued.may, **conditions)

    assert set(states(queued)) == {"review queued", "triage queued"}


def test_a_key_that_was_revoked_meanwhile_cancels_nothing(queued: World, admin: MayAdminister, manager: MayManage):
    queued.management.keys.revoke(admin, manager.actor.id)

    with pytest.raises(Revoked):
        queued.management.runs.cancel_many(manager, all_runs=True)

    assert set(states(queued)) == {"review queued", "triage queued"}
