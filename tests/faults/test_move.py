"""The move from SQLite to PostgreSQL, interrupted at every kind of step; and the service, which continues there."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
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
from tests.faults.parts import everything_of, still_running
from tests.support.counts import count
from tests.support.loaded import Command, Forked
from tests.support.odd_rows import ROWS, fill, rows_of_postgres, rows_of_sqlite
from tests.support.service import operator, serving
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import LONG_SECONDS, until

KILLS_MIN = 6
FURTHER = count(2, usually=4)
"""Each start takes so many more steps than the one before. Not a multiple of the three steps of a transaction."""
NEVER = 0
"""The number of no step."""
IN_SECOND_BATCH = 12
"""Before its COMMIT. SQLite's BEGIN and the transactions of the tables, the mark and the first batch precede it."""


@dataclass(slots=True)
class Move:
    """A move of an installation, whose command is started again and again."""

    settings: Settings
    url: str
    directory: Path

    @property
    def sqlite(self) -> Path:
        return self.settings.data_dir / "hookmill.db"

    @property
    def output(self) -> Path:
        return self.directory / "output"

    def start(self, step: int | str = NEVER, stop: signal.Signals = signal.SIGKILL) -> Forked:
        self.output.unlink(missing_ok=True)
        return Forked(move_until, (step, stop), os.environ | self.environment(), self.directory, self.output)

    def run(self, step: int | str = NEVER) -> int:
        """The exit code of the command, which is killed at the step."""
        code = self.start(step).wait(LONG_SECONDS)
        assert code in (0, 1, -signal.SIGKILL), self.output.read_text()
        return code

    def printed(self) -> Any:
        return json.loads(self.output.read_text().splitlines()[-1])

    def environment(self) -> dict[str, str]:
        account, _, rest = self.url.removeprefix("postgresql://").partition("@")
        user, _, password = account.partition(":")
        return {
            "HOOKMILL_DATA_DIR": str(self.settings.data_dir),
            "HOOKMILL_TEST_TO": f"postgresql://{user}@{rest}",
            "PGPASSWORD": password,
        }

    def refused_start(self, url: str | None = None) -> str:
        """Why a service can't start on SQLite, or at the URL; "" if it can."""
        settings = Settings(data_dir=self.settings.data_dir, database_url=url)  # type: ignore[arg-type]
        try:
            app.open_store(settings, create=True).close()
        except Conflict as error:
            return str(error)
        return ""


@pytest.fixture
def move(tmp_path: Path, postgres_url: str) -> Move:
    """The move of an installation with a few rows in every table."""
    settings = Settings(data_dir=tmp_path / "data")
    settings.data_dir.mkdir()
    shutil.copy(migrated_sqlite_file(), settings.data_dir / "hookmill.db")
    store = app.open_store(settings, create=True)
    app.build_management(settings, store).factories.set_up()
    store.close()
    fill(settings.data_dir / "hookmill.db")
    return Move(settings, postgres_url, tmp_path)


def test_a_move_killed_at_any_step_is_continued_by_the_next(move: Move):
    before = rows_of_sqlite(move.sqlite)
    kills = 0
    while (code := move.run(step=1 + FURTHER * kills)) == -signal.SIGKILL:
        kills += 1
        assert rows_of_sqlite(move.sqlite) == before

    assert code == 0, move.output.read_text()
    print(f"{kills} starts were killed")
    assert kills >= KILLS_MIN
    assert move.printed()["resumed"] is True
    assert rows_of_postgres(move.url) == before
    assert move.refused_start(move.url) == ""
    assert "was moved to" in move.refused_start()


@pytest.mark.parametrize(("step", "is_marked"), [("sqlite COMMIT", False), ("sqlite after COMMIT", True)])
def test_postgresql_is_used_only_after_the_end_of_a_move(move: Move, step: str, is_marked: bool):
    assert move.run(step) == -signal.SIGKILL

    assert "holds an unfinished move" in move.refused_start(move.url)
    assert ("was moved to" in move.refused_start()) == is_marked
    assert move.run() == 0, move.output.read_text()
    assert move.refused_start(move.url) == ""
    assert "was moved to" in move.refused_start()
    assert rows_of_postgres(move.url) == rows_of_sqlite(move.sqlite)


def test_rows_that_changed_while_a_move_was_interrupted_are_detected(move: Move):
    assert move.run("sqlite COMMIT") == -signal.SIGKILL
    with closing(sqlite3.connect(move.sqlite)) as connection, connection:
        connection.execute("UPDATE secrets SET name = name || ' changed' WHERE name LIKE '3%'")
        connection.execute("DELETE FROM audit_log WHERE action LIKE '3%'")
    with psycopg.connect(move.url) as on_postgres:
        on_postgres.execute("UPDATE payloads SET body = 'changed' WHERE body = ''")

    assert move.run() == 1

    printed = move.output.read_text()
    assert f"  secrets: the contents of its {ROWS} rows differ\n" in printed
    assert f"  payloads: the contents of its {ROWS} rows differ\n" in printed
    assert f"  audit_log: SQLite has {ROWS - 1} rows, PostgreSQL has {ROWS}\n" in printed
    assert printed.count("  ") == 3
    assert move.refused_start() == ""
    assert "unfinished" in move.refused_start(move.url)


def test_nothing_else_writes_while_a_move_runs(move: Move):
    process = paused(move)

    with pytest.raises(StoreUnavailable, match="locked"):
        move.refused_start()
    environment = os.environ | move.environment()
    arguments = ["move", "--to", environment["HOOKMILL_TEST_TO"]]
    other = Command(arguments, environment, move.directory, move.directory / "other")
    assert other.wait(LONG_SECONDS) == 1
    assert "or another move, uses the data directory" in (move.directory / "other").read_text()
    process.send_signal(signal.SIGCONT)

    assert process.wait(LONG_SECONDS) == 0, move.output.read_text()
    assert rows_of_postgres(move.url) == rows_of_sqlite(move.sqlite)


def lose_connection(move: Move, process: Forked) -> None:
    with psycopg.connect(move.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def press_ctrl_c(move: Move, process: Forked) -> None:
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("interrupt", [lose_connection, press_ctrl_c])
def test_interrupted_move_says_how_to_continue(move: Move, interrupt: Callable[[Move, Forked], None]):
    process = paused(move)
    interrupt(move, process)
    process.send_signal(signal.SIGCONT)

    assert process.wait(LONG_SECONDS) == 1
    printed = move.output.read_text()
    assert "The move was interrupted" in printed
    assert printed.endswith("To continue where it stopped, start the same command again.\n")
    assert "Traceback" not in printed
    assert move.run() == 0, move.output.read_text()
    assert move.printed()["resumed"] is True
    assert rows_of_postgres(move.url) == rows_of_sqlite(move.sqlite)


def paused(move: Move) -> Forked:
    """A move that is stopped in the middle, with an open transaction on both sides."""
    process = move.start(IN_SECOND_BATCH, signal.SIGSTOP)
    observed = psutil.Process(process.pid)
    until(lambda: observed.status() == psutil.STATUS_STOPPED, "the move is paused")
    return process


def test_service_continues_on_postgresql_where_it_stopped_on_sqlite(tmp_path: Path, postgres_url: str):
    noted, block = tmp_path / "noted", tmp_path / "block"
    block.touch()
    command = f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {noted}; [ -e {block} ] && sleep 600; true'
    settings: dict[str, Any] = {
        "runners": json.dumps({"noting": {"argv": ["sh", "-c", command]}}),
        "default_runner": "noting",
        "runs_at_once": 1,
    }
    move = Move(Settings(data_dir=tmp_path / "data"), postgres_url, tmp_path)
    with serving(tmp_path / "data", **settings) as service:
        with service.management() as management:
            made = management.webhooks.create(operator(management), "source")
            management.automations.create(
                operator(management),
                "noting",
                prompt="Look.",
                triggers=[{"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}],
                runner="noting",
            )
        accepted = [service.post(made, b'{"number": %d}' % number).delivery_id for number in range(3)]
        until(lambda: noted.exists() and noted.read_text(), "the first run has begun")
        assert move.run() == 1
        assert "A `hookmill serve`, or another move, uses the data directory" in move.output.read_text()
        # One run is in progress, and two are queued.
        processes = everything_of(service)
        service.kill()
        until(lambda: not still_running(processes), "no process of the service is left")
    block.unlink()

    assert move.run() == 0, move.output.read_text()

    assert move.printed()["unfinished_runs"] == 3
    with serving(tmp_path / "data", database_url=postgres_url, **settings) as service:
        repeated = [service.post(made, b'{"number": %d}' % number) for number in range(3)]
        new = service.post(made, b'{"number": 3}')
        with service.management() as management:
            may = operator(management)
            runs = until(lambda: _all_ended(management, may), "all runs have ended")
            labels = {
                delivery: management.log.get(may, delivery).label
                for delivery in (*accepted, new.delivery_id, *(each.delivery_id for each in repeated))
            }

    assert [answer.status for answer in (*repeated, new)] == [202] * 4
    assert list(labels.values()) == [Label.ACCEPTED] * 4 + [Label.DUPLICATE] * 3
    assert {run.state.value for run in runs} == {"succeeded"}
    attempts = [line.split() for line in noted.read_text().splitlines()]
    assert sorted(attempt for _, attempt in attempts) == ["1", "1", "1", "1", "2"]
    assert len({run for run, _ in attempts}) == 4


def _all_ended(management: Any, may: Any) -> Any:
    runs = management.runs.oldest(may)
    return runs if len(runs) == 4 and all(run.state.is_final for run in runs) else None
