"""A data directory of its own for each test, the command to use it with, and rows to fill its log with."""

import io
import itertools
import json
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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
from hookmill.store.identity_segments import FIRST_SEGMENT
from tests.support.names import names_not_in_snake_case

START_US = 1_795_252_356_000_000
"""2026-11-21 09:12:36 UTC."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed, and how it ended."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return named_in_snake_case(json.loads(self.raw))

    @property
    def json_lines(self) -> list[Any]:
        return [named_in_snake_case(json.loads(line)) for line in self.raw.splitlines()]


def named_in_snake_case(printed: Any) -> Any:
    """What a command printed with `--json`, in which every name must be in snake_case."""
    assert names_not_in_snake_case(printed) == []
    return printed


Hookmill = Callable[..., Printed]


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's data will live. Nothing is there yet."""
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "DATABASE_URL", "HOST", "PORT", "PROCESSES", "BASE_URL", "MASTER_KEY"):
        # Set first, so that what an option of `serve` sets goes with the test.
        monkeypatch.setenv(f"HOOKMILL_{name}", "")
        monkeypatch.delenv(f"HOOKMILL_{name}")
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def hookmill(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Hookmill:
    """The command, in this process: `hookmill("webhook", "list")`. `ends` is the exit code that is expected."""

    def run(*arguments: str, stdin: bytes = b"", ends: int = 0) -> Printed:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        captured = capsysbinary.readouterr()
        printed = Printed(int(ended.value.code or 0), captured.out, captured.err.decode())
        assert printed.code == ends, f"{arguments} ended with {printed.code}:\n{printed.err}{printed.raw!r}"
        return printed

    return run


@dataclass(slots=True)
class Log:
    """Writes rows as admission and the runs' engine would have, at times of the test's choice."""

    path: Path
    _entropy: "itertools.count[int]" = field(default_factory=itertools.count)

    def delivery(
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
        # A sender's or provider's id is found by its digest, as admission writes it.
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
                    ids.delivery_key(duplicate_of) if duplicate_of is not None else None,
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

    def deliveries(self, webhook_uid: str, count: int) -> list[str]:
        """Many, a microsecond apart."""
        keys = [self._key(START_US + number) for number in range(count)]
        with closing(sqlite3.connect(self.path)) as connection, connection:
            (number,) = connection.execute("SELECT no FROM webhooks WHERE uid = ?", (webhook_uid,)).fetchone()
            connection.executemany(
                "INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size) "
                "VALUES (?, ?, ?, 3, 2, 7)",
                [(key, number, START_US + place) for place, key in enumerate(keys)],
            )
        return [ids.delivery_id(key) for key in keys]

    def run(
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
    ) -> str:
        key = self._key(at)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                """
                INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state,
                                  attempt, created_at, started_at, finished_at, output_tail, reason, exit_status)
                SELECT ?, d.id, d.webhook_no, a.factory_id, a.id, a.version, ?, ?, ?, ?, ?, ?, ?, ?
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
                    automation_id,
                    ids.delivery_key(delivery_id),
                ),
            )
        return ids.run_id(key)

    def refused(self, webhook_uid: str, kind: str, counts: Sequence[tuple[int, int]]) -> None:
        """Counters: minutes after the start of START_US's hour, and how many were refused in each."""
        hour = START_US - START_US % 3_600_000_000
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(
                "INSERT INTO dropped_attempts (webhook_no, minute, kind, count) "
                "SELECT no, ?, ?, ? FROM webhooks WHERE uid = ?",
                [(hour + minute * 60_000_000, kind, count, webhook_uid) for minute, count in counts],
            )

    def _key(self, at: int) -> bytes:
        return ids.time_ordered_key(at, next(self._entropy).to_bytes(8, "big"))


@pytest.fixture
def log(data_dir: Path, migrated_sqlite: Path) -> Log:
    """The log of an installation that is set up and empty."""
    data_dir.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, data_dir / "hookmill.db")
    settings = read_settings()
    store = app.open_store(settings, create=True)
    app.build_management(settings, store).factories.set_up()
    store.close()
    return Log(data_dir / "hookmill.db")


@pytest.fixture
def webhook(log: Log, hookmill: Hookmill) -> Any:
    """A webhook named `source`, as its creation printed it."""
    return hookmill("webhook", "create", "source", "--json").json


@pytest.fixture
def automation(webhook: Any, hookmill: Hookmill) -> Any:
    """An automation named `triage` that `source` starts, as its creation printed it."""
    return hookmill("automation", "create", "triage", "--prompt", "Look.", "--webhook", "source", "--json").json


@dataclass(slots=True)
class Receiver:
    """Answers every POST alike, and keeps what was sent."""

    url: str = ""
    status: int = 202
    answer: bytes = b'{"delivery_id": "dlv_1"}'
    headers: dict[str, str] = field(default_factory=dict)
    reads_the_body: bool = True
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told = Receiver()

    class Channel(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = b""
            if told.reads_the_body:
                body = self.rfile.read(int(self.headers["Content-Length"]))
            told.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told.answer)))
            if not told.reads_the_body:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(told.answer)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Channel) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield told
        server.shutdown()
        serving.join()
