"""Secrets at rest: sealed to the row that they stand in, with a key that the database remembers by its fingerprint."""

import asyncio
import base64
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import SecretValue
from hookmill.domain.webhook import AuthMode
from hookmill.store import secrets
from hookmill.store.admission.snapshot import Snapshot, read_for_ingress
from hookmill.store.keys import binding
from hookmill.store.keys.sealing import KeyRing, MasterKey, WrongKey, as_text, master_key_from_text
from tests.store.managed_store import ManagedStore
from tests.support.waiting import LONG_SECONDS

KEY = MasterKey(b"k" * 32)
VALUE = SecretValue("the value ü")


def test_what_was_sealed_for_a_row_opens_there():
    assert KEY.open(KEY.seal(VALUE, "row.1"), "row.1") == VALUE


@pytest.mark.parametrize("value", ["", "x" * 4_096, "ünïcödé", "\n"])
def test_any_value_can_be_sealed(value):
    assert KEY.open(KEY.seal(SecretValue(value), "row.1"), "row.1").reveal() == value


def test_no_two_seals_are_alike():
    assert len({KEY.seal(VALUE, "row.1") for _ in range(100)}) == 100


def test_a_seal_shows_nothing_of_the_value():
    assert b"the value" not in KEY.seal(VALUE, "row.1")


@pytest.mark.parametrize("row", ["row.2", "row.", "", "ROW.1"])
def test_what_was_moved_to_another_row_does_not_open(row):
    with pytest.raises(WrongKey, match="can't open row"):
        KEY.open(KEY.seal(VALUE, "row.1"), row)


def test_another_key_opens_nothing():
    with pytest.raises(WrongKey):
        MasterKey(b"l" * 32).open(KEY.seal(VALUE, "row.1"), "row.1")


def test_a_seal_that_was_altered_in_any_byte_or_cut_does_not_open():
    sealed = KEY.seal(VALUE, "row.1")
    altered = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))]
    cut = [sealed[:-1], sealed[:12], sealed[:5], b""]

    for each in (*altered, *cut):
        with pytest.raises(WrongKey):
            KEY.open(each, "row.1")


def test_a_master_key_shows_a_fingerprint_and_nothing_of_itself():
    assert KEY.id == MasterKey(b"k" * 32).id != MasterKey(b"l" * 32).id
    assert "kkkk" not in f"{KEY} {KEY!r} {KEY.id}"


def test_a_key_is_written_in_base64():
    assert master_key_from_text(f" {base64.b64encode(KEY.value).decode()}\n") == KEY


@pytest.mark.parametrize(
    "text",
    ["", "canary", base64.b64encode(b"canary").decode(), base64.b64encode(b"k" * 33).decode(), "canary" * 8, "é"],
)
def test_what_is_no_key_is_refused_and_not_repeated(text):
    with pytest.raises(Invalid, match="must be 32 bytes in base64") as refused:
        master_key_from_text(text)

    assert "canary" not in str(refused.value)


def test_what_is_sealed_again_opens_with_the_new_key_alone():
    new = MasterKey(b"n" * 32)

    again = new.reseal(KEY.seal(VALUE, "row.1"), "row.1", KEY)

    assert new.open(again, "row.1") == VALUE
    with pytest.raises(WrongKey):
        KEY.open(again, "row.1")


def test_what_was_moved_is_not_sealed_again():
    with pytest.raises(WrongKey):
        MasterKey(b"n" * 32).reseal(KEY.seal(VALUE, "row.1"), "row.2", KEY)


def test_a_ring_knows_its_keys_by_their_ids_and_shows_nothing_of_them():
    ring = KeyRing([MasterKey(b"n" * 32), KEY])

    assert ring.newest == MasterKey(b"n" * 32)
    assert ring.named(KEY.id) == KEY
    assert "kkkk" not in f"{ring} {ring!r} {ring.ids}"


def test_a_key_that_is_missing_is_named_and_no_other_is_taken_for_it():
    for keys in (KEY, KeyRing([KEY])):
        with pytest.raises(WrongKey, match="Master key 0123456789abcdef is not available") as missing:
            keys.named("0123456789abcdef")

        assert as_text(KEY) not in str(missing.value)


def test_a_key_ring_loads_a_missing_key_and_forgets_none():
    new = MasterKey(b"n" * 32)
    written = [KEY]
    ring = KeyRing([KEY], lambda: written)

    written[:] = [new]

    assert ring.named(new.id) == new
    assert ring.named(KEY.id) == KEY


@pytest.mark.parametrize("trouble", [PermissionError("no"), Invalid("no key")])
def test_a_ring_whose_source_can_not_be_read_goes_on_with_what_it_has(trouble):
    def reread():
        raise trouble

    ring = KeyRing([KEY], reread)

    with pytest.raises(WrongKey):
        ring.named("0123456789abcdef")
    assert ring.named(KEY.id) == KEY


def test_a_database_remembers_the_first_key_and_refuses_any_other(store):
    for key in (KEY, KEY):
        with store.database.write() as tx:
            binding.bind_master_key(tx, key)

    with (
        pytest.raises(
            WrongKey,
            match=f"Another master key seals the secrets of this database. Master key {KEY.id} is not available",
        ),
        store.database.write() as tx,
    ):
        binding.bind_master_key(tx, MasterKey(b"l" * 32))


def test_of_first_starts_at_once_with_different_keys_one_key_stays(store):
    keys = [MasterKey(os.urandom(32)) for _ in range(8)]

    def start(key: MasterKey) -> bool:
        try:
            with store.database.write() as tx:
                binding.bind_master_key(tx, key)
        except WrongKey:
            return False
        return True

    with ThreadPoolExecutor(8) as starts:
        bound = list(starts.map(start, keys))

    assert bound.count(True) == 1
    assert [bytes(row["value"]).decode() for row in store.rows("facts")] == [keys[bound.index(True)].id]


def test_sealed_secrets_that_were_swapped_between_rows_do_not_open(store):
    for name in ("one", "other"):
        store.management.webhooks.create(store.may, name, secret=f"the secret of {name}")
    first, second = store.rows("secret_versions")
    with store.database.write() as tx:
        for to, sealed in ((first["id"], second["sealed"]), (second["id"], first["sealed"])):
            tx.run("UPDATE secret_versions SET sealed = :sealed WHERE id = :id", id=to, sealed=bytes(sealed))

    for name in ("one", "other"):
        with pytest.raises(WrongKey):
            store.management.webhooks.secret_for_sending(store.may, name)


def test_a_new_value_is_a_new_version_and_the_old_ones_stay(store):
    webhook = store.webhook()
    for _ in range(3):
        store.management.webhooks.rotate(store.may, webhook.uid)

    versions = sorted((row["version"], row["key_id"]) for row in store.rows("secret_versions"))

    assert versions == [(version, store.key.id) for version in (1, 2, 3, 4)]


def test_a_version_that_is_not_there_is_not_made_up(store):
    with pytest.raises(LookupError), store.database.read() as tx:
        secrets.reveal(tx, "sec_none.1", store.key)


# At the ingress


def damage(store: ManagedStore, version_id: str) -> None:
    with store.database.write() as tx:
        assert tx.run("UPDATE secret_versions SET sealed = :altered WHERE id = :id", altered=bytes(60), id=version_id)


def test_a_secret_that_does_not_open_blocks_no_other_webhook(store):
    uids = [store.webhook(f"source {number}").uid for number in range(5)]
    damage(store, store.rows("secret_versions")[0]["id"])
    told: list[str] = []

    async def scene() -> list[bool]:
        snapshot = Snapshot(store.database, store.key, report_failure=lambda _where, error: told.append(str(error)))
        try:
            deadline = time.monotonic() + LONG_SECONDS
            while sum(snapshot.get(uid) is not None for uid in uids) < 4 and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            return [snapshot.get(uid) is not None for uid in uids]
        finally:
            await asyncio.to_thread(snapshot.close)

    known = asyncio.run(scene())

    assert known.count(True) == 4
    assert len(told) == 1
    assert "can't open row" in told[0]


def test_an_earlier_secret_that_does_not_open_closes_nothing(store):
    made = store.management.webhooks.create(
        store.may, "signed", auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret="the first"
    )
    store.management.webhooks.rotate(store.may, "signed", "the second")
    damage(store, min(row["id"] for row in store.rows("secret_versions")))

    with store.database.read() as tx:
        [live] = read_for_ingress(tx, [made.webhook.uid], store.key)

    assert live.accepts_deliveries
    assert live.signature_rule is not None
    assert live.signature_rule.previous_keys == ()
