"""Migrations: each is complete or has no effect, and foreign or newer databases are refused."""

import re
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from hookmill.domain.errors import Conflict, Invalid, StoreUnavailable
from hookmill.store import migrations, timeouts
from hookmill.store.database import Database, open_database
from hookmill.store.migrate import migrate, upgrade
from hookmill.store.revision import revisions
from hookmill.store.schema import metadata
from scripts import migration
from tests.support.counts import only_in_proof

MIGRATE_AND_DIE = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from hookmill.store.database import open_database
from hookmill.store.migrate import migrate, upgrade

statements_left = int(sys.argv[1])

@event.listens_for(Engine, "after_cursor_execute")
def die(connection, cursor, statement, *_):
    global statements_left
    statements_left -= statement.lstrip().upper().startswith("CREATE")
    if statements_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

with open_database(sys.stdin.read()) as database:
    migrate(database)
"""


def test_empty_database_is_migrated_once(empty_database_url):
    with open_database(empty_database_url) as database:
        assert [migrate(database) for _ in range(3)] == [True, False, False]
        assert set(tables(database)) == {*metadata.tables, "alembic_version"}


def test_written_first_migration_creates_the_declared_schema(empty_database_url, request, tmp_path):
    store_url = request.getfixturevalue(f"{request.node.callspec.params['empty_database_url']}_store")
    engine = create_engine(empty_database_url.replace("postgresql://", "postgresql+psycopg://"))
    migration.main("The first schema", tmp_path)

    with engine.begin() as connection:
        upgrade(connection, tmp_path)
    engine.dispose()

    assert "create_table" in (tmp_path / "0001_the_first_schema.py").read_text()
    with open_database(empty_database_url) as written, open_database(store_url) as declared:
        assert schema_of(written) == schema_of(declared)


@pytest.mark.parametrize("statement", [only_in_proof(3), 20])
def test_killed_migration_changes_nothing_and_can_be_repeated(empty_database_url, statement):
    process = subprocess.run(
        [sys.executable, "-c", MIGRATE_AND_DIE, str(statement)], input=empty_database_url, text=True, check=False
    )

    assert process.returncode == -signal.SIGKILL
    with open_database(empty_database_url) as database:
        assert tables(database) == []
        assert migrate(database) is True
        assert set(tables(database)) == {*metadata.tables, "alembic_version"}


def test_only_one_of_simultaneous_migrations_changes_the_database(postgres_url):
    def start(_):
        with open_database(postgres_url) as database:
            return migrate(database)

    with ThreadPoolExecutor(4) as starts:
        assert sorted(starts.map(start, range(4))) == [False, False, False, True]


def test_migration_waits_longer_than_the_statement_timeout(postgres_url, monkeypatch):
    monkeypatch.setattr(timeouts, "STATEMENT_SECONDS", 3)
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 3)
    with open_database(postgres_url) as first, open_database(postgres_url) as second, ThreadPoolExecutor(1) as threads:
        # Connect in advance, because this can take as long on a busy machine.
        with second.read() as tx:
            tx.one("SELECT 1")
        with first.write() as tx:
            tx.run("SET LOCAL statement_timeout = 0")
            tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=0x686F6F6B)
            migration = threads.submit(migrate, second)
            tx.one("SELECT pg_sleep(4)")
            assert not migration.done()

        assert migration.result() is True


@pytest.mark.parametrize("schema", ["0036", "9999"])
def test_database_of_an_older_or_newer_schema_is_refused_and_unchanged(store_url, schema):
    with open_database(store_url) as database:
        with database.write() as tx:
            tx.run("UPDATE alembic_version SET version_num = :schema", schema=schema)
            tx.run("DROP TABLE dropped_attempts")
        before = tables(database)

        with pytest.raises(Conflict, match=f"has schema {schema}, which .* Use the version that has written it"):
            migrate(database)

        assert tables(database) == before


@pytest.mark.parametrize("content", [b"canary", b"SQLite format 2\x00" + bytes(4_000), b"PK\x03\x04" * 1_000])
def test_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path, content):
    path = tmp_path / "hookmill.db"
    path.write_bytes(content)

    with open_database(f"sqlite:///{path}") as database, pytest.raises(Invalid, match="is not a SQLite database"):
        migrate(database)

    assert path.read_bytes() == content


def test_truncated_database_is_unavailable(sqlite_store, tmp_path):
    path = tmp_path / "hookmill.db"
    content = Path(sqlite_store.removeprefix("sqlite:///")).read_bytes()
    path.write_bytes(content[: len(content) // 2])

    with open_database(f"sqlite:///{path}") as database, pytest.raises(StoreUnavailable):
        migrate(database)


def test_database_in_a_missing_directory_is_unavailable(tmp_path):
    with open_database(f"sqlite:///{tmp_path}/missing/hookmill.db") as database, pytest.raises(StoreUnavailable):
        migrate(database)


def test_new_database_is_readable_only_by_its_owner(tmp_path):
    path = tmp_path / "hookmill.db"
    with open_database(f"sqlite:///{path}") as database:
        migrate(database)
        with database.write() as tx:
            tx.run("INSERT INTO metadata (name, value) VALUES ('a', :value)", value=b"")

        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert modes["hookmill.db"] == 0o600
    assert set(modes.values()) == {0o600}


def tables(database: Database) -> list[str]:
    with database.read() as tx:
        if tx.on_sqlite:
            rows = tx.all("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        else:
            rows = tx.all("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    return [row["name"] for row in rows]


def schema_of(database: Database) -> object:
    return sqlite_schema(database) if database.path is not None else postgresql_schema(database)


def sqlite_schema(database: Database) -> dict[str, list[str]]:
    """The SQL of each table and index, in sorted parts, without white space and quotes."""
    with database.read() as tx:
        rows = tx.all("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE '%alembic%'")
    return {row["name"]: sorted(filter(None, _parts(row["sql"].replace('"', "")))) for row in rows}


def _parts(sql: str) -> list[str]:
    return [part.strip("() \t") for part in re.split(r",|\s\(\s|\n", sql)]


def postgresql_schema(database: Database) -> set[tuple[object, ...]]:
    """All columns, indexes, constraints and comments of tables."""
    with database.read() as tx:
        columns = tx.all(
            """
            SELECT table_name, column_name, data_type, is_nullable, column_default
            FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name <> 'alembic_version'
            """
        )
        indexes = tx.all(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        constraints = tx.all(
            """
            SELECT conname, pg_get_constraintdef(oid)
            FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace AND conname NOT LIKE 'alembic%'
            """
        )
        comments = tx.all(
            """
            SELECT relname, obj_description(oid)
            FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
            """
        )
    schema: set[tuple[object, ...]] = {
        tuple(dict(row).values()) for rows in (columns, indexes, constraints, comments) for row in rows
    }
    return schema - {("alembic_version", None)}


def test_revisions_are_in_the_order_of_the_migration_chain():
    script = ScriptDirectory(str(Path(migrations.__file__).parent))

    assert revisions() == [step.revision for step in reversed(list(script.walk_revisions()))]


def test_up_to_date_database_is_opened_without_importing_alembic(migrated_sqlite):
    code = (
        "import sys\n"
        "from hookmill.store.database import open_database\n"
        "from hookmill.store.migrate import migrate\n"
        "print(migrate(open_database(sys.argv[1])), 'alembic' in sys.modules)"
    )

    process = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{migrated_sqlite}"], capture_output=True, text=True, check=True
    )

    assert process.stdout.split() == ["False", "False"]
