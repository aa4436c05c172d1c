"""Webhooks in memory: what is confirmed is what is stored, and trouble with one is trouble for that one."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256

import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.webhook import AuthMode
from hookmill.store.admission import snapshot as snapshot_module
from hookmill.store.admission.snapshot import Snapshot
from tests.store.managed_store import ManagedStore


@contextlib.asynccontextmanager
async def snapshot_of(store: ManagedStore) -> AsyncIterator[tuple[Snapshot, list[tuple[str, BaseException]]]]:
    failures: list[tuple[str, BaseException]] = []
    snapshot = Snapshot(store.database, store.key, report_failure=lambda where, error: failures.append((where, error)))
    try:
        yield snapshot, failures
    finally:
        await asyncio.to_thread(snapshot.close)


async def read_ahead(snapshot: Snapshot, uid: str) -> None:
    """Until it has read by itself what is there at its start. From then on it asks the database only when asked."""
    while snapshot.get(uid) is None:
        await asyncio.sleep(0.001)


async def confirmed_in_time(snapshot: Snapshot, uid: str):
    """The answer, as soon as the database gives one."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            return await snapshot.revalidate(uid)


def test_a_webhook_is_read_whole(store):
    made = store.management.webhooks.create(
        store.may, "source", auth_mode=AuthMode.URL_TOKEN, delivery_id_header="X-Event-Id"
    )

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(made.webhook.uid)

    live = asyncio.run(scene())
    assert (live.uid, live.no, live.factory_id, live.revision) == (
        made.webhook.uid,
        made.webhook.no,
        store.factory.id,
        1,
    )
    assert (live.auth_mode, live.accepts_deliveries, live.delivery_id_header) == ("url_token", True, b"x-event-id")
    assert live.secret_digest == sha256(made.reveal().encode()).digest()
    assert (live.signature_rule, live.subscriptions) == (None, ())


def test_an_unknown_uid_is_none_and_takes_no_place(store):
    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            answers = [await snapshot.revalidate(uid) for uid in ("wh_unknown", "", "'; --", "ü", "x" * 10_000)]
            return answers, [snapshot.get(uid) for uid in ("wh_unknown", "")]

    assert asyncio.run(scene()) == ([None] * 5, [None] * 2)


def test_confirming_brings_what_has_changed_and_looking_does_not(store):
    uid = store.webhook().uid

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            await read_ahead(snapshot, uid)
            await snapshot.revalidate(uid)
            store.management.webhooks.set_enabled(store.may, uid, False)
            looked = snapshot.get(uid)
            confirmed = await snapshot.revalidate(uid)
            return looked, confirmed, snapshot.get(uid)

    looked, confirmed, afterwards = asyncio.run(scene())
    assert (looked.accepts_deliveries, looked.revision) == (True, 1)
    assert (confirmed.accepts_deliveries, confirmed.revision) == (False, 2)
    assert afterwards is confirmed


def test_what_has_not_changed_is_not_read_again(store):
    uid = store.webhook().uid

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return [await snapshot.revalidate(uid) for _ in range(3)]

    first, *again = asyncio.run(scene())
    assert all(each is first for each in again)


def test_a_rotation_brings_the_new_secret(store):
    made = store.management.webhooks.create(store.may, "source")

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            before = await snapshot.revalidate(made.webhook.uid)
            rotated = store.management.webhooks.rotate(store.may, "source")
            return before, rotated, await snapshot.revalidate(made.webhook.uid)

    before, rotated, after = asyncio.run(scene())
    assert before.secret_digest == sha256(made.reveal().encode()).digest()
    assert after.secret_digest == sha256(rotated.reveal().encode()).digest()


def test_subscriptions_are_enabled_automations_of_the_same_factory(store):
    uid = store.webhook().uid
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [uid]}}
    create = store.management.automations.create
    listening = create(store.may, "listening", prompt="Look.", triggers=[trigger])
    create(store.may, "switched off", prompt="Look.", triggers=[trigger], enabled=False)
    create(store.may, "deleted", prompt="Look.", triggers=[trigger])
    store.management.automations.delete(store.may, "deleted")
    create(store.may, "elsewhere", prompt="Look.", triggers=[trigger | {"filter": {"webhook_ids": ["wh_other"]}}])

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(uid)

    live = asyncio.run(scene())
    assert [(each.automation_id, each.version) for each in live.subscriptions] == [(listening.id, 1)]


def test_unreadable_triggers_match_nothing_and_harm_no_other(store):
    uid = store.webhook().uid
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [uid]}}
    broken = store.management.automations.create(store.may, "broken", prompt="Look.", triggers=[trigger])
    whole = store.management.automations.create(store.may, "whole", prompt="Look.", triggers=[trigger])
    with store.database.write() as tx:
        tx.run("UPDATE automation_versions SET triggers = '[{' WHERE automation_id = :id", id=broken.id)

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(uid)

    filters = {each.automation_id: each.triggers for each in asyncio.run(scene()).subscriptions}
    assert filters == {broken.id: (), whole.id: whole.triggers}


def test_many_who_ask_at_once_are_all_answered(store, monkeypatch):
    monkeypatch.setattr(snapshot_module, "REVALIDATION_TIMEOUT_SECONDS", 60.0)
    uids = [store.webhook(f"source {i}").uid for i in range(40)]
    asked = (uids + ["wh_unknown"] * 10) * 20

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await asyncio.gather(*(snapshot.revalidate(uid) for uid in asked))

    answers = asyncio.run(scene())
    assert [answer.uid if answer else "wh_unknown" for answer in answers] == asked


def test_memory_is_bounded_and_what_was_let_go_is_read_again(store, monkeypatch):
    monkeypatch.setattr(snapshot_module, "WEBHOOKS_MAX", 3)
    uids = [store.webhook(f"source {i}").uid for i in range(5)]

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            for uid in uids:
                await snapshot.revalidate(uid)
            kept = [uid for uid in uids if snapshot.get(uid) is not None]
            return kept, [await snapshot.revalidate(uid) for uid in uids]

    kept, again = asyncio.run(scene())
    assert len(kept) == 3
    assert [live.uid for live in again] == uids


def test_a_database_fault_is_unavailable_until_it_recovers(store):
    uid = store.webhook().uid

    async def scene():
        async with snapshot_of(store) as (snapshot, failures):
            await read_ahead(snapshot, uid)
            await snapshot.revalidate(uid)
            with store.database.write() as tx:
                tx.run("ALTER TABLE webhooks RENAME TO gone")
            with pytest.raises(StoreUnavailable):
                await snapshot.revalidate(uid)
            with store.database.write() as tx:
                tx.run("ALTER TABLE gone RENAME TO webhooks")
            return await snapshot.revalidate(uid), [where for where, _ in failures]

    live, failed = asyncio.run(scene())
    assert (live.uid, failed) == (uid, ["snapshot"])


@contextlib.contextmanager
def nobody_reads(store: ManagedStore) -> Iterator[None]:
    """PostgreSQL answers no question about webhooks until the block ends."""
    with store.database.write() as tx:
        tx.run("LOCK TABLE webhooks IN ACCESS EXCLUSIVE MODE")
        yield


def test_who_has_waited_too_long_is_answered_although_the_database_hangs(store_on_postgres, monkeypatch):
    monkeypatch.setattr(snapshot_module, "REVALIDATION_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(snapshot_module, "CHECK_SECONDS", 0.05)
    uid = store_on_postgres.webhook().uid

    async def scene():
        async with snapshot_of(store_on_postgres) as (snapshot, failures):
            await read_ahead(snapshot, uid)
            await snapshot.revalidate(uid)
            with nobody_reads(store_on_postgres):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    await snapshot.revalidate(uid)
                waited = time.monotonic() - began
                assert failures == [], "the database has not answered yet"
            return waited, await confirmed_in_time(snapshot, uid)

    waited, live = asyncio.run(scene())
    assert waited >= 0.3
    assert live.uid == uid


def test_more_questions_than_memory_should_hold_are_unavailable_at_once(store_on_postgres, monkeypatch):
    monkeypatch.setattr(snapshot_module, "REVALIDATIONS_WAITING_MAX", 3)
    uid = store_on_postgres.webhook().uid

    async def scene():
        async with snapshot_of(store_on_postgres) as (snapshot, _):
            await snapshot.revalidate(uid)
            with nobody_reads(store_on_postgres):
                snapshot.revalidate(uid)
                while snapshot._revalidations:
                    await asyncio.sleep(0.01)
                asked = [snapshot.revalidate(uid) for _ in range(6)]
                at_once = [answer.done() for answer in asked]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            return at_once, [isinstance(answer, StoreUnavailable) for answer in answers]

    at_once, unavailable = asyncio.run(scene())
    assert at_once == unavailable == [False] * 4 + [True] * 2


def test_a_webhook_whose_secret_does_not_open_is_unavailable(store):
    broken, *whole = [store.webhook(name).uid for name in "abcde"]
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
            answers = (snapshot.revalidate(uid) for uid in (whole[0], broken, *whole[1:]))
            return await asyncio.gather(*answers, return_exceptions=True)

    first, failed, *rest = asyncio.run(scene())
    assert isinstance(failed, StoreUnavailable)
    assert [live.uid for live in (first, *rest)] == whole


def test_a_revalidated_snapshot_admits_what_the_store_expects(store):
    uid = store.webhook().uid
    for _ in range(3):
        store.management.webhooks.rotate(store.may, uid)

    async def scene():
        async with snapshot_of(store) as (snapshot, _):
            return await snapshot.revalidate(uid)

    live = asyncio.run(scene())
    webhook = store.management.webhooks.get(store.may, uid)
    [outcome] = store.admit(store.plan(webhook, revision=live.revision))
    assert type(outcome).__name__ == "Accepted"
