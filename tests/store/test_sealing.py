"""Encryption of secrets at rest. A ciphertext is bound to its row, and a database to its master key."""

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


def test_value_sealed_for_a_row_opens_for_this_row():
    assert KEY.open(KEY.seal(VALUE, "row.1"), "row.1") == VALUE


@pytest.mark.parametrize("value", ["", "x" * 4_096, "ünïcödé", "\n"])
def test_any_value_can_be_sealed(value):
    assert KEY.open(KEY.seal(SecretValue(value), "row.1"), "row.1").reveal() == value


def test_sealing_a_value_twice_gives_different_ciphertexts():
    assert len({KEY.seal(VALUE, "row.1") for _ in range(100)}) == 100


@pytest.mark.parametrize("row", ["row.2", "row.", "", "ROW.1"])
def test_ciphertext_moved_to_another_row_does_not_open(row):
    with pytest.raises(WrongKey, match="can't decrypt row"):
        KEY.open(KEY.seal(VALUE, "row.1"), row)


def test_ciphertext_does_not_open_with_another_key():
    with pytest.raises(WrongKey):
        MasterKey(b"l" * 32).open(KEY.seal(VALUE, "row.1"), "row.1")


def test_altered_or_truncated_ciphertext_does_not_open():
    sealed = KEY.seal(VALUE, "row.1")
    altered = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))]
    truncated = [sealed[:-1], sealed[:12], sealed[:5], b""]

    for ciphertext in (*altered, *truncated):
        with pytest.raises(WrongKey):
            KEY.open(ciphertext, "row.1")


def test_text_of_a_master_key_contains_only_its_fingerprint():
    assert KEY.id == MasterKey(b"k" * 32).id != MasterKey(b"l" * 32).id
    assert "kkkk" not in f"{KEY} {KEY!r} {KEY.id}"


def test_key_is_parsed_from_base64():
    assert master_key_from_text(f" {base64.b64encode(KEY.value).decode()}\n") == KEY


@pytest.mark.parametrize(
    "text",
    ["", "canary", base64.b64encode(b"canary").decode(), base64.b64encode(b"k" * 33).decode(), "canary" * 8, "é"],
)
def test_invalid_key_is_refused_without_repeating_its_text(text):
    with pytest.raises(Invalid, match="must be 32 bytes in base64") as error:
        master_key_from_text(text)

    assert "canary" not in str(error.value)


def test_resealed_value_opens_only_with_the_new_key():
    new = MasterKey(b"n" * 32)

    resealed = new.reseal(KEY.seal(VALUE, "row.1"), "row.1", KEY)

    assert new.open(resealed, "row.1") == VALUE
    with pytest.raises(WrongKey):
        KEY.open(resealed, "row.1")


def test_ciphertext_of_another_row_is_not_resealed():
    with pytest.raises(WrongKey):
        MasterKey(b"n" * 32).reseal(KEY.seal(VALUE, "row.1"), "row.2", KEY)


def test_key_ring_finds_keys_by_id_and_its_text_contains_no_key():
    ring = KeyRing([MasterKey(b"n" * 32), KEY])

    assert ring.newest == MasterKey(b"n" * 32)
    assert ring.named(KEY.id) == KEY
    assert "kkkk" not in f"{ring} {ring!r} {ring.ids}"


def test_missing_key_is_refused_by_its_id():
    with pytest.raises(WrongKey, match="Master key 0123456789abcdef is not available") as error:
        KeyRing([KEY]).named("0123456789abcdef")

    assert as_text(KEY) not in str(error.value)


def test_key_ring_loads_a_missing_key_and_keeps_the_others():
    new = MasterKey(b"n" * 32)
    source = [KEY]
    ring = KeyRing([KEY], lambda: source)

    source[:] = [new]

    assert ring.named(new.id) == new
    assert ring.named(KEY.id) == KEY


@pytest.mark.parametrize("error", [PermissionError("no"), Invalid("no key")])
def test_key_ring_with_an_unreadable_source_keeps_its_keys(error):
    def reread():
        raise error

    ring = KeyRing([KEY], reread)

    with pytest.raises(WrongKey):
        ring.named("0123456789abcdef")
    assert ring.named(KEY.id) == KEY


def test_database_is_bound_to_its_first_key_and_refuses_others(store):
    for _ in range(2):
        with store.database.write() as tx:
            binding.bind_master_key(tx, KeyRing([KEY]))

    with (
        pytest.raises(
            WrongKey,
            match=f"Another master key encrypts the secrets of this database. Master key {KEY.id} is not available",
        ),
        store.database.write() as tx,
    ):
        binding.bind_master_key(tx, KeyRing([MasterKey(b"l" * 32)]))


def test_simultaneous_first_starts_with_different_keys_bind_one_key(store):
    keys = [MasterKey(os.urandom(32)) for _ in range(8)]

    def start(key):
        try:
            with store.database.write() as tx:
                binding.bind_master_key(tx, KeyRing([key]))
        except WrongKey:
            return False
        return True

    with ThreadPoolExecutor(8) as starts:
        bound = list(starts.map(start, keys))

    assert bound.count(True) == 1
    assert [bytes(row["value"]).decode() for row in store.rows("metadata")] == [keys[bound.index(True)].id]


def test_rotated_secret_is_a_new_version_beside_the_old_ones(store):
    webhook = store.webhook()
    for _ in range(3):
        store.management.webhooks.rotate(store.may, webhook.uid)

    versions = sorted((row["version"], row["key_id"]) for row in store.rows("secret_versions"))

    assert versions == [(version, store.key.newest.id) for version in (1, 2, 3, 4)]


def test_missing_secret_version_raises_an_error(store):
    with pytest.raises(LookupError), store.database.read() as tx:
        secrets.reveal(tx, "sec_none.1", store.key)


# Webhooks of the ingress


def damage(store: ManagedStore, version_id: str):
    with store.database.write() as tx:
        assert tx.run("UPDATE secret_versions SET sealed = :altered WHERE id = :id", altered=bytes(60), id=version_id)


def test_unreadable_secret_does_not_block_other_webhooks(store):
    uids = [store.webhook(f"source {number}").uid for number in range(5)]
    damage(store, store.rows("secret_versions")[0]["id"])
    failures: list[str] = []

    async def scene():
        snapshot = Snapshot(
            store.database, store.key, report_failure=lambda _component, error: failures.append(str(error))
        )
        try:
            deadline = time.monotonic() + LONG_SECONDS
            while sum(snapshot.get(uid) is not None for uid in uids) < 4 and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            return [snapshot.get(uid) is not None for uid in uids]
        finally:
            await asyncio.to_thread(snapshot.close)

    are_cached = asyncio.run(scene())

    assert are_cached.count(True) == 4
    [failure] = failures
    assert "can't decrypt row" in failure


def test_webhook_with_an_unreadable_previous_secret_accepts_deliveries(store):
    signed = store.management.webhooks.create(
        store.may, {"name": "signed", "auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github"}, secret="the first"
    )
    store.management.webhooks.rotate(store.may, "signed", "the second")
    damage(store, min(row["id"] for row in store.rows("secret_versions")))

    with store.database.read() as tx:
        [webhook] = read_for_ingress(tx, [signed.webhook.uid], store.key)

    assert webhook.accepts_deliveries
    assert webhook.signature_rule is not None
    assert webhook.signature_rule.previous_keys == ()
