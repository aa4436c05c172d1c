"""Removal of directories, whatever their content, depth and modes."""

import os
import pwd
import shutil
import subprocess
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from hookmill.store.directories import UNREMOVABLE_PREFIX, remove_directory, remove_or_set_aside
from tests.support.loaded import Forked
from tests.support.waiting import LONG_SECONDS


def test_directory_is_removed_with_its_content(tmp_path):
    directory = tmp_path / "directory"
    for number in range(20):
        subdirectory = directory / str(number % 3) / str(number)
        subdirectory.mkdir(parents=True)
        (subdirectory / "file").write_text("x")
    os.mkfifo(directory / "pipe")
    (directory / "0" / "link").symlink_to("/")

    remove_directory(directory)

    assert list(tmp_path.iterdir()) == []


def test_removal_of_a_missing_directory_has_no_effect(tmp_path):
    remove_directory(tmp_path / "missing")


def test_links_are_removed_and_never_followed(tmp_path):
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").write_text("x")
    directory = tmp_path / "directory"
    (directory / "inner").mkdir(parents=True)
    for link in (directory / "link", directory / "inner" / "link", tmp_path / "link"):
        link.symlink_to(outside)

    remove_directory(directory)
    remove_directory(tmp_path / "link")

    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "inner" / "file").read_text() == "x"


@pytest.mark.parametrize("mount_point", ["mount", "deep/er/mount"])
def test_mounted_file_system_is_not_removed(tmp_path, mount_point):
    directory, outside = tmp_path / "directory", tmp_path / "outside"
    (directory / mount_point).mkdir(parents=True)
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").write_text("x")
    (outside / "file").write_text("x")
    if subprocess.call(["mount", "--bind", outside, directory / mount_point], stderr=subprocess.DEVNULL):
        # If this account can't mount anything, its commands can't either.
        return
    try:
        with pytest.raises(OSError, match="busy"):
            remove_directory(directory)
    finally:
        for mount in [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]:
            if mount.startswith(str(directory)):
                subprocess.check_call(["umount", mount])

    assert (outside / "file").read_text() == "x"
    assert (outside / "inner" / "file").read_text() == "x"
    remove_directory(directory)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_directory_deeper_than_any_limit_is_removed(tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    current_fd = os.open(directory, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("deeper", dir_fd=current_fd)
        inner_fd = os.open("deeper", os.O_RDONLY, dir_fd=current_fd)
        os.close(current_fd)
        current_fd = inner_fd
    os.close(current_fd)

    remove_directory(directory)

    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_number_of_entries(tmp_path):
    directory = tmp_path / "directory"
    (directory / "files").mkdir(parents=True)
    for number in range(10_000):
        (directory / "files" / str(number)).touch()
        (directory / str(number)).mkdir()

    tracemalloc.start()
    try:
        remove_directory(directory)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert not directory.exists()
    assert peak_bytes < 200_000


def remove_read_only_as_nobody(directory: str):
    if os.geteuid() == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    for subdirectory in ("cache/module", "cache", "unreadable", "."):
        Path(directory, subdirectory).chmod(0 if subdirectory == "unreadable" else 0o500)
    remove_directory(Path(directory))


def test_any_account_can_remove_its_read_only_directories():
    top = Path(tempfile.mkdtemp())
    directory = top / "directory"
    try:
        (directory / "cache" / "module").mkdir(parents=True)
        (directory / "cache" / "module" / "file").write_text("x")
        (directory / "unreadable").mkdir()
        if os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                shutil.chown(path, "nobody")
        process = Forked(remove_read_only_as_nobody, (str(directory),), os.environ, top, top / "out")

        assert process.wait(LONG_SECONDS) == 0, (top / "out").read_text()
        assert not directory.exists()
    finally:
        shutil.rmtree(top)


def remove_or_set_aside_as_nobody(directory: str):
    if os.geteuid() == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    remove_or_set_aside(Path(directory))


def test_directory_with_files_of_another_account_is_set_aside():
    top = Path(tempfile.mkdtemp())
    directory = top / "run_1"
    try:
        directory.mkdir()
        if os.geteuid() == 0:
            for path in (top, directory):
                shutil.chown(path, "nobody")
        (directory / "of another account").mkdir(mode=0o700)
        (directory / "of another account" / "file").write_text("x")
        process = Forked(remove_or_set_aside_as_nobody, (str(directory),), os.environ, top, top / "out")

        assert process.wait(LONG_SECONDS) == 0, (top / "out").read_text()
        assert not directory.exists()
        if os.geteuid() == 0:
            [aside] = top.glob(f"{UNREMOVABLE_PREFIX}*-run_1")
            assert (aside / "of another account" / "file").exists()
    finally:
        shutil.rmtree(top)
