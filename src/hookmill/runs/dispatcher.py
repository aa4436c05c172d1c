"""Claims runs as slots become free, and requeues the runs of dead workers. It also adds the runs of due schedules.

The `runs` table is the queue. Design decisions:

- A claim assigns rows of the backlog to this process (on PostgreSQL with `FOR UPDATE SKIP LOCKED`), and begins their
  attempts. Threads of this process then perform them. Workers with free slots share the backlog, and the limits of
  factories and automations are enforced in the claim.
- A commit or a notification wakes this process, and each run that ends frees its slot immediately.
- Each start of a process is a new executor. Its heartbeats show that it is alive. The runs of a dead executor return to
  the backlog, and any worker with a free slot claims them.
- The run's row numbers the attempts, and an old attempt can't write to the row: its process may have been frozen, and
  another process may have claimed the run.
"""

import fcntl
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from hookmill.domain.errors import Conflict, HookmillError, ReportFailure, StoreUnavailable
from hookmill.domain.ids import FactoryId, RunKey, run_id, time_ordered_key
from hookmill.domain.trace import Tracing
from hookmill.metrics import Metrics
from hookmill.runs.executor import Executor
from hookmill.runs.file_writer import RunFileWriter
from hookmill.runs.health import HostHealth
from hookmill.runs.heartbeats import Heartbeats
from hookmill.runs.observation import RunObserver
from hookmill.runs.perform import Performer, RunSettings
from hookmill.runs.runners.guard import kill_processes_of_runs
from hookmill.store import firing, results, schedules
from hookmill.store.database import Database, Transaction
from hookmill.store.notifications import listening
from hookmill.store.pauses import pause_failing
from hookmill.store.private_file import open_lock_file
from hookmill.store.runs import claims, executors, held, reading
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.outlook import outlook
from hookmill.store.watch import CommitWatch

WATCH_SECONDS: Final = 0.04
"""On SQLite: the time between two checks for commits of other processes. These checks cost less than 1 % of a core."""
POLL_SECONDS: Final = 1.0
"""The maximum time between two looks for work. A notification may be lost, and a fault of the host may have ended."""
PAUSE_FACTOR_SQLITE: Final = 2.0
PAUSE_FACTOR_POSTGRES: Final = 3.0
"""The pause after a claim, as a multiple of the time for the look and the claim. While deliveries use the database or
the processors, a claim takes longer. Then this worker leaves both to the deliveries, and claims several runs at a time.
"""
PAUSE_FACTOR_QUIET: Final = 1.0
"""The same on PostgreSQL while no deliveries add runs. On SQLite, a worker can't tell which commits add runs."""
QUIET_SECONDS: Final = 0.5
"""After this time without a notification, no deliveries add runs."""
PAUSE_SECONDS_MAX: Final = 0.25
"""The maximum of this pause."""
LOCK_SECONDS: Final = 15.0
"""On SQLite: how long a new process waits for the lock of an old process that is still stopping its runs."""
RETRY_SECONDS: Final = 1.0
"""The time between an error and the next try, and between two slow queries that find no run. Also the time until
schedules that other workers have locked are checked again."""
BEATS_BEFORE_DEATH: Final = 6
"""How many heartbeats a process sends in `dead_after_seconds`. If all of them are missing, it counts as dead."""
LISTEN_SECONDS: Final = 1.0
"""The time between two checks of the listening thread for a shutdown."""
TIDY_SECONDS: Final = 5.0
"""The time between two passes of `_tidy`."""
RECONSIDER_SECONDS: Final = 60.0
"""The time between two searches for waiting runs whose policy key has no active run."""
STOPPING_SECONDS: Final = 5.0
"""How long a shutdown waits for stopped runs, in addition to the longest grace period of the runners. Also how long it
waits for each thread, and then for the runs of a claim that ended late."""


class WorkerLost(HookmillError):
    """A process that performed runs is dead."""


class Dispatcher:
    """Performs runs in this process. A process has one dispatcher. With SQLite, the installation has one."""

    def __init__(
        self,
        database: Database,
        settings: RunSettings,
        clock: Callable[[], int],
        *,
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
        report_failure: ReportFailure = lambda _where, _error: None,
        report_recovery: Callable[[str, str], None] = lambda _where, _what: None,
    ) -> None:
        """`clock` returns microseconds since 1970. `report_failure` receives errors of background work.

        `report_recovery` is called when a fault of the host ends. It receives the part of the service, and what works
        again.
        """
        host = socket.gethostname()
        self.executor = ExecutorId(f"{host}-{os.getpid()}-{secrets.token_hex(4)}")
        self._database = database
        self._settings = settings
        self._clock = clock
        self._report_failure = report_failure
        self._wakeup = threading.Event()
        self._stop_claiming = threading.Event()
        self._abandon_runs = threading.Event()
        self._stop_beating = threading.Event()
        self._threads: list[threading.Thread] = []
        """The thread that claims runs, and the one that tidies up."""
        self._presence_threads: list[threading.Thread] = []
        """On PostgreSQL, heartbeats and notifications. They end last."""
        self._lock: IO[bytes] | None = None
        self._watch = CommitWatch(database) if database.on_sqlite else None
        self._must_look = False
        """Set by other threads when a commit may have added work. The claiming thread clears it before it looks."""
        self._notified_at = -math.inf
        """When the last notification arrived, on the monotonic clock. Only on PostgreSQL."""
        if settings.workspaces is not None:
            settings.workspaces.places.wake = self.wake
        self._health = HostHealth(settings.packages, report_failure=report_failure, report_recovery=report_recovery)
        self._observer = RunObserver(settings.runners, metrics=metrics, tracing=tracing)
        file_writer = None
        if settings.run_files is not None:
            file_writer = RunFileWriter(
                database,
                settings.run_files,
                executor=self.executor,
                host=host,
                packages=settings.packages,
                should_stop=self._abandon_runs.is_set,
                report_failure=report_failure,
            )
        self._performer = Performer(
            database=database,
            executor=self.executor,
            settings=settings,
            clock=clock,
            abandon_runs=self._abandon_runs,
            report_failure=report_failure,
            health=self._health,
            run_with_policy_key_ended=self.wake,
            file_writer=file_writer,
            observer=self._observer,
        )
        self._executor = Executor(self._performer.perform, report_failure=report_failure, slot_freed=self._refill)

    @property
    def runs_in_flight(self) -> int:
        """How many runs this process performs."""
        return self._executor.count

    def launch(self) -> None:
        """Start performing runs: those in the backlog, and those that dead processes left.

        Call it in the process that performs the runs, after the fork. Raises `Conflict` when another process performs
        runs with the same SQLite database, and `StoreUnavailable` when the database is unavailable.
        """
        if self._database.on_sqlite:
            self._settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _acquire_file_lock(self._settings.data / "worker.lock")
        try:
            self._register()
            self._health.probe_disk()
        except BaseException:
            self._close()
            raise
        self._threads = [_started(duty) for duty in (self._dispatch, self._tidy)]
        if not self._database.on_sqlite:
            self._presence_threads = [_started(duty) for duty in (self._beat, self._listen)]
        self.wake()

    def wake(self) -> None:
        """Make the claiming thread look for work now. Any thread can call this at little cost."""
        self._must_look = True
        self._refill()

    def _refill(self) -> None:
        """Make the claiming thread fill the free slots now, without looking for work that other processes added."""
        if not self._wakeup.is_set():
            self._wakeup.set()

    def shutdown(self, drain_seconds: float) -> None:
        """Stop claiming runs, and wait up to `drain_seconds` for runs in flight. Then stop and requeue the others."""
        self._stop_claiming.set()
        self.wake()
        drain_until = time.monotonic() + drain_seconds
        for claiming in self._threads[:1]:
            # It may just have claimed runs that are not in flight yet.
            claiming.join(STOPPING_SECONDS)
        if not self._executor.wait_until_empty(max(drain_until - time.monotonic(), 0)):
            self._abandon_runs.set()
            graces = (runner.grace_seconds for runner in self._settings.runners.values())
            if not self._executor.wait_until_empty(STOPPING_SECONDS + max(graces, default=0)):
                # Kill the processes of the remaining runs before these runs are requeued.
                kill_processes_of_runs(*map(run_id, self._executor.runs))
        self._abandon_runs.set()
        for thread in self._threads:
            # A thread that waits for a dead disk may never end.
            thread.join(STOPPING_SECONDS)
        # A claim that ended late may have put runs in flight.
        if not self._executor.wait_until_empty(STOPPING_SECONDS):
            kill_processes_of_runs(*map(run_id, self._executor.runs))
        # A worker without heartbeats is dead to the others: until here, they would perform its runs, too.
        self._stop_beating.set()
        for thread in self._presence_threads:
            thread.join(STOPPING_SECONDS)
        self._executor.close()
        with suppress(StoreUnavailable), self._database.write() as tx:
            executors.deregister(tx, self.executor)
            self._requeue(tx, executors.runs_claimed_by(tx, self.executor, locks=True), attempts_max=None)
        self._close()

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._lock is not None:
            self._lock.close()

    # Claiming and performing

    def _dispatch(self) -> None:
        """In a thread: claim runs and start them, until the shutdown."""
        last_served = FactoryId("")
        next_look_at = -math.inf
        while not self._stop_claiming.is_set():
            is_woken = self._wakeup.wait(self._seconds_to_wait(next_look_at))
            self._wakeup.clear()
            began_at = time.monotonic()
            try:
                has_backlog = is_woken
                if self._may_have_new_work() or began_at >= next_look_at:
                    next_look_at, has_backlog = self._look()
                # Called even without a backlog, because it notices the end of a fault of the host.
                may_claim = self._health.may_claim()
                if may_claim and has_backlog and (claimed := self._claim(after=last_served)):
                    pause_seconds = self._pause_factor() * (time.monotonic() - began_at)
                    last_served = claimed[-1].factory
                    for claimed_run in claimed:
                        self._executor.start(claimed_run.run, claimed_run.attempt)
                    self._stop_claiming.wait(min(pause_seconds, PAUSE_SECONDS_MAX))
            except Exception as error:
                self._report_failure("runs", error)
                self._stop_claiming.wait(RETRY_SECONDS)
                next_look_at = -math.inf

    def _seconds_to_wait(self, next_look_at: float) -> float:
        seconds = max(next_look_at - time.monotonic(), 0.0)
        return seconds if self._watch is None else min(seconds, WATCH_SECONDS)

    def _may_have_new_work(self) -> bool:
        """Whether a commit since the last call may have added runs, or other work for `_look`."""
        # Cleared before the caller looks: if something is added meanwhile, the caller looks again.
        must_look, self._must_look = self._must_look, False
        return (self._watch is not None and self._watch.has_new_commit()) or must_look

    def _pause_factor(self) -> float:
        if self._database.on_sqlite:
            return PAUSE_FACTOR_SQLITE
        is_quiet = time.monotonic() - self._notified_at > QUIET_SECONDS
        return PAUSE_FACTOR_QUIET if is_quiet else PAUSE_FACTOR_POSTGRES

    def _listen(self) -> None:
        """In a thread, on PostgreSQL: wake `_dispatch` when runs join the backlog, until the shutdown."""
        while not self._stop_claiming.is_set():
            try:
                with listening(self._database) as wait:
                    # Runs may have joined the backlog before this connection listened.
                    self.wake()
                    while not self._stop_claiming.is_set():
                        if wait(LISTEN_SECONDS):
                            self._notified_at = time.monotonic()
                            self.wake()
            except Exception as error:
                self._report_failure("runs", error)
                self._stop_claiming.wait(RETRY_SECONDS)

    def _look(self) -> tuple[float, bool]:
        """Add the runs of due schedules, and decide which held runs may start.

        Returns when to look again, on the monotonic clock, and whether the backlog may have runs. Call it even if no
        slot is free, because a new run may replace a run that occupies a slot.
        """
        now = self._clock()
        with self._database.read_statement() as tx:
            present = outlook(tx, now)
        schedule_due_at, run_due_at = present.schedule_due_at, present.run_due_at
        has_backlog, needs_decision = present.has_backlog, present.needs_decision
        if schedule_due_at is not None and schedule_due_at <= now:
            with self._database.write() as tx:
                due_count = firing.fire_due(tx, now, lambda: RunKey(time_ordered_key(now, os.urandom(8))))
                # If other workers have locked all due schedules, this worker looks again later instead of busy-waiting.
                schedule_due_at = schedules.next_due_at(tx, now) if due_count else now + int(RETRY_SECONDS * 1e6)
                needs_decision = held.needs_decision(tx, now)
            has_backlog = True
        if needs_decision:
            with self._database.write() as tx:
                held.decide(tx, now)
                run_due_at = held.next_due_at(tx)
            has_backlog = True
            # The next look decides about the runs that are too many for one transaction.
            self.wake()
        dues = [at for at in (schedule_due_at, run_due_at) if at is not None]
        seconds = min([POLL_SECONDS, *((at - self._clock()) / 1e6 for at in dues)])
        return time.monotonic() + seconds, has_backlog

    def _claim(self, *, after: FactoryId) -> Sequence[claims.ClaimedRun]:
        """Claim runs for the free slots, if this host has its reserve. `after` is the factory that was served last."""
        free_slots = self._settings.slots - self._executor.count
        if free_slots <= 0 or self._stop_claiming.is_set():
            return ()
        if (watch := self._settings.reserve_watch) is not None and watch.shortage is not None:
            return ()
        skipped: dict[str, Collection[str]] = {"skipped_runners": self._health.runners_at_fault()}
        if (workspaces := self._settings.workspaces) is not None:
            skipped["skipped_automations"] = workspaces.places.waiting_automations()
        claimed = claims.claim_and_beat(
            self._database,
            executor=self.executor,
            at_most=free_slots,
            after=after,
            now=self._clock(),
            **skipped,
        )
        if any(skipped.values()) and not claimed:
            # With these, the query is slow. It must not be repeated at each wake-up.
            self._stop_claiming.wait(RETRY_SECONDS)
        return claimed

    # Heartbeats, and requeueing

    def _register(self) -> None:
        """Register this executor, and requeue the runs of deregistered ones. On SQLite, first deregister all earlier
        ones, and release their messages."""
        with self._database.write() as tx:
            if self._database.on_sqlite:
                # The lock proves that no other process performs runs.
                for executor in executors.last_heartbeats(tx):
                    executors.deregister(tx, executor)
                    results.release(tx, executor)
            executors.heartbeat(tx, self.executor, self._clock())
        self._reap({})
        self._settings.wake_results()

    def _beat(self) -> None:
        """In a thread, on PostgreSQL: send heartbeats, and reap dead executors, until this process has no more runs."""
        heartbeats = Heartbeats(self._settings.dead_after_seconds)
        while not self._stop_beating.is_set():
            try:
                with self._database.write() as tx:
                    executors.heartbeat(tx, self.executor, self._clock())
                    beats = executors.last_heartbeats(tx)
                    has_orphaned_runs = executors.have_left_runs(tx)
                dead_executors = heartbeats.dead_executors(beats, now=time.monotonic())
                # A second transaction in each beat would take as much processor time as the first.
                if dead_executors or has_orphaned_runs:
                    self._reap(dead_executors)
            except Exception as error:
                self._report_failure("runs", error)
            self._stop_beating.wait(self._settings.dead_after_seconds / BEATS_BEFORE_DEATH)

    def _reap(self, last_beat_by_executor: Mapping[ExecutorId, int]) -> None:
        """Deregister these dead executors, and release the messages that they were sending.

        Also requeue the runs of all deregistered executors.
        """
        with self._database.write() as tx:
            for executor, last_beat in last_beat_by_executor.items():
                if executors.deregister(tx, executor, last_beat=last_beat):
                    results.release(tx, executor)
                    seconds = self._settings.dead_after_seconds
                    self._report_failure(
                        "runs", WorkerLost(f"{executor} sent no heartbeat for {seconds:g} s: its runs are requeued.")
                    )
            orphaned_runs = executors.runs_of_dead_executors(tx)
            ended_runs = self._requeue(tx, orphaned_runs, attempts_max=self._settings.attempts_max)
        kill_processes_of_runs(*map(run_id, ended_runs))
        if last_beat_by_executor:
            self._settings.wake_results()
        if orphaned_runs:
            self.wake()

    def _requeue(self, tx: Transaction, keys: Sequence[RunKey], *, attempts_max: int | None) -> Sequence[RunKey]:
        """Put runs back into the backlog. Returns the runs that end instead, cancelled or after their last attempt.

        Unless this process has already stopped their commands, the caller must kill the processes of the ended runs.
        """
        if not keys:
            return ()
        ended_runs = executors.requeue(tx, keys, attempts_max=attempts_max, now=self._clock())
        if self._observer.is_tracing:
            for run in reading.runs_by_keys(tx, ended_runs):
                self._observer.run_ended(run, run.state)
        return ended_runs

    def _tidy(self) -> None:
        """In a thread: repair what crashes and errors have left, every `TIDY_SECONDS` until the shutdown."""
        missing_runs: set[RunKey] = set()
        reconsidered_at = -math.inf
        while not self._stop_claiming.wait(TIDY_SECONDS):
            try:
                if self._database.on_sqlite:
                    # On SQLite, the heartbeat is only for people: the lock proves that no other process performs runs.
                    with self._database.write() as tx:
                        executors.heartbeat(tx, self.executor, self._clock())
                if time.monotonic() - reconsidered_at > RECONSIDER_SECONDS:
                    with self._database.write() as tx:
                        held.reconsider_all(tx)
                    reconsidered_at = time.monotonic()
                    # If the clock was set back, schedules may have to continue by the corrected clock.
                    self.wake()
                # `Performer` calls this after a failed run. Here it is called for interrupted runs, and for workers
                # that were killed before they called it.
                pause_failing(self._database, self._clock())
                missing_runs = self._requeue_lost(missing_runs)
            except Exception as error:
                self._report_failure("runs", error)

    def _requeue_lost(self, missing_before: set[RunKey]) -> set[RunKey]:
        """Requeue runs that this process has claimed, but no thread performed in two consecutive checks.

        Such runs exist if the database failed at a bad moment, or if a thread failed or could not be started.
        `missing_before` and the result are the runs that no thread performed at the previous check, and at this one.
        """
        with self._database.read() as tx:
            missing_runs = set(executors.runs_claimed_by(tx, self.executor)) - self._executor.runs
        lost_runs = missing_runs & missing_before
        if lost_runs:
            with self._database.write() as tx:
                # If this worker was dead to others meanwhile, they have claimed its runs.
                own_runs = executors.runs_claimed_by(tx, self.executor, locks=True)
                # Without `attempts_max`, because a fault of the service must not end the run.
                ended_runs = self._requeue(tx, sorted(lost_runs.intersection(own_runs)), attempts_max=None)
            kill_processes_of_runs(*map(run_id, ended_runs))
            self.wake()
        return missing_runs - lost_runs


def _started(duty: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=duty, name=f"runs{duty.__name__}", daemon=True)
    thread.start()
    return thread


def _acquire_file_lock(path: Path) -> IO[bytes]:
    """Lock the file. Child processes don't inherit the lock. Raises `Conflict` if another process holds it too long."""
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
