"""The outbox of results: every end of a run is reported, in order, and what a dead sender left is sent again."""

import pytest

from hookmill.domain.ids import AutomationId, RunKey
from hookmill.domain.run import RunState
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.spec import read
from hookmill.store import automations, results
from hookmill.store.backup.adopting import adopt
from hookmill.store.notices import ATTEMPTS_MAX, CLAIM_US, RESTORED, RETRY_US_MAX
from hookmill.store.results import DIED, END, ClaimedResult, NothingToSend, NotSent, Sent
from hookmill.store.runs import attempts, cancellation, executors, held
from hookmill.store.runs.executors import ExecutorId
from tests.results.scene import CHECK, COMMENT, SLACK, STATUS, WEBHOOK, WORKER, Scene
from tests.runs.backlog import Backlog


@pytest.fixture
def scene(store_url, tmp_path):
    backlog = Backlog(store_url, tmp_path)
    yield Scene(backlog)
    backlog.database.close()


@pytest.fixture
def sqlite_scene(sqlite_store, tmp_path):
    backlog = Backlog(sqlite_store, tmp_path)
    yield Scene(backlog)
    backlog.database.close()


def test_start_and_end_of_a_run_are_reported_in_order(scene):
    key = scene.started(STATUS, COMMENT, SLACK, WEBHOOK)
    assert scene.states(key) == ["waiting", "open", "open", "open", "waiting", "open"]
    assert sorted(scene.send_all()) == [("github_status", "started"), ("webhook", "started")]

    scene.finish(key)

    assert sorted(scene.send_all()) == [
        ("github_comment", "succeeded"),
        ("github_status", "succeeded"),
        ("slack", "succeeded"),
        ("webhook", "succeeded"),
    ]
    assert set(scene.states(key)) == {"sent"}
    assert scene.send_all() == []


def finish(scene: Scene, run: RunKey):
    scene.finish(run, RunState.FAILED)


def requeue(scene: Scene, run: RunKey, attempts_max: int):
    with scene.backlog.database.write() as tx:
        executors.requeue(tx, [run], attempts_max=attempts_max, now=scene.now)


def cancel(scene: Scene, run: RunKey):
    with scene.backlog.database.write() as tx:
        cancellation.request_cancel(tx, run, now=scene.now)


def cancel_while_queued(scene: Scene, run: RunKey):
    requeue(scene, run, 9)
    cancel(scene, run)


def cancel_while_its_worker_is_dead(scene: Scene, run: RunKey):
    cancel(scene, run)
    requeue(scene, run, 9)


def interrupt(scene: Scene, run: RunKey):
    requeue(scene, run, 1)


def cancel_after_a_fault_of_the_host(scene: Scene, run: RunKey):
    cancel(scene, run)
    with scene.backlog.database.write() as tx:
        attempts.release(tx, run, executor=WORKER, attempt=1, counts_as_attempt=True, now=scene.now)


def delete_the_automation_while_queued(scene: Scene, run: RunKey):
    requeue(scene, run, 9)
    delete_the_automation(scene, run)


def delete_the_automation(scene: Scene, run: RunKey):
    with scene.backlog.database.write() as tx:
        automation = automations.live_by_id(tx, AutomationId(scene.backlog.run(run).automation_id))
        assert automation is not None
        automations.delete(tx, automation, scene.now)
    if scene.backlog.run(run).state is RunState.QUEUED:
        scene.begin(run)
    finish(scene, run)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (finish, "failed"),
        (cancel_while_queued, "cancelled"),
        (cancel_while_its_worker_is_dead, "cancelled"),
        (interrupt, "interrupted"),
        (cancel_after_a_fault_of_the_host, "cancelled"),
        (delete_the_automation, "failed"),
        (delete_the_automation_while_queued, "failed"),
    ],
)
def test_no_end_of_a_run_leaves_its_status_pending(scene, end, state):
    key = scene.started(STATUS, CHECK)
    assert sorted(scene.send_all()) == [("github_check", "started"), ("github_status", "started")]

    end(scene, key)

    assert sorted(scene.send_all()) == [("github_check", state), ("github_status", state)]


def decide(scene: Scene):
    """Decide which held runs start, as the dispatcher does."""
    with scene.backlog.database.write() as tx:
        held.reconsider_all(tx)
        held.decide(tx, scene.now)


def replaced(scene: Scene, *, while_queued: bool) -> tuple[RunKey, RunKey]:
    """A run whose start was reported, and the run for the same commit that has replaced it, which may start."""
    options = read(RunOptions, {"results": [STATUS]})
    policy = read(RunPolicy, {"concurrency": {"when_busy": "replace"}})
    automation = scene.backlog.automation(options=options, policy=policy)
    older = scene.backlog.queue(automation)
    decide(scene)
    scene.begin(older)
    assert scene.send_all() == [("github_status", "started")]
    if while_queued:
        requeue(scene, older, 9)
    newer = scene.backlog.queue(automation)
    decide(scene)
    if not while_queued:
        scene.finish(older, RunState.CANCELLED)
    assert scene.backlog.run(older).state is RunState.REPLACED
    decide(scene)
    return older, newer


@pytest.mark.parametrize("while_queued", [False, True])
def test_replaced_run_does_not_leave_its_status_pending(scene, while_queued):
    older, newer = replaced(scene, while_queued=while_queued)
    assert scene.send_all() == [("github_status", "replaced")]

    scene.begin(newer)
    scene.finish(newer)

    assert scene.send_all() == [("github_status", "succeeded")]
    assert scene.states(older) == ["sent", "sent"]


@pytest.mark.parametrize("while_queued", [False, True])
def test_end_of_a_replaced_run_never_hides_the_status_of_the_newer_one(scene, while_queued):
    older, newer = replaced(scene, while_queued=while_queued)

    scene.begin(newer)

    assert scene.send_all() == [("github_status", "started")]
    assert scene.states(older) == ["sent", "superseded"]
    scene.finish(newer)
    assert scene.send_all() == [("github_status", "succeeded")]


def test_retried_run_reports_its_start_once(scene):
    key = scene.started(STATUS, WEBHOOK)
    scene.send_all()
    requeue(scene, key, 9)

    scene.begin(key)

    assert scene.send_all() == []
    assert scene.states(key) == ["sent", "open", "sent", "open"]


def test_outdated_attempt_reports_nothing(scene):
    key = scene.queue(STATUS)
    assert not scene.begin_results(key)
    scene.begin(key)

    assert not scene.begin_results(key, ExecutorId("other"))
    assert len(scene.deliveries(key)) == 2


def test_status_of_an_end_replaces_a_start_that_still_waits(scene):
    key = scene.started(STATUS)
    scene.finish(key)

    assert scene.send_all() == [("github_status", "succeeded")]
    assert scene.states(key) == ["superseded", "sent"]


def test_end_waits_while_the_start_is_being_sent(scene):
    key = scene.started(STATUS)
    start = scene.claim()
    assert start is not None
    scene.finish(key)
    assert scene.claim() is None

    assert scene.record(start, Sent(status=201))
    assert scene.send_all() == [("github_status", "succeeded")]


def test_start_that_could_not_be_sent_is_not_repeated_after_the_end(scene):
    key = scene.started(STATUS)
    start = scene.claim()
    assert start is not None
    scene.finish(key)
    assert scene.claim() is None

    assert scene.record(start, NotSent(problem="down", status=500))

    assert scene.send_all() == [("github_status", "succeeded")]
    assert scene.states(key) == ["superseded", "sent"]


def test_end_knows_the_check_run_that_the_start_has_created(scene):
    key = scene.started(CHECK)
    scene.send_all()
    scene.finish(key)

    end = scene.claim()

    assert end is not None
    assert (end.remote_id, end.may_have_check_run) == (7, True)


def test_start_of_a_check_run_that_was_never_sent_is_not_searched(scene):
    key = scene.started(CHECK)
    scene.finish(key)

    end = scene.claim()

    assert end is not None
    assert (end.remote_id, end.may_have_check_run) == (None, False)
    assert scene.states(key) == ["superseded", "waiting"]


def test_start_of_a_check_run_that_may_have_arrived_is_searched(scene):
    key = scene.started(CHECK)
    start = scene.claim()
    assert start is not None
    assert scene.record(start, NotSent(problem="no answer", may_have_arrived=True))
    scene.finish(key)

    end = scene.claim()

    assert end is not None
    assert (end.remote_id, end.may_have_check_run, end.may_have_arrived) == (None, True, False)


def test_newer_run_never_replaces_the_check_run_of_an_older_one(scene):
    older = scene.started(CHECK)
    scene.finish(older, RunState.FAILED)

    newer = scene.started(CHECK)

    assert sorted(scene.send_all()) == [("github_check", "failed"), ("github_check", "started")]
    scene.finish(newer)
    assert scene.send_all() == [("github_check", "succeeded")]


def test_older_status_never_replaces_a_newer_one(scene):
    older = scene.started(STATUS)
    scene.finish(older, RunState.FAILED)
    claimed = scene.claim()
    assert claimed is not None
    assert scene.record(claimed, NotSent(problem="down", status=500))
    scene.advance(1)

    scene.started({**STATUS, "context": "hookmill/Answer"})

    assert scene.send_all() == [("github_status", "started")]
    scene.advance(3_600)
    assert scene.send_all() == []
    assert scene.states(older) == ["superseded", "superseded"]


def test_messages_of_a_webhook_are_never_reordered(scene):
    key = scene.started(WEBHOOK)
    start = scene.claim()
    assert start is not None
    assert scene.record(start, NotSent(problem="down", status=500))
    scene.finish(key)

    assert scene.send_all() == []
    scene.advance(31)
    assert scene.send_all() == [("webhook", "started"), ("webhook", "succeeded")]


def test_end_is_sent_after_the_start_whatever_the_clock_says(scene):
    key = scene.started(WEBHOOK)
    scene.finish(key)
    scene.advance(-1)
    assert scene.claim() is None
    scene.advance(1)

    assert scene.send_all() == [("webhook", "started"), ("webhook", "succeeded")]


@pytest.mark.parametrize("declared", [CHECK, STATUS, WEBHOOK], ids=lambda declared: declared["kind"])
def test_start_is_never_sent_after_the_end_if_the_clock_was_corrected(sqlite_scene, declared):
    scene = sqlite_scene
    scene.started(declared)
    start = scene.claim()
    assert start is not None
    scene.advance(-60)
    scene.finish(start.result.run)
    assert scene.claim() is None

    assert scene.record(start, NotSent(problem="down", status=500))
    scene.advance(3_600)

    about = [what for _, what in scene.send_all()]
    assert about == (["started", "succeeded"] if declared is WEBHOOK else ["succeeded"])


def test_only_one_message_at_a_time_is_sent_to_a_destination(scene):
    for _ in range(2):
        scene.finish(scene.started(SLACK))
    scene.finish(scene.started(WEBHOOK))
    first, second = scene.claim(), scene.claim()

    assert first is not None
    assert second is not None
    assert (first.destination, second.destination) == ("team", "ci")
    assert scene.claim() is None


def test_message_of_a_sender_that_died_is_sent_again_and_marked(scene):
    key = scene.started(SLACK)
    scene.finish(key)
    dead = scene.claim()
    assert dead is not None
    assert scene.claim() is None
    scene.advance(CLAIM_US / 1_000_000)

    again = scene.claim()

    assert again is not None
    assert (again.attempt, again.may_have_arrived) == (2, True)
    assert not scene.record(dead, Sent(status=200))
    assert scene.record(again, Sent(status=200))
    (delivery,) = scene.deliveries(key)
    assert (delivery.state, delivery.is_uncertain) == ("sent", True)
    assert [(each.status, each.problem) for each in delivery.attempts] == [(None, DIED), (200, None)]


def test_released_message_of_a_dead_worker_is_sent_again_and_marked(scene):
    ci, team = scene.started(WEBHOOK), scene.started(SLACK)
    for key in (ci, team):
        scene.finish(key)
    dead, living = scene.claim(WORKER), scene.claim(ExecutorId("other"))
    assert dead is not None
    assert living is not None

    with scene.backlog.database.write() as tx:
        results.release(tx, WORKER)

    again = scene.claim(ExecutorId("other"))
    assert again is not None
    assert (again.destination, again.attempt, again.may_have_arrived) == (dead.destination, 2, True)
    assert scene.claim() is None, "the other message is still being sent"
    assert not scene.record(dead, Sent(status=200))
    assert scene.record(again, Sent(status=200))
    (message,) = [each for each in scene.deliveries(dead.result.run) if each.is_about_end == (dead.phase == END)]
    assert (message.state, message.is_uncertain) == ("sent", True)
    assert [(each.at, each.status, each.problem) for each in message.attempts] == [
        (dead.claimed_at, None, DIED),
        (again.claimed_at, 200, None),
    ]


def test_worker_that_lives_after_all_records_its_released_message(scene):
    key = scene.started(SLACK)
    scene.finish(key)
    claimed = scene.claim(WORKER)
    assert claimed is not None
    with scene.backlog.database.write() as tx:
        results.release(tx, WORKER)

    assert scene.record(claimed, Sent(status=200))

    assert scene.states(key) == ["sent"]
    assert scene.claim() is None


def sent_late(scene: Scene, result: dict[str, str]) -> tuple[RunKey, ClaimedResult]:
    """A run whose start and end another worker has reported, and the claim of the start by a frozen worker."""
    key = scene.started(result)
    late = scene.claim(WORKER)
    assert late is not None
    with scene.backlog.database.write() as tx:
        results.release(tx, WORKER)
    scene.send_all()
    scene.finish(key)
    scene.send_all()
    assert scene.states(key) == ["sent", "sent"]
    return key, late


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (Sent(status=201), [("github_status", "succeeded")]),
        (NotSent(problem="No response.", may_have_arrived=True), [("github_status", "succeeded")]),
        (NotSent(problem="The name can't be resolved."), []),
    ],
)
def test_newer_state_is_sent_again_after_an_older_one_arrived_late(scene, outcome, again):
    _, late = sent_late(scene, STATUS)

    assert not scene.record(late, outcome)

    assert scene.send_all() == again


def test_check_run_that_was_created_late_is_completed(scene):
    key, late = sent_late(scene, CHECK)

    assert not scene.record(late, Sent(status=201, remote_id=9))

    claimed = scene.claim()
    assert claimed is not None
    assert (claimed.phase, claimed.remote_id) == (END, 9)
    assert scene.record(claimed, Sent(status=200, remote_id=9))
    assert scene.claim() is None
    assert [each.is_uncertain for each in scene.deliveries(key)] == [True, True]


def test_same_state_is_not_sent_again_after_it_arrived_twice(scene):
    key = scene.started(STATUS)
    late = scene.claim(WORKER)
    assert late is not None
    with scene.backlog.database.write() as tx:
        results.release(tx, WORKER)
    scene.send_all()

    assert not scene.record(late, Sent(status=201))

    assert scene.send_all() == []
    assert scene.states(key) == ["sent", "open"]


def test_message_is_not_claimed_again_by_an_earlier_clock(scene):
    key = scene.started(SLACK)
    scene.finish(key)
    claimed = scene.claim()
    assert claimed is not None
    scene.advance(-1)

    assert scene.claim() is None

    assert scene.record(claimed, NotSent(problem="busy", status=429, retry_after_seconds=3_600))
    scene.advance(-1)
    assert scene.claim() is None
    assert len(scene.deliveries(key)[0].attempts) == 1


def test_message_is_given_up_after_its_last_attempt(scene):
    key = scene.started(SLACK)
    scene.finish(key)
    for _ in range(ATTEMPTS_MAX):
        claimed = scene.claim()
        assert claimed is not None
        scene.record(claimed, NotSent(problem="down", status=503))
        scene.advance(RETRY_US_MAX / 1_000_000)

    assert scene.claim() is None
    (delivery,) = scene.deliveries(key)
    assert (delivery.state, delivery.problem, len(delivery.attempts)) == ("failed", "down", ATTEMPTS_MAX)


def test_message_whose_senders_all_died_is_given_up(scene):
    key = scene.started(SLACK)
    scene.finish(key)
    for _ in range(ATTEMPTS_MAX):
        assert scene.claim() is not None
        scene.advance(CLAIM_US / 1_000_000)

    assert scene.claim() is None
    assert scene.states(key) == ["failed"]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (NotSent(problem="answered 404", status=404, is_final=True), "refused"),
        (NothingToSend(reason="The run wrote no text for a comment."), "omitted"),
    ],
)
def test_message_that_can_never_be_sent_is_not_repeated(scene, outcome, state):
    key = scene.started(SLACK)
    scene.finish(key)
    claimed = scene.claim()
    assert claimed is not None

    scene.record(claimed, outcome)

    scene.advance(86_400)
    assert scene.claim() is None
    assert scene.states(key) == [state]


@pytest.mark.parametrize("retry_after", [0, 120, 10**6])
def test_next_attempt_waits_as_long_as_the_destination_asks(sqlite_scene, retry_after):
    scene = sqlite_scene
    scene.finish(scene.started(SLACK))
    claimed = scene.claim()
    assert claimed is not None
    scene.record(claimed, NotSent(problem="busy", status=429, retry_after_seconds=retry_after))

    scene.advance(min(max(retry_after, 30), 3_600) - 0.001)
    assert scene.claim() is None
    scene.advance(0.001)
    assert scene.claim() is not None


def test_refused_target_is_shown_and_never_sent(sqlite_scene):
    key = sqlite_scene.started({**STATUS, "commit": "/nothing"})
    sqlite_scene.finish(key)

    assert sqlite_scene.send_all() == []
    (delivery,) = sqlite_scene.deliveries(key)
    assert (delivery.state, delivery.target.text()) == ("refused", "")
    assert delivery.problem is not None
    assert delivery.problem.startswith("The payload has no value at /nothing")


def test_restored_copy_sends_only_what_its_own_runs_report(sqlite_scene):
    sent, running, cancelled = [sqlite_scene.started(WEBHOOK) for _ in range(3)]
    sqlite_scene.finish(sent)
    sqlite_scene.send_all()
    being_sent = sqlite_scene.started(COMMENT)
    sqlite_scene.finish(being_sent)
    assert sqlite_scene.claim() is not None
    waiting = sqlite_scene.started(WEBHOOK)
    not_opened = sqlite_scene.started(COMMENT)
    sqlite_scene.finish(not_opened)
    cancel(sqlite_scene, cancelled)

    with sqlite_scene.backlog.database.write() as tx:
        adopted = adopt(tx, sqlite_scene.now)

    assert adopted.unsent_results == 4
    assert {key: sqlite_scene.states(key) for key in (sent, running, cancelled, being_sent, waiting, not_opened)} == {
        sent: ["sent", "sent"],
        running: ["sent", "open"],
        cancelled: ["sent", "failed"],
        being_sent: ["failed"],
        waiting: ["failed", "open"],
        not_opened: ["failed"],
    }
    assert sqlite_scene.deliveries(being_sent)[0].problem == RESTORED
    sqlite_scene.advance(2 * CLAIM_US / 1_000_000)
    assert sqlite_scene.send_all() == []
    for key in (running, waiting):
        sqlite_scene.begin(key)
        sqlite_scene.finish(key)
    assert sqlite_scene.send_all() == [("webhook", "succeeded")] * 2
