"""The webhooks in memory: revalidation returns the stored webhook, and a fault of one webhook affects no other."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from hashlib import sha256

import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.webhook import AuthMode
from hookmill.store.admission import snapshot as snapshot_module
from hookmill.store.admission.snapshot import Snapshot
from tests.store.managed_store import ManagedStore
from tests.support.automations import automation_created
from tests.support.triggers import received


@contextlib.asynccontextmanager
async def snapshot_of(store: ManagedStore) -> AsyncIterator[tuple[Snapshot, list[tuple[str, BaseException]]]]:
    failures: list[tuple[str, BaseException]] = []
    snapshot = Snapshot(
        store.database, store.key, report_failure=lambda component, error: failures.append((component, error))
    )
    try:
        yield snapshot, failures
    finally:
        await asyncio.to_thread(snapshot.close)


async def wait_for_preload(snapshot: Snapshot, uid: str):
    """Wait until the webhook is cached. After the preload, the snapshot only reads what is revalidated."""
    while snapshot.get(uid) is None:
        await asyncio.sleep(0.001)


async def revalidated(snapshot: Snapshot, uid: str):
    """The revalidated webhook, as soon as the database is available."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            return await snapshot.revalidate(uid)


def test_revalidated_webhook_has_all_its_fields(store):
    source = store.management.webhooks.create(
        store.may, {"name": "source", "auth_mode": AuthMode.URL_TOKEN, "delivery_id_header": "X-Event-Id"}
    )

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(source.webhook.uid)

    live = asyncio.run(scene())
    assert (live.uid, live.no, live.factory_id, live.revision) == (
        source.webhook.uid,
        source.webhook.no,
        store.factory.id,
        1,
    )
    assert (live.auth_mode, live.accepts_deliveries, live.delivery_id_header) == ("url_token", True, b"x-event-id")
    assert live.secret_digest == sha256(source.reveal().encode()).digest()
    assert (live.signature_rule, live.subscriptions) == (None, ())


def test_unknown_uid_is_none_and_is_not_cached(store):
    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            webhooks = [await snapshot.revalidate(uid) for uid in ("wh_unknown", "", "'; --", "ü", "x" * 10_000)]
            return webhooks, [snapshot.get(uid) for uid in ("wh_unknown", "")]

    assert asyncio.run(scene()) == ([None] * 5, [None] * 2)


def test_only_revalidation_updates_the_cached_webhook(store):
    uid = store.webhook().uid

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            await wait_for_preload(snapshot, uid)
            await snapshot.revalidate(uid)
            store.management.webhooks.set_enabled(store.may, uid, False)
            cached = snapshot.get(uid)
            revalidated_webhook = await snapshot.revalidate(uid)
            return cached, revalidated_webhook, snapshot.get(uid)

    cached, revalidated_webhook, cached_afterwards = asyncio.run(scene())
    assert (cached.accepts_deliveries, cached.revision) == (True, 1)
    assert (revalidated_webhook.accepts_deliveries, revalidated_webhook.revision) == (False, 2)
    assert cached_afterwards is revalidated_webhook


def test_unchanged_webhook_is_not_read_again(store):
    uid = store.webhook().uid

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return [await snapshot.revalidate(uid) for _ in range(3)]

    first, *others = asyncio.run(scene())
    assert all(webhook is first for webhook in others)


def test_subscriptions_are_the_enabled_automations_of_the_webhook(store):
    uid = store.webhook().uid
    trigger = received(uid)
    create = partial(automation_created, store.management)
    enabled = create(store.may, "enabled", triggers=[trigger])
    create(store.may, "disabled", triggers=[trigger], enabled=False)
    create(store.may, "deleted", triggers=[trigger])
    store.management.automations.delete(store.may, "deleted")
    create(store.may, "of another webhook", triggers=[trigger | {"filter": {"webhook_ids": ["wh_other"]}}])

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(uid)

    live = asyncio.run(scene())
    assert [(subscription.automation_id, subscription.version) for subscription in live.subscriptions] == [
        (enabled.id, 1)
    ]


def test_automation_with_unreadable_triggers_affects_no_other(store):
    uid = store.webhook().uid
    trigger = received(uid)
    broken = automation_created(store.management, store.may, "broken", triggers=[trigger])
    readable = automation_created(store.management, store.may, "readable", triggers=[trigger])
    with store.database.write() as tx:
        tx.run("UPDATE automation_versions SET triggers = '[{' WHERE automation_id = :id", id=broken.id)

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(uid)

    live = asyncio.run(scene())
    assert {subscription.automation_id: subscription.filters for subscription in live.subscriptions} == {
        broken.id: (),
        readable.id: readable.filters,
    }


def test_simultaneous_revalidations_all_get_their_webhook(store, monkeypatch):
    monkeypatch.setattr(snapshot_module, "REVALIDATION_TIMEOUT_SECONDS", 60.0)
    uids = [store.webhook(f"source {i}").uid for i in range(40)]
    requested_uids = (uids + ["wh_unknown"] * 10) * 20

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await asyncio.gather(*(snapshot.revalidate(uid) for uid in requested_uids))

    webhooks = asyncio.run(scene())
    assert [webhook.uid if webhook else "wh_unknown" for webhook in webhooks] == requested_uids


def test_cache_is_bounded_and_removed_webhooks_are_read_again(store, monkeypatch):
    monkeypatch.setattr(snapshot_module, "WEBHOOKS_MAX", 3)
    uids = [store.webhook(f"source {i}").uid for i in range(5)]

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            await wait_for_preload(snapshot, uids[0])
            for uid in uids:
                await snapshot.revalidate(uid)
            cached_uids = [uid for uid in uids if snapshot.get(uid) is not None]
            return cached_uids, [await snapshot.revalidate(uid) for uid in uids]

    cached_uids, webhooks = asyncio.run(scene())
    assert len(cached_uids) == 3
    assert [webhook.uid for webhook in webhooks] == uids


def test_revalidation_is_unavailable_until_the_database_recovers(store):
    uid = store.webhook().uid

    async def scene():
        async with snapshot_of(store) as (snapshot, failures):
            await wait_for_preload(snapshot, uid)
            await snapshot.revalidate(uid)
            with store.database.write() as tx:
                tx.run("ALTER TABLE webhooks RENAME TO renamed")
            with pytest.raises(StoreUnavailable):
                await snapshot.revalidate(uid)
            with store.database.write() as tx:
                tx.run("ALTER TABLE renamed RENAME TO webhooks")
            return await snapshot.revalidate(uid), [component for component, _ in failures]

    live, failed_components = asyncio.run(scene())
    assert (live.uid, failed_components) == (uid, ["snapshot"])


@contextlib.contextmanager
def locked_webhooks(store: ManagedStore) -> Iterator[None]:
    """Until the block ends, no query on PostgreSQL can read webhooks."""
    with store.database.write() as tx:
        tx.run("LOCK TABLE webhooks IN ACCESS EXCLUSIVE MODE")
        yield


def test_revalidation_times_out_while_the_database_hangs(store_on_postgres, monkeypatch):
    monkeypatch.setattr(snapshot_module, "REVALIDATION_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(snapshot_module, "CHECK_SECONDS", 0.05)
    uid = store_on_postgres.webhook().uid

    async def scene():
        async with snapshot_of(store_on_postgres) as (snapshot, failures):
            await wait_for_preload(snapshot, uid)
            await revalidated(snapshot, uid)
            failures.clear()
            with locked_webhooks(store_on_postgres):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    await snapshot.revalidate(uid)
                waited = time.monotonic() - began
                assert failures == [], "the database has not answered yet"
            return waited, await revalidated(snapshot, uid)

    waited, live = asyncio.run(scene())
    assert waited >= 0.3
    assert live.uid == uid


def test_revalidations_beyond_the_maximum_fail_immediately(store_on_postgres, monkeypatch):
    monkeypatch.setattr(snapshot_module, "REVALIDATIONS_WAITING_MAX", 3)
    uid = store_on_postgres.webhook().uid

    async def scene():
        async with snapshot_of(store_on_postgres) as (snapshot, _):
            await snapshot.revalidate(uid)
            with locked_webhooks(store_on_postgres):
                snapshot.revalidate(uid)
                while snapshot._revalidations:
                    await asyncio.sleep(0.01)
                futures = [snapshot.revalidate(uid) for _ in range(6)]
                done_immediately = [future.done() for future in futures]
            results = await asyncio.gather(*futures, return_exceptions=True)
            return done_immediately, [isinstance(result, StoreUnavailable) for result in results]

    done_immediately, unavailable = asyncio.run(scene())
    assert done_immediately == unavailable == [False] * 4 + [True] * 2


def test_webhook_with_an_unreadable_secret_is_unavailable(store):
    broken, *readable = [store.webhook(name).uid for name in "abcde"]
    with store.database.write() as tx:
        tx.run(
            """
            UPDATE secret_versions SET sealed = :altered
            WHERE id = (SELECT secret_version_id FROM webhooks WHERE uid = :uid)
            """,
            altered=bytes(60),
            uid=broken,
        )

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            futures = (snapshot.revalidate(uid) for uid in (readable[0], broken, *readable[1:]))
            return await asyncio.gather(*futures, return_exceptions=True)

    first, error, *others = asyncio.run(scene())
    assert isinstance(error, StoreUnavailable)
    assert [webhook.uid for webhook in (first, *others)] == readable
