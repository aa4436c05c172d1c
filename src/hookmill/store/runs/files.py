"""Stores files of runs for all hosts. Without this, only the worker's host has them, in the run's package.

What can be derived is not stored: the payload is in `payloads`, and prompt and envelope are rendered from the run's
row. So a row of `run_files` is the command's output, or a file that the command created, changed or removed.

Only the executor that has claimed an attempt can store its files, and only until the attempt's end is recorded. Readers
get only files of the run's latest attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hookmill.domain.ids import RunKey
from hookmill.domain.run import Run, RunState
from hookmill.domain.run_files import OUTPUT_FILE
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.runs.executors import ExecutorId

ROWS_PER_STATEMENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAttempt:
    """An attempt of a run, the executor that performs it, and the name of its host."""

    run: RunKey
    attempt: int
    executor: ExecutorId
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToStore:
    """A file of an attempt. `size` is None if the command has removed it, `content` if only the worker's host has it.

    The content of the output file may be the end of the file.
    """

    name: str
    size: int | None
    content: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A row about a file. `size` is None if the command has removed the file."""

    name: str
    size: int | None
    host: str
    stored_bytes: int
    """The size of the stored content: less than `size` if only the worker's host has the whole file."""

    @property
    def is_complete(self) -> bool:
        return self.size is not None and self.stored_bytes >= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPackage:
    """What is stored about the package of a run's latest attempt."""

    files: Sequence[StoredFile]
    """By name, without the prepared files that the command left unchanged."""
    has_more: bool
    webhook_name: str | None
    """The webhook's name in the package; None if it is the present one, or if no webhook started the run."""


class RunFileStorage(Protocol):
    """Stores files of runs where all hosts reach them.

    Methods that write return False, and write nothing, if the attempt has ended or is outdated.
    """

    def replace(
        self, tx: Transaction, attempt: ClaimedAttempt, files: Sequence[FileToStore], *, has_more: bool
    ) -> bool:
        """Replace all files of the run by these. `has_more`: the package has more files than can be listed."""
        ...

    def add_content(self, tx: Transaction, attempt: ClaimedAttempt, name: str, content: bytes) -> bool:
        """Add the content of a file that `replace` has stored without it."""
        ...

    def store_output(self, tx: Transaction, attempt: ClaimedAttempt, end: bytes, size: int) -> bool:
        """Store the end of the command's output. `size` is the size of the whole output."""
        ...

    def package_of(self, tx: Transaction, run: Run) -> StoredPackage: ...

    def end_of(self, tx: Transaction, run: Run, name: str, bytes_max: int) -> tuple[StoredFile, bytes] | None:
        """The stored file, and the last `bytes_max` bytes of its stored content. None if it has no content."""
        ...


@dataclass(frozen=True, slots=True)
class FilesInDatabase:
    """Stores contents in the table `run_files`. Implements `RunFileStorage`."""

    def replace(
        self, tx: Transaction, attempt: ClaimedAttempt, files: Sequence[FileToStore], *, has_more: bool
    ) -> bool:
        if not _is_claimed(tx, attempt):
            return False
        tx.run("DELETE FROM run_files WHERE run_id = :run", run=attempt.run)
        for start in range(0, len(files), ROWS_PER_STATEMENT):
            _insert(tx, attempt, files[start : start + ROWS_PER_STATEMENT])
        if has_more or attempt.attempt > 1:
            tx.run("UPDATE runs SET has_more_files = :has_more WHERE id = :run", run=attempt.run, has_more=has_more)
        return True

    def add_content(self, tx: Transaction, attempt: ClaimedAttempt, name: str, content: bytes) -> bool:
        if not _is_claimed(tx, attempt):
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
        # Every second, a new end replaces this one, so the commit need not wait for the disk.
        dialect.commit_without_sync(tx)
        if not _is_claimed(tx, attempt):
            return False
        _insert(tx, attempt, [FileToStore(name=OUTPUT_FILE, size=size, content=end)])
        return True

    def package_of(self, tx: Transaction, run: Run) -> StoredPackage:
        rows = tx.all(
            """
            SELECT name, size, host, COALESCE(length(content), -1) AS stored_bytes
            FROM run_files
            WHERE run_id = :run AND attempt = :attempt
            ORDER BY name
            """,
            run=run.id,
            attempt=run.attempt,
        )
        files = [
            StoredFile(
                name=bytes(row["name"]).decode("utf-8", "surrogateescape"),
                size=row["size"],
                host=row["host"],
                stored_bytes=row["stored_bytes"],
            )
            for row in rows
        ]
        package = tx.one("SELECT package_webhook_name, has_more_files FROM runs WHERE id = :run", run=run.id)
        if package is None or run.state is RunState.RUNNING:
            # The columns are about an earlier attempt.
            return StoredPackage(files=files, has_more=False, webhook_name=None)
        return StoredPackage(
            files=files, has_more=bool(package["has_more_files"]), webhook_name=package["package_webhook_name"]
        )

    def end_of(self, tx: Transaction, run: Run, name: str, bytes_max: int) -> tuple[StoredFile, bytes] | None:
        row = tx.one(
            """
            SELECT size, host, length(content) AS stored_bytes,
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
        file = StoredFile(name=name, size=row["size"], host=row["host"], stored_bytes=row["stored_bytes"])
        return file, bytes(row["content_end"])


def _is_claimed(tx: Transaction, attempt: ClaimedAttempt) -> bool:
    """Whether the executor still performs this attempt. If so, nobody can end or requeue it in this transaction."""
    row = tx.one(
        f"""
        SELECT 1 AS one
        FROM runs
        WHERE id = :run AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
        """,
        run=attempt.run,
        executor=attempt.executor,
        attempt=attempt.attempt,
    )
    return row is not None


def _insert(tx: Transaction, attempt: ClaimedAttempt, files: Sequence[FileToStore]) -> None:
    """Insert these files, or replace those with the same names."""
    values: dict[str, Any] = {}
    for number, file in enumerate(files):
        values |= {f"name_{number}": _stored_name(file.name), f"size_{number}": file.size}
        values[f"content_{number}"] = file.content
    rows = ", ".join(
        f"(:run, :name_{number}, :attempt, :size_{number}, :host, :content_{number})" for number in range(len(files))
    )
    tx.run(
        f"""
        INSERT INTO run_files (run_id, name, attempt, size, host, content)
        VALUES {rows}
        ON CONFLICT (run_id, name) DO UPDATE
        SET attempt = excluded.attempt, size = excluded.size, host = excluded.host, content = excluded.content
        """,
        run=attempt.run,
        attempt=attempt.attempt,
        host=attempt.host,
        **values,
    )


def _stored_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
