"""Identity and deduplication: which value identifies an event, in which order, and which attempts claim it."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from hookmill.domain.errors import Invalid, NotFound
from hookmill.domain.limits import LOG_DAYS_KEPT, LOG_ROWS_KEPT
from hookmill.maintenance import keep_segments, run_retention
from tests.spec import shows

SERVICE = "X-Service-Delivery-Id"
WARP = "X-Warp-Delivery-Id"


@shows("IDENTITY-6")
def test_repeated_event_is_a_duplicate_and_starts_no_run(world):
    webhook = world.webhook()
    world.automation("triage", webhook)

    answers = []
    for body in (b"1", b"2", b"3"):
        answers.append(world.post(webhook, body, headers={SERVICE: "event-1"}))
        world.clock.advance(seconds=1)

    assert [answer.status for answer in answers] == [202, 202, 202]
    assert world.labels(webhook) == ["Duplicate", "Duplicate", "Accepted"]
    assert len(world.runs(webhook)) == 1


@shows("IDENTITY-4")
def test_only_identical_bodies_are_duplicates_without_an_id(world):
    webhook = world.webhook()

    for body in (b'{"a": 1}', b'{"a": 1}', b'{"a":1}', b'{"a": 1} '):
        world.post(webhook, body)
        world.clock.advance(seconds=1)

    assert world.labels(webhook)[::-1] == ["Accepted", "Duplicate", "Accepted", "Accepted"]


@shows("IDENTITY-3")
def test_senders_id_takes_precedence_over_the_body_hash(world):
    webhook = world.webhook()

    for body, event in ((b"1", "a"), (b"1", "b"), (b"2", "a")):
        world.post(webhook, body, headers={SERVICE: event})
        world.clock.advance(seconds=1)

    assert world.labels(webhook)[::-1] == ["Accepted", "Accepted", "Duplicate"]


@shows("IDENTITY-11")
def test_senders_id_is_read_from_either_of_two_headers(world):
    webhook = world.webhook()

    for body, event in ((b"1", {WARP: "a"}), (b"2", {WARP: "a"}), (b"3", {SERVICE: "a"}), (b"1", {WARP: "b"})):
        world.post(webhook, body, headers=event)
        world.clock.advance(seconds=1)

    assert world.labels(webhook)[::-1] == ["Accepted", "Duplicate", "Duplicate", "Accepted"]


@shows("IDENTITY-11")
def test_x_service_delivery_id_takes_precedence_over_x_warp_delivery_id(world):
    webhook = world.webhook()

    for service, warp in (("a", "1"), ("a", "2"), ("b", "1"), (" ", "1"), ("", "a")):
        world.post(webhook, b"{}", headers={SERVICE: service, WARP: warp})
        world.clock.advance(seconds=1)

    assert world.labels(webhook)[::-1] == ["Accepted", "Duplicate", "Accepted", "Accepted", "Duplicate"]
    assert [row.identity for row in world.log(webhook)][::-1] == ["a", "a", "b", "1", "a"]


@shows("IDENTITY-1", "WEBHOOK-8")
def test_delivery_id_header_takes_precedence_over_the_senders_id(world):
    webhook = world.webhook(delivery_id_header="X-Event-Id")

    for configured, sender in (("a", "1"), ("b", "1"), ("a", "2")):
        world.post(webhook, headers={"X-Event-Id": configured, SERVICE: sender})
        world.clock.advance(seconds=1)

    assert world.labels(webhook)[::-1] == ["Accepted", "Accepted", "Duplicate"]


@shows("IDENTITY-5")
def test_identity_headers_are_optional_and_case_insensitive(world):
    webhook = world.webhook(delivery_id_header="x-EVENT-id")

    for headers in ({}, {"X-Event-Id": "a"}, {"x-event-id": "a"}, {"X-EVENT-ID": "a"}):
        world.post(webhook, headers=headers)
        world.clock.advance(seconds=1)

    assert world.labels(webhook)[::-1] == ["Accepted", "Accepted", "Duplicate", "Duplicate"]


@shows("IDENTITY-5")
@pytest.mark.parametrize("blank", ["", "   ", "\t"])
def test_blank_id_header_counts_as_absent(world, blank):
    webhook = world.webhook(delivery_id_header="X-Event-Id")
    world.post(webhook, b"1", headers={SERVICE: "sent-1"})
    world.post(webhook, b"2")

    world.clock.advance(seconds=1)
    by_sender = world.post(webhook, b"3", headers={"X-Event-Id": blank, SERVICE: "sent-1"})
    world.clock.advance(seconds=1)
    by_body = world.post(webhook, b"2", headers={"X-Event-Id": blank, SERVICE: blank})

    assert (by_sender.status, by_body.status) == (202, 202)
    assert world.labels(webhook)[:2] == ["Duplicate", "Duplicate"]


@shows("IDENTITY-10")
def test_same_value_in_two_headers_identifies_two_events(world):
    webhook = world.webhook(delivery_id_header="X-Event-Id")

    world.post(webhook, b"1", headers={"X-Event-Id": "same"})
    world.post(webhook, b"2", headers={SERVICE: "same"})

    assert world.labels(webhook) == ["Accepted", "Accepted"]


@shows("IDENTITY-10")
@pytest.mark.parametrize("form", ["hex", "bytes"])
def test_senders_id_cannot_impersonate_a_body_hash(world, form):
    webhook = world.webhook()
    digest = sha256(b'{"a": 1}')
    header = digest.hexdigest() if form == "hex" else digest.digest().decode("latin-1")

    world.post(webhook, b"{}", headers={SERVICE: header})
    world.post(webhook, b'{"a": 1}')

    assert world.labels(webhook) == ["Accepted", "Accepted"]


@shows("IDENTITY-10")
def test_each_webhook_has_its_own_identities(world):
    one, other = world.webhook("one"), world.webhook("other")

    for webhook in (one, other):
        world.post(webhook, b"1", headers={SERVICE: "event-1"})
        world.post(webhook, b"2")

    assert (world.labels(one), world.labels(other)) == (["Accepted"] * 2, ["Accepted"] * 2)


@shows("IDENTITY-7")
@pytest.mark.parametrize(
    ("body", "token", "headers", "status"),
    [
        (b"{}", "wrong", {}, 401),
        (b"{", None, {}, 400),
        (b" " * 262_145, None, {}, 413),
        (b"{}", None, {"Content-Length": "99999999"}, 413),
    ],
    ids=["wrong secret", "invalid JSON", "too large", "declared too large"],
)
def test_refused_attempt_claims_no_identity(world, body, token, headers, status):
    webhook = world.webhook()
    refused = world.post(webhook, body, token=token, headers={SERVICE: "event-1", **headers})
    world.clock.advance(seconds=1)

    accepted = world.post(webhook, b"{}", headers={SERVICE: "event-1"})

    assert refused.status == status
    assert (accepted.status, world.labels(webhook)[0]) == (202, "Accepted")


@shows("IDENTITY-7")
def test_attempt_over_the_rate_limit_claims_no_identity(world):
    webhook = world.webhook()
    world.post_many([(webhook, b"%d" % i) for i in range(60)])
    refused = world.post(webhook, b"[]", headers={SERVICE: "event-1"})
    world.clock.advance(seconds=60)

    world.post(webhook, b"[]", headers={SERVICE: "event-1"})

    assert (refused.status, world.labels(webhook)[0]) == (429, "Accepted")


@shows("IDENTITY-7")
def test_attempt_answered_503_claims_no_identity(world):
    webhook = world.webhook()
    world.has_room = False
    refused = world.post(webhook)
    world.has_room = True

    world.post(webhook)

    assert (refused.status, world.labels(webhook)) == (503, ["Accepted"])


@shows("IDENTITY-8")
@pytest.mark.parametrize("copies", [2, 16, 50])
def test_exactly_one_of_simultaneous_copies_is_accepted(world, copies):
    webhook = world.webhook()
    world.automation("triage", webhook)

    answers = world.post_many([(webhook, b"{}")] * copies)

    assert {answer.status for answer in answers} == {202}
    assert sorted(world.labels(webhook)) == ["Accepted"] + ["Duplicate"] * (copies - 1)
    assert len(world.runs(webhook)) == 1


@shows("IDENTITY-8")
def test_exactly_one_copy_is_accepted_across_several_processes(world):
    processes = [world, world.another_process(), world.another_process()]
    webhook = world.webhook()
    world.automation("triage", webhook)

    with ThreadPoolExecutor() as threads:
        for event in range(10):
            posts = [threads.submit(process.post_many, [(webhook, b"[%d]" % event)] * 2) for process in processes]
            statuses = [answer.status for post in posts for answer in post.result()]
            assert statuses == [202] * 6

    assert sorted(world.labels(webhook)) == ["Accepted"] * 10 + ["Duplicate"] * 50
    originals = {row.key for row in world.log(webhook) if row.label.wording == "Accepted"}
    assert {row.duplicate_of for row in world.log(webhook) if row.label.wording == "Duplicate"} == originals
    assert len(world.runs(webhook)) == 10


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        ("x" * 10_000, "x" * 255),
        ("\x00\x01", "��"),
        ("\xff\xfe", "��"),
        ("\x1b[31mred", "�[31mred"),
        ("'; DROP TABLE identities; --", "'; DROP TABLE identities; --"),
        ("<script>", "<script>"),
        ("%s {} {0}", "%s {} {0}"),
    ],
    ids=["long", "control", "not utf-8", "escape", "sql", "markup", "format"],
)
def test_any_header_value_identifies_a_delivery(world, value, identity):
    webhook = world.webhook()

    answers = [world.post(webhook, b"%d" % i, headers={SERVICE: value}).status for i in range(2)]

    assert answers == [202, 202]
    assert sorted(world.labels(webhook)) == ["Accepted", "Duplicate"]
    assert {row.identity for row in world.log(webhook)} == {identity}


def test_long_ids_that_differ_at_the_end_identify_two_events(world):
    webhook = world.webhook()

    for end in "ab":
        world.post(webhook, headers={SERVICE: "x" * 10_000 + end})

    assert world.labels(webhook) == ["Accepted", "Accepted"]


@shows("WEBHOOK-9")
@pytest.mark.parametrize("name", ["Authorization", "cookie", "Host", "X Y", ""])
def test_unusable_delivery_id_header_is_refused_at_creation(world, name):
    with pytest.raises(Invalid):
        world.webhook(delivery_id_header=name)

    assert world.management.webhooks.all(world.may) == []


@shows("IDENTITY-9")
@pytest.mark.parametrize(
    ("days", "label"),
    # An identity is removed 30 days after its segment was closed, and a segment is open for a day.
    [(29.9, "Duplicate"), (31.1, "Accepted")],
)
def test_senders_id_is_remembered_for_30_days_without_its_log_row(world, tmp_path, days, label):
    webhook = world.webhook()
    keep_segments(world.database, world.clock())
    original = world.post(webhook, b"[]", headers={SERVICE: "event-1"})
    world.clock.advance(seconds=60)
    # With so many newer rows, the log does not keep the row of the original.
    world.post_many([(webhook, b"%d" % i) for i in range(LOG_ROWS_KEPT)])
    # The segment with the identity is closed when it is a day old.
    world.clock.advance(days=1)
    keep_segments(world.database, world.clock())
    world.clock.advance(days=days - 1)
    run_retention(world.database, tmp_path, world.clock())
    with pytest.raises(NotFound):
        world.management.log.get(world.may, original.delivery_id)

    world.post(webhook, b"[]", headers={SERVICE: "event-1"})

    assert world.labels(webhook)[0] == label


@shows("IDENTITY-9")
def test_body_hash_is_remembered_while_the_log_keeps_its_delivery(world, tmp_path):
    webhook = world.webhook()
    world.post(webhook, b"[1]")
    world.clock.advance(seconds=60)
    world.post_many([(webhook, b"%d" % i) for i in range(LOG_ROWS_KEPT - 1)])
    world.clock.advance(days=300)
    run_retention(world.database, tmp_path, world.clock())
    world.post(webhook, b"[1]")
    assert world.labels(webhook)[0] == "Duplicate"

    world.clock.advance(seconds=60)
    # With this row, the original is no longer among the newest rows that the log keeps.
    world.post(webhook, b"50")
    world.clock.advance(days=LOG_DAYS_KEPT + 1)
    run_retention(world.database, tmp_path, world.clock())
    world.post(webhook, b"[1]")

    assert world.labels(webhook)[0] == "Accepted"
