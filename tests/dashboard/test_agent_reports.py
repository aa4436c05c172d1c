"""The page of a run shows what its agent reported."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import FactoryId, run_id
from hookmill.domain.permission import Role
from hookmill.domain.run import Ended, RunState
from hookmill.store.runs import attempts, claims
from hookmill.store.runs.executors import ExecutorId
from tests.dashboard.client import Dashboard
from tests.support.passwords import quick_passwords
from tests.support.world import World

__all__ = ["quick_passwords"]

SCHEDULE = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "nightly", "cron": "0 3 * * *"}}


@pytest.fixture
def dashboard(sqlite_store: str, quick_passwords: None, tmp_path: Path) -> Iterator[Dashboard]:
    world = World(sqlite_store)
    yield Dashboard(world)
    world.close()


def test_page_of_a_run_shows_the_result_and_the_cost_of_its_agent(dashboard: Dashboard):
    world = dashboard.world
    automation = world.management.automations.create(world.may, "review", prompt="Look.", triggers=[SCHEDULE])
    run = world.management.automations.start_run(world.may, automation.id)
    worker = ExecutorId("worker")
    report = AgentReport(result="<b>Two</b> bugs.", cost_microusd=12_300, input_tokens=1_500)
    with world.database.write() as tx:
        claims.claim(tx, executor=worker, at_most=1, after=FactoryId(""), now=world.clock())
        result = Ended(state=RunState.SUCCEEDED, report=report)
        assert attempts.finish(tx, run.id, result, executor=worker, attempt=1, now=world.clock())
    viewer = dashboard.member("ada@example.com", roles={world.factory.name: Role.VIEWER})

    page = viewer.get(f"/f/{world.factory.name}/runs/{run_id(run.id)}").body.decode()

    assert "<dt>Used</dt><dd>$0.0123, 1,500 input tokens</dd>" in page
    assert "&lt;b&gt;Two&lt;/b&gt; bugs.</pre>" in page
