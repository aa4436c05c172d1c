"""The page of a run shows what its agent reported, and its summary."""

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import FactoryId, run_id
from hookmill.domain.permission import Role
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_outputs import LAST_MESSAGE, OutputText
from hookmill.store.runs import attempts, claims
from hookmill.store.runs.executors import ExecutorId
from tests.dashboard.client import Dashboard
from tests.support.automations import automation_created
from tests.support.passwords import quick_passwords
from tests.support.triggers import cron_fired
from tests.support.world import World

__all__ = ["quick_passwords"]

SCHEDULE = cron_fired("nightly", "0 3 * * *")


@pytest.fixture
def dashboard(sqlite_store, quick_passwords, tmp_path):
    world = World(sqlite_store)
    yield Dashboard(world)
    world.close()


def page_of_run_with(result: Ended, dashboard: Dashboard) -> str:
    world = dashboard.world
    automation = automation_created(world.management, world.may, "review", triggers=[SCHEDULE])
    run = world.management.automations.start_run(world.may, automation.id)
    worker = ExecutorId("worker")
    with world.database.write() as tx:
        claims.claim(tx, executor=worker, at_most=1, after=FactoryId(""), now=world.clock())
        assert attempts.finish(tx, run.id, result, executor=worker, attempt=1, now=world.clock())
    viewer = dashboard.member("ada@example.com", roles={world.factory.name: Role.VIEWER})
    return viewer.get(f"/f/{world.factory.name}/runs/{run_id(run.id)}").body.decode()


def test_page_of_a_run_shows_its_summary_without_raw_html(dashboard):
    summary = OutputText(text="# Two *bugs*\n<img src=//evil.example>", is_cut=True)

    page = page_of_run_with(Ended(state=RunState.FAILED, outputs={"summary.md": summary}), dashboard)

    assert "<h3>Two <em>bugs</em></h3>\n<p>&lt;img src=//evil.example&gt;</p>" in page
    assert "<code>summary.md</code> has the rest" in page


def test_page_of_a_run_marks_the_last_message_of_its_agent_as_such(dashboard):
    outputs = {LAST_MESSAGE: OutputText(text="# Two *bugs*\n<img src=//evil.example>")}
    report = AgentReport(result="# Two *bugs*\n<img src=//evil.example>", cost_microusd=12_300)

    page = page_of_run_with(Ended(state=RunState.SUCCEEDED, report=report, outputs=outputs), dashboard)

    assert "The run wrote no <code>summary.md</code>, so this is the last message of its agent." in page
    assert "<h3>Two <em>bugs</em></h3>\n<p>&lt;img src=//evil.example&gt;</p>" in page
    assert "<h2>Result</h2>" not in page
    assert "<dt>Used</dt>" in page


def test_page_of_a_run_shows_the_result_and_the_cost_of_its_agent(dashboard):
    report = AgentReport(result="<b>Two</b> bugs.", cost_microusd=12_300, input_tokens=1_500)

    page = page_of_run_with(Ended(state=RunState.SUCCEEDED, report=report), dashboard)

    assert "<dt>Used</dt><dd>$0.0123, 1,500 input tokens</dd>" in page
    assert "&lt;b&gt;Two&lt;/b&gt; bugs.</pre>" in page
