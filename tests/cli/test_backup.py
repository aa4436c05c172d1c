"""`hookmill backup` and `restore`: everything of an installation, or nothing, and nothing that was cut or altered."""

import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import psycopg
import pytest

from hookmill.cli.service import restoration_lines
from hookmill.domain.ids import run_key
from hookmill.domain.run import RunState
from hookmill.store.backup.container import MAGIC, BackupReader, BackupWriter
from hookmill.store.backup.records import BackupSnapshot, Header, PackageFile, Record, Rows
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.sealing import new_master_key
from hookmill.store.restored import Restoration
from hookmill.store.revision import revisions
from hookmill.store.schema import metadata
from tests.cli.test_move import lock_file
from tests.support.counts import are_full, count
from tests.support.odd_rows import Rows as TableRows
from tests.support.odd_rows import fill, relations, rows_of_postgres, rows_of_sqlite

CUTS = count(12, usually=6)
ALTERATIONS = count(60, usually=30)
PASSPHRASE = b"correct horse battery staple\n"

pytestmark = pytest.mark.usefixtures("log")


@pytest.fixture
def into(data_dir, hookmill, monkeypatch, tmp_path):
    """`restore` into another data directory, with the same master key unless `key` is false, and a database's URL."""

    def restore(
        name: str,
        backup: str,
        *options: str,
        url: str | None = None,
        key: bool = True,
        stdin: bytes = b"",
        exit_code: int = 0,
    ):
        monkeypatch.setenv("HOOKMILL_DATA_DIR", str(tmp_path / name))
        if url is not None:
            monkeypatch.setenv("HOOKMILL_DATABASE_URL", url)
        else:
            monkeypatch.delenv("HOOKMILL_DATABASE_URL", raising=False)
        if key and not (tmp_path / name).exists():
            (tmp_path / name).mkdir(mode=0o700)
            shutil.copy(data_dir / "master.key", tmp_path / name)
        return hookmill("restore", backup, *options, stdin=stdin, exit_code=exit_code)

    return restore


def rows_without_marks(rows: TableRows) -> TableRows:
    """The rows that a restore must not change."""
    restored = {name: list(table) for name, table in rows.items()}
    for excluded in ("executors", "sessions", "sign_in_links", "removed_objects"):
        del restored[excluded]
    restored["metadata"] = [row for row in restored["metadata"] if row[0] != "restored"]
    restored["audit_log"] = [row for row in restored["audit_log"] if "installation.restore" not in row]
    return restored


def test_every_row_survives_the_way_through_both_databases_and_back(
    webhook, log, hookmill, into, postgres_url, postgres_store, tmp_path
):
    fill(log.path)
    before = rows_without_marks(rows_of_sqlite(log.path))
    assert [name for name, rows in before.items() if not rows] == []

    hookmill("backup", "1")
    into("on-sqlite", "1")
    assert rows_without_marks(rows_of_sqlite(tmp_path / "on-sqlite" / "hookmill.db")) == before
    hookmill("backup", "2")
    into("on-postgres", "2", url=postgres_url)
    assert rows_without_marks(rows_of_postgres(postgres_url)) == before
    hookmill("backup", "3")
    into("on-postgres-again", "3", url=postgres_store)
    assert rows_without_marks(rows_of_postgres(postgres_store)) == before
    hookmill("backup", "4")
    into("on-sqlite-again", "4")
    assert rows_without_marks(rows_of_sqlite(tmp_path / "on-sqlite-again" / "hookmill.db")) == before


def test_restored_installation_continues_the_numbers_of_webhooks(webhook, log, hookmill, into, postgres_url):
    # SQLite never generates the number of a deleted row again.
    log.execute("UPDATE sqlite_sequence SET seq = 41 WHERE name = 'webhooks'")
    hookmill("backup", "1")

    for name, url in (("on-sqlite", None), ("on-postgres", postgres_url)):
        into(name, "1", url=url)
        hookmill("webhook", "create", "later")
        hookmill("backup", f"{name}.hookmill")
        (numbers,) = [
            [row[0] for row in record.rows]
            for record in records_of(Path(f"{name}.hookmill"))
            if isinstance(record, Rows) and record.table == "webhooks"
        ]
        assert numbers == [1, 42]


def test_a_backup_and_a_restore_say_what_they_did_and_what_to_do_next(
    webhook, automation, log, data_dir, hookmill, into, tmp_path
):
    log.add_run(log.add_delivery(webhook["uid"]), automation["automation_id"])

    taken = hookmill("backup", "1.hookmill")
    checked = hookmill("restore", "--check", "1.hookmill")
    restored = into("copy", "1.hookmill")

    rows = sum(len(table) for name, table in rows_of_sqlite(log.path).items() if name != "sign_in_links")
    assert taken.out.startswith(f"Backed up {rows} rows of ")
    assert "It has the deliveries until 2026-11-21 09:12:36 UTC." in taken.out
    assert "It does not have the master key " in taken.out
    assert taken.out.endswith("hookmill restore --check 1.hookmill\n")
    assert taken.err.splitlines() == [f"backing up: {number} of {rows} rows" for number in (0, rows)]
    assert checked.out.startswith("The backup is complete and unaltered.\n")
    assert f"Schema            {revisions()[-1]}\n" in checked.out
    assert "is not here" not in checked.out
    assert restored.out.startswith(f"Restored {rows} rows of ")
    assert "and has the deliveries until 2026-11-21 09:12:36 UTC." in restored.out
    assert "1 unfinished run will start when the service performs runs." in restored.out
    assert "1. Stop the original installation" in restored.out
    assert "2. Check what was restored: " in restored.out
    assert "3. Start the service: " in restored.out
    assert restored.err.splitlines() == [
        f"{phase}: {number} of {rows} rows" for phase in ("copying", "comparing") for number in (0, rows)
    ]
    assert stat.S_IMODE((tmp_path / "1.hookmill").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "copy" / "hookmill.db").stat().st_mode) == 0o600
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"hookmill.db", "master.key"}
    (entry, *_) = hookmill("audit", "list", "--team", "--json").json["items"]
    assert entry["action"] == "installation.restore"


def test_copy_that_performs_no_runs_may_run_beside_the_original(webhook, hookmill, into, monkeypatch):
    hookmill("backup", "1.hookmill")
    monkeypatch.setenv("HOOKMILL_PERFORMS_RUNS", "false")

    restored = into("copy", "1.hookmill")

    assert "Stop the original" not in restored.out
    assert "1. While the original installation runs, keep performs_runs false" in restored.out


@pytest.mark.parametrize("performs_runs", [True, False])
def test_start_after_a_restore_says_whether_runs_are_performed(performs_runs):
    restored = Restoration(taken_at=0, restored_at=0, newest_delivery_at=None)

    text = "\n".join(restoration_lines(restored, performs_runs=performs_runs))

    assert ("are performed now" in text) == performs_runs
    assert ("must stay stopped" in text) == performs_runs
    assert ("performs no runs, because performs_runs is false" in text) != performs_runs


def test_a_backup_keeps_no_session_no_sign_in_link_and_no_secret(webhook, log, data_dir, hookmill):
    fill(log.path)
    hookmill("backup", "1")

    records = list(records_of(Path("1")))
    tables = {record.table for record in records if isinstance(record, Rows)}
    content = msgspec.msgpack.encode(records)
    assert {table.name for table in metadata.sorted_tables} - tables == {"executors", "sessions", "sign_in_links"}
    assert webhook["uid"].encode() in content
    for secret in (webhook["secret"].encode(), (data_dir / "master.key").read_bytes().strip()):
        assert secret not in content


def test_file_that_exists_is_replaced_only_on_demand(webhook, hookmill, tmp_path):
    (tmp_path / "1").write_text("mine")
    (tmp_path / "pipe").mkdir()

    assert "1 exists. Name another file, or add --force to replace it." in hookmill("backup", "1", exit_code=1).err
    assert (tmp_path / "1").read_text() == "mine"
    assert "pipe is not a file." in hookmill("backup", "pipe", "--force", exit_code=1).err
    assert (
        "missing/1 can't be written: No such file or directory. Nothing was written."
        in hookmill("backup", "missing/1", exit_code=1).err
    )
    hookmill("backup", "1", "--force")

    assert hookmill("restore", "--check", "1", "--json").json["proven"] is True
    assert {path.name for path in tmp_path.iterdir()} == {"1", "pipe", "data"}


def test_backup_waits_for_no_first_start(hookmill, log):
    log.path.unlink()
    assert "Start `hookmill serve` once" in hookmill("backup", "1", exit_code=1).err


# Files that were cut or altered


@pytest.fixture
def deliveries(webhook, automation, log):
    """Several deliveries, each with a run."""
    for number in range(20):
        log.add_run(log.add_delivery(webhook["uid"], body=b'{"number": %d}' % number), automation["automation_id"])


@pytest.fixture
def backup(deliveries, hookmill, tmp_path):
    """A backup of the deliveries, without the master key: sealing it takes half a second of processor time."""
    hookmill("backup", "backup")
    return tmp_path / "backup"


@pytest.fixture
def backup_with_key(deliveries, hookmill, tmp_path):
    """A backup of the deliveries and the master key, sealed."""
    hookmill("backup", "backup", "--with-key", stdin=PASSPHRASE)
    return tmp_path / "backup"


def places(size: int, number: int) -> Iterator[int]:
    """The first and the last bytes, and places between them."""
    chance = random.Random(7)
    yield from (0, len(MAGIC) - 1, len(MAGIC), len(MAGIC) + 3, size - 65, size - 64, size - 33, size - 32, size - 1)
    yield from (chance.randrange(size) for _ in range(number))


def test_backup_that_was_cut_anywhere_is_refused_and_changes_nothing(backup_with_key, into, tmp_path, postgres_url):
    content = backup_with_key.read_bytes()
    for number, place in enumerate(places(len(content), CUTS)):
        (tmp_path / "cut").write_bytes(content[:place])

        on_postgres = number % 2 == 1
        printed = into("copy", "cut", url=postgres_url if on_postgres else None, exit_code=1)

        expected = "is not a backup that" if place < len(MAGIC) else f"is cut: it ends after {place:,} bytes"
        assert expected in printed.err, place
        assert "Nothing was changed." in printed.err
        assert [path.name for path in (tmp_path / "copy").iterdir()] == ["master.key"]
    assert relations(postgres_url) == []


def test_backup_of_which_any_byte_was_altered_is_refused_and_changes_nothing(
    backup_with_key, into, hookmill, tmp_path, postgres_url
):
    content = backup_with_key.read_bytes()
    for number, place in enumerate(places(len(content), ALTERATIONS)):
        altered = bytearray(content)
        altered[place] ^= 1 << number % 8
        (tmp_path / "altered").write_bytes(altered)

        printed = into("copy", "altered", url=postgres_url if number % 2 else None, exit_code=1)

        assert "The backup altered" in printed.err, place
        assert "Nothing was changed." in printed.err, place
        assert "Traceback" not in printed.err
        assert [path.name for path in (tmp_path / "copy").iterdir()] == ["master.key"]
        assert hookmill("restore", "--check", "altered", exit_code=1).out == "", place
    (tmp_path / "altered").write_bytes(content + b"more")
    assert "is damaged: its content does not match" in into("copy", "altered", exit_code=1).err
    assert relations(postgres_url) == []


def test_backup_that_was_altered_on_purpose_is_refused_with_the_master_key(backup, into, hookmill, data_dir, tmp_path):
    """The alteration has the right SHA-256, as anybody can compute it."""
    with (tmp_path / "forged").open("wb") as file:
        writer = BackupWriter(file)
        for record in records_of(backup):
            writer.add(record)
        writer.finish(b"not the key of the proof")

    assert "forged was altered: its proof does not match the master key" in into("copy", "forged", exit_code=1).err
    assert "its proof does not match" in hookmill("restore", "--check", "forged", exit_code=1).err
    (tmp_path / "copy" / "master.key").unlink()
    unproven = hookmill("restore", "--check", "forged")
    assert "The master key of the backup is not here." in unproven.out
    assert unproven.out.startswith("The backup is complete and undamaged.\n")


def test_backup_that_contradicts_itself_is_refused(backup, into, data_dir, tmp_path, postgres_url):
    records = list(records_of(backup))
    rows = next(number for number, record in enumerate(records) if isinstance(record, Rows))
    one = records[rows]
    assert isinstance(one, Rows)
    contradictions = {
        "its rows are not those that its summary describes": [*records[:rows], *records[rows + 1 :]],
        "records follow its summary": [*records, records[-1]],
        "it has no summary": records[:-1],
        "a record is not at its place": [*records[: rows + 1], records[0], *records[rows + 1 :]],
        "has too many or too few values": [*records[:rows], Rows(table=one.table, rows=[(1,)]), *records[rows + 1 :]],
        "contradict others": [*records[:rows], one, *records[rows:]],
    }
    key = KeyFile(data_dir / "master.key").read()[0]
    urls = (None, postgres_url)
    for number, (contradiction, altered) in enumerate(contradictions.items()):
        for url in urls if are_full() else (urls[number % 2],):
            with (tmp_path / "altered").open("wb") as file:
                writer = BackupWriter(file)
                for record in altered:
                    writer.add(record)
                writer.finish(key.proof_key())

            printed = into("copy", "altered", url=url, exit_code=1)

            assert contradiction in printed.err
            assert [path.name for path in (tmp_path / "copy").iterdir()] == ["master.key"]
    assert relations(postgres_url) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not a backup that `hookmill backup` has made"),
        (b"SQLite format 3\0" + bytes(1000), "is not a backup that `hookmill backup` has made"),
        (b"hookmill backup 2\n" + bytes(100), "was made by a newer version of Hookmill"),
    ],
)
def test_other_files_are_refused(into, tmp_path, content, problem):
    (tmp_path / "other").write_bytes(content)

    assert problem in into("copy", "other", exit_code=1).err
    assert "can't be read: No such file" in into("copy", "missing", exit_code=1).err
    assert "is not a file" in into("copy", "data", exit_code=1).err


def records_of(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        yield from BackupReader(file, path.name).records()


# Keys


def test_secrets_work_where_the_backup_was_restored_with_its_key(webhook, log, hookmill, into, tmp_path):
    hookmill("backup", "1")
    (tmp_path / "copy").mkdir(mode=0o700)

    refused = into("copy", "1", key=False, exit_code=1)

    assert "need the master key " in refused.err
    assert "/copy/master.key. Put the key into this file. Without it, no secret can be read." in refused.err
    assert list((tmp_path / "copy").iterdir()) == []
    shutil.copy(tmp_path / "data" / "master.key", tmp_path / "copy")
    into("copy", "1")
    hookmill("keys", "rotate", "--yes")


def test_restore_with_another_master_key_is_refused(webhook, hookmill, into, tmp_path, monkeypatch):
    hookmill("backup", "1")
    hookmill("backup", "2", "--with-key", stdin=PASSPHRASE)
    (tmp_path / "copy").mkdir(mode=0o700)
    KeyFile(tmp_path / "copy" / "master.key").create([new_master_key()])

    for backup, advice in (("1", "Without it, no secret"), ("2", "to use it instead, move master.key away, and")):
        printed = into("copy", backup, exit_code=1)
        assert "). Add it to the file master.key. " in printed.err
        assert "HOOKMILL_MASTER_KEY" not in printed.err
        assert "The secrets of the backup need another master key. Master key " in printed.err
        assert advice in printed.err
        assert [path.name for path in (tmp_path / "copy").iterdir()] == ["master.key"]
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", "A" * 43 + "=")
    printed = into("other", "1", key=False, exit_code=1)
    assert "need another master key" in printed.err
    assert "Set HOOKMILL_MASTER_KEY to it" in printed.err
    assert "master.key" not in printed.err
    assert not (tmp_path / "other").exists()


def test_key_in_a_backup_is_opened_by_its_passphrase_only(webhook, backup_with_key, hookmill, into, tmp_path):
    assert (
        "The passphrase is wrong." in into("copy", "backup", key=False, stdin=b"another passphrase\n", exit_code=1).err
    )
    assert "must have 12 to 1,024 characters" in into("copy", "backup", key=False, stdin=b"short\n", exit_code=1).err
    assert not (tmp_path / "copy").exists()

    restored = into("copy", "backup", key=False, stdin=PASSPHRASE)

    key_file = tmp_path / "copy" / "master.key"
    assert f"The master key was written to {key_file}." in restored.out
    assert key_file.read_bytes() == (tmp_path / "data" / "master.key").read_bytes()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    hookmill("webhook", "rotate", "source")


def test_passphrase_that_is_too_short_is_refused_before_anything_is_written(hookmill, tmp_path):
    printed = hookmill("backup", "1", "--with-key", stdin=b"too short\n", exit_code=1)

    assert "The passphrase must have 12 to 1,024 characters." in printed.err
    assert "too short" not in printed.err
    assert not (tmp_path / "1").exists()


def test_backup_during_a_rotation_needs_both_keys(webhook, log, data_dir, hookmill, into, tmp_path):
    (old,) = KeyFile(data_dir / "master.key").read()
    new = new_master_key()
    KeyFile(data_dir / "master.key").write([new, old])
    log.execute("UPDATE metadata SET value = ? WHERE name = 'master key'", (new.id.encode(),))
    log.execute("INSERT INTO metadata VALUES ('retiring master keys', ?)", (old.id.encode(),))
    hookmill("backup", "1", "--with-key", stdin=PASSPHRASE)
    (tmp_path / "copy").mkdir(mode=0o700)
    KeyFile(tmp_path / "copy" / "master.key").create([new])

    assert f"Master key {old.id} is not available" in into("copy", "1", exit_code=1).err
    (tmp_path / "copy" / "master.key").unlink()
    into("copy", "1", key=False, stdin=PASSPHRASE)
    hookmill("keys", "rotate")


# The target


def test_restore_into_a_database_in_use_is_refused(backup, log, hookmill, into, tmp_path, postgres_store):
    before = rows_of_sqlite(log.path)
    assert (
        "hookmill.db exists. A restore needs a data directory without a database."
        in into("data", "backup", exit_code=1).err
    )
    assert rows_of_sqlite(log.path) == before
    (tmp_path / "copy").mkdir(mode=0o700)
    shutil.copy(tmp_path / "data" / "master.key", tmp_path / "copy")
    (tmp_path / "copy" / "hookmill.db-wal").touch()
    assert "hookmill.db-wal exists." in into("copy", "backup", exit_code=1).err

    with psycopg.connect(postgres_store, autocommit=True) as connection:
        connection.execute("INSERT INTO metadata VALUES ('master key', 'key')")
        assert (
            "is not empty: it holds metadata. Create an empty one"
            in into("copy", "backup", url=postgres_store, exit_code=1).err
        )
        connection.execute("DELETE FROM metadata")
        connection.execute("CREATE TABLE theirs (id int)")
        assert "is not empty: it holds public." in into("copy", "backup", url=postgres_store, exit_code=1).err
        connection.execute("DROP TABLE theirs")
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
        assert "The database has schema 0009" in into("copy", "backup", url=postgres_store, exit_code=1).err
        connection.execute(f"UPDATE alembic_version SET version_num = '{revisions()[-1]}'".encode())
    into("copy", "backup", url=postgres_store)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_restore_is_refused_while_another_process_uses_the_directory(kind, backup, into, tmp_path, postgres_store):
    url = postgres_store if kind == "postgres" else None
    (tmp_path / "copy").mkdir(mode=0o700)
    shutil.copy(tmp_path / "data" / "master.key", tmp_path / "copy")
    for name in ("serve.lock", "hookmill.db.writer"):
        with lock_file(tmp_path / "copy" / name):
            assert f"it holds {name}. Stop it" in into("copy", "backup", url=url, exit_code=1).err
    assert not (tmp_path / "copy" / "hookmill.db").exists()
    into("copy", "backup", url=url)


def test_lost_database_is_replaced(backup, log, data_dir, into):
    rows = rows_without_marks(rows_of_sqlite(log.path))
    for path in data_dir.glob("hookmill.db*"):
        path.unlink()

    into("data", "backup")

    assert rows_without_marks(rows_of_sqlite(log.path)) == rows


def test_backup_is_restored_from_a_pipe(backup, into, tmp_path, log):
    read_end, write_end = os.pipe()
    content = backup.read_bytes()
    assert os.write(write_end, content) == len(content)
    os.close(write_end)

    into("copy", f"/dev/fd/{read_end}")

    os.close(read_end)
    assert rows_without_marks(rows_of_sqlite(tmp_path / "copy" / "hookmill.db")) == rows_without_marks(
        rows_of_sqlite(log.path)
    )


# Runs


def test_runs_continue_as_their_states_say(webhook, automation, log, hookmill, into):
    runs = {
        state: log.add_run(
            log.add_delivery(webhook["uid"], body=b'{"state": "%s"}' % name.encode()),
            automation["automation_id"],
            state,
            attempt=attempt,
        )
        for name, state, attempt in [
            (state.value, state, 1 if state is not RunState.QUEUED else 0) for state in RunState
        ]
    }
    with closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("UPDATE runs SET executor = 'host-1-a', claimed_at = created_at WHERE state = 'running'")
        connection.execute("INSERT INTO executors VALUES ('host-1-a', 0, 0)")
        (cancelled,) = connection.execute("SELECT id FROM runs WHERE state = 'failed'").fetchone()
        connection.execute(
            """
            UPDATE runs SET state = 'running', finished_at = NULL, executor = 'host-1-a', claimed_at = created_at,
                cancel_requested_at = created_at
            WHERE id = ?
            """,
            (cancelled,),
        )
    hookmill("backup", "1")

    printed = into("copy", "1", "--json")

    assert printed.json["requeued_runs"] == 1
    assert printed.json["ended_runs"] == 1
    assert printed.json["unfinished_runs"] == 2
    restored = {run["run_id"]: run for run in hookmill("run", "list", "--limit", "100", "--json").json["items"]}
    assert restored[runs[RunState.RUNNING]]["state"] == "queued"
    assert restored[runs[RunState.RUNNING]]["attempt"] == 0
    assert restored[runs[RunState.FAILED]]["state"] == "cancelled"
    for state in set(RunState) - {RunState.RUNNING, RunState.FAILED}:
        assert restored[runs[state]]["state"] == state.value
    assert hookmill("run", "queue", "--json").json["workers"] == []


def test_messages_about_alarms_that_waited_are_not_sent_by_the_copy(log, hookmill, into):
    destination = hookmill(
        "alarm", "destination", "add", "slack", "--url-from-stdin", "--json", stdin=b"https://hooks.example.com/1"
    ).json["destination_id"]
    states = ("waiting", "waiting", "sent", "failed")
    with closing(sqlite3.connect(log.path)) as connection, connection:
        # The second one is being sent.
        connection.executemany(
            "INSERT INTO alarm_notices VALUES (?, ?, '{}', 0, ?, ?, 0, ?, NULL, NULL, NULL)",
            [
                (bytes([number]) * 16, destination, state, number, 1 << 60 if number == 1 else None)
                for number, state in enumerate(states)
            ],
        )
    hookmill("backup", "1")

    printed = into("copy", "1")

    assert "2 messages about alarms waited in the backup." in printed.out
    (restored,) = hookmill("alarm", "destination", "list", "--json").json["items"]
    assert (restored["waiting"], restored["failed"]) == (0, 3)
    assert restored["last_problem"] == "Not sent, because the installation was restored from a backup."
    assert into("second-copy", "1", "--json").json["unsent_messages"] == 2


def test_results_of_runs_that_waited_are_not_sent_by_the_copy(webhook, automation, log, hookmill, into):
    run = log.add_run(log.add_delivery(webhook["uid"]), automation["automation_id"])
    log.execute(
        """
        INSERT INTO run_results (
            run_id, number, phase, kind, destination, target, lane, state, attempts, log, is_uncertain, queued_at
        )
        VALUES (?, 0, 1, 'webhook', 'ci', '{}', 'lane', 'waiting', 0, '[]', FALSE, 0)
        """,
        (run_key(run),),
    )
    hookmill("backup", "1")

    printed = into("copy", "1")

    assert "1 message about results of runs waited in the backup." in printed.out
    (restored,) = hookmill("run", "show", run, "--json").json["results"]
    assert restored["state"] == "failed"
    assert restored["problem"] == "Not sent, because the installation was restored from a backup."
    assert into("second-copy", "1", "--json").json["unsent_results"] == 1


def test_packages_of_runs_are_restored_as_regular_files_only(
    webhook, automation, log, data_dir, hookmill, into, tmp_path
):
    runs = [
        log.add_run(log.add_delivery(webhook["uid"], body=b"%d" % n), automation["automation_id"]) for n in range(3)
    ]
    for run in runs:
        (data_dir / "runs" / run).mkdir(parents=True)
        (data_dir / "runs" / run / "output.log").write_text(f"output of {run}")
    package = data_dir / "runs" / runs[0]
    (package / "empty").touch()
    (package / os.fsdecode(b"caf\xe9")).write_bytes(os.urandom(5_000_000))
    (package / "link").symlink_to(data_dir / "master.key")
    (package / "directory").mkdir()
    os.mkfifo(package / "pipe")
    with (package / "large").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    (data_dir / "runs" / ".run_draft").mkdir()
    (data_dir / "runs" / "mine").mkdir()

    taken = hookmill("backup", "1", "--with-run-packages", "--json").json
    (tmp_path / "copy" / "runs" / runs[1]).mkdir(parents=True)
    (tmp_path / "copy" / "runs" / runs[1] / "newer").touch()
    shutil.copy(data_dir / "master.key", tmp_path / "copy")
    restored = into("copy", "1", "--json").json

    assert taken["run_packages"] | {"bytes": 0} == {"packages": 3, "files": 5, "bytes": 0, "omitted_files": 1}
    assert restored["run_packages"] == 3
    assert restored["kept_run_packages"] == 1
    copies = tmp_path / "copy" / "runs"
    assert {path.name for path in copies.iterdir()} == set(runs)
    assert {path.name for path in (copies / runs[0]).iterdir()} == {"output.log", "empty", os.fsdecode(b"caf\xe9")}
    assert [path.name for path in (copies / runs[1]).iterdir()] == ["newer"]
    for path in (copies / runs[0]).iterdir():
        assert path.read_bytes() == (package / path.name).read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((copies / runs[0]).stat().st_mode) == 0o700


@pytest.mark.parametrize("name", [b"../../outside", b"", b"..", b"a/b", b"nul\0"])
def test_package_file_outside_of_its_package_is_refused(backup, data_dir, into, tmp_path, name):
    with (tmp_path / "altered").open("wb") as file:
        writer = BackupWriter(file)
        for record in records_of(backup):
            if isinstance(record, BackupSnapshot):
                writer.add(PackageFile(run=bytes(16), name=name, content=b"theirs", is_last=True))
            writer.add(record)
        writer.finish(KeyFile(data_dir / "master.key").read()[0].proof_key())

    assert "names a file outside of a run's package" in into("copy", "altered", exit_code=1).err
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["master.key"]


# Versions


@pytest.mark.parametrize("schema", ["0036", "9999"])
@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_backup_of_an_older_or_newer_schema_is_refused(target, schema, backup, into, tmp_path, request):
    with (tmp_path / "other").open("wb") as file:
        writer = BackupWriter(file)
        (header, *others) = records_of(backup)
        assert isinstance(header, Header)
        writer.add(msgspec.structs.replace(header, schema=schema, version="99.0"))
        for record in others:
            writer.add(record)
        writer.finish(b"")
    url: str | None = request.getfixturevalue("postgres_url") if target == "postgres" else None

    printed = into("copy", "other", url=url, exit_code=1)

    assert f"was made by Hookmill 99.0, whose schema is {schema}. This version needs" in printed.err
    assert "Restore the backup with the version that made it. Nothing was changed." in printed.err
    assert url is None or relations(url) == []
