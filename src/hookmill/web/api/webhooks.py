"""/factories/{factory}/webhooks: the URLs that senders post deliveries to."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from hookmill.presentation.webhook import WebhookView, WebhookWithSecretView
from hookmill.web.api.access import ManagementDependency, ManagerAccess, ViewerAccess
from hookmill.web.api.bodies import RotationRequest, WebhookChanges, WebhookCreation
from hookmill.web.api.fields import PAGE_SIZE, Cursor, Limit, UidInPath
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.representation import IfMatch, json_response, response_with_etag
from hookmill.web.api.route import Route
from hookmill.web.api.urls import api_path

routes = APIRouter(prefix="/factories/{factory}/webhooks", route_class=Route, tags=["Webhooks"])


class WebhookPage(ResultPage[WebhookView], frozen=True):
    """Webhooks, by name."""


@routes.get("", operation_id="list_webhooks", summary="List webhooks", response_model=WebhookPage)
def list_webhooks(
    permission: ViewerAccess,
    management: ManagementDependency,
    deleted: Annotated[bool, Query(description="Whether to include deleted webhooks.")] = False,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> Response:
    """Lists the factory's webhooks by name."""
    webhooks = management.webhooks.all(permission, with_deleted=deleted)
    items, next_cursor = paginate(webhooks, lambda webhook: (webhook.name, webhook.uid), limit=limit, cursor=cursor)
    return json_response(
        WebhookPage(items=[WebhookView.of(management, webhook) for webhook in items], next_cursor=next_cursor)
    )


@routes.post(
    "",
    operation_id="create_webhook",
    summary="Create a webhook",
    response_model=WebhookWithSecretView,
    status_code=201,
)
def create_webhook(
    permission: ManagerAccess, management: ManagementDependency, body: WebhookCreation, idempotency: Idempotency
) -> Response:
    """Creates a webhook. Only this response has the secret that the service generates, and the complete URL.

    If no team secret has the name `secret_name`, the webhook's secret is stored under this name.

    With some signature schemes, only the provider can generate the secret. If you omit it, the webhook is created
    disabled. Rotate it with the provider's secret, and then enable it.
    """

    def create() -> Response:
        webhook_with_secret = management.webhooks.create(permission, body.model_extra or {}, body.secret)
        view = WebhookWithSecretView.showing_secret(management, webhook_with_secret, is_generated=body.secret is None)
        location = api_path("factories", permission.factory.name, "webhooks", webhook_with_secret.webhook.uid)
        return json_response(view, 201, location=location)

    return idempotency.respond(permission, create)


@routes.get("/{uid}", operation_id="show_webhook", summary="Show a webhook", response_model=WebhookView)
def show_webhook(uid: UidInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Returns a webhook without its secret. Deleted webhooks are included."""
    return response_with_etag(WebhookView.of(management, management.webhooks.get(permission, uid)))


@routes.patch("/{uid}", operation_id="change_webhook", summary="Change a webhook", response_model=WebhookView)
def change_webhook(
    uid: UidInPath, permission: ManagerAccess, management: ManagementDependency, body: WebhookChanges, if_match: IfMatch
) -> Response:
    """Changes the fields that the body contains. Null resets a field to its default.

    The changes apply together and immediately. After a change of the authentication, deliveries are rejected until the
    sender uses it. Senders to a disabled webhook receive 404.
    """
    with management.one_transaction(permission):
        _check_precondition(uid, permission, management, if_match)
        webhook = management.webhooks.change(permission, uid, body.model_extra or {})
    return response_with_etag(WebhookView.of(management, webhook))


@routes.delete(
    "/{uid}", operation_id="delete_webhook", summary="Delete a webhook", response_class=Response, status_code=204
)
def delete_webhook(
    uid: UidInPath, permission: ManagerAccess, management: ManagementDependency, if_match: IfMatch
) -> Response:
    """Deletes a webhook. Senders receive 404 immediately and permanently. Its log stays until retention prunes it."""
    with management.one_transaction(permission):
        _check_precondition(uid, permission, management, if_match)
        management.webhooks.delete(permission, uid)
    return Response(status_code=204)


@routes.post(
    "/{uid}/rotate",
    operation_id="rotate_webhook",
    summary="Rotate a webhook's secret",
    response_model=WebhookWithSecretView,
)
def rotate_webhook(
    uid: UidInPath,
    permission: ManagerAccess,
    management: ManagementDependency,
    idempotency: Idempotency,
    body: RotationRequest | None = None,
) -> Response:
    """Replaces a webhook's secret. The old secret stops working immediately, without overlap.

    A disabled webhook stays disabled. Only this response has the secret that the service generates.
    """
    secret = body.secret if body is not None else None

    def rotate() -> Response:
        webhook_with_secret = management.webhooks.rotate(permission, uid, secret)
        return json_response(
            WebhookWithSecretView.showing_secret(management, webhook_with_secret, is_generated=secret is None)
        )

    return idempotency.respond(permission, rotate)


@routes.post(
    "/{uid}/sync",
    operation_id="sync_webhook",
    summary="Sync a webhook with its team secret",
    response_model=WebhookView,
)
def sync_webhook(uid: UidInPath, permission: ManagerAccess, management: ManagementDependency) -> Response:
    """Makes the webhook use its team secret's newest value. The previous value stops working immediately."""
    return response_with_etag(WebhookView.of(management, management.webhooks.sync(permission, uid)))


def _check_precondition(
    uid: str, permission: ManagerAccess, management: ManagementDependency, if_match: IfMatch
) -> None:
    """Raise `Changed` if the client sent `If-Match`, and it does not match the current version."""
    if if_match.is_set:
        if_match.check(WebhookView.of(management, management.webhooks.get(permission, uid)))
