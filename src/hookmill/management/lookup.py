"""Things by the names that people use for them. Another factory's are not there."""

from hookmill.domain import ids
from hookmill.domain.automation import Automation
from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import AutomationId, WebhookUid
from hookmill.domain.permission import MayView
from hookmill.domain.run import Run
from hookmill.domain.webhook import Webhook, WebhookState
from hookmill.store import automations, deliveries, runs, webhooks
from hookmill.store.database import Transaction


def webhook_named(tx: Transaction, may: MayView, named: str) -> Webhook:
    """The webhook with this uid, or the live one with this name. Raises `NotFound`."""
    webhook = webhooks.by_uid(tx, WebhookUid(named)) if named.startswith("wh_") else None
    if webhook is None or webhook.factory_id != may.factory.id:
        webhook = webhooks.live_by_name(tx, may.factory.id, named)
    if webhook is None:
        raise NotFound(
            f"Factory {may.factory.name!r} has no webhook {named[:100]!r}. `hookmill webhook list` shows them."
        )
    return webhook


def live_webhook_named(tx: Transaction, may: MayView, named: str) -> Webhook:
    """As `webhook_named`. Raises `Conflict` for a deleted one."""
    webhook = webhook_named(tx, may, named)
    if webhook.state is WebhookState.DELETED:
        raise Conflict(f"Webhook {webhook.name!r} ({webhook.uid}) is deleted, and stays so. Create a new one.")
    return webhook


def automation_named(tx: Transaction, may: MayView, named: str) -> Automation:
    """The automation with this id or name. Raises `NotFound`."""
    automation = automations.live_by_id(tx, AutomationId(named)) if named.startswith("aut_") else None
    if automation is None or automation.factory_id != may.factory.id:
        automation = automations.live_by_name(tx, may.factory.id, named)
    if automation is None:
        raise NotFound(
            f"Factory {may.factory.name!r} has no automation {named[:100]!r}. `hookmill automation list` shows them."
        )
    return automation


def delivery_of(tx: Transaction, may: MayView, shown_id: str) -> Delivery:
    """Raises `NotFound`, and `Invalid` for what is no delivery id."""
    delivery = deliveries.by_key(tx, may.factory.id, ids.delivery_key(shown_id))
    if delivery is None:
        raise NotFound(
            f"There is no delivery {shown_id} in factory {may.factory.name!r}, or the log no longer keeps it."
        )
    return delivery


def payload_of(tx: Transaction, delivery: Delivery) -> bytes:
    """The body, byte for byte. Raises `NotFound` where only metadata is kept."""
    body = deliveries.payload(tx, delivery.key)
    if body is None:
        raise NotFound(
            f"Delivery {ids.delivery_id(delivery.key)} is {delivery.label.shown}: "
            "payloads are kept for Accepted deliveries only."
        )
    return body


def run_of(tx: Transaction, may: MayView, shown_id: str) -> Run:
    """Raises `NotFound`, and `Invalid` for what is no run id."""
    run = runs.run_of(tx, ids.run_key(shown_id), factory=may.factory.id)
    if run is None:
        raise NotFound(f"There is no run {shown_id} in factory {may.factory.name!r}, or the log no longer keeps it.")
    return run


def uid_of(tx: Transaction, may: MayView, named: str | None) -> list[WebhookUid] | None:
    """What a list is narrowed to: nothing, or one webhook."""
    return [webhook_named(tx, may, named).uid] if named is not None else None
