"""Starts runs in the durable engine, DBOS Transact, as slots become free, and requeues the runs of dead workers.

It also starts the runs of due schedules.

The `runs` table is the source of truth and the backlog. The engine holds only runs in flight, so a slow or missing
engine never affects a delivery, and its own record may be lost or out of date. Design decisions:

- This module starts runs directly, with the run's id as the workflow id, and limits their number itself. Its own claims
  take less processor time than the engine's queue; docs/decisions.md has the measurement. The engine
  records a run that is started directly before it performs it, as it would record a queued one.
- A commit or a notification of another process wakes this one, and each run that ends frees its slot immediately.
- Each start of a process is a new executor. The runs of a dead executor return to the backlog after the engine's
  records are deleted, and any worker with a free slot claims them. The engine's own recovery covers only its own
  process. If its queue resumed the runs, the first process that polls would get all of them, even more than its slots.
- The row numbers attempts and rejects writes of old ones, because the engine may perform a workflow more than once.
"""

import fcntl
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import IO, Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import error as dbos_error

from hookmill.domain.errors import Conflict, HookmillError, StoreUnavailable
from hookmill.domain.ids import FactoryId, RunKey, run_id, run_key, time_ordered_key
from hookmill.domain.run_policy import Retry
from hookmill.runs.health import HostHealth
from hookmill.runs.in_flight import Heartbeats, InFlight
from hookmill.runs.perform import Performer
from hookmill.runs.runner import Abandoned, Runner
from hookmill.runs.runners.guard import kill_processes_of_run
from hookmill.store import dialect, firing, held_runs, schedules
from hookmill.store import runs as store
from hookmill.store.database import Database, Transaction
from hookmill.store.engine_db import EngineDbConnection, prepare_engine_db
from hookmill.store.notifications import listening
from hookmill.store.pauses import pause_failing
from hookmill.store.private_file import open_lock_file
from hookmill.store.revision import application_name
from hookmill.store.rights import ENGINE_SCHEMA
from hookmill.store.runs import ExecutorId
from hookmill.store.watch import CommitWatch

WATCH_SECONDS: Final = 0.04
"""On SQLite: the time between two checks for commits of other processes. They cost less than 1 % of a core."""
POLL_SECONDS: Final = 1.0
"""On PostgreSQL: the longest time that a run waits in the backlog if its notification is lost."""
PAUSE_FACTOR: Final = 3.0
"""The pause after a claim, as a multiple of the claim's duration. While deliveries use the database or the processors,
a claim takes longer. Then this worker leaves both to the deliveries, and claims several runs at a time."""
PAUSE_SECONDS_MAX: Final = 0.25
LOCK_SECONDS: Final = 15.0
"""How long a new process waits for an old one that is still stopping its runs."""
RETRY_SECONDS: Final = 1.0
BEATS_BEFORE_DEATH: Final = 6
"""A process is dead after this many missing heartbeats."""
LISTEN_SECONDS: Final = 1.0
"""The time between two checks of the listening thread for a shutdown."""
TIDY_SECONDS: Final = 5.0
RECONSIDER_SECONDS: Final = 60.0
"""How often the engine looks for waiting runs whose key has no active run."""
RECORDS_PER_DELETION: Final = 500
STOPPING_SECONDS: Final = 5.0
"""How long a shutdown waits for stopped runs, beyond the runners' own grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The operator's settings for runs."""

    data: Path
    """The data directory: packages are in `runs/`, and with SQLite the engine's database is `engine.db`."""
    runners: Mapping[str, Runner]
    concurrency: int = 4
    """The most runs that one process performs at the same time."""
    attempts_max: int = 3
    retry_rules: Mapping[str, Retry] = field(default_factory=dict)
    """The runners' rules for failed attempts, unless the automation has one."""
    dead_after_seconds: float = 5.0
    """On PostgreSQL: a process without a heartbeat for so long is dead, and its runs are requeued."""


class _Backlog(Enum):
    """What is known about the backlog."""

    UNKNOWN = auto()
    EMPTY = auto()
    """It was empty, so only a commit can have added runs."""
    PROBABLY_MORE = auto()
    """The last claim filled every free slot, so the next claim does not query first."""


class WorkerLost(HookmillError):
    """A process that performed runs is dead."""


class Engine:
    """Performs runs in this process. A process has one engine. With SQLite, the installation has one."""

    def __init__(
        self,
        database: Database,
        settings: EngineSettings,
        clock: Callable[[], int],
        *,
        failed: Callable[[str, BaseException], None] = lambda _where, _error: None,
        recovered: Callable[[str, str], None] = lambda _where, _what: None,
    ) -> None:
        """`clock` returns microseconds since 1970. `failed` reports errors of background work: where, and the error.

        `recovered` reports the end of such an error: where, and what works again.
        """
        self.executor = ExecutorId(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self._database = database
        self._settings = settings
        self._clock = clock
        self._failed = failed
        self._in_flight = InFlight()
        self._wakeup = threading.Event()
        self._stop_claiming = threading.Event()
        self._abandon_runs = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock: IO[bytes] | None = None
        self._watch = CommitWatch(database)
        self._backlog = _Backlog.UNKNOWN
        self._may_need_decision = True
        self._next_due_at: int | None = None
        """When the next held run or schedule is due, in µs since 1970."""
        self._skipped_runners: Collection[str] = ()
        self._start: Callable[[str], None] = _not_launched
        packages = settings.data.absolute() / "runs"
        self._health = HostHealth(packages, failed=failed, recovered=recovered)
        self._performer = Performer(
            database=database,
            executor=self.executor,
            packages=packages,
            runners=settings.runners,
            clock=clock,
            abandon_runs=self._abandon_runs,
            failed=failed,
            attempts_max=settings.attempts_max,
            retry_rules=settings.retry_rules,
            health=self._health,
            forget=self._forget,
        )

    def launch(self) -> None:
        """Start performing runs: those in the backlog, and those that dead processes left.

        Call it in the process that performs, after the fork. Raises `Conflict` when another process performs runs with
        the same SQLite database, and `StoreUnavailable` when the database is unavailable.
        """
        _in_own_thread(self._launch)

    def wake(self) -> None:
        """Check the backlog now. Cheap, and safe from any thread."""
        if not self._wakeup.is_set():
            self._wakeup.set()

    def shutdown(self, grace_seconds: float) -> None:
        """Claim no more runs, and wait `grace_seconds` for those in flight. Then stop them and requeue them."""
        _in_own_thread(lambda: self._shutdown(grace_seconds))

    def _launch(self) -> None:
        if self._database.on_sqlite:
            self._settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _acquire_lock(self._settings.data / "engine.lock")
        try:
            self._start = _launch_dbos(self._database, self._settings, self.executor, self._perform, self._failed)
            self._register()
            self._health.check()
        except BaseException:
            self._close()
            raise
        duties = [self._dispatch, self._tidy]
        if not self._database.on_sqlite:
            duties += [self._beat, self._listen]
        self._threads = [threading.Thread(target=duty, name=f"runs{duty.__name__}", daemon=True) for duty in duties]
        for thread in self._threads:
            thread.start()
        self.wake()

    def _shutdown(self, grace_seconds: float) -> None:
        self._stop_claiming.set()
        self.wake()
        if not self._in_flight.wait_until_empty(grace_seconds):
            self._abandon_runs.set()
            graces = (runner.grace_seconds for runner in self._settings.runners.values())
            if not self._in_flight.wait_until_empty(STOPPING_SECONDS + max(graces, default=0)):
                # Kill what is left before the runs are requeued.
                kill_processes_of_run(*map(run_id, self._in_flight.keys))
        self._abandon_runs.set()
        for thread in self._threads:
            # A thread that waits for a dead disk may never end.
            thread.join(STOPPING_SECONDS)
        with suppress(StoreUnavailable), self._database.write() as tx:
            store.deregister(tx, self.executor)
            self._requeue(tx, store.runs_claimed_by(tx, self.executor), attempts_max=None)
        self._close()

    def _close(self) -> None:
        DBOS.destroy(destroy_registry=True)
        self._watch.close()
        if self._lock is not None:
            self._lock.close()

    # Claiming and performing

    def _dispatch(self) -> None:
        last_served = FactoryId("")
        interval = WATCH_SECONDS if self._database.on_sqlite else POLL_SECONDS
        while not self._stop_claiming.is_set():
            self._wakeup.wait(min(interval, self._seconds_to_next_decision()))
            self._wakeup.clear()
            began_at = time.monotonic()
            try:
                if claimed := self._claim(after=last_served):
                    pause = PAUSE_FACTOR * (time.monotonic() - began_at)
                    last_served = claimed[-1].factory
                    for each in claimed:
                        self._start_workflow(each.run)
                    self._stop_claiming.wait(min(pause, PAUSE_SECONDS_MAX))
            except Exception as error:
                self._failed("runs", error)
                self._stop_claiming.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        while not self._stop_claiming.is_set():
            try:
                with listening(self._database) as wait:
                    # Runs may have joined the backlog before it listened.
                    self.wake()
                    while not self._stop_claiming.is_set():
                        if wait(LISTEN_SECONDS):
                            self.wake()
            except Exception as error:
                self._failed("runs", error)
                self._stop_claiming.wait(RETRY_SECONDS)

    def _seconds_to_next_decision(self) -> float:
        return max((self._next_due_at - self._clock()) / 1e6, 0.0) if self._next_due_at is not None else math.inf

    def _decide(self) -> None:
        """Start the runs of due schedules, and apply the policies.

        Also without a free slot, because a new run may replace one that occupies a slot.
        """
        now = self._clock()
        with self._database.read() as tx:
            schedule_due_at = schedules.next_due_at(tx, now)
            needs_decision = held_runs.needs_decision(tx, now)
            run_due_at = held_runs.next_due_at(tx)
        if schedule_due_at is not None and schedule_due_at <= now:
            with self._database.write() as tx:
                due = firing.fire_due(tx, now, lambda: RunKey(time_ordered_key(now, os.urandom(8))))
                # If other workers have locked all due schedules, this one does not busy-wait for them.
                schedule_due_at = schedules.next_due_at(tx, now) if due else now + int(RETRY_SECONDS * 1e6)
                needs_decision = held_runs.needs_decision(tx, now)
            self._backlog = _Backlog.UNKNOWN
        if needs_decision:
            with self._database.write() as tx:
                held_runs.decide(tx, now)
                run_due_at = held_runs.next_due_at(tx)
            self._backlog = _Backlog.UNKNOWN
            # Runs that this transaction could not decide are decided in the next pass.
            self.wake()
        self._next_due_at = min((at for at in (schedule_due_at, run_due_at) if at is not None), default=None)
        self._may_need_decision = needs_decision

    def _claim(self, *, after: FactoryId) -> Sequence[store.ClaimedRun]:
        if self._watch.has_news():
            self._may_need_decision = True
            if self._backlog is _Backlog.EMPTY:
                self._backlog = _Backlog.UNKNOWN
        if self._may_need_decision or self._seconds_to_next_decision() == 0:
            self._decide()
        free = self._settings.concurrency - self._in_flight.count
        if free <= 0 or self._stop_claiming.is_set():
            return ()
        if not self._health.may_claim():
            return ()
        skipped = self._health.runners_at_fault()
        if self._backlog is _Backlog.EMPTY and skipped == self._skipped_runners:
            return ()
        if self._backlog is not _Backlog.PROBABLY_MORE or skipped:
            with self._database.read() as tx:
                has_backlog = store.has_backlog(tx, skipped=skipped)
            self._backlog = _Backlog.UNKNOWN if has_backlog else _Backlog.EMPTY
            self._skipped_runners = skipped
        if self._backlog is _Backlog.EMPTY:
            if skipped:
                # Don't repeat this slow query at each wake-up.
                self._stop_claiming.wait(RETRY_SECONDS)
            return ()
        with self._database.write() as tx:
            # The synced commit of `begin_attempt` makes this one durable.
            dialect.commit_without_sync(tx)
            claimed = store.claim(
                tx, executor=self.executor, most=free, after=after, skipped=skipped, now=self._clock()
            )
            if claimed:
                # Without a claim, this transaction must write nothing: its own commit would wake this process.
                store.heartbeat(tx, self.executor, self._clock())
        if claimed:
            self._backlog = _Backlog.PROBABLY_MORE if len(claimed) == free else _Backlog.UNKNOWN
        else:
            # Another worker was faster, or limits hold all runs back. A commit ends that.
            self._backlog = _Backlog.EMPTY
        for each in claimed:
            self._in_flight.add(each.run)
        return claimed

    def _start_workflow(self, key: RunKey) -> None:
        name = run_id(key)
        try:
            try:
                self._start(name)
            except dbos_error.DBOSWorkflowIDInUseError:
                # The engine's record is out of date: the row says that no worker performs the run.
                DBOS.delete_workflows([name])
                self._start(name)
        except Exception as error:
            self._in_flight.remove(key)
            self._failed("runs", error)

    def _perform(self, name: str) -> None:
        key = run_key(name)
        try:
            ended = self._performer.perform(key)
        except StoreUnavailable as error:
            self._failed("runs", error)
            ended = Abandoned()
        finally:
            self._in_flight.remove(key)
            self.wake()
        if isinstance(ended, Abandoned):
            raise _Unfinished

    def _forget(self, key: RunKey) -> None:
        try:
            # In this thread, the engine would record the call as a step of the workflow that is being deleted.
            _in_own_thread(lambda: DBOS.delete_workflows([run_id(key)]))
        except Exception as error:
            # The worker that starts the run next removes the old record.
            self._failed("runs", error)

    # Heartbeats, and requeueing

    def _register(self) -> None:
        with self._database.write() as tx:
            if self._database.on_sqlite:
                # The lock proves that no other process performs runs.
                for executor in store.last_heartbeats(tx):
                    store.deregister(tx, executor)
            store.heartbeat(tx, self.executor, self._clock())
            lost = store.runs_of_dead_executors(tx)
            ended = self._requeue(tx, lost, attempts_max=self._settings.attempts_max)
        kill_processes_of_run(*map(run_id, ended))

    def _beat(self) -> None:
        heartbeats = Heartbeats(self._settings.dead_after_seconds)
        while not self._abandon_runs.is_set():
            try:
                with self._database.write() as tx:
                    store.heartbeat(tx, self.executor, self._clock())
                    beats = store.last_heartbeats(tx)
                self._reap(heartbeats.dead(beats, now=time.monotonic()))
            except Exception as error:
                self._failed("runs", error)
            self._abandon_runs.wait(self._settings.dead_after_seconds / BEATS_BEFORE_DEATH)

    def _reap(self, dead: Mapping[ExecutorId, int]) -> None:
        with self._database.write() as tx:
            for executor, last_beat in dead.items():
                if store.deregister(tx, executor, last_beat=last_beat):
                    seconds = self._settings.dead_after_seconds
                    self._failed(
                        "runs", WorkerLost(f"{executor} sent no heartbeat for {seconds:g} s: its runs are requeued.")
                    )
            lost = store.runs_of_dead_executors(tx)
            ended = self._requeue(tx, lost, attempts_max=self._settings.attempts_max)
        kill_processes_of_run(*map(run_id, ended))
        if lost:
            self.wake()

    def _requeue(self, tx: Transaction, keys: Sequence[RunKey], *, attempts_max: int | None) -> Sequence[RunKey]:
        """Put runs back into the backlog. Returns the others: those that end, because it was their last attempt.

        The caller must kill the processes that the ended runs have left.
        """
        if not keys:
            return ()
        # The engine's record goes first: once the row is in the backlog, any worker may start the run.
        DBOS.delete_workflows([run_id(key) for key in keys])
        return store.requeue(tx, keys, attempts_max=attempts_max, now=self._clock())

    def _tidy(self) -> None:
        missing: set[RunKey] = set()
        reconsidered_at = -math.inf
        while not self._stop_claiming.wait(TIDY_SECONDS):
            try:
                if self._database.on_sqlite:
                    # Only people need it there: the lock proves that no other process performs runs.
                    with self._database.write() as tx:
                        store.heartbeat(tx, self.executor, self._clock())
                if time.monotonic() - reconsidered_at > RECONSIDER_SECONDS:
                    with self._database.write() as tx:
                        held_runs.reconsider_all(tx)
                    reconsidered_at = time.monotonic()
                    # If the clock was set back, schedules may have to continue by the corrected clock.
                    self._may_need_decision = True
                # A worker does this when a run fails. Here it is done for interrupted runs, and for a worker that was
                # killed in between.
                pause_failing(self._database, self._clock())
                missing = self._requeue_lost(missing)
                _delete_ended_workflows()
            except Exception as error:
                self._failed("runs", error)

    def _requeue_lost(self, missing_before: set[RunKey]) -> set[RunKey]:
        """Requeue runs that this process has claimed, but no thread performed in two consecutive checks.

        This happens when the database fails at a bad moment, or when the engine could not start a claimed run.
        Returns the runs that are missing for the first time.
        """
        with self._database.read() as tx:
            missing = self._in_flight.missing(store.runs_claimed_by(tx, self.executor))
        lost = missing & missing_before
        if lost:
            with self._database.write() as tx:
                # A fault of the service must not use up the run's attempts.
                ended = self._requeue(tx, sorted(lost), attempts_max=None)
            kill_processes_of_run(*map(run_id, ended))
            self.wake()
        return missing - lost


class _Unfinished(BaseException):
    """Ends a workflow without a result. The engine would store an `Exception` as the workflow's result."""


def _in_own_thread(work: Callable[[], None]) -> None:
    """Call `work` in a new thread: the engine refuses calls from a thread with an event loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(work).result()


def _not_launched(_: str) -> None:
    raise AssertionError("launch() was not called")


def _acquire_lock(path: Path) -> IO[bytes]:
    """Acquire the lock that only one process can hold. No child inherits it. Raises `Conflict` after 15 seconds."""
    lock = open_lock_file(path)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except (BlockingIOError, PermissionError):
            if time.monotonic() > deadline:
                break
        time.sleep(0.05)
    lock.close()
    raise Conflict(f"Another process performs runs in {path.parent}. Stop it first, or use PostgreSQL to have several.")


def _launch_dbos(
    database: Database,
    settings: EngineSettings,
    executor: ExecutorId,
    perform: Callable[[str], None],
    failed: Callable[[str, BaseException], None],
) -> Callable[[str], None]:
    """Launch the engine. Returns a function that starts a run by its `run_…` id, unless the engine has a record of it.

    `perform` is called with that id.
    """
    # Without a handler, the engine would print lines that are not in the service's log format.
    logging.getLogger("dbos").handlers[:] = [_ForwardingHandler(failed)]
    DBOS(
        config={
            "name": "hookmill-runs",
            # The default is a hash of the source: each deployment would strand the workflows of the one before.
            "application_version": "1",
            "executor_id": executor,
            # The default pickles arguments.
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "enable_otlp": False,
            "max_executor_threads": settings.concurrency,
            # Engine notifications are not used. The interval only shortens the shutdown.
            "notification_listener_polling_interval_sec": 0.1,
            "scheduler_polling_interval_sec": 3600.0,
            **_engine_database(database, settings, failed),
        }
    )

    # Not a method: the engine would store `self` as an argument. The run's row limits the attempts, and the engine does
    # not.
    @DBOS.workflow(name="perform", max_recovery_attempts=None)
    def workflow(name: str) -> None:
        perform(name)

    def start(name: str) -> None:
        with SetWorkflowID(name, workflow_id_reuse_policy="reject"):
            DBOS.start_workflow(workflow, name)

    DBOS.launch()
    return start


def _engine_database(
    database: Database, settings: EngineSettings, failed: Callable[[str, BaseException], None]
) -> DBOSConfig:
    if not database.on_sqlite:
        return {
            "system_database_url": database.url,
            "dbos_system_schema": ENGINE_SCHEMA,
            # Nothing listens. The notifier would wake this process a hundred times a second.
            "use_listen_notify": False,
            # An overflow connection would be opened and closed for each use.
            "db_engine_kwargs": {
                "pool_size": 4 + settings.concurrency,
                "max_overflow": 0,
                "pool_use_lifo": True,
                "pool_pre_ping": False,
                # No sync is needed: the attempt's commit syncs this too, and the result is in the run's row.
                "connect_args": {
                    "application_name": f"{application_name()} runs",
                    "options": "-c synchronous_commit=off",
                },
            },
        }
    engine_db = settings.data / "engine.db"
    if (damaged := prepare_engine_db(engine_db)) is not None:
        # The `runs` table has everything that it held.
        failed("engine", EngineError(f"{engine_db} was damaged. It was moved to {damaged}, and a new one is made."))
    return {
        "system_database_url": f"sqlite:///{engine_db}",
        # One connection: two that checkpoint at the same time can corrupt a WAL in SQLite up to 3.51.2.
        "db_engine_kwargs": {"pool_size": 1, "max_overflow": 0, "connect_args": {"factory": EngineDbConnection}},
    }


def _delete_ended_workflows() -> None:
    """Delete all records of ended runs from the engine's database. The run's row has the outcome."""
    while True:
        ended = DBOS.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED"], limit=RECORDS_PER_DELETION, load_input=False, load_output=False
        )
        if ended:
            DBOS.delete_workflows([workflow.workflow_id for workflow in ended])
        if len(ended) < RECORDS_PER_DELETION:
            return


class EngineError(HookmillError):
    """A warning or an error that the engine logged."""


class _ForwardingHandler(logging.Handler):
    """Forwards the engine's log records to `failed`."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        super().__init__(logging.WARNING)
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._failed("engine", error or EngineError(record.getMessage()[:500]))
