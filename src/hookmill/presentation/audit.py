"""An entry of the audit log as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from msgspec import Meta

from hookmill.domain.ids import audit_entry_id
from hookmill.domain.moment import iso
from hookmill.domain.permission import ActorKind, Channel
from hookmill.presentation.view import Timestamp, View

if TYPE_CHECKING:
    from hookmill.domain.audit import AuditEntry


class ActorView(View, frozen=True):
    kind: ActorKind
    id: str
    name: str


class SubjectView(View, frozen=True):
    kind: str
    id: str
    name: str


class AuditEntryView(View, frozen=True):
    """One change: who made it, when, and through which channel."""

    entry_id: Annotated[str, Meta(examples=["aud_0192f0c1aabbccddeeff001122334455"])]
    at: Timestamp
    action: Annotated[str, Meta(examples=["webhook.rotate"])]
    actor: ActorView
    channel: Channel
    client: Annotated[str | None, Meta(description="The address of the client.")]
    factory: Annotated[str | None, Meta(description="Null for an operation on the whole team.")]
    subject: SubjectView
    details: dict[str, Any]

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        return cls(
            entry_id=audit_entry_id(entry.key),
            at=iso(entry.at),
            action=entry.action,
            actor=ActorView(kind=ActorKind(entry.actor_kind), id=entry.actor_id, name=entry.actor_name),
            channel=Channel(entry.channel),
            client=entry.client,
            factory=entry.factory_name,
            subject=SubjectView(kind=entry.subject_kind, id=entry.subject_id, name=entry.subject_name),
            details={name: _detail(name, value) for name, value in entry.details.items()},
        )


def _detail(name: str, value: Any) -> Any:
    """A detail as JSON. A time, whose name ends with `_at`, is stored as µs since 1970."""
    return iso(value) if name.endswith("_at") and isinstance(value, int) else value
