"""Notifications of workers on PostgreSQL about new runs in the backlog."""

import asyncio

import pytest

from hookmill.domain.delivery import Accepted, Duplicate
from hookmill.domain.errors import StoreUnavailable
from hookmill.store.notifications import listening, notify_workers, notify_workers_separately
from tests.store.test_group_commit import group_commit_to


def test_only_committed_transactions_notify_workers(store_on_postgres):
    with listening(store_on_postgres.database) as wait:
        with pytest.raises(ZeroDivisionError), store_on_postgres.database.write() as tx:
            notify_workers(tx)
            _ = 1 / 0
        is_notified_by_rollback = wait(0.2)
        with store_on_postgres.database.write() as tx:
            notify_workers(tx)

        assert not is_notified_by_rollback
        assert wait(10)
        assert not wait(0.2)


def test_only_admissions_with_runs_notify_workers(store_on_postgres):
    webhook = store_on_postgres.webhook()
    without_runs = store_on_postgres.plan(webhook, "first")
    with_runs, duplicate = (
        store_on_postgres.plan(webhook, "second", runs=[store_on_postgres.run("aut_a")]) for _ in range(2)
    )

    async def scene():
        results = []
        with listening(store_on_postgres.database) as wait:
            async with group_commit_to(store_on_postgres) as running:
                for plan in (without_runs, with_runs, duplicate):
                    [outcome] = await running.admit(plan)
                    is_notified = await asyncio.to_thread(wait, 10 if plan is with_runs else 0.3)
                    results.append((type(outcome), is_notified))
        return results

    assert asyncio.run(scene()) == [(Accepted, False), (Accepted, True), (Duplicate, False)]


def test_separate_notification_leaves_later_commits_durable(store_on_postgres):
    database = store_on_postgres.database
    with listening(database) as wait:
        notify_workers_separately(database)

        assert wait(10)
    with database.write() as tx:
        assert tx.one("SELECT current_setting('synchronous_commit') AS value") == {"value": "on"}


def test_lost_connection_makes_the_wait_unavailable(store_on_postgres):
    with pytest.raises(StoreUnavailable), listening(store_on_postgres.database) as wait:
        with store_on_postgres.database.write() as tx:
            tx.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        wait(10)


def test_notification_has_no_effect_on_sqlite(store_on_sqlite):
    with store_on_sqlite.database.write() as tx:
        notify_workers(tx)
