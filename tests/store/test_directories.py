"""Directories that go, whatever was made of them."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hookmill.store.directories import UNREMOVABLE_PREFIX, remove_directory, remove_or_set_aside
from tests.support.loaded import Forked
from tests.support.waiting import LONG_SECONDS


def test_a_directory_goes_with_all_that_is_in_it(tmp_path: Path):
    place = tmp_path / "place"
    for number in range(20):
        inside = place / str(number % 3) / str(number)
        inside.mkdir(parents=True)
        (inside / "file").write_text("x")
    os.mkfifo(place / "pipe")
    (place / "0" / "link").symlink_to("/")

    remove_directory(place)

    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_nothing_to_do(tmp_path: Path):
    remove_directory(tmp_path / "nowhere")


def test_links_are_removed_and_never_followed(tmp_path: Path):
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "precious").write_text("x")
    place = tmp_path / "place"
    (place / "inner").mkdir(parents=True)
    for link in (place / "link", place / "inner" / "link", tmp_path / "link"):
        link.symlink_to(outside)

    remove_directory(place)
    remove_directory(tmp_path / "link")

    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "inner" / "precious").read_text() == "x"


@pytest.mark.parametrize("where", ["mount", "deep/er/mount"])
def test_what_is_mounted_in_a_directory_stays(tmp_path: Path, where: str):
    place, outside = tmp_path / "place", tmp_path / "outside"
    (place / where).mkdir(parents=True)
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "precious").write_text("x")
    (outside / "precious").write_text("x")
    if subprocess.call(["mount", "--bind", outside, place / where], stderr=subprocess.DEVNULL):
        # Where nothing can be mounted there is nothing to protect.
        return
    try:
        with pytest.raises(OSError, match="busy"):
            remove_directory(place)
    finally:
        for mount in [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]:
            if mount.startswith(str(place)):
                subprocess.check_call(["umount", mount])

    assert (outside / "precious").read_text() == "x"
    assert (outside / "inner" / "precious").read_text() == "x"
    remove_directory(place)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_a_directory_deeper_than_any_limit_goes(tmp_path: Path):
    place = tmp_path / "place"
    place.mkdir()
    here = os.open(place, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    remove_directory(place)

    assert list(tmp_path.iterdir()) == []


def remove_as_nobody(place: str) -> None:
    if os.geteuid() == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    for inside in ("cache/module", "cache", "closed", "."):
        Path(place, inside).chmod(0 if inside == "closed" else 0o500)
    remove_directory(Path(place))


def test_directories_that_were_made_read_only_go_for_any_account():
    top = Path(tempfile.mkdtemp())
    place = top / "place"
    try:
        (place / "cache" / "module").mkdir(parents=True)
        (place / "cache" / "module" / "file").write_text("x")
        (place / "closed").mkdir()
        if os.geteuid() == 0:
            for each in (top, *top.rglob("*")):
                shutil.chown(each, "nobody")
        process = Forked(remove_as_nobody, (str(place),), os.environ, top, top / "out")

        assert process.wait(LONG_SECONDS) == 0, (top / "out").read_text()
        assert not place.exists()
    finally:
        shutil.rmtree(top)


def clear_as_nobody(place: str) -> None:
    if os.geteuid() == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    remove_or_set_aside(Path(place))


def test_what_only_another_account_can_remove_is_set_aside():
    top = Path(tempfile.mkdtemp())
    place = top / "run_1"
    try:
        place.mkdir()
        if os.geteuid() == 0:
            for each in (top, place):
                shutil.chown(each, "nobody")
        (place / "of another account").mkdir(mode=0o700)
        (place / "of another account" / "file").write_text("x")
        process = Forked(clear_as_nobody, (str(place),), os.environ, top, top / "out")

        assert process.wait(LONG_SECONDS) == 0, (top / "out").read_text()
        assert not place.exists()
        if os.geteuid() == 0:
            [aside] = top.glob(f"{UNREMOVABLE_PREFIX}*-run_1")
            assert (aside / "of another account" / "file").exists()
    finally:
        shutil.rmtree(top)
