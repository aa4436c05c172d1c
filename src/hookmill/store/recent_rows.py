"""Counts the rows of a time range in tables whose keys are ordered by time, however many there are.

Up to `EXACT_ROWS_MAX` rows are counted. If there are more, the range is divided into `SLICES` slices. In each slice, up
to `ROWS_PER_SAMPLE` rows of one short sample are read, and represent the slice.
"""

from dataclasses import dataclass
from typing import Final

from hookmill.domain.delivery import Label
from hookmill.domain.ids import time_of, time_ordered_key
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction

EXACT_ROWS_MAX: Final = 10_000
SLICES: Final = 168
"""One for each hour of a week."""
SAMPLE_US: Final = 60_000_000
ROWS_PER_SAMPLE: Final = 100
GOLDEN_RATIO: Final = 0.6180339887498949
"""The samples begin at multiples of it in their slices. So they are spread evenly, and not all at the full hour, when
many senders send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOrderedTable:
    """A table, its key, and the SQL values that are added up: 1 or 0 for a row that counts as accepted, and bytes."""

    name: str
    key: str
    accepted: str = "0"
    byte_count: str = "0"


DELIVERIES: Final = TimeOrderedTable(
    name="deliveries",
    key="id",
    accepted=f"CASE WHEN label = {Label.ACCEPTED:d} THEN 1 ELSE 0 END",
    byte_count=f"CASE WHEN label = {Label.ACCEPTED:d} THEN size ELSE 0 END",
)
RUNS: Final = TimeOrderedTable(name="runs", key="id")
RUN_FILES: Final = TimeOrderedTable(name="run_files", key="run_id", byte_count="COALESCE(length(content), 0)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRows:
    since: int | None
    """The time of the first row in µs since 1970; None if there is none."""
    rows: int
    accepted: int
    byte_count: int
    is_estimate: bool


def count_rows(tx: Transaction, table: TimeOrderedTable, since: int, until: int) -> CountedRows:
    """Count the rows from `since` until before `until`, in µs since 1970.

    On PostgreSQL, the planner's settings of the transaction change.
    """
    dialect.prefer_ordered_index(tx)
    first_key = _key_at(tx, table, since, until, 0)
    if first_key is None:
        return CountedRows(since=None, rows=0, accepted=0, byte_count=0, is_estimate=False)
    first = time_of(first_key)
    counted = _sums(tx, table, since, until, EXACT_ROWS_MAX + 1)
    if counted["row_count"] <= EXACT_ROWS_MAX:
        return CountedRows(
            since=first,
            rows=int(counted["row_count"]),
            accepted=int(counted["accepted"]),
            byte_count=int(counted["byte_count"]),
            is_estimate=False,
        )
    rows = accepted = byte_count = 0.0
    slice_us = (until - first) / SLICES
    sample_us = min(SAMPLE_US, slice_us)
    for number in range(SLICES):
        begin = round(first + number * slice_us + (number * GOLDEN_RATIO % 1) * (slice_us - sample_us))
        sample_end = round(begin + sample_us)
        sums = _sums(tx, table, begin, sample_end, ROWS_PER_SAMPLE)
        covered_us = sample_us
        if sums["row_count"] == ROWS_PER_SAMPLE:
            last_key = _key_at(tx, table, begin, sample_end, ROWS_PER_SAMPLE - 1)
            covered_us = max(time_of(last_key) - begin, 1) if last_key is not None else sample_us
        weight = slice_us / covered_us
        rows += float(sums["row_count"]) * weight
        accepted += float(sums["accepted"]) * weight
        byte_count += float(sums["byte_count"]) * weight
    return CountedRows(
        since=first, rows=round(rows), accepted=round(accepted), byte_count=round(byte_count), is_estimate=True
    )


def _sums(tx: Transaction, table: TimeOrderedTable, since: int, until: int, at_most: int) -> Row:
    row = tx.one(
        f"""
        SELECT COUNT(*) AS row_count, COALESCE(SUM(accepted), 0) AS accepted, COALESCE(SUM(byte_count), 0) AS byte_count
        FROM (
            SELECT {table.accepted} AS accepted, {table.byte_count} AS byte_count
            FROM {table.name}
            WHERE {table.key} >= :since AND {table.key} < :until
            ORDER BY {table.key}
            LIMIT :at_most
        ) AS counted
        """,
        since=_key(since),
        until=_key(until),
        at_most=at_most,
    )
    assert row is not None
    return row


def _key_at(tx: Transaction, table: TimeOrderedTable, since: int, until: int, position: int) -> bytes | None:
    row = tx.one(
        f"""
        SELECT {table.key} AS row_key
        FROM {table.name}
        WHERE {table.key} >= :since AND {table.key} < :until
        ORDER BY {table.key}
        LIMIT 1 OFFSET :position
        """,
        since=_key(since),
        until=_key(until),
        position=position,
    )
    return bytes(row["row_key"]) if row is not None else None


def _key(at: int) -> bytes:
    return time_ordered_key(max(at, 0), bytes(8))
