"""Rotation of the master key: every value stays readable, also while processes seal, and after an interruption."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hookmill import app
from hookmill.domain.alarm_destination import DestinationKind, WebhookTarget
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.domain.secret import SecretValue
from hookmill.management import Management
from hookmill.settings import Settings
from hookmill.store import alarm_destinations
from hookmill.store.database import Row
from hookmill.store.keys import binding, rotation
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.rotation import RotationResult
from hookmill.store.keys.sealing import KeyRing, MasterKey, WrongKey, as_text, new_master_key
from hookmill.store.schema import metadata
from tests.support.stores import longer_timeouts

NAMES = ("token", "other", "third")
ANSWER = b'{"secret": "shown once"}'


class SealedInstallation:
    """An installation with three secrets, and the commands and processes that use its master keys."""

    def __init__(self, url: str, data_dir: Path, **keys: str):
        self.settings = Settings(data_dir=data_dir, database_url=url, **keys)  # type: ignore[arg-type]
        self.store = app.open_store(self.settings, create=True)
        self.management = app.build_management(self.settings, self.store)
        self.management.factories.set_up()
        self.may: MayManage = self.management.access.operator("default")
        self.team: MayAdminister = self.management.access.operator_of_team()
        self.values = {name: self.management.webhooks.create(self.may, {"name": name}).reveal() for name in NAMES}

    @property
    def file(self) -> KeyFile:
        file = app.keys.key_file(self.settings)
        assert file is not None
        return file

    def with_keys(self, *keys: MasterKey) -> Settings:
        """The settings of a process whose keys are settings. The newest key is first."""
        newest, *previous = (as_text(key) for key in keys)
        key_settings = {"master_key": newest} | ({"master_key_previous": ",".join(previous)} if previous else {})
        return Settings(data_dir=self.settings.data_dir, database_url=self.settings.database_url, **key_settings)  # type: ignore[arg-type]

    @contextmanager
    def process(self, settings: Settings | None = None) -> Iterator[Management]:
        """Start another process, and stop it when the block ends."""
        store = app.open_store(settings or self.settings)
        try:
            yield app.build_management(settings or self.settings, store)
        finally:
            store.close()

    def rotate(
        self, settings: Settings | None = None, *, on_progress: Callable[[int, int], None] = lambda _rows, _total: None
    ) -> RotationResult:
        """Rotate the key as `hookmill keys rotate` does."""
        settings = settings or self.settings
        store = app.open_store(settings)
        try:
            return app.keys.rotate(
                settings,
                store.database,
                app.build_management(settings, store),
                confirm_new_key=lambda: None,
                report_progress=on_progress,
            )
        finally:
            store.close()

    def revealed(self, management: Management | None = None) -> dict[str, str]:
        """The secrets by the names of their webhooks, as the process of `management` reads them."""
        webhooks = (management or self.management).webhooks
        return {name: webhooks.secret_for_sending(self.may, name).reveal() for name in self.values}

    def rows(self, table: str = "secret_versions") -> Sequence[Row]:
        with self.store.database.read() as tx:
            return tx.all(f"SELECT * FROM {table} ORDER BY 1")

    def sealing_key_ids(self) -> set[str]:
        """The ids of all keys that have sealed a row."""
        return {row["key_id"] for table in rotation.SEALED_TABLES for row in self.rows(table)}

    def change(self, sql: str, **values: Any):
        with self.store.database.write() as tx:
            assert tx.run(sql, **values)

    def begin(self, new: MasterKey):
        """Begin a rotation, and interrupt it before it reseals a row."""
        self.file.write([new, *self.file.read()])
        planned = rotation.plan(self.in_use(), self.file.read())
        assert planned is not None
        self.management.master_key_rotations.begin(self.team, planned)

    def in_use(self) -> binding.KeysInUse:
        with self.store.database.read() as tx:
            in_use = binding.keys_in_use(tx)
        assert in_use is not None
        return in_use


@pytest.fixture
def installation(store_url, tmp_path):
    """An installation with a key file."""
    installation = SealedInstallation(store_url, tmp_path / "data")
    yield installation
    installation.store.close()


@pytest.fixture
def installation_with_key_setting(store_url, tmp_path):
    """An installation whose key is a setting, and this key."""
    key = new_master_key()
    installation = SealedInstallation(store_url, tmp_path / "data", master_key=as_text(key))
    yield installation, key
    installation.store.close()


def test_every_table_with_sealed_values_is_rotated():
    sealed = [table for table in metadata.tables.values() if "sealed" in table.columns]

    assert {table.name for table in sealed} == set(rotation.SEALED_TABLES)
    for table in sealed:
        assert [column.name for column in table.primary_key] == ["id"]
        assert "key_id" in table.columns


def test_rotation_seals_every_row_with_the_new_key_and_changes_no_value(installation):
    [old] = installation.file.read()
    with installation.management.one_transaction(installation.may):
        installation.management.idempotency.store(installation.may, "a request", b"d" * 32, ANSWER)

    webhooks = installation.rows("webhooks")

    result = installation.rotate()

    [new] = installation.file.read()
    assert new != old
    assert (result.key_id, result.has_begun_rotation) == (new.id, True)
    assert (result.resealed_rows, result.unreadable_rows) == (4, ())
    assert installation.sealing_key_ids() == {new.id}
    for table in rotation.SEALED_TABLES:
        for row in installation.rows(table):
            new.open(bytes(row["sealed"]), row["id"])
            with pytest.raises(WrongKey):
                old.open(bytes(row["sealed"]), row["id"])
    with installation.process() as management:
        assert installation.revealed(management) == installation.values
        assert management.idempotency.stored_response(installation.may, "a request", b"d" * 32) == ANSWER
    assert installation.rows("webhooks") == webhooks, "no revision was raised, so no process reads a webhook again"


def test_rotation_reseals_the_destinations_of_alarms(installation):
    url = "https://hooks.example.com/secret"
    created = installation.management.alarm_destinations.create(installation.may, DestinationKind.WEBHOOK, url=url)

    installation.rotate()

    [new] = installation.file.read()
    [row] = installation.rows("alarm_destinations")
    with installation.store.database.read() as tx:
        target = alarm_destinations.target(tx, created.destination.id, KeyRing([new]))
    assert row["key_id"] == new.id
    assert target == WebhookTarget(SecretValue(url), created.signing_secret)


def test_process_from_before_a_rotation_reads_and_seals_afterwards(installation):
    installation.rotate()

    assert installation.revealed() == installation.values
    installation.values["late"] = installation.management.webhooks.create(installation.may, {"name": "late"}).reveal()
    assert installation.sealing_key_ids() == {installation.file.read()[0].id}
    with installation.process() as management:
        assert installation.revealed(management) == installation.values


def test_rows_are_resealed_page_by_page(installation, monkeypatch):
    monkeypatch.setattr(rotation, "PAGE_ROWS", 2)
    reports: list[tuple[int, int]] = []

    result = installation.rotate(on_progress=lambda rows, total: reports.append((rows, total)))

    assert (reports, result.resealed_rows) == ([(2, 3), (1, 3)], 3)
    assert installation.revealed() == installation.values


def test_rotation_is_recorded_in_the_audit_log(installation):
    old_key_id = installation.in_use().sealing_id

    result = installation.rotate()

    [entry, *_] = installation.management.audit.of_team(installation.team)
    assert (entry.action, entry.subject_id, entry.details) == (
        "master_key.rotate",
        result.key_id,
        {"before": old_key_id},
    )


def test_secrets_created_during_a_rotation_are_sealed_with_the_new_key(installation):
    names = iter(range(100))

    def create(_rows, _total):
        name = f"meanwhile-{next(names)}"
        installation.values[name] = installation.management.webhooks.create(installation.may, {"name": name}).reveal()

    installation.rotate(on_progress=create)

    assert len(installation.values) > len(NAMES)
    assert installation.sealing_key_ids() == {installation.file.read()[0].id}
    with installation.process() as management:
        assert installation.revealed(management) == installation.values


@longer_timeouts()
def test_rotation_waits_for_a_transaction_that_seals_with_the_old_key(installation):
    has_sealed, may_commit = threading.Event(), threading.Event()
    values: dict[str, str] = {}

    def create():
        with installation.management.one_transaction(installation.may):
            values["slow"] = installation.management.webhooks.create(installation.may, {"name": "slow"}).reveal()
            has_sealed.set()
            may_commit.wait(1)

    creating_thread = threading.Thread(target=create)
    creating_thread.start()
    has_sealed.wait()
    threading.Timer(0.2, may_commit.set).start()
    installation.rotate()
    creating_thread.join()

    assert installation.sealing_key_ids() == {installation.file.read()[0].id}
    with installation.process() as management:
        assert management.webhooks.secret_for_sending(installation.may, "slow").reveal() == values["slow"]


@longer_timeouts()
def test_rotation_waits_for_a_sealing_transaction_without_a_team_lock(installation):
    with installation.store.database.write() as tx:
        binding.sealing_key(tx, installation.store.master_keys)
        rotating_thread = threading.Thread(target=installation.rotate)
        rotating_thread.start()
        rotating_thread.join(0.3)
        is_waiting = rotating_thread.is_alive()
    rotating_thread.join()

    assert is_waiting
    assert len(installation.file.read()) == 1


def test_row_that_changes_while_it_is_resealed_keeps_its_new_value(installation, monkeypatch):
    def store_response(digest, answer):
        with installation.management.one_transaction(installation.may):
            installation.management.idempotency.store(installation.may, "a request", digest, answer)

    store_response(b"1" * 32, b"the first answer")
    opening_key = rotation._opening_key

    def replace_and_open(row, planned):
        if not row["id"].startswith("sec_"):
            store_response(b"2" * 32, ANSWER)
        return opening_key(row, planned)

    monkeypatch.setattr(rotation, "_opening_key", replace_and_open)

    result = installation.rotate()

    assert result.resealed_rows == 3
    assert installation.management.idempotency.stored_response(installation.may, "a request", b"2" * 32) == ANSWER


# Wrong key ids and unreadable rows


def test_row_with_a_wrong_key_id_is_opened_with_the_right_key(installation):
    new = new_master_key()
    installation.file.write([new, *installation.file.read()])
    row = installation.rows()[0]
    installation.change("UPDATE secret_versions SET key_id = :new WHERE id = :id", new=new.id, id=row["id"])

    result = installation.rotate()

    assert result.resealed_rows == 3
    assert installation.revealed() == installation.values


def test_unreadable_rows_are_named_and_the_others_resealed(installation):
    first, second, _ = installation.rows()
    for row, other_row in ((first, second), (second, first)):
        installation.change(
            "UPDATE secret_versions SET sealed = :sealed WHERE id = :id", sealed=other_row["sealed"], id=row["id"]
        )
    swapped = [bytes(row["sealed"]) for row in installation.rows()[:2]]

    result = installation.rotate()

    assert result.unreadable_rows == tuple(f"secret_versions {row['id']}" for row in (first, second))
    assert result.resealed_rows == 1
    assert [bytes(row["sealed"]) for row in installation.rows()[:2]] == swapped
    assert installation.rows()[2]["key_id"] == result.key_id
    with installation.process() as management:
        assert management.webhooks.rotate(installation.may, NAMES[0]).reveal()


# Interrupted and simultaneous rotations


def test_all_processes_seal_with_the_new_key_during_a_rotation(installation):
    new = new_master_key()
    installation.begin(new)

    with installation.process() as management:
        assert installation.revealed(management) == installation.revealed() == installation.values
        management.webhooks.create(installation.may, {"name": "by a new process"})
    installation.management.webhooks.create(installation.may, {"name": "by an old process"})
    with installation.management.one_transaction(installation.may):
        installation.management.idempotency.store(installation.may, "a request", b"d" * 32, ANSWER)

    assert [row["key_id"] for row in installation.rows()].count(new.id) == 2
    assert [row["key_id"] for row in installation.rows("idempotency_keys")] == [new.id]
    assert installation.management.idempotency.stored_response(installation.may, "a request", b"d" * 32) == ANSWER


def test_start_without_the_old_key_is_refused_during_a_rotation(installation):
    [old] = installation.file.read()
    new = new_master_key()
    installation.begin(new)

    with pytest.raises(WrongKey, match=f"rotation of the master key is unfinished.*{old.id}"):
        app.open_store(installation.with_keys(new))
    app.open_store(installation.with_keys(old, new)).close()


def test_second_rotation_command_is_refused_during_the_first(installation):
    def rotate_again(_rows, _total):
        with pytest.raises(Conflict, match="Another command is changing the keys"):
            installation.rotate()

    result = installation.rotate(on_progress=rotate_again)

    assert result.resealed_rows == 3
    assert len(installation.file.retired_path.read_text().splitlines()) == 1


def test_rotation_that_another_host_supersedes_is_refused(installation, monkeypatch):
    monkeypatch.setattr(rotation, "PAGE_ROWS", 2)
    [old] = installation.file.read()
    first, second = new_master_key(), new_master_key()

    def rotate_on_another_host(_rows, _total):
        if installation.in_use().sealing_id == first.id:
            installation.rotate(installation.with_keys(second, first, old))

    with pytest.raises(Conflict, match="Another rotation is in progress"):
        installation.rotate(installation.with_keys(first, old), on_progress=rotate_on_another_host)

    with installation.process(installation.with_keys(second)) as management:
        assert installation.revealed(management) == installation.values
    assert installation.sealing_key_ids() == {second.id}


def test_hosts_with_different_new_keys_cannot_both_begin(installation):
    [old] = installation.file.read()
    plans = [rotation.plan(installation.in_use(), [new_master_key(), old]) for _ in range(2)]

    installation.management.master_key_rotations.begin(installation.team, plans[0])
    with pytest.raises(Conflict, match="Another rotation is in progress"):
        installation.management.master_key_rotations.begin(installation.team, plans[1])


# Several hosts, and keys that are settings


def test_added_key_is_used_from_the_next_rotation(installation):
    [old] = installation.file.read()
    new, _, is_new = app.keys.add(installation.settings, installation.store.database)

    assert is_new
    assert app.keys.add(installation.settings, installation.store.database) == (new, installation.file, False)
    assert installation.file.read() == [new, old]
    with installation.process() as management, management.one_transaction(installation.may):
        management.webhooks.create(installation.may, {"name": "sealed with the old key"})
        management.idempotency.store(installation.may, "a request", b"d" * 32, ANSWER)
    assert installation.sealing_key_ids() == {old.id}
    assert installation.rotate().key_id == new.id
    assert installation.file.read() == [new]


def test_host_with_its_own_key_file_follows_a_rotation(installation, tmp_path):
    app.keys.add(installation.settings, installation.store.database)
    other_data_dir = tmp_path / "another host"
    other_data_dir.mkdir()
    (other_data_dir / "master.key").write_bytes(installation.file.path.read_bytes())
    other_settings = Settings(data_dir=other_data_dir, database_url=installation.settings.database_url)

    with installation.process(other_settings) as management:
        installation.rotate()
        assert installation.revealed(management) == installation.values
        management.webhooks.create(installation.may, {"name": "of the other host"})
    with installation.process(other_settings) as management:
        assert installation.revealed(management) == installation.values
    assert installation.sealing_key_ids() == {installation.in_use().sealing_id}


def test_key_in_the_settings_is_rotated_to_the_newest_one(installation_with_key_setting):
    installation, old = installation_with_key_setting
    new = new_master_key()
    both = installation.with_keys(new, old)

    with installation.process(both) as restarted:
        # While only some processes have been restarted, each must read what any of them has sealed.
        installation.values["restarted"] = restarted.webhooks.create(installation.may, {"name": "restarted"}).reveal()
        assert installation.revealed() == installation.values
        result = installation.rotate(both)
        assert (result.key_id, result.resealed_rows) == (new.id, 4)
        assert installation.revealed(restarted) == installation.values

    with installation.process(installation.with_keys(new)) as management:
        assert installation.revealed(management) == installation.values
    assert not (installation.settings.data_dir / "master.key").exists()


def test_single_key_in_the_settings_cannot_be_rotated(installation_with_key_setting):
    installation, old = installation_with_key_setting

    with pytest.raises(Conflict, match="HOOKMILL_MASTER_KEY_PREVIOUS to the present key") as error:
        installation.rotate()

    assert as_text(old) not in str(error.value)
    with pytest.raises(Conflict, match="the master key is the setting HOOKMILL_MASTER_KEY"):
        app.keys.add(installation.settings, installation.store.database)


def test_blank_previous_key_is_ignored(installation_with_key_setting):
    installation, old = installation_with_key_setting

    settings = Settings(**dict(installation.settings) | {"master_key_previous": " , "})

    assert app.keys.key_ring(settings).ids == (old.id,)


def test_previous_key_without_a_present_one_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="master_key_previous: set master_key, too"):
        Settings(data_dir=tmp_path, master_key_previous=as_text(new_master_key()))  # type: ignore[arg-type]


# A start with the wrong key


def content_and_modes(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mode)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("cause", ["setting", "file", "no file", "no key in the file"])
def test_start_with_the_wrong_key_is_refused_and_changes_nothing(store_url, tmp_path, create, cause):
    data_dir = tmp_path / "data"
    if store_url.startswith("sqlite"):
        # As in an installation, the database is beside the key file.
        data_dir.mkdir()
        shutil.copy(store_url.removeprefix("sqlite:///"), data_dir)
        store_url = f"sqlite:///{data_dir / 'hookmill.db'}"
    installation = SealedInstallation(store_url, data_dir)
    rows = {table: installation.rows(table) for table in metadata.tables}
    installation.store.close()
    settings = installation.settings
    match cause:
        case "setting":
            settings = installation.with_keys(new_master_key())
        case "file":
            installation.file.write([new_master_key()])
        case "no file":
            installation.file.path.unlink()
        case _:
            installation.file.path.write_text("")
    files = content_and_modes(data_dir)

    with pytest.raises(Invalid) as error:
        app.open_store(settings, create=create)

    assert "key" in str(error.value)
    assert content_and_modes(data_dir) == files
    assert {table: installation.rows(table) for table in metadata.tables} == rows
    installation.store.close()


def test_start_on_another_host_without_a_key_creates_none(installation, tmp_path):
    other_settings = Settings(data_dir=tmp_path / "another host", database_url=installation.settings.database_url)

    with pytest.raises(Invalid, match=r"master\.key is missing"):
        app.open_store(other_settings, create=True)

    assert not other_settings.data_dir.exists()


def test_backup_from_before_a_rotation_opens_with_the_retired_key(installation):
    [old] = installation.file.read()
    installation.rotate()
    [new] = installation.file.read()
    # Restore the database, but not the key file.
    for row in installation.rows():
        sealed = old.reseal(bytes(row["sealed"]), row["id"], new)
        installation.change(
            "UPDATE secret_versions SET key_id = :key, sealed = :sealed WHERE id = :id",
            key=old.id,
            sealed=sealed,
            id=row["id"],
        )
    installation.change("UPDATE metadata SET value = :old", old=old.id.encode())

    with pytest.raises(WrongKey, match="A restored backup needs the key"):
        app.open_store(installation.settings)
    installation.file.write([new, *KeyFile(installation.file.retired_path).read()])

    with installation.process() as management:
        assert installation.revealed(management) == installation.values
    assert installation.rotate().key_id == new.id
