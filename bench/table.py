"""The rows of the table of results, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
    The fields with `wanted` are limits that the row must meet; see `shortfall`. All are optional.
    """

    what: str
    per_second: float | None = None
    of_yardstick: float | None = None
    """Throughput as a share of the no-op application's, which the table calls (a)."""
    of_yardstick_wanted: float | None = None
    p95_ms: float | None = None
    p95_wanted_ms: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p99_wanted_ms: float | None = None
    mib_at_rest: float | None = None
    mib_after: float | None = None
    mib_growth_wanted: float | None = None
    """The limit of `mib_after` minus `mib_at_rest`."""
    server_cores: float | None = None
    load_cores: float | None = None
    other_cores: float | None = None
    remark: str = ""
    points: Sequence[Point] = ()

    @property
    def server_cpu_microseconds(self) -> float | None:
        """The server's processor time per request, in µs. Of all figures, other load on the machine changes this one
        least."""
        if self.server_cores is None or not self.per_second:
            return None
        return self.server_cores / self.per_second * 1e6

    @property
    def shortfall(self) -> str:
        """The figure that misses its limit, as a sentence; empty if none does."""
        for name, figure, limit in (
            ("p95", self.p95_ms, self.p95_wanted_ms),
            ("p99", self.p99_ms, self.p99_wanted_ms),
        ):
            if figure is not None and limit is not None and figure > limit:
                return f"{self.what}: {name} {figure:.1f} ms, wanted under {limit:.0f}"
        if self.mib_at_rest is not None and self.mib_after is not None and self.mib_growth_wanted is not None:
            growth = self.mib_after - self.mib_at_rest
            if growth > self.mib_growth_wanted:
                return f"{self.what}: {growth:.0f} MiB more, wanted under {self.mib_growth_wanted:.0f}"
        if (
            self.of_yardstick is not None
            and self.of_yardstick_wanted is not None
            and self.of_yardstick < self.of_yardstick_wanted
        ):
            return f"{self.what}: {self.of_yardstick:.3f} of (a), wanted {self.of_yardstick_wanted}"
        return ""


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
