"""Operations on the delivery log: list, read, count and replay deliveries. No operation changes or removes a row."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from hookmill.domain import ids, payload
from hookmill.domain.automation import Automation
from hookmill.domain.delivery import Delivery, DroppedAttempts, Label, possible_identity_digests
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.ids import DeliveryKey, RunKey, WebhookUid
from hookmill.domain.payload import Parsed
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.run import Run
from hookmill.management.activity import ActivityReader, WebhookActivity
from hookmill.management.filters import any_trigger_matches
from hookmill.management.installation import Installation
from hookmill.management.lookup import automation_named, delivery_of, payload_of, run_of, uid_of
from hookmill.store import automations, deliveries
from hookmill.store.database import Transaction
from hookmill.store.deliveries import LogRange
from hookmill.store.runs import adding

KEYS_PER_QUERY: Final = 500


class Log:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._activity = ActivityReader()

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
        """A page of deliveries, newest first. `before` is the key of the previous page's last delivery.

        `since` (inclusive) and `until` (exclusive) are µs since 1970. `identity` is a sender's or provider's id, or the
        SHA-256 of a body in hexadecimal digits. `event` is an event type.
        """
        log_range = LogRange(since=since, until=until, before=before)
        with self._installation.reading() as tx:
            uid = uid_of(tx, may, webhook)
            uids = [uid] if uid is not None else None
            if identity is None:
                return deliveries.newest(
                    tx, may.factory.id, webhooks=uids, label=label, event=event, log_range=log_range, limit=limit
                )
            return deliveries.of_identities(
                tx,
                may.factory.id,
                possible_identity_digests(identity),
                now=self._installation.now(),
                webhooks=uids,
                label=label,
                event=event,
                log_range=log_range,
                limit=limit,
            )

    def oldest(
        self, may: MayView, *, webhook: str | None = None, after: DeliveryKey | None = None, limit: int = 1000
    ) -> Sequence[Delivery]:
        """A page of deliveries, oldest first. `after` is the key of the previous page's last delivery."""
        with self._installation.reading() as tx:
            uid = uid_of(tx, may, webhook)
            return deliveries.oldest(tx, may.factory.id, webhook=uid, after=after, limit=limit)

    def get(self, may: MayView, delivery_id: str) -> Delivery:
        with self._installation.reading() as tx:
            return delivery_of(tx, may, delivery_id)

    def known(self, may: MayView, delivery_ids: Sequence[str]) -> Mapping[str, Delivery]:
        """Those of these deliveries that the log has, by id. Other ids, also invalid ones, are omitted."""
        keys = []
        for delivery_id in delivery_ids:
            with suppress(Invalid):
                keys.append(ids.delivery_key(delivery_id))
        found: dict[str, Delivery] = {}
        for start in range(0, len(keys), KEYS_PER_QUERY):
            with self._installation.reading() as tx:
                for delivery in deliveries.by_keys(tx, may.factory.id, keys[start : start + KEYS_PER_QUERY]):
                    found[ids.delivery_id(delivery.key)] = delivery
        return found

    def payload(self, may: MayView, delivery_id: str) -> bytes:
        """The body, byte for byte. Raises `NotFound` if the delivery is unknown or only its metadata is stored."""
        with self._installation.reading() as tx:
            return payload_of(tx, delivery_of(tx, may, delivery_id))

    def newest_key(self, _may: MayView) -> DeliveryKey | None:
        """The key of the newest delivery of all factories. A different key means that the log has changed."""
        with self._installation.reading() as tx:
            return deliveries.newest_key(tx)

    def dropped_attempts(
        self, may: MayView, webhook: str | None = None, *, since: int | None = None, until: int | None = None
    ) -> Sequence[DroppedAttempts]:
        """The numbers of dropped attempts, by minute and kind. Returns the newest thousand, newest first.

        `since` and `until` are µs since 1970. They select the minutes that end in (since, until].
        """
        with self._installation.reading() as tx:
            uid = uid_of(tx, may, webhook)
            return deliveries.dropped_attempts(tx, may.factory.id, uid, since=since, until=until)

    def activity(self, may: MayView) -> Mapping[WebhookUid, WebhookActivity]:
        """The counts of the last 24 hours, and the newest delivery, of each webhook that is not deleted."""
        with self._installation.reading() as tx:
            return self._activity.last_day_by_webhook(tx, may, self._installation.now())

    def replay(self, may: MayManage, delivery_id: str, automation: str | None = None) -> Sequence[Run]:
        """Create new runs for a stored delivery, with the current versions of the automations.

        Starts the automation with this id or name, or every enabled automation that matches. Raises `NotFound` if the
        delivery has no stored payload, and `Conflict` if no run would start.
        """
        with self._installation.changing(may, needs_disk_space=True) as change:
            delivery = delivery_of(change.tx, may, delivery_id)
            # Retention must not prune the payload before the run exists.
            deliveries.lock_against_pruning(change.tx, delivery.key)
            parsed = payload.parse(payload_of(change.tx, delivery))
            assert not isinstance(parsed, payload.NotJson), "an Accepted delivery is JSON"
            automations_to_start = self._automations_to_start(change.tx, may, delivery, parsed, automation)
            started_runs: list[Run] = []
            for automation_to_start in automations_to_start:
                key = RunKey(ids.time_ordered_key(change.now, os.urandom(8)))
                adding.add_replay(
                    change.tx,
                    key,
                    delivery=delivery.key,
                    factory=may.factory.id,
                    automation=automation_to_start,
                    policy_key=automation_to_start.policy_key(automation_to_start.id, parsed),
                    now=change.now,
                )
                started_runs.append(run_of(change.tx, may, ids.run_id(key)))
            change.record(
                "replay",
                "delivery",
                delivery_id,
                delivery.webhook_name,
                automations=[started_automation.name for started_automation in automations_to_start],
                runs=[ids.run_id(run.id) for run in started_runs],
            )
        return started_runs

    def _automations_to_start(
        self, tx: Transaction, may: MayManage, delivery: Delivery, parsed: Parsed, id_or_name: str | None
    ) -> list[Automation]:
        delivery_id = ids.delivery_id(delivery.key)
        if id_or_name is None:
            matching = [
                automation
                for automation in automations.in_factory(tx, may.factory.id)
                if automation.enabled and any_trigger_matches(automation, delivery, parsed)
            ]
            if not matching:
                raise Conflict(
                    f"Delivery {delivery_id} triggers no enabled automation. Nothing was started.",
                    command=f"hookmill delivery show {delivery_id}{may.factory.command_option}",
                )
            return matching
        automation = automation_named(tx, may, id_or_name)
        if not automation.enabled:
            raise Conflict(f"Automation {automation.name!r} is disabled. Enable it first. Nothing was started.")
        if not any_trigger_matches(automation, delivery, parsed):
            raise Conflict(
                f"Delivery {delivery_id} does not trigger automation {automation.name!r}. Nothing was started.",
                command=f"hookmill delivery show {delivery_id}{may.factory.command_option}",
            )
        return [automation]
