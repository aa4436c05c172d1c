"""The master key is replaced: everything sealed comes along, whoever seals or reads meanwhile, and nothing that was
sealed is ever without a key."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hookmill import app
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import Management
from hookmill.settings import Settings
from hookmill.store.database import Row, open_database
from hookmill.store.keys import binding, rotation
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.rotation import RotationResult
from hookmill.store.keys.sealing import MasterKey, WrongKey, as_text, new_master_key
from hookmill.store.migrate import migrate
from hookmill.store.schema import metadata

NAMES = ("token", "other", "third")
ANSWER = b'{"secret": "shown once"}'


class Vault:
    """An installation with a few secrets, and what its commands and processes do with its keys."""

    def __init__(self, url: str, data_dir: Path, **keys: str) -> None:
        self.settings = Settings(data_dir=data_dir, database_url=url, **keys)  # type: ignore[arg-type]
        self.store = app.open_store(self.settings, create=True)
        self.management = app.build_management(self.settings, self.store)
        self.management.factories.set_up()
        self.may: MayManage = self.management.access.operator("default")
        self.team: MayAdminister = self.management.access.operator_of_team()
        self.values = {name: self.management.webhooks.create(self.may, name).reveal() for name in NAMES}

    @property
    def file(self) -> KeyFile:
        file = app.keys.key_file(self.settings)
        assert file is not None
        return file

    def with_keys(self, *keys: MasterKey) -> Settings:
        """The settings of a process that was given these keys, the newest first."""
        newest, *others = (as_text(key) for key in keys)
        given = {"master_key": newest} | ({"master_key_previous": ",".join(others)} if others else {})
        return Settings(data_dir=self.settings.data_dir, database_url=self.settings.database_url, **given)  # type: ignore[arg-type]

    @contextmanager
    def process(self, settings: Settings | None = None) -> Iterator[Management]:
        """Another process, from its start."""
        store = app.open_store(settings or self.settings)
        try:
            yield app.build_management(settings or self.settings, store)
        finally:
            store.close()

    def rotate(
        self, settings: Settings | None = None, *, seen: Callable[[int, int], None] = lambda _rows, _total: None
    ) -> RotationResult:
        """The command."""
        settings = settings or self.settings
        store = app.open_store(settings)
        try:
            return app.keys.rotate(
                settings,
                store.database,
                app.build_management(settings, store),
                confirm_new_key=lambda: None,
                report_progress=seen,
            )
        finally:
            store.close()

    def revealed(self, management: Management | None = None) -> dict[str, str]:
        webhooks = (management or self.management).webhooks
        return {name: webhooks.secret_for_sending(self.may, name).reveal() for name in self.values}

    def rows(self, table: str = "secret_versions") -> Sequence[Row]:
        with self.store.database.read() as tx:
            return tx.all(f"SELECT * FROM {table} ORDER BY 1")

    def sealed_with(self) -> set[str]:
        return {row["key_id"] for table in rotation.SEALED_TABLES for row in self.rows(table)}

    def change(self, sql: str, **values: Any) -> None:
        with self.store.database.write() as tx:
            assert tx.run(sql, **values)

    def begin(self, new: MasterKey) -> None:
        """As far as a rotation comes that is killed before it has sealed anything."""
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
def vault(store_url: str, tmp_path: Path) -> Iterator[Vault]:
    vault = Vault(store_url, tmp_path / "data")
    yield vault
    vault.store.close()


@pytest.fixture
def with_settings(store_url: str, tmp_path: Path) -> Iterator[tuple[Vault, MasterKey]]:
    """One whose key is a setting, and the key."""
    key = new_master_key()
    vault = Vault(store_url, tmp_path / "data", master_key=as_text(key))
    yield vault, key
    vault.store.close()


def test_every_table_with_something_sealed_is_rotated():
    sealed = [table for table in metadata.tables.values() if "sealed" in table.columns]

    assert {table.name for table in sealed} == set(rotation.SEALED_TABLES)
    for table in sealed:
        assert [column.name for column in table.primary_key] == ["id"]
        assert "key_id" in table.columns


def test_afterwards_everything_is_sealed_with_the_new_key_alone(vault):
    [old] = vault.file.read()
    with vault.management.one_transaction(vault.may):
        vault.management.idempotency.store(vault.may, "a request", b"d" * 32, ANSWER)

    rotated = vault.rotate()

    [new] = vault.file.read()
    assert new != old
    assert (rotated.key_id, rotated.has_begun_rotation) == (new.id, True)
    assert (rotated.resealed_rows, rotated.unreadable_rows) == (4, ())
    assert vault.sealed_with() == {new.id}
    for table in rotation.SEALED_TABLES:
        for row in vault.rows(table):
            new.open(bytes(row["sealed"]), row["id"])
            with pytest.raises(WrongKey):
                old.open(bytes(row["sealed"]), row["id"])


def test_afterwards_every_value_is_what_it_was(vault):
    with vault.management.one_transaction(vault.may):
        vault.management.idempotency.store(vault.may, "a request", b"d" * 32, ANSWER)
    webhooks = vault.rows("webhooks")

    vault.rotate()

    with vault.process() as management:
        assert vault.revealed(management) == vault.values
        assert management.idempotency.stored_response(vault.may, "a request", b"d" * 32) == ANSWER
    assert vault.rows("webhooks") == webhooks, "no revision was raised: nobody has to read anything again"


def test_a_process_from_before_reads_and_seals_with_both_keys(vault):
    vault.rotate()

    assert vault.revealed() == vault.values
    vault.values["late"] = vault.management.webhooks.create(vault.may, "late").reveal()
    assert vault.sealed_with() == {vault.file.read()[0].id}
    with vault.process() as management:
        assert vault.revealed(management) == vault.values


def test_it_can_be_done_again_and_again(vault):
    for _ in range(3):
        vault.rotate()

    with vault.process() as management:
        assert vault.revealed(management) == vault.values
    assert len(vault.file.read()) == 1
    assert len(vault.file.retired_path.read_text().splitlines()) == 3


def test_progress_comes_to_the_number_of_rows(vault):
    heard: list[tuple[int, int]] = []

    vault.rotate(seen=lambda rows, total: heard.append((rows, total)))

    assert sum(rows for rows, _ in heard) == 3
    assert {total for _, total in heard} == {3}


def test_many_rows_are_sealed_a_few_at_a_time(vault, monkeypatch):
    monkeypatch.setattr(rotation, "PAGE_ROWS", 2)
    heard: list[int] = []

    rotated = vault.rotate(seen=lambda rows, _total: heard.append(rows))

    assert (heard, rotated.resealed_rows) == ([2, 1], 3)
    assert vault.revealed() == vault.values


def test_it_is_written_down_in_the_audit_log_once(vault):
    before = vault.in_use().sealing_id
    rotated = vault.rotate()

    [entry, *_] = vault.management.audit.of_team(vault.team)
    assert (entry.action, entry.subject_id, entry.details) == (
        "master_key.rotate",
        rotated.key_id,
        {"before": before},
    )


def test_what_others_seal_while_it_goes_on_is_sealed_with_the_new_key(vault):
    names = iter(range(100))

    def create(_rows: int, _total: int) -> None:
        name = f"meanwhile-{next(names)}"
        vault.values[name] = vault.management.webhooks.create(vault.may, name).reveal()

    vault.rotate(seen=create)

    assert len(vault.values) > len(NAMES)
    assert vault.sealed_with() == {vault.file.read()[0].id}
    with vault.process() as management:
        assert vault.revealed(management) == vault.values


def test_who_has_begun_to_seal_with_the_old_key_is_waited_for(vault):
    has_sealed, may_commit = threading.Event(), threading.Event()
    made: dict[str, str] = {}

    def create() -> None:
        with vault.management.one_transaction(vault.may):
            made["slow"] = vault.management.webhooks.create(vault.may, "slow").reveal()
            has_sealed.set()
            may_commit.wait(1)

    creating = threading.Thread(target=create)
    creating.start()
    has_sealed.wait()
    threading.Timer(0.2, may_commit.set).start()
    vault.rotate()
    creating.join()

    assert vault.sealed_with() == {vault.file.read()[0].id}
    with vault.process() as management:
        assert management.webhooks.secret_for_sending(vault.may, "slow").reveal() == made["slow"]


def test_a_sealing_that_holds_no_team_is_waited_for_too(vault):
    with vault.store.database.write() as tx:
        binding.sealing_key(tx, vault.store.master_keys)
        rotating = threading.Thread(target=vault.rotate)
        rotating.start()
        rotating.join(0.3)
        waits = rotating.is_alive()

    rotating.join()
    assert waits
    assert len(vault.file.read()) == 1


def test_what_is_replaced_while_it_is_sealed_again_stays_replaced(vault, monkeypatch):
    def keep(digest: bytes, answer: bytes) -> None:
        with vault.management.one_transaction(vault.may):
            vault.management.idempotency.store(vault.may, "a request", digest, answer)

    keep(b"1" * 32, b"the first answer")
    opening_key = rotation._opening_key

    def opening_what_is_replaced(row: Row, planned: rotation.RotationPlan) -> MasterKey | None:
        if not row["id"].startswith("sec_"):
            keep(b"2" * 32, ANSWER)
        return opening_key(row, planned)

    monkeypatch.setattr(rotation, "_opening_key", opening_what_is_replaced)
    rotated = vault.rotate()

    assert rotated.resealed_rows == 3
    assert vault.management.idempotency.stored_response(vault.may, "a request", b"2" * 32) == ANSWER


# What is there is not always what it says


def test_a_row_that_names_the_wrong_key_is_opened_with_the_right_one(vault):
    new = new_master_key()
    vault.file.write([new, *vault.file.read()])
    row = vault.rows()[0]
    vault.change("UPDATE secret_versions SET key_id = :new WHERE id = :id", new=new.id, id=row["id"])

    rotated = vault.rotate()

    assert rotated.resealed_rows == 3
    assert vault.revealed() == vault.values


def test_rows_that_do_not_open_are_named_and_the_others_rotated(vault):
    first, second, _ = vault.rows()
    for to, sealed in ((first, second), (second, first)):
        vault.change("UPDATE secret_versions SET sealed = :sealed WHERE id = :id", sealed=sealed["sealed"], id=to["id"])
    swapped = [bytes(row["sealed"]) for row in vault.rows()[:2]]

    rotated = vault.rotate()

    assert rotated.unreadable_rows == tuple(f"secret_versions {row['id']}" for row in (first, second))
    assert rotated.resealed_rows == 1
    assert [bytes(row["sealed"]) for row in vault.rows()[:2]] == swapped
    assert vault.rows()[2]["key_id"] == rotated.key_id
    with vault.process() as management:
        assert management.webhooks.rotate(vault.may, NAMES[0]).reveal()


# Cut off, and begun again


def test_an_interrupted_rotation_is_finished_with_its_own_key(vault):
    new = new_master_key()
    vault.begin(new)

    rotated = vault.rotate()

    assert (rotated.key_id, rotated.has_begun_rotation, rotated.resealed_rows) == (new.id, False, 3)
    assert vault.file.read() == [new]
    assert vault.sealed_with() == {new.id}
    assert vault.in_use() == binding.KeysInUse(new.id, ())


def test_a_rotation_interrupted_at_its_end_removes_the_old_key(vault):
    [old] = vault.file.read()
    vault.rotate()
    [new] = vault.file.read()
    vault.file.write([new, old])

    rotated = vault.rotate()

    assert (rotated.key_id, rotated.has_begun_rotation, rotated.retired_key_ids) == (new.id, False, (old.id,))
    assert vault.file.read() == [new]


def test_in_the_middle_of_one_everybody_reads_and_seals_with_the_new_key(vault):
    new = new_master_key()
    vault.begin(new)

    with vault.process() as management:
        assert vault.revealed(management) == vault.revealed() == vault.values
        management.webhooks.create(vault.may, "by a new process")
    vault.management.webhooks.create(vault.may, "by an old process")
    with vault.management.one_transaction(vault.may):
        vault.management.idempotency.store(vault.may, "a request", b"d" * 32, ANSWER)

    assert [row["key_id"] for row in vault.rows()].count(new.id) == 2
    assert [row["key_id"] for row in vault.rows("idempotency_keys")] == [new.id]
    assert vault.management.idempotency.stored_response(vault.may, "a request", b"d" * 32) == ANSWER


def test_in_the_middle_of_one_a_start_without_the_old_key_is_refused(vault):
    [old] = vault.file.read()
    new = new_master_key()
    vault.begin(new)

    with pytest.raises(WrongKey, match=f"rotation of the master key is unfinished.*{old.id}"):
        app.open_store(vault.with_keys(new))
    app.open_store(vault.with_keys(old, new)).close()


def test_of_two_commands_at_once_one_rotates(vault):
    def rotate_too(_rows: int, _total: int) -> None:
        with pytest.raises(Conflict, match="Another command is changing the keys"):
            vault.rotate()

    rotated = vault.rotate(seen=rotate_too)

    assert rotated.resealed_rows == 3
    assert len(vault.file.retired_path.read_text().splitlines()) == 1


def test_a_rotation_overtaken_by_another_machine_harms_nothing(vault, monkeypatch):
    monkeypatch.setattr(rotation, "PAGE_ROWS", 2)
    [old] = vault.file.read()
    mine, theirs = new_master_key(), new_master_key()
    my_settings, their_settings = vault.with_keys(mine, old), vault.with_keys(theirs, mine, old)

    def overtake(_rows: int, _total: int) -> None:
        if vault.in_use().sealing_id == mine.id:
            vault.rotate(their_settings)

    with pytest.raises(Conflict, match="Another rotation is in progress"):
        vault.rotate(my_settings, seen=overtake)

    with vault.process(vault.with_keys(theirs)) as management:
        assert vault.revealed(management) == vault.values
    assert vault.sealed_with() == {theirs.id}


def test_two_machines_that_begin_at_once_with_different_keys_do_not_both(vault):
    [old] = vault.file.read()
    plans = [rotation.plan(vault.in_use(), [new_master_key(), old]) for _ in range(2)]

    vault.management.master_key_rotations.begin(vault.team, plans[0])
    with pytest.raises(Conflict, match="Another rotation is in progress"):
        vault.management.master_key_rotations.begin(vault.team, plans[1])


# Several machines, and keys that are settings


def test_a_key_that_was_added_waits_for_the_next_rotation(vault):
    [old] = vault.file.read()
    new, _, is_new = app.keys.add(vault.settings, vault.store.database)

    assert is_new
    assert app.keys.add(vault.settings, vault.store.database) == (new, vault.file, False)
    assert vault.file.read() == [new, old]
    with vault.process() as management, management.one_transaction(vault.may):
        management.webhooks.create(vault.may, "still with the old")
        management.idempotency.store(vault.may, "a request", b"d" * 32, ANSWER)
    assert vault.sealed_with() == {old.id}
    assert vault.rotate().key_id == new.id
    assert vault.file.read() == [new]


def test_a_machine_with_its_own_key_file_follows_the_rotation(vault, tmp_path):
    app.keys.add(vault.settings, vault.store.database)
    there = tmp_path / "another machine"
    there.mkdir()
    (there / "master.key").write_bytes(vault.file.path.read_bytes())
    elsewhere = Settings(data_dir=there, database_url=vault.settings.database_url)

    with vault.process(elsewhere) as management:
        vault.rotate()
        assert vault.revealed(management) == vault.values
        management.webhooks.create(vault.may, "from there")
    with vault.process(elsewhere) as management:
        assert vault.revealed(management) == vault.values
    assert vault.sealed_with() == {vault.in_use().sealing_id}


def test_a_key_in_the_settings_is_rotated_to_the_one_before_it(with_settings):
    vault, old = with_settings
    new = new_master_key()
    both = vault.with_keys(new, old)

    with vault.process(both) as restarted:
        # Some processes were restarted, others not: both must be able to read what either has sealed.
        vault.values["restarted"] = restarted.webhooks.create(vault.may, "restarted").reveal()
        assert vault.revealed() == vault.values
        rotated = vault.rotate(both)
        assert (rotated.key_id, rotated.resealed_rows) == (new.id, 4)
        assert vault.revealed(restarted) == vault.values

    with vault.process(vault.with_keys(new)) as management:
        assert vault.revealed(management) == vault.values
    assert not (vault.settings.data_dir / "master.key").exists()


def test_a_single_key_in_the_settings_cannot_be_rotated(with_settings):
    vault, old = with_settings

    with pytest.raises(Conflict, match="HOOKMILL_MASTER_KEY_PREVIOUS to the present key") as refused:
        vault.rotate()

    assert as_text(old) not in str(refused.value)
    with pytest.raises(Conflict, match="the master key is the setting HOOKMILL_MASTER_KEY"):
        app.keys.add(vault.settings, vault.store.database)


def test_an_earlier_key_that_was_emptied_is_none(with_settings):
    vault, old = with_settings

    settings = Settings(**dict(vault.settings) | {"master_key_previous": " , "})

    assert app.keys.key_ring(settings).ids == (old.id,)


def test_an_earlier_key_without_a_present_one_is_no_usable_setting(tmp_path):
    with pytest.raises(ValueError, match="master_key_previous: set master_key, too"):
        Settings(data_dir=tmp_path, master_key_previous=as_text(new_master_key()))  # type: ignore[arg-type]


# A start with the wrong key


def everything_in(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mode)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("wrong", ["setting", "file", "no file", "no key in the file"])
def test_a_start_with_the_wrong_key_says_so_and_touches_nothing(store_url, tmp_path, create: bool, wrong: str):
    data_dir = tmp_path / "data"
    if store_url.startswith("sqlite"):
        # Beside the keys, as it is outside the tests.
        data_dir.mkdir()
        shutil.copy(store_url.removeprefix("sqlite:///"), data_dir)
        store_url = f"sqlite:///{data_dir / 'hookmill.db'}"
    vault = Vault(store_url, data_dir)
    rows = {table: vault.rows(table) for table in metadata.tables}
    vault.store.close()
    settings = vault.settings
    match wrong:
        case "setting":
            settings = vault.with_keys(new_master_key())
        case "file":
            vault.file.write([new_master_key()])
        case "no file":
            vault.file.path.unlink()
        case _:
            vault.file.path.write_text("")
    files = everything_in(data_dir)

    with pytest.raises(Invalid) as refused:
        app.open_store(settings, create=create)

    assert "key" in str(refused.value)
    assert everything_in(data_dir) == files
    assert {table: vault.rows(table) for table in metadata.tables} == rows
    vault.store.close()


def test_a_start_with_the_wrong_key_migrates_nothing(empty_database_url, tmp_path):
    with open_database(empty_database_url) as database:
        migrate(database, to="0002")
        with database.write() as tx:
            binding.bind_master_key(tx, new_master_key())
    settings = Settings(data_dir=tmp_path, database_url=empty_database_url, master_key=as_text(new_master_key()))  # type: ignore[arg-type]

    with pytest.raises(WrongKey, match="Nothing was changed"):
        app.open_store(settings, create=True)

    with open_database(empty_database_url) as database, database.read() as tx:
        assert [row["version_num"] for row in tx.all("SELECT version_num FROM alembic_version")] == ["0002"]


def test_a_start_on_another_machine_without_a_key_makes_none(vault, tmp_path):
    elsewhere = Settings(data_dir=tmp_path / "elsewhere", database_url=vault.settings.database_url)

    with pytest.raises(Invalid, match=r"master\.key is missing"):
        app.open_store(elsewhere, create=True)

    assert not (tmp_path / "elsewhere").exists()


def test_a_backup_from_before_opens_once_its_key_is_back(vault):
    [old] = vault.file.read()
    vault.rotate()
    [new] = vault.file.read()
    # The database alone goes back to what it was.
    for row in vault.rows():
        again = old.reseal(bytes(row["sealed"]), row["id"], new)
        vault.change(
            "UPDATE secret_versions SET key_id = :key, sealed = :sealed WHERE id = :id",
            key=old.id,
            sealed=again,
            id=row["id"],
        )
    vault.change("UPDATE facts SET value = :old", old=old.id.encode())

    with pytest.raises(WrongKey, match="A restored backup needs the key"):
        app.open_store(vault.settings)
    vault.file.write([new, *KeyFile(vault.file.retired_path).read()])

    with vault.process() as management:
        assert vault.revealed(management) == vault.values
    assert vault.rotate().key_id == new.id
