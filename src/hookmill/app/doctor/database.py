"""Checks of the database and of the master keys that seal its secrets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hookmill.app import keys, now_us
from hookmill.app.first_start import refuse_lost_database
from hookmill.domain.errors import Invalid
from hookmill.domain.finding import Finding, ok, problem, warning
from hookmill.domain.queue import host_and_pid, is_recent_heartbeat
from hookmill.settings import Settings
from hookmill.store import metadata, moved, secrets
from hookmill.store.database import POSTGRES_CONNECTIONS, Database, Transaction, open_database
from hookmill.store.dialect import server_time
from hookmill.store.inspection import (
    PostgresState,
    inspecting,
    postgres_state,
    sqlite_integrity,
    uses_wal,
)
from hookmill.store.keys import binding
from hookmill.store.privileges import refuse_missing_privilege
from hookmill.store.revision import OTHER_SCHEMA_ADVICE, revisions, stored_revision
from hookmill.store.runs import executors

INTEGRITY_SECONDS: Final = 10.0
"""How long the check of a SQLite file may take."""
WAL_BYTES_MAX: Final = 256 * 1024 * 1024
"""Checkpoints keep the WAL below half of this size, unless a transaction stays open."""
CLOCK_SECONDS: Final = 2.0
"""Hosts with a difference below this count as having the same time."""
CLOCK_SECONDS_MAX: Final = 30.0
"""With a larger difference, rate limits and the age of signatures are clearly wrong."""
CONNECTIONS_OF_INGRESS: Final = 4
"""The connections of an ingress process and of its writer process, without those for management."""
CONNECTIONS_OF_WORKER: Final = POSTGRES_CONNECTIONS + 1
"""The connections of a worker: its pool, and the connection that listens. One for each run is extra."""


def _exists(database: Database) -> bool:
    """False if it is a SQLite file that does not exist yet, or another file."""
    return database.path is None or database.has_sqlite_file()


@contextmanager
def inspected(settings: Settings, *, is_sqlite: bool | None = None) -> Iterator[Transaction | None]:
    """A read transaction; None if there is no database yet, or if `is_sqlite` excludes it."""
    if is_sqlite is not None and is_sqlite == settings.on_postgres:
        yield None
        return
    with open_database(settings.store_url(), connections=2) as database:
        if not _exists(database):
            yield None
            return
        with inspecting(database) as tx:
            yield tx


@contextmanager
def inspected_tables(settings: Settings) -> Iterator[Transaction | None]:
    """A read transaction; None if the first start has yet to create the tables."""
    with inspected(settings) as tx:
        yield tx if tx is not None and metadata.table_exists(tx) else None


def check_database(settings: Settings) -> Iterator[Finding]:
    with open_database(settings.store_url(), connections=2) as database:
        if database.path is not None:
            if database.path.exists() and database.path.stat().st_size and not database.has_sqlite_file():
                raise Invalid(f"{database.path} is not a SQLite database. Move it, or restore it from a backup.")
            if not _exists(database):
                refuse_lost_database(settings, database)
                yield ok(f"{database.path} does not exist yet; the first start creates it")
                return
        # Before the transaction: closing a descriptor of the file would release its locks.
        is_wal = database.path is not None and uses_wal(database.path)
        with inspecting(database) as tx:
            if metadata.table_exists(tx):
                moved.refuse_marked(tx)
            if database.path is None:
                yield from _findings_of_postgres(postgres_state(tx, now_us()))
            else:
                yield ok(f"SQLite, {database.path.stat().st_size / 1_000_000:,.1f} MB in {database.path}")
                yield from _findings_of_wal(database, is_wal=is_wal)
        refuse_lost_database(settings, database)


def _findings_of_wal(database: Database, *, is_wal: bool) -> Iterator[Finding]:
    assert database.path is not None
    wal = database.path.with_name(f"{database.path.name}-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    if not is_wal:
        yield warning(
            f"{database.path} is not in WAL mode, so readers and deliveries wait for each other",
            "Start the service, which sets it to WAL. If it stays, the file system has no shared memory.",
        )
    if wal_bytes > WAL_BYTES_MAX:
        yield warning(
            f"the WAL {wal} has {wal_bytes / 1_000_000:,.0f} MB, because a program keeps a transaction open",
            "End other programs that have the database open, such as a backup or the sqlite3 shell.",
        )


def _findings_of_postgres(state: PostgresState) -> Iterator[Finding]:
    if state.is_standby:
        yield problem(
            "this PostgreSQL server is a standby, and accepts no writes",
            "Set HOOKMILL_DATABASE_URL to the primary server.",
        )
    elif state.is_read_only:
        yield problem(
            "transactions of this role are read-only (default_transaction_read_only)",
            "Run: ALTER ROLE … RESET default_transaction_read_only, and check ALTER DATABASE … SET.",
        )
    else:
        yield ok(f"PostgreSQL {state.version}, which accepts writes, and encodes text as UTF8")
    if state.replaced_settings:
        yield ok(
            "the role, the database, the server or the URL sets what the service replaces in its sessions: "
            + ", ".join(state.replaced_settings),
        )


def check_schema(settings: Settings) -> Iterator[Finding]:
    with inspected(settings) as tx:
        if tx is None:
            return
        revision = stored_revision(tx)
    newest = revisions()[-1]
    if revision is None:
        yield ok("the database is empty; the first start creates the schema")
    elif revision == newest:
        yield ok(f"{revision}, which this version needs")
    else:
        advice = "Run `hookmill migrate`." if revision in revisions() else OTHER_SCHEMA_ADVICE
        yield problem(f"the database has schema {revision}, and this version needs {newest}", advice)


def check_integrity(settings: Settings) -> Iterator[Finding]:
    with inspected(settings, is_sqlite=True) as tx:
        if tx is None:
            return
        integrity = sqlite_integrity(tx, INTEGRITY_SECONDS)
    if integrity.damages:
        yield problem(
            f"the SQLite file is damaged: {'; '.join(integrity.damages)}",
            "Stop the service, copy the data directory, and restore the database from a backup.",
        )
    elif not integrity.is_complete:
        yield ok(f"no damage, in the part of the SQLite file that was read in {INTEGRITY_SECONDS:g} s")
    else:
        yield ok("the structure of the SQLite file has no damage")


def check_pooler(settings: Settings) -> Iterator[Finding]:
    if not settings.on_postgres:
        return
    from hookmill.store.pooler import refuse_pooler

    with open_database(settings.store_url(), connections=2) as database:
        refuse_pooler(database)
    yield ok("sessions keep their settings, so no unsuitable connection pooler is in between")


def check_privileges(settings: Settings) -> Iterator[Finding]:
    with inspected(settings, is_sqlite=False) as tx:
        if tx is None:
            return
        if stored_revision(tx) != revisions()[-1]:
            refuse_missing_privilege(tx)
    yield ok("the role has what the service needs")


def check_durability(settings: Settings) -> Iterator[Finding]:
    with inspected(settings, is_sqlite=False) as tx:
        if tx is None:
            return
        state = postgres_state(tx, now_us())
    # The service sets synchronous_commit for its own sessions.
    off = [
        setting
        for setting, is_on in (("fsync", state.fsync), ("full_page_writes", state.full_page_writes))
        if not is_on
    ]
    if off:
        yield problem(
            f"{' and '.join(off)} of the PostgreSQL server is off: a power failure can damage the database, and lose "
            "deliveries that were answered 202",
            f"Set {' and '.join(f'{setting} = on' for setting in off)} in postgresql.conf, and reload the server.",
        )
    else:
        yield ok("the PostgreSQL server syncs each commit (fsync and full_page_writes are on)")


def check_connections(settings: Settings) -> Iterator[Finding]:
    with inspected(settings, is_sqlite=False) as tx:
        if tx is None:
            return
        state = postgres_state(tx, now_us())
        now = server_time(tx) or now_us()
        heartbeats = executors.last_heartbeats(tx) if metadata.table_exists(tx) else {}
    live_hosts = {
        host_and_pid(executor)[0] for executor, seen_at in heartbeats.items() if is_recent_heartbeat(seen_at, now)
    }
    needed = settings.processes * (CONNECTIONS_OF_INGRESS + POSTGRES_CONNECTIONS)
    needed += CONNECTIONS_OF_WORKER + settings.runs_at_once
    available = state.connections_max - state.connections_of_others
    hosts = max(available, 0) // needed
    text = (
        f"this host needs up to {needed} connections to PostgreSQL. The server, the database and the role allow "
        f"{state.connections_max}, of which other programs use {state.connections_of_others} now. That is enough for "
        f"{hosts} {'host' if hosts == 1 else 'hosts'} with these settings"
    )
    if hosts < max(len(live_hosts), 1):
        yield warning(
            f"{text}, and {len(live_hosts)} hosts have live workers" if len(live_hosts) > 1 else text,
            "Raise max_connections (or the CONNECTION LIMIT of the role or database), or lower processes or "
            "runs_at_once.",
        )
    else:
        yield ok(text)


def check_master_key(settings: Settings) -> Iterator[Finding]:
    file = keys.key_file(settings)
    place = f"in {file.path}" if file is not None else "in HOOKMILL_MASTER_KEY"
    with inspected_tables(settings) as tx:
        in_use = binding.keys_in_use(tx) if tx is not None else None
        if tx is None or in_use is None:
            if file is None or file.exists():
                keys.key_ring(settings)
                yield ok(f"valid, {place}; no database uses it yet")
            else:
                yield ok("the first start creates it")
            return
        ring = keys.key_ring(settings)
        binding.check_keys_in_use(in_use, ring)
        version_id = secrets.version_sealed_with(tx, in_use.sealing_id)
        if version_id is not None:
            secrets.reveal(tx, version_id, ring)
    yield ok(f"the database's key {in_use.sealing_id} is {place}")
    if in_use.retiring_ids:
        yield warning(
            f"a rotation is unfinished: the database still needs {', '.join(in_use.retiring_ids)}, too",
            "Run `hookmill keys rotate`, which finishes it.",
        )


def check_clock(settings: Settings) -> Iterator[Finding]:
    with inspected(settings) as tx:
        if tx is None:
            return
        if not settings.on_postgres:
            yield from _findings_of_stored_times(tx)
            return
        state = postgres_state(tx, now_us())
        yield from _findings_of_stored_times(tx)
    yield clock_finding("the PostgreSQL server", state.clock_ahead_us / 1e6, state.query_us / 2e6)


def clock_finding(other: str, ahead_seconds: float, uncertainty_seconds: float) -> Finding:
    """The difference between the clock of this host and another one. `ahead_seconds`: how far the other is ahead."""
    difference = max(0.0, abs(ahead_seconds) - uncertainty_seconds)
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    if difference <= CLOCK_SECONDS:
        return ok(f"the clocks of this host and {other} agree within {CLOCK_SECONDS:g} s")
    text = f"the clock of {other} is {difference:,.0f} s {direction} that of this host"
    advice = (
        "Synchronize both clocks, such as with chrony. Rate limits, the age of signatures and retention depend on them."
    )
    return problem(text, advice) if difference > CLOCK_SECONDS_MAX else warning(text, advice)


def _findings_of_stored_times(tx: Transaction) -> Iterator[Finding]:
    """A warning if the database has a time in the future, so that this host's clock was set back."""
    last_pass = metadata.retention_clock(tx) if metadata.table_exists(tx) else None
    ahead_seconds = (last_pass - now_us()) / 1e6 if last_pass is not None else 0.0
    if ahead_seconds > CLOCK_SECONDS_MAX:
        yield warning(
            f"retention's last pass is {ahead_seconds:,.0f} s in the future, so a clock was wrong",
            "Check the clock of this host, and of every other one that uses the database.",
        )
