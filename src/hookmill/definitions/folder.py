"""Find and read the definition files of a folder. Nothing outside the folder is ever opened.

    webhooks/<name>.yaml
    automations/<name>/automation.md, or automations/<name>.md

Names are short and plain, and links are not followed. Unrelated files are ignored. A file that may be a definition with
a misspelt name is a problem: otherwise this definition would count as removed.
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
AUTOMATION_SUFFIX: Final = ".md"
WEBHOOK_SUFFIX: Final = ".yaml"
_NAME: Final = r"[a-z0-9][a-z0-9-]{0,62}"
NAME: Final = re.compile(rf"{_NAME}\Z")

WEBHOOK_BYTES_MAX: Final = 65_536
AUTOMATION_BYTES_MAX: Final = 524_288
"""Enough for the longest allowed prompt in any language."""
ENTRIES_MAX: Final = 1_000
"""The limit of files and folders in one folder: far more webhooks than a factory may have."""
FACTORY_FILE: Final = "factory.yaml"
"""A file of other implementations of the contract. A tree that has it is a factory, even without definitions."""
RUNNERS: Final = "runners"
"""A folder of other implementations, which describes the compute of runs."""
_PATH: Final = re.compile(
    rf"{WEBHOOKS}/(?P<webhook>{_NAME}){WEBHOOK_SUFFIX}|{AUTOMATIONS}/{_NAME}(?:/{AUTOMATION_FILE}|{AUTOMATION_SUFFIX})"
)
_LOOKS_LIKE_WEBHOOK: Final = re.compile(r"\.ya?ml", re.IGNORECASE)
_LOOKS_LIKE_AUTOMATION: Final = re.compile(r"automation|.*\.(?:md|markdown)\Z", re.IGNORECASE | re.DOTALL)

_IGNORED: Final = re.compile(r"\..*|README(?:\.[a-z]+)?\Z", re.IGNORECASE | re.DOTALL)
_NAME_RULE: Final = "Names have lower-case letters, digits and dashes (63 at most, no dash in front)"
_NO_DEFINITION_FILE: Final = (
    f"Definition files are {WEBHOOKS}/<name>{WEBHOOK_SUFFIX}, {AUTOMATIONS}/<name>/{AUTOMATION_FILE} and "
    f"{AUTOMATIONS}/<name>{AUTOMATION_SUFFIX}. {_NAME_RULE}."
)


@dataclass(frozen=True, slots=True)
class Files:
    """The contents of a folder's definition files by their paths, in the order of the paths."""

    webhook_contents: Mapping[str, bytes]
    automation_contents: Mapping[str, bytes]
    problems: tuple[Problem, ...] = ()
    belongs_to_another_implementation: bool = False
    """Whether the key `runner` may name compute that the tree describes, instead of a runner."""

    @property
    def marks(self) -> dict[str, str]:
        """A file by which `files_of` learns `belongs_to_another_implementation`."""
        return {FACTORY_FILE: ""} if self.belongs_to_another_implementation else {}


def stem_of(file: str) -> str:
    """The name that the file's path gives to a webhook or automation. The key `name` in the file overrides it."""
    part, name = file.split("/")[:2]
    return name.removesuffix(AUTOMATION_SUFFIX if part == AUTOMATIONS else WEBHOOK_SUFFIX)


def read_folder(folder: Path) -> Files:
    """Every definition file, and a problem for every other file that is not ignored.

    Raises `NotFound` if the folder does not exist.
    """
    reader = _FolderReader(webhook_contents={}, automation_contents={}, problems=[])
    with _closing(_open(folder)) as root:
        existing = [name for name in (WEBHOOKS, AUTOMATIONS) if _exists(root, name)]
        has_factory_file = _exists(root, FACTORY_FILE)
        if not existing and not has_factory_file:
            reader.problems.append(Problem(".", NOWHERE, _no_definitions_message(root, folder)))
        if WEBHOOKS in existing:
            reader.read_webhook_files(root)
        if AUTOMATIONS in existing:
            reader.read_automation_files(root)
        is_foreign = has_factory_file or _exists(root, RUNNERS)
    return Files(reader.webhook_contents, reader.automation_contents, tuple(reader.problems), is_foreign)


def files_of(texts: Mapping[str, str]) -> Files:
    """The definition files with these texts, by path, and a problem for each path that no definition file has."""
    contents: tuple[dict[str, bytes], dict[str, bytes]] = {}, {}
    problems: list[Problem] = []
    for path, text in sorted(texts.items()):
        match = _PATH.fullmatch(path)
        content = text.encode()
        if path == FACTORY_FILE:
            continue
        if match is None:
            problems.append(Problem(printable_path(path[:200]), START, _NO_DEFINITION_FILE))
        elif len(content) > (limit := WEBHOOK_BYTES_MAX if match["webhook"] else AUTOMATION_BYTES_MAX):
            problems.append(Problem(path, START, _too_large(limit)))
        else:
            contents[match["webhook"] is None][path] = content
    return Files(*contents, tuple(problems), FACTORY_FILE in texts)


def _no_definitions_message(root: int, folder: Path) -> str:
    location = "here" if folder == Path() else f"in {printable_path(str(folder))}"
    with os.scandir(root) as dir_entries:
        names = sorted(entry.name for entry in dir_entries if entry.is_dir(follow_symlinks=False))
    inner = next(
        (name for name in names if any(_exists(root, f"{name}/{part}") for part in (WEBHOOKS, AUTOMATIONS))), None
    )
    example = f": is it {printable_path(str(folder / inner))}?" if inner is not None else "."
    return (
        f"There is neither a folder {WEBHOOKS} nor a folder {AUTOMATIONS} {location}. "
        f"Give the path of the folder that contains them{example}"
    )


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
    """An entry of an open folder. A link is not a folder, wherever it leads."""

    folder_descriptor: int
    name: str
    path: str
    is_folder: bool
    is_link: bool


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
                if any(_LOOKS_LIKE_WEBHOOK.search(inner.name) for inner in self._inner_entries(entry)):
                    self.report(entry.path, f"This is a folder. Webhooks are files: {WEBHOOKS}/<name>{WEBHOOK_SUFFIX}.")
            elif not _LOOKS_LIKE_WEBHOOK.search(entry.name):
                continue
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
            stem = entry.name.removesuffix(AUTOMATION_SUFFIX)
            if entry.is_folder:
                self._read_automation_folder(entry)
            elif entry.is_link:
                # A link may lead to the folder or the file of an automation.
                if NAME.match(stem):
                    self.report(entry.path, _IS_A_LINK)
            elif stem != entry.name:
                content = self._content(entry, AUTOMATION_BYTES_MAX)
                # Other Markdown files have no front matter.
                if (
                    content is not None
                    and content.removeprefix(b"\xef\xbb\xbf").startswith(b"---")
                    and self._has_valid_name(entry.path, stem)
                ):
                    self.automation_contents[entry.path] = content

    def _read_automation_folder(self, folder: _FolderEntry) -> None:
        problem_count = len(self.problems)
        names = []
        for entry in self._inner_entries(folder):
            names.append(entry.name)
            if entry.name == AUTOMATION_FILE and self._has_valid_name(folder.path, folder.name):
                self._read_file(self.automation_contents, entry, AUTOMATION_BYTES_MAX)
        is_other_folder = bool(names) and not any(map(_LOOKS_LIKE_AUTOMATION.match, names))
        if AUTOMATION_FILE not in names and not is_other_folder and len(self.problems) == problem_count:
            self.report(folder.path, f"The folder has no file {AUTOMATION_FILE}. Add it, or remove the folder.")

    def _inner_entries(self, folder: _FolderEntry) -> Iterator[_FolderEntry]:
        return self._entries(folder.folder_descriptor, folder.name, folder.path)

    def _entries(self, parent: int, name: str, path: str) -> Iterator[_FolderEntry]:
        """The entries of a folder, without ignored ones. Reports a folder that can't be opened."""
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
                yield _FolderEntry(
                    folder_descriptor=folder,
                    name=dir_entry.name,
                    path=f"{path}/{dir_entry.name}",
                    is_folder=dir_entry.is_dir(follow_symlinks=False),
                    is_link=dir_entry.is_symlink(),
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
        if (content := self._content(entry, limit)) is not None:
            contents[entry.path] = content

    def _content(self, entry: _FolderEntry, limit: int) -> bytes | None:
        """The file's content; None after reporting why it is not read."""
        try:
            with _closing(os.open(entry.name, _FILE_FLAGS, dir_fd=entry.folder_descriptor)) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    self.report(entry.path, "This is not a regular file. Definitions are regular files.")
                    return None
                content = _read_at_most(file, limit + 1)
        except OSError as error:
            self.report(entry.path, _unreadable_message(entry.folder_descriptor, entry.name, error))
            return None
        if len(content) > limit:
            self.report(entry.path, _too_large(limit))
            return None
        return content


def _too_large(limit: int) -> str:
    return f"The file is larger than the limit of {limit // 1024} KB."


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
