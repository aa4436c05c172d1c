"""The page of the queue: what it shows to a member, and how its pages follow each other."""

from collections.abc import Iterator

import pytest

from hookmill.domain.ids import FactoryId, run_id
from hookmill.domain.permission import Role
from hookmill.store.runs import claims, executors, held
from hookmill.store.runs.executors import ExecutorId
from hookmill.web.dashboard import queue as queue_page
from tests.dashboard.client import Dashboard, Elements, Visitor, dashboard_for_test

QUEUE = "/f/default/runs/queue"
WORKER = ExecutorId("worker-host-4711-0a1b2c3d")


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def viewer(dashboard: Dashboard) -> Visitor:
    return dashboard.member("viewer@example.com", roles={"default": Role.VIEWER})


def arrive(dashboard: Dashboard, count: int, **policy: object) -> None:
    """Runs of one automation, as deliveries start them."""
    name = f"automation {len(dashboard.management.automations.all(dashboard.world.may))}"
    webhook = dashboard.world.webhook(f"source of {name}")
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhook.webhook.uid]}}
    dashboard.management.automations.create(
        dashboard.world.may, name, prompt="Look.", triggers=[trigger], policy=policy or None
    )
    for number in range(count):
        assert dashboard.world.post(webhook, b'{"n": %d}' % number).status == 202


def work(dashboard: Dashboard, *, most: int = 0) -> None:
    """As a worker does: decide about held runs, and claim some."""
    with dashboard.world.database.write() as tx:
        now = dashboard.world.clock()
        executors.heartbeat(tx, WORKER, now)
        held.decide(tx, now)
        if most:
            claims.claim(tx, executor=WORKER, at_most=most, after=FactoryId(""), now=now)


def text_of(visitor: Visitor, path: str = QUEUE) -> str:
    answer = visitor.get(path)
    assert answer.status == 200
    return " ".join(Elements(answer.body).text.split())


def test_the_page_shows_counts_runs_and_workers(dashboard: Dashboard, viewer: Visitor):
    arrive(dashboard, 3, concurrency={})
    work(dashboard, most=1)
    arrive(dashboard, 2)
    dashboard.world.clock.advance(seconds=20)

    shown = text_of(viewer)

    assert "1 running 2 ready oldest for 20 s 0 new 2 busy 0 debounce 0 retry" in shown
    assert "automation 0 1 package worker-host, process 4711" in shown
    assert "20 s automation 1 normal It waits for a free slot." in shown
    assert "20 s automation 0 normal It waits until the run with the same key ends." in shown
    assert "worker-host, process 4711 alive 20 s ago 1" in shown
    assert "No worker is alive" not in shown


def test_a_waiting_run_links_to_the_run_before_it(dashboard: Dashboard, viewer: Visitor):
    arrive(dashboard, 2, concurrency={})
    work(dashboard, most=1)
    [active] = dashboard.management.runs.queue(dashboard.world.may).running

    links = [link.attributes["href"] for link in Elements(viewer.get(QUEUE).body).with_tag("a")]

    assert links.count(f"/f/default/runs/{run_id(active.run.id)}") == 2


def test_the_list_of_runs_shows_why_a_queued_run_may_not_start(dashboard: Dashboard, viewer: Visitor):
    arrive(dashboard, 2, concurrency={})
    work(dashboard)

    shown = text_of(viewer, "/f/default/runs")

    assert "queued (busy) automation 0" in shown
    assert "queued automation 0" in shown


def test_a_queue_without_a_live_worker_warns(dashboard: Dashboard, viewer: Visitor):
    assert "No worker is alive" not in text_of(viewer)
    arrive(dashboard, 1)
    without_worker = text_of(viewer)
    work(dashboard)
    with_worker = text_of(viewer)
    dashboard.world.clock.advance(seconds=31)

    assert "No worker is alive, so no run starts. Start `hookmill serve`" in without_worker
    assert "There are no workers." in without_worker
    assert "No worker is alive" not in with_worker
    assert "No worker is alive" in text_of(viewer)
    assert "no heartbeat" in text_of(viewer)


def test_a_run_that_waits_for_a_limit_shows_it(dashboard: Dashboard, viewer: Visitor):
    arrive(dashboard, 2, max_running=1)
    work(dashboard, most=1)

    assert "It waits until another run of its automation ends: only 1 may run at the same time." in text_of(viewer)


def test_pages_follow_each_other(dashboard: Dashboard, viewer: Visitor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queue_page, "PAGE_SIZE", 2)
    arrive(dashboard, 5)
    work(dashboard)
    listed: list[str] = []
    address: str | None = QUEUE
    while address is not None:
        page = Elements(viewer.get(address).body)
        listed += [
            link.attributes["id"] for link in page.with_tag("a") if link.attributes.get("id", "").startswith("run_")
        ]
        address = next((link.attributes["href"] for link in page.with_tag("a") if "rel" in link.attributes), None)

    waiting = dashboard.management.runs.queue(dashboard.world.may).waiting

    assert listed == [run_id(each.run.id) for each in waiting]
    assert len(listed) == 5


def test_an_open_page_gets_nothing_while_nothing_changes(dashboard: Dashboard, viewer: Visitor):
    arrive(dashboard, 1)
    [part] = [each for each in Elements(viewer.get(QUEUE).body).with_tag("div") if each.attributes.get("id") == "queue"]

    unchanged = viewer.get(part.attributes["hx-get"])
    arrive(dashboard, 1)
    changed = viewer.get(part.attributes["hx-get"])

    assert (unchanged.status, changed.status) == (204, 200)


def test_an_unusable_position_is_refused(viewer: Visitor):
    assert viewer.get(f"{QUEUE}?after=run_1").status == 422


# Cancelling


@pytest.fixture
def manager(dashboard: Dashboard) -> Visitor:
    return dashboard.member("manager@example.com", roles={"default": Role.MANAGER})


def test_waiting_runs_are_cancelled_after_a_confirmation(dashboard: Dashboard, manager: Visitor):
    arrive(dashboard, 2, concurrency={})
    work(dashboard, most=1)
    arrive(dashboard, 2)
    link = [each.attributes["href"] for each in Elements(manager.get(QUEUE).body).with_tag("a")]

    question = text_of(manager, f"{QUEUE}/cancel")
    answer = manager.post(f"{QUEUE}/cancel", {"automation": ""})

    assert f"{QUEUE}/cancel" in link
    assert "3 runs wait in this factory." in question
    assert answer.status == 303
    shown = text_of(manager, answer.headers["location"])
    assert "3 waiting runs were cancelled." in shown
    assert "1 running 0 ready" in shown
    assert "No runs wait." in shown


def test_waiting_runs_of_one_automation_are_cancelled(dashboard: Dashboard, manager: Visitor):
    arrive(dashboard, 2)
    arrive(dashboard, 3)
    [first, _] = dashboard.management.automations.all(dashboard.world.may)

    location = manager.post(f"{QUEUE}/cancel", {"automation": first.id}).headers["location"]

    shown = text_of(manager, location)
    assert "2 waiting runs were cancelled." in shown
    assert "0 running 3 ready" in shown


def test_a_viewer_is_not_offered_to_cancel(dashboard: Dashboard, viewer: Visitor):
    arrive(dashboard, 1)

    assert "Cancel waiting runs" not in text_of(viewer)


def test_a_number_in_the_address_is_shown_only_as_a_number(dashboard: Dashboard, viewer: Visitor):
    assert "were cancelled" not in text_of(viewer, f"{QUEUE}?cancelled=many")
    assert "1 waiting run was cancelled." in text_of(viewer, f"{QUEUE}?cancelled=1")
