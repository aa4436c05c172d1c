"""Operations on the delivery log. It is read, and replayed; nothing here changes or removes a row of it."""

import os
from collections.abc import Mapping, Sequence

from hookmill.domain import ids, payload
from hookmill.domain.automation import Automation
from hookmill.domain.delivery import Delivery, DroppedAttempts, Label, identities_shown_as
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import DeliveryKey, RunKey, WebhookUid
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import Run
from hookmill.management.activity import Days, WebhookActivity
from hookmill.management.filters import would_trigger
from hookmill.management.installation import Installation
from hookmill.management.lookup import automation_named, delivery_of, payload_of, run_of, uid_of, webhook_named
from hookmill.store import automations, deliveries, runs
from hookmill.store.database import Transaction
from hookmill.store.deliveries import LogRange


class Log:
    def __init__(self, installation: Installation) -> None:
        self._at = installation
        self._days = Days()

    def newest(
        self,
        may: MayView,
        *,
        webhook: str | None = None,
        label: Label | None = None,
        since: int | None = None,
        until: int | None = None,
        identity: str | None = None,
        event: str | None = None,
        before: DeliveryKey | None = None,
        limit: int = 50,
    ) -> Sequence[Delivery]:
        """Newest first; `before` is the last one of the page before.

        `since` (inclusive) and `until` are µs since 1970. `identity` is a sender's or provider's id, or the SHA-256 of
        a body in hexadecimal digits. `event` is an event type.
        """
        log_range = LogRange(since=since, until=until, before=before)
        with self._at.reading() as tx:
            webhooks = uid_of(tx, may, webhook)
            if identity is None:
                return deliveries.newest(
                    tx, may.factory.id, webhooks=webhooks, label=label, event=event, log_range=log_range, limit=limit
                )
            return deliveries.of_identities(
                tx,
                may.factory.id,
                identities_shown_as(identity),
                now=self._at.now(),
                webhooks=webhooks,
                label=label,
                event=event,
                log_range=log_range,
                limit=limit,
            )

    def oldest(
        self, may: MayView, *, webhook: str | None = None, after: DeliveryKey | None = None, limit: int = 1000
    ) -> Sequence[Delivery]:
        """Oldest first; `after` is the last one of the page before."""
        with self._at.reading() as tx:
            uid = webhook_named(tx, may, webhook).uid if webhook is not None else None
            return deliveries.oldest(tx, may.factory.id, webhook=uid, after=after, limit=limit)

    def get(self, may: MayView, shown_id: str) -> Delivery:
        with self._at.reading() as tx:
            return delivery_of(tx, may, shown_id)

    def payload(self, may: MayView, shown_id: str) -> bytes:
        """The body, byte for byte. Raises `NotFound` where only metadata is kept."""
        with self._at.reading() as tx:
            return payload_of(tx, delivery_of(tx, may, shown_id))

    def newest_key(self, _may: MayView) -> DeliveryKey | None:
        """The key of the log's newest row, in whichever factory: another one says that something came."""
        with self._at.reading() as tx:
            return deliveries.newest_key(tx)

    def dropped_attempts(
        self, may: MayView, webhook: str | None = None, *, since: int | None = None, until: int | None = None
    ) -> Sequence[DroppedAttempts]:
        """How many attempts got no row, by minute and kind, newest first: the newest thousand counters.

        `since` and `until` are µs since 1970: the minutes that end after the one, and not after the other.
        """
        with self._at.reading() as tx:
            uid = webhook_named(tx, may, webhook).uid if webhook is not None else None
            return deliveries.dropped_attempts(tx, may.factory.id, uid, since=since, until=until)

    def activity(self, may: MayView) -> Mapping[WebhookUid, WebhookActivity]:
        """The last 24 hours of every webhook that is not deleted, in numbers, and its last delivery."""
        with self._at.reading() as tx:
            return self._days.day(tx, may, self._at.now())

    def replay(self, may: MayManage, shown_id: str, automation: str | None = None) -> Sequence[Run]:
        """Start runs of a stored delivery again, with the automations as they are now. The log stays as it is.

        Every enabled automation that it triggers, or the one that is named. Raises `NotFound` where no payload is kept,
        and `Conflict` where nothing would start.
        """
        with self._at.changing(may) as change:
            delivery = delivery_of(change.tx, may, shown_id)
            # Retention must not take the payload of a run that is about to be there.
            deliveries.keep_from_retention(change.tx, delivery.key)
            body = payload_of(change.tx, delivery)
            chosen = self._triggered(change.tx, may, delivery, body, automation)
            started = []
            for each in chosen:
                key = RunKey(ids.time_ordered(change.now, os.urandom(8)))
                runs.add_replay(
                    change.tx,
                    key,
                    delivery=delivery.key,
                    factory=may.factory.id,
                    automation=each,
                    now=change.now,
                )
                started.append(run_of(change.tx, may, ids.run_id(key)))
            change.record(
                "replay",
                "delivery",
                shown_id,
                delivery.webhook_name,
                automations=[each.name for each in chosen],
                runs=[ids.run_id(run.id) for run in started],
            )
        return started

    def _triggered(
        self, tx: Transaction, may: MayManage, delivery: Delivery, body: bytes, named: str | None
    ) -> list[Automation]:
        shown_id = ids.delivery_id(delivery.key)
        parsed = payload.parse(body)
        assert not isinstance(parsed, payload.NotJson), "an Accepted delivery is JSON"
        if named is None:
            every = automations.in_factory(tx, may.factory.id)
            chosen = [each for each in every if each.enabled and would_trigger(each, delivery, parsed)]
            if not chosen:
                raise Conflict(
                    f"No enabled automation is triggered by delivery {shown_id} now. Nothing was started. "
                    f"To see why: hookmill delivery show {shown_id}"
                )
            return chosen
        automation = automation_named(tx, may, named)
        if not automation.enabled:
            raise Conflict(f"Automation {automation.name!r} is disabled. Enable it first. Nothing was started.")
        if not would_trigger(automation, delivery, parsed):
            raise Conflict(
                f"Delivery {shown_id} does not trigger automation {automation.name!r}. Nothing was started. "
                f"To see why: hookmill delivery show {shown_id}"
            )
        return [automation]
