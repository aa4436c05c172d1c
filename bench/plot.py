"""Draws curves as an SVG picture: small charts with a logarithmic horizontal axis, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.table import Point

WIDTH, HEIGHT = 330, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 34, 40
COLUMNS = 2
LEGEND_HEIGHT = 30
COLOURS = ("#2563eb", "#d97706", "#059669")
_STYLE = """
text { font: 11px sans-serif; fill: #24292f; } .title { font-size: 12px; font-weight: 600; }
.grid { stroke: #d0d7de; } .page { fill: #ffffff; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .grid { stroke: #3d444d; } .page { fill: #0d1117; } }
"""


def draw(points: Sequence[Point]) -> str:
    """The picture of all points, with a chart for each pair of labels, in the order of their first points."""
    charts: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        charts.setdefault((point.y_label, point.x_label), []).append(point)
    curves = list(dict.fromkeys(point.curve for point in points))
    colours = {curve: COLOURS[number % len(COLOURS)] for number, curve in enumerate(curves)}
    rows = math.ceil(len(charts) / COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + LEGEND_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
    ]
    x = LEFT
    for curve, colour in colours.items():
        parts.append(f'<circle cx="{x}" cy="{LEGEND_HEIGHT / 2}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 9}" y="{LEGEND_HEIGHT / 2 + 4}">{escape(curve)}</text>')
        x += 30 + 7 * len(curve)
    for number, ((y_label, x_label), of_chart) in enumerate(charts.items()):
        row, column = divmod(number, COLUMNS)
        parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT + LEGEND_HEIGHT})">')
        parts += _chart(y_label, x_label, of_chart, colours)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _chart(y_label: str, x_label: str, points: Sequence[Point], colours: dict[str, str]) -> list[str]:
    lowest = math.log10(min(point.x for point in points))
    highest = max(math.log10(max(point.x for point in points)), lowest + 1)
    step = _step(max(point.y for point in points))
    top = step * math.ceil(max(point.y for point in points) / step)

    def horizontal(x: float) -> float:
        return LEFT + (math.log10(x) - lowest) / (highest - lowest) * (WIDTH - LEFT - RIGHT)

    def vertical(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title" x="{LEFT}" y="18">{escape(y_label)}</text>']
    for number in range(round(top / step) + 1):
        y = vertical(number * step)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number * step:,g}</text>')
    for x in sorted({point.x for point in points}):
        parts.append(
            f'<text x="{horizontal(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(x)}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    )
    for curve in dict.fromkeys(point.curve for point in points):
        places = [(horizontal(point.x), vertical(point.y)) for point in points if point.curve == curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colours[curve]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[curve]}"/>' for x, y in places]
    return parts


def _step(highest: float) -> float:
    """The distance of the horizontal lines: 1, 2 or 5 times a power of ten, for at most five lines."""
    magnitude = 10.0 ** math.floor(math.log10(highest / 5)) if highest > 0 else 1.0
    return next(magnitude * factor for factor in (1, 2, 5, 10) if highest / (magnitude * factor) <= 5)


def _short(number: float) -> str:
    for divisor, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= divisor:
            return f"{number / divisor:g}{letter}"
    return f"{number:g}"
