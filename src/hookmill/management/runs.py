"""Operations on runs: list, read and cancel them."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from hookmill.domain import ids
from hookmill.domain.agent_report import AgentReport
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.ids import AutomationId, DeliveryKey, RunKey
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.queue import CancelledRuns, Queue, QueuePosition
from hookmill.domain.result_message import ResultMessage
from hookmill.domain.run import FailedAttempt, Run, RunState
from hookmill.domain.run_outputs import RunOutputs
from hookmill.management.installation import Operations
from hookmill.management.lookup import automation_named, delivery_of, run_of, uid_of, webhook_named
from hookmill.store import results
from hookmill.store.database import Transaction
from hookmill.store.runs import cancellation, outputs, pages, queue, reading
from hookmill.store.runs.cancellation import RunFilter

BATCH_PAUSE_SECONDS: Final = 0.02
"""The time between two transactions that cancel runs, so that deliveries don't wait for all of them."""


class Runs(Operations):
    def newest(
        self,
        may: MayView,
        *,
        webhook: str | None = None,
        automation: str | None = None,
        state: RunState | None = None,
        before: RunKey | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """A page of runs, newest first. `before` is the key of the previous page's last run."""
        with self._installation.reading() as tx:
            uid = uid_of(tx, may, webhook)
            automation_id = automation_named(tx, may, automation).id if automation is not None else None
            return pages.page_of_runs(
                tx,
                factory=may.factory.id,
                webhook=uid,
                automation=automation_id,
                state=state,
                before=before,
                limit=limit,
            )

    def newest_by_automation(self, may: MayView) -> Mapping[AutomationId, Run]:
        """The newest run of each automation. Automations without runs are omitted."""
        with self._installation.reading() as tx:
            return reading.newest_by_automation(tx, may.factory.id)

    def oldest(
        self, may: MayView, *, webhook: str | None = None, after: RunKey | None = None, limit: int = 1000
    ) -> Sequence[Run]:
        """A page of runs, oldest first. `after` is the key of the previous page's last run."""
        with self._installation.reading() as tx:
            uid = uid_of(tx, may, webhook)
            return reading.oldest_runs(tx, factory=may.factory.id, webhook=uid, after=after, limit=limit)

    def get(self, may: MayView, run_id: str) -> Run:
        with self._installation.reading() as tx:
            return run_of(tx, may, run_id)

    def failed_attempts(self, may: MayView, run_id: str) -> Sequence[FailedAttempt]:
        """The run's attempts that failed and were followed by another one, oldest first."""
        with self._installation.reading() as tx:
            return reading.failed_attempts(tx, run_of(tx, may, run_id).id)

    def agent_reports(self, may: MayView, run_id: str) -> Mapping[int, AgentReport]:
        """The reports of agents about the ended attempts of the run, by the attempt's number."""
        with self._installation.reading() as tx:
            return reading.attempt_reports(tx, run_of(tx, may, run_id).id)

    def outputs(self, may: MayView, run_id: str) -> RunOutputs:
        """The texts that the run has written for people, by the name of the file; none before it has ended."""
        with self._installation.reading() as tx:
            return outputs.of_run(tx, run_of(tx, may, run_id).id)

    def results(self, may: MayView, run_id: str) -> Sequence[ResultMessage]:
        """The messages about the run that were delivered, or wait to be delivered."""
        with self._installation.reading() as tx:
            return results.of_run(tx, run_of(tx, may, run_id).id)

    def of_delivery(self, may: MayView, delivery_id: str) -> Sequence[Run]:
        """The newest thousand runs of one delivery, including those that a replay started, newest first."""
        with self._installation.reading() as tx:
            delivery = delivery_of(tx, may, delivery_id)
            return pages.page_of_runs(tx, factory=may.factory.id, delivery=delivery.key, limit=1000)

    def counts_by_delivery(self, may: MayView, deliveries: Collection[DeliveryKey]) -> Mapping[DeliveryKey, int]:
        """The number of runs of each delivery, including those that a replay started. Deliveries without runs are
        omitted."""
        with self._installation.reading() as tx:
            return reading.counts_by_delivery(tx, deliveries, factory=may.factory.id)

    def cancel(self, may: MayManage, run_id: str) -> Run:
        """Cancel a queued run, or ask a running one to stop. Raises `Conflict` for a finished run."""
        with self._installation.changing(may) as change:
            run = run_of(change.tx, may, run_id)
            if run.state.is_final:
                raise Conflict(f"Run {run_id} has already ended. Its state is {run.state.value}.")
            cancellation.request_cancel(change.tx, run.id, factory=may.factory.id, now=change.now)
            change.record("cancel", "run", ids.run_id(run.id), run.automation_name)
            return run_of(change.tx, may, run_id)

    # The queue

    def queue(self, may: MayView, *, after: QueuePosition | None = None, limit: int = 50) -> Queue:
        """The factory's queue, with a page of waiting runs. `after` is the position of the previous page's last run."""
        with self._installation.reading() as tx:
            return queue.queue_of(tx, may.factory.id, after=after, limit=limit, now=self._installation.now())

    def count_to_cancel(
        self,
        may: MayView,
        *,
        webhook: str | None = None,
        automation: str | None = None,
        state: RunState | None = None,
        all_runs: bool = False,
    ) -> int:
        """How many runs `cancel_many` would cancel, or ask to stop, now."""
        _require_usable_conditions(webhook, automation, state, all_runs)
        with self._installation.reading() as tx:
            run_filter = _run_filter(tx, may, webhook, automation, state)
            return cancellation.count_to_cancel(tx, run_filter) if run_filter is not None else 0

    def cancel_many(
        self,
        may: MayManage,
        *,
        webhook: str | None = None,
        automation: str | None = None,
        state: RunState | None = None,
        all_runs: bool = False,
    ) -> CancelledRuns:
        """Cancel the unfinished runs that meet every condition, or with `all_runs`, all of the factory.

        `state` is queued or running. Runs that are created meanwhile are not cancelled. The runs are cancelled in
        several transactions. The audit log has the conditions, and the number of runs that met them at the start.
        """
        _require_usable_conditions(webhook, automation, state, all_runs)
        with self._installation.reading() as tx:
            run_filter = _run_filter(tx, may, webhook, automation, state)
            if run_filter is None or not (count := cancellation.count_to_cancel(tx, run_filter)):
                return CancelledRuns(cancelled=0, stopping=0)
            conditions = _conditions(tx, may, webhook, automation, state)
        # The audit log's line is committed before the changes, so that no failure leaves a change without its line.
        with self._installation.changing(may) as change:
            change.record("cancel_runs", "factory", may.factory.id, may.factory.name, **conditions, runs=count)
        cancelled = stopping = 0
        # A run may move meanwhile to a part of the queue that was processed before, so the parts are processed again. A
        # run that was cancelled, or asked to stop, is not selected again, so the loop ends.
        while results := list(self._cancel_in_batches(run_filter)):
            cancelled += sum(result.cancelled for result in results)
            stopping += sum(result.stopping for result in results)
        return CancelledRuns(cancelled=cancelled, stopping=stopping)

    def _cancel_in_batches(self, run_filter: RunFilter) -> Iterator[CancelledRuns]:
        """Cancel the runs in each part of the queue (`PartToCancel`), and yield the result of each batch that
        changed something."""
        for part in cancellation.parts_with(run_filter.state):
            after = None
            while True:
                # Read outside the writing transaction: a filter may skip many runs.
                with self._installation.reading() as tx:
                    batch = cancellation.next_to_cancel(tx, run_filter, part, after=after)
                if not batch:
                    break
                with self._installation.writing_without_permission_check() as tx:
                    result = cancellation.request_cancel_of_batch(
                        tx,
                        [each.run_key for each in batch],
                        part,
                        state=run_filter.state,
                        now=self._installation.now(),
                    )
                if result.cancelled or result.stopping:
                    yield result
                if len(batch) < cancellation.BATCH_RUNS:
                    break
                after = batch[-1]
                time.sleep(BATCH_PAUSE_SECONDS)


def _require_usable_conditions(
    webhook: str | None, automation: str | None, state: RunState | None, all_runs: bool
) -> None:
    if state is not None and state.is_final:
        raise Invalid(f"Runs in the state {state.value} have ended. Choose queued or running.", pointer="/state")
    has_filter = webhook is not None or automation is not None or state is not None
    if all_runs and has_filter:
        raise Invalid("Choose conditions or all runs, not both.", pointer="/all")
    if not (all_runs or has_filter):
        raise Invalid("Choose at least one of automation, webhook and state, or all runs.", pointer="")


def _run_filter(
    tx: Transaction, may: MayView, webhook: str | None, automation: str | None, state: RunState | None
) -> RunFilter | None:
    """The filter for the runs that exist now; None if there are no runs. Raises `NotFound`."""
    webhook_no = webhook_named(tx, may, webhook).no if webhook is not None else None
    automation_id = automation_named(tx, may, automation).id if automation is not None else None
    newest = cancellation.newest_run(tx)
    if newest is None:
        return None
    return RunFilter(
        factory=may.factory.id, newest=newest, automation=automation_id, webhook_no=webhook_no, state=state
    )


def _conditions(
    tx: Transaction, may: MayView, webhook: str | None, automation: str | None, state: RunState | None
) -> dict[str, str]:
    """The conditions for the audit log, with names instead of ids."""
    return {
        **({"automation": automation_named(tx, may, automation).name} if automation is not None else {}),
        **({"webhook": webhook_named(tx, may, webhook).name} if webhook is not None else {}),
        **({"state": state.value} if state is not None else {}),
    }
