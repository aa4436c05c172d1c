"""Performs one attempt of a run: writes the package, calls the runner, records the result."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar, assert_never

from msgspec import structs

from hookmill.domain.errors import ReportFailure, StoreUnavailable
from hookmill.domain.ids import RunKey
from hookmill.domain.masking import Masker
from hookmill.domain.platform_report import PlatformReport
from hookmill.domain.results import DestinationRules, plan_results
from hookmill.domain.run import PACKAGE_RUNNER, Ended, Run, RunState
from hookmill.domain.run_policy import Retry
from hookmill.domain.secret import SecretValue
from hookmill.domain.workspace import CheckoutCommits
from hookmill.runs.file_writer import LiveOutput, RunFileSettings, RunFileWriter
from hookmill.runs.health import DISK_ADVICE, HostHealth
from hookmill.runs.masked_files import mask_files
from hookmill.runs.observation import RunObserver
from hookmill.runs.package import Package, is_masked, open_package, remove_workspace, write_package
from hookmill.runs.reserve import ReserveWatch
from hookmill.runs.run_secrets import RunSecretReader, UnusableSecret, masked_result, masker_of
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction, Runner, reason_of
from hookmill.runs.workspaces.checkouts import (
    RefNotFound,
    WorkspaceRefused,
    WorkspaceStopped,
    WorkspaceUnavailable,
)
from hookmill.runs.workspaces.preparation import RepositoryBusy, Workspaces
from hookmill.store import results
from hookmill.store.database import Database, Transaction
from hookmill.store.pauses import pause_failing
from hookmill.store.runs import attempts, platform_attempts
from hookmill.store.runs.attempts import AttemptStatus, RunToPerform
from hookmill.store.runs.executors import ExecutorId

T = TypeVar("T")

INSTRUCTION_SECONDS: Final = 0.5
"""While the workspace of a run is being made: the time between two looks whether the run must stop."""
RETRY_SECONDS: Final = 0.5
"""The time between two tries to use an unavailable database."""
WORKSPACE_RETRY: Final = Retry(attempts=3, backoff_seconds=30)
"""How often a workspace that can't be fetched is tried, if the run has no retry rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The operator's settings for runs."""

    data: Path
    """The data directory."""
    runners: Mapping[str, Runner]
    reserve_watch: ReserveWatch | None = None
    """Says whether this host has its reserve; None: nothing does. Its owner starts and closes it."""
    slots: int = 4
    """The maximum number of runs that one process performs at the same time."""
    attempts_max: int = 3
    """A run whose worker died, or whose host had a fault, in this many attempts ends as interrupted."""
    retry_rules: Mapping[str, Retry] = field(default_factory=dict)
    """The retry rule of each runner, by its name, for automations that have no retry rule."""
    dead_after_seconds: float = 5.0
    """On PostgreSQL: a process that sent no heartbeat for this time counts as dead, and its runs are requeued."""
    secrets: RunSecretReader | None = None
    """Reads the secrets of runs; None: runs with secrets fail."""
    destinations: Mapping[str, DestinationRules] = field(default_factory=dict)
    """The destinations of results, by name."""
    wake_results: Callable[[], None] = lambda: None
    """Called when messages about a run may wait to be sent."""
    run_files: RunFileSettings | None = None
    """Where files of runs are stored for all hosts; None: they stay on the worker's host."""
    workspaces: Workspaces | None = None
    """Makes the workspaces of runs; None: runs with a workspace fail."""

    @property
    def packages(self) -> Path:
        return self.data.absolute() / "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Performs runs that `executor` has claimed. Safe for use by several threads."""

    database: Database
    executor: ExecutorId
    settings: RunSettings
    clock: Callable[[], int]
    """Microseconds since 1970."""
    abandon_runs: threading.Event
    """Set when the service stops, and runs in progress have no time left. Their attempts are then abandoned."""
    report_failure: ReportFailure
    health: HostHealth
    run_with_policy_key_ended: Callable[[], None] = lambda: None
    """Called after the end of a run with a policy key: a run that waits for it may start."""
    file_writer: RunFileWriter | None = None
    """Stores files of runs for all hosts; None if the files stay on this host."""
    observer: RunObserver = field(default_factory=RunObserver)

    def perform(self, key: RunKey, attempt: int) -> Ended | Abandoned | None:
        """Perform an attempt that a claim began, and record its result in the run's row.

        After a fault of the host, the run is requeued, unless that was its last attempt. Returns `Abandoned` if this
        attempt did not end the run, and None if the attempt is outdated before it starts. Raises `StoreUnavailable` if
        the service stops before the database is available.
        """
        claimed = self._run_to_perform(key, attempt)
        if claimed is None:
            return None
        run, has_failures_in_row = claimed.run, claimed.has_failures_in_row
        if run.options.results and not self._begin_results(run, claimed.payload):
            return None
        try:
            result = self.observer.observe_attempt(run, lambda: self._call_runner(run, claimed.payload))
        except RepositoryBusy:
            self._requeue(run, counts_as_attempt=False)
            return Abandoned()
        except WorkspaceUnavailable as error:
            # The command has not begun, so the run has not failed. Alarms and pauses count interrupted runs, too.
            result = Ended(state=RunState.INTERRUPTED, reason=str(error))
            if self._schedule_retry(run, result, default=WORKSPACE_RETRY):
                return Abandoned()
            return self._end_without_command(run, result, has_failures_in_row)
        except RefNotFound as error:
            # It may exist later: a provider may send a delivery before it gives out the commit.
            result = _failed(str(error))
            if self._schedule_retry(run, result):
                return Abandoned()
            return self._end_without_command(run, result, has_failures_in_row)
        except WorkspaceRefused as error:
            # Other attempts would be refused, too.
            return self._end_without_command(run, _failed(str(error)), has_failures_in_row)
        except HostFault as fault:
            # The fault is reported before the run is requeued, so that this process does not claim the run immediately.
            self.health.report_fault(fault)
            if fault.counts_as_attempt and run.counted_attempts >= self.settings.attempts_max:
                # A run whose command kills its guard must not be repeated without limit.
                result = Ended(state=RunState.INTERRUPTED, reason=f"{fault} It was attempt {run.attempt}, the last.")
                return self._end(run, self._unless_cancelled(run, self._report_or(run, result)), has_failures_in_row)
            self._requeue(run, counts_as_attempt=fault.counts_as_attempt)
            return Abandoned()
        if isinstance(result, Abandoned):
            return result
        self.health.report_performed(run.runner)
        return self._end(run, result, has_failures_in_row)

    def _end(self, run: Run, result: Ended, has_failures_in_row: bool) -> Ended | Abandoned:
        """Record the result, unless the attempt failed and another one follows."""
        if result.state is RunState.FAILED and self._schedule_retry(run, result):
            return Abandoned()
        return result if self._record_result(run, result, has_failures_in_row) else Abandoned()

    def _end_without_command(self, run: Run, result: Ended, has_failures_in_row: bool) -> Ended | Abandoned:
        """Record the result of an attempt whose command did not begin."""
        result = self._unless_cancelled(run, result)
        return result if self._record_result(run, result, has_failures_in_row) else Abandoned()

    def _unless_cancelled(self, run: Run, result: Ended) -> Ended:
        """The result, or that of a cancelled run if a cancellation was requested and the run has no result yet."""
        if result.state not in (RunState.FAILED, RunState.INTERRUPTED):
            return result
        if self._stored_status(run) is not AttemptStatus.CANCEL_REQUESTED:
            return result
        return Ended(state=RunState.CANCELLED, reason=f"It was cancelled. {result.reason or ''}".strip())

    def _report_or(self, run: Run, result: Ended) -> Ended:
        """The result, unless the report of an agent platform was accepted before. A later one is not accepted."""
        report = self._in_transaction(self.database.write, lambda tx: platform_attempts.close(tx, run.id, run.attempt))
        return report.ended if report is not None else result

    def _run_to_perform(self, key: RunKey, attempt: int) -> RunToPerform | None:
        """The run and its payload, if stored; None if the attempt is outdated."""
        return self._in_transaction(
            self.database.read_statement,
            lambda tx: attempts.run_to_perform(tx, key, executor=self.executor, attempt=attempt),
        )

    def _begin_results(self, run: Run, payload: bytes | None) -> bool:
        """Add the messages about the run to the outbox. Returns False if the attempt is outdated."""
        planned = plan_results(run.options.results, payload, run.automation_name, self.settings.destinations)
        is_current = self._in_transaction(
            self.database.write,
            lambda tx: results.begin(tx, run, planned, executor=self.executor, now=self.clock()),
        )
        self.settings.wake_results()
        return is_current

    def _call_runner(self, run: Run, payload: bytes | None) -> Ended | Abandoned:
        if run.attempt > 1 and (report := self._accepted_report(run)) is not None:
            # The worker of an earlier attempt died before it read the report.
            return report.ended
        runner = self.settings.runners.get(run.runner)
        if runner is None:
            return _failed(
                f"The service started without a runner {run.runner!r}. If hookmill.toml has it now, restart the "
                "service. Otherwise add it there, or choose another runner in the automation."
            )
        if payload is None and run.has_payload:
            return _failed("The delivery's payload is no longer stored.")
        if (reason := run.options.reason_against_runs) is not None:
            return Ended(state=RunState.INTERRUPTED, reason=reason)
        try:
            secrets = self._secrets_of(run)
        except UnusableSecret as error:
            return _failed(str(error))
        masker = masker_of(secrets)
        with ExitStack() as resources:
            directory: int | None = None
            try:
                self._end_earlier_attempts(runner, run)
                package = write_package(
                    self.settings.packages,
                    run,
                    payload,
                    traceparent=self.observer.traceparent(run),
                    check_out=self._check_out(run, payload),
                )
                if secrets:
                    package = replace(package, secrets=secrets)
                    # After the command, the files of the package are masked.
                    directory = resources.enter_context(open_package(self.settings.packages, run.id))
            except WorkspaceStopped as stopped:
                if stopped.instruction is Instruction.ABANDON:
                    return Abandoned()
                return Ended(state=RunState.CANCELLED, reason="It was cancelled while its workspace was made.")
            except (OSError, MemoryError) as error:
                raise HostFault(
                    f"A run's package could not be written to {self.settings.packages}: {reason_of(error)}. "
                    f"{DISK_ADVICE}"
                ) from error
            result = self._run_package(runner, package)
            if not isinstance(result, Ended):
                return result
            if directory is not None:
                self._mask_files(directory, masker)
        if not secrets or is_masked(self.settings.packages, run.id):
            self._store_files(run, payload)
        if package.workspace is not None:
            # What can't be removed now is removed by retention.
            with suppress(OSError):
                remove_workspace(self.settings.packages, run.id)
        return masked_result(result, masker)

    def _end_earlier_attempts(self, runner: Runner, run: Run) -> None:
        if run.attempt == 1:
            return
        try:
            runner.end_earlier_attempts(run)
        except OSError as error:
            raise HostFault(
                f"The runner {run.runner!r} could not end an earlier attempt of a run: {reason_of(error)}.",
                runner=run.runner,
            ) from error

    def _accepted_report(self, run: Run) -> PlatformReport | None:
        return self._in_transaction(
            self.database.read_statement, lambda tx: platform_attempts.accepted_report(tx, run.id)
        )

    def _run_package(self, runner: Runner, package: Package) -> Ended | Abandoned:
        run = package.run
        live_output = self.file_writer.live_output(run) if self.file_writer is not None else None
        try:
            return runner.run(package, lambda: self._instruction(run, live_output))
        except HostFault as fault:
            raise HostFault(str(fault), counts_as_attempt=fault.counts_as_attempt, runner=run.runner) from fault
        except (OSError, MemoryError) as error:
            raise HostFault(
                f"The runner {run.runner!r} ran out of resources: {reason_of(error)}.",
                counts_as_attempt=True,
                runner=run.runner,
            ) from error
        except Exception as error:
            self.report_failure(f"runner {run.runner}", error)
            return _failed(f"The runner {run.runner!r} has a fault. See the service's log.")

    def _secrets_of(self, run: Run) -> Mapping[str, SecretValue]:
        """The values of the run's secrets, by variable. Raises `UnusableSecret`."""
        if not run.options.secrets:
            return {}
        reader = self.settings.secrets
        if reader is None:
            raise UnusableSecret("This worker has no master key, so it can't perform runs with secrets.")
        return self._in_transaction(self.database.read, lambda tx: reader.values_for(tx, run))

    def _mask_files(self, package_descriptor: int, masker: Masker) -> None:
        try:
            mask_files(package_descriptor, masker)
        except OSError as error:
            # The files are not shown then.
            self.report_failure("runs", error)

    def _check_out(self, run: Run, payload: bytes | None) -> Callable[[Path], CheckoutCommits] | None:
        """What makes the run's workspace; None if the run gets none. Raises `WorkspaceRefused`."""
        if run.options.workspace is None:
            return None
        if self.settings.workspaces is None:
            raise WorkspaceRefused("This worker can't give runs a workspace.")
        next_instruction = throttled(lambda: self._instruction(run, None))
        return self.settings.workspaces.check_out(run, payload, next_instruction)

    def _store_files(self, run: Run, payload: bytes | None) -> None:
        # The runner `package` executes nothing, so its files can be derived.
        if self.file_writer is None or run.runner == PACKAGE_RUNNER:
            return
        with suppress(StoreUnavailable):
            self.file_writer.store_files(run, payload, wait_for_database=lambda: self._stored_status(run))

    def _status(self, tx: Transaction, run: Run) -> AttemptStatus:
        return attempts.status(tx, run.id, executor=self.executor, attempt=run.attempt)

    def _stored_status(self, run: Run) -> AttemptStatus:
        return self._in_transaction(self.database.read_statement, lambda tx: self._status(tx, run))

    def _instruction(self, run: Run, live_output: LiveOutput | None) -> Instruction:
        if self.abandon_runs.is_set():
            return Instruction.ABANDON
        try:
            with self.database.read_statement() as tx:
                status = self._status(tx, run)
        except StoreUnavailable:
            return Instruction.CONTINUE
        except Exception as error:
            # The command has not caused this error, so it continues.
            self.report_failure("runs", error)
            return Instruction.CONTINUE
        if live_output is not None and status is not AttemptStatus.OUTDATED:
            live_output.store_if_grown()
        match status:
            case AttemptStatus.CURRENT:
                return Instruction.CONTINUE
            case AttemptStatus.CANCEL_REQUESTED:
                return Instruction.CANCEL
            case AttemptStatus.OUTDATED:
                return Instruction.ABANDON
            case _:
                assert_never(status)

    def _record_result(self, run: Run, result: Ended, has_failures_in_row: bool) -> bool:
        """Record the result of the attempt, which ends the run.

        Returns False if the attempt is outdated, or if the service stops while the database is unavailable.
        """
        # A success after another success changes no count, so it needs no transaction. `has_failures_in_row` was read
        # when the attempt started. If a run has failed since, the next success resets the count.
        counts_failures = (
            has_failures_in_row
            or result.state is not RunState.SUCCEEDED
            or run.options.pause_after_failures is not None
        )
        is_one_statement = attempts.finishes_in_one_statement(run, result, counts_failures=counts_failures)
        write = self.database.write_statement if is_one_statement else self.database.write

        def finish(tx: Transaction) -> bool:
            return attempts.finish(
                tx,
                run.id,
                result,
                executor=self.executor,
                attempt=run.attempt,
                now=self.clock(),
                policy_key=run.policy_key,
                counts_failures=counts_failures,
                package_webhook_name=self._webhook_name_to_store(run),
            )

        try:
            is_recorded = self._in_transaction(write, finish)
        except StoreUnavailable:
            return False
        if run.options.pause_after_failures is not None and result.state is RunState.FAILED:
            self._pause_failing()
        if is_recorded:
            if run.policy_key is not None:
                self.run_with_policy_key_ended()
            if run.options.results:
                # The recorded end has made the messages about it due.
                self.settings.wake_results()
            self.observer.run_ended(run, result.state)
        return is_recorded

    def _pause_failing(self) -> None:
        try:
            pause_failing(self.database, self.clock())
        except Exception as error:
            # The dispatcher calls `pause_failing` again every few seconds.
            self.report_failure("runs", error)

    def _schedule_retry(self, run: Run, result: Ended, *, default: Retry | None = None) -> bool:
        """Schedule the next attempt. Returns False if there is none, so that the caller must record the result.

        `default`: the rule if neither the run nor its runner has one. Pass it if the attempt ended before its command
        began; the exit codes of a rule are then ignored.

        There is no next attempt if the retry rule, or a requested cancellation, allows none, or if this attempt is
        outdated. If the service stops before the database is available, this returns True, and the run is requeued.
        """
        rule = run.options.retry or self.settings.retry_rules.get(run.runner)
        if default is not None:
            rule = structs.replace(rule or default, exit_codes=default.exit_codes)
        delay_seconds = rule.delay_after(run.failures + 1, result.exit_status) if rule is not None else None
        if rule is None or delay_seconds is None:
            return False

        def retry(tx: Transaction) -> bool:
            now = self.clock()
            return attempts.retry(
                tx,
                run,
                result,
                executor=self.executor,
                now=now,
                due_at=now + delay_seconds * 1_000_000,
                rule_attempts=rule.attempts,
                package_webhook_name=self._webhook_name_to_store(run),
            )

        with suppress(StoreUnavailable):
            return self._in_transaction(self.database.write, retry)
        return True

    def _webhook_name_to_store(self, run: Run) -> str | None:
        # Other hosts derive the envelope from the run's row. The webhook may be renamed until then.
        return run.webhook_name if self.file_writer is not None else None

    def _requeue(self, run: Run, *, counts_as_attempt: bool) -> None:
        def release(tx: Transaction) -> RunState | None:
            return attempts.release(
                tx,
                run.id,
                executor=self.executor,
                attempt=run.attempt,
                counts_as_attempt=counts_as_attempt,
                now=self.clock(),
            )

        with suppress(StoreUnavailable):
            state = self._in_transaction(self.database.write, release)
            if state is not None and state.is_final:
                self.observer.run_ended(run, state)

    def _in_transaction(
        self, begin: Callable[[], AbstractContextManager[Transaction]], operation: Callable[[Transaction], T]
    ) -> T:
        """Call `operation` in a transaction, again until the database is available.

        Raises `StoreUnavailable` if the service stops first.
        """
        while True:
            try:
                with begin() as tx:
                    return operation(tx)
            except StoreUnavailable:
                if self.abandon_runs.wait(RETRY_SECONDS):
                    raise


def throttled(next_instruction: NextInstruction) -> NextInstruction:
    """The same, but it asks at most twice a second, and is `CONTINUE` in between."""
    asked_at = -math.inf

    def ask() -> Instruction:
        nonlocal asked_at
        if time.monotonic() - asked_at < INSTRUCTION_SECONDS:
            return Instruction.CONTINUE
        asked_at = time.monotonic()
        return next_instruction()

    return ask


def _failed(reason: str) -> Ended:
    return Ended(state=RunState.FAILED, reason=reason)
