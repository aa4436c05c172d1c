"""A team secret as JSON. Its value is shown once, and only if it was generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from hookmill.domain.moment import iso, iso_or_none
from hookmill.presentation.view import GeneratedSecret, Timestamp, View

if TYPE_CHECKING:
    from hookmill.management import TeamSecret


class SecretView(View, frozen=True):
    """A team secret without its value, which is never shown again."""

    name: str
    created_at: Timestamp
    changed_at: Timestamp | None
    has_value: bool
    used_by: Annotated[list[str], Meta(description="The names of this factory's webhooks that use it.")]
    used_elsewhere: Annotated[bool, Meta(description="Whether webhooks of other factories use it too.")]

    @classmethod
    def of(cls, secret: TeamSecret) -> Self:
        return cls(
            name=secret.name,
            created_at=iso(secret.created_at),
            changed_at=iso_or_none(secret.changed_at),
            has_value=secret.has_value,
            used_by=list(secret.used_by),
            used_elsewhere=secret.used_elsewhere,
        )


class SecretWithValueView(SecretView, frozen=True):
    """A team secret with its generated value, which is shown only once."""

    value: GeneratedSecret

    @classmethod
    def showing_secret(cls, secret: TeamSecret, generated_value: str | None) -> Self:
        return SecretView.of(secret).extended(cls, value=generated_value)
