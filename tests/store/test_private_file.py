"""Lock files of the data directory: only their owner can open them, so no other account can hold a lock."""

import os
import stat
from pathlib import Path

import pytest

from hookmill.store.keys.key_file import KeyFile
from hookmill.store.private_file import open_lock_file


@pytest.fixture
def no_umask():
    previous = os.umask(0)
    yield
    os.umask(previous)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("no_umask")
def test_lock_file_is_private_with_any_umask(tmp_path):
    path = tmp_path / "a.lock"

    open_lock_file(path).close()

    assert mode(path) == 0o600


@pytest.mark.usefixtures("no_umask")
def test_lock_of_the_key_file_is_private(tmp_path):
    file = KeyFile(tmp_path / "master.key")
    file.create()

    with file.locked():
        assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
            "master.key": 0o600,
            "master.key.lock": 0o600,
        }
