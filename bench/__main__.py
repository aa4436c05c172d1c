"""`python -m bench`: measures all scenarios, and prints one table, which `--write` writes to docs/performance.md."""

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
from bench.scenarios import CONNECTIONS, CONNECTIONS_MAX, QUICK, SCENARIOS, THOROUGH, Effort
from bench.table import Row, in_columns

PAGE = REPOSITORY / "docs" / "performance.md"

PAGE_TEXT = """\
# Performance

This page shows how fast Hookmill accepts deliveries durably. You can repeat the measurements on
your own machine:

```sh
make bench                                    # everything
make bench ARGS="--quick --only small"        # one measurement, with short rounds
```

The benchmark sends requests from one process to a server on the same machine. It uses {connections}
connections, unless a row of the table names another number. It compares three servers:

- `(a)` is a no-op application on the same HTTP server with the same settings. It reads the whole
  body, up to the final ASGI message, and responds.
- `(b)` is Hookmill on SQLite, and `(c)` Hookmill on PostgreSQL. They fully evaluate each delivery:
  credential, rate limit, identity and filters. The delivery is on disk before its 202. One delivery
  in ten starts a run.

The difference between `(a)` and the other two is the cost of durable acceptance.

In each round, the servers are started and measured one after the other. Figures are medians of
{rounds} rounds, or of {rounds_of_busiest} rounds with {most_connections} connections.

| Term | Meaning |
|---|---|
| flat out | each connection sends its next request after the response; a latency is mostly waiting time in queues |
| steady | each request is due at a fixed time; its latency counts from that time |
| of (a) | the rate divided by the rate of `(a)` in the same round; the median of all rounds |
| rounds: … to … of (a) | the lowest and the highest of these ratios |
| MiB at rest, MiB after | the server's memory before and after the load |
| server cores | processor cores that the server uses, on average |
| server µs each | the server's processor time per request; other load on the machine affects this figure least |
| load cores | processor cores that the load generator uses |
| other cores | processor cores that everything else uses, including PostgreSQL |
| Burst of runs | runs per second, from the first delivery until the last run has ended |
| From 202 to run start | time from the 202 to the start of a run, at 20 deliveries per second |
| Idle service | processor cores that all processes of the service use while no deliveries arrive |
| Page of a million deliveries | time for one page of the dashboard, with a million deliveries in the log |
| … stored | with this number of deliveries in the log, and 200 webhooks |
| … of a fresh database | the rate divided by that of a fresh database in the same round |
| metrics | are scraped every 5 s |
| traces | of a tenth of the deliveries (the default ratio), or of all, are sent to a local collector |
| of the rate without them | the rate divided by that of the same service without metrics and traces in the same round |
| … of the spans were sent | the others were dropped, because too many waited |
| limit 100,000 per minute | with a raised rate limit; the window is the last minute |
| … webhooks | with a fresh database and this number of webhooks, all of which get deliveries |
| … idle, … slow connections | deliveries while this number of clients occupies connections |
| …, closed together | the time limits of these connections end at the same moment |
| …, memory | the service's memory with these connections, and each process's memory before and with them |
| p95 …, wanted under … | 95 % of the requests took at most the first time; above the second time, `make bench` fails |

## As the log and the webhooks grow

![Charts of latency, deliveries per second, pages and memory by stored deliveries and by webhooks](growth.svg)

This command measures the data of the charts:

```sh
make bench ARGS="--only grown --stored 10000000 --plot docs/growth.svg"
```

## The machine

{machine}

## The figures

```
{table}
```
"""


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
            replace(QUICK if options.quick else THOROUGH, against=options.against, log_size_max=options.stored),
        )
    except (LoadFailed, ServerFailed) as problem:
        print(f"\nNothing is reported, because a measurement failed. {problem}", file=sys.stderr)
        return 1
    table = in_columns(rows)
    print(table)
    if options.plot is not None:
        options.plot.write_text(plot.draw([point for row in rows for point in row.points]))
    if options.write:
        lines = [f"- {name}: {value}" for name, value in machine.items()]
        PAGE.write_text(
            PAGE_TEXT.format(
                connections=CONNECTIONS,
                most_connections=f"{CONNECTIONS_MAX:,}",
                rounds=THOROUGH.rounds,
                rounds_of_busiest=THOROUGH.rounds_of_busiest,
                machine="\n".join(lines),
                table=table,
            )
        )
    shortfalls = [row.shortfall for row in rows if row.shortfall]
    for shortfall in shortfalls:
        print(shortfall, file=sys.stderr)
    return 1 if shortfalls else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Hookmill on this machine.")
    parser.add_argument("--quick", action="store_true", help="short rounds, and few of them")
    parser.add_argument("--write", action="store_true", help="write the table to docs/performance.md")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="measure the runs of another checkout, too, round by round (a clone after `make setup`)",
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
        choices=[scenario.name for scenario in SCENARIOS],
        help="measure only this (may be given several times)",
    )
    return parser


def _measure(only: Sequence[str] | None, effort: Effort) -> list[Row]:
    rows: list[Row] = []
    for scenario in SCENARIOS:
        if only and scenario.name not in only:
            continue
        started = monotonic()
        for row in scenario.measure(effort):
            print(f"{monotonic() - started:5.0f} s  {row.what}", file=sys.stderr)
            rows.append(row)
        print(f"{scenario.name}: {monotonic() - started:.0f} s", file=sys.stderr)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
