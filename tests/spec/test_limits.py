"""The limits, exact to the byte, the row and the microsecond; no full webhook stays blocked for longer than the rate
limit says."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.errors import LimitReached
from hookmill.maintenance import run_retention
from hookmill.management import WebhookWithSecret
from tests.spec import shows
from tests.support.world import World

BODY_MAX = 262_144
HOUR = 3_600.0
DAY = 24 * HOUR


@shows("LIMIT-1", "ERROR-3")
@pytest.mark.parametrize(
    ("size", "status"), [(BODY_MAX - 1, 202), (BODY_MAX, 202), (BODY_MAX + 1, 413), (BODY_MAX * 4, 413)]
)
def test_body_of_up_to_262144_bytes_is_accepted_however_it_arrives(world, size, status):
    made = world.webhook()
    whole = b'"' + b"x" * (size - 2) + b'"'
    pieces = [whole[i : i + 60_000] for i in range(0, size, 60_000)]

    answers = [world.post(made, whole).status, world.post(made, iter(pieces)).status]

    assert answers == [status, status]


def test_largest_accepted_body_is_stored_whole(world):
    made = world.webhook()
    body = b'"' + b"x" * (BODY_MAX - 2) + b'"'

    answer = world.post(made, body)

    assert world.management.log.payload(world.may, answer.delivery_id) == body


@shows("LIMIT-2")
def test_61st_delivery_in_a_minute_gets_429_and_retry_after(world):
    made = world.webhook()

    first = [world.post(made, b"%d" % i).status for i in range(60)]
    answer = world.post(made, b"60")

    assert first == [202] * 60
    assert (answer.status, answer.headers["retry-after"]) == (429, "60")


@shows("LIMIT-3")
def test_oldest_delivery_leaves_the_window_after_exactly_60_seconds(world):
    made = world.webhook()
    world.post(made, b"first")
    world.clock.advance(seconds=10)
    sent(world, made, 59)
    world.clock.advance(seconds=50 - 0.000_001)

    early = world.post(made, b'"next"')
    world.clock.advance(seconds=0.000_001)
    in_time = world.post(made, b'"next"')
    too_many = world.post(made, b'"and another"')

    assert (early.status, early.headers["retry-after"]) == (429, "1")
    assert in_time.status == 202
    assert (too_many.status, too_many.headers["retry-after"]) == (429, "10")


@shows("LIMIT-3")
def test_minute_boundary_does_not_allow_120_deliveries(world):
    made = world.webhook()
    world.clock.now -= world.clock.now % 60_000_000
    world.clock.advance(seconds=59)
    before = sent(world, made, 60)
    world.clock.advance(seconds=2)

    after = sent(world, made, 60)

    assert (before, after) == ([202] * 60, [429] * 60)
    assert world.post(made, b"0").headers["retry-after"] == "58"


@shows("LIMIT-3")
def test_rate_limit_window_slides(world):
    made = world.webhook()
    sent(world, made, 30)
    world.clock.advance(seconds=30)
    sent(world, made, 30)
    world.clock.advance(seconds=30)

    answers = sent(world, made, 40)

    assert sorted(answers) == [202] * 30 + [429] * 10
    assert world.post(made, b"0").headers["retry-after"] == "30"


def test_429_does_not_extend_the_window(world):
    made = world.webhook()
    sent(world, made, 60)
    for _ in range(6):
        world.clock.advance(seconds=9.9)
        assert sent(world, made, 20) == [429] * 20
    world.clock.advance(seconds=0.6)

    assert sent(world, made, 60) == [202] * 60


@shows("LOG-2")
def test_429_is_counted_and_leaves_no_row(world):
    made = world.webhook()
    sent(world, made, 60)

    sent(world, made, 14)

    assert (len(world.log(made)), world.dropped_attempts(made)) == (60, {"rate_limited": 14})


@shows("LOG-2")
def test_dropped_attempts_are_counted_per_minute(world):
    made = world.webhook()
    sent(world, made, 60)
    minutes = []
    for count in (3, 4):
        sent(world, made, count)
        minutes.append(world.clock.now - world.clock.now % 60_000_000)
        world.clock.advance(seconds=30)

    world.dropped_attempts(made)

    counts = {row.since: row.count for row in world.management.log.dropped_attempts(world.may, "source")}
    assert counts == {minutes[0]: 3, minutes[1]: 4}


@shows("LIMIT-4")
def test_duplicates_and_invalid_bodies_count_toward_the_rate_limit(world):
    made = world.webhook()
    for i in range(15):
        assert world.post(made, b"%d" % i).status == 202
        assert world.post(made, b"%d" % i).status == 202
        assert world.post(made, b"no json").status == 400
        assert world.post(made, b" " * (BODY_MAX + 1)).status == 413

    assert world.post(made, b"16").status == 429
    assert len(world.log(made)) == 60


@shows("LIMIT-4")
def test_attempts_without_a_row_do_not_count_toward_the_limit(world):
    made = world.webhook()
    path = f"/webhooks/w/{made.webhook.uid}"
    world.has_room = False
    assert {world.post(made).status for _ in range(70)} == {503}
    world.has_room = True
    assert {world.request("GET", path).status for _ in range(70)} == {405}
    assert {world.post(made, headers={"Content-Length": "x"}).status for _ in range(70)} == {400}
    world.management.webhooks.set_enabled(world.may, "source", False)
    assert {world.post(made).status for _ in range(70)} == {404}
    world.management.webhooks.set_enabled(world.may, "source", True)

    assert sent(world, made, 61) == [202] * 60 + [429]


def test_each_webhook_has_its_own_rate_limit(world):
    one, other = world.webhook("one"), world.webhook("other")

    answers = world.post_many([(made, b"%d" % i) for i in range(70) for made in (one, other)])

    assert sorted(answer.status for answer in answers) == [202] * 120 + [429] * 20


def test_60_of_200_simultaneous_deliveries_are_accepted(world):
    made = world.webhook()

    answers = world.post_many([(made, b"%d" % i) for i in range(200)])

    assert sorted(answer.status for answer in answers) == [202] * 60 + [429] * 140
    assert len(world.log(made)) == 60


@shows("LIMIT-3")
def test_60_of_200_simultaneous_deliveries_to_two_processes_are_accepted(world):
    other = world.beside()
    made = world.webhook()

    with ThreadPoolExecutor() as both:
        halves = [both.submit(each.post_many, posts(made, half)) for half, each in enumerate((world, other))]
        answers = [answer.status for half in halves for answer in half.result()]

    assert sorted(answers) == [202] * 60 + [429] * 140
    assert len(world.log(made)) == 60


def test_rate_limit_survives_a_restart(world):
    made = world.webhook()
    sent(world, made, 60)

    assert world.beside().post(made, b"0").status == 429


def test_slow_body_is_not_accepted_as_the_61st_delivery(world):
    made = world.webhook()

    def slowly():
        yield b"["
        world.clock.advance(seconds=20)
        with ThreadPoolExecutor() as others:
            others.submit(world.beside().post_many, [(made, b"%d" % i) for i in range(60)]).result()
        yield b"]"

    assert world.post(made, slowly()).status == 429
    assert len(world.log(made)) == 60


JUMPS = pytest.mark.parametrize(
    "jump",
    [-10 * 365 * DAY, -HOUR, HOUR, 10 * 365 * DAY],
    ids=["-10 years", "-1 h", "+1 h", "+10 years"],
)


@JUMPS
def test_clock_jump_reopens_a_full_webhook(world, jump):
    made = world.webhook()
    sent(world, made, 60)

    world.clock.advance(seconds=jump)

    assert sent(world, made, 61) == [202] * 60 + [429]


@JUMPS
def test_full_webhook_waits_for_its_usual_minute_after_a_clock_jump(world, jump):
    made = world.webhook()
    sent(world, made, 60)
    world.clock.advance(seconds=jump)
    sent(world, made, 60)

    answer = world.post(made, b"0")
    world.clock.advance(seconds=60)

    assert (answer.status, answer.headers["retry-after"]) == (429, "60")
    assert world.post(made, b"0").status == 202


@JUMPS
def test_clock_jump_and_return_leave_no_webhook_blocked(world, jump):
    made = world.webhook()
    world.clock.advance(seconds=jump)
    sent(world, made, 60)

    world.clock.advance(seconds=-jump)

    assert sent(world, made, 61) == [202] * 60 + [429]


@pytest.mark.parametrize("back", [0.5, 30.0, 59.0])
def test_clock_set_back_within_a_minute_prolongs_the_wait_by_as_much(world, back):
    made = world.webhook()
    sent(world, made, 60)

    world.clock.advance(seconds=-back)
    still = world.post(made, b"0")
    world.clock.advance(seconds=60 + back)

    assert (still.status, still.headers["retry-after"]) == (429, str(math.ceil(60 + back)))
    assert world.post(made, b"0").status == 202


@JUMPS
def test_delivery_ids_stay_unique_across_clock_jumps(world, jump):
    made = world.webhook()

    ids = []
    for _ in range(2):
        ids += [answer.delivery_id for answer in world.post_many([(made, b"%d" % i) for i in range(20)])]
        world.clock.advance(seconds=jump)
        ids += [answer.delivery_id for answer in world.post_many([(made, b"%d" % i) for i in range(20)])]
        world.clock.advance(seconds=-jump)

    assert len(set(ids)) == 80


@JUMPS
def test_clock_jump_while_a_body_arrives_changes_no_answer(world, jump):
    made = world.webhook()
    began = world.clock()

    def body() -> Iterator[bytes]:
        yield b'{"event":'
        world.clock.advance(seconds=jump)
        yield b" 1}"

    answer = world.post(made, body())
    repeated = world.post(made, b'{"event": 1}')

    assert (answer.status, repeated.status) == (202, 202)
    assert world.labels(made).count("Accepted") == 1
    assert {row.received_at for row in world.log(made)} <= {began, world.clock()}


def test_full_webhook_that_is_disabled_answers_404_instead_of_429(world):
    other = world.beside()
    made = world.webhook()
    sent(world, made, 60)
    before = [each.post(made, b"0").status for each in (world, other)]

    world.management.webhooks.set_enabled(world.may, "source", False)
    stopped = [each.post(made, b"0").status for each in (world, other)]
    world.management.webhooks.set_enabled(world.may, "source", True)

    assert (before, stopped) == ([429, 429], [404, 404])
    assert [each.post(made, b"0").status for each in (world, other)] == [429, 429]


def test_rotation_does_not_reset_the_rate_limit(world):
    other = world.beside()
    old = world.webhook()
    sent(world, old, 60)
    before = [each.post(old, b"0").status for each in (world, other)]

    new = world.management.webhooks.rotate(world.may, "source")

    assert before == [429, 429]
    assert [each.post(old, b"0").status for each in (world, other)] == [401, 401]
    assert [each.post(new, b"0").status for each in (world, other)] == [429, 429]


def test_body_over_the_rate_limit_is_not_stored(world):
    made = world.webhook()
    sent(world, made, 60)

    world.post(made, b'"canary"')

    with world.database.read() as tx:
        assert b"canary" not in b"".join(bytes(row["body"]) for row in tx.all("SELECT body FROM payloads"))


def test_operator_sets_both_rate_limits(store_url):
    world = World(store_url, deliveries_per_minute=3, failed_authentications_per_minute=2)
    try:
        made = world.webhook()
        failures = [world.post(made, token="wrong").status for _ in range(3)]
        deliveries = sent(world, made, 4)
    finally:
        world.close()

    assert (failures, deliveries) == ([401, 401, 429], [202, 202, 202, 429])


@shows("LIMIT-7")
def test_21st_webhook_of_a_factory_is_refused(world):
    for i in range(20):
        world.webhook(f"source {i}")

    with pytest.raises(LimitReached, match="has 20 webhooks, which is the limit"):
        world.webhook("one more")

    assert len(world.management.webhooks.all(world.may)) == 20


@shows("LIMIT-7")
def test_20_of_40_simultaneous_webhook_creations_succeed(world):
    with ThreadPoolExecutor(40) as people:
        made = [people.submit(world.webhook, f"source {i}") for i in range(40)]
        refused = [each for each in made if isinstance(each.exception(), LimitReached)]

    assert len(refused) == 20
    assert len(world.management.webhooks.all(world.may)) == 20


@shows("LIMIT-7")
def test_disabled_webhooks_count_toward_the_20_and_deleted_do_not(world):
    for i in range(20):
        world.webhook(f"source {i}")
    world.management.webhooks.set_enabled(world.may, "source 0", False)
    with pytest.raises(LimitReached):
        world.webhook("in place of a disabled one")
    world.management.webhooks.delete(world.may, "source 0")

    world.webhook("in place of a deleted one")

    assert len(world.management.webhooks.all(world.may)) == 20


def test_each_factory_has_its_own_limit_of_20_webhooks(world):
    for i in range(20):
        world.webhook(f"source {i}")

    world.management.webhooks.create(world.elsewhere(), "source 0")


@shows("LIMIT-8")
def test_seven_days_of_the_log_are_kept_whatever_their_size(world, tmp_path):
    made = world.webhook()
    for _ in range(3):
        sent(world, made, 60)
        world.clock.advance(seconds=60)
    world.clock.advance(days=6.9)

    swept(world, tmp_path)

    assert len(world.log(made)) == 180


@shows("LIMIT-8")
def test_newest_50_rows_are_kept_beyond_seven_days(world, tmp_path):
    made = world.webhook()
    ids = []
    for i in range(60):
        ids.append(world.post(made, b"%d" % i).delivery_id)
        world.clock.advance(seconds=1)
    world.clock.advance(days=7)

    swept(world, tmp_path)

    assert [f"dlv_{row.key.hex()}" for row in world.log(made)] == ids[:9:-1]


@shows("LIMIT-9")
def test_rejected_attempts_do_not_displace_payloads(world, tmp_path):
    made = world.webhook()
    ids = [world.post(made, b"%d" % i).delivery_id for i in range(50)]
    world.clock.advance(days=1)
    for _ in range(2):
        world.clock.advance(seconds=61)
        for _ in range(60):
            world.post(made, token="wrong")
    world.clock.advance(days=8)

    swept(world, tmp_path)

    assert [world.management.log.payload(world.may, each) for each in ids] == [b"%d" % i for i in range(50)]


def swept(world: World, packages) -> None:
    run_retention(world.database, packages, world.clock())


def sent(world: World, made: WebhookWithSecret, count: int) -> list[int]:
    """Sends different deliveries simultaneously and returns their statuses, the lowest first."""
    bodies = [b"[%d, %d]" % (world.clock.now, i) for i in range(count)]
    return sorted(answer.status for answer in world.post_many([(made, body) for body in bodies]))


def posts(made: WebhookWithSecret, half: int) -> list[tuple[WebhookWithSecret, bytes]]:
    return [(made, b"[%d, %d]" % (half, i)) for i in range(100)]
