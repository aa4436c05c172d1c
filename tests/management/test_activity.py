"""The last day in numbers, on both stores."""

from hookmill.domain.activity import NOT_FOUND, RATE_LIMITED
from hookmill.domain.delivery import Label
from hookmill.management.activity import HOUR_US, HOURS
from tests.support.world import World


def at_half_past(world: World) -> None:
    world.clock.advance(seconds=(HOUR_US * 3 // 2 - world.clock.now % HOUR_US) / 1_000_000)


def test_a_day_is_counted_by_hour_and_label(world: World):
    made = world.webhook()
    at_half_past(world)
    world.post(made, b"1")
    world.post(made, b"1")
    world.clock.advance(seconds=3600)
    world.post(made, b"2")
    world.post(made, b"not JSON")
    world.post(made, b"3", token="wrong")

    [day] = world.management.log.activity(world.may).values()

    assert len(day.hours) == HOURS
    assert [dict(hour.counts.logged_by_label) for hour in day.hours[-2:]] == [
        {**dict.fromkeys(Label, 0), Label.ACCEPTED: 1, Label.DUPLICATE: 1},
        {**dict.fromkeys(Label, 0), Label.ACCEPTED: 1, Label.REJECTED_INVALID_JSON: 1, Label.REJECTED_AUTH: 1},
    ]
    assert day.logged_attempt_count == 5


def test_a_finished_hour_is_remembered_with_its_last_deliveries(world: World):
    made = world.webhook()
    at_half_past(world)
    world.post(made, b"1")
    world.clock.advance(seconds=1799)
    before = world.management.log.activity(world.may)[made.webhook.uid].logged_attempt_count
    world.post(made, b"2")
    world.clock.advance(seconds=2)
    world.management.log.activity(world.may)
    world.clock.advance(seconds=3600)
    world.management.log.activity(world.may)
    world.clock.advance(seconds=3600)
    day = world.management.log.activity(world.may)[made.webhook.uid]

    assert (before, day.logged_attempt_count, day.hours[-4].counts.logged(Label.ACCEPTED)) == (1, 2, 2)


def test_a_day_without_deliveries_still_shows_the_last_one(world: World):
    made = world.webhook()
    world.post(made, b"1")
    received = world.clock.now
    world.clock.advance(days=1, seconds=3600)

    day = world.management.log.activity(world.may)[made.webhook.uid]

    assert (day.logged_attempt_count, day.newest.received_at if day.newest else None) == (0, received)


def test_refused_attempts_are_counted_by_what_they_were_refused_for(world: World):
    made = world.webhook()
    for number in range(world.limits.deliveries_per_minute + 2):
        world.post(made, b"%d" % number)
    world.management.webhooks.set_enabled(world.may, made.webhook.uid, False)
    world.post(made, b"missed")
    world.dropped_attempts(made)

    day = world.management.log.activity(world.may)[made.webhook.uid]

    assert (day.dropped_count(RATE_LIMITED), day.dropped_count(NOT_FOUND)) == (2, 1)


def test_duplicates_by_body_and_by_id_are_counted_separately(world: World):
    made = world.webhook()
    for _ in range(3):
        world.post(made, b"1")
        world.post(made, b"2", headers={"X-Service-Delivery-Id": "event-1"})

    day = world.management.log.activity(world.may)[made.webhook.uid]

    assert (day.duplicates_by_body, day.duplicates_checked) == (2, 4)


def test_the_reason_of_the_last_failed_authentication_is_shown(world: World):
    made = world.webhook()
    world.post(made, b"1", token="wrong")
    world.clock.advance(seconds=1)
    world.post(made, b"2")

    day = world.management.log.activity(world.may)[made.webhook.uid]

    assert day.newest is not None
    assert day.newest.label is Label.ACCEPTED
    assert day.newest_failed_authentication is not None
    assert day.newest_failed_authentication.reason


def test_other_factories_and_deleted_webhooks_have_no_part_in_it(world: World):
    gone, kept = world.webhook("gone"), world.webhook("kept")
    world.management.log.activity(world.may)
    other = world.elsewhere()
    world.management.webhooks.create(other, "theirs")
    world.management.webhooks.delete(world.may, gone.webhook.uid)

    assert list(world.management.log.activity(world.may)) == [kept.webhook.uid]
