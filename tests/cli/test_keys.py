"""`hookmill keys`: rotates the master key, shows the ids of master keys, and never shows a master key."""

import base64
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hookmill import app
from hookmill.settings import read_settings
from tests.cli.conftest import CommandResult

SEALED_ROWS = 2
"""The secret of the webhook, and the response that shows it once, which is stored for retries."""


@pytest.fixture(autouse=True)
def _no_previous_key(monkeypatch):
    monkeypatch.delenv("HOOKMILL_MASTER_KEY_PREVIOUS", raising=False)


def key_lines(path: Path) -> list[str]:
    return path.read_text().split()


@pytest.fixture
def require_no_key(data_dir):
    """Requires that the output of a command contains none of the stored keys, in any encoding."""

    def check(result: CommandResult) -> None:
        lines = [line for file in data_dir.glob("master.key*") for line in key_lines(file)]
        assert lines
        for line in lines:
            key = base64.b64decode(line)
            for encoded in (line, key.hex(), base64.urlsafe_b64encode(key).decode(), repr(key)):
                assert encoded not in result.out + result.err

    return check


def test_rotation_prints_the_result_and_the_file_of_the_old_key(webhook, data_dir, hookmill):
    [old] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]

    result = hookmill("keys", "rotate")

    [new] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]
    assert result.out.splitlines() == [
        f"Master key {new} now encrypts every secret. Re-encrypted: {SEALED_ROWS} rows.",
        f"The previous key ({old}) is no longer used. It was moved to {data_dir / 'master.key.retired'}.",
        "Older backups still need it: store that file with them, then delete it here.",
    ]
    assert result.err == "", "a progress bar needs a terminal"


def test_rotation_in_json(webhook, data_dir, hookmill):
    [old] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]

    result = hookmill("keys", "rotate", "--json")

    [new] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]
    assert result.json == {
        "key": new,
        "began": True,
        "encrypted_again": SEALED_ROWS,
        "unreadable": [],
        "retired": [old],
        "retired_file": str(data_dir / "master.key.retired"),
    }


def test_rotation_shows_a_progress_bar_on_a_terminal(webhook, hookmill, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    result = hookmill("keys", "rotate", "--json")

    assert "encrypting" in result.err
    assert "100%" in result.err
    assert result.json["encrypted_again"] == SEALED_ROWS


def test_no_command_shows_a_key(webhook, hookmill, require_no_key):
    for command in ("show", "add", "show", "rotate", "show", "rotate", "show"):
        require_no_key(hookmill("keys", command))
        if command == "show":
            require_no_key(hookmill("keys", command, "--json"))


def test_show_has_the_id_the_state_and_the_rows_of_each_key(webhook, hookmill):
    hookmill("keys", "add")

    output = hookmill("keys", "show").out
    report = hookmill("keys", "show", "--json").json

    header, *rows = (line.split() for line in output.splitlines())
    assert header == ["KEY", "STATE", "ROWS"]
    assert rows == [[key["id"], key["state"], str(key["rows"])] for key in report["keys"]]
    assert [(key["state"], key["rows"]) for key in report["keys"]] == [("waits", 0), ("encrypts", SEALED_ROWS)]
    assert report["rotating"] is False


def test_add_names_the_new_key_and_the_next_step(webhook, data_dir, hookmill):
    result = hookmill("keys", "add")

    [new, _] = [key["id"] for key in hookmill("keys", "show", "--json").json["keys"]]
    assert result.out.startswith(f"Master key {new} is now in {data_dir / 'master.key'}. It is not used yet.")
    assert "keys rotate" in result.out
    assert hookmill("keys", "add", "--json").json == {
        "id": new,
        "file": str(data_dir / "master.key"),
        "added": False,
    }


def test_rotation_names_a_row_that_cannot_be_unsealed(webhook, data_dir, hookmill):
    with closing(sqlite3.connect(data_dir / "hookmill.db")) as connection, connection:
        connection.execute("UPDATE secret_versions SET sealed = zeroblob(60)")
        [(row,)] = connection.execute("SELECT id FROM secret_versions")

    result = hookmill("keys", "rotate")

    assert f"  secret_versions {row}\n" in result.err
    assert "hookmill webhook rotate" in result.err


def test_key_from_a_setting_is_rotated_by_changing_the_settings(data_dir, hookmill, monkeypatch, request):
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
    for result in (refused, rotated):
        assert old not in result.out + result.err
        assert new not in result.out + result.err
    assert [key["state"] for key in hookmill("keys", "show", "--json").json["keys"]] == ["encrypts"]
    assert list(data_dir.glob("master.key*")) == []


def test_rotation_on_postgresql_asks_before_it_creates_a_key(data_dir, hookmill, monkeypatch, postgres_store):
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

    assert "now encrypts every secret" in hookmill("keys", "rotate", stdin=b"y\n").out
    assert hookmill("keys", "rotate", "--yes", "--json").json["began"] is True
    # No question: `keys add` has already told the operator to copy the key to the other hosts.
    hookmill("keys", "add")
    assert hookmill("keys", "rotate", "--json").json["began"] is True
