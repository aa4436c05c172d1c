"""/factories/{factory}/webhooks: the URLs that senders post to."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from hookmill.management import UNSET
from hookmill.presentation.webhook import WebhookView, WebhookWithSecretView
from hookmill.web.api.access import Managing, Operations, Viewing
from hookmill.web.api.bodies import NewWebhook, Rotation, WebhookChanges
from hookmill.web.api.fields import LIMIT, Cursor, Limit, UidInPath
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import Page, page
from hookmill.web.api.representation import IfMatch, shown, tagged
from hookmill.web.api.route import Route
from hookmill.web.api.where import at

routes = APIRouter(prefix="/factories/{factory}/webhooks", route_class=Route, tags=["Webhooks"])


class WebhookPage(Page[WebhookView], frozen=True):
    """Webhooks, by name."""


@routes.get("", operation_id="list_webhooks", summary="List webhooks", response_model=WebhookPage)
def list_webhooks(
    may: Viewing,
    management: Operations,
    deleted: Annotated[bool, Query(description="Deleted ones too.")] = False,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """The factory's webhooks, by name."""
    found = management.webhooks.all(may, with_deleted=deleted)
    items, further = page(found, lambda webhook: (webhook.name, webhook.uid), limit=limit, cursor=cursor)
    return shown(WebhookPage(items=[WebhookView.of(management, webhook) for webhook in items], next_cursor=further))


@routes.post(
    "",
    operation_id="create_webhook",
    summary="Create a webhook",
    response_model=WebhookWithSecretView,
    status_code=201,
)
def create_webhook(may: Managing, management: Operations, given: NewWebhook, once: OnlyOnce) -> Response:
    """A new webhook. A secret that is generated for it is in the answer, with the complete URL, and never again.

    Where only the provider can make the secret and none is given, the webhook is disabled until it is supplied: rotate
    it with the provider's.
    """

    def make() -> Response:
        made = management.webhooks.create(
            may,
            given.name,
            auth_mode=given.auth_mode,
            signature_scheme=given.signature_scheme,
            signature_options=given.signature_options,
            answers_handshakes=given.answers_handshakes,
            secret=given.secret,
            secret_name=given.secret_name,
            delivery_id_header=given.delivery_id_header,
            event_header=given.event_header,
            enabled=given.enabled,
        )
        answer = WebhookWithSecretView.once(management, made, generated=given.secret is None)
        return shown(answer, 201, location=at("factories", may.factory.name, "webhooks", made.webhook.uid))

    return once.answer(may, make)


@routes.get("/{uid}", operation_id="show_webhook", summary="Show a webhook", response_model=WebhookView)
def show_webhook(uid: UidInPath, may: Viewing, management: Operations) -> Response:
    """One webhook, deleted ones too. Its secret is never shown."""
    return tagged(WebhookView.of(management, management.webhooks.get(may, uid)))


@routes.patch("/{uid}", operation_id="change_webhook", summary="Change a webhook", response_model=WebhookView)
def change_webhook(
    uid: UidInPath, may: Managing, management: Operations, given: WebhookChanges, if_match: IfMatch
) -> Response:
    """Rename it, enable or disable it, or say in which headers senders put an event's id and type. All of it, or
    nothing.

    It holds at once: senders of a disabled webhook get 404 from the moment that this is answered.
    """
    asked = given.given()
    with management.together(may):
        _must_still_be(uid, may, management, if_match)
        webhook = management.webhooks.change(
            may,
            uid,
            name=asked.get("name"),
            enabled=asked.get("enabled"),
            delivery_id_header=asked.get("delivery_id_header", UNSET),
            event_header=asked.get("event_header", UNSET),
        )
    return tagged(WebhookView.of(management, webhook))


@routes.delete(
    "/{uid}", operation_id="delete_webhook", summary="Delete a webhook", response_class=Response, status_code=204
)
def delete_webhook(uid: UidInPath, may: Managing, management: Operations, if_match: IfMatch) -> Response:
    """Senders get 404 at once and for ever. Its log stays until retention takes it."""
    with management.together(may):
        _must_still_be(uid, may, management, if_match)
        management.webhooks.delete(may, uid)
    return Response(status_code=204)


@routes.post(
    "/{uid}/rotate",
    operation_id="rotate_webhook",
    summary="Replace a webhook's secret",
    response_model=WebhookWithSecretView,
)
def rotate_webhook(
    uid: UidInPath, may: Managing, management: Operations, once: OnlyOnce, given: Rotation | None = None
) -> Response:
    """The old secret stops working at once, with no overlap. One that is generated is shown now, and never again."""
    secret = given.secret if given is not None else None

    def make() -> Response:
        made = management.webhooks.rotate(may, uid, secret)
        return shown(WebhookWithSecretView.once(management, made, generated=secret is None))

    return once.answer(may, make)


@routes.post(
    "/{uid}/sync",
    operation_id="sync_webhook",
    summary="Use the team secret's newest value",
    response_model=WebhookView,
)
def sync_webhook(uid: UidInPath, may: Managing, management: Operations) -> Response:
    """The value that it used before stops working at once."""
    return tagged(WebhookView.of(management, management.webhooks.sync(may, uid)))


def _must_still_be(uid: str, may: Managing, management: Operations, if_match: IfMatch) -> None:
    if if_match.is_given:
        if_match.must_hold(WebhookView.of(management, management.webhooks.get(may, uid)))
