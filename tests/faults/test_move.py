"""The move from SQLite to PostgreSQL is killed at each kind of step. The service continues on PostgreSQL."""

import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from hookmill import app
from hookmill.domain.delivery import Label
from hookmill.domain.errors import Conflict, StoreUnavailable
from hookmill.settings import Settings
from tests.faults.mover import move_until
from tests.faults.parts import all_processes_of, still_running
from tests.support.automations import automation_created
from tests.support.counts import only_in_proof
from tests.support.loaded import Command, Forked
from tests.support.odd_rows import fill, relations, rows_of_postgres, rows_of_sqlite
from tests.support.service import create_webhook, operator, serving
from tests.support.stores import migrated_sqlite_file
from tests.support.triggers import received
from tests.support.waiting import LONG_SECONDS, until

BEFORE_SQLITE_IS_MARKED = "sqlite COMMIT"
MARKED = "sqlite after COMMIT"
COMPLETE = "postgres after COMMIT"
UNUSED_FILES = (
    "hookmill.db",
    "hookmill.db-wal",
    "hookmill.db-shm",
    "hookmill.db.writer",
    "worker.lock",
)
"""The files that docs/moving-to-postgresql.md lets operators delete after the move."""


@dataclass(slots=True)
class Move:
    """The move of an installation. The tests start its command repeatedly."""

    settings: Settings
    url: str
    directory: Path

    @property
    def sqlite(self) -> Path:
        return self.settings.data_dir / "hookmill.db"

    @property
    def output(self) -> Path:
        return self.directory / "output"

    def start(self, step: str = "", stop_signal: signal.Signals = signal.SIGKILL) -> Forked:
        self.output.unlink(missing_ok=True)
        return Forked(move_until, (step, stop_signal), os.environ | self.environment(), self.directory, self.output)

    def run(self, step: str = "") -> int:
        """Run the command, which is killed at the step. Returns its exit code."""
        code = self.start(step).wait(LONG_SECONDS)
        assert code in (0, 1, -signal.SIGKILL), self.output.read_text()
        return code

    def result(self) -> Any:
        """What the command has printed as JSON."""
        return json.loads(self.output.read_text().splitlines()[-1])

    def environment(self) -> dict[str, str]:
        account, _, rest = self.url.removeprefix("postgresql://").partition("@")
        user, _, password = account.partition(":")
        return {
            "HOOKMILL_DATA_DIR": str(self.settings.data_dir),
            "HOOKMILL_TEST_TO": f"postgresql://{user}@{rest}",
            "PGPASSWORD": password,
        }

    def start_refusal(self, url: str | None = None) -> str:
        """Why a service can't start on SQLite, or on the database at `url`. An empty string if it can."""
        settings = Settings(data_dir=self.settings.data_dir, database_url=url)  # type: ignore[arg-type]
        try:
            app.open_store(settings, create=True).close()
        except Conflict as error:
            return str(error)
        return ""


@pytest.fixture
def move(tmp_path, postgres_url):
    """The move of an installation that has a few rows in each table."""
    settings = Settings(data_dir=tmp_path / "data")
    settings.data_dir.mkdir()
    shutil.copy(migrated_sqlite_file(), settings.data_dir / "hookmill.db")
    store = app.open_store(settings, create=True)
    app.build_management(settings, store).factories.set_up()
    store.close()
    fill(settings.data_dir / "hookmill.db")
    return Move(settings, postgres_url, tmp_path)


@pytest.mark.parametrize(
    ("step", "is_marked"),
    [only_in_proof("sqlite BEGIN", False), (BEFORE_SQLITE_IS_MARKED, False), (MARKED, True)],
)
def test_move_that_was_killed_left_everything_to_the_next_one(move, step, is_marked):
    before = rows_of_sqlite(move.sqlite)

    assert move.run(step) == -signal.SIGKILL

    assert relations(move.url) == []
    assert rows_of_sqlite(move.sqlite) == before
    assert ("was moved to" in move.start_refusal()) == is_marked
    assert move.run() == 0, move.output.read_text()
    assert rows_of_postgres(move.url) == before
    assert move.start_refusal(move.url) == ""
    assert "was moved to" in move.start_refusal()


def test_move_that_was_killed_after_its_end_is_complete(move):
    before = rows_of_sqlite(move.sqlite)

    assert move.run(COMPLETE) == -signal.SIGKILL

    assert move.run() == 1
    assert "The data of this SQLite database was moved to" in move.output.read_text()
    assert rows_of_postgres(move.url) == before
    assert move.start_refusal(move.url) == ""
    assert "was moved to" in move.start_refusal()


def test_running_move_blocks_the_service_and_other_moves(move):
    process = start_paused(move)

    with pytest.raises(StoreUnavailable, match="locked"):
        move.start_refusal()
    environment = os.environ | move.environment()
    other_output = move.directory / "other"
    arguments = ["move", "--to", environment["HOOKMILL_TEST_TO"]]
    other = Command(arguments, environment, move.directory, other_output)
    assert other.wait(LONG_SECONDS) == 1
    assert "`move` or `restore` uses the data directory" in other_output.read_text()
    process.send_signal(signal.SIGCONT)

    assert process.wait(LONG_SECONDS) == 0, move.output.read_text()
    assert rows_of_postgres(move.url) == rows_of_sqlite(move.sqlite)


def lose_connection(move: Move, process: Forked):
    with psycopg.connect(move.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def press_ctrl_c(move: Move, process: Forked):
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("interrupt", [lose_connection, press_ctrl_c])
def test_interrupted_move_says_what_to_do(move, interrupt):
    process = start_paused(move)
    interrupt(move, process)
    process.send_signal(signal.SIGCONT)

    assert process.wait(LONG_SECONDS) == 1
    output = move.output.read_text()
    assert "The move was interrupted" in output
    assert "nothing is lost. Start the same command again.\n" in output
    assert "Traceback" not in output
    assert move.run() == 0, move.output.read_text()
    assert rows_of_postgres(move.url) == rows_of_sqlite(move.sqlite)


def start_paused(move: Move) -> Forked:
    """Start a move, and wait until it is stopped with open transactions on both databases."""
    process = move.start(BEFORE_SQLITE_IS_MARKED, signal.SIGSTOP)
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "the move is paused")
    return process


def test_service_continues_on_postgresql_where_it_stopped_on_sqlite(tmp_path, postgres_url):
    notes, block = tmp_path / "notes", tmp_path / "block"
    block.touch()
    command = f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {notes}; [ -e {block} ] && sleep 600; true'
    settings: dict[str, Any] = {
        "runners": json.dumps({"note": {"argv": ["sh", "-c", command]}}),
        "default_runner": "note",
        "runs_at_once": 1,
    }
    move = Move(Settings(data_dir=tmp_path / "data"), postgres_url, tmp_path)
    with serving(tmp_path / "data", **settings) as service:
        with service.management() as management:
            webhook = create_webhook(management, "source")
            trigger = received(webhook.webhook.uid)
            automation_created(management, operator(management), "note", triggers=[trigger], runner="note")
        accepted = [service.post(webhook, b'{"number": %d}' % number).delivery_id for number in range(3)]
        until(lambda: notes.exists() and notes.read_text(), "the first run has begun")
        assert move.run() == 1
        assert "A `hookmill serve`, `move` or `restore` uses the data directory" in move.output.read_text()
        # One run is running, and two are queued.
        processes = all_processes_of(service)
        service.kill()
        until(lambda: not still_running(processes), "all processes of the service have ended")
    block.unlink()

    assert move.run() == 0, move.output.read_text()

    assert move.result()["unfinished_runs"] == 3
    for name in UNUSED_FILES:
        (tmp_path / "data" / name).unlink(missing_ok=True)
    with serving(tmp_path / "data", database_url=postgres_url, **settings) as service:
        retries = [service.post(webhook, b'{"number": %d}' % number) for number in range(3)]
        new = service.post(webhook, b'{"number": 3}')
        with service.management() as management:
            may = operator(management)
            runs = until(lambda: _four_ended_runs(management, may), "all runs have ended")
            labels = {
                delivery: management.log.get(may, delivery).label
                for delivery in (*accepted, new.delivery_id, *(each.delivery_id for each in retries))
            }

    assert not {path.name for path in (tmp_path / "data").iterdir()}.intersection(UNUSED_FILES)
    assert [answer.status for answer in (*retries, new)] == [202] * 4
    assert list(labels.values()) == [Label.ACCEPTED] * 4 + [Label.DUPLICATE] * 3
    assert {run.state.value for run in runs} == {"succeeded"}
    attempts = [line.split() for line in notes.read_text().splitlines()]
    assert sorted(attempt for _, attempt in attempts) == ["1", "1", "1", "1", "2"]
    assert len({run for run, _ in attempts}) == 4


def _four_ended_runs(management: Any, may: Any) -> Any:
    runs = management.runs.oldest(may)
    return runs if len(runs) == 4 and all(run.state.is_final for run in runs) else None
