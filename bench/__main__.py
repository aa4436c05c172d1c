"""`python -m bench`: measures all scenarios, and prints one table. `--write` writes a part to docs/performance.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from bench import grown, plot
from bench.load import LoadFailed
from bench.machine import describe
from bench.process import REPOSITORY, ServerFailed
from bench.scenarios import QUICK, SCENARIOS, THOROUGH, Effort
from bench.table import Row, in_columns, on_page

PAGE = REPOSITORY / "docs" / "performance.md"

_SECTION = "\n## {}\n\n"


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a measurement failed or a figure falls short, and 2 for options that contradict each other."""
    options = _parser().parse_args(arguments)
    if options.write and (options.quick or options.only):
        print("--write needs a full run: leave out --quick and --only.", file=sys.stderr)
        return 2
    machine = describe(Path(tempfile.gettempdir()))
    print("\n".join(f"{name}: {value}" for name, value in machine.items()), end="\n\n")
    try:
        rows = _measure(
            options.only,
            replace(
                QUICK if options.quick else THOROUGH,
                against=options.against,
                log_size_max=options.stored,
                **{name: value for name in ("rounds", "seconds") if (value := getattr(options, name)) is not None},
            ),
        )
    except (LoadFailed, ServerFailed) as problem:
        print(f"\nNothing is reported, because a measurement failed. {problem}", file=sys.stderr)
        return 1
    print(in_columns(rows))
    if options.plot is not None:
        options.plot.write_text(plot.draw([point for row in rows for point in row.points]))
    if options.write:
        lines = "\n".join(f"- {name}: {value}" for name, value in machine.items())
        page = with_section(PAGE.read_text(), "The machine", lines)
        PAGE.write_text(with_section(page, "The figures", f"```\n{on_page(rows)}\n```"))
    shortfalls = [row for row in rows if row.shortfall]
    for row in shortfalls:
        print(f"{row.what}: {row.shortfall}", file=sys.stderr)
    return 1 if shortfalls else 0


def with_section(page: str, title: str, text: str) -> str:
    """The page with this text in the section of this title. Raises `ValueError` if it has no such section."""
    before, heading, rest = page.partition(_SECTION.format(title))
    if not heading:
        raise ValueError(f'{PAGE} has no section "{title}".')
    _, next_heading, after = rest.partition("\n## ")
    return f"{before}{heading}{text}\n{next_heading}{after}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Hookmill on this machine.")
    parser.add_argument("--quick", action="store_true", help="short rounds, and few of them")
    parser.add_argument("--rounds", type=int, metavar="N", help="the number of rounds")
    parser.add_argument("--seconds", type=float, metavar="N", help="the length of the load in a round")
    parser.add_argument("--write", action="store_true", help="write the main rows to docs/performance.md")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="measure acceptance and runs of another checkout, too, round by round (a clone after `make setup`)",
    )
    parser.add_argument(
        "--stored",
        type=int,
        default=grown.DEFAULT_SIZE_MAX,
        metavar="N",
        help=f"deliveries in the longest log of the measurement `grown` (default: {grown.DEFAULT_SIZE_MAX:,})",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the curves of the measurement `grown` as an SVG file",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(SCENARIOS),
        help="measure only this (may be given several times)",
    )
    return parser


def _measure(only: Sequence[str] | None, effort: Effort) -> list[Row]:
    rows: list[Row] = []
    for name, measure in SCENARIOS.items():
        if only and name not in only:
            continue
        started = monotonic()
        for row in measure(effort):
            print(f"{monotonic() - started:5.0f} s  {row.what}", file=sys.stderr)
            rows.append(row)
        print(f"{name}: {monotonic() - started:.0f} s", file=sys.stderr)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
