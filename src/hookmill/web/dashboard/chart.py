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


def _refused(counts: AttemptCounts) -> int:
    return counts.dropped(RATE_LIMITED) + counts.dropped(FAILED_AUTHENTICATIONS)


def _of(label: Label) -> Callable[[AttemptCounts], int]:
    return lambda counts: counts.logged(label)


SERIES: Final[Sequence[tuple[str, str, Callable[[AttemptCounts], int]]]] = (
    ("accepted", Label.ACCEPTED.wording, _of(Label.ACCEPTED)),
    ("duplicate", Label.DUPLICATE.wording, _of(Label.DUPLICATE)),
    ("json", Label.REJECTED_INVALID_JSON.wording, _of(Label.REJECTED_INVALID_JSON)),
    ("large", Label.REJECTED_TOO_LARGE.wording, _of(Label.REJECTED_TOO_LARGE)),
    ("auth", Label.REJECTED_AUTH.wording, _of(Label.REJECTED_AUTH)),
    ("refused", "Dropped (429)", _refused),
)
"""The stacked series, from bottom to top: CSS class, name, and the count of an hour."""


@dataclass(frozen=True, slots=True)
class Part:
    """One series of the chart: its SVG path and its total count."""

    css_class: str
    name: str
    path: str
    count: int


@dataclass(frozen=True, slots=True)
class HourOfDay:
    """The counts of one hour, in the order of `SERIES`."""

    start: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    parts: tuple[Part, ...]
    words: str
    hours: tuple[HourOfDay, ...]

    @property
    def is_empty(self) -> bool:
        return not self.parts


def chart(hours: Sequence[Hour]) -> Chart:
    """The chart, scaled to its busiest hour. So charts side by side compare shapes, not amounts."""
    numbers = [HourOfDay(hour.start, tuple(count(hour.counts) for _, _, count in SERIES)) for hour in hours]
    tallest = max((sum(hour.numbers) for hour in numbers), default=0)
    parts = tuple(
        Part(css_class, name, _path(numbers, place, tallest), total)
        for place, (css_class, name, _) in enumerate(SERIES)
        if (total := sum(hour.numbers[place] for hour in numbers))
    )
    return Chart(parts, _words(parts, numbers, tallest), tuple(numbers))


def _path(hours: Sequence[HourOfDay], place: int, tallest: int) -> str:
    """The SVG path of a series, with one line for each hour. Pages can contain many charts, so it is short."""
    step = WIDTH // len(hours)
    drawn = []
    for column, hour in enumerate(hours):
        if not hour.numbers[place]:
            continue
        below = sum(hour.numbers[:place])
        bottom = HEIGHT - round(HEIGHT * below / tallest)
        top = HEIGHT - round(HEIGHT * (below + hour.numbers[place]) / tallest)
        # A count above 0 is at least one pixel high.
        top = max(0, min(top, bottom - 1))
        drawn.append(f"M{column * step + step // 2} {top}V{max(bottom, top + 1)}")
    return "".join(drawn)


def _words(parts: Sequence[Part], hours: Sequence[HourOfDay], tallest: int) -> str:
    if not parts:
        return "No deliveries in the last 24 hours."
    busiest = next(hour for hour in hours if sum(hour.numbers) == tallest)
    counted = ", ".join(f"{part.count:,} {part.name}" for part in parts)
    at = datetime.fromtimestamp(busiest.start // 1_000_000, UTC)
    return f"In the last 24 hours: {counted}. The busiest hour started at {at:%H:%M} UTC, with {tallest:,} in total."
