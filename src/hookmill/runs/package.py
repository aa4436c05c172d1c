"""A run's package: a directory with the prompt, the envelope, and the payload if there is one."""

import errno
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final

from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run import PAYLOAD_FILE, Run
from hookmill.domain.run_files import (
    ENVELOPE_FILE,
    NAMED_FILES,
    OUTPUT_FILE,
    PROMPT_FILE,
    WORKSPACE_DIRECTORY,
    from_first_character,
    listing_order,
    prepared_files,
)
from hookmill.domain.run_outputs import OUTPUTS_DIRECTORY
from hookmill.domain.secret import SecretValue
from hookmill.domain.workspace import CheckoutCommits
from hookmill.sandbox.disk import BLOCK_BYTES
from hookmill.store.directories import remove_directory, remove_entry, remove_or_set_aside

LISTED_ENTRIES_MAX: Final = 1_000
"""The maximum number of entries that a listing of a package reads. A command may create any number of files."""
CHUNK_BYTES: Final = 65_536
MASKED_MARKER: Final = ".masked"
"""A file that exists when the secrets of the run are masked in all other files. It is never listed."""
ENVELOPE_BYTES_MAX: Final = 1_048_576
"""More than the longest `envelope.json`, which has 32 fields of 2,000 characters, each in 12 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A complete package. Its path contains no text from a sender or user."""

    run: Run
    directory: Path
    traceparent: str | None = None
    """The span of the attempt, for a command that continues the trace; None while tracing is off."""
    secrets: Mapping[str, SecretValue] = field(default_factory=dict, repr=False)
    """The secrets that the command gets, by the name of the variable. No file of the package contains them."""
    commit: str | None = None
    """The id of the commit in the workspace; None without a workspace."""

    @property
    def prompt_file(self) -> Path:
        return self.directory / PROMPT_FILE

    @property
    def envelope_file(self) -> Path:
        return self.directory / ENVELOPE_FILE

    @property
    def payload_file(self) -> Path:
        return self.directory / PAYLOAD_FILE

    @property
    def workspace(self) -> Path | None:
        """The checkout; None without a workspace."""
        return self.directory / WORKSPACE_DIRECTORY if self.commit is not None else None


def directory_of(packages: Path, run: RunKey) -> Path:
    return packages / run_id(run)


def write_package(
    packages: Path,
    run: Run,
    payload: bytes | None,
    *,
    traceparent: str | None = None,
    check_out: Callable[[Path], CheckoutCommits] | None = None,
) -> Package:
    """Write a run's package. It replaces that of an earlier attempt, and is never incomplete. Raises `OSError`.

    `check_out` makes the workspace in the directory that it gets, and returns its commits. What it raises leaves
    no package.
    """
    directory = directory_of(packages, run.id)
    draft = packages / f".{directory.name}"
    # Almost always, the first attempt at each step succeeds. Looking first would take more system calls.
    try:
        draft.mkdir(mode=0o700)
    except FileNotFoundError:
        make_packages_directory(packages)
        draft.mkdir(mode=0o700)
    except FileExistsError:
        remove_or_set_aside(draft)
        draft.mkdir(mode=0o700)
    commits = _check_out(draft, check_out) if check_out is not None else None
    for name, content in prepared_files(run, payload, commits):
        _write_file(draft / name, content)
    try:
        draft.rename(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        # An earlier attempt has left its package there, or its command has put something else there.
        remove_or_set_aside(directory)
        draft.rename(directory)
    commit = commits.commit if commits is not None else None
    return Package(run=run, directory=directory, traceparent=traceparent, commit=commit)


def _check_out(draft: Path, check_out: Callable[[Path], CheckoutCommits]) -> CheckoutCommits:
    try:
        return check_out(draft / WORKSPACE_DIRECTORY)
    except BaseException:
        remove_or_set_aside(draft)
        raise


def hand_over(directory: Path, uid: int, gid: int) -> None:
    """Make an account the owner of a directory and its content. Links are handed over and not followed.

    Call it before a process of the account can change the directory. Raises `OSError`.
    """
    for _, directories, files, descriptor in os.fwalk(directory):
        for name in (*directories, *files):
            os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(directory, uid, gid, follow_symlinks=False)


def remove_workspace(packages: Path, run: RunKey) -> None:
    """Remove the workspace of a run whose processes have ended. Raises `OSError`."""
    remove_directory(directory_of(packages, run) / WORKSPACE_DIRECTORY)


def keep_results(package: Path, bytes_max: int) -> None:
    """Remove what a command whose processes have ended has written, except for results that need at most `bytes_max`.

    Results are `output.log`, the files that the service wrote, and then the files directly in the directory of outputs.
    Raises `OSError` if something can't be removed.
    """
    with open_directory(package) as top:
        remaining = bytes_max
        for name in reversed(NAMED_FILES):
            remaining -= _keep_if_small(name, top, remaining)
        _remove_entries(top, kept={*NAMED_FILES, OUTPUTS_DIRECTORY})
        try:
            outputs_fd = open_directory(OUTPUTS_DIRECTORY, top)
        except FileNotFoundError:
            return
        except OSError:
            remove_entry(OUTPUTS_DIRECTORY, top)
            return
        with outputs_fd as outputs:
            with os.scandir(outputs) as entries:
                names = sorted(entry.name for entry in islice(entries, LISTED_ENTRIES_MAX))
            for name in names:
                remaining -= _keep_if_small(name, outputs, remaining)
            _remove_entries(outputs, kept=set(names))


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_directory(path: Path | str, parent: int | None = None) -> AbstractContextManager[int]:
    """A descriptor of a directory, which is closed at the end of the context. Follows no link. Raises `OSError` now."""
    return _closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent))


def _keep_if_small(name: str, directory: int, bytes_max: int) -> int:
    """The space of a regular file, which is removed if it needs more than `bytes_max`. Removes everything else."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and (size := status.st_blocks * BLOCK_BYTES) <= bytes_max:
            return size
        remove_entry(name, directory)
    return 0


def _remove_entries(directory: int, kept: Collection[str]) -> None:
    # In parts, because a list of all entries could need much memory.
    while True:
        with os.scandir(directory) as entries:
            names = list(islice((entry.name for entry in entries if entry.name not in kept), LISTED_ENTRIES_MAX))
        if not names:
            return
        for name in names:
            remove_entry(name, directory)


def make_packages_directory(packages: Path) -> None:
    """Create the directory of the packages, and its parent, if missing. Only the owner can open them."""
    packages.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    packages.mkdir(mode=0o700, exist_ok=True)


SERVICE_FILE_PREFIXES: Final = ("hookmill.db", "master.key", "serve.lock", "worker.lock")
"""The names of the service's own files in the data directory begin with one of these."""


def allow_traversal(packages: Path) -> None:
    """Let other accounts reach a package if they know its name, but no other file of the service.

    They can't list the packages, and open only those that they own. Other programs' files in the data directory keep
    their modes.
    """
    data = packages.parent
    # 0o011 lets the group and others search a directory, that is, open an entry whose name they know. The masks remove
    # their write permission for both directories, and their read permission (listing) for that of the packages. The
    # directories are changed before the files, because an account with write permission could replace a file by a link.
    for directory, mode_mask in ((data, 0o755), (packages, 0o700)):
        mode = directory.stat().st_mode & 0o7777
        if (new_mode := mode & mode_mask | 0o011) != mode:
            directory.chmod(new_mode)
    for entry in os.scandir(data):
        if not entry.name.startswith(SERVICE_FILE_PREFIXES) or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(FileNotFoundError):  # A database creates and removes files at any time.
            mode = entry.stat(follow_symlinks=False).st_mode & 0o7777
            if mode & 0o077:
                Path(entry).chmod(mode & ~0o077)


def make_durable(package: Package) -> None:
    """Sync the package to disk, so that it survives a power failure."""
    for path in (*package.directory.iterdir(), package.directory, package.directory.parent):
        with _closing(os.open(path, os.O_RDONLY)) as descriptor:
            os.fsync(descriptor)


_HOST_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)


def raise_host_fault(error: OSError) -> None:
    """Raise the error if this host is the reason why a file can't be read, and not what a command has left there."""
    if error.errno in _HOST_ERRORS:
        raise error


# Reading a package while its command runs, or after it ended. The command may replace any file, and the package itself,
# by a link, a pipe or a device. The functions below open regular files only, directly in the directory, and follow no
# link.


def open_file(packages: Path, run: RunKey, name: str) -> IO[bytes]:
    """A regular file in a run's package. Raises `OSError` if there is no such file."""
    if "/" in name or "\0" in name:
        raise FileNotFoundError(name)
    with open_package(packages, run) as package:
        return open_file_in(package, name)


def open_file_in(directory: int, name: str) -> IO[bytes]:
    """A regular file directly in an open directory. Raises `OSError` if there is no such file."""
    # O_NONBLOCK: opening a pipe without a writer would wait forever.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise FileNotFoundError(name)


def read_file(packages: Path, run: RunKey, name: str, bytes_max: int) -> bytes | None:
    """The content of a file. None if it is larger than `bytes_max`, or is no file that can be read.

    Raises `OSError` for a fault of the host.
    """
    try:
        with open_file(packages, run, name) as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise_host_fault(error)
        return None
    return content if len(content) <= bytes_max else None


def read_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of an open file up to its present size, then close it. A command may still write to it."""
    with file:
        remaining = os.fstat(file.fileno()).st_size
        while remaining > 0 and (chunk := file.read(min(remaining, CHUNK_BYTES))):
            remaining -= len(chunk)
            yield chunk


def read_tail(file: IO[bytes], bytes_max: int) -> tuple[bytes, int]:
    """The last bytes of an open file, from the start of a UTF-8 character, and the file's size. Closes the file."""
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - bytes_max))
        tail = file.read(bytes_max)
    return (from_first_character(tail) if size > bytes_max else tail), size


def list_files(packages: Path, run: RunKey) -> tuple[list[tuple[str, int]], bool]:
    """The names and sizes of a package's regular files, in the order of `listing_order`, and whether the list is cut.

    The list is cut if the package has more than `LISTED_ENTRIES_MAX` entries. It never lacks `NAMED_FILES`. It is empty
    if there is no package. Raises `OSError` for a fault of the host.
    """
    sizes = {}
    try:
        with open_package(packages, run) as package:
            with os.scandir(package) as entries:
                others = (entry.name for entry in entries if entry.name not in {*NAMED_FILES, MASKED_MARKER})
                names = [*NAMED_FILES, *islice(others, LISTED_ENTRIES_MAX - len(NAMED_FILES))]
                is_cut = next(others, None) is not None
            for name in names:
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=package, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        sizes[name] = status.st_size
    except OSError as error:
        raise_host_fault(error)
        return [], False
    return sorted(sizes.items(), key=lambda item: listing_order(item[0])), is_cut


@dataclass(frozen=True, slots=True)
class PackagesOnHost:
    """The packages on this host, for readers.

    Call `has_package` first, because the other methods may also read a package of an earlier attempt. Until the secrets
    of a run are masked in its files, only its output is shown.
    """

    directory: Path

    def has_package(self, run: Run) -> bool:
        """Whether the package of the run's latest attempt is on this host."""
        try:
            with open_package(self.directory, run.id):
                # Another host may have performed a later attempt.
                return run.attempt <= 1 or _attempt_of_package(self.directory, run) >= run.attempt
        except OSError:
            return False

    def list_files(self, run: Run) -> tuple[list[tuple[str, int]], bool]:
        """Like the function `list_files`, but empty after a fault of the host, too."""
        try:
            files, is_cut = list_files(self.directory, run.id)
        except OSError:
            return [], False
        return [(name, size) for name, size in files if self._shows(run, name)], is_cut

    def read_chunks(self, run: Run, name: str) -> Iterator[bytes]:
        """The content of a file, which is open when this returns. Raises `OSError` if there is no such file."""
        if not self._shows(run, name):
            raise FileNotFoundError(name)
        chunks = read_chunks(open_file(self.directory, run.id, name))
        # The generator starts now: one that is discarded before it starts would leave the file open.
        return chain([next(chunks, b"")], chunks)

    def read_tail(self, run: Run, name: str, bytes_max: int) -> tuple[bytes, int]:
        """The end of a file, and the file's size. Raises `OSError` if there is no such file."""
        if not self._shows(run, name):
            raise FileNotFoundError(name)
        return read_tail(open_file(self.directory, run.id, name), bytes_max)

    def _shows(self, run: Run, name: str) -> bool:
        return not run.options.secrets or name == OUTPUT_FILE or is_masked(self.directory, run.id)


def is_masked(packages: Path, run: RunKey) -> bool:
    """Whether the secrets of the run are masked in the files of its package."""
    return os.path.lexists(directory_of(packages, run) / MASKED_MARKER)


def _attempt_of_package(packages: Path, run: Run) -> int:
    """The attempt that the envelope names; the run's latest one if the command has made the envelope unreadable."""
    try:
        with open_file(packages, run.id, ENVELOPE_FILE) as file:
            attempt = json.loads(file.read(ENVELOPE_BYTES_MAX))["run"]["attempt"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return run.attempt
    return attempt if isinstance(attempt, int) else run.attempt


def open_package(packages: Path, run: RunKey) -> AbstractContextManager[int]:
    """Like `open_directory`, for a run's package."""
    return open_directory(directory_of(packages, run))


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
    finally:
        os.close(descriptor)
