"""The page of the queue: its counts, runs, workers and pages, and the cancellation of waiting runs."""

from hookmill.domain.ids import FactoryId, run_id
from hookmill.domain.run import RunState
from hookmill.store.runs import claims, executors, held
from hookmill.store.runs.executors import ExecutorId
from hookmill.web.dashboard import queue as queue_page
from tests.dashboard.client import Dashboard, Elements, Visitor, text_of
from tests.support.automations import automation_created
from tests.support.triggers import received

QUEUE = "/f/default/runs/queue"
WORKER = ExecutorId("worker-host-4711-0a1b2c3d")


def queue_runs(dashboard: Dashboard, count: int, **policy: object) -> None:
    """Create an automation, and send deliveries that start runs of it."""
    name = f"automation {len(dashboard.management.automations.all(dashboard.world.may))}"
    webhook = dashboard.world.webhook(f"source of {name}")
    trigger = received(webhook.webhook.uid)
    automation_created(dashboard.management, dashboard.world.may, name, triggers=[trigger], policy=policy or None)
    for number in range(count):
        assert dashboard.world.post(webhook, b'{"n": %d}' % number).status == 202


def work(dashboard: Dashboard, *, claims_max: int = 0) -> None:
    """Do what a worker does: send a heartbeat, decide about held runs, and claim some."""
    with dashboard.world.database.write() as tx:
        now = dashboard.world.clock()
        executors.heartbeat(tx, WORKER, now)
        held.decide(tx, now)
        if claims_max:
            claims.claim(tx, executor=WORKER, at_most=claims_max, after=FactoryId(""), now=now)


def page_text(visitor: Visitor, path: str = QUEUE) -> str:
    answer = visitor.get(path)
    assert answer.status == 200
    return text_of(answer.body)


def test_queue_page_shows_counts_runs_and_workers(dashboard, viewer):
    queue_runs(dashboard, 3, concurrency={})
    work(dashboard, claims_max=1)
    queue_runs(dashboard, 2)
    dashboard.world.clock.advance(seconds=20)

    text = page_text(viewer)

    assert "1 running 2 ready oldest for 20 s 0 new 2 busy 0 debounce 0 retry" in text
    assert "automation 0 1 package worker-host, process 4711" in text
    assert "20 s automation 1 normal It waits for a free slot." in text
    assert "20 s automation 0 normal It waits until another run of its automation ends." in text
    assert "worker-host, process 4711 alive 20 s ago 1" in text
    assert "No worker is alive" not in text


def test_waiting_run_links_to_the_run_that_it_waits_for(dashboard, viewer):
    queue_runs(dashboard, 2, concurrency={})
    work(dashboard, claims_max=1)
    [active] = dashboard.management.runs.queue(dashboard.world.may).running

    links = [link.attributes["href"] for link in Elements(viewer.get(QUEUE).body).with_tag("a")]

    assert links.count(f"/f/default/runs/{run_id(active.run.id)}") == 2


def test_waiting_run_names_the_key_only_if_its_policy_has_one(dashboard, viewer):
    queue_runs(dashboard, 2, concurrency={"key": "/missing"})
    work(dashboard)

    assert "It waits until a run with the same key ends." in page_text(viewer)


def test_page_of_a_skipped_run_says_that_it_never_started(dashboard, viewer):
    queue_runs(dashboard, 2, concurrency={"when_busy": "skip"})
    work(dashboard)
    [skipped] = dashboard.management.runs.newest(dashboard.world.may, state=RunState.SKIPPED)

    text = page_text(viewer, f"/f/default/runs/{run_id(skipped.id)}")

    assert "No files: this run never started." in text


def test_list_of_runs_shows_why_a_queued_run_waits(dashboard, viewer):
    queue_runs(dashboard, 2, concurrency={})
    work(dashboard)

    text = page_text(viewer, "/f/default/runs")

    assert "queued (busy) automation 0" in text
    assert "queued automation 0" in text


def test_queue_page_warns_if_no_worker_is_alive(dashboard, viewer):
    assert "No worker is alive" not in page_text(viewer)

    queue_runs(dashboard, 1)
    without_worker = page_text(viewer)
    work(dashboard)
    with_worker = page_text(viewer)
    dashboard.world.clock.advance(seconds=31)
    with_dead_worker = page_text(viewer)

    assert "No worker is alive, so no run starts. Start `hookmill serve`" in without_worker
    assert "There are no workers." in without_worker
    assert "No worker is alive" not in with_worker
    assert "No worker is alive" in with_dead_worker
    assert "no heartbeat" in with_dead_worker


def test_run_that_waits_for_a_limit_shows_the_limit(dashboard, viewer):
    queue_runs(dashboard, 2, max_running=1)
    work(dashboard, claims_max=1)

    assert "It waits until another run of its automation ends: only 1 may run at the same time." in page_text(viewer)


def test_queue_pages_contain_each_run_once(dashboard, viewer, monkeypatch):
    monkeypatch.setattr(queue_page, "PAGE_SIZE", 2)
    queue_runs(dashboard, 5)
    work(dashboard)
    waiting = dashboard.management.runs.queue(dashboard.world.may).waiting
    ids: list[str] = []

    path: str | None = QUEUE
    while path is not None:
        links = [link.attributes for link in Elements(viewer.get(path).body).with_tag("a")]
        ids += [link["id"] for link in links if link.get("id", "").startswith("run_")]
        path = next((link["href"] for link in links if "rel" in link), None)

    assert ids == [run_id(waiting_run.run.id) for waiting_run in waiting]
    assert len(ids) == 5


def test_poll_of_an_unchanged_queue_gets_204(dashboard, viewer):
    queue_runs(dashboard, 1)
    blocks = Elements(viewer.get(QUEUE).body).with_tag("div")
    [poll_url] = [block.attributes["hx-get"] for block in blocks if block.attributes.get("id") == "queue"]

    unchanged = viewer.get(poll_url)
    queue_runs(dashboard, 1)
    changed = viewer.get(poll_url)

    assert (unchanged.status, changed.status) == (204, 200)


def test_invalid_queue_position_is_rejected(viewer):
    assert viewer.get(f"{QUEUE}?after=run_1").status == 422


# Cancelling


def test_all_waiting_runs_are_cancelled_after_a_confirmation(dashboard, manager):
    queue_runs(dashboard, 2, concurrency={})
    work(dashboard, claims_max=1)
    queue_runs(dashboard, 2)
    links = [link.attributes["href"] for link in Elements(manager.get(QUEUE).body).with_tag("a")]

    confirmation = page_text(manager, f"{QUEUE}/cancel")
    answer = manager.post(f"{QUEUE}/cancel", {"automation": ""})

    assert f"{QUEUE}/cancel" in links
    assert "3 runs wait in this factory." in confirmation
    assert answer.status == 303
    text = page_text(manager, answer.headers["location"])
    assert "3 waiting runs were cancelled." in text
    assert "1 running 0 ready" in text
    assert "No runs wait." in text


def test_waiting_runs_of_one_automation_are_cancelled(dashboard, manager):
    queue_runs(dashboard, 2)
    queue_runs(dashboard, 3)
    [first, _] = dashboard.management.automations.all(dashboard.world.may)

    location = manager.post(f"{QUEUE}/cancel", {"automation": first.id}).headers["location"]

    text = page_text(manager, location)
    assert "2 waiting runs were cancelled." in text
    assert "0 running 3 ready" in text


def test_message_about_cancelled_runs_requires_a_number(dashboard, viewer):
    assert "were cancelled" not in page_text(viewer, f"{QUEUE}?cancelled=many")
    assert "1 waiting run was cancelled." in page_text(viewer, f"{QUEUE}?cancelled=1")
