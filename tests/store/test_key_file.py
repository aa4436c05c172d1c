"""The file with the master keys: only its owner can read it, and no key is lost."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.sealing import MasterKey, as_text

OLD, NEW = MasterKey(b"o" * 32), MasterKey(b"n" * 32)


@pytest.fixture
def file(tmp_path):
    file = KeyFile(tmp_path / "master.key")
    file.create()
    file.write([NEW, OLD])
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_key_file_is_created_once_and_only_for_its_owner(tmp_path):
    file = KeyFile(tmp_path / "master.key")
    file.create()
    [key] = file.read()

    file.create()

    assert mode(file.path) == 0o600
    assert file.read() == [key]
    assert [path.name for path in tmp_path.iterdir()] == ["master.key"]


def test_simultaneous_first_starts_create_one_key(tmp_path):
    file = KeyFile(tmp_path / "master.key")

    def start(_):
        file.create()
        return file.read()[0]

    with ThreadPoolExecutor(8) as starts:
        keys = set(starts.map(start, range(32)))

    assert len(keys) == 1


def test_keys_are_read_in_the_order_in_which_they_were_written(file):
    assert file.read() == [NEW, OLD]


def test_written_files_are_readable_only_by_their_owner(file):
    file.retire([OLD])

    assert (mode(file.path), mode(file.retired_path)) == (0o600, 0o600)


def test_write_keeps_the_mode_that_the_operator_chose(file):
    file.path.chmod(0o640)

    file.write([NEW])

    assert mode(file.path) == 0o640


def test_write_keeps_the_owner_of_the_file(file):
    # Only root can change the owner of a file.
    owner = (12345, 23456) if os.getuid() == 0 else (os.getuid(), file.path.stat().st_gid)
    os.chown(file.path, *owner)

    file.retire([OLD])

    for path in (file.path, file.retired_path):
        assert (path.stat().st_uid, path.stat().st_gid) == owner


def test_write_through_a_link_replaces_its_target(file, tmp_path):
    link = KeyFile(tmp_path / "elsewhere" / "master.key")
    link.path.parent.mkdir()
    link.path.symlink_to(file.path)

    link.write([OLD])

    assert link.path.is_symlink()
    assert file.read() == [OLD]


def test_retired_keys_are_stored_beside_the_file_newest_first(file):
    newest = MasterKey(b"3" * 32)
    file.retire([OLD])
    file.write([newest, NEW])
    file.retire([NEW])

    assert file.read() == [newest]
    assert file.retired_path.read_text() == f"{as_text(NEW)}\n{as_text(OLD)}\n"


def test_retiring_a_key_again_after_a_crash_stores_it_once(file):
    file.retired_path.write_text(f"{as_text(OLD)}\n")

    file.retire([OLD])

    assert file.read() == [NEW]
    assert file.retired_path.read_text() == f"{as_text(OLD)}\n"


@pytest.mark.parametrize("content", ["", "\n", "canary", f"{as_text(NEW)}\ncanary\n", "\udcff"])
def test_invalid_key_file_is_refused_and_unchanged(file, content):
    file.path.write_text(content, errors="surrogateescape")

    with pytest.raises(Invalid, match="must be 32 bytes in base64") as error:
        file.read()

    assert "canary" not in str(error.value)
    assert file.path.read_text(errors="surrogateescape") == content


def test_error_names_the_missing_file(tmp_path):
    with pytest.raises(Invalid, match=r"master\.key is missing"):
        KeyFile(tmp_path / "master.key").read()


def test_failed_write_changes_no_key_and_leaves_no_other_file(file, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        file.write([NEW])

    assert file.read() == [NEW, OLD]
    assert [path.name for path in file.path.parent.iterdir()] == ["master.key"]


def test_second_command_that_changes_keys_is_refused(file):
    with file.locked():
        with pytest.raises(Conflict, match="Another command is changing the keys"), file.locked():
            pass

    with file.locked():
        pass


def test_next_command_removes_temporary_files_of_a_killed_one(file):
    leftovers = [file.path.with_name(f"{name}.0123abcd.new") for name in ("master.key", "master.key.retired")]
    for leftover in leftovers:
        leftover.write_text("half a key")

    with file.locked():
        pass

    assert [leftover for leftover in leftovers if leftover.exists()] == []
