"""Limits of sizes, rates, webhooks and the log. They are exact to the byte, the row and the microsecond.

A webhook at its rate limit is never blocked for longer than the limit says, even if the clock jumps.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
    webhook = world.webhook()
    body = b'"' + b"x" * (size - 2) + b'"'
    chunks = [body[i : i + 60_000] for i in range(0, size, 60_000)]

    answers = [world.post(webhook, body).status, world.post(webhook, iter(chunks)).status]

    assert answers == [status, status]


@shows("LIMIT-2")
def test_61st_delivery_in_a_minute_gets_429_and_retry_after(world):
    webhook = world.webhook()

    first = [world.post(webhook, b"%d" % i).status for i in range(60)]
    answer = world.post(webhook, b"60")

    assert first == [202] * 60
    assert (answer.status, answer.headers["retry-after"]) == (429, "60")


@shows("LIMIT-3")
def test_oldest_delivery_leaves_the_window_after_exactly_60_seconds(world):
    webhook = world.webhook()
    world.post(webhook, b"first")
    world.clock.advance(seconds=10)
    send(world, webhook, 59)
    world.clock.advance(seconds=50 - 0.000_001)

    early = world.post(webhook, b'"next"')
    world.clock.advance(seconds=0.000_001)
    in_time = world.post(webhook, b'"next"')
    too_many = world.post(webhook, b'"and another"')

    assert (early.status, early.headers["retry-after"]) == (429, "1")
    assert in_time.status == 202
    assert (too_many.status, too_many.headers["retry-after"]) == (429, "10")


@shows("LIMIT-3")
def test_minute_boundary_does_not_allow_120_deliveries(world):
    webhook = world.webhook()
    world.clock.now -= world.clock.now % 60_000_000
    world.clock.advance(seconds=59)
    before = send(world, webhook, 60)
    world.clock.advance(seconds=2)

    after = send(world, webhook, 60)

    assert (before, after) == ([202] * 60, [429] * 60)
    assert world.post(webhook, b"0").headers["retry-after"] == "58"


@shows("LIMIT-3")
def test_rate_limit_window_slides(world):
    webhook = world.webhook()
    send(world, webhook, 30)
    world.clock.advance(seconds=30)
    send(world, webhook, 30)
    world.clock.advance(seconds=30)

    answers = send(world, webhook, 40)

    assert sorted(answers) == [202] * 30 + [429] * 10
    assert world.post(webhook, b"0").headers["retry-after"] == "30"


@shows("LOG-2")
def test_429_is_counted_and_not_logged(world):
    webhook = world.webhook()
    send(world, webhook, 60)

    send(world, webhook, 14)

    assert (len(world.log(webhook)), world.dropped_attempts(webhook)) == (60, {"rate_limited": 14})


@shows("LOG-2")
def test_dropped_attempts_are_counted_per_minute(world):
    webhook = world.webhook()
    send(world, webhook, 60)
    minutes = []
    for count in (3, 4):
        send(world, webhook, count)
        minutes.append(world.clock.now - world.clock.now % 60_000_000)
        world.clock.advance(seconds=30)

    world.dropped_attempts(webhook)

    counts = {row.since: row.count for row in world.management.log.dropped_attempts(world.may, "source")}
    assert counts == {minutes[0]: 3, minutes[1]: 4}


@shows("LIMIT-4")
def test_duplicates_and_invalid_bodies_count_toward_the_rate_limit(world):
    webhook = world.webhook()
    for i in range(15):
        assert world.post(webhook, b"%d" % i).status == 202
        assert world.post(webhook, b"%d" % i).status == 202
        assert world.post(webhook, b"no json").status == 400
        assert world.post(webhook, b" " * (BODY_MAX + 1)).status == 413

    assert world.post(webhook, b"16").status == 429
    assert len(world.log(webhook)) == 60


@shows("LIMIT-4")
def test_attempts_without_a_row_do_not_count_toward_the_limit(world):
    webhook = world.webhook()
    path = f"/webhooks/w/{webhook.webhook.uid}"
    world.has_room = False
    assert {world.post(webhook).status for _ in range(70)} == {503}
    world.has_room = True
    assert {world.request("GET", path).status for _ in range(70)} == {405}
    assert {world.post(webhook, headers={"Content-Length": "x"}).status for _ in range(70)} == {400}
    world.management.webhooks.set_enabled(world.may, "source", False)
    assert {world.post(webhook).status for _ in range(70)} == {404}
    world.management.webhooks.set_enabled(world.may, "source", True)

    assert send(world, webhook, 61) == [202] * 60 + [429]


@shows("LIMIT-3")
def test_60_of_200_simultaneous_deliveries_to_two_processes_are_accepted(world):
    other = world.another_process()
    webhook = world.webhook()

    with ThreadPoolExecutor() as threads:
        halves = [threads.submit(each.post_many, posts(webhook, half)) for half, each in enumerate((world, other))]
        statuses = [answer.status for half in halves for answer in half.result()]

    assert sorted(statuses) == [202] * 60 + [429] * 140
    assert len(world.log(webhook)) == 60


def test_rate_limit_survives_a_restart(world):
    webhook = world.webhook()
    send(world, webhook, 60)

    assert world.another_process().post(webhook, b"0").status == 429


def test_slow_delivery_is_not_accepted_as_the_61st(world):
    webhook = world.webhook()

    def slow_body():
        yield b"["
        world.clock.advance(seconds=20)
        with ThreadPoolExecutor() as thread:
            thread.submit(world.another_process().post_many, [(webhook, b"%d" % i) for i in range(60)]).result()
        yield b"]"

    assert world.post(webhook, slow_body()).status == 429
    assert len(world.log(webhook)) == 60


JUMPS = pytest.mark.parametrize(
    "jump",
    [-10 * 365 * DAY, -HOUR, HOUR, 10 * 365 * DAY],
    ids=["-10 years", "-1 h", "+1 h", "+10 years"],
)


@JUMPS
def test_clock_jump_resets_the_rate_limit(world, jump):
    webhook = world.webhook()
    send(world, webhook, 60)

    world.clock.advance(seconds=jump)

    assert send(world, webhook, 61) == [202] * 60 + [429]


@JUMPS
def test_429_after_a_clock_jump_ends_after_60_seconds(world, jump):
    webhook = world.webhook()
    send(world, webhook, 60)
    world.clock.advance(seconds=jump)
    send(world, webhook, 60)

    answer = world.post(webhook, b"0")
    world.clock.advance(seconds=60)

    assert (answer.status, answer.headers["retry-after"]) == (429, "60")
    assert world.post(webhook, b"0").status == 202


@JUMPS
def test_clock_jump_and_return_leave_no_webhook_blocked(world, jump):
    webhook = world.webhook()
    world.clock.advance(seconds=jump)
    send(world, webhook, 60)

    world.clock.advance(seconds=-jump)

    assert send(world, webhook, 61) == [202] * 60 + [429]


@pytest.mark.parametrize("back", [0.5, 30.0, 59.0])
def test_429_lasts_longer_by_as_much_as_the_clock_is_set_back(world, back):
    webhook = world.webhook()
    send(world, webhook, 60)

    world.clock.advance(seconds=-back)
    answer = world.post(webhook, b"0")
    world.clock.advance(seconds=60 + back)

    assert (answer.status, answer.headers["retry-after"]) == (429, str(math.ceil(60 + back)))
    assert world.post(webhook, b"0").status == 202


@JUMPS
def test_delivery_ids_stay_unique_across_clock_jumps(world, jump):
    webhook = world.webhook()

    ids = []
    for _ in range(2):
        ids += [answer.delivery_id for answer in world.post_many([(webhook, b"%d" % i) for i in range(20)])]
        world.clock.advance(seconds=jump)
        ids += [answer.delivery_id for answer in world.post_many([(webhook, b"%d" % i) for i in range(20)])]
        world.clock.advance(seconds=-jump)

    assert len(set(ids)) == 80


@JUMPS
def test_clock_jump_while_a_body_arrives_changes_no_answer(world, jump):
    webhook = world.webhook()
    start = world.clock()

    def body():
        yield b'{"event":'
        world.clock.advance(seconds=jump)
        yield b" 1}"

    answer = world.post(webhook, body())
    retry = world.post(webhook, b'{"event": 1}')

    assert (answer.status, retry.status) == (202, 202)
    assert world.labels(webhook).count("Accepted") == 1
    assert {row.received_at for row in world.log(webhook)} <= {start, world.clock()}


def test_disabled_webhook_at_its_rate_limit_answers_404(world):
    other = world.another_process()
    webhook = world.webhook()
    send(world, webhook, 60)
    before = [each.post(webhook, b"0").status for each in (world, other)]

    world.management.webhooks.set_enabled(world.may, "source", False)
    while_disabled = [each.post(webhook, b"0").status for each in (world, other)]
    world.management.webhooks.set_enabled(world.may, "source", True)

    assert (before, while_disabled) == ([429, 429], [404, 404])
    assert [each.post(webhook, b"0").status for each in (world, other)] == [429, 429]


def test_rotation_does_not_reset_the_rate_limit(world):
    other = world.another_process()
    old = world.webhook()
    send(world, old, 60)
    before = [each.post(old, b"0").status for each in (world, other)]

    new = world.management.webhooks.rotate(world.may, "source")

    assert before == [429, 429]
    assert [each.post(old, b"0").status for each in (world, other)] == [401, 401]
    assert [each.post(new, b"0").status for each in (world, other)] == [429, 429]


def test_body_over_the_rate_limit_is_not_stored(world):
    webhook = world.webhook()
    send(world, webhook, 60)

    world.post(webhook, b'"canary"')

    with world.database.read() as tx:
        assert b"canary" not in b"".join(bytes(row["body"]) for row in tx.all("SELECT body FROM payloads"))


def test_operator_configures_both_rate_limits(store_url):
    world = World(store_url, deliveries_per_minute=3, failed_authentications_per_minute=2)
    try:
        webhook = world.webhook()
        failures = [world.post(webhook, token="wrong").status for _ in range(3)]
        deliveries = send(world, webhook, 4)
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
    with ThreadPoolExecutor(40) as threads:
        creations = [threads.submit(world.webhook, f"source {i}") for i in range(40)]
        refused = [creation for creation in creations if isinstance(creation.exception(), LimitReached)]

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

    world.management.webhooks.create(world.operator_of_new_factory(), {"name": "source 0"})


@shows("LIMIT-8")
def test_rows_of_seven_days_are_kept_even_if_they_are_many(world, tmp_path):
    webhook = world.webhook()
    for _ in range(3):
        send(world, webhook, 60)
        world.clock.advance(seconds=60)
    world.clock.advance(days=6.9)

    prune(world, tmp_path)

    assert len(world.log(webhook)) == 180


@shows("LIMIT-8")
def test_newest_50_rows_are_kept_beyond_seven_days(world, tmp_path):
    webhook = world.webhook()
    ids = []
    for i in range(60):
        ids.append(world.post(webhook, b"%d" % i).delivery_id)
        world.clock.advance(seconds=1)
    world.clock.advance(days=7)

    prune(world, tmp_path)

    assert [f"dlv_{row.key.hex()}" for row in world.log(webhook)] == ids[:9:-1]


@shows("LIMIT-9")
def test_rejected_attempts_do_not_displace_payloads(world, tmp_path):
    webhook = world.webhook()
    ids = [world.post(webhook, b"%d" % i).delivery_id for i in range(50)]
    world.clock.advance(days=1)
    for _ in range(2):
        world.clock.advance(seconds=61)
        for _ in range(60):
            world.post(webhook, token="wrong")
    world.clock.advance(days=8)

    prune(world, tmp_path)

    assert [world.management.log.payload(world.may, each) for each in ids] == [b"%d" % i for i in range(50)]


def prune(world: World, packages: Path):
    run_retention(world.database, packages, world.clock())


def send(world: World, webhook: WebhookWithSecret, count: int) -> list[int]:
    """Send different deliveries simultaneously. Returns their statuses, the lowest first."""
    bodies = [b"[%d, %d]" % (world.clock.now, i) for i in range(count)]
    return sorted(answer.status for answer in world.post_many([(webhook, body) for body in bodies]))


def posts(webhook: WebhookWithSecret, half: int) -> list[tuple[WebhookWithSecret, bytes]]:
    return [(webhook, b"[%d, %d]" % (half, i)) for i in range(100)]
