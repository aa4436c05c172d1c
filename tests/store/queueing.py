"""A backlog with one worker, whose steps a test takes: runs arrive, are decided about, and are claimed."""

import json

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run_policy import Concurrency, RunPolicy
from hookmill.store.runs import claims, executors, held
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.plans import gather_statistics

FACTORY = FactoryId("fac_one")
WORKER = ExecutorId("host-1-with-dashes-4711-0a1b2c3d")
SERIAL = RunPolicy(concurrency=Concurrency(key_pointers=("/pr",)))
FILLING = 4_000
"""So many finished runs that PostgreSQL prefers an index to reading the whole table."""


def register_worker(backlog: Backlog) -> None:
    with backlog.database.write() as tx:
        executors.heartbeat(tx, WORKER, microseconds())


def arrive(backlog: Backlog, automation: str, *prs: int) -> list[RunKey]:
    return [backlog.queue(automation, payload=json.dumps({"pr": pr}).encode()) for pr in prs]


def decide(backlog: Backlog) -> None:
    with backlog.database.write() as tx:
        held.decide(tx, microseconds())


def claim(backlog: Backlog, most: int) -> list[RunKey]:
    with backlog.database.write() as tx:
        claimed = claims.claim(tx, executor=WORKER, at_most=most, after=FactoryId(""), now=microseconds())
    return [each.run for each in claimed]


def fill(backlog: Backlog) -> None:
    """Many finished runs, and some in each part of the queue."""
    automation, serial = backlog.automation(), backlog.automation(policy=SERIAL)
    backlog.queue_many(automation, FILLING)
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    backlog.queue_many(automation, 20)
    arrive(backlog, serial, 1, 1, 2, 2)
    decide(backlog)
    claim(backlog, 4)
    gather_statistics(backlog.database)
