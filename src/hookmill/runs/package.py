"""A run as files: the prompt, the envelope and the payload, in a directory of its own, ready for whoever acts on it."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from hookmill.domain.ids import run_id
from hookmill.domain.run import PAYLOAD_FILE, Run, envelope, envelope_text, full_prompt
from hookmill.store.directories import clear_place

PROMPT_FILE: Final = "prompt.md"
ENVELOPE_FILE: Final = "envelope.json"
ENVELOPE_TEXT_FILE: Final = "envelope.txt"
FILES_COUNTED: Final = 1_000
"""A command may leave any number of files. Whoever lists them looks at so many."""
PIECE_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that stands complete in `directory`. No name in its path comes from outside."""

    run: Run
    directory: Path

    @property
    def prompt_file(self) -> Path:
        return self.directory / PROMPT_FILE

    @property
    def envelope_file(self) -> Path:
        return self.directory / ENVELOPE_FILE

    @property
    def payload_file(self) -> Path:
        return self.directory / PAYLOAD_FILE


def directory_of(packages: Path, run: Run) -> Path:
    return packages / run_id(run.id)


def write_package(packages: Path, run: Run, payload: bytes) -> Package:
    """Put a run's package into its place, whole or not at all; what an earlier attempt left there is gone.

    Raises `OSError` when the disk refuses.
    """
    place = directory_of(packages, run)
    draft = packages / f".{place.name}"
    make_packages_directory(packages)
    clear_place(draft)
    draft.mkdir(mode=0o700)
    for name, content in _files(run, payload):
        _write(draft / name, content)
    clear_place(place)
    draft.rename(place)
    return Package(run=run, directory=place)


def make_packages_directory(packages: Path) -> None:
    """Make it, and the data directory that it is in, for their owner alone where they are missing."""
    packages.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    packages.mkdir(mode=0o700, exist_ok=True)


OURS_IN_DATA: Final = ("hookmill.db", "engine.db", "master.key", "serve.lock", "engine.lock")
"""How the names of the files that the service makes in the data directory begin."""


def let_others_pass(packages: Path) -> None:
    """Let other accounts pass through to a package whose name they know, and open nothing else of the service's.

    They can't list the packages. What is not the service's in the data directory stays as it is.
    """
    data = packages.parent
    # First: who may write in there could put a link in an entry's place.
    for directory, kept in ((data, 0o755), (packages, 0o700)):
        mode = directory.stat().st_mode & 0o7777
        if (passable := mode & kept | 0o011) != mode:
            directory.chmod(passable)
    for entry in os.scandir(data):
        if not entry.name.startswith(OURS_IN_DATA) or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(FileNotFoundError):  # Databases have files that come and go.
            mode = entry.stat(follow_symlinks=False).st_mode & 0o7777
            if mode & 0o077:
                Path(entry).chmod(mode & ~0o077)


def make_durable(package: Package) -> None:
    """From here on the package survives a loss of power."""
    for path in (*package.directory.iterdir(), package.directory, package.directory.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# What a command left. It may have put a link, a pipe or a device in the place of any file, and of the package itself:
# only regular files are opened, in the directory itself, and no link leads out of it.


def open_file(packages: Path, run: Run, name: str) -> int:
    """A descriptor of a regular file in a run's package. Raises `OSError` where there is none."""
    if "/" in name or "\0" in name:
        raise FileNotFoundError(name)
    package = _open_package(packages, run)
    try:
        # Without waiting: a pipe has nobody at its other end.
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=package)
    finally:
        os.close(package)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise FileNotFoundError(name)


def pieces_of(opened: int) -> Iterator[bytes]:
    """The content of an open file, as far as it goes now: a command may write to it meanwhile. Closes it."""
    with os.fdopen(opened, "rb", buffering=0) as file:
        left = os.fstat(opened).st_size
        while left > 0 and (piece := file.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece


def end_of(opened: int, bytes_max: int) -> tuple[bytes, int]:
    """The last part of an open file, beginning with a whole character, and the size of all of it. Closes it."""
    with os.fdopen(opened, "rb") as file:
        size = os.fstat(opened).st_size
        file.seek(max(0, size - bytes_max))
        end = file.read(bytes_max)
    if size > bytes_max:
        end = end[:_CONTINUED].lstrip(_CONTINUATIONS) + end[_CONTINUED:]
    return end, size


def files_of(packages: Path, run: Run) -> tuple[list[tuple[str, int]], bool]:
    """Names and sizes of a package's regular files, by name, and whether there are more than are counted. No files
    where there is no package."""
    try:
        package = _open_package(packages, run)
    except OSError:
        return [], False
    try:
        with os.scandir(package) as entries:
            seen = list(islice(entries, FILES_COUNTED))
            files = [
                (entry.name, entry.stat(follow_symlinks=False).st_size)
                for entry in seen
                if entry.is_file(follow_symlinks=False)
            ]
            return sorted(files), next(entries, None) is not None
    except OSError:
        return [], False
    finally:
        os.close(package)


_CONTINUED: Final = 3
"""A character of UTF-8 has at most so many bytes after its first."""
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))


def _open_package(packages: Path, run: Run) -> int:
    return os.open(directory_of(packages, run), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _files(run: Run, payload: bytes) -> Iterator[tuple[str, bytes]]:
    yield PROMPT_FILE, _text(full_prompt(run))
    yield ENVELOPE_FILE, _text(json.dumps(envelope(run), indent=2) + "\n")
    yield ENVELOPE_TEXT_FILE, _text(envelope_text(run))
    yield PAYLOAD_FILE, payload


def _text(text: str) -> bytes:
    # A prompt that came as JSON may hold half a surrogate pair, which UTF-8 has no place for.
    return text.encode("utf-8", "backslashreplace")


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
