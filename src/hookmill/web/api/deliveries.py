"""/factories/{factory}/deliveries: the delivery log. It is read-only; a replay starts runs and leaves it unchanged."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic import WithJsonSchema

from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.ids import DeliveryKey
from hookmill.domain.run import PAYLOAD_FILE
from hookmill.presentation.delivery import DeliveryView, DeliveryWithRunsView, DroppedAttemptsView
from hookmill.presentation.filter import ExplanationView
from hookmill.presentation.run import ReplayView
from hookmill.web.api.access import ManagementDependency, ManagerAccess, ViewerAccess
from hookmill.web.api.bodies import ReplayRequest
from hookmill.web.api.expensive import expensive
from hookmill.web.api.fields import PAGE_SIZE, Cursor, DeliveryInPath, Limit, Moment, Text
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, cut_page, key_cursor, key_from, paginate
from hookmill.web.api.problems import invalid_parameter_error
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}", route_class=Route, tags=["Delivery log"])

LABELS_BY_NAME: Final[Mapping[str, Label]] = {
    **{label.wording: label for label in Label},
    **{label.name.lower(): label for label in Label},
}
"""Each label by its wording in responses, and by a name that needs no escaping in a URL."""

WebhookParameter = Annotated[Text | None, Query(description="Only deliveries to this webhook, by uid or name.")]


class DeliveryPage(ResultPage[DeliveryView], frozen=True):
    """Deliveries, newest first."""


class DroppedAttemptsPage(ResultPage[DroppedAttemptsView], frozen=True):
    """Counts of dropped attempts by minute, newest first."""


@routes.get("/deliveries", operation_id="list_deliveries", summary="List deliveries", response_model=DeliveryPage)
def list_deliveries(
    permission: ViewerAccess,
    management: ManagementDependency,
    webhook: WebhookParameter = None,
    label: Annotated[
        Literal[
            "Accepted",
            "Duplicate",
            "Rejected (auth)",
            "Rejected (invalid JSON)",
            "Rejected (too large)",
            "accepted",
            "duplicate",
            "rejected_auth",
            "rejected_invalid_json",
            "rejected_too_large",
        ]
        | None,
        # Generators of clients turn both forms into the same name, so the document has only the one of responses.
        Query(description="Only deliveries with this label. `accepted`, `rejected_auth` and so on are other names."),
        WithJsonSchema({"anyOf": [{"type": "string", "enum": [label.wording for label in Label]}, {"type": "null"}]}),
    ] = None,
    since: Annotated[Moment | None, Query(description="Only deliveries received at this time or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only deliveries received before this time.")] = None,
    identity: Annotated[
        Text | None,
        Query(description="Only deliveries of this event: the sender's or provider's id, or the body's SHA-256."),
    ] = None,
    event: Annotated[Text | None, Query(description="Only deliveries with this event type.")] = None,
    oldest_first: Annotated[
        bool, Query(description="List the oldest first, such as for an export. Of the conditions, only `webhook` fits.")
    ] = False,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> Response:
    """Lists the recorded deliveries, newest first. Dropped attempts have a list of their own."""
    before = key_from(cursor)
    if oldest_first:
        if any(condition is not None for condition in (label, since, until, identity, event)):
            raise invalid_parameter_error("oldest_first", "Of the conditions, only webhook fits with oldest_first.")
        after = DeliveryKey(before) if before is not None else None
        return _page(management.log.oldest(permission, webhook=webhook, after=after, limit=limit + 1), limit)
    deliveries = management.log.newest(
        permission,
        webhook=webhook,
        label=LABELS_BY_NAME[label] if label is not None else None,
        since=since,
        until=until,
        identity=identity,
        event=event,
        before=DeliveryKey(before) if before is not None else None,
        limit=limit + 1,
    )
    return _page(deliveries, limit)


def _page(deliveries: Sequence[Delivery], limit: int) -> Response:
    items, next_cursor = cut_page(deliveries, lambda delivery: key_cursor(delivery.key), limit=limit)
    return json_response(DeliveryPage(items=[DeliveryView.of(delivery) for delivery in items], next_cursor=next_cursor))


@routes.get(
    "/deliveries/{delivery}",
    operation_id="show_delivery",
    summary="Show a delivery",
    response_model=DeliveryWithRunsView,
)
def show_delivery(delivery: DeliveryInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Returns a delivery and its newest thousand runs, including replays."""
    log_entry = management.log.get(permission, delivery)
    return json_response(DeliveryWithRunsView.with_runs(log_entry, management.runs.of_delivery(permission, delivery)))


@routes.get(
    "/deliveries/{delivery}/payload",
    operation_id="download_payload",
    summary="Download a delivery's payload",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}, "description": "The payload as received."}},
)
def download_payload(delivery: DeliveryInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Returns the body exactly as received. Only Accepted deliveries have one. Treat its content as untrusted."""
    # A browser must not render a sender's content under the service's origin.
    headers = {
        "Content-Disposition": f'attachment; filename="{PAYLOAD_FILE}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(management.log.payload(permission, delivery), media_type="application/json", headers=headers)


@routes.get(
    "/deliveries/{delivery}/explanation",
    operation_id="explain_delivery",
    summary="Explain a delivery",
    response_model=ExplanationView,
)
@expensive
def explain_delivery(delivery: DeliveryInPath, permission: ViewerAccess, management: ManagementDependency) -> Response:
    """Evaluates the factory's current automations on a delivery: whether it triggers each one, and every condition."""
    return json_response(ExplanationView.of(management.filters.explain(permission, delivery)))


@routes.post(
    "/deliveries/{delivery}/replay",
    operation_id="replay_delivery",
    summary="Replay a delivery",
    response_model=ReplayView,
    status_code=201,
)
@expensive
def replay_delivery(
    delivery: DeliveryInPath,
    permission: ManagerAccess,
    management: ManagementDependency,
    idempotency: Idempotency,
    body: ReplayRequest | None = None,
) -> Response:
    """Starts new runs of the current automations for a delivery. The log does not change."""
    automation = body.automation if body is not None else None

    def replay() -> Response:
        return json_response(ReplayView.of(management.log.replay(permission, delivery, automation)), 201)

    return idempotency.respond(permission, replay)


@routes.get(
    "/dropped-attempts",
    operation_id="list_dropped_attempts",
    summary="List dropped attempts",
    response_model=DroppedAttemptsPage,
)
def list_dropped_attempts(
    permission: ViewerAccess,
    management: ManagementDependency,
    webhook: WebhookParameter = None,
    limit: Limit = PAGE_SIZE,
    cursor: Cursor = None,
) -> Response:
    """Lists the newest thousand counts of dropped attempts, by minute and kind. A dropped attempt has no log entry.

    The kinds are `rate_limited`, `failed_authentications` (over the limit of failed authentications) and `not_found`
    (the webhook was disabled or deleted).
    """
    items, next_cursor = paginate(
        management.log.dropped_attempts(permission, webhook),
        lambda dropped: (dropped.since, dropped.kind, dropped.webhook_uid),
        limit=limit,
        cursor=cursor,
        newest_first=True,
    )
    views = [DroppedAttemptsView.of(dropped) for dropped in items]
    return json_response(DroppedAttemptsPage(items=views, next_cursor=next_cursor))
