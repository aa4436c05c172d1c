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
    `of_yardstick_min` is the minimum of `of_yardstick`; `p95_max_ms` and `p99_max_ms` are maximums. All are optional.
    """

    what: str
    per_second: float | None = None
    of_yardstick: float | None = None
    of_yardstick_min: float | None = None
    p95_ms: float | None = None
    p95_max_ms: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p99_max_ms: float | None = None
    mib_at_rest: float | None = None
    mib_after: float | None = None
    mib_growth_max: float | None = None
    """The maximum by which `mib_after` may exceed `mib_at_rest`."""
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
    def shortfall(self) -> str:
        """The figure that misses its limit, as a sentence; empty if none does."""
        for name, figure, limit in (
            ("p95", self.p95_ms, self.p95_max_ms),
            ("p99", self.p99_ms, self.p99_max_ms),
        ):
            if figure is not None and limit is not None and figure > limit:
                return f"{self.what}: {name} {figure:.1f} ms, wanted under {limit:.0f}"
        if self.mib_at_rest is not None and self.mib_after is not None and self.mib_growth_max is not None:
            growth = self.mib_after - self.mib_at_rest
            if growth > self.mib_growth_max:
                return f"{self.what}: {growth:.0f} MiB more, wanted under {self.mib_growth_max:.0f}"
        if (
            self.of_yardstick is not None
            and self.of_yardstick_min is not None
            and self.of_yardstick < self.of_yardstick_min
        ):
            return f"{self.what}: {self.of_yardstick:.3f} of (a), wanted {self.of_yardstick_min}"
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
