"""Hands runs to the durable engine, DBOS Transact, as slots get free, and requeues the runs of dead workers.

A run's row is the truth and the backlog. The engine holds what is being performed, so its speed or absence never
touches a delivery, and its own record may be lost or be of another day. What was decided, and why:

- A run is started directly, under its own id as the engine's id, within a bound that is kept here. Through a queue of
  the engine the same run takes 3.6 ms of processor time instead of 1.5 and begins after 55 ms instead of 2, and the
  queue's polling takes 4 % of a core while nothing happens. A direct start is recorded before it runs, too.
- Every life of a process is another executor. What a dead one had goes back into the backlog, after the engine forgot
  it, and is begun again by whoever has a hand free. The engine's own recovery knows only the process it runs in, and
  resuming through its queue gives everything to the process that polls first, past its bound.
- Attempts are counted and fenced in the row, because the engine performs at least once.
"""

import fcntl
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import error as dbos_error

from hookmill.domain.errors import Conflict, HookmillError, StoreUnavailable
from hookmill.domain.ids import FactoryId, RunKey, run_id, run_key
from hookmill.runs.health import HostHealth
from hookmill.runs.in_flight import Heartbeats, InFlight
from hookmill.runs.perform import Performer
from hookmill.runs.runner import Abandoned, Runner
from hookmill.runs.runners.guard import end_processes_of
from hookmill.store import runs as store
from hookmill.store.database import Database, Transaction
from hookmill.store.engine_db import EngineDbConnection, prepare_engine_db
from hookmill.store.private_file import open_lock_file
from hookmill.store.rights import ENGINE_SCHEMA
from hookmill.store.runs import ExecutorId
from hookmill.store.watch import CommitWatch

SWEEP_SECONDS: Final = 0.1
"""How long a run that nobody announced may lie in the backlog before it is seen."""
LOCK_SECONDS: Final = 15.0
"""How long a new process waits for one that is still stopping its runs."""
RETRY_SECONDS: Final = 1.0
PACE_SECONDS: Final = 0.1
"""Between two takings from the backlog: a flood of short runs must leave the processor to the deliveries."""
BEATS_BEFORE_DEATH: Final = 6
"""A process whose heartbeat is left out so many times is dead."""
TIDY_SECONDS: Final = 5.0
STOPPING_SECONDS: Final = 5.0
"""How long, beyond the runners' own grace, stopped runs are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the operator decides about runs."""

    data: Path
    """Packages are written below `runs/` in here; beside SQLite the engine's own file is here, too."""
    runners: Mapping[str, Runner]
    concurrency: int = 4
    """Runs that one process performs at the same time."""
    attempts_max: int = 3
    dead_after_seconds: float = 5.0
    """On PostgreSQL: a process that was not heard for so long is dead, and its runs begin again elsewhere."""


class WorkerLost(HookmillError):
    """A process that performed runs is dead."""


class Engine:
    """Performs runs in this process. There is one in a process, and beside SQLite one at all."""

    def __init__(
        self,
        database: Database,
        settings: EngineSettings,
        clock: Callable[[], int],
        *,
        failed: Callable[[str, BaseException], None] = lambda _where, _error: None,
        recovered: Callable[[str, str], None] = lambda _where, _what: None,
    ) -> None:
        """`clock` tells microseconds since 1970; `failed` hears what went wrong where nobody else could be told, and
        `recovered` of what is right again without anybody's doing."""
        self.executor = ExecutorId(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self._database = database
        self._settings = settings
        self._clock = clock
        self._failed = failed
        self._in_flight = InFlight()
        self._attention = threading.Event()
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock: IO[bytes] | None = None
        self._watch = CommitWatch(database)
        self._found_nothing = False
        self._skipped: Collection[str] = ()
        self._start: Callable[[str], None] = _not_launched
        packages = settings.data.absolute() / "runs"
        self._health = HostHealth(packages, failed=failed, recovered=recovered)
        self._performer = Performer(
            database=database,
            executor=self.executor,
            packages=packages,
            runners=settings.runners,
            clock=clock,
            leaving=self._leaving,
            failed=failed,
            attempts_max=settings.attempts_max,
            health=self._health,
            forget=self._forget,
        )

    def launch(self) -> None:
        """Take up what is waiting and what earlier lives left; from here on `wake` is heard.

        To be called in the process that performs, after it was forked. Raises `Conflict` when another process performs
        runs beside the same SQLite database, and `StoreUnavailable` when the database is away.
        """
        _aside(self._launch)

    def wake(self) -> None:
        """Runs were committed. Costs next to nothing, from any thread; to forget it costs a tenth of a second."""
        if not self._attention.is_set():
            self._attention.set()

    def shutdown(self, grace_seconds: float) -> None:
        """Begin nothing more, let what runs end within the grace, stop the rest and leave it for the next start."""
        _aside(lambda: self._shutdown(grace_seconds))

    def _launch(self) -> None:
        if self._database.on_sqlite:
            self._settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _the_only_one(self._settings.data / "engine.lock")
        try:
            self._start = _launch_dbos(self._database, self._settings, self.executor, self._perform, self._failed)
            self._register()
            self._health.check()
        except BaseException:
            self._close()
            raise
        duties = [self._dispatch, self._tidy]
        if not self._database.on_sqlite:
            duties.append(self._beat)
        self._threads = [threading.Thread(target=duty, name=f"runs{duty.__name__}", daemon=True) for duty in duties]
        for thread in self._threads:
            thread.start()
        self.wake()

    def _shutdown(self, grace_seconds: float) -> None:
        self._stopping.set()
        self.wake()
        if not self._in_flight.wait_until_empty(grace_seconds):
            self._leaving.set()
            graces = (runner.grace_seconds for runner in self._settings.runners.values())
            if not self._in_flight.wait_until_empty(STOPPING_SECONDS + max(graces, default=0)):
                # Before anybody else begins them.
                end_processes_of(*map(run_id, self._in_flight.keys))
        self._leaving.set()
        for thread in self._threads:
            # One that waits for a dead disk waits for as long as the disk is dead.
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

    # From the backlog into a thread

    def _dispatch(self) -> None:
        last_served = FactoryId("")
        while not self._stopping.is_set():
            self._attention.wait(SWEEP_SECONDS)
            self._attention.clear()
            try:
                if claimed := self._claim(after=last_served):
                    last_served = claimed[-1].factory
                    for each in claimed:
                        self._begin(each.run)
                    self._stopping.wait(PACE_SECONDS)
            except Exception as error:
                self._failed("runs", error)
                self._stopping.wait(RETRY_SECONDS)

    def _claim(self, *, after: FactoryId) -> Sequence[store.Claimed]:
        free = self._settings.concurrency - self._in_flight.count
        if free <= 0 or self._stopping.is_set():
            return ()
        if not self._health.may_claim():
            return ()
        skipped = self._health.runners_at_fault()
        if self._found_nothing and skipped == self._skipped and not self._watch.has_news():
            return ()
        self._found_nothing = False
        self._skipped = skipped
        with self._database.read() as tx:
            self._found_nothing = not store.is_anything_waiting(tx, skipped=skipped)
        if self._found_nothing:
            if skipped:
                # To pass over what waits for them takes time.
                self._stopping.wait(RETRY_SECONDS)
            return ()
        with self._database.write() as tx:
            store.heartbeat(tx, self.executor, self._clock())
            claimed = store.claim(
                tx, executor=self.executor, most=free, after=after, skipped=skipped, now=self._clock()
            )
        for each in claimed:
            self._in_flight.add(each.run)
        return claimed

    def _begin(self, key: RunKey) -> None:
        name = run_id(key)
        try:
            try:
                self._start(name)
            except dbos_error.DBOSWorkflowIDInUseError:
                # A record of another day. The row says that nobody performs it, and the row is the truth.
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
            # Of what a workflow calls itself the engine would take notes, under the name that is being forgotten.
            _aside(lambda: DBOS.delete_workflows([run_id(key)]))
        except Exception as error:
            # Whoever starts it next finds the old record, and removes it.
            self._failed("runs", error)

    # What died, and what slipped

    def _register(self) -> None:
        with self._database.write() as tx:
            if self._database.on_sqlite:
                # The lock says that nobody else lives.
                for executor in store.last_heartbeats(tx):
                    store.deregister(tx, executor)
            store.heartbeat(tx, self.executor, self._clock())
            lost = store.runs_of_dead_executors(tx)
            ended = self._requeue(tx, lost, attempts_max=self._settings.attempts_max)
        end_processes_of(*map(run_id, ended))

    def _beat(self) -> None:
        heartbeats = Heartbeats(self._settings.dead_after_seconds)
        while not self._leaving.is_set():
            try:
                with self._database.write() as tx:
                    store.heartbeat(tx, self.executor, self._clock())
                    beats = store.last_heartbeats(tx)
                self._reap(heartbeats.dead(beats, now=time.monotonic()))
            except Exception as error:
                self._failed("runs", error)
            self._leaving.wait(self._settings.dead_after_seconds / BEATS_BEFORE_DEATH)

    def _reap(self, dead: Mapping[ExecutorId, int]) -> None:
        with self._database.write() as tx:
            for executor, last_beat in dead.items():
                if store.deregister(tx, executor, last_beat=last_beat):
                    seconds = self._settings.dead_after_seconds
                    self._failed(
                        "runs", WorkerLost(f"{executor} was not heard for {seconds:g} s: its runs begin again.")
                    )
            lost = store.runs_of_dead_executors(tx)
            ended = self._requeue(tx, lost, attempts_max=self._settings.attempts_max)
        end_processes_of(*map(run_id, ended))
        if lost:
            self.wake()

    def _requeue(self, tx: Transaction, keys: Sequence[RunKey], *, attempts_max: int | None) -> Sequence[RunKey]:
        """Those that ended by it: nobody begins them again, and what they left running must be ended here."""
        if not keys:
            return ()
        # The engine forgets first: once the row is in the backlog, anybody may start it.
        DBOS.delete_workflows([run_id(key) for key in keys])
        return store.requeue(tx, keys, attempts_max=attempts_max, now=self._clock())

    def _tidy(self) -> None:
        missing: set[RunKey] = set()
        while not self._stopping.wait(TIDY_SECONDS):
            try:
                missing = self._requeue_lost(missing)
                _forget_what_ended()
            except Exception as error:
                self._failed("runs", error)

    def _requeue_lost(self, missing_before: set[RunKey]) -> set[RunKey]:
        """Runs that our rows say we have and our threads don't know of, twice in a row.

        So it looks when the database was away at a bad moment, or the engine could not start what was taken.
        """
        with self._database.read() as tx:
            missing = self._in_flight.missing(store.runs_claimed_by(tx, self.executor))
        slipped = missing & missing_before
        if slipped:
            with self._database.write() as tx:
                # They slipped by a fault of ours, which ends no run.
                ended = self._requeue(tx, sorted(slipped), attempts_max=None)
            end_processes_of(*map(run_id, ended))
            self.wake()
        return missing - slipped


class _Unfinished(BaseException):
    """Ends a workflow without an outcome. Of an `Exception` the engine would record one, or wait for another's."""


def _aside(work: Callable[[], None]) -> None:
    """In a thread of its own, because the engine refuses to be called where an event loop runs."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(work).result()


def _not_launched(_: str) -> None:
    raise AssertionError("launch() comes first")


def _the_only_one(path: Path) -> IO[bytes]:
    """A lock that lives as long as this process, and that no child inherits."""
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
    """Launch the engine. What comes back starts a run by its shown id, unless the engine has a record of it."""
    # With no handler here it would print lines of its own beside the service's log.
    logging.getLogger("dbos").handlers[:] = [_ToldTo(failed)]
    DBOS(
        config={
            "name": "hookmill-runs",
            # By default a hash of the source, so that every deployment strands what the one before had.
            "application_version": "1",
            "executor_id": executor,
            # By default arguments are pickled.
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "enable_otlp": False,
            "max_executor_threads": settings.concurrency,
            # The end of the engine waits for this long; nothing listens.
            "notification_listener_polling_interval_sec": 0.1,
            "scheduler_polling_interval_sec": 3600.0,
            **_engine_database(database, settings, failed),
        }
    )

    # A function, because a bound method's object would become an argument. Attempts are bounded in the row.
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
            # Nothing listens, and the notifier would wake this process a hundred times a second.
            "use_listen_notify": False,
            "db_engine_kwargs": {"pool_size": 4, "max_overflow": settings.concurrency},
        }
    ledger = settings.data / "engine.db"
    if (damaged := prepare_engine_db(ledger)) is not None:
        # What it knew stands in the runs' rows, too.
        failed("engine", EngineTrouble(f"{ledger} was damaged. It was moved to {damaged}, and a new one is made."))
    return {
        "system_database_url": f"sqlite:///{ledger}",
        # One connection: two that checkpoint at once can corrupt a WAL in SQLite up to 3.51.2.
        "db_engine_kwargs": {"pool_size": 1, "max_overflow": 0, "connect_args": {"factory": EngineDbConnection}},
    }


def _forget_what_ended() -> None:
    """Keep the engine's record from growing for ever: what a run came to stands in its row."""
    ended = DBOS.list_workflows(
        status=["SUCCESS", "ERROR", "CANCELLED"], limit=500, load_input=False, load_output=False
    )
    if ended:
        DBOS.delete_workflows([workflow.workflow_id for workflow in ended])


class EngineTrouble(HookmillError):
    """What the engine would have written into a log of its own."""


class _ToldTo(logging.Handler):
    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        super().__init__(logging.WARNING)
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._failed("engine", error or EngineTrouble(record.getMessage()[:500]))
