"""`python -m tests.drill`: injects random faults into a service, and audits deliveries and runs."""

import argparse
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.machine import describe
from tests.drill import report
from tests.drill.run import DrillPlan, DrillResult, run_drill
from tests.drill.site import DatabaseKind

END_SECONDS_MAX = 1_200
"""The time limit of the last runs and the audit, after the deliveries and faults."""


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a drill has violations, or did not complete in its time."""
    options = _parser().parse_args(arguments)
    kinds = [DatabaseKind(name) for name in options.database or [kind.value for kind in DatabaseKind]]
    if options.write and set(kinds) != set(DatabaseKind):
        print("--write needs both databases: remove --database.", file=sys.stderr)
        return 2
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)
    results: list[DrillResult] = []
    for kind in kinds:
        plan = DrillPlan(
            faults=options.faults,
            deliveries=options.deliveries,
            seconds=options.seconds,
            seed=seed,
            per_second=options.rate,
        )
        print(f"{kind.value}: {plan.faults} faults, {plan.deliveries} deliveries, seed {seed}", flush=True)
        signal.alarm(int(options.seconds) + END_SECONDS_MAX)
        # Not in memory, so that commits wait for a disk.
        with tempfile.TemporaryDirectory(prefix="hookmill-drill-", dir="/var/tmp") as directory:
            results.append(run_drill(kind, plan, Path(directory)))
        signal.alarm(0)
        print(report.summary(results[-1]), flush=True)
    if options.write:
        report.PAGE.write_text(report.page(results, describe(Path("/var/tmp"))))
    return 0 if all(result.is_clean and result.is_complete for result in results) else 1


def _end(number: int, _frame: object):
    """Leave all `with` blocks, which end the processes of the drill."""
    raise SystemExit(f"The drill was ended by {signal.Signals(number).name}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, metavar="N", help="faults on each database (200)")
    parser.add_argument(
        "--deliveries", type=int, default=200_000, metavar="N", help="accepted deliveries on each database (200000)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=3_600.0,
        metavar="S",
        help="end the deliveries and faults after this time at the latest (3600)",
    )
    parser.add_argument("--rate", type=float, default=400.0, metavar="N", help="deliveries a second (400)")
    parser.add_argument("--seed", type=int, metavar="N", help="inject the same faults as the drill with this seed")
    parser.add_argument(
        "--database",
        action="append",
        choices=[kind.value for kind in DatabaseKind],
        help="only this database (both, without this option)",
    )
    parser.add_argument("--write", action="store_true", help="write the figures to docs/reliability.md")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
