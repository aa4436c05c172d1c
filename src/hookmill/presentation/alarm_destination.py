"""A destination of alarms as JSON. Its URL is never shown, and its signing secret only when it is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.alarm import AlarmKind
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.moment import iso, iso_or_none
from hookmill.presentation.view import GeneratedSecret, Timestamp, View

if TYPE_CHECKING:
    from hookmill.domain.alarm_destination import AlarmDestination
    from hookmill.management import DestinationTest, DestinationWithSecret


class AlarmDestinationView(View, frozen=True):
    """A destination of alarms without its secrets."""

    destination_id: str
    kind: DestinationKind
    target: Annotated[str, Meta(description="The e-mail address, or the URL without its path, which may be secret.")]
    factory: Annotated[str | None, Meta(description="Null for a destination of the installation.")]
    alarm_kinds: Annotated[list[AlarmKind], Meta(description="The kinds of alarms that it gets. Empty: all.")]
    includes_factories: Annotated[
        bool, Meta(description="Whether a destination of the installation also gets the alarms of factories.")
    ]
    created_at: Timestamp
    last_sent_at: Annotated[Timestamp | None, Meta(description="When it last accepted a message, except for tests.")]
    waiting: Annotated[int, Meta(description="Messages that wait to be sent, or to be sent again.")]
    failed: Annotated[int, Meta(description="Messages of the last 30 days that were given up.")]
    last_problem: Annotated[
        str | None, Meta(description="The latest error of the newest undelivered message (waiting or given up).")
    ]

    @classmethod
    def of(cls, destination: AlarmDestination) -> Self:
        return cls(
            destination_id=destination.id,
            kind=destination.kind,
            target=destination.shown_target,
            factory=destination.factory_name,
            alarm_kinds=list(destination.alarm_kinds),
            includes_factories=destination.includes_factories,
            created_at=iso(destination.created_at),
            last_sent_at=iso_or_none(destination.last_sent_at),
            waiting=destination.waiting,
            failed=destination.failed,
            last_problem=destination.last_problem,
        )


class AlarmDestinationWithSecretView(AlarmDestinationView, frozen=True):
    """A new destination. The signing secret of a webhook is shown only once."""

    signing_secret: GeneratedSecret

    @classmethod
    def showing_secret(cls, created: DestinationWithSecret) -> Self:
        secret = created.signing_secret
        return AlarmDestinationView.of(created.destination).extended(
            cls, signing_secret=secret.reveal() if secret is not None else None
        )


class DestinationTestView(View, frozen=True):
    """The result of a test."""

    destination_id: str
    sent: Annotated[bool, Meta(description="Whether the destination accepted the test.")]
    problem: Annotated[str | None, Meta(description="Why it did not accept the test.")]

    @classmethod
    def of(cls, test: DestinationTest) -> Self:
        return cls(destination_id=test.destination.id, sent=test.problem is None, problem=test.problem)
