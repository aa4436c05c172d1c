"""/factories/{factory}/deliveries: the log of what came, and what became of it. It is read; nothing here changes it."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Response

from hookmill.domain.delivery import Label
from hookmill.domain.ids import DeliveryKey
from hookmill.domain.run import PAYLOAD_FILE
from hookmill.presentation.delivery import DeliveryView, DeliveryWithRunsView, DroppedAttemptsView
from hookmill.presentation.filter import ExplanationView
from hookmill.presentation.run import ReplayView
from hookmill.web.api.access import Managing, Operations, Viewing
from hookmill.web.api.bodies import Replay
from hookmill.web.api.costly import costly
from hookmill.web.api.fields import LIMIT, Cursor, DeliveryInPath, Limit, Moment, Text
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import Page, cut, key_at, key_cursor, page
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}", route_class=Route, tags=["Delivery log"])

LABELS: Final[Mapping[str, Label]] = {
    **{label.shown: label for label in Label},
    **{label.name.lower(): label for label in Label},
}
"""The contract's words, and a form of them that needs no escaping in an address."""

OfWebhook = Annotated[Text | None, Query(description="Only this webhook's: its uid or name.")]


class DeliveryPage(Page[DeliveryView], frozen=True):
    """Deliveries, newest first."""


class DroppedAttemptsPage(Page[DroppedAttemptsView], frozen=True):
    """Minutes with dropped attempts, newest first."""


@routes.get("/deliveries", operation_id="list_deliveries", summary="List deliveries", response_model=DeliveryPage)
def list_deliveries(
    may: Viewing,
    management: Operations,
    webhook: OfWebhook = None,
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
        Query(description="Only those with this label, in either form."),
    ] = None,
    since: Annotated[Moment | None, Query(description="Only those received at this moment or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only those received before this moment.")] = None,
    identity: Annotated[
        Text | None, Query(description="Only this event: the sender's or provider's id, or the body's SHA-256.")
    ] = None,
    event: Annotated[Text | None, Query(description="Only those that report an event of this type.")] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """The log, newest first. Attempts without an entry are counted under dropped-attempts."""
    before = key_at(cursor)
    found = management.log.newest(
        may,
        webhook=webhook,
        label=LABELS[label] if label is not None else None,
        since=since,
        until=until,
        identity=identity,
        event=event,
        before=DeliveryKey(before) if before is not None else None,
        limit=limit + 1,
    )
    items, further = cut(found, lambda delivery: key_cursor(delivery.key), limit=limit)
    return shown(DeliveryPage(items=[DeliveryView.of(delivery) for delivery in items], next_cursor=further))


@routes.get(
    "/deliveries/{delivery}",
    operation_id="show_delivery",
    summary="Show a delivery",
    response_model=DeliveryWithRunsView,
)
def show_delivery(delivery: DeliveryInPath, may: Viewing, management: Operations) -> Response:
    """One delivery, and the runs that it started."""
    found = management.log.get(may, delivery)
    return shown(DeliveryWithRunsView.with_runs(found, management.runs.of_delivery(may, delivery)))


@routes.get(
    "/deliveries/{delivery}/payload",
    operation_id="download_payload",
    summary="Download a delivery's body",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {}}}, "description": "The body, byte for byte."}},
)
def download_payload(delivery: DeliveryInPath, may: Viewing, management: Operations) -> Response:
    """The body, exactly as it was received. It is kept for Accepted deliveries only, and may be anybody's words."""
    # Shown in a page of ours, a body of somebody else's could act there.
    headers = {
        "Content-Disposition": f'attachment; filename="{PAYLOAD_FILE}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(management.log.payload(may, delivery), media_type="application/json", headers=headers)


@routes.get(
    "/deliveries/{delivery}/explanation",
    operation_id="explain_delivery",
    summary="What automations make of a delivery",
    response_model=ExplanationView,
)
@costly
def explain_delivery(delivery: DeliveryInPath, may: Viewing, management: Operations) -> Response:
    """Every automation as it is now: whether the delivery triggers it, and why, condition by condition."""
    return shown(ExplanationView.of(management.filters.explain(may, delivery)))


@routes.post(
    "/deliveries/{delivery}/replay",
    operation_id="replay_delivery",
    summary="Start runs of a delivery again",
    response_model=ReplayView,
    status_code=201,
)
@costly
def replay_delivery(
    delivery: DeliveryInPath, may: Managing, management: Operations, once: OnlyOnce, given: Replay | None = None
) -> Response:
    """New runs, of the automations as they are now. The log stays as it is."""
    automation = given.automation if given is not None else None

    def make() -> Response:
        return shown(ReplayView.of(management.log.replay(may, delivery, automation)), 201)

    return once.answer(may, make)


@routes.get(
    "/dropped-attempts",
    operation_id="list_dropped_attempts",
    summary="Count attempts without an entry",
    response_model=DroppedAttemptsPage,
)
def list_dropped_attempts(
    may: Viewing, management: Operations, webhook: OfWebhook = None, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Attempts without an entry in the log, by minute and cause: over a rate limit, or at a disabled webhook."""
    items, further = page(
        management.log.dropped_attempts(may, webhook),
        lambda one: (one.since, one.kind, one.webhook_uid),
        limit=limit,
        cursor=cursor,
        newest_first=True,
    )
    return shown(DroppedAttemptsPage(items=[DroppedAttemptsView.of(count) for count in items], next_cursor=further))
