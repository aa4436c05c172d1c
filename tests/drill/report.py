"""The results of drills, as text for a terminal and as docs/reliability.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tests.drill.run import DrillResult
from tests.drill.site import DatabaseKind

PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability.md"
TITLES: Final[Mapping[DatabaseKind, str]] = {
    DatabaseKind.SQLITE: "SQLite: one service",
    DatabaseKind.POSTGRESQL: "PostgreSQL: two services, two workers",
}

PAGE_TEXT: Final = """\
# Reliability

This page shows what happens to deliveries and runs while processes, databases and networks fail.
You can repeat the test on your own machine:

```sh
make drill                                          # both databases; takes about 20 minutes
make drill ARGS="--faults 20 --deliveries 5000"     # a short drill
make drill ARGS="--database sqlite --seed 7"        # one database, with a seed
```

A drill starts real services on a real database: on SQLite one service, and on PostgreSQL two
services and two workers, each with its own TCP proxy to the database. 24 senders deliver events to
12 webhooks at a steady rate, and retry each event until they get a 202. 3 % of the events are sent
again, and 3 % of the requests twice at the same time. 11 % of the events start a run. Meanwhile,
faults happen one after the other, at random times and in random order. A seed determines their
order and how long they last. A service that has ended is started again, as a service manager does;
nothing else is repaired. At the end, the drill compares the requests and responses of the senders
with the content of the database.

`make drill` fails if a figure of the audit is not 0, if a service or worker ends or does not
recover, or if the time (`--seconds`) is too short for all faults and deliveries.
`.venv/bin/python -m tests.spec --faults` lists the tests of single faults.

## What the audit counts

Each of these figures must be 0.

| Figure | Meaning |
|---|---|
| `lost` | a 202 without its row in the log, or a Duplicate whose original is not there |
| `accepted_twice` | an event with a second Accepted row |
| `payload_wrong` | a 202 whose stored body differs from the bytes that were sent |
| `never_sent` | an Accepted row of an event that no sender sent |
| `identities_mismatched` | an identity without its delivery, or an accepted delivery without its identity |
| `run_missing` | a matching automation without a run of the accepted delivery |
| `run_doubled` | a second run of the same delivery and automation |
| `run_unexpected` | a run of a delivery that was not accepted, or of an automation that does not match |
| `run_open` | a run that has not ended |
| `attempts_unrecorded` | a performed attempt that its run does not record |
| `attempts_performed_twice` | one attempt of a run that was performed twice |
| `runs_never_performed` | a succeeded run whose command was never performed |
| `runs_not_succeeded` | a run that ended in another state |
| `accepted_outdated` | a 202 for a rotated secret or a disabled webhook, after the change returned |
| `refused_current` | a refusal of the current secret of an enabled webhook |
| `retention_wrong` | an old row that retention should have removed, or one of the newest 50 that is missing |
| `unexpected_answers` | a response other than 202 and 503 to a valid delivery |
| `unclean_stops` | a service or worker that did not shut down cleanly after SIGTERM |
| `damaged_files` | a SQLite file that `PRAGMA integrity_check` refuses |

A clean drill does not prove that a figure is always 0. After *n* deliveries without a loss, the
probability of a loss is below 3/*n* for each delivery, with 95 % confidence. This holds for faults
like those of the drill.

Killing a process does not lose what the kernel has not yet written to the disk, so a drill can't
show a missing sync. `tests/faults/test_sync.py` shows with `strace` that a sync precedes every 202.

## The machine

{machine}

## The figures

{figures}

A recovery time begins with the end of a fault, or of the process that a fault ended. It ends when
every affected service has accepted a delivery again. `service killed` means that all processes of a
service are killed, and `supervisor killed` means only its main process. `copies at one instant` are
many copies of one event at the same moment. `connections that stay silent` are open connections to
the database that no longer transfer any bytes.

```
{recoveries}
```
"""


def summary(result: DrillResult) -> str:
    """The result for a terminal."""
    violations = {name: count for name, count in result.violations.items() if count}
    lines = [
        TITLES[result.kind],
        f"  seed {result.plan.seed}, {result.seconds:.0f} s, {result.faults} faults of {len(result.recoveries)} kinds",
        f"  {result.accepted} deliveries accepted for {result.events} events, {result.runs} runs",
        f"  answers: {_answers(result)}",
        *(f"  {row}" for row in _recovery_table(result)),
        f"  audit: {violations or 'every figure is 0'}",
        *(f"  unexpected answer: {answer}" for answer in result.unexpected_answers),
    ]
    if not result.is_complete:
        lines.append("  The drill is incomplete: its time was too short. Increase --seconds.")
    return "\n".join(lines)


def page(results: Sequence[DrillResult], machine: Mapping[str, str]) -> str:
    """The text of docs/reliability.md."""
    return PAGE_TEXT.format(
        machine="\n".join(f"- {name}: {value}" for name, value in machine.items()),
        figures=_figures(results),
        recoveries="\n".join(_recoveries(results)),
    )


def _figures(results: Sequence[DrillResult]) -> str:
    """One column for each result."""
    cells = {
        "": [TITLES[result.kind] for result in results],
        "---": ["---"] * len(results),
        "Accepted deliveries": [f"{result.accepted:,}" for result in results],
        "Responses to senders": [_answers(result) for result in results],
        "Runs": [f"{result.runs:,}" for result in results],
        "Faults": [f"{result.faults} of {len(result.recoveries)} kinds" for result in results],
        "Time, seed": [f"{result.seconds:.0f} s, {result.plan.seed}" for result in results],
        "Audit": [_violations(result) for result in results],
    }
    return "\n".join(f"| {' | '.join([name, *columns])} |" for name, columns in cells.items())


def _violations(result: DrillResult) -> str:
    violations = ", ".join(f"`{name}` {count}" for name, count in result.violations.items() if count)
    return violations or "every figure is 0"


def _recoveries(results: Sequence[DrillResult]) -> list[str]:
    """The rows of all results, side by side. A fault that a database does not have leaves its columns empty."""
    faults = sorted({fault for result in results for fault in result.recoveries})
    width = max(map(len, faults), default=0)
    heading = f"{'times':>5}  {'median s':>8}  {'longest s':>9}"
    lines = [
        "    ".join([f"{'':{width}}", *(f"{result.kind.value:{len(heading)}}" for result in results)]),
        "    ".join([f"{'fault':{width}}", *(heading for _ in results)]),
    ]
    for fault in faults:
        columns = [_recovery(result.recoveries.get(fault, ())) for result in results]
        lines.append("    ".join([f"{fault:{width}}", *(f"{column:{len(heading)}}" for column in columns)]))
    return [line.rstrip() for line in lines]


def _recovery(seconds: Sequence[float]) -> str:
    return f"{len(seconds):5}  {median(seconds):8.2f}  {max(seconds):9.2f}" if seconds else ""


def _answers(result: DrillResult) -> str:
    return ", ".join(
        f"{'no response' if status == 'none' else status}: {count:,}"
        for status, count in sorted(result.answers.items())
    )


def _recovery_table(result: DrillResult) -> list[str]:
    width = max(map(len, result.recoveries), default=0)
    return [f"{'fault':{width}}  times  median s  longest s"] + [
        f"{name:{width}}  {_recovery(seconds)}" for name, seconds in sorted(result.recoveries.items())
    ]
