"""Stores files of runs, so that all hosts can read them. Otherwise, only the worker's host has them, in the package.

What can be derived is not stored: the payload is in `payloads`, and prompt and envelope are rendered from the run's
row. So a row of `run_files` is the command's output, or a file that the command created, changed or removed.

Only the executor that has claimed an attempt can store its files, and only until the attempt's end is recorded. Readers
get only files of the run's latest attempt.

A content is in its row, or in an object of the object store. The transaction that inserts a row chooses the object's
key, and only then is the object uploaded. A transaction that removes such a row notes the key in `removed_objects`, the
list of objects that are still to be removed from the object store. So every object has a row or a note, with one
exception: a worker was frozen while the object's row was removed, then uploaded the object, and was killed before it
noticed that the row was gone.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.errors import HookmillError
from hookmill.domain.ids import RunKey, run_id, run_key
from hookmill.domain.run import Run
from hookmill.domain.run_files import OUTPUT_FILE
from hookmill.store import dialect, metadata
from hookmill.store.database import Row, Transaction, from_row
from hookmill.store.objects import ObjectStore
from hookmill.store.runs.executors import ExecutorId

ROWS_PER_STATEMENT: Final = 100
_OBJECT_DIRECTORY: Final = "object store directory"
"""The name of the metadata with the directory of this database's objects. Its name is random, because installations may
share a bucket and a prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAttempt:
    """An attempt of a run, the executor that performs it, and the name of its host."""

    run: RunKey
    attempt: int
    executor: ExecutorId
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToStore:
    """A file of an attempt. `size` is None if the command has removed the file.

    `content` is None if the content is not stored in the row, or is added later. The output may have only its end here.
    """

    name: str
    size: int | None
    content: bytes | None = None
    is_to_upload: bool = False
    """Whether the whole content is to be uploaded to the object store, later and from the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A row about a file. `size` is None if the command has removed the file."""

    name: str
    size: int | None
    host: str
    stored_bytes: int
    """The size of the content in the row; -1 if the row has no content. Less than `size` if the object or only the host
    has the whole file."""
    object_key: str | None = None
    """The key of the object that has the whole content; None if there is none yet."""

    @property
    def is_whole_in_row(self) -> bool:
        return self.size is not None and self.stored_bytes >= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPackage:
    """The stored metadata of the package of a run's latest attempt."""

    files: Sequence[StoredFile]
    """By name, without the prepared files that the command left unchanged."""
    has_more: bool
    webhook_name: str | None
    """The webhook's name when the package was written. None while the run is performed, if no webhook started it, and
    if files of runs were not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToUpload:
    """A file whose object is missing, and whose content is in the package of this attempt."""

    run: RunKey
    name: str
    attempt: int
    size: int
    object_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFileStorage:
    """Stores files of runs in the table `run_files`, and their contents there or as objects.

    Methods that write return False, and write nothing, if the attempt has ended or is outdated.
    """

    objects: ObjectStore | None = None
    """The object store that has contents; None if this installation has none."""
    is_uploading: bool = False
    """Whether contents of new files are stored as objects."""

    def replace(
        self, tx: Transaction, attempt: ClaimedAttempt, files: Sequence[FileToStore], *, has_more: bool
    ) -> bool:
        """Replace all files of the run by these. `has_more`: the package has more files than can be listed.

        The caller records the end of the attempt afterwards.
        """
        is_uploading = any(file.is_to_upload for file in files)
        if not is_uploading:
            # The commit of the attempt's end syncs this one, too. An object must not be uploaded before its row is
            # durable.
            dialect.commit_without_sync(tx)
        claimed_run = _locked_run(tx, attempt)
        if claimed_run is None:
            return False
        # The conditions here save statements. Without an object store, a first attempt can't have objects, so nothing
        # is noted.
        if attempt.attempt > 1 or self.objects is not None:
            _note_objects(tx, attempt.run)
        tx.run("DELETE FROM run_files WHERE run_id = :run", run=attempt.run)
        key_prefix = self._key_prefix(tx, attempt) if is_uploading else ""
        for start in range(0, len(files), ROWS_PER_STATEMENT):
            _insert(tx, attempt, files[start : start + ROWS_PER_STATEMENT], key_prefix)
        # The outcome of an earlier call for this attempt may be unknown, so the flag may be set already.
        if has_more != bool(claimed_run["has_more_files"]):
            tx.run("UPDATE runs SET has_more_files = :has_more WHERE id = :run", run=attempt.run, has_more=has_more)
        return True

    def _key_prefix(self, tx: Transaction, attempt: ClaimedAttempt) -> str:
        assert self.objects is not None
        directory = metadata.value(tx, _OBJECT_DIRECTORY)
        if directory is None:
            metadata.set_first_value(tx, _OBJECT_DIRECTORY, secrets.token_hex(8))
            directory = metadata.value(tx, _OBJECT_DIRECTORY)
        assert directory is not None
        return f"{_directory_of(self.objects, directory)}/{run_id(attempt.run)}/{attempt.attempt}/"

    def add_content(self, tx: Transaction, attempt: ClaimedAttempt, name: str, content: bytes) -> bool:
        """Store the whole content of a file for which `replace` stored none, or only the end of the output."""
        if _locked_run(tx, attempt) is None:
            return False
        tx.run(
            "UPDATE run_files SET content = :content, size = :size WHERE run_id = :run AND name = :name",
            run=attempt.run,
            name=_stored_name(name),
            content=content,
            size=len(content),
        )
        return True

    def store_output(self, tx: Transaction, attempt: ClaimedAttempt, end: bytes, size: int) -> bool:
        """Store the end of the command's output. `size` is the size of the whole output."""
        # Every second, a new end replaces this one, so the commit need not wait for the disk.
        dialect.commit_without_sync(tx)
        if _locked_run(tx, attempt) is None:
            return False
        if attempt.attempt > 1:
            _note_objects(tx, attempt.run, OUTPUT_FILE)
        _insert(tx, attempt, [FileToStore(name=OUTPUT_FILE, size=size, content=end)])
        return True

    def package_of(self, tx: Transaction, run: Run) -> StoredPackage:
        rows = tx.all(
            """
            SELECT name, size, host, COALESCE(length(content), -1) AS stored_bytes, object_key, is_upload_pending
            FROM run_files
            WHERE run_id = :run AND attempt = :attempt
            ORDER BY name
            """,
            run=run.id,
            attempt=run.attempt,
        )
        files = [
            from_row(
                StoredFile,
                row,
                name=row["name"].decode("utf-8", "surrogateescape"),
                object_key=None if row["is_upload_pending"] else row["object_key"],
            )
            for row in rows
        ]
        package = tx.one(
            "SELECT package_webhook_name, has_more_files FROM runs WHERE id = :run AND attempt = :attempt",
            run=run.id,
            attempt=run.attempt,
        )
        if package is None:
            # The run was removed, or a later attempt has begun.
            return StoredPackage(files=files, has_more=False, webhook_name=None)
        return StoredPackage(
            files=files, has_more=bool(package["has_more_files"]), webhook_name=package["package_webhook_name"]
        )

    def end_of(self, tx: Transaction, run: Run, name: str, bytes_max: int) -> tuple[StoredFile, bytes] | None:
        """The stored file, and the last `bytes_max` bytes of the content in its row. None if it has no content."""
        row = tx.one(
            """
            SELECT size, host, length(content) AS stored_bytes, object_key, is_upload_pending,
                CASE
                    WHEN length(content) > :bytes_max THEN substr(content, length(content) - :bytes_max + 1)
                    ELSE content
                END AS content_end
            FROM run_files
            WHERE run_id = :run AND name = :name AND attempt = :attempt AND content IS NOT NULL
            """,
            run=run.id,
            name=_stored_name(name),
            attempt=run.attempt,
            bytes_max=bytes_max,
        )
        if row is None:
            return None
        file = from_row(StoredFile, row, name=name, object_key=None if row["is_upload_pending"] else row["object_key"])
        return file, row["content_end"]


def _locked_run(tx: Transaction, attempt: ClaimedAttempt) -> Row | None:
    """The run, if the executor still performs this attempt. Nobody else can then end or requeue it before this
    transaction ends."""
    return tx.one(
        f"""
        SELECT has_more_files
        FROM runs
        WHERE id = :run AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
        """,
        run=attempt.run,
        executor=attempt.executor,
        attempt=attempt.attempt,
    )


def _note_objects(tx: Transaction, run: RunKey, name: str | None = None) -> None:
    """Note the objects of a run, or of one of its files, for removal. Call it before their rows are removed."""
    tx.run(
        f"""
        INSERT INTO removed_objects (object_key)
        SELECT object_key
        FROM run_files
        WHERE run_id = :run AND object_key IS NOT NULL {"AND name = :name" if name is not None else ""}
        ON CONFLICT DO NOTHING
        """,
        run=run,
        name=_stored_name(name) if name is not None else None,
    )


def _insert(tx: Transaction, attempt: ClaimedAttempt, files: Sequence[FileToStore], key_prefix: str = "") -> None:
    """Insert these files, or replace those with the same names."""
    values: dict[str, Any] = {}
    for number, file in enumerate(files):
        values |= {f"name_{number}": _stored_name(file.name), f"size_{number}": file.size}
        values[f"content_{number}"] = file.content
        # A key is never used again, so an object never changes.
        values[f"key_{number}"] = f"{key_prefix}{secrets.token_hex(12)}" if file.is_to_upload else None
        values[f"pending_{number}"] = True if file.is_to_upload else None
    rows = ", ".join(
        f"(:run, :name_{number}, :attempt, :size_{number}, :host, :content_{number}, :key_{number}, :pending_{number})"
        for number in range(len(files))
    )
    tx.run(
        f"""
        INSERT INTO run_files (run_id, name, attempt, size, host, content, object_key, is_upload_pending)
        VALUES {rows}
        ON CONFLICT (run_id, name) DO UPDATE
        SET attempt = excluded.attempt, size = excluded.size, host = excluded.host, content = excluded.content,
            object_key = excluded.object_key, is_upload_pending = excluded.is_upload_pending
        """,
        run=attempt.run,
        attempt=attempt.attempt,
        host=attempt.host,
        **values,
    )


def _stored_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


# ── Objects ──────────────────────────────────────────────────────────────────────────────────────────────────


def files_to_upload(
    tx: Transaction, host: str, previous: tuple[RunKey, str] | None, at_most: int
) -> Sequence[FileToUpload]:
    """Files whose objects are missing, and whose contents this host has. Newest runs first.

    `previous` is the last file of the previous page: only files that follow it are returned.
    """
    run, name = previous or (None, "")
    rows = tx.all(
        f"""
        SELECT run_id, name, attempt, size, object_key
        FROM run_files
        WHERE is_upload_pending AND host = :host
            {"AND (run_id < :run OR (run_id = :run AND name > :name))" if previous is not None else ""}
        ORDER BY run_id DESC, name
        LIMIT :at_most
        """,
        host=host,
        at_most=at_most,
        run=run,
        name=_stored_name(name),
    )
    return [
        from_row(FileToUpload, row, run=row["run_id"], name=row["name"].decode("utf-8", "surrogateescape"))
        for row in rows
    ]


def has_files_to_upload(tx: Transaction, run: RunKey) -> bool:
    """Whether the content of a file of the run is only in its package."""
    query = "SELECT 1 AS found FROM run_files WHERE run_id = :run AND is_upload_pending LIMIT 1"
    return tx.one(query, run=run) is not None


def record_upload(tx: Transaction, file: FileToUpload) -> bool:
    """Record that the object has the file's content. Two workers on one host may both record it.

    Returns False if a later attempt has begun, if the run was removed, or if the file's row no longer has this key.
    Nobody needs the object then. If no later attempt has begun, the uploaded content is this attempt's, because an
    attempt begins before it replaces the package.
    """
    attempt = tx.scalar(
        f"SELECT attempt FROM runs WHERE id = :run {dialect.lock_clause(tx, 'FOR NO KEY UPDATE')}", run=file.run
    )
    if attempt != file.attempt:
        return False
    return tx.run(
        """
        UPDATE run_files
        SET is_upload_pending = NULL
        WHERE run_id = :run AND name = :name AND object_key = :key
        """,
        run=file.run,
        name=_stored_name(file.name),
        key=file.object_key,
    ) == 1  # fmt: skip


def give_up_upload(tx: Transaction, file: FileToUpload) -> None:
    """Record that the file will have no object: its content has changed, or is outdated.

    Does nothing if another worker has uploaded the file, or if the row was removed.
    """
    updated_rows = tx.run(
        """
        UPDATE run_files
        SET object_key = NULL, is_upload_pending = NULL
        WHERE run_id = :run AND name = :name AND object_key = :key AND is_upload_pending
        """,
        run=file.run,
        name=_stored_name(file.name),
        key=file.object_key,
    )
    if updated_rows:
        # An interrupted upload may have created the object.
        note_objects_to_remove(tx, [file.object_key])


def note_objects_to_remove(tx: Transaction, keys: Sequence[str]) -> None:
    for key in keys:
        tx.run("INSERT INTO removed_objects (object_key) VALUES (:key) ON CONFLICT DO NOTHING", key=key)


def objects_to_remove(tx: Transaction, at_most: int) -> Sequence[str]:
    """The keys of objects that nobody needs."""
    return tx.scalars("SELECT object_key FROM removed_objects ORDER BY object_key LIMIT :at_most", at_most=at_most)


def forget_objects_to_remove(tx: Transaction, keys: Sequence[str]) -> None:
    """Forget objects that the object store has removed."""
    for start in range(0, len(keys), ROWS_PER_STATEMENT):
        batch = list(keys[start : start + ROWS_PER_STATEMENT])
        tx.run("DELETE FROM removed_objects WHERE object_key IN :keys", keys=batch)


def directory_of_objects(tx: Transaction, objects: ObjectStore) -> str | None:
    """The beginning of the keys of this database's objects, without a slash at its end. None if it has no objects."""
    directory = metadata.value(tx, _OBJECT_DIRECTORY)
    return _directory_of(objects, directory) if directory is not None else None


def _directory_of(objects: ObjectStore, directory: str) -> str:
    return f"{objects.prefix}/{directory}" if objects.prefix else directory


def disown_objects(tx: Transaction) -> None:
    """Let this database, which is a copy, use a new directory for its objects, and remove none of the original's."""
    metadata.remove_value(tx, _OBJECT_DIRECTORY)
    tx.run("DELETE FROM removed_objects")


def own_objects(tx: Transaction, keys: Sequence[str]) -> list[str]:
    """Those of these keys that are in this database's directory. The others belong to the database of which it is a
    copy, which may still need them."""
    directory = metadata.value(tx, _OBJECT_DIRECTORY)
    return [key for key in keys if directory in key.split("/")[:-1]] if directory is not None else []


def keys_without_row(tx: Transaction, keys: Sequence[str]) -> list[str]:
    """Those of these keys that are in no row of `run_files`. Keys that don't name a run are omitted."""
    runs: dict[str, RunKey] = {}
    for key in keys:
        with suppress(HookmillError, IndexError):
            runs[key] = run_key(key.split("/")[-3])
    run_keys = sorted(set(runs.values()))
    with_row: set[str] = set()
    for start in range(0, len(run_keys), ROWS_PER_STATEMENT):
        batch = run_keys[start : start + ROWS_PER_STATEMENT]
        with_row.update(tx.scalars("SELECT object_key FROM run_files WHERE run_id IN :runs", runs=batch))
    return [key for key in runs if key not in with_row]
