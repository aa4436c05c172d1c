"""Workers on PostgreSQL hear that runs joined the backlog."""

import asyncio

import pytest

from hookmill.domain.delivery import Accepted, Duplicate
from hookmill.domain.errors import StoreUnavailable
from hookmill.store.notifications import listening, notify_workers
from tests.store.test_group_commit import line_to


def test_committed_transaction_notifies_and_rolled_back_one_does_not(store_on_postgres):
    with listening(store_on_postgres.database) as wait:
        with pytest.raises(ZeroDivisionError), store_on_postgres.database.write() as tx:
            notify_workers(tx)
            _ = 1 / 0
        after_rollback = wait(0.2)
        with store_on_postgres.database.write() as tx:
            notify_workers(tx)

        assert not after_rollback
        assert wait(10)
        assert not wait(0.2)


def test_only_an_admission_that_starts_runs_notifies(store_on_postgres):
    webhook = store_on_postgres.webhook()
    without_runs = store_on_postgres.plan(webhook, "first")
    with_runs, duplicate = (
        store_on_postgres.plan(webhook, "second", runs=[store_on_postgres.run("aut_a")]) for _ in range(2)
    )

    async def scene():
        heard = []
        with listening(store_on_postgres.database) as wait:
            async with line_to(store_on_postgres) as line:
                for plan in (without_runs, with_runs, duplicate):
                    [outcome] = await line.admit(plan)
                    heard.append((type(outcome), await asyncio.to_thread(wait, 10 if plan is with_runs else 0.3)))
        return heard

    assert asyncio.run(scene()) == [(Accepted, False), (Accepted, True), (Duplicate, False)]


def test_lost_connection_is_reported(store_on_postgres):
    with pytest.raises(StoreUnavailable), listening(store_on_postgres.database) as wait:
        with store_on_postgres.database.write() as tx:
            tx.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        wait(10)


def test_sqlite_needs_no_notification(store_on_sqlite):
    with store_on_sqlite.database.write() as tx:
        notify_workers(tx)
