"""`python -m bench`: measures everything in one run, as one table, which --write keeps."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from bench.load import LoadFailed
from bench.machine import describe
from bench.process import REPOSITORY, ServerFailed
from bench.scenarios import CONNECTIONS, CONNECTIONS_AT_MOST, QUICK, SCENARIOS, THOROUGH
from bench.table import Row, in_columns

PAGE = REPOSITORY / "docs" / "performance.md"

PAGE_TEXT = """\
# Performance

Measured with `make bench`, which sends its load from one process to a server on the same machine, over {connections}
connections where no other number is named. `(a)` is an app that reads the body until it is told that nothing follows,
as ASGI applications do, and answers, on the same server with the same settings: what `(b)` and `(c)` take longer is
the price of accepting durably. Every acceptance is judged in full (credential, limit, identity, filters), is on disk
before its 202, and one in ten starts a run.

The servers take turns, round after round, and are started anew each time; figures are medians over the rounds
({rounds}, and {rounds_of_busiest} with {most_connections} connections), and a ratio is the median of the ratios of
neighbouring rounds. *Flat out* means that every connection sends its next request as soon as it has its answer, so a
latency says how long so many requests queue. *Steady* means that requests are sent by the clock, and a latency runs
from the moment the request was due.

Cores are those used by the server, by the load generator and by everything else on the machine (which is where
PostgreSQL counts), on average. *µs each* is the server's processor time for one request, which a busy machine
changes least.

## The machine

{machine}

## The figures

```
{table}
```
"""


def main(arguments: Sequence[str]) -> int:
    """Ends with 1 when a measurement failed or a figure falls short of what is wanted."""
    asked = _parser().parse_args(arguments)
    if asked.write and (asked.quick or asked.only):
        print("--write keeps a full run only; leave out --quick and --only.", file=sys.stderr)
        return 2
    machine = describe(Path(tempfile.gettempdir()))
    print("\n".join(f"{name}: {value}" for name, value in machine.items()), end="\n\n")
    try:
        rows = _measure(asked.only, quick=asked.quick)
    except (LoadFailed, ServerFailed) as problem:
        print(f"\nNothing is reported, because a measurement failed. {problem}", file=sys.stderr)
        return 1
    table = in_columns(rows)
    print(table)
    if asked.write:
        lines = [f"- {name}: {value}" for name, value in machine.items()]
        PAGE.write_text(
            PAGE_TEXT.format(
                connections=CONNECTIONS,
                most_connections=f"{CONNECTIONS_AT_MOST:,}",
                rounds=THOROUGH.rounds,
                rounds_of_busiest=THOROUGH.rounds_of_busiest,
                machine="\n".join(lines),
                table=table,
            )
        )
    short = [row for row in rows if row.falls_short]
    for row in short:
        print(row.shortfall, file=sys.stderr)
    return 1 if short else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Hookmill on this machine.")
    parser.add_argument("--quick", action="store_true", help="short rounds, and few of them")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/performance.md")
    parser.add_argument(
        "--only",
        action="append",
        choices=[scenario.name for scenario in SCENARIOS],
        help="measure only this (may be given several times)",
    )
    return parser


def _measure(only: Sequence[str] | None, *, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for scenario in SCENARIOS:
        if only and scenario.name not in only:
            continue
        started = monotonic()
        rows.extend(scenario.measure(QUICK if quick else THOROUGH))
        print(f"{scenario.name}: {monotonic() - started:.0f} s", file=sys.stderr)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
