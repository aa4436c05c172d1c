"""The steps of a queue with one worker: runs arrive, a worker decides about held runs, and claims runs."""

import json

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run_policy import Concurrency, RunPolicy
from hookmill.store.runs import claims, executors, held
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.query_plans import gather_statistics

FACTORY = FactoryId("fac_one")
WORKER = ExecutorId("host-1-with-dashes-4711-0a1b2c3d")
SERIAL = RunPolicy(concurrency=Concurrency(key=("/pr",)))
FINISHED_RUNS = 4_000
"""With so many runs, PostgreSQL prefers an index to a scan of the table."""


def register_worker(backlog: Backlog):
    with backlog.database.write() as tx:
        executors.heartbeat(tx, WORKER, microseconds())


def arrive(backlog: Backlog, automation: str, *prs: int) -> list[RunKey]:
    return [backlog.queue(automation, payload=json.dumps({"pr": pr}).encode()) for pr in prs]


def decide(backlog: Backlog):
    with backlog.database.write() as tx:
        held.decide(tx, microseconds())


def claim(backlog: Backlog, at_most: int) -> list[RunKey]:
    with backlog.database.write() as tx:
        claimed = claims.claim(tx, executor=WORKER, at_most=at_most, after=FactoryId(""), now=microseconds())
    return [claimed_run.run for claimed_run in claimed]


def fill(backlog: Backlog):
    """Add many finished runs, and some runs in each part of the queue."""
    automation, serial = backlog.automation(), backlog.automation(policy=SERIAL)
    backlog.queue_many(automation, FINISHED_RUNS)
    with backlog.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    backlog.queue_many(automation, 20)
    arrive(backlog, serial, 1, 1, 2, 2)
    decide(backlog)
    claim(backlog, 4)
    gather_statistics(backlog.database)
