"""A team secret as JSON. Its value is shown once, and only if the service generated it."""

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
    changed_at: Annotated[Timestamp | None, Meta(description="When its newest value was stored. Null without a value.")]
    has_value: Annotated[bool, Meta(description="False until the provider's secret is supplied.")]
    used_by: Annotated[list[str], Meta(description="The names of this factory's webhooks that use it.")]
    used_elsewhere: Annotated[bool, Meta(description="Whether webhooks of other factories use it too.")]
    for_runs: Annotated[
        bool, Meta(description="Whether runs of the factory that created it may get it. No webhook uses it.")
    ]
    created_here: Annotated[bool, Meta(description="Whether this factory created it.")]
    used_by_automations: Annotated[
        list[str], Meta(description="The names of this factory's automations whose runs get it.")
    ]

    @classmethod
    def of(cls, secret: TeamSecret) -> Self:
        return cls(
            name=secret.name,
            created_at=iso(secret.created_at),
            changed_at=iso_or_none(secret.changed_at),
            has_value=secret.has_value,
            used_by=list(secret.used_by),
            used_elsewhere=secret.used_elsewhere,
            for_runs=secret.for_runs,
            created_here=secret.created_here,
            used_by_automations=list(secret.used_by_automations),
        )


class SecretWithValueView(SecretView, frozen=True):
    """A team secret, with its new value if the service generated it. The value is shown only once."""

    value: GeneratedSecret

    @classmethod
    def showing_secret(cls, secret: TeamSecret, generated_value: str | None) -> Self:
        return SecretView.of(secret).extended(cls, value=generated_value)
