"""Operations on runs: list, read and cancel them."""

from collections.abc import Collection, Mapping, Sequence

from hookmill.domain import ids
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import AutomationId, DeliveryKey, RunKey
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.queue import Queue, QueuePosition
from hookmill.domain.run import FailedAttempt, Run, RunState
from hookmill.management.installation import Installation
from hookmill.management.lookup import automation_named, delivery_of, run_of, webhook_named
from hookmill.store import queue, runs


class Runs:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation

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
            uid = webhook_named(tx, may, webhook).uid if webhook is not None else None
            automation_id = automation_named(tx, may, automation).id if automation is not None else None
            return runs.page_of_runs(
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
            return runs.newest_by_automation(tx, may.factory.id)

    def oldest(
        self, may: MayView, *, webhook: str | None = None, after: RunKey | None = None, limit: int = 1000
    ) -> Sequence[Run]:
        """A page of runs, oldest first. `after` is the key of the previous page's last run."""
        with self._installation.reading() as tx:
            uid = webhook_named(tx, may, webhook).uid if webhook is not None else None
            return runs.oldest_runs(tx, factory=may.factory.id, webhook=uid, after=after, limit=limit)

    def get(self, may: MayView, run_id: str) -> Run:
        with self._installation.reading() as tx:
            return run_of(tx, may, run_id)

    def failed_attempts(self, may: MayView, run_id: str) -> Sequence[FailedAttempt]:
        """The run's attempts that failed and were followed by another one, oldest first."""
        with self._installation.reading() as tx:
            return runs.failed_attempts(tx, run_of(tx, may, run_id).id)

    def of_delivery(self, may: MayView, delivery_id: str) -> Sequence[Run]:
        """The runs of one delivery, including replays."""
        with self._installation.reading() as tx:
            delivery = delivery_of(tx, may, delivery_id)
            return runs.page_of_runs(tx, factory=may.factory.id, delivery=delivery.key)

    def counts_by_delivery(self, may: MayView, deliveries: Collection[DeliveryKey]) -> Mapping[DeliveryKey, int]:
        """The number of runs of each delivery, including replays. Deliveries without runs are omitted."""
        with self._installation.reading() as tx:
            return runs.counts_by_delivery(tx, deliveries, factory=may.factory.id)

    def cancel(self, may: MayManage, run_id: str) -> Run:
        """Cancel a queued run, or ask a running one to stop. Raises `Conflict` for a finished run."""
        with self._installation.changing(may) as change:
            run = run_of(change.tx, may, run_id)
            if run.state.is_final:
                raise Conflict(f"Run {run_id} is already {run.state.value}.")
            runs.request_cancel(change.tx, run.id, factory=may.factory.id, now=change.now)
            change.record("cancel", "run", ids.run_id(run.id), run.automation_name)
            return run_of(change.tx, may, run_id)

    # The queue

    def queue(self, may: MayView, *, after: QueuePosition | None = None, limit: int = 50) -> Queue:
        """The factory's queue, with a page of waiting runs. `after` is the position of the previous page's last run."""
        with self._installation.reading() as tx:
            return queue.queue_of(tx, may.factory.id, after=after, limit=limit, now=self._installation.now())
