"""An alarm as JSON, and its state in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.alarm import AlarmKind, AlarmScope, AlarmState
from hookmill.domain.ids import alarm_id
from hookmill.domain.moment import iso, iso_or_none, utc
from hookmill.presentation.view import Timestamp, View

if TYPE_CHECKING:
    from hookmill.domain.alarm import Alarm


class AlarmView(View, frozen=True):
    """Something that is or was wrong, and what to do."""

    id: Annotated[str, Meta(examples=["alm_0192f0c1aabbccddeeff001122334455"])]
    kind: AlarmKind
    state: Annotated[AlarmState, Meta(description="A snoozed alarm is open, but sends no messages.")]
    scope: Annotated[AlarmScope, Meta(description="What the subject is.")]
    subject: Annotated[str, Meta(description="The name of the webhook or automation, or the part of the installation.")]
    subject_id: Annotated[str, Meta(description="The uid of the webhook, or the id of the automation.")]
    title: Annotated[str, Meta(examples=["Authentication fails"])]
    summary: Annotated[str, Meta(description="What is wrong, as one sentence.")]
    action: Annotated[str, Meta(description="What to do.")]
    raised_at: Timestamp
    resolved_at: Annotated[Timestamp | None, Meta(description="Null while the alarm is open.")]
    snoozed_until: Annotated[Timestamp | None, Meta(description="When its snooze ends or has ended.")]

    @classmethod
    def of(cls, alarm: Alarm, now: int) -> Self:
        """`now` decides whether the alarm is snoozed. It is in µs since 1970."""
        return cls(
            id=alarm_id(alarm.key),
            kind=alarm.kind,
            state=alarm.state(now),
            scope=alarm.rule.scope,
            subject=alarm.subject.name,
            subject_id=alarm.subject.id,
            title=alarm.rule.title,
            summary=alarm.summary,
            action=alarm.rule.action,
            raised_at=iso(alarm.raised_at),
            resolved_at=iso_or_none(alarm.resolved_at),
            snoozed_until=iso_or_none(alarm.snoozed_until),
        )


def alarm_state_text(alarm: Alarm, now: int) -> str:
    """The state for people, such as `snoozed until 2026-11-21 09:12:36 UTC`."""
    state = alarm.state(now)
    if state is AlarmState.SNOOZED and alarm.snoozed_until is not None:
        return f"snoozed until {utc(alarm.snoozed_until)} UTC"
    return state.value
