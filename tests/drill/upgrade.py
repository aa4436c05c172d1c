"""Upgrades a large installation of an older version, under load, with a backlog, and with runs in every state."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final

import psycopg

from hookmill.domain.delivery import IdentityKind, Label, RateLimit
from hookmill.domain.ids import run_id, time_ordered_key
from hookmill.domain.run import Hold, RunState
from hookmill.management import WebhookWithSecret
from hookmill.store import dialect
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database, open_database
from hookmill.store.migrate import stored_revision
from tests.drill.old_installation import HISTORY_WEBHOOKS, POLICIES, SENDERS_WEBHOOKS
from tests.drill.site import SETTINGS, DatabaseKind
from tests.faults.audit import audit, is_intact, wait_until_runs_have_ended
from tests.faults.senders import ACCEPTED, Event, LoadGenerator, PersistentConnection, delivery_request
from tests.support.digests import digests_of_queries, digests_of_tables
from tests.support.loaded import Command
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.service import Service
from tests.support.waiting import LONG_SECONDS, until

OLD_COMMIT: Final = "77abbc0670674970635257c3f68a6dfb3f07adc6"
OLD_REVISION: Final = "0016"
RUNS: Final = 300_000
BACKLOG_SHARE: Final = 0.034
NOTED_SHARE: Final = 0.1
"""The share of the backlog that a command performs, which adds notes. The other runs write their packages."""
BACKLOG_MIN: Final = 2_000
BATCH: Final = 10_000
DELIVERIES: Final = {"blocked": 2, "limited": 8, "debounced": 5, "retried": 4}
"""The number of deliveries to each webhook whose runs are running or held when the old version ends."""
PER_SECOND: Final = 100.0
URGENT_SHARE: Final = 0.05
OLD_LOAD_SECONDS: Final = 5.0
NEW_LOAD_SECONDS: Final = 5.0
COMMAND_SECONDS_MAX: Final = 900.0
DRAIN_SECONDS_MAX: Final = 120.0
RUNS_SECONDS_MAX: Final = 900.0
_SCRIPT: Final = Path(__file__).with_name("old_installation.py")
_REPOSITORY: Final = Path(__file__).parents[2]
_DAY_US: Final = 86_400_000_000

_ADD_DELIVERIES: Final = RowStatement(
    f"""
    WITH stored (id, webhook_no, received_at, digest) AS ({{rows}})
    INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size, identity_kind, identity_digest)
    SELECT id, webhook_no, received_at, {Label.ACCEPTED:d}, {RateLimit.DELIVERIES:d}, 11,
           {IdentityKind.BODY_SHA256:d}, digest
    FROM stored
    """,
    ("bytea", "int", "bigint", "bytea"),
)
_ADD_PAYLOADS: Final = RowStatement("INSERT INTO payloads (delivery_id, body) {rows}", ("bytea", "bytea"))
_ADD_IDENTITIES: Final = RowStatement(
    "INSERT INTO identities (webhook_no, digest, delivery_id, kind, claimed_at) {rows}",
    ("int", "bytea", "bytea", "smallint", "bigint"),
)
_ADD_ENDED_RUNS: Final = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt,
                      created_at, claimed_at, started_at, finished_at, output_tail)
    {rows}
    """,
    (
        *("bytea", "bytea", "int", "text", "text", "int", "text", "int"),
        *("bigint", "bigint", "bigint", "bigint", "text"),
    ),
)
_ADD_QUEUED_RUNS: Final = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt,
                      created_at)
    {rows}
    """,
    ("bytea", "bytea", "int", "text", "text", "int", "text", "int", "bigint"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeResult:
    kind: DatabaseKind
    runs: int
    rows: int
    """The number of rows in all tables before the upgrade."""
    states: Mapping[str, int]
    """The number of runs before the upgrade, by state and reason to wait."""
    seconds: Mapping[str, float]
    """The duration of each step."""
    accepted: int
    """The number of accepted deliveries, from before, during and after the upgrade."""
    violations: Mapping[str, int]
    """Counts that must be 0, by name."""

    @property
    def is_clean(self) -> bool:
        return not any(self.violations.values())


@dataclass(slots=True)
class _OldProcess:
    """A process of the older version, and the processes that it has started."""

    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LONG_SECONDS)


@dataclass(slots=True)
class _Installation:
    service: Service
    url: str
    notes: Path
    """The file to which each attempt of a command adds a line: the run's id and the attempt's number."""
    block: Path
    """While this file exists, the runs of the webhooks `blocked` and `limited` don't end."""
    old_code: Path
    """The directory with the package of the older version."""
    webhooks: Mapping[str, tuple[WebhookWithSecret, Sequence[str]]] = field(default_factory=dict)
    """Each webhook with the ids of the automations that its deliveries start."""

    def start_old(self, *arguments: str) -> _OldProcess:
        with (self.service.data_dir / "old.log").open("ab") as log:
            return _OldProcess(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "hookmill", *arguments],
                    cwd=self.service.data_dir,
                    env=self.old_environment(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def old_environment(self) -> dict[str, str]:
        return self.service.environment() | {"PYTHONPATH": str(self.old_code)}

    def old_log(self) -> str:
        return (self.service.data_dir / "old.log").read_text(errors="replace")[-1_000:]

    def migrate(self) -> tuple[int, str]:
        """Run this version's `hookmill migrate`. Returns its exit code and its output."""
        output = self.service.data_dir / "migrate.log"
        output.unlink(missing_ok=True)
        command = Command(["migrate"], self.service.environment(), self.service.data_dir, output)
        return command.wait(COMMAND_SECONDS_MAX), output.read_text()

    def events_of(self, name: str) -> list[Event]:
        webhook, automations = self.webhooks[name]
        return [
            Event(
                webhook, b'{"name": "%s", "number": %d}' % (name.encode(), number), automations=frozenset(automations)
            )
            for number in range(DELIVERIES[name])
        ]


def run_upgrade(kind: DatabaseKind, directory: Path, *, runs: int = RUNS, seed: int = 0) -> UpgradeResult:
    """Upgrade an installation with this many runs. Raises `AssertionError` if a step fails or takes too long."""
    seconds: dict[str, float] = {}
    with ExitStack() as stack:
        installation = _create(stack, kind, directory)
        port = installation.service.port
        with _timed(seconds, "fill"), open_database(installation.url) as database:
            assert _revision(database) == OLD_REVISION
            _fill(database, installation, runs, random.Random(seed))

        old_processes = [installation.start_old("serve")]
        stack.callback(old_processes[0].kill)
        if kind is DatabaseKind.POSTGRESQL:
            old_processes.append(installation.start_old("worker"))
            stack.callback(old_processes[1].kill)
        until(lambda: _is_ready(installation.service), lambda: f"the old version serves: {installation.old_log()}")
        policy_events = [event for name in POLICIES for event in installation.events_of(name)]
        _send_once(port, policy_events)

        chance = random.Random(seed)
        load = stack.enter_context(
            LoadGenerator(
                [port], lambda chance, number: _new_event(installation, chance, number), chance, per_second=PER_SECOND
            )
        )
        with open_database(installation.url) as database:
            until(
                lambda: _has_every_state(database),
                lambda: f"there are runs in every state: {_states(database)} {installation.old_log()}",
            )
        _wait_for_deliveries(load, PER_SECOND * OLD_LOAD_SECONDS)

        unrefused_migrations = 0
        stopped_at = time.monotonic()
        for process in old_processes:
            unrefused_migrations += not _is_migration_refused(installation)
            process.kill()
        _wait_until_unused(kind, installation.url)
        installation.block.unlink()

        tables_before = digests_of_tables(installation.url)
        with open_database(installation.url) as database:
            states = _states(database)
            assert _has_every_state(database), states
        empty_tables = [name for name, table in tables_before.items() if not table.rows]
        assert not empty_tables, f"these tables have no rows to upgrade: {empty_tables}"
        with _timed(seconds, "migrate"):
            code, output = installation.migrate()
        assert code == 0, output
        tables_after = digests_of_tables(
            installation.url, {name: table.columns for name, table in tables_before.items()}
        )
        history = _history_digest(installation)

        stack.callback(_kill_if_running, installation.service)
        with _timed(seconds, "start, until the first 202"):
            installation.service.start()
            until(lambda: load.last_accepted_at[port] > stopped_at, "the new version accepts deliveries")
        _wait_for_deliveries(load, load.accepted + PER_SECOND * NEW_LOAD_SECONDS)
        load.drain(DRAIN_SECONDS_MAX)
        with _timed(seconds, "backlog performed, after the load"):
            wait_until_runs_have_ended(installation.url, seconds=RUNS_SECONDS_MAX)
        old_accepted = int(installation.start_old("migrate").process.wait(COMMAND_SECONDS_MAX) == 0)
        unclean_stops = int(installation.service.stop() != 0)

        audit_result = audit(installation.url, [*load.events, *policy_events])
        violations = {
            **audit_result.counts(),
            **_audit_backlog(installation),
            "migrations_beside_old": unrefused_migrations,
            "old_accepted": old_accepted + ("which a newer version" not in installation.old_log()),
            "tables_changed_by_migration": sum(tables_before[name] != tables_after[name] for name in tables_before),
            "history_changed": int(_history_digest(installation) != history),
            "unexpected_answers": len(load.unexpected_answers),
            "unclean_stops": unclean_stops,
            "damaged_files": _count_damaged_files(kind, installation),
        }
        return UpgradeResult(
            kind=kind,
            runs=sum(states.values()),
            rows=sum(table.rows for table in tables_before.values()),
            states=states,
            seconds=seconds,
            accepted=audit_result.accepted,
            violations=violations,
        )


def extract_old_code(directory: Path, *, repository: Path = _REPOSITORY) -> Path:
    """The package of the older version, from the repository's history, in a directory for PYTHONPATH."""
    archived = subprocess.run(
        ["git", "archive", "--format=tar", OLD_COMMIT, "src"], cwd=repository, capture_output=True, timeout=60
    )
    if archived.returncode != 0:
        raise AssertionError(
            f"The upgrade drill needs commit {OLD_COMMIT[:12]}, and this repository does not have it. Clone the whole "
            f"history, or run `git fetch --unshallow`. git printed: {archived.stderr.decode().strip()}"
        )
    directory.mkdir()
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archived.stdout, timeout=60, check=True)
    return directory / "src"


def _create(stack: ExitStack, kind: DatabaseKind, directory: Path) -> _Installation:
    """Create an installation of the older version, without starting it."""
    notes, block = directory / "notes", directory / "block"
    notes.touch()
    block.touch()
    note = f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {notes}'
    commands = {
        "note": note,
        "block": f"{note}; while [ -e {block} ]; do sleep 0.1; done",
        "fail": f'{note}; [ "$HOOKMILL_ATTEMPT" != 1 ]',
    }
    runners = {name: {"argv": ["sh", "-c", command]} for name, command in commands.items()}
    url = None
    if kind is DatabaseKind.POSTGRESQL:
        url = stack.enter_context(PostgresServer.start()).create_database()
    service = Service(
        directory / "service",
        database_url=url,
        port=free_port(),
        settings={name.upper(): str(value) for name, value in SETTINGS.items()} | {"RUNNERS": json.dumps(runners)},
    )
    service.data_dir.mkdir(mode=0o700)
    installation = _Installation(
        service, service.read_settings().store_url(), notes, block, extract_old_code(directory / "old")
    )
    result = directory / "webhooks"
    created = subprocess.run(
        [sys.executable, "-P", str(_SCRIPT), str(result)],
        cwd=service.data_dir,
        env=installation.old_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert created.returncode == 0, created.stderr[-2_000:]
    # This file is the result of the script that has just run.
    installation.webhooks = pickle.loads(result.read_bytes())
    return installation


def _fill(database: Database, installation: _Installation, runs: int, chance: random.Random) -> None:
    """Add ended runs of the past days, a backlog, and rows in the tables that would otherwise be empty."""
    now = time.time_ns() // 1000
    backlog = max(BACKLOG_MIN, int(runs * BACKLOG_SHARE))
    noted = int(backlog * NOTED_SHARE)
    ended = runs - backlog
    final_states = [state for state in RunState if state.is_final]
    step = 5 * _DAY_US // ended
    for first in range(0, ended, BATCH):
        numbers = range(first, min(first + BATCH, ended))
        _add_runs(
            database,
            installation,
            [
                (
                    f"history-{number % HISTORY_WEBHOOKS}",
                    now - 5 * _DAY_US + number * step,
                    # Nearly all runs of an installation succeed.
                    chance.choice(final_states) if number % 20 == 0 else RunState.SUCCEEDED,
                )
                for number in numbers
            ],
            chance,
        )
    _add_runs(
        database,
        installation,
        [
            ("backlog-noted" if number < noted else "backlog", now + number, RunState.QUEUED)
            for number in range(backlog)
        ],
        chance,
    )
    with database.write() as tx:
        tx.run(
            "INSERT INTO dropped_attempts (webhook_no, minute, kind, count) VALUES (1, :now, 'rate_limited', 7)",
            now=now,
        )
        tx.run(
            """
            INSERT INTO idempotency_keys (id, request_digest, key_id, sealed, created_at)
            VALUES ('idempotency', :digest, 'key', :digest, :now)
            """,
            digest=chance.randbytes(32),
            now=now,
        )
        tx.run(
            """
            INSERT INTO sessions (digest, member_id, created_at, last_seen_at)
            SELECT :digest, MIN(id), :now, :now FROM members
            """,
            digest=chance.randbytes(32),
            now=now,
        )
        tx.run(
            """
            INSERT INTO definition_runs (factory_id, act, outcome, at, actor_name, summary, lines)
            SELECT MIN(id), 'plan', 'done', :now, 'operator', 'nothing to change', '[]' FROM factories
            """,
            now=now,
        )
        if not tx.on_sqlite:
            # Otherwise the server does so a minute after so many changes.
            dialect.allow_long_statements(tx, 600)
            tx.run("ANALYZE")


def _add_runs(
    database: Database,
    installation: _Installation,
    inputs: Sequence[tuple[str, int, RunState]],
    chance: random.Random,
) -> None:
    """Add deliveries, each with its run. `inputs` has for each run the webhook's name, the time, and the state."""
    deliveries, payloads, identities, ended_runs, queued_runs = [], [], [], [], []
    for name, at, state in inputs:
        webhook, (automation,) = installation.webhooks[name]
        key = bytearray(time_ordered_key(at, chance.randbytes(8)))
        digest = bytearray(chance.randbytes(16))
        deliveries.append((key, webhook.webhook.no, at, digest))
        payloads.append((key, bytearray(b'{"n": 1234}')))
        identities.append((webhook.webhook.no, digest, key, int(IdentityKind.BODY_SHA256), at))
        run_key = bytearray(time_ordered_key(at, chance.randbytes(8)))
        run = (run_key, key, webhook.webhook.no, str(webhook.webhook.factory_id), automation, 1, state.value)
        if state.is_final:
            ended_runs.append((*run, 1, at, at + 1, at + 2, at + 3, "done"))
        else:
            queued_runs.append((*run, 0, at))
    with database.write() as tx:
        dialect.allow_long_statements(tx, 60)
        _ADD_DELIVERIES.execute(tx, deliveries)
        _ADD_PAYLOADS.execute(tx, payloads)
        _ADD_IDENTITIES.execute(tx, identities)
        _ADD_ENDED_RUNS.execute(tx, ended_runs)
        _ADD_QUEUED_RUNS.execute(tx, queued_runs)


def _new_event(installation: _Installation, chance: random.Random, number: int) -> Event:
    webhook, automations = installation.webhooks[f"load-{number % SENDERS_WEBHOOKS}"]
    is_urgent = chance.random() < URGENT_SHARE
    body = b'{"number": %d, "urgent": %s}' % (number, b"true" if is_urgent else b"false")
    return Event(webhook, body, automations=frozenset(automations if is_urgent else ()))


def _send_once(port: int, events: Sequence[Event]) -> None:
    with PersistentConnection(port) as connection:
        for event in events:
            answer = connection.exchange(delivery_request(event.webhook, event.body))
            assert answer is not None
            assert answer.status == ACCEPTED, answer.body
            event.delivery_ids.append(answer.delivery_id)


def _wait_for_deliveries(load: LoadGenerator, deliveries: float) -> None:
    until(lambda: load.accepted >= deliveries, lambda: f"deliveries are accepted: {dict(load.answers)}")


def _is_ready(service: Service) -> bool:
    with suppress(OSError, HTTPException):
        return service.request("GET", "/readyz").status == 200
    return False


def _states(database: Database) -> Counter[str]:
    """The number of runs by state; of queued ones, by the reason why they wait."""
    with database.read() as tx:
        rows = tx.all("SELECT state, hold, COUNT(*) AS runs FROM runs GROUP BY state, hold")
    return Counter(
        {
            f"{row['state']}, {Hold(row['hold']).name.lower()}" if row["hold"] is not None else row["state"]: row[
                "runs"
            ]
            for row in rows
        }
    )


def _has_every_state(database: Database) -> bool:
    holds = [f"queued, {hold.name.lower()}" for hold in Hold if hold is not Hold.NEW]
    return {*(state.value for state in RunState), *holds} <= _states(database).keys()


def _revision(database: Database) -> str | None:
    with database.read() as tx:
        return stored_revision(tx.connection)


def _is_migration_refused(installation: _Installation) -> bool:
    """Whether `hookmill migrate` refuses, names the reason, and leaves the schema as it is."""
    code, output = installation.migrate()
    with open_database(installation.url) as database:
        is_old = _revision(database) == OLD_REVISION
    return code == 1 and is_old and "has an older schema, and" in output and "Nothing was changed." in output


def _wait_until_unused(kind: DatabaseKind, url: str) -> None:
    """Wait until PostgreSQL has ended the sessions of the killed processes."""
    if kind is not DatabaseKind.POSTGRESQL:
        return
    query = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'hookmill%' AND datname = current_database()"
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: connection.execute(query).fetchone() is None, "no process is connected")


def _history_digest(installation: _Installation) -> list[tuple[int, int]]:
    """Digests of the runs that had ended long before the upgrade, and of their deliveries."""
    numbers = ", ".join(
        str(webhook.webhook.no) for name, (webhook, _) in installation.webhooks.items() if name.startswith("history-")
    )
    return digests_of_queries(
        installation.url,
        f"""
        SELECT id, delivery_id, state, attempt, created_at, claimed_at, started_at, finished_at, output_tail
        FROM runs WHERE webhook_no IN ({numbers})
        """,
        f"""
        SELECT id, webhook_no, received_at, label, identity_digest, body
        FROM deliveries JOIN payloads ON delivery_id = id WHERE webhook_no IN ({numbers})
        """,
        f"SELECT digest, delivery_id, claimed_at FROM identities WHERE webhook_no IN ({numbers})",
    )


def _kill_if_running(service: Service) -> None:
    if service.process is not None and service.process.poll() is None:
        service.kill()


def _audit_backlog(installation: _Installation) -> dict[str, int]:
    """Violations among the runs of the old version, by name."""
    lines = [line.split() for line in installation.notes.read_text().splitlines()]
    performed = Counter((name, int(attempt)) for name, attempt in lines)
    with open_database(installation.url) as database, database.read() as tx:
        runs = {
            name: tx.all("SELECT id, attempt, state FROM runs WHERE webhook_no = :no", no=webhook.webhook.no)
            for name, (webhook, _) in installation.webhooks.items()
            if not name.startswith("history-")
        }
    debounced = Counter(row["state"] for row in runs.pop("debounced"))
    expected = {RunState.SUCCEEDED: 1, RunState.SUPERSEDED: DELIVERIES["debounced"] - 1}
    runs_with_notes = [row for name, rows in runs.items() if name != "backlog" for row in rows]
    return {
        "runs_not_succeeded": sum(row["state"] != RunState.SUCCEEDED for rows in runs.values() for row in rows),
        "runs_never_performed": sum((run_id(row["id"]), row["attempt"]) not in performed for row in runs_with_notes),
        "attempts_performed_twice": sum(count - 1 for count in performed.values()),
        "debounced_wrong": int(debounced != expected),
        "running_not_repeated": sum(row["attempt"] < 2 for row in runs["blocked"]),
    }


def _count_damaged_files(kind: DatabaseKind, installation: _Installation) -> int:
    if kind is not DatabaseKind.SQLITE:
        return 0
    return int(not is_intact(installation.service.data_dir / "hookmill.db"))


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Add the duration of the block to `seconds`."""
    began = time.monotonic()
    yield
    seconds[step] = time.monotonic() - began
