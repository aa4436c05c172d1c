"""The files of a folder: which of them are definitions, and their bytes. Nothing outside the folder is ever opened.

    webhooks/<name>.yaml
    automations/<name>/automation.md

Names are short and plain, no link is followed, and what is neither a definition nor something that belongs beside one
(a README, a hidden file) is a problem: a misspelt file would otherwise count as one that was taken away.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.definitions.problem import NOWHERE, START, Problem
from hookmill.domain.errors import NotFound

WEBHOOKS: Final = "webhooks"
AUTOMATIONS: Final = "automations"
AUTOMATION_FILE: Final = "automation.md"
WEBHOOK_SUFFIX: Final = ".yaml"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")

WEBHOOK_BYTES_MAX: Final = 65_536
AUTOMATION_BYTES_MAX: Final = 524_288
"""A prompt of the greatest length fits, whatever its language."""
ENTRIES_MAX: Final = 1_000
"""Files and folders in one place. Far more than a factory may have webhooks."""

_IGNORED: Final = re.compile(r"\..*|README(?:\.[a-z]+)?\Z", re.IGNORECASE | re.DOTALL)
_NAME_RULE: Final = "Names have lower-case letters, digits and dashes (63 at most, no dash in front)"


@dataclass(frozen=True, slots=True)
class Files:
    """The definition files of a folder by their paths in it, in order."""

    webhooks: Mapping[str, bytes]
    automations: Mapping[str, bytes]
    problems: tuple[Problem, ...] = ()


def stem_of(file: str) -> str:
    """The name in a definition file's path."""
    parts = file.split("/")
    return parts[1] if parts[0] == AUTOMATIONS else parts[1].removesuffix(WEBHOOK_SUFFIX)


def read_folder(folder: Path) -> Files:
    """Every definition file, and every problem with what else is there. Raises `NotFound` for no folder."""
    reader = _FolderReader(webhooks={}, automations={}, problems=[])
    with _opened(_open(folder)) as root:
        present = [name for name in (WEBHOOKS, AUTOMATIONS) if _exists(root, name)]
        if not present:
            where = "here" if folder == Path() else f"in {shown_path(str(folder))}"
            message = f"There is neither a folder {WEBHOOKS} nor a folder {AUTOMATIONS} {where}."
            reader.problems.append(Problem(".", NOWHERE, f"{message} Name the one that holds them."))
        if WEBHOOKS in present:
            reader.webhook_files(root)
        if AUTOMATIONS in present:
            reader.automation_files(root)
    return Files(reader.webhooks, reader.automations, tuple(reader.problems))


# A name that became a link, or a pipe nobody writes to, between two looks must not be followed or waited for.
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER_FOLDER_FLAGS: Final = _FOLDER_FLAGS | os.O_NOFOLLOW
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _open(folder: Path) -> int:
    try:
        return os.open(folder, _FOLDER_FLAGS)
    except FileNotFoundError:
        raise NotFound(f"There is no folder {shown_path(str(folder))}.") from None
    except NotADirectoryError:
        raise NotFound(f"{shown_path(str(folder))} is not a folder. Name the one that holds the files.") from None


@dataclass(frozen=True, slots=True)
class _FolderEntry:
    """What stands in an open folder under one name. It is no link."""

    folder: int
    name: str
    path: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class _FolderReader:
    webhooks: dict[str, bytes]
    automations: dict[str, bytes]
    problems: list[Problem]

    def report(self, path: str, message: str) -> None:
        self.problems.append(Problem(shown_path(path), START, message))

    def webhook_files(self, root: int) -> None:
        for entry in self._entries(root, WEBHOOKS, WEBHOOKS):
            stem = entry.name.removesuffix(WEBHOOK_SUFFIX)
            if entry.is_folder:
                self.report(entry.path, f"A folder. Webhooks are files: {WEBHOOKS}/<name>{WEBHOOK_SUFFIX}.")
            elif entry.name.endswith(".yml"):
                self.report(entry.path, f"Webhooks end in {WEBHOOK_SUFFIX}. Rename it.")
            elif stem == entry.name:
                self.report(entry.path, f"Not a webhook: those end in {WEBHOOK_SUFFIX}. Take it elsewhere.")
            elif self._may_be_named(entry.path, stem):
                self._read_file(self.webhooks, entry, WEBHOOK_BYTES_MAX)

    def automation_files(self, root: int) -> None:
        for entry in self._entries(root, AUTOMATIONS, AUTOMATIONS):
            if not entry.is_folder:
                self.report(entry.path, f"Not a folder. An automation is {AUTOMATIONS}/<name>/{AUTOMATION_FILE}.")
            elif self._may_be_named(entry.path, entry.name):
                self._one_automation(entry)

    def _one_automation(self, entry: _FolderEntry) -> None:
        problems = len(self.problems)
        has_definition = False
        for inner in self._entries(entry.folder, entry.name, entry.path):
            if inner.name == AUTOMATION_FILE and not inner.is_folder:
                has_definition = True
                self._read_file(self.automations, inner, AUTOMATION_BYTES_MAX)
            else:
                self.report(inner.path, f"Only {AUTOMATION_FILE} and a README belong here. Take it elsewhere.")
        if not has_definition and len(self.problems) == problems:
            self.report(entry.path, f"There is no file {AUTOMATION_FILE} in it. Add it, or remove the folder.")

    def _entries(self, parent: int, name: str, path: str) -> Iterator[_FolderEntry]:
        """What is in a folder and must be a definition. What can't be opened, and links, are refused."""
        try:
            number = os.open(name, _INNER_FOLDER_FLAGS, dir_fd=parent)
        except OSError as error:
            self.report(path, _unreadable(parent, name, error))
            return
        with _opened(number) as folder:
            with os.scandir(folder) as scanned:
                entries = sorted(
                    (dir_entry for dir_entry in scanned if not _IGNORED.match(dir_entry.name)),
                    key=lambda dir_entry: dir_entry.name,
                )
            if len(entries) > ENTRIES_MAX:
                limit = f"at most {ENTRIES_MAX:,} are read"
                self.report(path, f"{len(entries):,} entries, and {limit}. Is it the right folder?")
                return
            for dir_entry in entries:
                if dir_entry.is_symlink():
                    self.report(f"{path}/{dir_entry.name}", _IS_A_LINK)
                else:
                    yield _FolderEntry(
                        folder, dir_entry.name, f"{path}/{dir_entry.name}", dir_entry.is_dir(follow_symlinks=False)
                    )

    def _may_be_named(self, path: str, name: str) -> bool:
        if NAME.match(name):
            return True
        suggested = slug(name)
        suggestion = (
            f" Name it {suggested}, and keep the name that is shown with a line name: in it." if suggested else ""
        )
        self.report(path, f"{_NAME_RULE}.{suggestion}")
        return False

    def _read_file(self, files: dict[str, bytes], entry: _FolderEntry, limit: int) -> None:
        try:
            with _opened(os.open(entry.name, _FILE_FLAGS, dir_fd=entry.folder)) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    self.report(entry.path, "Not a regular file. Definitions are plain files.")
                    return
                content = _read_at_most(file, limit + 1)
        except OSError as error:
            self.report(entry.path, _unreadable(entry.folder, entry.name, error))
            return
        if len(content) > limit:
            self.report(entry.path, f"Larger than {limit // 1024} KB. Nothing that is meant for it needs so much.")
            return
        files[entry.path] = content


_IS_A_LINK: Final = "A symbolic link, and none is followed. Put the file itself here."


def _unreadable(parent: int, name: str, error: OSError) -> str:
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return _IS_A_LINK
    except OSError:
        pass
    return f"It can't be read: {error.strerror}."


@contextmanager
def _opened(number: int) -> Iterator[int]:
    try:
        yield number
    finally:
        os.close(number)


def _exists(root: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read_at_most(file: int, limit: int) -> bytes:
    content = b""
    while len(content) < limit and (chunk := os.read(file, limit - len(content))):
        content += chunk
    return content


def slug(name: str) -> str:
    """A legal file name like this name; empty when nothing of it is left."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")


def shown_path(path: str) -> str:
    """A path as one harmless line: its names are anybody's words."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in path
    )
