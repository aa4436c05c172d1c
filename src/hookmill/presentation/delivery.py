"""A delivery of the log as JSON and as text, and the attempts that were dropped without an entry."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from msgspec import Meta

from hookmill.domain.delivery import Delivery, DroppedAttempts, Label
from hookmill.domain.ids import delivery_id
from hookmill.domain.moment import iso
from hookmill.domain.run import Run
from hookmill.domain.trace import Trace
from hookmill.presentation.run import RunView
from hookmill.presentation.view import Timestamp, View, plain


@dataclass(frozen=True, slots=True)
class Detail:
    """One detail of a delivery in JSON, as the command line and the dashboard show it."""

    title: str
    text_for: Callable[[Mapping[str, Any]], str | None]
    """Returns the detail's text, or None if the delivery does not have this detail."""
    list_text_for: Callable[[Mapping[str, Any]], str | None] | None = None
    """Returns the text for lists of deliveries. None if lists do not show this detail."""


def _event(delivery: Mapping[str, Any]) -> str | None:
    if delivery["event"] is None:
        return None
    return f"{delivery['event']} ({'signed' if delivery['event_signed'] else 'not signed'})"


def _trace_id(delivery: Mapping[str, Any]) -> str | None:
    if delivery["traceparent"] is None:
        return None
    return Trace.of_sender(delivery["traceparent"]).trace_id.hex()


DETAILS: Final = (
    Detail("Event", _event, list_text_for=lambda delivery: delivery["event"]),
    Detail("Reason", lambda delivery: delivery["reason"]),
    Detail("From", lambda delivery: delivery["client"]),
    Detail("Trace", _trace_id),
)
"""The details that the log shows for a delivery, in display order."""


def details(delivery: Delivery, *, for_list: bool = False) -> list[tuple[str, str]]:
    """The titles and texts of the details that this delivery has. With `for_list`, only those that lists show."""
    return details_in_json(plain(DeliveryView.of(delivery)), for_list=for_list)


def details_in_json(delivery: Mapping[str, Any], *, for_list: bool = False) -> list[tuple[str, str]]:
    """`details` of a delivery in JSON."""
    columns = ((detail.title, detail.list_text_for if for_list else detail.text_for) for detail in DETAILS)
    return [(title, text) for title, text_for in columns if text_for and (text := text_for(delivery)) is not None]


class DeliveryView(View, frozen=True):
    delivery_id: str
    webhook_uid: str
    label: Annotated[str, Meta(extra_json_schema={"enum": [label.wording for label in Label]})]
    size: int
    received_at: Timestamp
    identity_kind: Annotated[str | None, Meta(description="Where the identity comes from.")]
    identity: Annotated[
        str | None,
        Meta(description="The identity that the sender or provider supplied. Null if the identity is the body's hash."),
    ]
    duplicate_of: Annotated[str | None, Meta(description="The id of the Accepted delivery with the same identity.")]
    event: Annotated[str | None, Meta(description="The event type that the sender supplied.")]
    event_signed: Annotated[
        bool | None, Meta(description="Whether the signature covers the event type. Null without an event type.")
    ]
    reason: Annotated[str | None, Meta(description="Why the attempt was refused, for the webhook's owner.")]
    client: Annotated[str | None, Meta(description="The client's address of a refused attempt.")]
    traceparent: Annotated[
        str | None,
        Meta(
            description="The sender's trace that the delivery continues. Null if it has sent none, or without traces."
        ),
    ]

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        return cls(
            delivery_id=delivery_id(delivery.key),
            webhook_uid=delivery.webhook_uid,
            label=delivery.label.wording,
            size=delivery.size,
            received_at=iso(delivery.received_at),
            identity_kind=delivery.identity_kind.public_name if delivery.identity_kind is not None else None,
            identity=delivery.identity,
            duplicate_of=delivery_id(delivery.duplicate_of) if delivery.duplicate_of is not None else None,
            event=delivery.event,
            event_signed=delivery.event_signed,
            reason=delivery.reason,
            client=delivery.client,
            traceparent=delivery.traceparent,
        )


class DeliveryWithRunsView(DeliveryView, frozen=True):
    runs: Annotated[list[RunView], Meta(description="Its newest thousand runs, including replays.")]

    @classmethod
    def with_runs(cls, delivery: Delivery, runs: Sequence[Run]) -> Self:
        return DeliveryView.of(delivery).extended(cls, runs=[RunView.of(run) for run in runs])


class DroppedAttemptsView(View, frozen=True):
    """How many attempts were dropped without an entry in the log, from `since` to just before `until`."""

    webhook_uid: str
    kind: Annotated[str, Meta(examples=["rate_limited"])]
    since: Timestamp
    until: Timestamp
    count: int

    @classmethod
    def of(cls, dropped: DroppedAttempts) -> Self:
        return cls(
            webhook_uid=dropped.webhook_uid,
            kind=dropped.kind,
            since=iso(dropped.since),
            until=iso(dropped.until),
            count=dropped.count,
        )
