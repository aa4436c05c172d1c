"""The digest of a table: the number of its rows, and a hash of all their values."""

import hashlib
from collections.abc import Iterable

import msgspec

from hookmill.store.rows.tables import StoredTable, Values


class TableDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The number of a table's rows, and the SHA-256 of all their values in the order of the keys."""

    name: str
    rows: int
    sha256: str


class RowDigest:
    """Computes the digest of a table, to which rows are added in the order of their keys."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self._digest = hashlib.sha256()
        self._encode = msgspec.msgpack.Encoder().encode
        self._rows = 0

    def add(self, rows: Iterable[Values]) -> None:
        for row in rows:
            # MessagePack distinguishes types and lengths, so different rows have different encodings.
            self._digest.update(self._encode(row))
            self._rows += 1

    def result(self) -> TableDigest:
        return TableDigest(name=self._table.name, rows=self._rows, sha256=self._digest.hexdigest())
