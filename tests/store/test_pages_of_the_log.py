"""Pages of the log and of runs contain the same rows as a scan of the whole table."""

import random
from collections.abc import Callable
from hashlib import sha256
from itertools import product
from typing import Any

import msgspec
import pytest

from hookmill.domain.delivery import Delivery, Label, LogDetails
from hookmill.domain.ids import RunKey, time_of, time_ordered_key
from hookmill.domain.run import RunState
from hookmill.store import deliveries
from hookmill.store.admission.plan import Plan, Rejection
from hookmill.store.admission.transaction import add_dropped_counts
from hookmill.store.deliveries import LogRange
from hookmill.store.runs import pages, reading
from tests.support.automations import automation_created
from tests.support.triggers import received

DAY = 86_400
IDENTITIES = ["often", "sometimes", "seldom", None]
EVENTS = ["push", "push", "release", None]


def with_event(plan: Plan, event: str | None) -> Plan:
    """The plan with the event type, if its sender is authenticated."""
    if event is None or (isinstance(plan, Rejection) and plan.label is Label.REJECTED_AUTH):
        return plan
    return msgspec.structs.replace(plan, log_details=LogDetails(event=event, event_signed=False))


@pytest.fixture
def log(store):
    """200 deliveries of 40 days to three webhooks, newest first. Identities older than 30 days are removed."""
    chance = random.Random(11)
    webhooks = [store.webhook(name) for name in ("one", "two", "three")]
    times = sorted(chance.uniform(-40 * DAY, 0) for _ in range(200))
    for at in times:
        label = chance.choices(list(Label), [12, 0, 4, 2, 1])[0]
        plan = store.plan_with_label(label, chance.choice(webhooks), chance.choice(IDENTITIES), at=at)
        store.admit(with_event(plan, chance.choice(EVENTS)))
    with store.database.write() as tx:
        cutoff = store.clock.now - round(30 * DAY * 1_000_000)
        tx.run("DELETE FROM identities WHERE claimed_at < :cutoff", cutoff=cutoff)
    with store.database.read() as tx:
        rows = deliveries.oldest(tx, store.factory.id)
    assert len(rows) == 200
    return list(reversed(rows))


def test_every_combination_of_filters_returns_the_same_rows_as_a_scan(store, log):
    uid = log[0].webhook_uid
    middle, later = log[100].received_at, log[40].received_at
    digest = sha256(b"often").digest()[:16]
    # Of each filter: the arguments, and the condition on a row.
    filters: tuple[tuple[tuple[dict[str, Any], Callable[[Delivery], bool]], ...], ...] = (
        (({}, lambda _: True), ({"webhooks": [uid]}, lambda row: row.webhook_uid == uid)),
        (({}, lambda _: True), *(({"label": label}, lambda row, label=label: row.label == label) for label in Label)),
        (({}, lambda _: True), ({"event": "release"}, lambda row: row.event == "release")),
        (
            (dict.fromkeys(("since", "until", "before")), lambda _: True),
            ({"since": middle, "until": later}, lambda row: middle <= row.received_at < later),
            ({"before": log[60].key}, lambda row: row.key < log[60].key),
        ),
    )
    keys_by_query = {}
    with store.database.read() as tx:
        for combination, by_identity in product(product(*filters), (False, True)):
            arguments: dict[str, Any] = {}
            for some_arguments, _ in combination:
                arguments |= some_arguments
            log_range = LogRange(**{name: arguments.pop(name, None) for name in ("since", "until", "before")})
            expected = [row.key for row in log if all(holds(row) for _, holds in combination)]
            if by_identity:
                expected = [row.key for row in log if row.key in expected and row.identity_digest == digest]
                rows = deliveries.of_identities(
                    tx,
                    store.factory.id,
                    [digest, b"unknown"],
                    now=store.clock.now,
                    log_range=log_range,
                    limit=9,
                    **arguments,
                )
            else:
                rows = deliveries.newest(tx, store.factory.id, log_range=log_range, limit=9, **arguments)
            keys_by_query[str((arguments, log_range, by_identity))] = ([row.key for row in rows], expected[:9])

    assert {query: keys for query, (keys, expected) in keys_by_query.items() if keys != expected} == {}
    assert sum(bool(expected) for _, expected in keys_by_query.values()) > 40


def test_times_outside_the_range_of_keys_select_the_whole_log(store, log):
    with store.database.read() as tx:
        page = deliveries.newest(tx, store.factory.id, log_range=LogRange(since=-(10**18), until=10**18), limit=1000)

    assert [row.key for row in page] == [row.key for row in log]


def test_log_of_a_factory_has_no_rows_of_another(store, log):
    admin = store.management.access.operator_of_team()
    other = store.management.factories.create(admin, "other")

    with store.database.read() as tx:
        assert deliveries.newest(tx, other.id) == []
        assert deliveries.of_identities(tx, other.id, [sha256(b"often").digest()[:16]], now=store.clock.now) == []


def test_time_of_a_key_is_the_time_of_its_creation():
    for at in (0, 1, 999, 1_000, 1_795_289_589_913_769):
        assert time_of(time_ordered_key(at, b"\xff" * 8)) == at


def test_dropped_attempts_are_on_the_page_in_which_their_minute_ends(store):
    webhook = store.webhook()
    minute = 60_000_000
    with store.database.write() as tx:
        add_dropped_counts(tx, [(webhook.no, number * minute, "rate_limited", number) for number in range(1, 7)])

    with store.database.read() as tx:
        counts_of_pages = [
            [row.count for row in deliveries.dropped_attempts(tx, store.factory.id, since=since, until=until)]
            for since, until in ((5 * minute + 7, None), (3 * minute, 5 * minute + 7), (None, 3 * minute))
        ]

    assert counts_of_pages == [[6, 5], [4, 3], [2, 1]]


def test_pages_of_runs_contain_the_same_runs_as_a_scan(store):
    webhooks = [store.webhook(name) for name in ("one", "two")]
    trigger = received(webhooks[0].uid)
    often, seldom, never = (
        automation_created(store.management, store.may, name, triggers=[trigger]).id for name in "abc"
    )
    # The new automations have raised the revision of their webhook.
    webhooks = [store.management.webhooks.get(store.may, name) for name in ("one", "two")]
    states = list(RunState)
    for number in range(60):
        automation = seldom if number % 7 == 3 else often
        if number % 3 == 2:
            store.management.automations.start_run(store.may, automation)
        else:
            store.admit(store.plan(webhooks[number % 2], at=number - 100, runs=[store.run(automation)]))
        store.clock.advance(seconds=0.001)
    with store.database.write() as tx:
        rows = tx.all("SELECT id, webhook_no, automation_id FROM runs ORDER BY id DESC")
        for number, row in enumerate(rows):
            state = states[number % len(states)]
            is_claimed = state is RunState.RUNNING
            tx.run(
                """
                UPDATE runs
                SET state = :state, finished_at = :finished_at, claimed_at = :claimed_at, executor = :executor
                WHERE id = :id
                """,
                state=state.value,
                finished_at=1 if state.is_final else None,
                claimed_at=1 if is_claimed else None,
                executor="worker" if is_claimed else None,
                id=row["id"],
            )
    state_by_key = {bytes(row["id"]): states[number % len(states)] for number, row in enumerate(rows)}

    with store.database.read() as tx:
        for state, webhook, before, automation_id in product(
            (None, *RunState),
            (None, webhooks[0]),
            (None, RunKey(bytes(rows[30]["id"]))),
            (None, often, seldom, never),
        ):
            expected = [
                bytes(row["id"])
                for row in rows
                if (state is None or state_by_key[bytes(row["id"])] is state)
                and (webhook is None or row["webhook_no"] == webhook.no)
                and (before is None or bytes(row["id"]) < before)
                and automation_id in (None, row["automation_id"])
            ][:7]
            uid = webhook.uid if webhook is not None else None
            page = pages.page_of_runs(
                tx, factory=store.factory.id, webhook=uid, automation=automation_id, state=state, before=before, limit=7
            )
            assert [run.id for run in page] == expected, (state, uid, before, automation_id)
        newest = reading.newest_by_automation(tx, store.factory.id)
    assert {automation: run.id for automation, run in newest.items()} == {
        automation: next(bytes(row["id"]) for row in rows if row["automation_id"] == automation)
        for automation in (often, seldom)
    }


def test_runs_are_counted_by_delivery_only_within_their_factory(store):
    webhook = store.webhook()
    trigger = received(webhook.uid)
    automations = [automation_created(store.management, store.may, name, triggers=[trigger]).id for name in "ab"]
    webhook = store.management.webhooks.get(store.may, "source")
    plans = []
    for triggered in ((), automations[:1], automations):
        plans.append(store.plan(webhook, runs=[store.run(automation) for automation in triggered]))
        store.clock.advance(seconds=0.001)
    store.admit(*plans)
    none, one, two = (plan.delivery_key for plan in plans)
    other = store.management.factories.create(store.management.access.operator_of_team(), "other")

    with store.database.read() as tx:
        assert reading.counts_by_delivery(tx, [none, one, two], factory=store.factory.id) == {one: 1, two: 2}
        assert reading.counts_by_delivery(tx, [two], factory=store.factory.id) == {two: 2}
        assert reading.counts_by_delivery(tx, [], factory=store.factory.id) == {}
        assert reading.counts_by_delivery(tx, [none, one, two], factory=other.id) == {}
