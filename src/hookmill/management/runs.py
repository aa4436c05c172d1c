"""Operations on runs: looking at them, and cancelling them."""

from collections.abc import Collection, Mapping, Sequence

from hookmill.domain.errors import Conflict
from hookmill.domain.ids import AutomationId, DeliveryKey, RunKey, run_id
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import Run, RunState
from hookmill.management.installation import Installation
from hookmill.management.lookup import automation_named, delivery_of, run_of, webhook_named
from hookmill.store import runs


class Runs:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

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
        """Newest first; `before` is the last one of the page before."""
        with self._at.reading() as tx:
            uid = webhook_named(tx, may, webhook).uid if webhook is not None else None
            chosen = automation_named(tx, may, automation).id if automation is not None else None
            return runs.page_of_runs(
                tx, factory=may.factory.id, webhook=uid, automation=chosen, state=state, before=before, limit=limit
            )

    def newest_by_automation(self, may: MayView) -> Mapping[AutomationId, Run]:
        """The newest run of each automation that has one."""
        with self._at.reading() as tx:
            return runs.newest_by_automation(tx, may.factory.id)

    def oldest(
        self, may: MayView, *, webhook: str | None = None, after: RunKey | None = None, limit: int = 1000
    ) -> Sequence[Run]:
        """Oldest first; `after` is the last one of the page before."""
        with self._at.reading() as tx:
            uid = webhook_named(tx, may, webhook).uid if webhook is not None else None
            return runs.oldest_runs(tx, factory=may.factory.id, webhook=uid, after=after, limit=limit)

    def get(self, may: MayView, shown_id: str) -> Run:
        with self._at.reading() as tx:
            return run_of(tx, may, shown_id)

    def of_delivery(self, may: MayView, shown_delivery_id: str) -> Sequence[Run]:
        """The runs of one delivery, replays too."""
        with self._at.reading() as tx:
            delivery = delivery_of(tx, may, shown_delivery_id)
            return runs.page_of_runs(tx, factory=may.factory.id, delivery=delivery.key)

    def counts_by_delivery(self, may: MayView, deliveries: Collection[DeliveryKey]) -> Mapping[DeliveryKey, int]:
        """How many runs each of these deliveries has, replays too. One that has none is not among them."""
        with self._at.reading() as tx:
            return runs.counts_by_delivery(tx, deliveries, factory=may.factory.id)

    def cancel(self, may: MayManage, shown_id: str) -> Run:
        """A queued run is cancelled when this returns; a running one is told to stop. Raises `Conflict` for a
        finished one."""
        with self._at.changing(may) as change:
            run = run_of(change.tx, may, shown_id)
            if run.state.is_final:
                raise Conflict(f"Run {shown_id} is already {run.state.value}.")
            runs.request_cancel(change.tx, run.id, factory=may.factory.id, now=change.now)
            change.record("cancel", "run", run_id(run.id), run.automation_name)
            return run_of(change.tx, may, shown_id)
