"""The activity of the last 24 hours, by webhook."""

from hookmill.domain.activity import NOT_FOUND, RATE_LIMITED
from hookmill.domain.delivery import Label
from hookmill.management.activity import HOUR_US, HOURS
from tests.support.world import World


def advance_to_half_past(world: World) -> None:
    """Advance the clock to the middle of the next hour."""
    world.clock.advance(seconds=(HOUR_US * 3 // 2 - world.clock.now % HOUR_US) / 1_000_000)


def test_deliveries_of_a_day_are_counted_by_hour_and_label(world):
    source = world.webhook()
    advance_to_half_past(world)
    world.post(source, b"1")
    world.post(source, b"1")
    world.clock.advance(seconds=3600)
    world.post(source, b"2")
    world.post(source, b"not JSON")
    world.post(source, b"3", token="wrong")

    [day] = world.management.log.activity(world.may).values()

    assert len(day.hours) == HOURS
    assert [dict(hour.counts.logged_by_label) for hour in day.hours[-2:]] == [
        {**dict.fromkeys(Label, 0), Label.ACCEPTED: 1, Label.DUPLICATE: 1},
        {**dict.fromkeys(Label, 0), Label.ACCEPTED: 1, Label.REJECTED_INVALID_JSON: 1, Label.REJECTED_AUTH: 1},
    ]


def test_stored_count_of_an_hour_includes_its_last_deliveries(world):
    source = world.webhook()
    advance_to_half_past(world)
    world.post(source, b"1")
    world.clock.advance(seconds=1799)
    before = world.management.log.activity(world.may)[source.webhook.uid].count(Label.ACCEPTED)
    world.post(source, b"2")
    world.clock.advance(seconds=2)
    world.management.log.activity(world.may)
    world.clock.advance(seconds=3600)
    world.management.log.activity(world.may)
    world.clock.advance(seconds=3600)

    day = world.management.log.activity(world.may)[source.webhook.uid]

    assert (before, day.count(Label.ACCEPTED), day.hours[-4].counts.logged(Label.ACCEPTED)) == (1, 2, 2)


def test_day_without_deliveries_shows_the_newest_one_before(world):
    source = world.webhook()
    world.post(source, b"1")
    received_at = world.clock.now
    world.clock.advance(days=1, seconds=3600)

    day = world.management.log.activity(world.may)[source.webhook.uid]

    assert (day.count(Label.ACCEPTED), day.newest.received_at if day.newest else None) == (0, received_at)


def test_dropped_attempts_are_counted_by_reason(world):
    source = world.webhook()
    for number in range(world.limits.deliveries_per_minute + 2):
        world.post(source, b"%d" % number)
    world.management.webhooks.set_enabled(world.may, source.webhook.uid, False)
    world.post(source, b"missed")
    world.dropped_attempts(source)

    day = world.management.log.activity(world.may)[source.webhook.uid]

    assert (day.dropped_count(RATE_LIMITED), day.dropped_count(NOT_FOUND)) == (2, 1)


def test_duplicates_by_body_and_by_id_are_counted_separately(world):
    source = world.webhook()
    for _ in range(3):
        world.post(source, b"1")
        world.post(source, b"2", headers={"X-Service-Delivery-Id": "event-1"})

    day = world.management.log.activity(world.may)[source.webhook.uid]

    assert (day.duplicates_by_body, day.duplicates_checked) == (2, 4)


def test_newest_failed_authentication_is_shown_with_its_reason(world):
    source = world.webhook()
    world.post(source, b"1", token="wrong")
    world.clock.advance(seconds=1)
    world.post(source, b"2")

    day = world.management.log.activity(world.may)[source.webhook.uid]

    assert day.newest is not None
    assert day.newest.label is Label.ACCEPTED
    assert day.newest_failed_authentication is not None
    assert day.newest_failed_authentication.reason


def test_webhooks_of_other_factories_and_deleted_ones_are_excluded(world):
    deleted, remaining = world.webhook("deleted"), world.webhook("remaining")
    world.management.log.activity(world.may)
    other_factory = world.operator_of_new_factory()
    world.management.webhooks.create(other_factory, {"name": "theirs"})
    world.management.webhooks.delete(world.may, deleted.webhook.uid)

    assert list(world.management.log.activity(world.may)) == [remaining.webhook.uid]
