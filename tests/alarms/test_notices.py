"""Which notices destinations get, snoozes, several processes, and the removal of old alarms."""

import time
from concurrent.futures import ThreadPoolExecutor

from hookmill import alarm_watch
from hookmill.alarm_watch import AlarmConfig, AlarmEvaluator, AlarmWatch
from hookmill.domain.alarm import AlarmEvent, AlarmKind, AlarmNotice, AlarmState
from hookmill.domain.ids import alarm_id
from hookmill.management import WebhookWithSecret
from hookmill.store import alarms
from tests.alarms.conftest import Watch
from tests.alarms.test_webhooks import FAILING, fail
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.waiting import until
from tests.support.world import PUBLIC_URL


def correct(watch: Watch, webhook: WebhookWithSecret):
    """Send a delivery, and evaluate until the alarm is resolved."""
    watch.world.post(webhook, b"%d" % watch.world.clock.now)
    watch.evaluate(minutes=12)
    assert watch.open() == {}


def test_notice_names_the_alarm_its_subject_and_its_page(watch, world):
    fail(world, world.webhook(), 5)
    watch.evaluate()

    assert watch.notices == [
        AlarmNotice(
            id=alarm_id(watch.open()[FAILING].key),
            kind=AlarmKind.AUTHENTICATION_FAILING,
            event=AlarmEvent.RAISED,
            factory="default",
            subject="source",
            summary="At least the last 5 attempts failed to authenticate.",
            action=watch.open()[FAILING].rule.action,
            at=world.clock.now,
            url=f"{PUBLIC_URL}/f/default/alarms/{alarm_id(watch.open()[FAILING].key)}",
        )
    ]


@ON_POSTGRES_IN_PROOF
def test_cause_that_comes_and_goes_sends_one_notice_an_hour(watch, world):
    source = world.webhook()
    fail(world, source, 5)
    watch.evaluate()
    correct(watch, source)
    first = watch.events()
    fail(world, source, 5)
    watch.evaluate()
    is_open = list(watch.open())
    correct(watch, source)
    second = watch.events()
    fail(world, source, 5)
    watch.evaluate(minutes=40)

    assert [event for event, _ in first] == [AlarmEvent.RAISED, AlarmEvent.RESOLVED]
    assert (is_open, second) == ([FAILING], [])
    assert [event for event, _ in watch.events()] == [AlarmEvent.RAISED]


def test_condition_that_holds_again_soon_is_the_same_alarm(watch, world):
    source = world.webhook()
    fail(world, source, 5)
    watch.evaluate()
    first = watch.open()[FAILING]
    for _ in range(3):
        world.post(source, b"%d" % world.clock.now)
        watch.evaluate(minutes=9)
        fail(world, source, 5)
        watch.evaluate()

    assert watch.open()[FAILING] == first
    assert len(watch.events()) == 1


@ON_POSTGRES_IN_PROOF
def test_snoozed_alarm_sends_its_notice_again_when_the_snooze_ends(watch, world):
    source = world.webhook()
    fail(world, source, 5)
    watch.evaluate()
    watch.snooze(watch.open()[FAILING], hours=2)
    before = watch.events()
    watch.evaluate(minutes=119)
    during = (watch.open()[FAILING].state(world.clock.now), watch.events())
    watch.evaluate(minutes=2)

    assert [event for event, _ in before] == [AlarmEvent.RAISED]
    assert during == (AlarmState.SNOOZED, [])
    assert [event for event, _ in watch.events()] == [AlarmEvent.RAISED]
    correct(watch, source)
    assert [event for event, _ in watch.events()] == [AlarmEvent.RESOLVED]


@ON_POSTGRES_IN_PROOF
def test_snooze_also_applies_to_the_next_alarm_of_the_subject(watch, world):
    source = world.webhook()
    fail(world, source, 5)
    watch.evaluate()
    watch.snooze(watch.open()[FAILING], hours=8)
    correct(watch, source)
    watch.evaluate(minutes=60)
    watch.events()
    fail(world, source, 5)
    watch.evaluate()

    assert watch.open()[FAILING].state(world.clock.now) is AlarmState.SNOOZED
    assert watch.events() == []


def test_one_process_evaluates_and_another_takes_over_when_it_dies(watch, world):
    other = Watch(world, watch.notices, world.another_process().database)
    fail(world, world.webhook(), 5)
    first = watch.evaluate()
    second = other.evaluator.evaluate()
    world.clock.advance(seconds=120)
    third = other.evaluator.evaluate()
    world.clock.advance(seconds=61)
    fourth = other.evaluator.evaluate()

    assert [first, second, third, fourth] == [True, False, False, True]
    assert watch.evaluator.evaluate() is False
    assert len(watch.events()) == 1


def test_another_process_evaluates_directly_after_one_was_stopped(watch, world, monkeypatch):
    monkeypatch.setattr(alarm_watch, "FIRST_EVALUATION_SECONDS", 0.01)
    other = Watch(world, watch.notices, world.another_process().database)
    world.clock.advance(seconds=240)

    def last_evaluation():
        with world.database.read() as tx:
            return alarms.last_evaluation(tx)

    before = last_evaluation()
    stopped = AlarmWatch(world.database, watch.config, world.clock)
    until(lambda: last_evaluation() != before, "the watch evaluates")
    assert not other.evaluator.evaluate()

    stopped.close()

    assert other.evaluator.evaluate()
    assert not watch.evaluator.evaluate()


def test_process_evaluates_after_the_clock_was_set_back(watch, world):
    other = Watch(world, watch.notices)
    world.clock.advance(days=-1)

    assert other.evaluator.evaluate()


def test_simultaneous_evaluations_raise_one_alarm(watch, world):
    """Both processes find that the condition holds before either of them writes."""
    source = world.webhook()
    fail(world, source, 5)
    others = [Watch(world, watch.notices, world.another_process().database) for _ in range(2)]

    def evaluate(number):
        # Each process may evaluate, because it finds the last evaluation too long ago.
        world_now = world.clock.now + 200_000_000 * (number + 1)
        AlarmEvaluator(others[number].database, watch.config, lambda: world_now).evaluate()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(evaluate, range(2)))

    with world.database.read() as tx:
        assert len(alarms.page(tx, world.factory.id)) == 1
    assert len(watch.events()) == 1


def test_old_resolved_alarms_are_removed(watch, world):
    source, open_one = world.webhook(), world.webhook("open")
    fail(world, source, 5)
    watch.evaluate()
    correct(watch, source)
    fail(world, open_one, 5)
    watch.evaluate()
    world.clock.advance(days=89)
    watch.evaluator.remove_old()
    with world.database.read() as tx:
        kept = len(alarms.page(tx, world.factory.id))
    world.clock.advance(days=2)
    watch.evaluator.remove_old()

    with world.database.read() as tx:
        assert (kept, len(alarms.page(tx, world.factory.id))) == (2, 1)


def test_thread_evaluates_by_itself_and_reports_an_error_once(world, monkeypatch):
    monkeypatch.setattr(alarm_watch, "FIRST_EVALUATION_SECONDS", 0.01)
    monkeypatch.setattr(alarm_watch, "EVALUATION_SECONDS", 0.01)
    monkeypatch.setattr(alarm_watch, "PAUSE_FACTOR", 0)
    fail(world, world.webhook(), 5)
    failures: list[str] = []
    calls: list[float] = []

    def now():
        calls.append(time.monotonic())
        if len(calls) < 4:
            raise RuntimeError("no clock")
        return world.clock.now

    def has_alarm():
        with world.database.read() as tx:
            return bool(alarms.page(tx, world.factory.id))

    running = AlarmWatch(
        world.database,
        AlarmConfig(public_url=PUBLIC_URL),
        now,
        report_failure=lambda component, error: failures.append(f"{component}: {error}"),
    )
    try:
        until(has_alarm)
    finally:
        running.close()

    assert failures == ["alarms: no clock"]
