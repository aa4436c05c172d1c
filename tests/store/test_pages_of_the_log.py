"""Pages of the log are what a reader of every row would have picked."""

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
from tests.store.managed_store import ManagedStore

DAY = 86_400
IDENTITIES = ["often", "again", "once upon a time", None]
TYPES = ["push", "push", "release", None]


def reporting(plan: Plan, event: str | None) -> Plan:
    """The plan of an authenticated sender that reports an event of this type."""
    if event is None or (isinstance(plan, Rejection) and plan.label is Label.REJECTED_AUTH):
        return plan
    return msgspec.structs.replace(plan, log_details=LogDetails(event=event, event_signed=False))


@pytest.fixture
def log(store: ManagedStore) -> list[Delivery]:
    """Two hundred deliveries of forty days, to three webhooks; identities from before the last thirty are forgotten."""
    chance = random.Random(11)
    webhooks = [store.webhook(name) for name in ("one", "two", "three")]
    times = sorted(chance.uniform(-40 * DAY, 0) for _ in range(200))
    for at in times:
        label = chance.choices(list(Label), [12, 0, 4, 2, 1])[0]
        plan = store.plan_with_label(label, chance.choice(webhooks), chance.choice(IDENTITIES), at=at)
        store.admit(reporting(plan, chance.choice(TYPES)))
    with store.database.write() as tx:
        cutoff = store.clock.now - round(30 * DAY * 1_000_000)
        tx.run("DELETE FROM identities WHERE claimed_at < :cutoff", cutoff=cutoff)
    with store.database.read() as tx:
        rows = deliveries.oldest(tx, store.factory.id)
    assert len(rows) == 200
    return list(reversed(rows))


def test_every_combination_of_filters_finds_the_same_rows_as_a_scan(store: ManagedStore, log: list[Delivery]):
    uid = log[0].webhook_uid
    middle, later = log[100].received_at, log[40].received_at
    digest = sha256(b"often").digest()[:16]
    choices: tuple[tuple[tuple[dict[str, Any], Callable[[Delivery], bool]], ...], ...] = (
        (({}, lambda _: True), ({"webhooks": [uid]}, lambda row: row.webhook_uid == uid)),
        (({}, lambda _: True), *(({"label": label}, lambda row, label=label: row.label == label) for label in Label)),
        (({}, lambda _: True), ({"event": "release"}, lambda row: row.event == "release")),
        (
            (dict.fromkeys(("since", "until", "before")), lambda _: True),
            ({"since": middle, "until": later}, lambda row: middle <= row.received_at < later),
            ({"before": log[60].key}, lambda row: row.key < log[60].key),
        ),
    )
    found = {}
    with store.database.read() as tx:
        for parts, is_of_event in product(product(*choices), (False, True)):
            asked: dict[str, Any] = {}
            for part, _ in parts:
                asked |= part
            log_range = LogRange(**{name: asked.pop(name, None) for name in ("since", "until", "before")})
            wanted = [row.key for row in log if all(holds(row) for _, holds in parts)]
            if is_of_event:
                wanted = [row.key for row in log if row.key in wanted and row.identity_digest == digest]
                rows = deliveries.of_identities(
                    tx,
                    store.factory.id,
                    [digest, b"unknown"],
                    now=store.clock.now,
                    log_range=log_range,
                    limit=9,
                    **asked,
                )
            else:
                rows = deliveries.newest(tx, store.factory.id, log_range=log_range, limit=9, **asked)
            found[str((asked, log_range, is_of_event))] = ([row.key for row in rows], wanted[:9])

    assert {asked: keys for asked, (keys, wanted) in found.items() if keys != wanted} == {}
    assert sum(bool(wanted) for _, wanted in found.values()) > 40


def test_times_that_no_key_can_hold_are_the_ends_of_the_log(store: ManagedStore, log: list[Delivery]):
    with store.database.read() as tx:
        page = deliveries.newest(tx, store.factory.id, log_range=LogRange(since=-(10**18), until=10**18), limit=1000)

    assert [row.key for row in page] == [row.key for row in log]


def test_a_factory_sees_nothing_of_another(store: ManagedStore, log: list[Delivery]):
    admin = store.management.access.operator_of_team()
    other = store.management.factories.create(admin, "other")

    with store.database.read() as tx:
        assert deliveries.newest(tx, other.id) == []
        assert deliveries.of_identities(tx, other.id, [sha256(b"often").digest()[:16]], now=store.clock.now) == []


def test_a_key_tells_the_time_that_it_was_made_of():
    for at in (0, 1, 999, 1_000, 1_795_289_589_913_769):
        assert time_of(time_ordered_key(at, b"\xff" * 8)) == at


def test_dropped_attempts_belong_to_the_page_in_whose_time_their_minute_ends(store: ManagedStore):
    webhook = store.webhook()
    minute = 60_000_000
    with store.database.write() as tx:
        add_dropped_counts(tx, [(webhook.no, number * minute, "rate_limited", number) for number in range(1, 7)])

    with store.database.read() as tx:
        pages_read = [
            [row.count for row in deliveries.dropped_attempts(tx, store.factory.id, since=since, until=until)]
            for since, until in ((5 * minute + 7, None), (3 * minute, 5 * minute + 7), (None, 3 * minute))
        ]

    assert pages_read == [[6, 5], [4, 3], [2, 1]]


def test_pages_of_runs_are_what_a_reader_of_all_runs_would_pick(store: ManagedStore):
    webhooks = [store.webhook(name) for name in ("one", "two")]
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhooks[0].uid]}}
    often, seldom, never = (
        store.management.automations.create(store.may, name, prompt="Look.", triggers=[trigger]).id for name in "abc"
    )
    # The automations have changed what their webhook does.
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
            in_hand = state is RunState.RUNNING or (state is RunState.QUEUED and number % 4 == 0)
            tx.run(
                """
                UPDATE runs
                SET state = :state, finished_at = :finished_at, claimed_at = :claimed_at, executor = :executor
                WHERE id = :id
                """,
                state=state.value,
                finished_at=1 if state.is_final else None,
                claimed_at=1 if in_hand else None,
                executor="somebody" if in_hand else None,
                id=row["id"],
            )
    state_of = {bytes(row["id"]): states[number % len(states)] for number, row in enumerate(rows)}

    with store.database.read() as tx:
        for state, webhook, before, of in product(
            (None, *RunState),
            (None, webhooks[0]),
            (None, RunKey(bytes(rows[30]["id"]))),
            (None, often, seldom, never),
        ):
            wanted = [
                bytes(row["id"])
                for row in rows
                if (state is None or state_of[bytes(row["id"])] is state)
                and (webhook is None or row["webhook_no"] == webhook.no)
                and (before is None or bytes(row["id"]) < before)
                and of in (None, row["automation_id"])
            ][:7]
            uid = webhook.uid if webhook is not None else None
            page = pages.page_of_runs(
                tx, factory=store.factory.id, webhook=uid, automation=of, state=state, before=before, limit=7
            )
            assert [run.id for run in page] == wanted, (state, uid, before, of)
        newest = reading.newest_by_automation(tx, store.factory.id)
    assert {automation: run.id for automation, run in newest.items()} == {
        automation: next(bytes(row["id"]) for row in rows if row["automation_id"] == automation)
        for automation in (often, seldom)
    }


def test_runs_are_counted_by_delivery_for_their_own_factory_alone(store: ManagedStore):
    webhook = store.webhook()
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhook.uid]}}
    automations = [
        store.management.automations.create(store.may, name, prompt="Look.", triggers=[trigger]).id for name in "ab"
    ]
    webhook = store.management.webhooks.get(store.may, "source")
    plans = []
    for started in ((), automations[:1], automations):
        plans.append(store.plan(webhook, runs=[store.run(automation) for automation in started]))
        store.clock.advance(seconds=0.001)
    store.admit(*plans)
    none, one, two = (plan.delivery_key for plan in plans)
    other = store.management.factories.create(store.management.access.operator_of_team(), "other")

    with store.database.read() as tx:
        assert reading.counts_by_delivery(tx, [none, one, two], factory=store.factory.id) == {one: 1, two: 2}
        assert reading.counts_by_delivery(tx, [two], factory=store.factory.id) == {two: 2}
        assert reading.counts_by_delivery(tx, [], factory=store.factory.id) == {}
        assert reading.counts_by_delivery(tx, [none, one, two], factory=other.id) == {}
