"""Retention of the log, and reading its rows and pages."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_id
from hookmill.domain.webhook import Webhook
from hookmill.store import deliveries, log_retention
from hookmill.store.admission.transaction import add_dropped_counts
from tests.store.managed_store import ManagedStore

DAY = 86_400.0
ONE_BATCH = 100_000


@pytest.mark.parametrize("label", [Label.REJECTED_AUTH, Label.REJECTED_INVALID_JSON, Label.REJECTED_TOO_LARGE])
def test_newest_50_accepted_are_kept_however_many_are_rejected(store, label):
    webhook = store.webhook()
    accepted = log_deliveries(store, webhook, 60, at=0)
    log_deliveries(store, webhook, 300, at=DAY, label=label)
    store.clock.advance(days=20)

    assert prune(store) == 10 + 250
    assert logged_keys(store) >= {plan.delivery_key for plan in accepted[10:]}
    assert store.count("payloads") == 50


def test_duplicates_displace_no_payload(store):
    webhook = store.webhook()
    accepted = log_deliveries(store, webhook, 50, at=0, event=None)
    log_deliveries(store, webhook, 1, at=60, event="event-1")
    log_deliveries(store, webhook, 300, at=DAY, event="event-1")
    store.clock.advance(days=20)

    assert prune(store) == 1 + 250
    assert logged_keys(store) >= {plan.delivery_key for plan in accepted[1:]}
    assert store.count("payloads") == 50


def test_old_rejections_beyond_50_are_pruned_despite_few_accepted(store):
    webhook = store.webhook()
    accepted = log_deliveries(store, webhook, 3, at=0)
    log_deliveries(store, webhook, 80, at=DAY, label=Label.REJECTED_AUTH)
    store.clock.advance(days=20)

    assert prune(store) == 30
    assert logged_keys(store) >= {plan.delivery_key for plan in accepted}


def test_retention_removes_payload_and_finished_runs_with_the_delivery(store):
    webhook = store.webhook()
    [plan] = log_deliveries(store, webhook, 1, at=0, runs=[store.run("aut_a")])
    finish(store)
    log_deliveries(store, webhook, 50, at=1)
    store.clock.advance(days=8)

    assert prune(store) == 1
    assert plan.delivery_key not in logged_keys(store)
    assert (store.count("payloads"), store.count("runs")) == (50, 0)


def test_delivery_with_an_unfinished_run_is_kept_with_its_payload(store):
    webhook = store.webhook()
    [plan] = log_deliveries(store, webhook, 1, at=0, runs=[store.run("aut_a"), store.run("aut_b")])
    finish(store, automation="aut_a")
    log_deliveries(store, webhook, 60, at=1)
    store.clock.advance(days=300)

    assert prune(store) == 10
    assert plan.delivery_key in logged_keys(store)
    assert (store.count("payloads"), store.count("runs")) == (51, 2)

    finish(store)
    assert prune(store) == 1
    assert plan.delivery_key not in logged_keys(store)


def test_newest_50_deliveries_of_each_webhook_are_kept(store):
    webhook, other, small = store.webhook(), store.webhook("other"), store.webhook("small")
    log_deliveries(store, webhook, 60, at=0)
    log_deliveries(store, other, 70, at=0)
    log_deliveries(store, small, 50, at=0)
    store.clock.advance(days=8)

    assert prune(store) == 10 + 20
    assert Counter(row["webhook_no"] for row in store.rows("deliveries")) == {
        webhook.no: 50,
        other.no: 50,
        small.no: 50,
    }


def test_removable_rows_of_all_webhooks_come_oldest_first_in_batches(store):
    one, other = store.webhook("one"), store.webhook("other")
    plans = [plan for at in range(80) for plan in log_deliveries(store, one if at % 2 else other, 1, at=at)]
    plans += log_deliveries(store, one, 50, at=100) + log_deliveries(store, other, 50, at=200)
    store.clock.advance(days=8)

    batches = list(removable(store, at_most=12))

    assert [len(batch) for batch in batches] == [12, 12, 12, 12, 12, 12, 8]
    assert [key for batch in batches for key in batch] == [plan.delivery_key for plan in plans[:80]]


def test_removable_rows_are_found_after_a_scan_without_any(store, monkeypatch):
    monkeypatch.setattr(log_retention, "ROWS_PER_SCAN", 10)
    quiet, busy, third = store.webhook("quiet"), store.webhook("busy"), store.webhook("third")
    log_deliveries(store, busy, 1, at=0)
    log_deliveries(store, quiet, 25, at=10)
    log_deliveries(store, busy, 54, at=100)
    log_deliveries(store, third, 51, at=200)
    store.clock.advance(days=8)

    batches = list(removable(store, at_most=100))

    assert [len(batch) for batch in batches if batch] == [1, 4, 1]
    assert [] in batches
    assert prune(store) == 6


def test_row_that_gets_a_run_before_its_removal_is_kept(store):
    webhook = store.webhook()
    plans = [plan for at in (0, 1) for plan in log_deliveries(store, webhook, 1, at=at, runs=[store.run("aut_a")])]
    finish(store)
    log_deliveries(store, webhook, 50, at=10)
    store.clock.advance(days=8)
    [batch] = removable(store, at_most=100)
    with store.database.write() as tx:
        tx.run("UPDATE runs SET state = 'queued', finished_at = NULL WHERE delivery_id = :id", id=plans[0].delivery_key)

    with store.database.write() as tx:
        removed = log_retention.remove(tx, batch)

    assert (len(batch), removed) == (2, 1)
    assert plans[0].delivery_key in logged_keys(store)


def test_row_that_another_transaction_has_locked_is_kept(store_on_postgres):
    store = store_on_postgres
    webhook = store.webhook()
    plans = log_deliveries(store, webhook, 52, at=0)
    store.clock.advance(days=8)

    with store.database.write() as locking:
        deliveries.lock_against_pruning(locking, plans[0].delivery_key)
        removed = prune(store)

    assert removed == 1
    assert plans[0].delivery_key in logged_keys(store)


def test_counts_of_dropped_attempts_are_removed_after_seven_days(store):
    no = store.webhook().no
    with store.database.write() as tx:
        add_dropped_counts(tx, [(no, store.clock.now + day * 86_400_000_000, "not_found", 1) for day in range(10)])
    store.clock.advance(days=10)

    with store.database.write() as tx:
        assert deliveries.forget_dropped_attempts(tx, store.clock.now) == 3

    assert store.count("dropped_attempts") == 7


def test_row_is_read_with_the_fields_that_were_written(store):
    webhook = store.webhook()
    plan = store.rejection(webhook, Label.REJECTED_INVALID_JSON, reason="because ü")
    store.admit(plan)

    with store.database.read() as tx:
        row = deliveries.by_key(tx, store.factory.id, plan.delivery_key)

    assert row is not None
    assert delivery_id(row.key) == delivery_id(plan.delivery_key)
    assert (row.webhook_uid, row.webhook_name, row.label) == (webhook.uid, "source", Label.REJECTED_INVALID_JSON)
    assert (row.received_at, row.size, row.reason) == (store.clock.now, 2, "because ü")


def log_deliveries(
    store: ManagedStore,
    webhook: Webhook,
    count: int,
    *,
    at: float,
    event: str | None = None,
    label: Label = Label.ACCEPTED,
    **fields: Any,
) -> list[Any]:
    """Log `count` deliveries, a second apart. The first is received `at` seconds after the clock. Returns the plans."""
    plans: list[Any]
    if label is Label.ACCEPTED:
        plans = [store.plan(webhook, event, at=at + no, **fields) for no in range(count)]
    else:
        plans = [store.plan_with_label(label, webhook, event, at=at + no) for no in range(count)]
    store.admit(*plans)
    return plans


def removable(store: ManagedStore, at_most: int) -> Iterator[Sequence[bytes]]:
    return log_retention.removable(store.database, store.clock.now, at_most=at_most)


def prune(store: ManagedStore) -> int:
    """Remove the deliveries that the log does not keep, and return their number."""
    count = 0
    for keys in removable(store, ONE_BATCH):
        if keys:
            with store.database.write() as tx:
                count += log_retention.remove(tx, keys)
    return count


def finish(store: ManagedStore, automation: str | None = None):
    with store.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = 'succeeded', finished_at = 1 WHERE automation_id = :id OR :every",
            id=automation,
            every=automation is None,
        )


def logged_keys(store: ManagedStore) -> set[bytes]:
    return {bytes(row["id"]) for row in store.rows("deliveries")}
