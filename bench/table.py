"""The rows of the table of results, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve. `what` is the meaning of `y`, and `scale` that of `x`; both make one chart."""

    what: str
    scale: str
    curve: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table. A cell is empty if its value is None.

    Processor time is in cores: of the server's process family, of the load generator, and of all other processes.
    `wanted_of_yardstick` is the minimum of `of_yardstick`, and `wanted_p95_ms` the maximum of `p95_ms`, if any.
    """

    what: str
    per_second: float | None = None
    of_yardstick: float | None = None
    wanted_of_yardstick: float | None = None
    p95_ms: float | None = None
    wanted_p95_ms: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    mib_at_rest: float | None = None
    mib_after: float | None = None
    server_cores: float | None = None
    load_cores: float | None = None
    other_cores: float | None = None
    remark: str = ""
    points: Sequence[Point] = ()

    @property
    def server_cpu_microseconds(self) -> float | None:
        """Processor time of the server for one request, which other load on the machine affects least."""
        if self.server_cores is None or not self.per_second:
            return None
        return self.server_cores / self.per_second * 1e6

    @property
    def falls_short(self) -> bool:
        if self.p95_ms is not None and self.wanted_p95_ms is not None and self.p95_ms > self.wanted_p95_ms:
            return True
        if self.of_yardstick is None or self.wanted_of_yardstick is None:
            return False
        return self.of_yardstick < self.wanted_of_yardstick

    @property
    def shortfall(self) -> str:
        """The figure that falls short, as a sentence. Call it only if `falls_short`."""
        if self.p95_ms is not None and self.wanted_p95_ms is not None:
            return f"{self.what}: p95 {self.p95_ms:.1f} ms, wanted under {self.wanted_p95_ms:.0f}"
        return f"{self.what}: {self.of_yardstick:.3f} of (a), wanted {self.wanted_of_yardstick}"


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


def in_columns(rows: Sequence[Row]) -> str:
    """The rows under their headings, aligned, as plain text."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    first, last = 0, len(HEADINGS) - 1
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
