"""Migrations: each is complete or has no effect, and foreign or newer databases are refused."""

import fcntl
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from hookmill.domain.delivery import Duplicate
from hookmill.domain.errors import Conflict, Invalid, StoreUnavailable
from hookmill.domain.ids import DeliveryKey
from hookmill.domain.payload import Parsed, parse
from hookmill.store import migrations, timeouts
from hookmill.store.automations import parsed_triggers
from hookmill.store.database import Database, open_database
from hookmill.store.migrate import migrate
from hookmill.store.private_file import open_lock_file
from hookmill.store.revision import application_name, revisions
from hookmill.store.schema import metadata
from tests.store.managed_store import ManagedStore
from tests.store.test_identity_segments import wait_for_filters
from tests.support.counts import only_in_proof
from tests.support.waiting import until
from tests.support.world import Clock

MIGRATE_AND_DIE = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from hookmill.store.database import open_database
from hookmill.store.migrate import migrate

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


def test_alembic_finds_no_difference_to_the_declared_schema(store_url):
    with open_database(store_url) as database, database.read() as tx:
        context = MigrationContext.configure(tx.connection, opts={"compare_type": True, "compare_server_default": True})

        assert compare_metadata(context, metadata) == []


def test_migrated_schema_equals_the_declared_one_on_sqlite(sqlite_store, tmp_path):
    declared_url = f"sqlite:///{tmp_path / 'declared.db'}"
    engine = create_engine(declared_url)
    metadata.create_all(engine)
    engine.dispose()

    with open_database(sqlite_store) as migrated, open_database(declared_url) as declared:
        assert sqlite_schema(migrated) == sqlite_schema(declared)


def test_migrated_schema_equals_the_declared_one_on_postgresql(postgres_store, postgres_url):
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    metadata.create_all(engine)
    engine.dispose()

    with open_database(postgres_store) as migrated, open_database(postgres_url) as declared:
        assert postgresql_schema(migrated) == postgresql_schema(declared)


def test_webhooks_of_the_first_schema_are_kept(empty_database_url):
    with open_database(empty_database_url) as database:
        migrate(database, to="0001")
        with database.write() as tx:
            tx.run("INSERT INTO teams VALUES ('team_1', 'team', 1)")
            tx.run("INSERT INTO factories VALUES ('fac_1', 'team_1', 'default', 1)")
            tx.run("INSERT INTO secrets VALUES ('sec_1', 'team_1', 'A', 1)")
            tx.run("INSERT INTO secret_versions VALUES ('sec_1.1', 'sec_1', 1, 'key', :sealed, 1)", sealed=b"sealed")
            for number in (1, 7):
                tx.run(
                    """
                    INSERT INTO webhooks (no, uid, factory_id, name, auth_mode, state, secret_id, secret_version_id,
                                          revision, created_at)
                    VALUES (:no, :uid, 'fac_1', :uid, 'token', 'enabled', 'sec_1', 'sec_1.1', 3, 5)
                    """,
                    no=number,
                    uid=f"wh_{number}",
                )

        assert migrate(database) is True

        with database.read() as tx:
            rows = tx.all("SELECT no, uid, secret_version_id, answers_handshakes, revision FROM webhooks ORDER BY no")
    assert [list(row.values()) for row in rows] == [[1, "wh_1", "sec_1.1", False, 3], [7, "wh_7", "sec_1.1", False, 3]]


STORED_FILTERS = [
    # The stored filter, the migrated one (None if it is the same), a body that matches, and one that does not.
    ('{"$ref": ["x"]}', '{"$fields": {"$ref": ["x"]}}', '{"$ref": "x"}', '{"$ref": "y"}'),
    ('{"$in": ["x"], "a": [1]}', '{"$fields": {"$in": ["x"], "a": [1]}}', '{"$in": "x", "a": 1}', '{"a": 1}'),
    ('{"a": {"$gt": ["x"]}}', '{"a": {"$fields": {"$gt": ["x"]}}}', '{"a": {"$gt": "x"}}', '{"a": 6}'),
    ('{"a": {"$not": ["x"]}}', '{"a": {"$fields": {"$not": ["x"]}}}', '{"a": {"$not": "x"}}', '{"a": "y"}'),
    (
        '{"a": {"b": [1], "$c": {"$fields": {"exists": true}}}}',
        '{"a": {"$fields": {"b": [1], "$c": {"$fields": {"$fields": {"exists": true}}}}}}',
        '{"a": [{"b": 1, "$c": {"$fields": null}}]}',
        '{"a": {"b": 1, "$c": {}}}',
    ),
    (
        '{"$n": [1e400, 0.10, 9007199254740993, "\\ud83d$"]}',
        '{"$fields": {"$n": [1e400, 0.10, 9007199254740993, "\\ud83d$"]}}',
        '{"$n": 9007199254740993}',
        '{"$n": 9007199254740992}',
    ),
    (
        '{"$a":' * 10 + '["x"]' + "}" * 10,
        '{"$fields": {"$a": ' * 10 + '["x"]' + "}}" * 10,
        '{"$a":' * 10 + '"x"' + "}" * 10,
        '{"$a":' * 9 + '"x"' + "}" * 9,
    ),
    ('{"a": ["$x"], "gt": {"prefix": ["x"]}}', None, '{"a": "$x", "gt": {"prefix": "x"}}', '{"a": "x"}'),
    ("{}", None, "1", None),
]
INVALID_FILTERS = [
    '{"a": {"$in": ["$x"]}}',
    '{"a": {"$ref": ["x"], "notIn": ["x"]}}',
    '{"a": {"in": [1], "$type": ["x"]}}',
    '{"a": {"exists": {"$x": 1}}}',
    '{"$a":' * 11 + '["x"]' + "}" * 11,
    '["$x"]',
]


def trigger_with(payload: str) -> str:
    selected = '"webhook_ids": ["wh_1"]'
    return f'{{"provider": "webhook", "event": "received", "filter": {{{selected}, "payload": {payload}}}}}'


def store_triggers(database: Database, automation: str, version: int, triggers: str) -> None:
    with database.write() as tx:
        tx.run(
            "INSERT INTO automation_versions VALUES (:automation, :version, 'a', 'p', 'package', :triggers, 1)",
            automation=automation,
            version=version,
            triggers=triggers,
        )


def stored_triggers(database: Database) -> list[str]:
    with database.read() as tx:
        rows = tx.all("SELECT triggers FROM automation_versions ORDER BY automation_id, version")
    return [row["triggers"] for row in rows]


@pytest.fixture
def database_before_operators(empty_database_url: str) -> Iterator[Database]:
    """A database with an automation, of the schema before filters had operators with `$`."""
    with open_database(empty_database_url) as database:
        migrate(database, to="0008")
        with database.write() as tx:
            tx.run("INSERT INTO teams VALUES ('team_1', 'team', 1)")
            tx.run("INSERT INTO factories (id, team_id, name, created_at) VALUES ('fac_1', 'team_1', 'default', 1)")
            tx.run(
                """
                INSERT INTO automations (id, factory_id, name, enabled, version, created_at, updated_at)
                VALUES ('aut_1', 'fac_1', 'a', :on, 1, 1, 1)
                """,
                on=True,
            )
        yield database


def test_stored_filters_on_fields_with_a_dollar_keep_their_meaning(database_before_operators):
    for version, (before, _, _, _) in enumerate(STORED_FILTERS, 1):
        store_triggers(database_before_operators, "aut_1", version, f"[{trigger_with(before)}, {trigger_with('{}')}]")

    assert migrate(database_before_operators) is True

    for stored, (before, after, matching, other) in zip(
        stored_triggers(database_before_operators), STORED_FILTERS, strict=True
    ):
        assert stored == f"[{trigger_with(after or before)}, {trigger_with('{}')}]"
        triggers = parsed_triggers(stored)
        assert triggers.unreadable_triggers == ()
        payload = triggers.delivery_triggers[0].payload
        assert payload is not None
        assert payload.matches(parsed(matching)), before
        assert other is None or not payload.matches(parsed(other)), before


def test_invalid_stored_filters_stay_invalid(database_before_operators):
    stored = [f"[{trigger_with(payload)}]" for payload in INVALID_FILTERS]
    stored += ["not JSON $", "[" * 600, "[" * 100_000 + "$", '{"$": 1}', '[5, "$"]', '[{"provider": "later", "$": 1}]']
    for version, triggers in enumerate(stored, 1):
        store_triggers(database_before_operators, "aut_1", version, triggers)

    migrate(database_before_operators)

    assert stored_triggers(database_before_operators) == stored
    assert [triggers for triggers in stored if parsed_triggers(triggers).delivery_triggers] == []


def test_largest_stored_filter_is_valid_after_it_was_rewritten(database_before_operators):
    conditions = ",".join(f'"$f{number}":{{"$g":["{"x" * 1_000}"]}}' for number in range(64))
    store_triggers(database_before_operators, "aut_1", 1, f"[{trigger_with('{' + conditions + '}')}]")

    migrate(database_before_operators)

    [stored] = stored_triggers(database_before_operators)
    triggers = parsed_triggers(stored)
    assert (len(triggers.delivery_triggers), triggers.unreadable_triggers) == (1, ())


def test_rows_with_former_table_and_column_names_are_kept(empty_database_url):
    with open_database(empty_database_url) as database:
        migrate(database, to="0011")
        with database.write() as tx:
            tx.run("INSERT INTO refusals (webhook_no, minute, kind, count) VALUES (1, 60, 'rate_limited', 7)")
            tx.run(
                """
                INSERT INTO deliveries (id, webhook_no, received_at, label, budget, size)
                VALUES (:id, 1, 60, 3, 2, 7)
                """,
                id=bytes(16),
            )
            tx.run(
                """
                INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state,
                    attempt, created_at, handed_at, executor)
                VALUES (:id, :id, 1, 'fac_1', 'aut_1', 1, 'running', 1, 60, 61, 'exe_1')
                """,
                id=bytes(16),
            )

        migrate(database)

        with database.read() as tx:
            (dropped,) = tx.all("SELECT * FROM dropped_attempts")
            assert dropped == {"webhook_no": 1, "minute": 60, "kind": "rate_limited", "count": 7}
            assert [row["rate_limit"] for row in tx.all("SELECT rate_limit FROM deliveries")] == [2]
            assert [row["claimed_at"] for row in tx.all("SELECT claimed_at FROM runs WHERE executor = 'exe_1'")] == [61]


def test_identities_from_before_the_segments_are_still_claimed(empty_database_url):
    digest = sha256(b"event-1").digest()[:16]
    with open_database(empty_database_url) as database:
        migrate(database, to="0018")
        with database.write() as tx:
            tx.run(
                """
                INSERT INTO identities (webhook_no, digest, delivery_id, kind, claimed_at)
                VALUES (1, :digest, :delivery, 3, :now)
                """,
                digest=digest,
                delivery=bytes(16),
                now=Clock().now,
            )
        migrate(database)
    with ManagedStore(empty_database_url) as store:
        webhook = store.webhook()
        before_filter, after_filter = store.plan(webhook, "event-1"), store.plan(webhook, "event-1")
        outcomes = store.admit(before_filter)
        wait_for_filters(store)
        outcomes += store.admit(after_filter)
        wait_for_filters(store)

        assert webhook.no == 1
        assert outcomes == [
            Duplicate(copy.delivery_key, DeliveryKey(bytes(16))) for copy in (before_filter, after_filter)
        ]
        assert {row["no"]: row["filter_no"] for row in store.rows("identity_segments")} == {0: 1, 1: None}


def parsed(body: str) -> Parsed:
    payload = parse(body.encode())
    assert isinstance(payload, Parsed)
    return payload


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
    def start(_: int) -> bool:
        with open_database(postgres_url) as database:
            return migrate(database)

    with ThreadPoolExecutor(4) as starts:
        assert sorted(starts.map(start, range(4))) == [False, False, False, True]


def test_migration_is_refused_while_another_version_uses_postgresql(postgres_url):
    with open_database(postgres_url) as database:
        migrate(database, to="0013")
        with psycopg.connect(postgres_url, application_name="hookmill"):
            with pytest.raises(Conflict, match=r"processes of another version of Hookmill use it, on 127\.0\.0\.1\."):
                migrate(database)
            before = revision(database)
        others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hookmill'"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            until(lambda: connection.execute(others).fetchone() is None, "the session of the other version has ended")
        # Processes of this version and other programs may use the database.
        with (
            psycopg.connect(postgres_url, application_name=f"{application_name()} runs"),
            psycopg.connect(postgres_url, application_name="psql"),
        ):
            migrated = migrate(database)

        assert before == "0013"
        assert migrated
        assert revision(database) == revisions()[-1]


def test_migration_is_refused_while_a_service_uses_sqlite(tmp_path):
    with open_database(f"sqlite:///{tmp_path}/hookmill.db") as database:
        migrate(database, to="0013")
        with open_lock_file(tmp_path / "serve.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(Conflict, match="has an older schema, and a `hookmill serve` uses it"):
                migrate(database)
            before = revision(database)

        assert before == "0013"
        assert migrate(database)


def revision(database: Database) -> str:
    with database.read() as tx:
        row = tx.one("SELECT version_num FROM alembic_version")
    assert row is not None
    return str(row["version_num"])


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


def test_database_of_a_newer_version_is_refused_and_unchanged(store_url):
    with open_database(store_url) as database:
        with database.write() as tx:
            tx.run("UPDATE alembic_version SET version_num = '9999'")
            tx.run("DROP TABLE dropped_attempts")

        with pytest.raises(Conflict, match="has schema 9999, which a newer version of Hookmill has written"):
            migrate(database)

        assert "dropped_attempts" not in tables(database)


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
            tx.run("INSERT INTO facts (name, value) VALUES ('a', :value)", value=b"")

        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert modes["hookmill.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_copy_of_the_database_file_needs_no_migration_and_has_its_rows(sqlite_store, tmp_path):
    with open_database(sqlite_store) as database, database.write() as tx:
        tx.run("INSERT INTO facts (name, value) VALUES ('a', :value)", value=b"1")
    copy = shutil.copy(sqlite_store.removeprefix("sqlite:///"), tmp_path)

    with open_database(f"sqlite:///{copy}") as database:
        assert migrate(database) is False
        with database.read() as tx:
            assert [row["name"] for row in tx.all("SELECT name FROM facts")] == ["a"]


def tables(database: Database) -> list[str]:
    with database.read() as tx:
        if tx.on_sqlite:
            rows = tx.all("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        else:
            rows = tx.all("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    return [row["name"] for row in rows]


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


def test_up_to_date_database_is_opened_without_importing_alembic(migrated_sqlite: Path):
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
