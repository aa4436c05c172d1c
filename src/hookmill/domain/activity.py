"""A webhook's activity: counts of its attempts in a time range, and its newest attempt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.delivery import Label
from hookmill.domain.ids import DeliveryKey

RATE_LIMITED: Final = "rate_limited"
FAILED_AUTHENTICATIONS: Final = "failed_authentications"
NOT_FOUND: Final = "not_found"
"""These three constants are the kinds of dropped attempts: authenticated attempts over the rate limit of deliveries,
unauthenticated attempts over the rate limit of failed authentications, and attempts at a webhook that is disabled or
deleted."""
RATE_LIMIT_ADVICE: Final = (
    "To accept more, raise the setting deliveries_per_minute. What was dropped is lost unless the sender retries, "
    "which GitHub does not."
)


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """The number of logged attempts by label, and of dropped attempts by kind."""

    logged_by_label: Mapping[Label, int] = field(default_factory=dict)
    dropped_by_kind: Mapping[str, int] = field(default_factory=dict)

    def logged(self, label: Label) -> int:
        return self.logged_by_label.get(label, 0)

    def dropped(self, kind: str) -> int:
        return self.dropped_by_kind.get(kind, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestAttempt:
    """The newest row of a webhook's log. `received_at` is in µs since 1970."""

    key: DeliveryKey
    label: Label
    received_at: int
    reason: str | None
    """The reason of a rejection."""
