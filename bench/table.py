"""The rows of the table of results, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve. Points with the same two labels belong to one chart."""

    y_label: str
    x_label: str
    curve: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table. A cell is empty if its value is None.

    Processor time is in cores: of the server's process family, of the load generator, and of all other processes.
    """

    what: str
    per_second: float | None = None
    of_yardstick: float | None = None
    """Throughput as a share of the no-op application's, which the table calls (a)."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    mib_at_rest: float | None = None
    mib_after: float | None = None
    server_cores: float | None = None
    load_cores: float | None = None
    other_cores: float | None = None
    remark: str = ""
    shortfall: str = ""
    """The figure that misses its limit, and the limit; empty if none does."""
    points: Sequence[Point] = ()

    @property
    def server_cpu_microseconds(self) -> float | None:
        """The server's processor time per request, in µs. Of all figures, other load on the machine changes this one
        least."""
        if self.server_cores is None or not self.per_second:
            return None
        return self.server_cores / self.per_second * 1e6


def too_high(name: str, figure: float, limit: float) -> str:
    return f"{name}: {figure:.1f}, wanted at most {limit:.0f}" if figure > limit else ""


HEADINGS = (
    "measurement",
    "per second",
    "of (a)",
    "p50 ms",
    "p99 ms",
    "MiB at rest",
    "MiB after",
    "server cores",
    "server µs each",
    "load cores",
    "other cores",
    "remarks",
)


COLUMNS_ON_PAGE = (
    "measurement",
    "per second",
    "of (a)",
    "p50 ms",
    "p99 ms",
    "MiB after",
    "server µs each",
    "other cores",
    "remarks",
)
ROWS_ON_PAGE = (
    "(a) *",
    "(b) *",
    "(c) *",
    "Filter evaluations, one core",
    "Verification, hmac-sha256, 1 KB",
    "Verification, ed25519, 1 KB",
    "Burst of 2,000 runs, SQLite",
    "Burst of 2,000 runs, PostgreSQL",
    "Burst of 2,000 runs, PostgreSQL, ? workers",
    "From 202 to run start, SQLite",
    "From 202 to run start, PostgreSQL",
    "From 202 to run start, while *",
    "Idle service, SQLite",
    "Idle service, PostgreSQL",
    "Page of a million deliveries, *, the factory's home",
    "Page of a million deliveries, *, newest deliveries",
    "*, 10,000,000 stored, *",
    "*, 100,000 webhooks, *",
    "*, while retention removes",
    "*, 200 slow connections, *, 100/s",
    "*, 200 slow connections, *, memory",
)
"""Patterns of the rows that a user decides by, from a run with `--stored 10000000`. The terminal gets all rows."""


def on_page(rows: Sequence[Row]) -> str:
    """The rows and columns of docs/performance.md."""
    return in_columns(
        [row for row in rows if any(fnmatchcase(row.what, pattern) for pattern in ROWS_ON_PAGE)], COLUMNS_ON_PAGE
    )


def in_columns(rows: Sequence[Row], columns: Sequence[str] = HEADINGS) -> str:
    """The rows under their headings, aligned, as plain text."""
    shown = [HEADINGS.index(column) for column in columns]
    lines = [[cells[column] for column in shown] for cells in (HEADINGS, *(_cells(row) for row in rows))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(shown))]
    first, last = 0, len(shown) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(widths[column]) if column in (first, last) else cell.rjust(widths[column])
            for column, cell in enumerate(line)
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        _number(row.per_second, ",.0f"),
        _number(row.of_yardstick, ".2f"),
        _number(row.p50_ms, ".2f"),
        _number(row.p99_ms, ".2f"),
        _number(row.mib_at_rest, ".0f"),
        _number(row.mib_after, ".0f"),
        _number(row.server_cores, ".2f"),
        _number(row.server_cpu_microseconds, ".0f"),
        _number(row.load_cores, ".2f"),
        _number(row.other_cores, ".2f"),
        row.remark,
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
