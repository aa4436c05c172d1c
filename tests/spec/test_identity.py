"""Identity and deduplication: where an event's identity comes from, in which order, and which attempts claim it."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from hookmill.domain.errors import Invalid, NotFound
from hookmill.maintenance import keep_segments, run_retention
from tests.spec import shows

SENDERS = "X-Service-Delivery-Id"
WARP = "X-Warp-Delivery-Id"


@shows("IDENTITY-6")
def test_repeated_event_is_a_duplicate_and_starts_no_run(world):
    made = world.webhook()
    world.automation("triage", made)

    answers = []
    for body in (b"1", b"2", b"3"):
        answers.append(world.post(made, body, headers={SENDERS: "event-1"}))
        world.clock.advance(seconds=1)

    assert [answer.status for answer in answers] == [202, 202, 202]
    assert world.labels(made) == ["Duplicate", "Duplicate", "Accepted"]
    assert len(world.runs(made)) == 1


@shows("IDENTITY-4")
def test_only_identical_bodies_are_duplicates_without_an_id(world):
    made = world.webhook()

    for body in (b'{"a": 1}', b'{"a": 1}', b'{"a":1}', b'{"a": 1} '):
        world.post(made, body)
        world.clock.advance(seconds=1)

    assert world.labels(made)[::-1] == ["Accepted", "Duplicate", "Accepted", "Accepted"]


@shows("IDENTITY-3")
def test_senders_id_decides_whatever_the_bodies_are(world):
    made = world.webhook()

    for body, event in ((b"1", "a"), (b"1", "b"), (b"2", "a")):
        world.post(made, body, headers={SENDERS: event})
        world.clock.advance(seconds=1)

    assert world.labels(made)[::-1] == ["Accepted", "Accepted", "Duplicate"]


@shows("IDENTITY-11")
def test_senders_id_may_come_under_either_of_two_names(world):
    made = world.webhook()

    for body, event in ((b"1", {WARP: "a"}), (b"2", {WARP: "a"}), (b"3", {SENDERS: "a"}), (b"1", {WARP: "b"})):
        world.post(made, body, headers=event)
        world.clock.advance(seconds=1)

    assert world.labels(made)[::-1] == ["Accepted", "Duplicate", "Duplicate", "Accepted"]


@shows("IDENTITY-11")
def test_of_two_different_senders_ids_the_first_name_decides(world):
    made = world.webhook()

    for service, warp in (("a", "1"), ("a", "2"), ("b", "1"), (" ", "1"), ("", "a")):
        world.post(made, b"{}", headers={SENDERS: service, WARP: warp})
        world.clock.advance(seconds=1)

    assert world.labels(made)[::-1] == ["Accepted", "Duplicate", "Accepted", "Accepted", "Duplicate"]
    assert [row.identity for row in world.log(made)][::-1] == ["a", "a", "b", "1", "a"]


@shows("IDENTITY-1", "WEBHOOK-8")
def test_delivery_id_header_takes_precedence_over_the_senders_id(world):
    made = world.webhook(delivery_id_header="X-Event-Id")

    for own, senders in (("a", "1"), ("b", "1"), ("a", "2")):
        world.post(made, headers={"X-Event-Id": own, SENDERS: senders})
        world.clock.advance(seconds=1)

    assert world.labels(made)[::-1] == ["Accepted", "Accepted", "Duplicate"]


@shows("IDENTITY-5")
def test_identity_headers_are_optional_and_case_insensitive(world):
    made = world.webhook(delivery_id_header="x-EVENT-id")

    for headers in ({}, {"X-Event-Id": "a"}, {"x-event-id": "a"}, {"X-EVENT-ID": "a"}):
        world.post(made, headers=headers)
        world.clock.advance(seconds=1)

    assert world.labels(made)[::-1] == ["Accepted", "Accepted", "Duplicate", "Duplicate"]


@shows("IDENTITY-5")
@pytest.mark.parametrize("blank", ["", "   ", "\t"])
def test_blank_header_falls_through_to_the_next_identity(world, blank):
    made = world.webhook(delivery_id_header="X-Event-Id")
    world.post(made, b"1", headers={SENDERS: "sent-1"})
    world.post(made, b"2")

    world.clock.advance(seconds=1)
    by_sender = world.post(made, b"3", headers={"X-Event-Id": blank, SENDERS: "sent-1"})
    world.clock.advance(seconds=1)
    by_body = world.post(made, b"2", headers={"X-Event-Id": blank, SENDERS: blank})

    assert (by_sender.status, by_body.status) == (202, 202)
    assert world.labels(made)[:2] == ["Duplicate", "Duplicate"]


@shows("IDENTITY-10")
def test_one_value_in_two_headers_identifies_two_events(world):
    made = world.webhook(delivery_id_header="X-Event-Id")

    world.post(made, b"1", headers={"X-Event-Id": "same"})
    world.post(made, b"2", headers={SENDERS: "same"})

    assert world.labels(made) == ["Accepted", "Accepted"]


@shows("IDENTITY-10")
@pytest.mark.parametrize("posing", ["hex", "digest"])
def test_senders_id_cannot_impersonate_a_body_hash(world, posing):
    made = world.webhook()
    digest = sha256(b'{"a": 1}')
    header = digest.hexdigest() if posing == "hex" else digest.digest().decode("latin-1")

    world.post(made, b"{}", headers={SENDERS: header})
    world.post(made, b'{"a": 1}')

    assert world.labels(made) == ["Accepted", "Accepted"]


@shows("IDENTITY-10")
def test_each_webhook_has_its_own_identities(world):
    one, other = world.webhook("one"), world.webhook("other")

    for made in (one, other):
        world.post(made, b"1", headers={SENDERS: "event-1"})
        world.post(made, b"2")

    assert (world.labels(one), world.labels(other)) == (["Accepted"] * 2, ["Accepted"] * 2)


@shows("IDENTITY-7")
@pytest.mark.parametrize(
    ("body", "token", "headers"),
    [
        (b"{}", "wrong", {}),
        (b"{", None, {}),
        (b" " * 262_145, None, {}),
        (b"{}", None, {"Content-Length": "99999999"}),
    ],
    ids=["bad secret", "bad json", "too large", "declared too large"],
)
def test_refused_attempt_claims_no_identity(world, body, token, headers):
    made = world.webhook()
    refused = world.post(made, body, token=token, headers={SENDERS: "event-1", **headers})
    world.clock.advance(seconds=1)

    accepted = world.post(made, b"{}", headers={SENDERS: "event-1"})

    assert refused.status in {400, 401, 413}
    assert (accepted.status, world.labels(made)[0]) == (202, "Accepted")


@shows("IDENTITY-7")
def test_attempt_over_the_rate_limit_claims_no_identity(world):
    made = world.webhook()
    world.post_many([(made, b"%d" % i) for i in range(60)])
    refused = world.post(made, b"[]", headers={SENDERS: "event-1"})
    world.clock.advance(seconds=60)

    world.post(made, b"[]", headers={SENDERS: "event-1"})

    assert (refused.status, world.labels(made)[0]) == (429, "Accepted")


@shows("IDENTITY-7")
def test_attempt_answered_503_claims_no_identity(world):
    made = world.webhook()
    world.has_room = False
    refused = world.post(made)
    world.has_room = True

    world.post(made)

    assert (refused.status, world.labels(made)) == (503, ["Accepted"])


def test_each_duplicate_has_its_own_delivery_id(world):
    made = world.webhook()

    ids = {world.post(made).delivery_id for _ in range(5)}

    assert len(ids) == 5


@shows("IDENTITY-8")
@pytest.mark.parametrize("copies", [2, 16, 50])
def test_exactly_one_of_simultaneous_copies_is_accepted(world, copies):
    made = world.webhook()
    world.automation("triage", made)

    answers = world.post_many([(made, b"{}")] * copies)

    assert {answer.status for answer in answers} == {202}
    assert sorted(world.labels(made)) == ["Accepted"] + ["Duplicate"] * (copies - 1)
    assert len(world.runs(made)) == 1


@shows("IDENTITY-8")
def test_exactly_one_copy_is_accepted_across_several_processes(world):
    everywhere = [world, world.beside(), world.beside()]
    made = world.webhook()
    world.automation("triage", made)

    with ThreadPoolExecutor() as processes:
        for event in range(10):
            rounds = [processes.submit(each.post_many, [(made, b"[%d]" % event)] * 2) for each in everywhere]
            answers = [answer.status for each in rounds for answer in each.result()]
            assert answers == [202] * 6

    assert sorted(world.labels(made)) == ["Accepted"] * 10 + ["Duplicate"] * 50
    originals = {row.key for row in world.log(made) if row.label.wording == "Accepted"}
    assert {row.duplicate_of for row in world.log(made) if row.label.wording == "Duplicate"} == originals
    assert len(world.runs(made)) == 10


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 10_000, "x" * 255),
        ("\x00\x01", "��"),
        ("\xff\xfe", "��"),
        ("\x1b[31mred", "�[31mred"),
        ("'; DROP TABLE identities; --", "'; DROP TABLE identities; --"),
        ("<script>", "<script>"),
        ("%s {} {0}", "%s {} {0}"),
    ],
    ids=["long", "control", "no utf-8", "escape", "sql", "markup", "format"],
)
def test_any_header_value_identifies_a_delivery(world, value, shown):
    made = world.webhook()

    answers = [world.post(made, b"%d" % i, headers={SENDERS: value}).status for i in range(2)]

    assert answers == [202, 202]
    assert sorted(world.labels(made)) == ["Accepted", "Duplicate"]
    assert {row.identity for row in world.log(made)} == {shown}


def test_long_ids_that_differ_at_the_end_identify_two_events(world):
    made = world.webhook()

    for end in "ab":
        world.post(made, headers={SENDERS: "x" * 10_000 + end})

    assert world.labels(made) == ["Accepted", "Accepted"]


@shows("WEBHOOK-9")
@pytest.mark.parametrize("name", ["Authorization", "cookie", "Host", "X Y", ""])
def test_unusable_delivery_id_header_is_refused_at_creation(world, name):
    with pytest.raises(Invalid):
        world.webhook(delivery_id_header=name)

    assert world.management.webhooks.all(world.may) == []


@shows("IDENTITY-9")
@pytest.mark.parametrize(("days", "label"), [(29.9, "Duplicate"), (31.1, "Accepted")])
def test_senders_id_is_remembered_for_30_days_without_its_log_row(world, tmp_path, days, label):
    made = world.webhook()
    keep_segments(world.database, world.clock())
    original = world.post(made, b"[]", headers={SENDERS: "event-1"})
    world.clock.advance(seconds=60)
    world.post_many([(made, b"%d" % i) for i in range(60)])
    world.clock.advance(days=1)
    keep_segments(world.database, world.clock())
    world.clock.advance(days=days - 1)
    run_retention(world.database, tmp_path, world.clock())
    with pytest.raises(NotFound):
        world.management.log.get(world.may, original.delivery_id)

    world.post(made, b"[]", headers={SENDERS: "event-1"})

    assert world.labels(made)[0] == label


@shows("IDENTITY-9")
def test_body_hash_is_remembered_while_the_log_keeps_its_delivery(world, tmp_path):
    made = world.webhook()
    world.post(made, b"[1]")
    world.clock.advance(seconds=60)
    world.post_many([(made, b"%d" % i) for i in range(49)])
    world.clock.advance(days=300)
    run_retention(world.database, tmp_path, world.clock())
    world.post(made, b"[1]")
    assert world.labels(made)[0] == "Duplicate"

    world.clock.advance(seconds=60)
    world.post(made, b"50")
    world.clock.advance(days=8)
    run_retention(world.database, tmp_path, world.clock())
    world.post(made, b"[1]")

    assert world.labels(made)[0] == "Accepted"
