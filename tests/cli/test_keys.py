"""`hookmill keys`: what an operator is told of the master keys, and what never."""

import base64
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hookmill import app
from hookmill.settings import read_settings
from tests.cli.conftest import CommandResult, Hookmill


@pytest.fixture(autouse=True)
def _no_earlier_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOKMILL_MASTER_KEY_PREVIOUS", raising=False)


def key_lines(path: Path) -> list[str]:
    return path.read_text().split()


@pytest.fixture
def shows_no_key(data_dir: Path) -> Callable[[CommandResult], None]:
    """Holds what was printed against every key that is on the disk."""

    def check(printed: CommandResult) -> None:
        written = [line for file in data_dir.glob("master.key*") for line in key_lines(file)]
        assert written
        for line in written:
            value = base64.b64decode(line)
            for form in (line, value.hex(), base64.urlsafe_b64encode(value).decode(), repr(value)):
                assert form not in printed.out + printed.err

    return check


def test_a_rotation_says_what_it_did_and_where_the_old_key_is(webhook: Any, data_dir: Path, hookmill: Hookmill):
    [old] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]

    printed = hookmill("keys", "rotate")

    [new] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]
    assert printed.out.splitlines() == [
        f"Master key {new} now seals every secret. Sealed again: 1 row.",
        f"The previous key ({old}) is no longer used. It was moved to {data_dir / 'master.key.retired'}.",
        "Older backups still need it: store that file with them, then delete it here.",
    ]
    assert printed.err == "", "a bar is for a terminal"


def test_a_rotation_tells_programs_the_same(webhook: Any, data_dir: Path, hookmill: Hookmill):
    [old] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]

    printed = hookmill("keys", "rotate", "--json")

    [new] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]
    assert printed.json == {
        "key": new,
        "began": True,
        "sealed_again": 1,
        "unreadable": [],
        "retired": [old],
        "retired_file": str(data_dir / "master.key.retired"),
    }


def test_on_a_terminal_a_bar_shows_how_far_it_is(webhook: Any, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    printed = hookmill("keys", "rotate", "--json")

    assert "sealing" in printed.err
    assert "100%" in printed.err
    assert printed.json["sealed_again"] == 1


def test_both_key_files_are_their_owners_alone(webhook: Any, data_dir: Path, hookmill: Hookmill):
    hookmill("keys", "rotate")

    for name in ("master.key", "master.key.retired"):
        assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600
        assert len(key_lines(data_dir / name)) == 1


def test_no_command_shows_a_key(webhook: Any, hookmill: Hookmill, shows_no_key: Callable[[CommandResult], None]):
    for arguments in ("show", "add", "show", "rotate", "show", "rotate", "show"):
        shows_no_key(hookmill("keys", arguments))
        if arguments == "show":
            shows_no_key(hookmill("keys", arguments, "--json"))


def test_what_was_cut_off_is_finished_and_called_so(webhook: Any, data_dir: Path, hookmill: Hookmill):
    old = (data_dir / "master.key").read_text()
    hookmill("keys", "rotate")
    (data_dir / "master.key").write_text((data_dir / "master.key").read_text() + old)

    printed = hookmill("keys", "rotate")

    assert "was already in use. Its rotation is finished. Sealed again: no rows." in printed.out
    assert len(key_lines(data_dir / "master.key")) == 1


def test_the_keys_are_shown_by_their_ids_with_what_each_has_sealed(webhook: Any, hookmill: Hookmill):
    hookmill("keys", "add")

    printed = hookmill("keys", "show")
    told = hookmill("keys", "show", "--json").json

    header, *rows = (line.split() for line in printed.out.splitlines())
    assert header == ["KEY", "STATE", "ROWS"]
    assert rows == [[key["id"], key["state"], str(key["rows"])] for key in told["keys"]]
    assert [(key["state"], key["rows"]) for key in told["keys"]] == [("waits", 0), ("seals", 1)]
    assert told["rotating"] is False


def test_a_key_that_is_added_is_named_with_what_to_do_next(webhook: Any, data_dir: Path, hookmill: Hookmill):
    printed = hookmill("keys", "add")

    [new, _] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]
    assert printed.out.startswith(f"Master key {new} is now in {data_dir / 'master.key'}. It is not used yet.")
    assert "keys rotate" in printed.out
    assert hookmill("keys", "add", "--json").json == {
        "id": new,
        "file": str(data_dir / "master.key"),
        "added": False,
    }


def test_a_row_that_does_not_open_is_named_with_what_to_do(webhook: Any, data_dir: Path, hookmill: Hookmill):
    with closing(sqlite3.connect(data_dir / "hookmill.db")) as connection, connection:
        connection.execute("UPDATE secret_versions SET sealed = zeroblob(60)")
        [(row,)] = connection.execute("SELECT id FROM secret_versions")

    printed = hookmill("keys", "rotate")

    assert f"  secret_versions {row}\n" in printed.err
    assert "hookmill webhook rotate" in printed.err


def test_a_key_that_is_a_setting_is_not_replaced_by_itself(
    data_dir: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    old, new = ("A" * 43 + "=", "B" * 42 + "A=")
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", old)
    request.getfixturevalue("webhook")

    refused = hookmill("keys", "rotate", exit_code=1)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY", new)
    monkeypatch.setenv("HOOKMILL_MASTER_KEY_PREVIOUS", old)
    rotated = hookmill("keys", "rotate")
    monkeypatch.delenv("HOOKMILL_MASTER_KEY_PREVIOUS")

    assert "HOOKMILL_MASTER_KEY_PREVIOUS" in refused.err
    assert "HOOKMILL_MASTER_KEY_PREVIOUS" in rotated.out
    for printed in (refused, rotated):
        assert old not in printed.out + printed.err
        assert new not in printed.out + printed.err
    assert [key["state"] for key in hookmill("keys", "show", "--json").json["keys"]] == ["seals"]
    assert list(data_dir.glob("master.key*")) == []


def test_on_postgresql_a_new_key_is_made_only_when_nobody_can_miss_it(
    data_dir: Path, hookmill: Hookmill, monkeypatch: pytest.MonkeyPatch, postgres_store: str
):
    monkeypatch.setenv("HOOKMILL_DATABASE_URL", postgres_store)
    settings = read_settings()
    store = app.open_store(settings, create=True)
    app.build_management(settings, store).factories.set_up()
    store.close()

    for answer in (b"", b"n\n"):
        refused = hookmill("keys", "rotate", stdin=answer, exit_code=1)
        assert "Nothing was changed." in refused.err
        assert "hookmill keys add" in refused.err
        assert len(key_lines(data_dir / "master.key")) == 1

    assert "now seals every secret" in hookmill("keys", "rotate", stdin=b"y\n").out
    assert hookmill("keys", "rotate", "--yes", "--json").json["began"] is True
    # Where a key waits, the operator has been told where it has to be.
    hookmill("keys", "add")
    assert hookmill("keys", "rotate", "--json").json["began"] is True
