"""A start that looks wrong is refused, with what to do; one that was killed is simply repeated."""

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from hookmill import app
from hookmill.settings import Settings, read_settings
from tests.cli.conftest import Hookmill
from tests.support.loaded import Command, Forked
from tests.support.ports import free_port
from tests.support.waiting import LONG_SECONDS

KEY = "A" * 43 + "="


@pytest.fixture
def lost(log: object, data_dir: Path) -> Path:
    """The data directory of an installation that lost its database, and kept its key."""
    for path in data_dir.glob("hookmill.db*"):
        path.unlink()
    return data_dir


def refused(command: str, output: Path, **planted: str) -> str:
    """What the command prints, which ends by itself. `planted` is Python that the process runs before it."""
    environment = dict(os.environ)
    if planted:
        (output.parent / "sitecustomize.py").write_text(planted["first"])
        environment["PYTHONPATH"] = str(output.parent)
    if command == "serve":
        environment["HOOKMILL_PORT"] = str(free_port())
    process = Command([command], environment, output.parent, output)
    try:
        code = process.wait(LONG_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    printed = output.read_text()
    assert code == 1, printed
    assert "Traceback" not in printed
    return printed


# A data directory that lost its database


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_lost_database_is_not_replaced_by_an_empty_one(lost: Path, command: str):
    error = refused(command, lost.parent / "output")

    assert f"{lost / 'hookmill.db'} is missing" in error
    assert "Put hookmill.db back from a backup" in error
    assert "move these away: master.key" in error
    assert [path.name for path in lost.iterdir()] == ["master.key"]


@pytest.mark.parametrize(
    "trace", [Path("serve.lock"), Path("engine.db"), Path("hookmill.db-wal"), Path("runs", "run_1")], ids=str
)
def test_lost_database_is_noticed_by_every_trace(
    lost: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch, trace: Path
):
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", KEY)
    (lost / trace).parent.mkdir(exist_ok=True)
    (lost / trace).write_bytes(b"something")

    printed = hookmill("migrate", ends=1)

    assert f"move these away: {trace.parts[0]}. " in printed.err
    assert not (lost / "hookmill.db").exists()


@pytest.mark.parametrize("content", ["nothing", "no tables"])
def test_emptied_database_is_refused_like_a_lost_one(lost: Path, hookmill: Hookmill, content: str):
    path = lost / "hookmill.db"
    path.touch()
    if content == "no tables":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()

    printed = hookmill("migrate", ends=1)

    assert f"{path} is empty" in printed.err
    assert path.read_bytes() == before


def test_restored_database_starts_again(log: object, data_dir: Path, hookmill: Hookmill):
    shutil.copy(data_dir / "hookmill.db", data_dir.parent / "backup")
    (data_dir / "hookmill.db").unlink()
    hookmill("migrate", ends=1)

    shutil.copy(data_dir.parent / "backup", data_dir / "hookmill.db")

    assert hookmill("migrate", "--json").json == {"changed": False}


def test_new_installation_begins_once_the_named_files_are_gone(lost: Path, hookmill: Hookmill):
    (lost / "master.key").rename(lost.parent / "master.key")

    assert hookmill("migrate", "--json").json == {"changed": True}


def test_master_key_of_ones_own_starts_a_new_installation(
    data_dir: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch
):
    data_dir.mkdir()
    (data_dir / "master.key").write_text(f"{KEY}\n")

    refused = hookmill("migrate", ends=1)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", KEY)
    app.open_store(read_settings(), create=True).close()
    monkeypatch.delenv("HOOKMILL_MASTER_KEY")

    assert "set HOOKMILL_MASTER_KEY" in refused.err
    # From then on the file does.
    app.open_store(read_settings()).close()


def test_wrong_empty_postgresql_database_is_refused(lost: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)

    error = refused("serve", lost.parent / "output")

    assert "Check that HOOKMILL_DATABASE_URL names the right database" in error
    assert "it holds master.key." in error
    assert postgres_url not in error


def test_second_host_of_a_postgresql_starts_with_the_copied_key(
    lost: Path, hookmill: Hookmill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_url)
    first_host = read_settings().model_copy(update={"data_dir": lost.parent / "first"})
    app.open_store(first_host, create=True).close()
    shutil.copy(first_host.data_dir / "master.key", lost / "master.key")

    app.open_store(read_settings(), create=True).close()


# A first start that was killed


@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_killed_first_start_is_repeated_without_help(tmp_path: Path, on: str, request: pytest.FixtureRequest):
    url = request.getfixturevalue("postgres_url") if on == "postgres" else None
    data_dir = tmp_path / "data"
    settings = settings_with(data_dir, url)
    kills = 0
    # Each start gets one step further than the one before, with what all of them have left.
    while killed_first_start(data_dir, url, at_step=kills + 1, output=tmp_path / "output"):
        kills += 1

    app.open_store(settings, create=True).close()

    print(f"{kills} starts were killed")
    assert kills > 3
    assert (data_dir / "master.key").stat().st_mode & 0o777 == 0o600


def settings_with(data_dir: Path, url: str | None) -> Settings:
    return Settings(data_dir=data_dir, database_url=SecretStr(url) if url is not None else None)


def killed_first_start(data_dir: Path, url: str | None, *, at_step: int, output: Path) -> bool:
    """Whether the start was killed. Otherwise it was done before that step."""
    start = Forked(_start_and_die, (data_dir, url, at_step), os.environ, data_dir.parent, output)
    code = start.wait(LONG_SECONDS)
    assert code in (0, -signal.SIGKILL), output.read_text()
    return code != 0


def _start_and_die(data_dir: Path, url: str | None, at_step: int) -> None:
    die = _dying_at(at_step)

    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    changing = {"open", "os.mkdir", "os.link", "os.remove", "os.rename", "os.chmod", "sqlite3.connect"}
    sys.addaudithook(lambda name, given: die() if name in changing and str(data_dir) in str(given[0]) else None)
    event.listen(Engine, "commit", lambda _: die())
    app.open_store(settings_with(data_dir, url), create=True).close()


def _dying_at(step: int) -> Callable[[], None]:
    left = step

    def die() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    return die
