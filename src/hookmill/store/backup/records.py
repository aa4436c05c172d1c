"""The records of a backup, in the order in which the file has them:

1. one `Header`;
2. at most one `SealedKeys`;
3. `PackageFile`s, which are read before the snapshot of the database;
4. one `BackupSnapshot`, which describes the tables;
5. `Rows`, table by table in the snapshot's order;
6. one `Summary`.
"""

from typing import Any

import msgspec

from hookmill.store.rows.digest import TableDigest


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """The first record, which the restore checks before anything else. Keys are named by their ids, which are
    fingerprints."""

    version: str
    """Hookmill's version."""
    schema: str
    """The revision of the database's schema, such as 0001."""
    source: str
    """`sqlite` or `postgresql`."""
    team: str
    """The id of the team, which identifies the installation."""
    sealing_key: str
    retiring_keys: list[str]
    """The keys that an unfinished rotation still needs."""
    has_keys: bool
    """Whether `SealedKeys` follow."""
    has_packages: bool
    """Whether the packages of runs were included."""


class SealedKeys(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="keys"):
    """The master keys that the header names, sealed with a passphrase: see `store.keys.passphrase`."""

    salt: bytes
    sealed: bytes


class PackageFile(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """A part of a file in a run's package. The parts of a file follow each other."""

    run: bytes
    name: bytes
    content: bytes
    is_last: bool


class TableDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    columns: list[str]
    rows: int


class BackupSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="snapshot"):
    """The state of the database that the backup has."""

    taken_at: int
    """In µs since 1970."""
    newest_delivery_at: int | None
    """When the newest delivery was received, in µs since 1970; None if the log is empty."""
    tables: list[TableDescription]
    numbers: dict[str, int]
    """The highest number that the database has generated for a key, by the table's name."""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def nonempty_tables(self) -> int:
        return sum(1 for table in self.tables if table.rows)


class Rows(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="rows"):
    """Rows of a table in the order of their keys. The values are those that SQLite has: a boolean is 0 or 1."""

    table: str
    rows: list[tuple[Any, ...]]


class Summary(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="summary"):
    """The content of the backup. A reader compares the summary with the records that were read."""

    tables: list[TableDigest]
    packages: int = 0
    files: int = 0
    file_bytes: int = 0
    omitted_files: int = 0
    """Files of packages that are larger than a backup takes, or that could not be read."""


Record = Header | SealedKeys | PackageFile | BackupSnapshot | Rows | Summary
