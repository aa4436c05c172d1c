"""The file that the master keys are in: for its owner alone, and never without a key that is needed."""

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
def file(tmp_path: Path) -> KeyFile:
    file = KeyFile(tmp_path / "master.key")
    file.create()
    file.write([NEW, OLD])
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_makes_a_private_key_that_the_next_reads(tmp_path):
    file = KeyFile(tmp_path / "master.key")
    file.create()
    [made] = file.read()

    file.create()

    assert mode(file.path) == 0o600
    assert file.read() == [made]
    assert [path.name for path in tmp_path.iterdir()] == ["master.key"]


def test_of_first_starts_at_once_one_makes_the_key_and_all_read_that_one(tmp_path):
    file = KeyFile(tmp_path / "master.key")

    def start(_: int) -> MasterKey:
        file.create()
        return file.read()[0]

    with ThreadPoolExecutor(8) as starts:
        read = set(starts.map(start, range(32)))

    assert len(read) == 1


def test_keys_are_read_in_the_order_that_they_were_written_in(file):
    assert file.read() == [NEW, OLD]


def test_what_is_written_is_for_the_owner_alone(file):
    file.retire([OLD])

    assert (mode(file.path), mode(file.retired_path)) == (0o600, 0o600)


def test_a_mode_that_the_operator_chose_stays(file):
    file.path.chmod(0o640)

    file.write([NEW])

    assert mode(file.path) == 0o640


def test_a_file_stays_its_owners_whoever_writes_it(file):
    # Only root can give a file away; anybody else's stays theirs.
    owner = (12345, 23456) if os.getuid() == 0 else (os.getuid(), file.path.stat().st_gid)
    os.chown(file.path, *owner)

    file.retire([OLD])

    for path in (file.path, file.retired_path):
        assert (path.stat().st_uid, path.stat().st_gid) == owner


def test_a_link_to_the_file_stays_a_link(file, tmp_path):
    link = KeyFile(tmp_path / "elsewhere" / "master.key")
    link.path.parent.mkdir()
    link.path.symlink_to(file.path)

    link.write([OLD])

    assert link.path.is_symlink()
    assert file.read() == [OLD]


def test_a_retired_key_is_kept_beside_the_file_the_newest_first(file):
    newest = MasterKey(b"3" * 32)
    file.retire([OLD])
    file.write([newest, NEW])
    file.retire([NEW])

    assert file.read() == [newest]
    assert file.retired_path.read_text() == f"{as_text(NEW)}\n{as_text(OLD)}\n"


def test_retiring_again_what_was_retired_before_a_crash_keeps_it_once(file):
    file.retired_path.write_text(f"{as_text(OLD)}\n")

    file.retire([OLD])

    assert file.read() == [NEW]
    assert file.retired_path.read_text() == f"{as_text(OLD)}\n"


@pytest.mark.parametrize("written", ["", "\n", "canary", f"{as_text(NEW)}\ncanary\n", "\udcff"])
def test_a_file_with_something_else_in_it_is_refused_and_left_alone(file, written):
    file.path.write_text(written, errors="surrogateescape")

    with pytest.raises(Invalid, match="must be 32 bytes in base64") as refused:
        file.read()

    assert "canary" not in str(refused.value)
    assert file.path.read_text(errors="surrogateescape") == written


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Invalid, match=r"master\.key is missing"):
        KeyFile(tmp_path / "master.key").read()


def test_a_write_that_fails_leaves_the_keys_and_nothing_else(file, monkeypatch):
    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        file.write([NEW])

    assert file.read() == [NEW, OLD]
    assert [path.name for path in file.path.parent.iterdir()] == ["master.key"]


def test_only_one_command_changes_the_keys_at_a_time(file):
    with file.locked():
        with pytest.raises(Conflict, match="Another command is changing the keys"), file.locked():
            pass

    with file.locked():
        pass


def test_what_a_killed_command_was_writing_is_cleared_away_by_the_next(file):
    leftovers = [file.path.with_name(f"{name}.0123abcd.new") for name in ("master.key", "master.key.retired")]
    for leftover in leftovers:
        leftover.write_text("half a key")

    with file.locked():
        pass

    assert [leftover for leftover in leftovers if leftover.exists()] == []
