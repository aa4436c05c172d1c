"""The state of the whole installation, for its metrics."""

from pathlib import Path

import pytest

from hookmill.domain.ids import time_of
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Debounce, RunPolicy
from hookmill.store.monitoring import InstallationState, installation_state
from hookmill.store.runs import executors
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.store.query_plans import query_plans, scans_many_runs
from tests.store.queueing import SERIAL, arrive, claim, decide, fill, register_worker


@pytest.fixture
def backlog(store_url, tmp_path):
    with Backlog(store_url, tmp_path / "data") as backlog:
        register_worker(backlog)
        yield backlog


def state(backlog: Backlog, files: dict[str, Path] | None = None, *, now: int = 0) -> InstallationState:
    with backlog.database.read() as tx:
        return installation_state(tx, now or microseconds(), files or {})


def test_runs_of_all_factories_are_counted_by_part_of_the_queue(backlog):
    serial = backlog.automation(policy=SERIAL)
    first, *_ = arrive(backlog, serial, 1, 1, 1)
    arrive(backlog, backlog.automation(policy=RunPolicy(debounce=Debounce(seconds=60, max_seconds=600))), 1)
    decide(backlog)
    assert claim(backlog, 1) == [first]
    arrive(backlog, serial, 2)
    backlog.queue_many(backlog.automation(), 4)
    backlog.queue(backlog.automation("fac_two"), factory="fac_two")

    counts = state(backlog)

    assert (counts.running_runs, counts.ready_runs) == (1, 5)
    assert counts.held_runs == {Hold.NEW: 1, Hold.BUSY: 2, Hold.DEBOUNCE: 1, Hold.RETRY: 0}


def test_oldest_ready_run_is_found_in_any_factory_and_priority(backlog):
    oldest = backlog.queue(backlog.automation("fac_two"), factory="fac_two")
    backlog.queue_many(backlog.automation(), 3)

    assert state(backlog).oldest_ready_at == time_of(oldest)


def test_installation_without_runs_has_no_oldest_run(backlog):
    assert state(backlog).oldest_ready_at is None


def test_only_workers_with_a_recent_heartbeat_count(backlog):
    now = microseconds()
    with backlog.database.write() as tx:
        executors.heartbeat(tx, ExecutorId("live-1-aa"), now - 29_000_000)
        executors.heartbeat(tx, ExecutorId("dead-2-bb"), now - 31_000_000)
        registered = len(executors.last_heartbeats(tx))

    assert state(backlog, now=now).live_workers == registered - 1


def test_size_of_the_database_is_known(backlog, tmp_path):
    (tmp_path / "file").write_bytes(b"12345")

    sizes = state(backlog, {"main": tmp_path / "file", "wal": tmp_path / "missing"}).bytes_by_part

    if backlog.database.on_sqlite:
        assert sizes == {"main": 5}
    else:
        assert sizes.keys() == {"main"}
        assert sizes["main"] > 1_000_000


def test_no_query_reads_the_finished_runs(backlog):
    fill(backlog)

    explained = query_plans(backlog.database, lambda tx: installation_state(tx, microseconds(), {}))

    assert len(explained) >= 7
    assert [plan for plan in explained if scans_many_runs(plan)] == []
