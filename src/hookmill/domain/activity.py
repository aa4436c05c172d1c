"""A webhook's activity: counts of its attempts in a time range, and its newest delivery."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.delivery import Label
from hookmill.domain.ids import DeliveryKey

RATE_LIMITED: Final = "rate_limited"
FAILED_AUTHENTICATIONS: Final = "failed_authentications"
NOT_FOUND: Final = "not_found"
"""The kinds of dropped attempts: authenticated ones over the rate limit of deliveries, unauthenticated ones over the
rate limit of failed authentications, and attempts at a disabled webhook."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of logged attempts by label, and of dropped attempts (`refused`) by kind."""

    labels: Mapping[Label, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    def of(self, label: Label) -> int:
        return self.labels.get(label, 0)

    def refused_for(self, kind: str) -> int:
        return self.refused.get(kind, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest row of a webhook's log. `received_at` is in µs since 1970."""

    key: DeliveryKey
    label: Label
    received_at: int
    reason: str | None
