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
from tests.store.shelf import Shelf

DAY = 86_400.0
ALL_AT_ONCE = 100_000


def test_nothing_of_the_last_seven_days_goes(shelf):
    webhook = shelf.webhook()
    logged(shelf, webhook, 200, at=0)
    shelf.clock.advance(days=7)

    assert thinned(shelf) == 0
    assert shelf.count("deliveries") == 200


def test_of_what_is_older_the_newest_50_stay(shelf):
    webhook = shelf.webhook()
    plans = logged(shelf, webhook, 70, at=0)
    shelf.clock.advance(days=8)

    assert thinned(shelf) == 20
    assert kept(shelf) == {plan.delivery_key for plan in plans[20:]}


def test_younger_rows_count_to_the_newest_50(shelf):
    webhook = shelf.webhook()
    logged(shelf, webhook, 70, at=0)
    young = logged(shelf, webhook, 45, at=7 * DAY)
    shelf.clock.advance(days=8)

    assert thinned(shelf) == 65
    assert len(kept(shelf)) == 50
    assert kept(shelf) >= {plan.delivery_key for plan in young}


@pytest.mark.parametrize("label", [Label.REJECTED_AUTH, Label.REJECTED_INVALID_JSON, Label.REJECTED_TOO_LARGE])
def test_the_newest_50_accepted_are_counted_by_themselves(shelf, label):
    webhook = shelf.webhook()
    accepted = logged(shelf, webhook, 60, at=0)
    logged(shelf, webhook, 300, at=DAY, label=label)
    shelf.clock.advance(days=20)

    assert thinned(shelf) == 10 + 250
    assert kept(shelf) >= {plan.delivery_key for plan in accepted[10:]}
    assert shelf.count("payloads") == 50


def test_duplicates_push_no_payload_out(shelf):
    webhook = shelf.webhook()
    accepted = logged(shelf, webhook, 50, at=0, event=None)
    logged(shelf, webhook, 1, at=60, event="again and again")
    logged(shelf, webhook, 300, at=DAY, event="again and again")
    shelf.clock.advance(days=20)

    assert thinned(shelf) == 1 + 250
    assert kept(shelf) >= {plan.delivery_key for plan in accepted[1:]}
    assert shelf.count("payloads") == 50


def test_old_rejections_beyond_50_are_pruned_despite_few_accepted(shelf):
    webhook = shelf.webhook()
    accepted = logged(shelf, webhook, 3, at=0)
    logged(shelf, webhook, 80, at=DAY, label=Label.REJECTED_AUTH)
    shelf.clock.advance(days=20)

    assert thinned(shelf) == 30
    assert kept(shelf) >= {plan.delivery_key for plan in accepted}


def test_with_a_row_go_its_payload_and_its_finished_runs(shelf):
    webhook = shelf.webhook()
    [plan] = logged(shelf, webhook, 1, at=0, runs=[shelf.run("aut_a")])
    finish(shelf)
    logged(shelf, webhook, 50, at=1)
    shelf.clock.advance(days=8)

    assert thinned(shelf) == 1
    assert plan.delivery_key not in kept(shelf)
    assert (shelf.count("payloads"), shelf.count("runs")) == (50, 0)


def test_a_delivery_with_an_unfinished_run_keeps_its_row_and_its_payload(shelf):
    webhook = shelf.webhook()
    [plan] = logged(shelf, webhook, 1, at=0, runs=[shelf.run("aut_a"), shelf.run("aut_b")])
    finish(shelf, automation="aut_a")
    logged(shelf, webhook, 60, at=1)
    shelf.clock.advance(days=300)

    assert thinned(shelf) == 10
    assert plan.delivery_key in kept(shelf)
    assert (shelf.count("payloads"), shelf.count("runs")) == (51, 2)

    finish(shelf)
    assert thinned(shelf) == 1
    assert plan.delivery_key not in kept(shelf)


def test_the_newest_50_are_counted_for_each_webhook(shelf):
    webhook, other, small = shelf.webhook(), shelf.webhook("other"), shelf.webhook("small")
    logged(shelf, webhook, 60, at=0)
    logged(shelf, other, 70, at=0)
    logged(shelf, small, 50, at=0)
    shelf.clock.advance(days=8)

    assert thinned(shelf) == 10 + 20
    assert Counter(row["webhook_no"] for row in shelf.rows("deliveries")) == {
        webhook.no: 50,
        other.no: 50,
        small.no: 50,
    }


def test_rows_are_found_in_batches_oldest_first_over_all_webhooks(shelf):
    one, other = shelf.webhook("one"), shelf.webhook("other")
    plans = [plan for at in range(80) for plan in logged(shelf, one if at % 2 else other, 1, at=at)]
    plans += logged(shelf, one, 50, at=100) + logged(shelf, other, 50, at=200)
    shelf.clock.advance(days=8)

    batches = list(removable(shelf, at_most=12))

    assert [len(batch) for batch in batches] == [12, 12, 12, 12, 12, 12, 8]
    assert [key for batch in batches for key in batch] == [plan.delivery_key for plan in plans[:80]]


def test_rows_are_found_beyond_a_part_of_the_log_without_any(shelf, monkeypatch):
    monkeypatch.setattr(log_retention, "ROWS_PER_SCAN", 10)
    quiet, busy, third = shelf.webhook("quiet"), shelf.webhook("busy"), shelf.webhook("third")
    logged(shelf, busy, 1, at=0)
    logged(shelf, quiet, 25, at=10)
    logged(shelf, busy, 54, at=100)
    logged(shelf, third, 51, at=200)
    shelf.clock.advance(days=8)

    batches = list(removable(shelf, at_most=100))

    assert [len(batch) for batch in batches if batch] == [1, 4, 1]
    assert [] in batches
    assert thinned(shelf) == 6


def test_a_row_stays_if_it_gets_a_run_after_it_was_found(shelf):
    webhook = shelf.webhook()
    plans = [plan for at in (0, 1) for plan in logged(shelf, webhook, 1, at=at, runs=[shelf.run("aut_a")])]
    finish(shelf)
    logged(shelf, webhook, 50, at=10)
    shelf.clock.advance(days=8)
    [found] = removable(shelf, at_most=100)
    with shelf.database.write() as tx:
        tx.run("UPDATE runs SET state = 'queued', finished_at = NULL WHERE delivery_id = :id", id=plans[0].delivery_key)

    with shelf.database.write() as tx:
        removed = log_retention.remove(tx, found)

    assert (len(found), removed) == (2, 1)
    assert plans[0].delivery_key in kept(shelf)


def test_a_row_that_another_transaction_locks_stays(on_postgres):
    shelf = on_postgres
    webhook = shelf.webhook()
    plans = logged(shelf, webhook, 52, at=0)
    shelf.clock.advance(days=8)

    with shelf.database.write() as replay:
        deliveries.lock_against_pruning(replay, plans[0].delivery_key)
        removed = thinned(shelf)

    assert removed == 1
    assert plans[0].delivery_key in kept(shelf)


def test_a_body_is_forgotten_with_its_delivery(shelf):
    webhook = shelf.webhook()
    [plan] = logged(shelf, webhook, 1, at=0, event="a body", kind=IdentityKind.BODY_SHA256)
    logged(shelf, webhook, 50, at=1)
    again = shelf.plan(webhook, "a body", kind=IdentityKind.BODY_SHA256)
    assert shelf.admit(again) == [Duplicate(again.delivery_key, plan.delivery_key)]
    shelf.clock.advance(days=8)
    thinned(shelf)

    after = shelf.plan(webhook, "a body", kind=IdentityKind.BODY_SHA256)

    assert shelf.admit(after) == [Accepted(after.delivery_key)]


@pytest.mark.parametrize("kind", [IdentityKind.DELIVERY_ID_HEADER, IdentityKind.PROVIDER, IdentityKind.SENDER])
def test_an_id_that_was_sent_is_remembered_when_its_delivery_has_gone(shelf, kind):
    webhook = shelf.webhook()
    [plan] = logged(shelf, webhook, 1, at=0, event="event-1", kind=kind)
    logged(shelf, webhook, 50, at=1)
    shelf.clock.advance(days=8)
    thinned(shelf)
    assert plan.delivery_key not in kept(shelf)

    again = shelf.plan(webhook, "event-1", kind=kind)

    assert shelf.admit(again) == [Duplicate(again.delivery_key, plan.delivery_key)]


def test_counts_of_dropped_attempts_go_with_the_logs_days(shelf):
    no = shelf.webhook().no
    with shelf.database.write() as tx:
        add_dropped_counts(tx, [(no, shelf.clock.now + day * 86_400_000_000, "not_found", 1) for day in range(10)])
    shelf.clock.advance(days=10)

    with shelf.database.write() as tx:
        assert deliveries.forget_dropped_attempts(tx, shelf.clock.now) == 3

    assert shelf.count("dropped_attempts") == 7


def test_a_page_of_the_log_goes_on_where_the_last_one_ended(shelf):
    webhook, other = shelf.webhook(), shelf.webhook("other")
    logged(shelf, webhook, 30, at=0)
    logged(shelf, other, 30, at=0.5)

    with shelf.database.read() as tx:
        whole = deliveries.newest(tx, shelf.factory.id, limit=100)
        ours = deliveries.newest(tx, shelf.factory.id, webhooks=[webhook.uid], limit=100)
        pages, before = [], None
        while page := deliveries.newest(
            tx, shelf.factory.id, webhooks=[webhook.uid], log_range=LogRange(before=before), limit=7
        ):
            pages += page
            before = page[-1].key

    assert (len(whole), len(ours)) == (60, 30)
    assert pages == ours
    assert [row.received_at for row in whole] == sorted((row.received_at for row in whole), reverse=True)


def test_a_row_is_read_as_it_was_written(shelf):
    webhook = shelf.webhook()
    plan = shelf.rejection(webhook, Label.REJECTED_INVALID_JSON, reason="because ü")
    shelf.admit(plan)

    with shelf.database.read() as tx:
        row = deliveries.by_key(tx, shelf.factory.id, plan.delivery_key)

    assert row is not None
    assert delivery_id(row.key) == delivery_id(plan.delivery_key)
    assert (row.webhook_uid, row.webhook_name, row.label) == (webhook.uid, "source", Label.REJECTED_INVALID_JSON)
    assert (row.received_at, row.size, row.reason) == (shelf.clock.now, 2, "because ü")


def logged(
    shelf: Shelf,
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
        plans = [shelf.plan(webhook, event, at=at + no, **choices) for no in range(count)]
    else:
        plans = [shelf.plan_with(label, webhook, event, at=at + no) for no in range(count)]
    shelf.admit(*plans)
    return plans


def removable(shelf: Shelf, at_most: int) -> Iterator[Sequence[bytes]]:
    return log_retention.removable(shelf.database, shelf.clock.now, at_most=at_most)


def thinned(shelf: Shelf) -> int:
    """Removes what the log does not keep; returns how many rows."""
    count = 0
    for keys in removable(shelf, ALL_AT_ONCE):
        if keys:
            with shelf.database.write() as tx:
                count += log_retention.remove(tx, keys)
    return count


def finish(shelf: Shelf, automation: str | None = None) -> None:
    with shelf.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = 'succeeded', finished_at = 1 WHERE automation_id = :id OR :every",
            id=automation,
            every=automation is None,
        )


def kept(shelf: Shelf) -> set[bytes]:
    return {bytes(row["id"]) for row in shelf.rows("deliveries")}
