"""Takes a backup while the service runs."""

import errno
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from hookmill import __version__
from hookmill.app import Store, now_us, open_store
from hookmill.app.snapshot_limits import MEGABYTE, SnapshotLimits, SnapshotStopped
from hookmill.domain.errors import Conflict, DiskFull, Invalid
from hookmill.domain.secret import SecretValue
from hookmill.domain.text import shown
from hookmill.runs.package_copies import CopiedPackages, read_packages
from hookmill.settings import Settings
from hookmill.store import factories, storage
from hookmill.store.backup.container import BackupOutput, BackupWriter
from hookmill.store.backup.records import BackupSnapshot, Header, Rows, SealedKeys, Summary
from hookmill.store.backup.taking import TABLES_OF_BACKUPS, snapshot_records
from hookmill.store.database import Transaction
from hookmill.store.keys import binding, passphrase
from hookmill.store.keys.binding import KeysInUse
from hookmill.store.keys.sealing import as_text
from hookmill.store.migrate import refuse_other_revision
from hookmill.store.private_file import new_private_file
from hookmill.store.revision import revisions
from hookmill.store.rows import ReportRows

NICENESS: Final = 19
"""The niceness of the thread that makes the backup, so that deliveries take precedence on a busy host."""
CONNECTIONS: Final = 2
"""The size of the pool of connections to PostgreSQL."""
OUTPUT_SECONDS_MAX: Final = 600.0
"""The longest time that a backup waits for the program that reads its output."""
_INTERRUPTION_SECONDS: Final = 0.5
"""How often a backup that waits for this program checks whether it was interrupted."""
SHARE_OF_DATABASE: Final = 0.5
"""The free space that a backup needs before the rows are written, as a share of the database without its indexes. JSON
usually compresses to a quarter; half leaves a margin."""
SYNC_BYTES: Final = 8 * 1024 * 1024
"""How much is written between two syncs to disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult:
    """A complete backup. `seconds` is how long it took."""

    snapshot: BackupSnapshot
    bytes_written: int
    sha256: str
    sealing_key: str
    has_keys: bool
    packages: CopiedPackages | None
    seconds: float


def back_up(
    settings: Settings,
    target: Path | None,
    *,
    replaces: bool,
    key_passphrase: SecretValue | None,
    with_packages: bool,
    report: ReportRows,
) -> BackupResult:
    """Write a backup to the file `target`, or to standard output if it is None.

    With `key_passphrase`, the backup has the master keys, sealed with it. Raises

    - `Invalid` for a path that can't be written, and `WrongKey` without the master key;
    - `Conflict` if the file exists and is not to be replaced, or if the database has another version's schema;
    - `DiskFull` before the disk of the output, or that of the database, is full;
    - `SnapshotStopped` if the backup takes too long, is interrupted, makes SQLite's WAL too large, or can't write to
      standard output;
    - `StoreUnavailable`.
    """
    is_interrupted = threading.Event()
    # A thread of its own, because niceness is per thread on Linux and can't be lowered again.
    with ThreadPoolExecutor(max_workers=1, initializer=os.nice, initargs=(NICENESS,)) as thread:
        try:
            # Ctrl-C can arrive inside `submit`, when the thread already runs. So `submit` is inside the `try`.
            return thread.submit(
                _back_up, settings, target, replaces, key_passphrase, with_packages, report, is_interrupted
            ).result()
        except KeyboardInterrupt:
            is_interrupted.set()
            raise


def state_after_failure(target: Path | None) -> str:
    """Says in errors what a backup that failed has written to `target`, or to standard output if it is None."""
    return "Nothing was written." if target is not None else "Its output is incomplete."


def _back_up(
    settings: Settings,
    target: Path | None,
    replaces: bool,
    key_passphrase: SecretValue | None,
    with_packages: bool,
    report: ReportRows,
    is_interrupted: threading.Event,
) -> BackupResult:
    began_at = time.monotonic()
    snapshot = None
    store = open_store(settings, connections=CONNECTIONS, idle_seconds=int(OUTPUT_SECONDS_MAX) + 60)
    try:
        limits = _Limits(settings, store, target, is_interrupted)
        with _opened(target, is_interrupted, replaces=replaces) as output:
            writer = BackupWriter(output)
            in_use, header = _describe(store, has_keys=key_passphrase is not None, has_packages=with_packages)
            writer.add(header)
            if key_passphrase is not None:
                writer.add(_sealed_keys(store, in_use, key_passphrase))
            copied = CopiedPackages()
            if with_packages:
                for part in read_packages(settings.data_dir / "runs", copied):
                    limits.check()
                    writer.add(part)
            with store.database.read() as tx:
                limits.check_space(tx)
                if binding.keys_in_use(tx) != in_use:
                    raise Conflict(
                        f"The master key was rotated when the backup began. {state_after_failure(target)} Start "
                        "the backup again."
                    )
                for record in snapshot_records(tx, TABLES_OF_BACKUPS, now_us()):
                    limits.check()
                    match record:
                        case BackupSnapshot():
                            snapshot = record
                            report("backing up", 0, snapshot.rows)
                        case Rows() if snapshot is not None:
                            report("backing up", len(record.rows), snapshot.rows)
                        case Summary():
                            record = msgspec.structs.replace(record, **asdict(copied))
                    writer.add(record)
            digest = writer.finish(store.master_keys.named(in_use.sealing_id).proof_key())
    finally:
        store.close()
    assert snapshot is not None
    return BackupResult(
        snapshot=snapshot,
        bytes_written=writer.bytes_written,
        sha256=digest.hex(),
        sealing_key=in_use.sealing_id,
        has_keys=key_passphrase is not None,
        packages=copied if with_packages else None,
        seconds=time.monotonic() - began_at,
    )


def _describe(store: Store, *, has_keys: bool, has_packages: bool) -> tuple[KeysInUse, Header]:
    with store.database.read() as tx:
        refuse_other_revision(tx)
        in_use = binding.keys_in_use(tx)
        team = factories.only_team(tx)
    if in_use is None or team is None:
        raise Invalid("There is nothing to back up: the service was never started with this database.")
    return in_use, Header(
        version=__version__,
        schema=revisions()[-1],
        source="sqlite" if store.database.on_sqlite else "postgresql",
        team=team,
        sealing_key=in_use.sealing_id,
        retiring_keys=list(in_use.retiring_ids),
        has_keys=has_keys,
        has_packages=has_packages,
    )


def _sealed_keys(store: Store, in_use: KeysInUse, key_passphrase: SecretValue) -> SealedKeys:
    keys = [store.master_keys.named(key_id) for key_id in (in_use.sealing_id, *in_use.retiring_ids)]
    salt, sealed = passphrase.seal("\n".join(map(as_text, keys)).encode(), key_passphrase)
    return SealedKeys(salt=salt, sealed=sealed)


# Bounds


class _Limits:
    """The checks that end a backup before it fills a disk, or keeps its snapshot too long."""

    def __init__(self, settings: Settings, store: Store, target: Path | None, is_interrupted: threading.Event) -> None:
        self._is_interrupted = is_interrupted
        self._state_after_failure = state_after_failure(target)
        self._snapshot = SnapshotLimits(store.database, "backup", state_after_failure(target))
        self._reserve = settings.free_space_min_mb * MEGABYTE
        self._output_directory = target.absolute().parent if target is not None else None
        self._directories: list[Path] = []
        if (database := store.database.path) is not None:
            self._directories.append(database.parent)
        if self._output_directory is not None:
            self._directories.append(self._output_directory)

    def check_space(self, tx: Transaction) -> None:
        """Raises `DiskFull` if the output's disk probably has too little space for the backup."""
        if self._output_directory is None:
            return
        needed = int(storage.data_bytes(tx) * SHARE_OF_DATABASE) + self._reserve
        free = _free_bytes(self._output_directory)
        if free < needed:
            raise DiskFull(
                f"The backup probably needs {needed // MEGABYTE:,} MB with the reserve of free_space_min_mb, and the "
                f"disk of {shown(str(self._output_directory))} has {free // MEGABYTE:,} MB. Nothing was written. Free "
                "disk space, or write the backup to another disk."
            )

    def check(self) -> None:
        """Raises `SnapshotStopped` or `DiskFull` if the backup must end."""
        if self._is_interrupted.is_set():
            raise SnapshotStopped(f"The backup was interrupted. {self._state_after_failure}")
        self._snapshot.check()
        for directory in self._directories:
            if _free_bytes(directory) < self._reserve:
                raise DiskFull(
                    f"The backup was stopped, because the disk of {shown(str(directory))} has less space than "
                    f"free_space_min_mb. {self._state_after_failure} Free disk space, or write the backup to another "
                    "disk."
                )


def _free_bytes(directory: Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


# The output


@contextmanager
def _opened(target: Path | None, is_interrupted: threading.Event, *, replaces: bool) -> Iterator[BackupOutput]:
    """The output. A file appears, synced to disk, only when the block ends."""
    if target is None:
        yield _StandardOutput(is_interrupted)
        return
    if "\0" in str(target):
        raise Invalid(f"{shown(str(target))} is not a valid file name. Nothing was written.")
    if os.path.lexists(target):
        if not target.is_file():
            raise Invalid(f"{shown(str(target))} is not a file. Name a file, or - for standard output.")
        if not replaces:
            raise _file_exists_error(target)
    try:
        with new_private_file(target, replaces=replaces) as file:
            yield _SyncedFile(file)
    except FileExistsError:
        raise _file_exists_error(target) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{shown(str(target))} can't be written, because its disk is full. Nothing was written. Free disk "
                "space, or write the backup to another disk."
            ) from None
        raise Invalid(f"{shown(str(target))} can't be written: {error.strerror}. Nothing was written.") from None


def _file_exists_error(target: Path) -> Conflict:
    return Conflict(f"{shown(str(target))} exists. Name another file, or add --force to replace it.")


class _SyncedFile:
    """A file that is synced to disk part by part. One long sync at the end could delay those of deliveries."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._bytes_to_sync = 0

    def write(self, data: bytes, /) -> None:
        self._file.write(data)
        self._bytes_to_sync += len(data)
        if self._bytes_to_sync > SYNC_BYTES:
            self._bytes_to_sync = 0
            self._file.flush()
            os.fsync(self._file.fileno())


class _StandardOutput:
    """Standard output. Writing to it fails if its reader takes nothing for `OUTPUT_SECONDS_MAX`."""

    def __init__(self, is_interrupted: threading.Event) -> None:
        self._is_interrupted = is_interrupted
        self._descriptor = sys.stdout.fileno()
        # `select` promises a pipe room for PIPE_BUF bytes only. A regular file never blocks.
        self._part_bytes = MEGABYTE if stat.S_ISREG(os.fstat(self._descriptor).st_mode) else select.PIPE_BUF

    def write(self, data: bytes, /) -> None:
        remaining = memoryview(data)
        while remaining:
            self._wait_until_writable()
            try:
                remaining = remaining[os.write(self._descriptor, remaining[: self._part_bytes]) :]
            except OSError as error:
                raise SnapshotStopped(
                    f"The backup was stopped, because standard output can't be written: {error.strerror}. "
                    f"{state_after_failure(None)}"
                ) from None

    def _wait_until_writable(self) -> None:
        ends_at = time.monotonic() + OUTPUT_SECONDS_MAX
        while not select.select([], [self._descriptor], [], _INTERRUPTION_SECONDS)[1]:
            if self._is_interrupted.is_set():
                raise SnapshotStopped(f"The backup was interrupted. {state_after_failure(None)}")
            if time.monotonic() > ends_at:
                raise SnapshotStopped(
                    f"The backup was stopped, because the program that reads it took nothing for "
                    f"{OUTPUT_SECONDS_MAX:g} s. {state_after_failure(None)}"
                )
