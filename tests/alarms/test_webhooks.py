"""Alarms about webhooks, each raised by its cause, and none by ordinary traffic."""

from hookmill.domain.alarm import AlarmEvent, AlarmKind, AlarmState
from hookmill.domain.run import RunState
from hookmill.management import WebhookWithSecret
from hookmill.store import alarm_inputs, alarms
from tests.alarms.conftest import claim, finish
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.world import World

QUIET = (AlarmKind.WEBHOOK_QUIET, "source")
FAILING = (AlarmKind.AUTHENTICATION_FAILING, "source")
LIMITED = (AlarmKind.RATE_LIMITED, "source")


def fail(world: World, webhook: WebhookWithSecret, times: int):
    """Send deliveries with a wrong secret."""
    for number in range(times):
        assert world.post(webhook, b"%d" % number, token="wrong").status == 401


def exceed_rate_limit(world: World, webhook: WebhookWithSecret):
    """Send one delivery too many within this minute."""
    world.post_many([(webhook, b"[%d, %d]" % (world.clock.now, number)) for number in range(61)])
    assert world.dropped_attempts(webhook)


@ON_POSTGRES_IN_PROOF
def test_webhook_without_the_expected_delivery_is_reported_until_one_arrives(watch, world):
    source = world.webhook(expect_every="2h")
    world.webhook("without a time")
    world.clock.advance(seconds=3_600)
    watch.evaluator.evaluate()
    world.post(source, b"1")
    fail(world, source, 1)

    watch.evaluate(minutes=120)
    before = watch.open()
    watch.evaluate(minutes=1)
    alarm = watch.open()[QUIET]
    world.post(source, b"2")
    watch.evaluate(minutes=1)

    assert before == {}
    assert alarm.summary == "The webhook has accepted no delivery for more than 2 h."
    assert (alarm.raised_at, watch.open()) == (world.clock.now - 60_000_000, {})
    assert watch.events() == [
        (AlarmEvent.RAISED, AlarmKind.WEBHOOK_QUIET),
        (AlarmEvent.RESOLVED, AlarmKind.WEBHOOK_QUIET),
    ]


def test_expected_time_begins_with_each_change_that_lets_deliveries_in(watch, world):
    webhooks = world.management.webhooks
    world.webhook(expect_every="10m", enabled=False)
    watch.evaluate(minutes=11)
    webhooks.set_enabled(world.may, "source", True)
    watch.evaluate(minutes=9)
    webhooks.change(world.may, "source", {"expect_every": "5m"})
    watch.evaluate(minutes=5)
    before = watch.open()
    watch.evaluate(minutes=1)
    after = watch.open()
    webhooks.set_enabled(world.may, "source", False)
    watch.evaluate(minutes=1)

    assert (before, list(after), watch.open()) == ({}, [QUIET], {})


@ON_POSTGRES_IN_PROOF
def test_webhook_is_not_quiet_because_the_service_was_stopped(watch, world):
    source = world.webhook(expect_every="3h")
    world.post(source)
    watch.evaluate(minutes=2)
    world.clock.advance(seconds=6 * 3_600)

    watch.evaluate(minutes=61)
    before = watch.open()
    watch.evaluate(minutes=1)

    assert (before, list(watch.open())) == ({}, [QUIET])


def test_sender_with_a_wrong_secret_is_reported_until_it_is_corrected(watch, world):
    source, other = world.webhook(), world.webhook("other")
    world.post(source, b"[]")
    fail(world, other, 4)
    # The newest of several attempts in the same microsecond is unknown.
    world.clock.advance(seconds=1)
    world.post(other, b"[]")
    world.clock.advance(seconds=1)
    fail(world, other, 4)
    fail(world, source, 4)
    watch.evaluate()
    before = watch.open()
    fail(world, source, 1)
    watch.evaluate()
    raised = watch.open()
    world.post(source, b"[1]")
    watch.evaluate(minutes=10)
    settling = watch.open()
    watch.evaluate()

    assert (before, list(raised), list(settling), watch.open()) == ({}, [FAILING], [FAILING], {})
    assert raised[FAILING].summary == "At least the last 5 attempts failed to authenticate."
    assert watch.events() == [(event, FAILING[0]) for event in (AlarmEvent.RAISED, AlarmEvent.RESOLVED)]


def test_sender_over_the_rate_limit_for_minutes_is_reported(watch, world):
    source = world.webhook()
    for _ in range(2):
        exceed_rate_limit(world, source)
        watch.evaluate()
    before = watch.open()
    exceed_rate_limit(world, source)
    watch.evaluate()
    raised = watch.open()
    watch.evaluate(minutes=25)

    assert (before, list(raised), watch.open()) == ({}, [LIMITED], {})


@ON_POSTGRES_IN_PROOF
def test_no_alarm_is_raised_in_an_hour_of_ordinary_traffic(watch, world):
    """Deliveries with runs, duplicates, bodies that are not JSON, some wrong secrets, some failed runs, and one burst
    over the rate limit."""
    busy, rare = world.webhook("busy", expect_every="5m"), world.webhook("rare", expect_every="1h")
    world.automation("triage", busy)
    for minute in range(60):
        world.post(busy, b"%d" % minute)
        world.post(busy, b"%d" % minute)
        if minute % 10 == 0:
            world.post(busy, b"not JSON")
            fail(world, busy, 3)
            fail(world, rare, 1)
            world.post(rare, b"%d" % minute)
        if minute == 30:
            exceed_rate_limit(world, busy)
        for number, run in enumerate(claim(world)):
            finish(world, run, RunState.FAILED if minute % 10 == number == 0 else RunState.SUCCEEDED)
        watch.evaluate()
        assert watch.open() == {}

    assert watch.events() == []


def test_requests_of_doctor_raise_no_alarm(watch, world):
    probe = world.management.probes.create(world.may, {})
    fail(world, probe, 10)
    for _ in range(3):
        exceed_rate_limit(world, probe)
        watch.evaluate()

    assert watch.open() == {}


def test_all_webhooks_are_evaluated_page_by_page(watch, world, monkeypatch):
    monkeypatch.setattr(alarm_inputs, "WEBHOOKS_PER_READ", 2)
    for number in range(5):
        fail(world, world.webhook(f"webhook {number}"), 5)

    watch.evaluate()

    assert len(watch.open()) == 5


def test_long_row_of_rejected_attempts_decides_nothing_within_the_limit_of_reads(watch, world, monkeypatch):
    monkeypatch.setattr(alarm_inputs, "ATTEMPTS_READ", (2, 4))
    source = world.webhook(expect_every="1h")
    since = world.clock.now

    def accepted():
        with world.database.read() as tx:
            return alarm_inputs.has_accepted(tx, source.webhook.no, since)

    answers = [accepted()]
    for body in (b"1", b"1", b"no JSON", b"no JSON", b"no JSON"):
        world.clock.advance(seconds=1)
        world.post(source, body)
        answers.append(accepted())
    watch.evaluate(minutes=61)
    late_answers = [list(watch.open()), accepted()]
    world.post(source, b"no JSON")
    watch.evaluate(minutes=1)

    assert answers == [False, True, True, True, True, None]
    assert late_answers == [[QUIET], None]
    assert list(watch.open()) == [QUIET]


def test_alarm_of_a_deleted_webhook_is_resolved(watch, world):
    source = world.webhook()
    fail(world, source, 5)
    watch.evaluate()
    world.management.webhooks.change(world.may, "source", {"name": "renamed"})
    watch.evaluate()
    renamed = watch.open()
    world.management.webhooks.delete(world.may, "renamed")
    watch.evaluate(minutes=12)

    assert [name for _, name in renamed] == ["renamed"]
    assert watch.open() == {}
    with world.database.read() as tx:
        [alarm] = alarms.page(tx, world.factory.id)
    assert alarm.state(world.clock.now) is AlarmState.RESOLVED
