"""Segments of the identities: each event is accepted once, whatever segment has its identity."""

import os
import random
import threading
import time

import pytest

from hookmill.domain.delivery import Accepted, Duplicate, IdentityKind
from hookmill.maintenance import keep_segments
from hookmill.store import bloom, identity_segments, timeouts
from hookmill.store.admission.plan import Acceptance
from hookmill.store.admission.transaction import PlanOutcome, admit
from hookmill.store.database import open_database
from hookmill.store.identity_segments import SegmentCache
from tests.store.managed_store import ManagedStore
from tests.support.waiting import until

DAY_US = 86_400_000_000


@pytest.mark.parametrize("filter_bytes", [identity_segments.FILTER_BYTES_MAX, 16])
def test_each_event_is_accepted_once_in_any_history_of_segments(store, monkeypatch, filter_bytes):
    """Two writer processes, each with its own cache, admit plans while segments are closed, filtered and removed."""
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    monkeypatch.setattr(identity_segments, "SEGMENT_ROWS", 5)
    monkeypatch.setattr(identity_segments, "FILTER_DIGESTS_MIN", 4)
    monkeypatch.setattr(identity_segments, "FILTER_DIGESTS_MAX", 16)
    monkeypatch.setattr(identity_segments, "FILTER_BYTES_MAX", filter_bytes)
    monkeypatch.setattr(identity_segments, "_DIGESTS_PER_QUERY", 3)
    webhooks = [store.webhook("one"), store.webhook("other")]
    caches = [SegmentCache(), SegmentCache()]
    owners: dict[tuple[int, int, str], Acceptance] = {}
    removed_keys: set[bytes] = set()
    for _ in range(250):
        match chance.choices(["admit", "close", "maintain", "prune", "forget", "wait"], [12, 3, 3, 1, 2, 2])[0]:
            case "admit":
                plans: list[Acceptance] = []
                expected: list[PlanOutcome] = []
                for _ in range(chance.randrange(1, 5)):
                    kind = chance.choice([IdentityKind.SENDER, IdentityKind.BODY_SHA256])
                    event = f"{kind} {chance.randrange(40)}"
                    plan = store.plan(chance.choice(webhooks), event, kind=kind)
                    plans.append(plan)
                    owner = owners.get((plan.webhook_no, kind, event))
                    if owner is not None and kind is IdentityKind.BODY_SHA256 and owner.delivery_key in removed_keys:
                        owner = None
                    if owner is not None and store.clock.now - owner.received_at > 30 * DAY_US:
                        # "forget" may have removed the identity.
                        stored = {bytes(row["delivery_id"]) for row in store.rows("identities")}
                        owner = owner if owner.delivery_key in stored else None
                    if owner is None:
                        owners[plan.webhook_no, kind, event] = plan
                        expected.append(Accepted(plan.delivery_key))
                    else:
                        expected.append(Duplicate(plan.delivery_key, owner.delivery_key))
                with store.database.write() as tx:
                    assert admit(tx, plans, segments=chance.choice(caches)) == expected
            case "close":
                identity_segments.close_full_segment(store.database, store.clock.now)
            case "maintain":
                keep_segments(store.database, store.clock.now)
            case "prune":
                with store.database.write() as tx:
                    tx.run("DELETE FROM payloads")
                    rows = tx.all("SELECT id FROM deliveries")
                    keys = [bytes(row["id"]) for row in rows if chance.random() < 0.5]
                    for key in keys:
                        tx.run("DELETE FROM deliveries WHERE id = :id", id=key)
                removed_keys.update(keys)
            case "forget":
                with store.database.write() as tx:
                    identity_segments.forget_old(tx, store.clock.now, chance.randrange(1, 8))
            case "wait":
                store.clock.advance(days=chance.choice([0.1, 2, 12]))
    identities = [(row["webhook_no"], bytes(row["digest"])) for row in store.rows("identities")]
    assert len(identities) == len(set(identities))


def test_identities_are_kept_30_days_or_as_long_as_the_stored_body(store):
    webhook = store.webhook()
    keep_segments(store.database, store.clock.now)
    plans = {kind: store.plan(webhook, f"event {kind}", kind=kind) for kind in IdentityKind}
    store.admit(*plans.values())
    store.clock.advance(days=1)
    keep_segments(store.database, store.clock.now)
    remaining_kinds = []
    for days in (30, 1 / DAY_US, 60):
        store.clock.advance(days=days)
        forget(store)
        keep_segments(store.database, store.clock.now)
        remaining_kinds.append(sorted(row["kind"] for row in store.rows("identities")))

    copy = store.plan(webhook, "event 4", kind=IdentityKind.BODY_SHA256)
    assert remaining_kinds == [sorted(IdentityKind), [IdentityKind.BODY_SHA256], [IdentityKind.BODY_SHA256]]
    assert store.admit(copy) == [Duplicate(copy.delivery_key, plans[IdentityKind.BODY_SHA256].delivery_key)]


@pytest.mark.parametrize("at_most", [1, 7, 1_000])
def test_old_segment_is_removed_step_by_step(store, at_most):
    for name in ("one", "other"):
        webhook = store.webhook(name)
        store.admit(*(store.plan(webhook) for _ in range(25)))
    close_segment(store)
    store.clock.advance(days=31)

    steps = forget(store, at_most)

    assert store.count("identities") == 0
    assert [row["closed_at"] for row in store.rows("identity_segments")] == [None]
    # The last step but one removes the segment itself. The last one finds nothing.
    assert steps == -(-50 // at_most) + 2


def test_full_segments_are_closed_and_share_filters_that_grow(store, monkeypatch):
    monkeypatch.setattr(identity_segments, "SEGMENT_ROWS", 10)
    monkeypatch.setattr(identity_segments, "FILTER_DIGESTS_MIN", 20)
    monkeypatch.setattr(identity_segments, "FILTER_DIGESTS_MAX", 40)
    webhook = store.webhook()
    keep_segments(store.database, store.clock.now)
    for _ in range(10):
        store.admit(*(store.plan(webhook) for _ in range(10)))
        wait_for_filters(store)

    filters = [(row["no"], row["capacity"], row["identity_count"]) for row in store.rows("identity_filters")]
    segments = [(row["no"], row["filter_no"]) for row in store.rows("identity_segments")]
    assert sorted(filters) == [(1, 20, 20), (2, 40, 40), (3, 40, 40)]
    assert sorted(segments) == [
        *[(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2), (7, 3), (8, 3), (9, 3), (10, 3)],
        (11, None),
    ]


def test_segment_is_closed_after_a_day_unless_it_is_empty(store):
    keep_segments(store.database, store.clock.now)
    store.clock.advance(days=5)
    assert keep_segments(store.database, store.clock.now) == 0
    assert [row["no"] for row in store.rows("identity_segments")] == [1]

    store.admit(store.plan(store.webhook(), "event-1"))
    keep_segments(store.database, store.clock.now)

    assert sorted(row["no"] for row in store.rows("identity_segments")) == [1, 2]


def test_identities_stay_if_their_segment_closes_under_a_slow_clock(store, monkeypatch):
    monkeypatch.setattr(identity_segments, "SEGMENT_ROWS", 1)
    right_time = store.clock.now
    keep_segments(store.database, right_time)
    original = store.plan(store.webhook(), "event-1")
    store.admit(original)

    keep_segments(store.database, right_time - 400 * DAY_US)
    store.clock.now = right_time + DAY_US
    forget(store)

    assert [bytes(row["delivery_id"]) for row in store.rows("identities")] == [original.delivery_key]


def test_filter_waits_for_transactions_that_can_add_to_the_segment(store_on_postgres):
    webhook = store_on_postgres.webhook()
    keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    store_on_postgres.admit(store_on_postgres.plan(webhook, "event-1"))
    late = store_on_postgres.plan(webhook, "event-2")
    with open_database(store_on_postgres.url) as other:
        with other.write() as tx:
            admit(tx, [late])
            close_segment(store_on_postgres)
            assert store_on_postgres.count("identity_filters") == 0
    wait_for_filters(store_on_postgres)
    copy = store_on_postgres.plan(webhook, "event-2")

    assert [row["identity_count"] for row in store_on_postgres.rows("identity_filters")] == [2]
    assert store_on_postgres.admit(copy) == [Duplicate(copy.delivery_key, late.delivery_key)]


def test_filter_waits_for_an_admission_that_began_during_the_closing(store_on_postgres):
    """The admission's transaction number is higher than that of the closing transaction, and may be the highest that
    PostgreSQL has assigned."""
    webhook = store_on_postgres.webhook()
    keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    store_on_postgres.admit(store_on_postgres.plan(webhook, "event-1"))
    late = store_on_postgres.plan(webhook, "event-2")
    with (
        open_database(store_on_postgres.url) as admitting,
        open_database(store_on_postgres.url) as closing,
        admitting.write() as tx,
    ):
        with closing.write() as closing_tx:
            closing_tx.run("UPDATE identity_segments SET closed_at = opened_at WHERE no = 1")
            closing_tx.run("INSERT INTO identity_segments (no, opened_at) SELECT 2, opened_at FROM identity_segments")
            admit(tx, [late])
        keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    wait_for_filters(store_on_postgres)
    copy = store_on_postgres.plan(webhook, "event-2")

    assert [row["identity_count"] for row in store_on_postgres.rows("identity_filters")] == [2]
    assert store_on_postgres.admit(copy) == [Duplicate(copy.delivery_key, late.delivery_key)]


def test_few_segments_are_unfiltered_while_a_transaction_stays_open(store_on_postgres, monkeypatch):
    """Otherwise, each delivery would search more and more segments, as long as any program has a transaction open."""
    monkeypatch.setattr(identity_segments, "SEGMENT_ROWS", 1)
    webhook = store_on_postgres.webhook()
    keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    originals = [store_on_postgres.plan(webhook, f"event-{number}") for number in range(12)]
    with open_database(store_on_postgres.url) as other, other.write() as tx:
        tx.run("SELECT pg_current_xact_id()")
        for original in originals:
            store_on_postgres.admit(original)
            keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
        unfiltered = [row["no"] for row in store_on_postgres.rows("identity_segments") if row["closed_at"] is not None]
    # When all closed segments have filters, the first call may close another segment.
    wait_for_filters(store_on_postgres)
    keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    wait_for_filters(store_on_postgres)
    copies = [store_on_postgres.plan(webhook, f"event-{number}") for number in range(12)]

    assert len(unfiltered) == identity_segments.UNFILTERED_MAX
    assert [row["no"] for row in store_on_postgres.rows("identity_segments") if row["filter_no"] is None] == [6]
    assert store_on_postgres.admit(*copies) == [
        Duplicate(copy.delivery_key, original.delivery_key) for copy, original in zip(copies, originals, strict=True)
    ]


def test_large_segment_gets_its_filter_however_long_its_count_takes(store_on_postgres, monkeypatch):
    """Filters are added in the order of segments, so later segments would get none either."""
    store_on_postgres.admit(store_on_postgres.plan(store_on_postgres.webhook()))
    keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    identity_segments.close_full_segment(store_on_postgres.database, store_on_postgres.clock.now + DAY_US)
    identity_segments.note_transactions(store_on_postgres.database)
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 0.05)
    is_done = threading.Event()

    def add_filter():
        with open_database(store_on_postgres.url) as database_with_short_timeout:
            until(lambda: identity_segments.add_filter(database_with_short_timeout))
        is_done.set()

    with store_on_postgres.database.write() as tx:
        tx.run("LOCK TABLE identities IN ACCESS EXCLUSIVE MODE")
        thread = threading.Thread(target=add_filter)
        thread.start()
        assert not is_done.wait(0.3)
    thread.join(60)

    assert is_done.is_set()
    assert store_on_postgres.count("identity_filters") == 1


def test_filters_are_created_after_a_restore_to_another_server(store_on_postgres):
    store_on_postgres.admit(store_on_postgres.plan(store_on_postgres.webhook()))
    keep_segments(store_on_postgres.database, store_on_postgres.clock.now)
    with store_on_postgres.database.write() as tx:
        tx.run("UPDATE identity_segments SET closed_at = opened_at, writable_before = 1 << 60")
        tx.run("INSERT INTO identity_segments (no, opened_at) VALUES (2, 0)")

    wait_for_filters(store_on_postgres)

    assert store_on_postgres.count("identity_filters") == 1


def test_identities_do_not_move_while_their_webhook_is_admitted(store_on_postgres):
    """Otherwise, the admission of a copy could miss an identity that moves to a segment that it has not read."""
    webhook = store_on_postgres.webhook()
    original = store_on_postgres.plan(webhook, "event-1", kind=IdentityKind.BODY_SHA256)
    store_on_postgres.admit(original)
    close_segment(store_on_postgres)
    store_on_postgres.clock.advance(days=31)
    have_moved = threading.Event()

    def move():
        forget(store_on_postgres)
        have_moved.set()

    with open_database(store_on_postgres.url) as other, other.write() as tx:
        assert isinstance(admit(tx, [store_on_postgres.plan(webhook, "event-2")])[0], Accepted)
        thread = threading.Thread(target=move)
        thread.start()
        assert not have_moved.wait(0.3)
    thread.join(10)
    copy = store_on_postgres.plan(webhook, "event-1", kind=IdentityKind.BODY_SHA256)

    assert have_moved.is_set()
    assert [row["segment"] for row in store_on_postgres.rows("identities")] == [2, 2]
    assert store_on_postgres.admit(copy) == [Duplicate(copy.delivery_key, original.delivery_key)]


def test_number_of_a_removed_filter_is_not_used_again(store):
    """Otherwise, a process that still has the old filter in memory would use it instead of the new one."""
    webhook = store.webhook()
    cache = SegmentCache()
    store.admit(store.plan(webhook, "event-1"))
    close_segment(store)
    with store.database.write() as tx:
        admit(tx, [store.plan(webhook, "event-2")], segments=cache)
    store.clock.advance(days=31)
    close_segment(store)
    store.clock.advance(days=31)
    forget(store)
    first = store.plan(webhook, "event-3")
    store.admit(first)
    close_segment(store)
    copy = store.plan(webhook, "event-3")

    with store.database.write() as tx:
        assert admit(tx, [copy], segments=cache) == [Duplicate(copy.delivery_key, first.delivery_key)]


def test_cache_of_lost_transactions_is_not_used(store):
    """A failover can lose the last transactions. Then segments and filters get the same numbers again."""
    webhook = store.webhook()
    cache = SegmentCache()
    store.admit(store.plan(webhook, "lost event"))
    close_segment(store)
    wait_for_filters(store)
    with store.database.write() as tx:
        admit(tx, [store.plan(webhook)], segments=cache)
    with store.database.write() as tx:
        for table in ("identities", "identity_filters", "identity_segments"):
            tx.run(f"DELETE FROM {table}")
    original = store.plan(webhook, "event-1")
    store.admit(original)
    close_segment(store)
    wait_for_filters(store)
    copies = [store.plan(webhook, "event-1") for _ in range(2)]

    with store.database.write() as tx:
        outcomes = admit(tx, copies, segments=cache)

    assert outcomes == [Duplicate(copy.delivery_key, original.delivery_key) for copy in copies]


def test_filter_contains_added_digests_and_few_others():
    digests = [os.urandom(16) for _ in range(5_000)]
    bits = bytearray(bloom.size_bytes(5_000))
    bloom.add(bits, digests)

    def may_contain(digest):
        return bloom.may_contain(bytes(bits), int.from_bytes(digest, "little"))

    assert all(map(may_contain, digests))
    assert sum(may_contain(os.urandom(16)) for _ in range(5_000)) < 100


def close_segment(store: ManagedStore):
    """Let a day pass, so that the open segment is closed. It gets a filter unless a transaction can still add to it."""
    keep_segments(store.database, store.clock.now)
    store.clock.advance(days=1)
    keep_segments(store.database, store.clock.now)


def wait_for_filters(store: ManagedStore):
    """Add filters to all closed segments. On PostgreSQL, transactions of other databases may delay them."""

    def have_filters() -> bool:
        keep_segments(store.database, store.clock.now)
        return all(row["filter_no"] for row in store.rows("identity_segments") if row["closed_at"] is not None)

    until(have_filters, "every closed segment has a filter")


def forget(store: ManagedStore, at_most: int = 1_000) -> int:
    """Remove old identities. Returns the number of steps, including the last one, which finds nothing."""
    steps = 1
    while True:
        with store.database.write() as tx:
            if not identity_segments.forget_old(tx, store.clock.now, at_most):
                return steps
        steps += 1
