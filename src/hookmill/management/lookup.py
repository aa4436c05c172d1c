"""Looks up factories by name, and the webhooks, automations, deliveries and runs of one factory by name or id."""

from hookmill.domain import ids
from hookmill.domain.automation import Automation
from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.factory import Factory
from hookmill.domain.ids import AutomationId, WebhookUid
from hookmill.domain.permission import MayAdminister, MayView
from hookmill.domain.run import Run
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.store import automations, deliveries, factories, webhooks
from hookmill.store.database import Transaction
from hookmill.store.runs import reading


def factory_named(tx: Transaction, may: MayAdminister, name: str) -> Factory:
    """The team's factory with this name. Raises `NotFound`."""
    factory = factories.factory_named(tx, name)
    if factory is None or factory.team_id != may.team_id:
        raise NotFound(f"There is no factory {name[:100]!r}. `hookmill factory list` shows them.")
    return factory


def webhook_named(tx: Transaction, may: MayView, uid_or_name: str) -> Webhook:
    """The webhook with this uid, or the one with this name that is not deleted. Raises `NotFound`."""
    webhook = webhooks.by_uid(tx, WebhookUid(uid_or_name)) if uid_or_name.startswith("wh_") else None
    if webhook is None or webhook.factory_id != may.factory.id:
        webhook = webhooks.live_by_name(tx, may.factory.id, uid_or_name)
    if webhook is None:
        raise NotFound(
            f"Factory {may.factory.name!r} has no webhook {uid_or_name[:100]!r}. `hookmill webhook list` shows them, "
            "and with --deleted also those that were deleted."
        )
    return webhook


def live_webhook_named(tx: Transaction, may: MayView, uid_or_name: str) -> Webhook:
    """Like `webhook_named`, but raises `Conflict` if the webhook is deleted."""
    webhook = webhook_named(tx, may, uid_or_name)
    if webhook.state is WebhookState.DELETED:
        raise Conflict(f"Webhook {webhook.name!r} ({webhook.uid}) is permanently deleted. Create a new one.")
    return webhook


def automation_named(tx: Transaction, may: MayView, id_or_name: str) -> Automation:
    """The automation with this id or name. Raises `NotFound`, also if it is deleted."""
    automation = automations.live_by_id(tx, AutomationId(id_or_name)) if id_or_name.startswith("aut_") else None
    if automation is None or automation.factory_id != may.factory.id:
        automation = automations.live_by_name(tx, may.factory.id, id_or_name)
    if automation is None:
        raise NotFound(
            f"Factory {may.factory.name!r} has no automation {id_or_name[:100]!r}. "
            "`hookmill automation list` shows them."
        )
    return automation


def delivery_of(tx: Transaction, may: MayView, delivery_id: str) -> Delivery:
    """The delivery with this id. Raises `NotFound`, and `Invalid` for an invalid id."""
    delivery = deliveries.by_key(tx, may.factory.id, ids.delivery_key(delivery_id))
    if delivery is None:
        raise NotFound(f"Factory {may.factory.name!r} has no delivery {delivery_id}, or retention has pruned it.")
    return delivery


def payload_of(tx: Transaction, delivery: Delivery) -> bytes:
    """The body, byte for byte. Raises `NotFound` if only the delivery's metadata is stored."""
    body = deliveries.payload(tx, delivery.key)
    if body is None:
        raise NotFound(
            f"Delivery {ids.delivery_id(delivery.key)} is {delivery.label.wording}: "
            "only Accepted deliveries have a stored payload."
        )
    return body


def run_of(tx: Transaction, may: MayView, run_id: str) -> Run:
    """The run with this id. Raises `NotFound`, and `Invalid` for an invalid id."""
    run = reading.run_by_key(tx, ids.run_key(run_id), factory=may.factory.id)
    if run is None:
        raise NotFound(f"Factory {may.factory.name!r} has no run {run_id}, or retention has pruned it.")
    return run


def uid_of(tx: Transaction, may: MayView, uid_or_name: str | None) -> WebhookUid | None:
    """The uid of this webhook; None, for all webhooks, if `uid_or_name` is None."""
    return webhook_named(tx, may, uid_or_name).uid if uid_or_name is not None else None
