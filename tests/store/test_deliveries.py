"""Retention: what the log promises to keep it keeps, what it does not it lets go in small steps, and identities go
their own way."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hookmill.domain.delivery import Accepted, Duplicate, IdentityKind, Label
from hookmill.domain.ids import delivery_id
from hookmill.domain.webhook import Webhook
from hookmill.store import deliveries, log_retention
from hookmill.store.admission.transaction import add_dropped_counts
from hookmill.store.deliveries import LogRange
from tests.store.managed_store import ManagedStore

DAY = 86_400.0
ALL_AT_ONCE = 100_000


def test_nothing_of_the_last_seven_days_goes(store):
    webhook = store.webhook()
    logged(store, webhook, 200, at=0)
    store.clock.advance(days=7)

    assert thinned(store) == 0
    assert store.count("deliveries") == 200


def test_of_what_is_older_the_newest_50_stay(store):
    webhook = store.webhook()
    plans = logged(store, webhook, 70, at=0)
    store.clock.advance(days=8)

    assert thinned(store) == 20
    assert kept(store) == {plan.delivery_key for plan in plans[20:]}


def test_younger_rows_count_to_the_newest_50(store):
    webhook = store.webhook()
    logged(store, webhook, 70, at=0)
    young = logged(store, webhook, 45, at=7 * DAY)
    store.clock.advance(days=8)

    assert thinned(store) == 65
    assert len(kept(store)) == 50
    assert kept(store) >= {plan.delivery_key for plan in young}


@pytest.mark.parametrize("label", [Label.REJECTED_AUTH, Label.REJECTED_INVALID_JSON, Label.REJECTED_TOO_LARGE])
def test_the_newest_50_accepted_are_counted_by_themselves(store, label):
    webhook = store.webhook()
    accepted = logged(store, webhook, 60, at=0)
    logged(store, webhook, 300, at=DAY, label=label)
    store.clock.advance(days=20)

    assert thinned(store) == 10 + 250
    assert kept(store) >= {plan.delivery_key for plan in accepted[10:]}
    assert store.count("payloads") == 50


def test_duplicates_push_no_payload_out(store):
    webhook = store.webhook()
    accepted = logged(store, webhook, 50, at=0, event=None)
    logged(store, webhook, 1, at=60, event="again and again")
    logged(store, webhook, 300, at=DAY, event="again and again")
    store.clock.advance(days=20)

    assert thinned(store) == 1 + 250
    assert kept(store) >= {plan.delivery_key for plan in accepted[1:]}
    assert store.count("payloads") == 50


def test_old_rejections_beyond_50_are_pruned_despite_few_accepted(store):
    webhook = store.webhook()
    accepted = logged(store, webhook, 3, at=0)
    logged(store, webhook, 80, at=DAY, label=Label.REJECTED_AUTH)
    store.clock.advance(days=20)

    assert thinned(store) == 30
    assert kept(store) >= {plan.delivery_key for plan in accepted}


def test_with_a_row_go_its_payload_and_its_finished_runs(store):
    webhook = store.webhook()
    [plan] = logged(store, webhook, 1, at=0, runs=[store.run("aut_a")])
    finish(store)
    logged(store, webhook, 50, at=1)
    store.clock.advance(days=8)

    assert thinned(store) == 1
    assert plan.delivery_key not in kept(store)
    assert (store.count("payloads"), store.count("runs")) == (50, 0)


def test_a_delivery_with_an_unfinished_run_keeps_its_row_and_its_payload(store):
    webhook = store.webhook()
    [plan] = logged(store, webhook, 1, at=0, runs=[store.run("aut_a"), store.run("aut_b")])
    finish(store, automation="aut_a")
    logged(store, webhook, 60, at=1)
    store.clock.advance(days=300)

    assert thinned(store) == 10
    assert plan.delivery_key in kept(store)
    assert (store.count("payloads"), store.count("runs")) == (51, 2)

    finish(store)
    assert thinned(store) == 1
    assert plan.delivery_key not in kept(store)


def test_the_newest_50_are_counted_for_each_webhook(store):
    webhook, other, small = store.webhook(), store.webhook("other"), store.webhook("small")
    logged(store, webhook, 60, at=0)
    logged(store, other, 70, at=0)
    logged(store, small, 50, at=0)
    store.clock.advance(days=8)

    assert thinned(store) == 10 + 20
    assert Counter(row["webhook_no"] for row in store.rows("deliveries")) == {
        webhook.no: 50,
        other.no: 50,
        small.no: 50,
    }


def test_rows_are_found_in_batches_oldest_first_over_all_webhooks(store):
    one, other = store.webhook("one"), store.webhook("other")
    plans = [plan for at in range(80) for plan in logged(store, one if at % 2 else other, 1, at=at)]
    plans += logged(store, one, 50, at=100) + logged(store, other, 50, at=200)
    store.clock.advance(days=8)

    batches = list(removable(store, at_most=12))

    assert [len(batch) for batch in batches] == [12, 12, 12, 12, 12, 12, 8]
    assert [key for batch in batches for key in batch] == [plan.delivery_key for plan in plans[:80]]


def test_rows_are_found_beyond_a_part_of_the_log_without_any(store, monkeypatch):
    monkeypatch.setattr(log_retention, "ROWS_PER_SCAN", 10)
    quiet, busy, third = store.webhook("quiet"), store.webhook("busy"), store.webhook("third")
    logged(store, busy, 1, at=0)
    logged(store, quiet, 25, at=10)
    logged(store, busy, 54, at=100)
    logged(store, third, 51, at=200)
    store.clock.advance(days=8)

    batches = list(removable(store, at_most=100))

    assert [len(batch) for batch in batches if batch] == [1, 4, 1]
    assert [] in batches
    assert thinned(store) == 6


def test_a_row_stays_if_it_gets_a_run_after_it_was_found(store):
    webhook = store.webhook()
    plans = [plan for at in (0, 1) for plan in logged(store, webhook, 1, at=at, runs=[store.run("aut_a")])]
    finish(store)
    logged(store, webhook, 50, at=10)
    store.clock.advance(days=8)
    [found] = removable(store, at_most=100)
    with store.database.write() as tx:
        tx.run("UPDATE runs SET state = 'queued', finished_at = NULL WHERE delivery_id = :id", id=plans[0].delivery_key)

    with store.database.write() as tx:
        removed = log_retention.remove(tx, found)

    assert (len(found), removed) == (2, 1)
    assert plans[0].delivery_key in kept(store)


def test_a_row_that_another_transaction_locks_stays(store_on_postgres):
    store = store_on_postgres
    webhook = store.webhook()
    plans = logged(store, webhook, 52, at=0)
    store.clock.advance(days=8)

    with store.database.write() as replay:
        deliveries.lock_against_pruning(replay, plans[0].delivery_key)
        removed = thinned(store)

    assert removed == 1
    assert plans[0].delivery_key in kept(store)


def test_a_body_is_forgotten_with_its_delivery(store):
    webhook = store.webhook()
    [plan] = logged(store, webhook, 1, at=0, event="a body", kind=IdentityKind.BODY_SHA256)
    logged(store, webhook, 50, at=1)
    again = store.plan(webhook, "a body", kind=IdentityKind.BODY_SHA256)
    assert store.admit(again) == [Duplicate(again.delivery_key, plan.delivery_key)]
    store.clock.advance(days=8)
    thinned(store)

    after = store.plan(webhook, "a body", kind=IdentityKind.BODY_SHA256)

    assert store.admit(after) == [Accepted(after.delivery_key)]


@pytest.mark.parametrize("kind", [IdentityKind.DELIVERY_ID_HEADER, IdentityKind.PROVIDER, IdentityKind.SENDER])
def test_an_id_that_was_sent_is_remembered_when_its_delivery_has_gone(store, kind):
    webhook = store.webhook()
    [plan] = logged(store, webhook, 1, at=0, event="event-1", kind=kind)
    logged(store, webhook, 50, at=1)
    store.clock.advance(days=8)
    thinned(store)
    assert plan.delivery_key not in kept(store)

    again = store.plan(webhook, "event-1", kind=kind)

    assert store.admit(again) == [Duplicate(again.delivery_key, plan.delivery_key)]


def test_counts_of_dropped_attempts_go_with_the_logs_days(store):
    no = store.webhook().no
    with store.database.write() as tx:
        add_dropped_counts(tx, [(no, store.clock.now + day * 86_400_000_000, "not_found", 1) for day in range(10)])
    store.clock.advance(days=10)

    with store.database.write() as tx:
        assert deliveries.forget_dropped_attempts(tx, store.clock.now) == 3

    assert store.count("dropped_attempts") == 7


def test_a_page_of_the_log_goes_on_where_the_last_one_ended(store):
    webhook, other = store.webhook(), store.webhook("other")
    logged(store, webhook, 30, at=0)
    logged(store, other, 30, at=0.5)

    with store.database.read() as tx:
        whole = deliveries.newest(tx, store.factory.id, limit=100)
        ours = deliveries.newest(tx, store.factory.id, webhooks=[webhook.uid], limit=100)
        pages, before = [], None
        while page := deliveries.newest(
            tx, store.factory.id, webhooks=[webhook.uid], log_range=LogRange(before=before), limit=7
        ):
            pages += page
            before = page[-1].key

    assert (len(whole), len(ours)) == (60, 30)
    assert pages == ours
    assert [row.received_at for row in whole] == sorted((row.received_at for row in whole), reverse=True)


def test_a_row_is_read_as_it_was_written(store):
    webhook = store.webhook()
    plan = store.rejection(webhook, Label.REJECTED_INVALID_JSON, reason="because ü")
    store.admit(plan)

    with store.database.read() as tx:
        row = deliveries.by_key(tx, store.factory.id, plan.delivery_key)

    assert row is not None
    assert delivery_id(row.key) == delivery_id(plan.delivery_key)
    assert (row.webhook_uid, row.webhook_name, row.label) == (webhook.uid, "source", Label.REJECTED_INVALID_JSON)
    assert (row.received_at, row.size, row.reason) == (store.clock.now, 2, "because ü")


def logged(
    store: ManagedStore,
    webhook: Webhook,
    count: int,
    *,
    at: float,
    event: str | None = None,
    label: Label = Label.ACCEPTED,
    **choices,
):
    """So many rows from `at` seconds after the clock, a second apart."""
    plans: list[Any]
    if label is Label.ACCEPTED:
        plans = [store.plan(webhook, event, at=at + no, **choices) for no in range(count)]
    else:
        plans = [store.plan_with_label(label, webhook, event, at=at + no) for no in range(count)]
    store.admit(*plans)
    return plans


def removable(store: ManagedStore, at_most: int) -> Iterator[Sequence[bytes]]:
    return log_retention.removable(store.database, store.clock.now, at_most=at_most)


def thinned(store: ManagedStore) -> int:
    """Removes what the log does not keep; returns how many rows."""
    count = 0
    for keys in removable(store, ALL_AT_ONCE):
        if keys:
            with store.database.write() as tx:
                count += log_retention.remove(tx, keys)
    return count


def finish(store: ManagedStore, automation: str | None = None) -> None:
    with store.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = 'succeeded', finished_at = 1 WHERE automation_id = :id OR :every",
            id=automation,
            every=automation is None,
        )


def kept(store: ManagedStore) -> set[bytes]:
    return {bytes(row["id"]) for row in store.rows("deliveries")}
