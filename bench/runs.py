"""Measures runs: their number per second, the time from the 202 to their start, and what an idle service uses."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

from bench import load, service
from bench.load import Body, LoadFailed, Plan
from bench.process import REPOSITORY, Served, running_process
from bench.service import Service, Storage
from bench.table import Row
from hookmill import app
from hookmill.domain.delivery import Label, RateLimit
from hookmill.domain.ids import time_ordered_key
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database, open_database

BURST = 2_000
"""Deliveries that are sent as fast as possible. Each of them starts a run of the runner `package`."""
BURST_SECONDS_MAX = 600.0
BURST_CONNECTIONS = 64
WARM_UP_RUNS = 40
IDLE_SECONDS = 10.0
QUEUED = 5_000
"""Runs of one factory that wait while runs of another factory start."""
MEASURED_BEHIND_QUEUE = 20
"""How many runs of the other factory are measured."""
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A service: its database, its code, the runner, how many runs one worker performs at the same time, and its
    workers."""

    storage: Storage
    checkout: Path = REPOSITORY
    runner: str = service.PACKAGE
    slots: int | None = None
    workers: int = 1

    @property
    def title(self) -> str:
        command = ", a command" if self.runner == service.COMMAND else ""
        slots = f", {self.slots} at once" if self.slots is not None else ""
        workers = f", {self.workers} workers" if self.workers > 1 else ""
        code = ", the code in --against" if self.checkout != REPOSITORY else ""
        return f"{self.storage.value}{command}{slots}{workers}{code}"


def setups_for(storage: Storage, against: Path | None) -> list[Setup]:
    setups = [
        Setup(storage=storage),
        Setup(storage=storage, runner=service.COMMAND),
        Setup(storage=storage, slots=16),
    ]
    if storage is Storage.POSTGRESQL:
        setups += [Setup(storage=storage, workers=workers) for workers in (2, 3)]
    checkouts = [REPOSITORY] if against is None else [against, REPOSITORY]
    return [replace(setup, checkout=checkout) for setup in setups for checkout in checkouts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    runs_per_second: float
    cores: float
    starts_ms: Sequence[float]
    idle_cores: float


def measure(setups: Sequence[Setup], *, rounds: int) -> Iterator[Row]:
    """Measure all setups. Each round measures every setup once, so that a slow machine affects all of them."""
    results: dict[Setup, list[_Round]] = {setup: [] for setup in setups}
    for _ in range(rounds):
        for setup in setups:
            results[setup].append(_round(setup))
    for setup in setups:
        yield from _rows(setup, results[setup])


def measure_behind_queue(storage: Storage) -> Row:
    """Measure how soon runs start while thousands of another factory wait, with default settings."""
    with service.serving(
        storage, webhooks=service.WEBHOOKS_PER_FACTORY + 4, fill=lambda store: _queue_runs(store.database)
    ) as running:
        # The last webhooks belong to the second factory.
        other_factory = replace(running, webhooks=running.webhooks[-4:])
        starts = service.seconds_to_run_start(other_factory, deliveries=MEASURED_BEHIND_QUEUE)
        with open_database(running.settings.store_url()) as database, database.read() as tx:
            row = tx.one("SELECT count(*) AS runs FROM runs WHERE finished_at IS NULL AND factory_id = 'fac_0'")
    if row is None or not row["runs"]:
        raise LoadFailed(f"All {QUEUED:,} runs ended too early.")
    milliseconds = [start * 1000 for start in starts]
    return Row(
        what=f"From 202 to run start, while {QUEUED:,} runs of another factory wait, {storage.value}",
        p50_ms=median(milliseconds),
        remark=f"{len(starts)} runs; longest {max(milliseconds):.0f} ms; {row['runs']:,} of the others still wait",
    )


_DELIVERIES = RowStatement(
    "INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size) {rows}",
    ("bytea", "int", "bigint", "smallint", "smallint", "int"),
)
_PAYLOADS = RowStatement("INSERT INTO payloads (delivery_id, body) {rows}", ("bytea", "bytea"))
_RUNS = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt,
                      created_at)
    {rows}
    """,
    ("bytea", "bytea", "int", "text", "text", "int", "text", "int", "bigint"),
)


def _queue_runs(database: Database) -> None:
    """Queue runs of the first factory, with their deliveries and payloads."""
    with database.write() as tx:
        webhook = tx.one("SELECT MIN(no) AS no FROM webhooks WHERE factory_id = 'fac_0'")
        assert webhook is not None
        no, body = webhook["no"], bytearray(b'{"kind":"matching"}')
        received_at = [app.now_us() + number for number in range(QUEUED)]
        keys = [bytearray(time_ordered_key(at, os.urandom(8))) for at in received_at]
        keys_with_times = list(zip(keys, received_at, strict=True))
        accepted, rate_limit = int(Label.ACCEPTED), int(RateLimit.DELIVERIES)
        _DELIVERIES.execute(tx, [(key, no, at, accepted, rate_limit, len(body)) for key, at in keys_with_times])
        _PAYLOADS.execute(tx, [(key, body) for key in keys])
        _RUNS.execute(tx, [(key, key, no, "fac_0", "aut_fac_0", 1, "queued", 0, at) for key, at in keys_with_times])


def _rows(setup: Setup, rounds: Sequence[_Round]) -> list[Row]:
    rates = [one.runs_per_second for one in rounds]
    starts = [milliseconds for one in rounds for milliseconds in one.starts_ms]
    return [
        Row(
            what=f"Burst of {BURST:,} runs, {setup.title}",
            per_second=median(rates),
            server_cores=median(one.cores for one in rounds),
            remark=f"rounds: {min(rates):.0f} to {max(rates):.0f}; {BURST / median(rates):.1f} s in all",
        ),
        Row(
            what=f"From 202 to run start, {setup.title}",
            p50_ms=median(starts),
            p99_ms=quantiles(starts, n=100)[98],
        ),
        Row(what=f"Idle service, {setup.title}", server_cores=median(one.idle_cores for one in rounds)),
    ]


def _round(setup: Setup) -> _Round:
    webhook_count = -(-BURST // service.DELIVERIES_PER_WEBHOOK) + 4
    with _serving(setup, webhooks=webhook_count) as (running, processes):
        store_url = running.settings.store_url()
        burst_targets, other_targets = running.webhooks[:-4], running.webhooks[-4:]
        send_matching(running, other_targets[:1], WARM_UP_RUNS)
        wait_for_runs(store_url, WARM_UP_RUNS)

        cpu_before = _cpu_seconds(processes)
        time.sleep(IDLE_SECONDS)
        idle_cores = (_cpu_seconds(processes) - cpu_before) / IDLE_SECONDS

        steady_service = replace(running, webhooks=other_targets[1:])
        starts = service.seconds_to_run_start(steady_service, deliveries=service.RUN_STARTS)
        run_count = WARM_UP_RUNS + service.RUN_STARTS
        wait_for_runs(store_url, run_count)

        cpu_before, started_at = _cpu_seconds(processes), time.monotonic()
        send_matching(running, burst_targets, BURST)
        wait_for_runs(store_url, run_count + BURST)
        seconds = time.monotonic() - started_at
        return _Round(
            runs_per_second=BURST / seconds,
            cores=(_cpu_seconds(processes) - cpu_before) / seconds,
            starts_ms=[start * 1000 for start in starts],
            idle_cores=idle_cores,
        )


@contextmanager
def _serving(setup: Setup, *, webhooks: int) -> Iterator[tuple[Service, Sequence[Served]]]:
    environment = {"HOOKMILL_RUNS_AT_ONCE": str(setup.slots)} if setup.slots is not None else {}
    with ExitStack() as stack:
        running = stack.enter_context(
            service.serving(
                setup.storage,
                webhooks=webhooks,
                environment=environment,
                checkout=setup.checkout,
                runner=setup.runner,
            )
        )
        processes = [running.served]
        assert running.installation is not None
        command = [service.python_of(setup.checkout), "-m", "hookmill", "worker"]
        variables = running.installation.environment
        for _ in range(setup.workers - 1):
            worker = running_process(command, cwd=setup.checkout, environment=variables)
            processes.append(stack.enter_context(worker))
        time.sleep(service.SETTLING_SECONDS if setup.workers > 1 else 0)
        yield running, processes


def send_matching(running: Service, targets: Sequence[load.Target], count: int) -> None:
    """Send matching deliveries as fast as possible."""
    per_target = -(-count // len(targets))
    load.run(
        Plan(
            port=running.served.port,
            targets=targets,
            bodies=[Body(before='{"kind":"matching","id":"', after='"}')],
            seconds=30.0,
            requests_per_target=per_target,
            connections=min(BURST_CONNECTIONS, count),
        )
    )


def wait_for_runs(store_url: str, wanted: int) -> None:
    """Wait until so many runs of the database have ended. Raises `LoadFailed`."""
    deadline = time.monotonic() + BURST_SECONDS_MAX
    with open_database(store_url) as database:
        while time.monotonic() < deadline:
            with database.read() as tx:
                row = tx.one("SELECT count(*) AS ended FROM runs WHERE finished_at IS NOT NULL")
            if row is not None and row["ended"] >= wanted:
                return
            time.sleep(POLL_SECONDS)
    raise LoadFailed(f"Not all of {wanted} runs ended within {BURST_SECONDS_MAX:.0f} s.")


def _cpu_seconds(processes: Sequence[Served]) -> float:
    return sum(process.cpu_seconds() for process in processes)
