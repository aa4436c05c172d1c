"""What came to a webhook in some time, in numbers, and its last delivery."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.delivery import Label
from hookmill.domain.ids import DeliveryKey

RATE_LIMITED: Final = "rate_limited"
FAILED_AUTHENTICATIONS: Final = "failed_authentications"
NOT_FOUND: Final = "not_found"
"""The kinds of dropped attempts: authentic ones over the rate limit, unauthentic ones over theirs, and attempts at a
disabled webhook."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Attempts by label, and those that have no row by what they were refused for."""

    labels: Mapping[Label, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    def of(self, label: Label) -> int:
        return self.labels.get(label, 0)

    def refused_for(self, kind: str) -> int:
        return self.refused.get(kind, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The last row of a webhook's log. `received_at` is in µs since 1970."""

    key: DeliveryKey
    label: Label
    received_at: int
    reason: str | None
