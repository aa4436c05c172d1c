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

A drill starts real services on a real database. Senders deliver events at a steady rate, and retry
each event until they get a 202. Meanwhile, faults happen one after the other, at random times and
in random order. At the end, the drill waits until every event has its 202 and every run has ended.
Then it stops the service, and compares the requests and responses of the senders with the content
of the database.

`make drill` fails in three cases: a figure in the audit is not 0; a service or worker ends or does
not recover; or the time (`--seconds`) is too short for all faults and deliveries. `make proof`
includes a drill of 40 faults on each database. Tests of single faults are in `tests/faults` and
`tests/runs`; `.venv/bin/python -m tests.spec --faults` lists the test of each fault.

## Setup of a drill

| | SQLite | PostgreSQL |
|---|---|---|
| Processes | one service, which performs its runs | two services and two workers on one database |
| Network to the database | none | each service and worker reaches the database through its own TCP proxy |
| Senders | 24, each with connections to every service | the same |
| Events | to 12 webhooks of several kinds, with and without an id; bodies up to 20 KB | the same |
| Duplicates | 3 % of the events are sent again; 3 % of the requests are sent twice at the same time | the same |
| Runs | 8 % of the events start a run that writes its package, and 3 % a command that records its attempts | the same |

The setting `deliveries_per_minute` is raised, so that no rate limit interferes. A service or worker
that has ended is started again, as a service manager does. Nothing else is repaired.

A seed determines the order of the faults and how long they last. The exact moment of a fault
relative to a delivery is different in each drill.

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

A recovery time begins with the end of a fault, and ends when every affected service has accepted a
delivery again. If the fault ended a process, the recovery time begins at this moment, and includes
the next start.

In the tables, `service killed` means that all processes of a service are killed, and `supervisor
killed` means only its main process. `copies at one instant` means that many copies of one event are
sent at the same moment. `connections that stay silent` are open connections to the database that no
longer transfer any bytes.

{figures}
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
        figures="\n".join(_figures(result) for result in results).rstrip(),
    )


def _figures(result: DrillResult) -> str:
    violations = ", ".join(f"`{name}` {count}" for name, count in result.violations.items() if count)
    return "\n".join(
        [
            f"### {TITLES[result.kind]}",
            "",
            "| | |",
            "|---|---|",
            f"| Accepted deliveries | {result.accepted:,} |",
            f"| Responses to senders | {_answers(result)} |",
            f"| Runs | {result.runs:,} |",
            f"| Faults | {result.faults} of {len(result.recoveries)} kinds |",
            f"| Time, seed | {result.seconds:.0f} s, {result.plan.seed} |",
            f"| Audit | {violations or 'every figure is 0'} |",
            "",
            "```",
            *_recovery_table(result),
            "```",
            "",
        ]
    )


def _answers(result: DrillResult) -> str:
    return ", ".join(
        f"{'no response' if status == 'none' else status}: {count:,}"
        for status, count in sorted(result.answers.items())
    )


def _recovery_table(result: DrillResult) -> list[str]:
    width = max(map(len, result.recoveries), default=0)
    return [f"{'fault':{width}}  times  median s  longest s"] + [
        f"{name:{width}}  {len(seconds):5}  {median(seconds):8.2f}  {max(seconds):9.2f}"
        for name, seconds in sorted(result.recoveries.items())
    ]
