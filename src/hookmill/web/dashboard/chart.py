"""A chart of one webhook's last 24 hours as stacked bars, with a text alternative."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hookmill.domain.activity import FAILED_AUTHENTICATIONS, RATE_LIMITED, AttemptCounts
from hookmill.domain.delivery import Label
from hookmill.management.activity import Hour

WIDTH: Final = 240
HEIGHT: Final = 48


def _dropped_count(counts: AttemptCounts) -> int:
    """The attempts over one of the two rate limits: of deliveries, and of failed authentications."""
    return counts.dropped(RATE_LIMITED) + counts.dropped(FAILED_AUTHENTICATIONS)


def _counter_of(label: Label) -> Callable[[AttemptCounts], int]:
    return lambda counts: counts.logged(label)


SERIES: Final[Sequence[tuple[str, str, Callable[[AttemptCounts], int]]]] = (
    ("accepted", Label.ACCEPTED.wording, _counter_of(Label.ACCEPTED)),
    ("duplicate", Label.DUPLICATE.wording, _counter_of(Label.DUPLICATE)),
    ("json", Label.REJECTED_INVALID_JSON.wording, _counter_of(Label.REJECTED_INVALID_JSON)),
    ("large", Label.REJECTED_TOO_LARGE.wording, _counter_of(Label.REJECTED_TOO_LARGE)),
    ("auth", Label.REJECTED_AUTH.wording, _counter_of(Label.REJECTED_AUTH)),
    ("dropped", "Dropped (429)", _dropped_count),
)
"""The stacked series, from bottom to top: CSS class, name, and the function that returns the count of an hour."""


@dataclass(frozen=True, slots=True)
class ChartPart:
    """One series of the chart: its SVG path and its total count."""

    css_class: str
    name: str
    path: str
    count: int


@dataclass(frozen=True, slots=True)
class ChartHour:
    """The counts of one hour, in the order of `SERIES`."""

    start: int
    """In µs since 1970."""
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of some hours. Series without attempts are omitted from `parts`."""

    parts: tuple[ChartPart, ...]
    summary: str
    """The text alternative of the chart."""
    hours: tuple[ChartHour, ...]

    @property
    def is_empty(self) -> bool:
        return not self.parts


def chart(hours: Sequence[Hour]) -> Chart:
    """The chart, scaled to its busiest hour. So the bars of different charts are not comparable."""
    chart_hours = [ChartHour(hour.start, tuple(count(hour.counts) for _, _, count in SERIES)) for hour in hours]
    highest_total = max((sum(hour.counts) for hour in chart_hours), default=0)
    parts = tuple(
        ChartPart(css_class, name, _path(chart_hours, index, highest_total), total)
        for index, (css_class, name, _) in enumerate(SERIES)
        if (total := sum(hour.counts[index] for hour in chart_hours))
    )
    return Chart(parts, _summary(parts, chart_hours, highest_total), tuple(chart_hours))


def _path(hours: Sequence[ChartHour], index: int, highest_total: int) -> str:
    """The SVG path of the series with this index: one vertical line for each hour.

    The path is as short as possible, because a page can contain many charts.
    """
    step = WIDTH // len(hours)
    lines = []
    for column, hour in enumerate(hours):
        if not hour.counts[index]:
            continue
        below = sum(hour.counts[:index])
        bottom = HEIGHT - round(HEIGHT * below / highest_total)
        top = HEIGHT - round(HEIGHT * (below + hour.counts[index]) / highest_total)
        # A count above 0 is at least one pixel high.
        top = max(0, min(top, bottom - 1))
        lines.append(f"M{column * step + step // 2} {top}V{max(bottom, top + 1)}")
    return "".join(lines)


def _summary(parts: Sequence[ChartPart], hours: Sequence[ChartHour], highest_total: int) -> str:
    if not parts:
        return "No deliveries in the last 24 hours."
    busiest = next(hour for hour in hours if sum(hour.counts) == highest_total)
    totals = ", ".join(f"{part.count:,} {part.name}" for part in parts)
    start = datetime.fromtimestamp(busiest.start // 1_000_000, UTC)
    busiest_text = f"The busiest hour started at {start:%H:%M} UTC, with {highest_total:,} in total."
    return f"In the last 24 hours: {totals}. {busiest_text}"
