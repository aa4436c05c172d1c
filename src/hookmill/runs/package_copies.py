"""Copies the packages of runs into a backup, and out of one.

A backup has regular files directly in a package only. No link is followed, because a command may have replaced any file
by a link.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.errors import HookmillError, Invalid
from hookmill.domain.ids import RunKey, run_id, run_key
from hookmill.runs.package import directory_of, list_files, make_packages_directory, read_file
from hookmill.store.backup.container import UnusableBackup
from hookmill.store.backup.records import PackageFile
from hookmill.store.directories import remove_directory

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest file that is copied."""
PART_BYTES: Final = 4 * 1024 * 1024
_DRAFTS: Final = f".{run_id(b'')}*"
"""Matches the names of all drafts. A draft has the name of its package, with a dot in front."""


@dataclass(slots=True)
class CopiedPackages:
    """How much was copied so far."""

    packages: int = 0
    files: int = 0
    file_bytes: int = 0
    omitted_files: int = 0
    """Files that are larger than `FILE_BYTES_MAX` or that could not be read. All files beyond `LISTED_ENTRIES_MAX` of a
    package count as one, because the list does not contain them. So do all files of a package that can't be listed."""


def read_packages(packages: Path, copied: CopiedPackages) -> Iterator[PackageFile]:
    """The files of every package, in parts. A command may change them meanwhile. Counts them in `copied`.

    Raises `Invalid` if the directory can't be read.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(packages)) if packages.is_dir() else []
    except OSError as error:
        raise Invalid(f"The packages of runs in {packages} can't be read: {error.strerror}.") from None
    for name in names:
        try:
            run = run_key(name)
        except HookmillError:
            # It is a draft, or the service did not create it.
            continue
        yield from _read_package(packages, run, copied)


def _read_package(packages: Path, run: RunKey, copied: CopiedPackages) -> Iterator[PackageFile]:
    copied.packages += 1
    try:
        files, has_more = list_files(packages, run)
    except OSError:
        copied.omitted_files += 1
        return
    copied.omitted_files += has_more
    for name, size in files:
        try:
            # The command may enlarge the file at any time.
            content = read_file(packages, run, name, FILE_BYTES_MAX) if size <= FILE_BYTES_MAX else None
        except OSError:
            content = None
        if content is None:
            copied.omitted_files += 1
            continue
        copied.files += 1
        copied.file_bytes += len(content)
        for start in range(0, len(content) or 1, PART_BYTES):
            part = content[start : start + PART_BYTES]
            yield PackageFile(run=run, name=os.fsencode(name), content=part, is_last=start + PART_BYTES >= len(content))


class PackageRestorer:
    """Writes packages as drafts. They appear only with `publish`. No worker may use the directory meanwhile."""

    def __init__(self, packages: Path) -> None:
        self._packages = packages
        self._draft_of: dict[RunKey, Path] = {}
        self._published: list[Path] = []
        self.copied = CopiedPackages()

    def remove_drafts(self) -> None:
        """Remove what this restore, or an earlier one that was killed, has written but not published."""
        self._draft_of.clear()
        if self._packages.is_dir():
            for draft in self._packages.glob(_DRAFTS):
                remove_directory(draft)

    def add(self, part: PackageFile) -> None:
        """Write a part of a file. Raises `UnusableBackup` for a name that is not one of a file in a package."""
        if len(part.run) != 16 or b"/" in part.name or b"\0" in part.name or part.name in (b"", b".", b".."):
            raise UnusableBackup("The backup names a file outside of a run's package. Nothing was changed.")
        run = RunKey(part.run)
        if run not in self._draft_of:
            make_packages_directory(self._packages)
            self._draft_of[run] = self._packages / f".{run_id(run)}"
            self._draft_of[run].mkdir(mode=0o700)
            self.copied.packages += 1
        path = self._draft_of[run] / os.fsdecode(part.name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(part.content)
        self.copied.files += part.is_last
        self.copied.file_bytes += len(part.content)

    def publish(self) -> int:
        """Let the packages appear. Returns how many were kept as they are, because this host already has them."""
        present = 0
        for run, draft in self._draft_of.items():
            target = directory_of(self._packages, run)
            if target.exists():
                remove_directory(draft)
                present += 1
            else:
                draft.rename(target)
                self._published.append(target)
        self._draft_of.clear()
        return present

    def unpublish(self) -> None:
        """Remove the packages that `publish` has let appear."""
        for package in self._published:
            remove_directory(package)
        self._published.clear()
