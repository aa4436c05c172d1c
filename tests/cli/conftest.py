"""Fixtures: a data directory, the command `hookmill`, a log to write rows to, and a receiver for `hookmill send`."""

import io
import itertools
import json
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hookmill import app, cli
from hookmill.domain import ids
from hookmill.domain.delivery import IdentityKind, Label, possible_identity_digests
from hookmill.domain.run import RunState
from hookmill.settings import read_settings
from hookmill.store import factories
from hookmill.store.database import open_database, sqlite_url
from hookmill.store.identity_segments import FIRST_SEGMENT
from tests.support.alarms import add_alarm
from tests.support.names import names_not_in_snake_case

START_US = 1_795_252_356_000_000
"""2026-11-21 09:12:36 UTC."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code of a command, and the output it wrote."""

    exit_code: int
    out_bytes: bytes
    err: str

    @property
    def out(self) -> str:
        return self.out_bytes.decode()

    @property
    def json(self) -> Any:
        return parse_json(self.out_bytes)

    @property
    def json_lines(self) -> list[Any]:
        return [parse_json(line) for line in self.out_bytes.splitlines()]


def parse_json(output: str | bytes) -> Any:
    """The output of a command with `--json`. Requires that every name in it is in snake_case."""
    parsed = json.loads(output)
    assert names_not_in_snake_case(parsed) == []
    return parsed


Hookmill = Callable[..., CommandResult]


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the test's data directory, which does not exist yet."""
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "DATABASE_URL", "HOST", "PORT", "PROCESSES", "BASE_URL", "MASTER_KEY", "SERVER", "API_KEY"):
        # `setenv` first: then the test's end also removes a variable that an option of `serve` has set.
        monkeypatch.setenv(f"HOOKMILL_{name}", "")
        monkeypatch.delenv(f"HOOKMILL_{name}")
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "data"


@pytest.fixture
def hookmill(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Hookmill:
    """Runs the command in this process: `hookmill("webhook", "list")`. Requires `exit_code`, unless that is None."""

    def run(*arguments: str, stdin: bytes = b"", exit_code: int | None = 0) -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as system_exit:
            cli.main(arguments)
        captured = capsysbinary.readouterr()
        result = CommandResult(int(system_exit.value.code or 0), captured.out, captured.err.decode())
        assert exit_code is None or result.exit_code == exit_code, f"{arguments} ended with {result}"
        return result

    return run


@dataclass(slots=True)
class LogWriter:
    """Writes the rows that admission and the worker would write, with times that the test chooses."""

    path: Path
    _entropy: "itertools.count[int]" = field(default_factory=itertools.count)

    def execute(self, statement: str, parameters: Any = ()) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement, parameters)

    def add_alarm(
        self, factory: str | None, subject_id: str, *, at: int = START_US, resolved_at: int | None = None
    ) -> str:
        """Add an alarm of a factory, by its name, or of the installation. Returns its id."""
        with open_database(sqlite_url(self.path)) as database:
            with database.read() as tx:
                found = factories.factory_named(tx, factory) if factory is not None else None
            return add_alarm(
                database, found.id if found is not None else None, subject_id, at=at, resolved_at=resolved_at
            )

    def add_delivery(
        self,
        webhook_uid: str,
        label: Label = Label.ACCEPTED,
        *,
        body: bytes = b"{}",
        at: int = START_US,
        identity: str | None = None,
        identity_kind: IdentityKind | None = None,
        duplicate_of: str | None = None,
        reason: str | None = None,
        event: str | None = None,
    ) -> str:
        key = self._key(at)
        # Admission stores the digest of an id from the sender or provider, and looks it up by this digest.
        digest = possible_identity_digests(identity)[identity_kind - 1] if identity and identity_kind else key
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                """
                INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size,
                                        identity_kind, identity, identity_digest, duplicate_of, reason, event,
                                        event_signed)
                SELECT ?, no, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ? FROM webhooks WHERE uid = ?
                """,
                (
                    key,
                    at,
                    int(label),
                    len(body),
                    int(identity_kind) if identity_kind is not None else None,
                    identity,
                    digest,
                    ids.delivery_key(duplicate_of) if duplicate_of else key if label is Label.DUPLICATE else None,
                    reason,
                    event,
                    False if event is not None else None,
                    webhook_uid,
                ),
            )
            if label is Label.ACCEPTED:
                connection.execute("INSERT INTO payloads (delivery_id, body) VALUES (?, ?)", (key, body))
                connection.execute(
                    """
                    INSERT INTO identities (segment, webhook_no, digest, delivery_id, kind, claimed_at)
                    SELECT ?, no, ?, ?, ?, ? FROM webhooks WHERE uid = ?
                    """,
                    (FIRST_SEGMENT, digest, key, int(identity_kind or IdentityKind.BODY_SHA256), at, webhook_uid),
                )
        return ids.delivery_id(key)

    def add_deliveries(self, webhook_uid: str, count: int) -> list[str]:
        """Add deliveries that were received a microsecond apart."""
        keys = [self._key(START_US + number) for number in range(count)]
        with closing(sqlite3.connect(self.path)) as connection, connection:
            (webhook_no,) = connection.execute("SELECT no FROM webhooks WHERE uid = ?", (webhook_uid,)).fetchone()
            connection.executemany(
                "INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size) "
                "VALUES (?, ?, ?, 3, 2, 7)",
                [(key, webhook_no, START_US + number) for number, key in enumerate(keys)],
            )
        return [ids.delivery_id(key) for key in keys]

    def add_run(
        self,
        delivery_id: str,
        automation_id: str,
        state: RunState = RunState.QUEUED,
        *,
        at: int = START_US,
        attempt: int = 0,
        output_tail: str | None = None,
        reason: str | None = None,
        exit_status: int | None = None,
        executor: str | None = None,
    ) -> str:
        key = self._key(at)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                """
                INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state,
                                  attempt, created_at, started_at, finished_at, output_tail, reason, exit_status,
                                  executor, claimed_at)
                SELECT ?, d.id, d.webhook_no, a.factory_id, a.id, a.version, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
                FROM deliveries d JOIN automations a ON a.id = ?
                WHERE d.id = ?
                """,
                (
                    key,
                    state.value,
                    attempt,
                    at,
                    at if attempt else None,
                    at + 1_500_000 if state.is_final else None,
                    output_tail,
                    reason,
                    exit_status,
                    executor or ("host-1-a" if state is RunState.RUNNING else None),
                    at if state is RunState.RUNNING else None,
                    automation_id,
                    ids.delivery_key(delivery_id),
                ),
            )
        return ids.run_id(key)

    def add_dropped_attempts(self, webhook_uid: str, kind: str, counts: Mapping[int, int]) -> None:
        """Add counts of dropped attempts. `counts` has a count for each minute in the hour of `START_US`."""
        hour = START_US - START_US % 3_600_000_000
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(
                "INSERT INTO dropped_attempts (webhook_no, minute, kind, count) "
                "SELECT no, ?, ?, ? FROM webhooks WHERE uid = ?",
                [(hour + minute * 60_000_000, kind, count, webhook_uid) for minute, count in counts.items()],
            )

    def _key(self, at: int) -> bytes:
        return ids.time_ordered_key(at, next(self._entropy).to_bytes(8, "big"))


@pytest.fixture
def log(data_dir: Path, migrated_sqlite: Path) -> LogWriter:
    """The log of a new installation. It is empty."""
    data_dir.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, data_dir / "hookmill.db")
    (data_dir / "hookmill.db").chmod(0o600)
    settings = read_settings()
    store = app.open_store(settings, create=True)
    app.build_management(settings, store).factories.set_up()
    store.close()
    return LogWriter(data_dir / "hookmill.db")


@pytest.fixture
def webhook(log: LogWriter, hookmill: Hookmill) -> Any:
    """The JSON that the creation of the webhook `source` printed."""
    return hookmill("webhook", "create", "source", "--json").json


@pytest.fixture
def automation(webhook: Any, hookmill: Hookmill) -> Any:
    """The JSON that the creation of the automation `triage` printed. Deliveries to `source` start it."""
    return hookmill("automation", "create", "triage", "--prompt", "Look.", "--webhook", "source", "--json").json


@dataclass(slots=True)
class Receiver:
    """An HTTP server that gives the same answer to every POST, and stores the requests."""

    url: str = ""
    status: int = 202
    answer: bytes = b'{"delivery_id": "dlv_1"}'
    headers: dict[str, str] = field(default_factory=dict)
    reads_body: bool = True
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = b""
            if receiver.reads_body:
                body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.answer)))
            if not receiver.reads_body:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(receiver.answer)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()
