"""The delivery log: which attempts have a row, what a row contains, and how the log is read."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.delivery import Label
from hookmill.domain.errors import HookmillError, NotFound
from hookmill.domain.ids import delivery_id
from hookmill.domain.webhook import AuthMode
from hookmill.maintenance import run_retention
from hookmill.management import WebhookWithSecret, draft_filter
from hookmill.store.schema import metadata
from tests.spec import shows
from tests.support.world import World

BODY_MAX = 262_144


@shows("LOG-1", "LOG-3")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_every_attempt_has_a_row_with_its_label(world, mode):
    webhook = world.webhook(auth_mode=mode)

    one_of_each(world, webhook)

    assert world.labels(webhook)[::-1] == [
        "Accepted",
        "Duplicate",
        "Rejected (auth)",
        "Rejected (invalid JSON)",
        "Rejected (too large)",
    ]


@shows("LOG-1")
def test_attempts_with_and_without_a_run_are_both_logged(world):
    webhook = world.webhook()
    world.automation("triage", webhook, payload={"wanted": [True]})

    world.post(webhook, b'{"wanted": true}')
    world.post(webhook, b'{"wanted": false}')

    assert (world.labels(webhook), len(world.runs(webhook))) == (["Accepted", "Accepted"], 1)


@shows("LOG-4")
def test_delivery_id_in_the_answer_is_the_one_in_the_log(world):
    webhook = world.webhook()

    answers = [world.post(webhook) for _ in range(2)]

    assert {answer.delivery_id for answer in answers} == {delivery_id(row.key) for row in world.log(webhook)}
    assert world.management.log.get(world.may, answers[0].delivery_id).label is Label.ACCEPTED


@shows("LOG-5")
def test_delivery_id_is_a_prefix_and_a_time_ordered_id(world):
    webhook = world.webhook()

    ids = []
    for i in range(10):
        ids.append(world.post(webhook, b"%d" % i).delivery_id)
        world.clock.advance(seconds=0.001)

    assert all(re.fullmatch(r"dlv_[0-9a-f]{32}", each) for each in ids)
    assert ids == sorted(ids)


@shows("LOG-6")
def test_row_states_the_size_of_the_body(world):
    webhook = world.webhook()

    for body in (b"{}", b"no json", '"ü"'.encode(), b" " * (BODY_MAX + 1)):
        world.post(webhook, body)
        world.clock.advance(seconds=1)
    world.post(webhook, b"[1, 2, 3]", token="wrong")

    assert [row.size for row in world.log(webhook)[::-1]] == [2, 7, 4, BODY_MAX + 1, 9]


@shows("LOG-7")
def test_row_states_when_the_attempt_was_received(world):
    webhook = world.webhook()
    times = [world.clock.now]
    world.post(webhook, b"1")
    world.clock.advance(seconds=1.234_567)
    times.append(world.clock.now)
    world.post(webhook, b"2", token="wrong")

    assert [row.received_at for row in world.log(webhook)[::-1]] == times


@shows("LOG-7")
def test_slow_delivery_is_logged_with_the_time_at_which_it_began(world):
    webhook = world.webhook()
    start = world.clock.now

    def slow_body():
        yield b"["
        world.clock.advance(seconds=7)
        yield b"]"

    world.post(webhook, slow_body())

    assert [row.received_at for row in world.log(webhook)] == [start]


@shows("LOG-8", "LOG-9")
def test_only_an_accepted_delivery_has_a_payload_to_read(world):
    webhook = world.webhook()

    one_of_each(world, webhook)

    rows = {row.label: delivery_id(row.key) for row in world.log(webhook)}
    assert world.management.log.payload(world.may, rows.pop(Label.ACCEPTED)) == b'{"a": 1}'
    for other_id in rows.values():
        with pytest.raises(NotFound, match="only Accepted deliveries have a stored payload"):
            world.management.log.payload(world.may, other_id)
    assert row_count(world, "payloads") == 1


@shows("LOG-9")
def test_no_byte_of_a_refused_body_is_stored_anywhere(world):
    webhook = world.webhook()

    world.post(webhook, b'["canary"]', token="wrong")
    world.post(webhook, b'["canary"')
    world.post(webhook, b'"' + b"canary" * 50_000 + b'"')

    assert "canary" not in everything_stored(world)


def test_stored_secret_cannot_be_read_in_the_database(world):
    webhook = world.webhook(secret="canary-of-the-secret")
    world.post(webhook)
    world.post(webhook, token="canary-of-a-guess")

    assert "canary" not in everything_stored(world)


@shows("LOG-8")
@pytest.mark.parametrize(
    "body",
    [b'{"a":1,"a":2}', b' { "a" : 1.0 } ', rb'"\ud83d"', b"1e400", b'"\xc3\xbc"', b'"\\u0000"', b"\n[]\r\n"],
)
def test_payload_is_stored_byte_for_byte(world, body):
    webhook = world.webhook()

    answer = world.post(webhook, body)

    assert world.management.log.payload(world.may, answer.delivery_id) == body


def test_row_states_the_identity_and_its_source(world):
    webhook = world.webhook(delivery_id_header="X-Event-Id")
    world.post(webhook, b"1", headers={"X-Event-Id": "event-1"})
    world.clock.advance(seconds=1)
    world.post(webhook, b"2", headers={"X-Service-Delivery-Id": "sent-1"})
    world.clock.advance(seconds=1)
    world.post(webhook, b"3")
    world.clock.advance(seconds=1)
    world.post(webhook, b"4", token="wrong", headers={"X-Event-Id": "event-2"})

    identities = [
        (row.identity_kind.public_name if row.identity_kind else None, row.identity) for row in world.log(webhook)[::-1]
    ]

    assert identities == [("delivery_id_header", "event-1"), ("sender", "sent-1"), ("body_sha256", None), (None, None)]


@shows("WEBHOOK-1")
def test_another_factorys_log_is_not_found(world):
    other_factory = world.operator_of_new_factory()
    webhook = world.webhook()
    world.automation("triage", webhook)
    answer = world.post(webhook)
    [run] = world.runs(webhook)
    world.dropped_attempts(webhook)

    assert world.management.log.newest(other_factory) == []
    assert world.management.runs.newest(other_factory) == []
    assert world.management.log.dropped_attempts(other_factory) == []
    for read in (
        lambda: world.management.log.newest(other_factory, webhook=webhook.webhook.uid),
        lambda: world.management.log.get(other_factory, answer.delivery_id),
        lambda: world.management.log.payload(other_factory, answer.delivery_id),
        lambda: world.management.filters.test(other_factory, answer.delivery_id, draft_filter()),
        lambda: world.management.runs.of_delivery(other_factory, answer.delivery_id),
        lambda: world.management.log.dropped_attempts(other_factory, webhook.webhook.uid),
        lambda: world.management.runs.get(other_factory, f"run_{run.id.hex()}"),
        lambda: world.management.runs.cancel(other_factory, f"run_{run.id.hex()}"),
    ):
        with pytest.raises(NotFound):
            read()


@pytest.mark.parametrize("unknown_id", ["", "dlv_", "dlv_" + "0" * 32, "dlv_" + "f" * 33, "x\x00"])
def test_unknown_delivery_is_not_found(world, unknown_id):
    with pytest.raises(HookmillError):
        world.management.log.get(world.may, unknown_id)


def test_log_is_readable_while_rows_are_added_and_pruned(world, tmp_path):
    webhook = world.webhook()
    for age in (8, 1):
        world.post_many([(webhook, b"[%d, %d]" % (world.clock.now, i)) for i in range(60)])
        world.clock.advance(days=age)

    with ThreadPoolExecutor() as both:
        retention = both.submit(run_retention, world.database, tmp_path, world.clock())
        posts = both.submit(world.post_many, [(webhook, b"%d" % i) for i in range(60)])
        while not (retention.done() and posts.done()):
            for row in world.management.log.newest(world.may, webhook="source", limit=5):
                assert world.management.log.payload(world.may, delivery_id(row.key)) != b""

    assert retention.result() == 60
    new_ids = {answer.delivery_id for answer in posts.result()}
    assert {delivery_id(row.key) for row in world.log(webhook)} >= new_ids


def one_of_each(world: World, webhook: WebhookWithSecret):
    """Send one attempt for each label. The log has them in the order of the labels."""
    for body, token in (
        (b'{"a": 1}', None),
        (b'{"a": 1}', None),
        (b'{"b": 2}', "wrong"),
        (b'{"c": 3', None),
        (b" " * (BODY_MAX + 1), None),
    ):
        world.post(webhook, body, token=token)
        world.clock.advance(seconds=1)


def everything_stored(world: World) -> str:
    """Every value in every table, as text."""
    with world.database.read() as tx:
        rows = [row for table in metadata.tables for row in tx.all(f"SELECT * FROM {table}")]
    return "\n".join(
        bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)
        for row in rows
        for value in row.values()
    )


def row_count(world: World, table: str) -> int:
    with world.database.read() as tx:
        row = tx.one(f"SELECT COUNT(*) AS rows FROM {table}")
    assert row is not None
    return int(row["rows"])
