"""Verification finds each of many corruptions, which are planted one at a time, and nothing in a healthy database."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_id, run_id, time_ordered_key
from hookmill.domain.run import Ended, RunState
from hookmill.store.admission.window_counts import PERIOD_US
from hookmill.store.database import Transaction
from hookmill.store.identity_segments import add_filter, close_full_segment, note_transactions
from hookmill.store.runs import attempts, claims, executors
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.verification.checks import all_problems
from hookmill.store.verification.snapshot import DatabaseProblem, DatabaseSnapshot
from tests.support.counts import ON_POSTGRES_IN_PROOF
from tests.support.waiting import until
from tests.support.world import World

WORKER = ExecutorId("host-1-a")
ACCEPTED = f"(SELECT MIN(id) FROM deliveries WHERE label = {Label.ACCEPTED:d})"
SUCCEEDED = "(SELECT MIN(id) FROM runs WHERE state = 'succeeded')"
QUEUED = "(SELECT MIN(id) FROM runs WHERE state = 'queued' AND hold IS NULL)"


class Undo(Exception):
    pass


@pytest.fixture
def world(store_url):
    """A service with webhooks of several kinds, automations, and rows of every kind of outcome."""
    world = World(store_url)
    by_body = world.webhook("by body")
    by_header = world.webhook("by header", delivery_id_header="X-Event-Id")
    other = world.webhook("other")
    world.automation("every", by_body, by_header)
    world.automation("urgent", by_body, by_header, payload={"urgent": [True]})
    world.automation("grouped", by_body, policy={"concurrency": {"limit": 1}})
    world.automation("elsewhere", other)
    world.clock.advance(seconds=2 * 3600)
    answers = []
    for number in range(6):
        body = b'{"number": %d, "urgent": %s}' % (number, b"true" if number % 2 else b"false")
        answers.append(world.post(by_body, body))
        # The keys of deliveries are in the order of their times.
        world.clock.advance(seconds=0.1)
        world.post(by_header, body, headers={"X-Event-Id": f"event-{number}"})
        world.clock.advance(seconds=0.1)
        world.post(other, body)
        world.clock.advance(seconds=1)
    world.post(by_body, b'{"number": 0, "urgent": false}')
    world.post(by_header, b"{}", headers={"X-Event-Id": "event-1"})
    world.post(by_body, b"not json")
    world.post(by_body, token="wrong")
    world.post(by_body, b"[" + b" " * 300_000)
    world.management.log.replay(world.may, answers[0].delivery_id)
    close_full_segment(world.database, world.clock.now)
    world.clock.advance(days=1.1)
    close_full_segment(world.database, world.clock.now)
    note_transactions(world.database)
    # On PostgreSQL, a filter waits for the open transactions of the whole server.
    until(lambda: add_filter(world.database), "the closed segment has a filter")
    world.post(by_body, b'{"number": 7, "urgent": true}')
    perform_some(world)
    world.clock.advance(seconds=1)
    yield world
    world.close()
    assert world.failures == []


def perform_some(world: World):
    """One run is running, one has failed, and others have succeeded."""
    with world.database.write() as tx:
        executors.heartbeat(tx, WORKER, world.clock.now)
        claimed = claims.claim(tx, executor=WORKER, at_most=6, after=world.factory.id, now=world.clock.now)
        for number, each in enumerate(claimed[1:]):
            ended = Ended(state=RunState.FAILED if number == 0 else RunState.SUCCEEDED)
            attempts.finish(tx, each.run, ended, executor=WORKER, attempt=each.attempt, now=world.clock.now)


def problems_in(world: World, tx: Transaction) -> Sequence[DatabaseProblem]:
    return list(all_problems(DatabaseSnapshot(tx, world.key, world.clock.now, lambda *_: None, lambda: None)))


def sql(*statements: str, **values: Any) -> Callable[[World, Transaction], None]:
    def corrupt(world: World, tx: Transaction):
        for statement in statements:
            tx.run(statement, **{name: value for name, value in values.items() if f":{name}" in statement})

    return corrupt


def claim_again(world: World, tx: Transaction):
    tx.run(
        """
        INSERT INTO identities (segment, webhook_no, digest, delivery_id, kind, claimed_at)
        SELECT 2, webhook_no, digest, delivery_id, kind, claimed_at FROM identities WHERE segment = 1 LIMIT 1
        """
    )


def lose_original(world: World, tx: Transaction):
    tx.run(
        f"UPDATE deliveries SET duplicate_of = :key WHERE label = {Label.DUPLICATE:d}",
        key=time_ordered_key(world.clock.now - 60_000_000, bytes(8)),
    )


def count_lost_rows(world: World, tx: Transaction):
    tx.run("INSERT INTO window_counts VALUES (1, 1, 3, :period, 5)", period=world.clock.now // PERIOD_US)


def seal_with_another_row(world: World, tx: Transaction):
    tx.run(
        """
        UPDATE secret_versions SET sealed = (SELECT sealed FROM secret_versions WHERE id <> :first LIMIT 1)
        WHERE id = :first
        """,
        first=tx.all("SELECT MIN(id) AS id FROM secret_versions")[0]["id"],
    )


def add_attempt_without_run(world: World, tx: Transaction):
    tx.run(
        "INSERT INTO failed_attempts (run_id, attempt, started_at, finished_at) VALUES (:run, 1, 1, 1)",
        run=os.urandom(16),
    )


CORRUPTIONS: dict[str, tuple[str, Callable[[World, Transaction], None]]] = {
    "lost payload": ("payload_missing", sql(f"DELETE FROM payloads WHERE delivery_id = {ACCEPTED}")),
    "cut payload": ("payload_altered", sql(f"UPDATE payloads SET body = :b WHERE delivery_id = {ACCEPTED}", b=b"{}")),
    "changed payload": (
        "identity_digest",
        sql(
            f"UPDATE payloads SET body = :b WHERE delivery_id = {ACCEPTED}",
            b=b'{"number": 9, "urgent": false}',
        ),
    ),
    "payload that is not JSON": (
        "payload_altered",
        sql(f"UPDATE payloads SET body = :b WHERE delivery_id = {ACCEPTED}", b=b"x" * 30),
    ),
    "payload of a lost delivery": (
        "payload_without_delivery",
        sql("INSERT INTO payloads VALUES (:key, :b)", key=b"k" * 16, b=b"{}"),
    ),
    "payload of a rejected delivery": (
        "payload_without_delivery",
        sql(
            f"INSERT INTO payloads SELECT id, :b FROM deliveries WHERE label = {Label.REJECTED_AUTH:d}",
            b=b"{}",
        ),
    ),
    "delivery of no webhook": ("delivery_webhook", sql(f"UPDATE deliveries SET webhook_no = 99 WHERE id = {ACCEPTED}")),
    "changed time": (
        "delivery_time",
        sql(f"UPDATE deliveries SET received_at = received_at - 9000000 WHERE id = {ACCEPTED}"),
    ),
    "changed event id": (
        "identity_digest",
        sql("UPDATE deliveries SET identity = 'event-9' WHERE identity = 'event-2'"),
    ),
    "lost original": ("duplicate_original", lose_original),
    "Duplicate of itself": (
        "duplicate_original",
        sql(f"UPDATE deliveries SET duplicate_of = id WHERE label = {Label.DUPLICATE:d}"),
    ),
    "lost delivery": ("run_delivery", sql(f"DELETE FROM deliveries WHERE id = {ACCEPTED}")),
    "lost identity": ("identity_missing", sql(f"DELETE FROM identities WHERE delivery_id = {ACCEPTED}")),
    "identity in two segments": ("identity_twice", claim_again),
    "identity of another delivery": (
        "identity_delivery",
        sql(
            f"""
            UPDATE identities SET delivery_id = (SELECT MAX(id) FROM deliveries WHERE label = {Label.ACCEPTED:d})
            WHERE delivery_id = {ACCEPTED}
            """
        ),
    ),
    "empty filter": ("identity_filter", sql("UPDATE identity_filters SET bits = :b", b=bytes(1 << 14))),
    "lost filter": ("identity_segment", sql("DELETE FROM identity_filters")),
    "lost segment": ("identity_segment", sql("DELETE FROM identity_segments WHERE no = 2")),
    "lost rows that were counted": ("rows_lost", count_lost_rows),
    "lost run": ("run_missing", sql(f"DELETE FROM runs WHERE id = {SUCCEEDED}")),
    "run of another automation": (
        "run_unmatched",
        sql(
            """
            UPDATE runs SET automation_id = (SELECT id FROM automations WHERE name = 'every')
            WHERE automation_id = (SELECT id FROM automations WHERE name = 'elsewhere')
            """
        ),
    ),
    "run of an unknown version": ("run_automation", sql("UPDATE runs SET automation_version = 99")),
    "run of another webhook": (
        "run_delivery",
        sql(f"UPDATE runs SET webhook_no = webhook_no + 1 WHERE id = {SUCCEEDED}"),
    ),
    "failures without attempts": (
        "run_attempts",
        sql(f"UPDATE runs SET failures = 3, attempt = 9 WHERE id = {SUCCEEDED}"),
    ),
    "end before the start": ("run_times", sql(f"UPDATE runs SET finished_at = 1 WHERE id = {SUCCEEDED}")),
    "attempt of a lost run": ("part_without_run", add_attempt_without_run),
    "lost version": ("automation_version", sql("UPDATE automations SET version = 2 WHERE name = 'every'")),
    "unreadable triggers": ("automation_unreadable", sql("UPDATE automation_versions SET triggers = '[{}]'")),
    "unreadable policy": (
        "automation_unreadable",
        sql("""UPDATE automation_versions SET policy = '{"priority": "top"}'"""),
    ),
    "unreadable options": ("automation_unreadable", sql("UPDATE automation_versions SET options = '[]'")),
    "other limit": ("automation_policy", sql("UPDATE automations SET max_running = 5 WHERE name = 'every'")),
    "lost selection": ("automation_webhooks", sql("DELETE FROM automation_webhooks")),
    "schedule that is not stored": (
        "automation_schedule",
        sql(
            """
            UPDATE automation_versions SET triggers = '[{"provider": "schedule", "event": "cron_fired",
            "schedule": {"name": "nightly", "cron": "@daily"}}]'
            """
        ),
    ),
    "exchanged ciphertext": ("secret_sealed", seal_with_another_row),
    "lost index": ("schema", sql("DROP INDEX ix_deliveries_log")),
    "additional column": ("schema", sql("ALTER TABLE deliveries ADD COLUMN theirs INTEGER")),
}


def test_healthy_database_has_no_problems(world):
    with world.database.read() as tx:
        assert problems_in(world, tx) == []


@ON_POSTGRES_IN_PROOF
def test_each_of_many_corruptions_is_found(world):
    kinds: dict[str, set[str]] = {}
    for name, (_, corrupt) in CORRUPTIONS.items():
        with pytest.raises(Undo), world.database.write() as tx:
            corrupt(world, tx)
            problems = problems_in(world, tx)
            kinds[name] = {problem.kind for problem in problems}
            assert all(problem.row and problem.text.endswith((".", "?")) and problem.advice for problem in problems)
            raise Undo

    assert len(CORRUPTIONS) > 30
    assert {name: kinds[name] for name, (kind, _) in CORRUPTIONS.items() if kind not in kinds[name]} == {}
    with world.database.read() as tx:
        assert problems_in(world, tx) == []


def test_problem_names_the_row(world):
    with pytest.raises(Undo), world.database.write() as tx:
        (row,) = tx.all(f"SELECT {ACCEPTED} AS delivery, {SUCCEEDED} AS run")
        tx.run(f"DELETE FROM payloads WHERE delivery_id = {ACCEPTED}")
        tx.run(f"UPDATE runs SET failures = 1 WHERE id = {SUCCEEDED}")

        assert {problem.row for problem in problems_in(world, tx)} == {
            f"delivery {delivery_id(bytes(row['delivery']))}",
            f"run {run_id(bytes(row['run']))}",
        }
        raise Undo


def test_rows_of_doctor_that_were_removed_are_no_problem(world):
    probe = world.management.probes.create(world.may, {})
    assert world.post(probe, b"{}").status == 202
    count = f"INSERT INTO window_counts VALUES ({probe.webhook.no}, 1, 3, {world.clock.now // PERIOD_US}, 5)"
    with world.database.write() as tx:
        tx.run(count)

    world.management.probes.remove(world.may, probe.webhook.uid)

    with pytest.raises(Undo), world.database.write() as tx:
        assert tx.all("SELECT 1 FROM window_counts") == []
        # Another process may add it later.
        tx.run(count)
        assert problems_in(world, tx) == []
        raise Undo


def test_rows_that_retention_has_removed_are_no_problem(world):
    """A Duplicate and an identity can refer to deliveries that the log keeps no longer."""
    world.clock.advance(days=8)
    with pytest.raises(Undo), world.database.write() as tx:
        tx.run(
            "UPDATE runs SET state = 'succeeded', attempt = 1, hold = NULL, finished_at = created_at, executor = NULL"
        )
        for table in ("payloads", "runs"):
            tx.run(
                f"DELETE FROM {table} WHERE delivery_id IN (SELECT id FROM deliveries WHERE label = {Label.ACCEPTED:d})"
            )
        tx.run(f"DELETE FROM deliveries WHERE label = {Label.ACCEPTED:d}")

        assert problems_in(world, tx) == []
        raise Undo
