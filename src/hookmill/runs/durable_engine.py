"""The durable engine, DBOS Transact: starts each run as a workflow, and records it.

Only this module uses DBOS. The `runs` table is the source of truth, so the engine's records may be lost or out of date.
No workflow records a result, because that costs processor time: `docs/decisions.md` has the measurement. The records of
ended runs are deleted instead, many at a time.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import error as dbos_error

from hookmill.domain.errors import DatabaseUnreachable, HookmillError, ReportFailure
from hookmill.domain.ids import RunKey, run_id, run_key
from hookmill.store.autocommit import autocommit
from hookmill.store.database import Database, sqlite_url
from hookmill.store.engine_db import EngineDbConnection, prepare_engine_db
from hookmill.store.postgres_engine import POOL_EVENTS, connector_for_durable_engine, url_for_durable_engine
from hookmill.store.privileges import ENGINE_SCHEMA
from hookmill.store.runs.executors import ExecutorId

RECORDS_PER_DELETION: Final = 500


class EngineError(HookmillError):
    """A problem that the engine logged, or a damaged database of the engine."""


class _NoResult(BaseException):
    """Ends a workflow without a result. The engine records an `Exception` as the result, but not this."""


class DurableEngine:
    """Starts workflows in this process. A process has one engine."""

    def __init__(
        self,
        database: Database,
        data: Path,
        executor: ExecutorId,
        *,
        threads_max: int,
        perform: Callable[[RunKey, int], bool],
        report_failure: ReportFailure,
    ) -> None:
        """Launch the engine. `data` is the data directory; with SQLite, the engine's database is in it.

        `perform` is called in one of the engine's threads with each run and attempt that `start` starts. It returns
        whether the attempt has ended the run, so that the record of the run can be deleted.
        """
        self._ended = deque[RunKey]()
        """Runs whose records can be deleted."""
        # Without a handler, the engine would print lines that are not in the service's log format.
        logging.getLogger("dbos").handlers[:] = [_ForwardingHandler(report_failure)]
        engine = DBOS(
            config={
                "name": "hookmill-runs",
                # The default is a hash of the source: each deployment would strand the workflows of the one before.
                "application_version": "1",
                "executor_id": executor,
                # The default pickles arguments.
                "serializer": DBOSPortableJSONSerializer(),
                "log_level": "WARNING",
                "enable_otlp": False,
                "max_executor_threads": threads_max,
                # Engine notifications are not used. The interval only shortens the shutdown.
                "notification_listener_polling_interval_sec": 0.1,
                "scheduler_polling_interval_sec": 3600.0,
                **_engine_database(database, data, threads_max, report_failure),
            }
        )

        # This is not a method, because the engine would store `self` as an argument. The engine doesn't limit attempts,
        # because the run's row counts them.
        @DBOS.workflow(name="perform", max_recovery_attempts=None)
        def workflow(workflow_id: str, attempt: int) -> None:
            run = run_key(workflow_id)
            if perform(run, attempt):
                self._ended.append(run)
            raise _NoResult

        self._workflow = workflow
        DBOS.launch()
        _stop_polling(engine)

    def start(self, run: RunKey, attempt: int) -> None:
        """Start an attempt of a run, even if the engine has an old record of the run."""
        try:
            self._start_workflow(run_id(run), attempt)
        except dbos_error.DBOSWorkflowIDInUseError:
            # The engine's record is out of date: the caller has claimed the run, and no worker performs it.
            self.forget([run])
            self._start_workflow(run_id(run), attempt)

    def _start_workflow(self, workflow_id: str, attempt: int) -> None:
        # The engine records the workflow in this thread, with one statement for its status and one for its arguments.
        # Nothing is lost if a crash keeps the second from being executed: see `forget_leftovers`.
        with autocommit(), SetWorkflowID(workflow_id, workflow_id_reuse_policy="reject"):
            DBOS.start_workflow(self._workflow, workflow_id, attempt)

    def forget(self, runs: Sequence[RunKey]) -> None:
        """Delete the engine's records of these runs. In a workflow's thread, call `forget_own_workflow` instead."""
        DBOS.delete_workflows([run_id(run) for run in runs])

    def forget_own_workflow(self, run: RunKey) -> None:
        """Delete the engine's record of the run that this thread performs."""
        # In this thread, the engine would record the call as a step of the workflow that is being deleted.
        in_own_thread(lambda: self.forget([run]))

    def forget_ended(self) -> None:
        """Delete the records of runs that this process has ended. The rows of the runs have the results."""
        for _ in range(0, len(self._ended), RECORDS_PER_DELETION):
            runs = [self._ended.popleft() for _ in range(min(len(self._ended), RECORDS_PER_DELETION))]
            try:
                self.forget(runs)
            except BaseException:
                self._ended.extend(runs)
                raise

    def forget_leftovers(self, live_executors: Callable[[], Collection[ExecutorId]]) -> None:
        """Delete the records of dead executors, and all records with a result: only earlier versions wrote those.

        `live_executors` returns the executors that may perform runs. It is called after the records are read, so that
        it includes every live executor whose records were read.
        """
        kept = 0
        while True:
            records = DBOS.list_workflows(
                status=["PENDING", "SUCCESS", "ERROR", "CANCELLED"],
                limit=RECORDS_PER_DELETION,
                offset=kept,
                load_input=False,
                load_output=False,
            )
            executors = live_executors() if records else ()
            left = [
                record.workflow_id
                for record in records
                if record.status != "PENDING" or record.executor_id not in executors
            ]
            if left:
                DBOS.delete_workflows(left)
            kept += len(records) - len(left)
            if len(records) < RECORDS_PER_DELETION:
                return

    @staticmethod
    def close() -> None:
        """Stop the engine of this process, if one was launched, even if its launch failed."""
        DBOS.destroy(destroy_registry=True)


def _stop_polling(engine: DBOS) -> None:
    """End the engine's threads that look for queued, delayed, scheduled and overdue workflows every second.

    `start` starts each workflow directly, so there are none. These threads took half of an idle worker's processor
    time.
    """
    for event in (*engine.background_thread_stop_events, engine._background_jobs_stop_event):
        event.set()


def in_own_thread(work: Callable[[], None]) -> None:
    """Call `work` in a new thread, and wait for it: the engine refuses calls from a thread with an event loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(work).result()


def _engine_database(database: Database, data: Path, threads_max: int, report_failure: ReportFailure) -> DBOSConfig:
    if not database.on_sqlite:
        return {
            "system_database_url": url_for_durable_engine(database.url),
            "dbos_system_schema": ENGINE_SCHEMA,
            # Nothing listens for the engine's notifications, and its notifier would wake this process a hundred times a
            # second.
            "use_listen_notify": False,
            # An overflow connection would be opened and closed for each use.
            "db_engine_kwargs": {
                "pool_size": 4 + threads_max,
                "max_overflow": 0,
                "pool_use_lifo": True,
                "pool_pre_ping": False,
                "pool_events": list(POOL_EVENTS),
                "creator": connector_for_durable_engine(database.url),
            },
        }
    engine_db = data / "engine.db"
    if (damaged := prepare_engine_db(engine_db)) is not None:
        # Nothing is lost, because the `runs` table is the source of truth.
        report_failure(
            "engine", EngineError(f"{engine_db} was damaged. It was moved to {damaged}, and a new one was created.")
        )
    return {
        "system_database_url": sqlite_url(engine_db),
        # Only one connection: in SQLite up to 3.51.2, two that checkpoint at the same time can corrupt the WAL.
        "db_engine_kwargs": {"pool_size": 1, "max_overflow": 0, "connect_args": {"factory": EngineDbConnection}},
    }


_CONNECTION_FAILED: Final = "Database connection failed: "
"""How the engine's message about a lost connection begins."""


class _ForwardingHandler(logging.Handler):
    """Forwards the engine's log records to `report_failure`."""

    def __init__(self, report_failure: ReportFailure) -> None:
        super().__init__(logging.WARNING)
        self._report_failure = report_failure

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # The other lines of a message have the statement and its parameters.
        message = record.getMessage().split("\n")[0][:500]
        error_type = DatabaseUnreachable if message.startswith(_CONNECTION_FAILED) else EngineError
        self._report_failure("engine", error or error_type(message))
