"""`hookmill move`: moves a whole installation to an empty PostgreSQL database, or changes nothing."""

import fcntl
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from hookmill.store.schema import metadata
from tests.cli.conftest import CommandResult, Hookmill
from tests.support.odd_rows import FIRST_KEY, ROWS, fill, relations, rows_of_postgres, rows_of_sqlite
from tests.support.ports import free_port

pytestmark = pytest.mark.usefixtures("log")


def move(hookmill: Hookmill, url: str, *options: str, exit_code: int = 0) -> CommandResult:
    return hookmill("move", "--to", "-", *options, stdin=f"{url}\n".encode(), exit_code=exit_code)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def url_without_password(url: str) -> str:
    account, _, rest = url.removeprefix("postgresql://").partition("@")
    return f"postgresql://{account.partition(':')[0]}@{rest}"


def test_move_copies_every_row_and_leaves_the_installation_usable(webhook, log, hookmill, postgres_url, monkeypatch):
    fill(log.path)
    # SQLite never generates the number of a deleted row again.
    log.execute("DELETE FROM webhooks WHERE no = ?", (FIRST_KEY + ROWS - 1,))
    before = rows_of_sqlite(log.path)
    assert [name for name, rows in before.items() if len(rows) < ROWS - 1] == []

    report = move(hookmill, postgres_url, "--json").json

    assert rows_of_postgres(postgres_url) == rows_of_sqlite(log.path) == before
    assert {table["name"]: table["rows"] for table in report["tables"]} == {
        table.name: len(before[table.name]) for table in metadata.sorted_tables
    }
    assert report["to"] == url_without_password(postgres_url)
    assert report["unfinished_runs"] == 1
    assert report["rows"] == sum(map(len, before.values()))
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    hookmill("webhook", "rotate", webhook["uid"])
    hookmill("webhook", "create", "later")
    assert max(no for no, *_ in rows_of_postgres(postgres_url)["webhooks"]) == FIRST_KEY + ROWS


def test_move_prints_what_it_moved_and_what_to_do_next(webhook, log, data_dir, hookmill, postgres_url):
    row_count = sum(map(len, rows_of_sqlite(log.path).values()))

    result = move(hookmill, postgres_url)

    first, *_, last = result.out.splitlines()
    assert first.startswith(f"Moved {row_count} rows of ")
    assert f"to {url_without_password(postgres_url)} in " in first
    assert f"Keep the data directory {data_dir}" in result.out
    assert f"store {data_dir / 'hookmill.db'} with the backups" in result.out
    assert last.endswith("move --undo")
    assert result.err.splitlines() == [
        f"{phase}: {rows} of {total} rows"
        for phase, total in (("copying", row_count), ("comparing", row_count))
        for rows in (0, total)
    ]


def test_move_shows_progress_bars_on_a_terminal(webhook, hookmill, postgres_url, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PGPASSWORD", postgres_url.partition("@")[0].rpartition(":")[2])

    result = hookmill("move", "--to", url_without_password(postgres_url), "--json")

    assert "comparing" in result.err
    assert "100%" in result.err
    assert result.json["rows"] > 0


def test_moved_sqlite_database_is_refused_until_the_move_is_undone(webhook, hookmill, postgres_url):
    results = [move(hookmill, postgres_url)]

    for command in (["serve", "--port", str(free_port())], ["migrate"], ["webhook", "list"]):
        results.append(hookmill(*command, exit_code=1))
    results.append(move(hookmill, postgres_url, exit_code=1))
    results.append(hookmill("move", "--undo", stdin=b"n\n", exit_code=1))
    for result in results[1:-1]:
        assert f"was moved to {url_without_password(postgres_url)} on 2" in result.err
        assert "hookmill move --undo" in result.err
        assert "Nothing was changed." in result.err
    assert f"lacks everything that {url_without_password(postgres_url)} has recorded" in results[-1].err
    hookmill("webhook", "list", exit_code=1)

    undo = hookmill("move", "--undo", "--yes", "--json")

    assert undo.json["moved_to"] == url_without_password(postgres_url)
    assert [row["name"] for row in hookmill("webhook", "list", "--json").json["items"]] == ["source"]
    assert "is not marked as moved" in hookmill("move", "--undo", "--yes", exit_code=1).err
    assert "is not empty" in move(hookmill, postgres_url, exit_code=1).err
    password = postgres_url.partition("@")[0].rpartition(":")[2]
    assert [result for result in results if password in result.out + result.err] == []


OCCUPIED = {
    "a table": ["CREATE TABLE unrelated (id int)"],
    "a view in another schema": ["CREATE SCHEMA other", "CREATE VIEW other.unrelated AS SELECT 1 AS one"],
}


@pytest.mark.parametrize("statements", OCCUPIED.values(), ids=OCCUPIED)
def test_target_database_that_is_not_empty_is_refused(log, hookmill, postgres_url, statements):
    execute(postgres_url, *statements)
    before = relations(postgres_url)

    result = move(hookmill, postgres_url, exit_code=1)

    assert "is not empty: it holds " in result.err
    assert "unrelated. Create an empty one" in result.err
    assert relations(postgres_url) == before
    hookmill("webhook", "list")


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def open_transaction(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize(
    ("lock", "file_name", "problem"),
    [
        (lock_file, "serve.lock", "it holds serve.lock. Stop it"),
        (lock_file, "hookmill.db.writer", "it holds hookmill.db.writer. Stop it"),
        (open_transaction, "hookmill.db", "can't be locked: database is locked. Another command may be changing it."),
    ],
)
def test_move_is_refused_while_another_process_uses_sqlite(
    log, data_dir, hookmill, postgres_url, lock, file_name, problem
):
    with lock(data_dir / file_name):
        result = move(hookmill, postgres_url, exit_code=1)

    assert problem in result.err
    assert relations(postgres_url) == []


def test_values_that_postgresql_cannot_store_are_refused(webhook, log, hookmill, postgres_url):
    fill(log.path)
    invalid_values = {
        "automation_versions": ("prompt = 'a' || char(0) || 'b'", "version = 1001"),
        "factories": ("name = CAST(x'ff' AS TEXT)", "max_running = -1"),
        "deliveries": ("size = 2147483648", "identity_kind = 1"),
        "dropped_attempts": ("count = 1.5", "webhook_no = 1002"),
        "payloads": ("body = 'text'", "body = x'7b7d'"),
        "members": ("is_admin = 2", "is_admin = 0"),
    }
    undamaged = log.path.read_bytes()
    for table, (change, row) in invalid_values.items():
        log.path.write_bytes(undamaged)
        with closing(sqlite3.connect(log.path)) as connection, connection:
            assert connection.execute(f"UPDATE {table} SET {change} WHERE {row}").rowcount > 0

        error = move(hookmill, postgres_url, exit_code=1).err

        assert f"table {table}" in error
    assert relations(postgres_url) == []


@pytest.mark.parametrize(
    ("arguments", "problem", "exit_code"),
    [
        (["--to", "postgresql://hookmill:secret@127.0.0.1/name"], "The URL contains a password", 1),
        (["--to", "postgresql://hookmill@127.0.0.1/name?password=secret"], "The URL contains a password", 1),
        (["--to", "postgresql://hookmill@127.0.0.1:1:2/name"], "--to can't be read. Use postgresql://", 1),
        (["--to", "sqlite:///other.db"], "--to is not the URL of a PostgreSQL database", 1),
        (["--to", "-"], "There is no URL on standard input.", 1),
        (["--to", "postgresql://hookmill@127.0.0.1:1/name"], "The database can't be used now: ", 1),
        ([], "give exactly one of --to, --undo", 2),
        (["--undo", "--json"], "give --yes as well", 2),
    ],
)
def test_invalid_arguments_are_refused(log, hookmill, arguments, problem, exit_code):
    result = hookmill("move", *arguments, exit_code=exit_code)

    assert problem in " ".join(result.err.split())
    assert "secret" not in result.err.replace("secrets", "")
    hookmill("webhook", "list")


def test_source_must_be_a_sqlite_database_of_this_version(log, data_dir, hookmill, postgres_url, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    on_postgres = move(hookmill, postgres_url, exit_code=1)
    monkeypatch.delenv("HOOKMILL_DATABASE_URL")
    log.execute("UPDATE alembic_version SET version_num = '0009'")
    older = move(hookmill, postgres_url, exit_code=1)
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(data_dir / "nothing"))
    missing = move(hookmill, postgres_url, exit_code=1)

    assert "Unset HOOKMILL_DATABASE_URL" in on_postgres.err
    assert "has schema 0009" in older.err
    assert f"There is no SQLite database {data_dir / 'nothing' / 'hookmill.db'}" in missing.err
    assert relations(postgres_url) == []
