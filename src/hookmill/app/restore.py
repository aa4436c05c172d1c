"""Restores a backup into an empty SQLite or PostgreSQL database: everything, or nothing."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from hookmill.app import keys, now_us
from hookmill.app.exclusive import lock_out_services
from hookmill.domain import moment
from hookmill.domain.errors import Conflict, DiskFull, Invalid, StoreUnavailable
from hookmill.domain.ids import TeamId, time_ordered_key
from hookmill.domain.permission import Channel
from hookmill.domain.secret import SecretValue
from hookmill.domain.text import shown
from hookmill.management.access import operator_actor
from hookmill.runs.package_copies import CopiedPackages, PackageRestorer
from hookmill.settings import Settings
from hookmill.store import audit
from hookmill.store.backup import restoring
from hookmill.store.backup.adopting import AdoptedWork, adopt
from hookmill.store.backup.container import BackupReader, UnusableBackup
from hookmill.store.backup.records import BackupSnapshot, Header, Record, SealedKeys, Summary
from hookmill.store.backup.restoring import LoadedBackup
from hookmill.store.database import Database, Transaction, open_database, sqlite_path, sqlite_url
from hookmill.store.keys import passphrase
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.sealing import KeyRing, MasterKey, WrongKey, master_key_from_text
from hookmill.store.private_file import sync_directory
from hookmill.store.restored import Restoration, set_restoration
from hookmill.store.revision import revisions
from hookmill.store.rows import ReportRows, postgres
from hookmill.store.rows.tables import TABLES

IDLE_SECONDS: Final = 3600
"""How long a transaction on PostgreSQL may wait for the next rows of the backup, which may come from a slow pipe."""
CONNECTIONS: Final = 2
NOTHING_CHANGED: Final = "Nothing was changed. To try again, start the same command."
MAYBE_COMPLETE: Final = (
    "The connection was lost during the COMMIT, so the restore may be complete. Start the same command again: if it is "
    "complete, the command refuses the database, because it is not empty."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A backup that is complete and undamaged. `is_proven`: its HMAC, which needs the master key, was verified, too. So
    nobody has altered the backup on purpose."""

    header: Header
    snapshot: BackupSnapshot
    summary: Summary
    sha256: str
    is_proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    header: Header
    loaded: LoadedBackup
    adopted: AdoptedWork
    """How many runs were requeued and messages discarded, because the copy is an installation of its own."""
    packages: CopiedPackages
    kept_packages: int
    """Packages that this host already had, and that stay as they are."""
    key_file: Path | None
    """The file that now has the backup's master keys; None if they were here already."""
    seconds: float


class _Backup:
    """An open backup: its header was read, and its master keys may be known."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.reader, self.header, self.sealed_keys, self._records = self._begin()

    def _begin(self) -> tuple[BackupReader, Header, SealedKeys | None, Iterator[Record]]:
        reader = BackupReader(self._file, self._name)
        records = reader.records()
        header = next(records, None)
        if not isinstance(header, Header):
            raise UnusableBackup(f"{self._name} has no header. Nothing was changed.")
        if header.schema != revisions()[-1]:
            raise UnusableBackup(
                f"{self._name} was made by Hookmill {header.version}, whose schema is {header.schema[:40]}. This "
                f"version needs {revisions()[-1]}. Restore the backup with the version that made it. Nothing was "
                "changed."
            )
        if not header.has_keys:
            return reader, header, None, records
        sealed_keys = next(records, None)
        if not isinstance(sealed_keys, SealedKeys):
            raise UnusableBackup(f"{self._name} lacks the master keys that its header announces. Nothing was changed.")
        return reader, header, sealed_keys, records

    def verify(self, ring: KeyRing | None) -> None:
        """If the file can be read twice, read it to its end before anything is written, and begin again.

        Raises `UnusableBackup` if it was cut or altered.
        """
        if not self._file.seekable():
            return
        self._file.seek(0)
        reader = BackupReader(self._file, self._name)
        reader.verify()
        if ring is not None:
            reader.require_proof(_proof_key(ring, self.header))
        self._file.seek(0)
        self.reader, self.header, self.sealed_keys, self._records = self._begin()

    def records(self) -> Iterator[Record]:
        """The records after the header and the keys."""
        return self._records


def check(settings: Settings, file: BinaryIO, name: str) -> CheckResult:
    """Read the whole backup without restoring it. Raises `UnusableBackup`."""
    backup = _Backup(file, name)
    snapshot: BackupSnapshot | None = None
    summary: Summary | None = None
    for record in backup.records():
        if isinstance(record, BackupSnapshot):
            snapshot = record
        elif isinstance(record, Summary):
            summary = record
    if snapshot is None or summary is None:
        raise UnusableBackup(f"{name} has no summary. Nothing was changed.")
    ring = None
    with suppress(Invalid):
        ring = _present_ring(settings, backup.header)
    if ring is not None:
        backup.reader.require_proof(_proof_key(ring, backup.header))
    return CheckResult(
        header=backup.header,
        snapshot=snapshot,
        summary=summary,
        sha256=backup.reader.sha256,
        is_proven=ring is not None,
    )


def restore(
    settings: Settings,
    file: BinaryIO,
    name: str,
    *,
    ask_passphrase: Callable[[], SecretValue],
    report: ReportRows,
) -> RestoreResult:
    """Restore the backup into the database that the settings name, which must be empty.

    `ask_passphrase` is called if only the backup has its master keys. If `restore` raises, or the process is killed,
    the database is still empty; a killed process may leave packages and the key file. From the COMMIT on, SIGINT is
    ignored. Without PostgreSQL's answer to the COMMIT, nothing is undone. Raises

    - `UnusableBackup` for a file that is not a backup, or was cut or altered;
    - `WrongKey` without the backup's master keys, and `Invalid` for a wrong passphrase;
    - `Conflict` if the database is not empty, or a process uses the data directory;
    - `DiskFull` if the disk of the database or of the data directory is full;
    - `StoreUnavailable`.
    """
    began_at = time.monotonic()
    backup = _Backup(file, name)
    _refuse_used(settings)
    ring, new_keys = _ring_for(settings, backup, ask_passphrase)
    backup.verify(ring)
    # The first context ends last, when the others have removed what was written.
    with _naming_full_disk(settings), ExitStack() as on_failure, ExitStack() as resources:
        _prepare_directory(settings, on_failure, resources)
        packages = PackageRestorer(settings.data_dir.absolute() / "runs")
        packages.remove_drafts()
        on_failure.callback(packages.remove_drafts)
        is_committing = False
        try:
            with empty_database(settings) as tx:
                restoring.create_tables(tx)
                loaded = restoring.load(tx, backup.records(), add_package_file=packages.add, report=report)
                backup.reader.require_proof(_proof_key(ring, backup.header))
                now = now_us()
                # The copy becomes an installation of its own: this requeues runs, and discards unsent messages.
                adopted = adopt(tx, now)
                _record(tx, TeamId(backup.header.team), loaded.snapshot, now)
                key_file = _create_key_file(settings, new_keys, on_failure)
                on_failure.callback(packages.unpublish)
                kept_packages = packages.publish()
                # After the COMMIT, nothing may be undone.
                resources.enter_context(_ignoring_interrupts())
                is_committing = True
        except StoreUnavailable as error:
            if not is_committing or not settings.on_postgres or isinstance(error, DiskFull):
                raise
            # PostgreSQL may have executed the COMMIT.
            on_failure.pop_all()
            raise StoreUnavailable(f"{error}. {MAYBE_COMPLETE}") from error
        on_failure.pop_all()
        collect_statistics(settings)
    return RestoreResult(
        header=backup.header,
        loaded=loaded,
        adopted=adopted,
        packages=packages.copied,
        kept_packages=kept_packages,
        key_file=key_file,
        seconds=time.monotonic() - began_at,
    )


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore SIGINT (Ctrl-C) until the block ends."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _naming_full_disk(settings: Settings) -> Iterator[None]:
    """Let the error about a full disk say which disk it is, and what to do."""
    database = "PostgreSQL" if settings.on_postgres else shown(str(_sqlite_path(settings).parent))
    try:
        yield
    except DiskFull as error:
        raise _disk_full_error(database) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full_error(shown(str(settings.data_dir.absolute()))) from error
        raise


def _disk_full_error(place: str) -> DiskFull:
    return DiskFull(
        f"The backup can't be restored, because the disk of {place} is full. Nothing was changed. Free disk space, or "
        "restore to another disk: start the same command again."
    )


def _record(tx: Transaction, team: TeamId, snapshot: BackupSnapshot, now: int) -> None:
    """Record the restore for the next start of the service, and in the audit log."""
    restored = Restoration(taken_at=snapshot.taken_at, restored_at=now, newest_delivery_at=snapshot.newest_delivery_at)
    set_restoration(tx, restored)
    audit.add(
        tx,
        time_ordered_key(now, os.urandom(8)),
        team=team,
        factory=None,
        at=now,
        actor=operator_actor(Channel.CLI),
        action="installation.restore",
        subject=("installation", team, f"a backup of {moment.utc(snapshot.taken_at)} UTC"),
        details={"newest_delivery_at": snapshot.newest_delivery_at},
    )


# The master keys


def _proof_key(ring: KeyRing, header: Header) -> bytes:
    return ring.named(header.sealing_key).proof_key()


def _present_ring(settings: Settings, header: Header) -> KeyRing:
    """The available keys. Raises `WrongKey` if one of the backup's is missing, and `Invalid` if there are none."""
    ring = keys.key_ring(settings)
    for key_id in (header.sealing_key, *header.retiring_keys):
        ring.named(key_id)
    return ring


def _ring_for(
    settings: Settings, backup: _Backup, ask_passphrase: Callable[[], SecretValue]
) -> tuple[KeyRing, list[MasterKey]]:
    """The keys of the backup, and those that the key file must get, because only the backup has them."""
    file = keys.key_file(settings)
    if file is None or file.exists():
        try:
            return _present_ring(settings, backup.header), []
        except WrongKey as error:
            raise WrongKey(
                f"The secrets of the backup need another master key. {error} {_hint(backup, file)}"
            ) from None
    if backup.sealed_keys is None:
        raise WrongKey(
            f"The secrets of the backup need the master key {backup.header.sealing_key}, and there is no "
            f"{file.path.absolute()}. Put the key into this file. {_hint(backup, file)}"
        )
    plain = passphrase.unseal(backup.sealed_keys.salt, backup.sealed_keys.sealed, ask_passphrase())
    new_keys = [master_key_from_text(line) for line in plain.decode().splitlines()]
    ring = KeyRing(new_keys)
    for key_id in (backup.header.sealing_key, *backup.header.retiring_keys):
        ring.named(key_id)
    return ring, new_keys


def _hint(backup: _Backup, file: KeyFile | None) -> str:
    """What else to know about the missing key. `file`: of the available keys; None if they are settings."""
    if backup.sealed_keys is None:
        return "Without it, no secret can be read. Nothing was changed."
    first = "move master.key away" if file is not None else "unset HOOKMILL_MASTER_KEY"
    return (
        f"The backup has this key: to use it instead, {first}, and restore with the backup's passphrase. Nothing was "
        "changed."
    )


def _create_key_file(settings: Settings, new_keys: list[MasterKey], on_failure: ExitStack) -> Path | None:
    file: KeyFile | None = keys.key_file(settings)
    if not new_keys or file is None:
        return None
    file.create(new_keys)
    on_failure.callback(file.path.unlink, missing_ok=True)
    return file.path.absolute()


# The target


def _refuse_used(settings: Settings) -> None:
    """Raises `Conflict` unless the database is empty."""
    if settings.on_postgres:
        with _open_postgres(settings) as database, database.read() as tx:
            restoring.require_empty(tx)
        return
    path = _sqlite_path(settings)
    for used in (path, path.with_name(f"{path.name}-wal")):
        if os.path.lexists(used):
            raise Conflict(
                f"{used} exists. A restore needs a data directory without a database. Name another one in "
                f"HOOKMILL_DATA_DIR, or move {path.name}, {path.name}-wal and {path.name}-shm away. Nothing was "
                "changed."
            )


def _sqlite_path(settings: Settings) -> Path:
    return sqlite_path(settings.store_url())


def _open_postgres(settings: Settings) -> Database:
    return open_database(settings.store_url(), connections=CONNECTIONS, idle_seconds=IDLE_SECONDS)


def _prepare_directory(settings: Settings, on_failure: ExitStack, resources: ExitStack) -> None:
    """Create the data directory, and let no other process use it."""
    directory = settings.data_dir.absolute()
    if not directory.exists():
        directory.mkdir(parents=True, mode=0o700)
        on_failure.callback(_remove_if_empty, directory)
    # Even if the restore is into PostgreSQL, a service with SQLite may use the directory.
    database = directory / "hookmill.db" if settings.on_postgres else _sqlite_path(settings)
    lock_out_services(settings, database, resources, only_existing=True)


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


@contextmanager
def empty_database(settings: Settings) -> Iterator[Transaction]:
    """A transaction on the empty database. Nothing is visible before the block ends."""
    if settings.on_postgres:
        with _open_postgres(settings) as database:
            from hookmill.store.pooler import refuse_pooler

            refuse_pooler(database)
            with database.write() as tx:
                yield tx
        return
    path = _sqlite_path(settings)
    draft = path.with_name(f"{path.name}.restoring")
    for leftover in _files_of(draft):
        leftover.unlink(missing_ok=True)
    try:
        draft.touch(mode=0o600)
        with Database(sqlite_url(draft), is_draft=True) as database, database.write() as tx:
            yield tx
        _publish(draft, path)
    finally:
        for leftover in _files_of(draft):
            leftover.unlink(missing_ok=True)


def _files_of(database: Path) -> list[Path]:
    return [database, *(database.with_name(f"{database.name}{suffix}") for suffix in ("-wal", "-shm", "-journal"))]


def _publish(draft: Path, path: Path) -> None:
    """Give the draft its name, synced to disk, unless another process has created a database meanwhile."""
    descriptor = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(draft, path)
    except FileExistsError:
        raise Conflict(f"Another process has created {path} meanwhile. {NOTHING_CHANGED}") from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        # Some file systems have no links.
        draft.rename(path)
    try:
        sync_directory(path.parent)
    except OSError:
        # The restore fails, and removes the packages and the key file, too.
        path.unlink()
        raise


def collect_statistics(settings: Settings) -> None:
    """Let PostgreSQL collect statistics. Without them, the service is only slower."""
    if settings.on_postgres:
        with suppress(StoreUnavailable), _open_postgres(settings) as database, database.write() as tx:
            postgres.analyze(tx, TABLES)
