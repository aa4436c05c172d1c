"""Faults of workers, of their network and of their database while runs arrive: none is lost, doubled or overwritten."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run import RunState
from hookmill.domain.run_policy import Concurrency, Retry, RunPolicy
from hookmill.store.database import retry
from hookmill.store.migrate import migrate
from tests.runs.backlog import Backlog, Worker
from tests.runs.schedules import HOUR, move_schedules_back, scheduled_automation
from tests.runs.worker import microseconds
from tests.support.counts import count
from tests.support.link import Link
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

FAULTS: Final = count(100, usually=2)
WORKERS: Final = 3
DEAD_AFTER_SECONDS: Final = 1.5
POLICIES: Final = (
    RunPolicy(),
    RunPolicy(concurrency=Concurrency(key=("/key",))),
    RunPolicy(retry=Retry(attempts=20, backoff_seconds=1, max_backoff_seconds=1)),
)


class Plant:
    """Workers of one backlog, each behind a network link of its own, and commands that note each attempt."""

    def __init__(self, backlog: Backlog, stack: ExitStack, *, workers: int):
        self.backlog = backlog
        self.notes = backlog.data.parent / "notes"
        self._stack = stack
        self._automations = [backlog.automation(runner="command", policy=policy) for policy in POLICIES]
        scheduled_automation(backlog, runner="command")
        self._first_anchor = self._schedule()[0]
        self.keys: list[RunKey] = []
        self.links: list[Link] = []
        self.workers: list[Worker] = []
        for number in range(workers):
            if backlog.url.startswith("postgresql"):
                self.links.append(stack.enter_context(Link(backlog.url)))
            self.workers.append(self.start_worker(number))

    def start_worker(self, number: int) -> Worker:
        # About one attempt in eight fails. Only one of the policies retries it.
        script = (
            f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {self.notes}; sleep 0.$((($$ % 3) + 1));'
            ' echo "$HOOKMILL_ATTEMPT"; test $(($$ % 8)) != 0'
        )
        worker = Worker(
            self.backlog,
            command=["sh", "-c", script],
            grace=0.5,
            attempts_max=1_000,
            dead_after_seconds=DEAD_AFTER_SECONDS,
            data=self.backlog.data / f"worker-{number}",
            url=self.links[number].url if self.links else None,
        )
        self._stack.callback(worker.kill)
        return worker

    def restart_worker(self, number: int):
        self.workers[number].kill()
        self.workers[number] = self.start_worker(number)

    def _schedule(self) -> tuple[int, int]:
        """The schedule's anchor and next time, in µs since 1970. `move_schedules_back` moves the anchor."""

        def read() -> tuple[int, int]:
            with self.backlog.database.read() as tx:
                row = tx.one("SELECT anchor, next_at FROM schedules")
            assert row is not None
            return row["anchor"], row["next_at"]

        # A restart of the database breaks the connections of the pool.
        return retry(read)

    def _has_fired(self) -> bool:
        return self._schedule()[1] > microseconds()

    @contextmanager
    def arrivals(self) -> Iterator[None]:
        """Runs arrive, and the schedule becomes due again and again, while the block runs."""
        is_over = threading.Event()

        def arrive():
            number = 0
            while not is_over.wait(0.05):
                number += 1
                payload = b'{"key": %d}' % (number % 4)
                try:
                    self.keys.append(self.backlog.queue(self._automations[number % len(POLICIES)], payload=payload))
                    if self._has_fired():
                        move_schedules_back(self.backlog, HOUR)
                except (StoreUnavailable, psycopg.OperationalError):
                    # A sender that got no 202 has no run.
                    continue

        thread = threading.Thread(target=arrive)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def require_that_nothing_is_lost_or_doubled(self):
        until(self._has_fired, "the schedule has fired for the last time")
        with self.backlog.database.read() as tx:
            rows = tx.all("SELECT id FROM runs WHERE schedule IS NOT NULL")
        of_schedule = [RunKey(bytes(row["id"])) for row in rows]
        assert len(of_schedule) == (self._first_anchor - self._schedule()[0]) // HOUR > 0, "each time fires once"
        self.keys += of_schedule
        # Workers that are always killed leave a long backlog.
        runs = self.backlog.wait_for_end(*self.keys, seconds=600)
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        performed = Counter((name, int(attempt)) for name, attempt in lines)
        last_performed: dict[str, int] = {}
        for name, attempt in performed:
            last_performed[name] = max(attempt, last_performed.get(name, 0))
        assert {run.state for run in runs} <= {RunState.SUCCEEDED, RunState.FAILED}
        assert set(performed.values()) == {1}, "each attempt is performed only once"
        for run in runs:
            assert run.attempt == last_performed[run_id(run.id)], "each performed attempt is recorded"
            assert run.output_tail == f"{run.attempt}\n", "the result is that of the last attempt"
            assert run.state is RunState.SUCCEEDED or run.failures == 0


@pytest.fixture
def chance():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@contextmanager
def plant(url: str, directory: Path, *, workers: int = WORKERS) -> Iterator[Plant]:
    with Backlog(url, directory / "data") as backlog, ExitStack() as stack:
        yield Plant(backlog, stack, workers=workers)


def inject(plant: Plant, chance: random.Random, fault: Callable[[int], None]):
    with plant.arrivals():
        for _ in range(FAULTS):
            time.sleep(chance.uniform(0.1, 0.9))
            fault(chance.randrange(len(plant.workers)))
    plant.require_that_nothing_is_lost_or_doubled()


@pytest.mark.timeout(1_200)
def test_killed_workers_on_sqlite(sqlite_store, tmp_path, chance):
    with plant(sqlite_store, tmp_path, workers=1) as running:
        inject(running, chance, running.restart_worker)


@pytest.mark.timeout(1_200)
@pytest.mark.proof
def test_killed_workers_on_postgresql(postgres_store, tmp_path, chance):
    with plant(postgres_store, tmp_path) as running:
        inject(running, chance, running.restart_worker)


@pytest.mark.timeout(1_200)
@pytest.mark.proof
@pytest.mark.parametrize("fault", ["frozen", "without a network"])
def test_interrupted_workers(postgres_store, tmp_path, chance, fault):
    with plant(postgres_store, tmp_path) as running:

        def interrupt(number):
            worker, link = running.workers[number], running.links[number]
            begin, end = (worker.pause, worker.resume) if fault == "frozen" else (link.cut, link.restore)
            begin()
            # About half of them are declared dead.
            time.sleep(chance.uniform(0.5, 2 * DEAD_AFTER_SECONDS))
            end()

        inject(running, chance, interrupt)


@pytest.mark.timeout(1_200)
@pytest.mark.proof
def test_restarts_of_the_database(tmp_path, chance):
    with PostgresServer.start() as server:
        url = server.create_database()
        with Backlog(url, tmp_path / "unused") as backlog:
            migrate(backlog.database)
        with plant(url, tmp_path) as running:

            def restart(_):
                server.restart(chance.choice(("fast", "immediate")))

            inject(running, chance, restart)
