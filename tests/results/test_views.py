"""The page of a run and the view for programs show what was delivered, and each attempt."""

import pytest

from hookmill.domain.ids import FactoryId, run_id
from hookmill.domain.permission import Role
from hookmill.domain.results import plan_results
from hookmill.domain.run import Ended, RunState
from hookmill.presentation.run import RunWithOutputView
from hookmill.presentation.view import plain
from hookmill.store import results
from hookmill.store.results import NotSent, Sent
from hookmill.store.runs import attempts, claims
from tests.dashboard.client import Dashboard
from tests.results.scene import COMMENT, RULES, SLACK, WORKER
from tests.support.automations import automation_created
from tests.support.passwords import quick_passwords
from tests.support.world import World

__all__ = ["quick_passwords"]

SCHEDULE = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "nightly", "cron": "0 3 * * *"}}


@pytest.fixture
def dashboard(sqlite_store, quick_passwords, tmp_path):
    world = World(sqlite_store)
    yield Dashboard(world)
    world.close()


def test_deliveries_of_results_are_shown_with_their_attempts(dashboard):
    world = dashboard.world
    automation = automation_created(
        world.management, world.may, "review", triggers=[SCHEDULE], options={"results": [COMMENT, SLACK]}
    )
    key = world.management.automations.start_run(world.may, automation.id).id
    with world.database.write() as tx:
        claims.claim(tx, executor=WORKER, at_most=1, after=FactoryId(""), now=world.clock())
    run = world.management.runs.get(world.may, run_id(key))
    planned = plan_results(run.options.results, None, "review", RULES)
    with world.database.write() as tx:
        assert results.begin(tx, run, planned, executor=WORKER, now=world.clock())
    viewer = dashboard.member("ada@example.com", roles={world.factory.name: Role.VIEWER})

    def page_of_run():
        return viewer.get(f"/f/{world.factory.name}/runs/{run_id(key)}").body.decode()

    page_before_end = page_of_run()
    with world.database.write() as tx:
        ended = Ended(state=RunState.SUCCEEDED)
        assert attempts.finish(tx, key, ended, executor=WORKER, attempt=1, now=world.clock())
    pages = []
    for outcome in (NotSent(problem="It <b>failed</b>.", may_have_arrived=True), Sent(status=200)):
        with world.database.write() as tx:
            claimed = results.claim(tx, world.clock(), public_url="https://hooks.test")
            assert claimed is not None
            assert results.finish(tx, claimed, outcome, world.clock())
        pages.append(page_of_run())
        world.clock.advance(seconds=60)

    deliveries = world.management.runs.results(world.may, run_id(key))
    view = plain(RunWithOutputView.of(run, results=deliveries))["results"]

    assert '<span class="tag ">when the run has ended</span>' in page_before_end
    page_after_failure, page = pages
    assert "1 attempt, next attempt at" in page_after_failure
    assert "Deliveries of results" in page
    assert '<span class="tag no">refused</span>' in page
    assert "may have been sent twice" in page
    assert "It &lt;b&gt;failed&lt;/b&gt;." in page
    assert "The payload has no value at /repository/full_name" in page
    assert [(each["kind"], each["state"], each["may_have_been_sent_twice"]) for each in view] == [
        ("github_comment", "refused", False),
        ("slack", "sent", True),
    ]
    assert [each["status"] for each in view[1]["attempts"]] == [None, 200]
