"""Find and read the definition files of a folder. Nothing outside the folder is ever opened.

    webhooks/<name>.yaml
    automations/<name>/automation.md

Names are short and plain, and links are not followed. Hidden files and READMEs are ignored. Every other file that is
not a definition is a problem: otherwise a definition with a misspelt file name would count as removed.
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
"""Enough for the longest allowed prompt in any language."""
ENTRIES_MAX: Final = 1_000
"""The limit of files and folders in one folder: far more webhooks than a factory may have."""

_IGNORED: Final = re.compile(r"\..*|README(?:\.[a-z]+)?\Z", re.IGNORECASE | re.DOTALL)
_NAME_RULE: Final = "Names have lower-case letters, digits and dashes (63 at most, no dash in front)"


@dataclass(frozen=True, slots=True)
class Files:
    """The contents of a folder's definition files by their paths, in the order of the paths."""

    webhook_contents: Mapping[str, bytes]
    automation_contents: Mapping[str, bytes]
    problems: tuple[Problem, ...] = ()


def stem_of(file: str) -> str:
    """The name that the file's path gives to a webhook or automation. The key `name` in the file overrides it."""
    parts = file.split("/")
    return parts[1] if parts[0] == AUTOMATIONS else parts[1].removesuffix(WEBHOOK_SUFFIX)


def read_folder(folder: Path) -> Files:
    """Every definition file, and a problem for every other file that is not ignored.

    Raises `NotFound` if the folder does not exist.
    """
    reader = _FolderReader(webhook_contents={}, automation_contents={}, problems=[])
    with _closing(_open(folder)) as root:
        existing = [name for name in (WEBHOOKS, AUTOMATIONS) if _exists(root, name)]
        if not existing:
            location = "here" if folder == Path() else f"in {printable_path(str(folder))}"
            message = f"There is neither a folder {WEBHOOKS} nor a folder {AUTOMATIONS} {location}."
            reader.problems.append(Problem(".", NOWHERE, f"{message} Give the path of the folder that contains them."))
        if WEBHOOKS in existing:
            reader.read_webhook_files(root)
        if AUTOMATIONS in existing:
            reader.read_automation_files(root)
    return Files(reader.webhook_contents, reader.automation_contents, tuple(reader.problems))


# After a file was checked, a link or a pipe may replace it: don't follow a link, and don't wait for a pipe.
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER_FOLDER_FLAGS: Final = _FOLDER_FLAGS | os.O_NOFOLLOW
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _open(folder: Path) -> int:
    try:
        return os.open(folder, _FOLDER_FLAGS)
    except FileNotFoundError:
        raise NotFound(f"There is no folder {printable_path(str(folder))}.") from None
    except NotADirectoryError:
        raise NotFound(
            f"{printable_path(str(folder))} is not a folder. Give the path of the folder that contains the files."
        ) from None


@dataclass(frozen=True, slots=True)
class _FolderEntry:
    """An entry of an open folder that is not a link."""

    folder_descriptor: int
    name: str
    path: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class _FolderReader:
    """Reads the definition files below an open folder. The methods' parameter `root` is the folder's descriptor."""

    webhook_contents: dict[str, bytes]
    automation_contents: dict[str, bytes]
    problems: list[Problem]

    def report(self, path: str, message: str) -> None:
        self.problems.append(Problem(printable_path(path), START, message))

    def read_webhook_files(self, root: int) -> None:
        for entry in self._entries(root, WEBHOOKS, WEBHOOKS):
            stem = entry.name.removesuffix(WEBHOOK_SUFFIX)
            if entry.is_folder:
                self.report(entry.path, f"This is a folder. Webhooks are files: {WEBHOOKS}/<name>{WEBHOOK_SUFFIX}.")
            elif entry.name.endswith(".yml"):
                self.report(entry.path, f"Files of webhooks end in {WEBHOOK_SUFFIX}. Rename it.")
            elif stem == entry.name:
                self.report(
                    entry.path, f"This is not a webhook's file: those end in {WEBHOOK_SUFFIX}. Move it elsewhere."
                )
            elif self._has_valid_name(entry.path, stem):
                self._read_file(self.webhook_contents, entry, WEBHOOK_BYTES_MAX)

    def read_automation_files(self, root: int) -> None:
        for entry in self._entries(root, AUTOMATIONS, AUTOMATIONS):
            if not entry.is_folder:
                self.report(
                    entry.path, f"This is not a folder. An automation is {AUTOMATIONS}/<name>/{AUTOMATION_FILE}."
                )
            elif self._has_valid_name(entry.path, entry.name):
                self._read_automation(entry)

    def _read_automation(self, entry: _FolderEntry) -> None:
        problem_count = len(self.problems)
        has_definition = False
        for inner in self._entries(entry.folder_descriptor, entry.name, entry.path):
            if inner.name == AUTOMATION_FILE and not inner.is_folder:
                has_definition = True
                self._read_file(self.automation_contents, inner, AUTOMATION_BYTES_MAX)
            else:
                self.report(inner.path, f"Only {AUTOMATION_FILE} and a README may be here. Move it elsewhere.")
        if not has_definition and len(self.problems) == problem_count:
            self.report(entry.path, f"The folder has no file {AUTOMATION_FILE}. Add it, or remove the folder.")

    def _entries(self, parent: int, name: str, path: str) -> Iterator[_FolderEntry]:
        """The entries of a folder, without ignored ones. Reports links, and a folder that can't be opened."""
        try:
            descriptor = os.open(name, _INNER_FOLDER_FLAGS, dir_fd=parent)
        except OSError as error:
            self.report(path, _unreadable_message(parent, name, error))
            return
        with _closing(descriptor) as folder:
            with os.scandir(folder) as dir_entries:
                entries = sorted(
                    (dir_entry for dir_entry in dir_entries if not _IGNORED.match(dir_entry.name)),
                    key=lambda dir_entry: dir_entry.name,
                )
            if len(entries) > ENTRIES_MAX:
                message = f"The folder has {len(entries):,} entries; at most {ENTRIES_MAX:,} are read."
                self.report(path, f"{message} Is it the right folder?")
                return
            for dir_entry in entries:
                if dir_entry.is_symlink():
                    self.report(f"{path}/{dir_entry.name}", _IS_A_LINK)
                else:
                    yield _FolderEntry(
                        folder, dir_entry.name, f"{path}/{dir_entry.name}", dir_entry.is_dir(follow_symlinks=False)
                    )

    def _has_valid_name(self, path: str, name: str) -> bool:
        """Whether the name is valid. If not, the problem is reported."""
        if NAME.match(name):
            return True
        suggested = slug(name)
        suggestion = (
            f" Rename it to {suggested}. To keep the displayed name, add a line that begins with name: to it."
            if suggested
            else ""
        )
        self.report(path, f"{_NAME_RULE}.{suggestion}")
        return False

    def _read_file(self, contents: dict[str, bytes], entry: _FolderEntry, limit: int) -> None:
        try:
            with _closing(os.open(entry.name, _FILE_FLAGS, dir_fd=entry.folder_descriptor)) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    self.report(entry.path, "This is not a regular file. Definitions are regular files.")
                    return
                content = _read_at_most(file, limit + 1)
        except OSError as error:
            self.report(entry.path, _unreadable_message(entry.folder_descriptor, entry.name, error))
            return
        if len(content) > limit:
            self.report(entry.path, f"The file is larger than the limit of {limit // 1024} KB.")
            return
        contents[entry.path] = content


_IS_A_LINK: Final = "This is a symbolic link, which is not followed. Put the file itself here."


def _unreadable_message(parent: int, name: str, error: OSError) -> str:
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return _IS_A_LINK
    except OSError:
        pass
    return f"This can't be read: {error.strerror}."


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
    """A valid file name similar to this name; empty if no character of it is valid."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")


def printable_path(path: str) -> str:
    """A path as one line of printable text: file names may contain control characters."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in path
    )
