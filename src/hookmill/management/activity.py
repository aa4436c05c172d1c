"""Counts of the delivery attempts of the last 24 hours, by webhook and hour, for the dashboard's overview."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.activity import AttemptCounts, NewestAttempt
from hookmill.domain.delivery import Label
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.permission import MayView
from hookmill.store import activity
from hookmill.store.database import Transaction

HOURS: Final = 24
HOUR_US: Final = 3_600_000_000
_SETTLED_AFTER_US: Final = 300_000_000
"""A delivery's row is committed after its `received_at`. This long after an hour ends, its counts no longer change."""
DUPLICATES_CHECKED_MAX: Final = 50
"""How many of the newest duplicates are checked: did they have a delivery id?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One hour of a webhook. The newest of the 24 hours is the current one, so it is incomplete."""

    start: int
    """In µs since 1970."""
    counts: AttemptCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookActivity:
    """One webhook's last 24 hours, and its newest logged attempt of any label, even if it is older."""

    hours: tuple[Hour, ...]
    """Whole hours in UTC, oldest first. The last one is the current hour."""
    newest: NewestAttempt | None
    newest_failed_authentication: NewestAttempt | None
    """None if there was none in these hours."""
    duplicates_by_body: int
    """How many of the checked duplicates had no delivery id, and were detected by body hash only."""
    duplicates_checked: int
    """How many of the newest duplicates in these hours were checked, at most `DUPLICATES_CHECKED_MAX`."""

    def count(self, label: Label) -> int:
        return sum(hour.counts.logged(label) for hour in self.hours)

    def dropped_count(self, kind: str) -> int:
        return sum(hour.counts.dropped(kind) for hour in self.hours)


class ActivityReader:
    """Reads the activity of the last 24 hours, and caches the counts of past hours, which no longer change."""

    def __init__(self) -> None:
        self._settled_counts: dict[tuple[FactoryId, int], Mapping[WebhookUid, AttemptCounts]] = {}
        """For each factory and start of a past hour, in µs since 1970: the counts of that hour, by webhook."""
        self._lock = threading.Lock()

    def last_day_by_webhook(self, tx: Transaction, may: MayView, now: int) -> Mapping[WebhookUid, WebhookActivity]:
        """The activity of the factory's webhooks that are not deleted. `now` is in µs since 1970."""
        hours = [(start, self._counts_by_webhook(tx, may.factory.id, start, now)) for start in _hour_starts(now)]
        newest = activity.newest(tx, may.factory.id)
        # `activity.counts` has every webhook that is not deleted. A cached hour lacks newer webhooks, but the current
        # hour is never cached.
        live_webhooks = hours[-1][1]
        return {
            uid: _webhook_activity(
                tx,
                uid,
                tuple(
                    Hour(start=start, counts=counts_by_webhook.get(uid, AttemptCounts()))
                    for start, counts_by_webhook in hours
                ),
                newest.get(uid),
            )
            for uid in live_webhooks
        }

    def _counts_by_webhook(
        self, tx: Transaction, factory: FactoryId, start: int, now: int
    ) -> Mapping[WebhookUid, AttemptCounts]:
        settled_counts = self._settled_counts.get((factory, start))
        if settled_counts is not None:
            return settled_counts
        counts_by_webhook = activity.counts(tx, factory, start, start + HOUR_US)
        if start + HOUR_US + _SETTLED_AFTER_US <= now:
            with self._lock:
                expired = [key for key in self._settled_counts if key[1] < start - HOURS * HOUR_US]
                for key in expired:
                    del self._settled_counts[key]
                self._settled_counts[factory, start] = counts_by_webhook
        return counts_by_webhook


def _hour_starts(now: int) -> Sequence[int]:
    """The starts of the last 24 hours in µs, oldest first. The last one is the start of the current hour."""
    current_hour = now - now % HOUR_US
    return range(current_hour - (HOURS - 1) * HOUR_US, current_hour + 1, HOUR_US)


def _webhook_activity(
    tx: Transaction, uid: WebhookUid, hours: tuple[Hour, ...], newest: NewestAttempt | None
) -> WebhookActivity:
    def has_label(label: Label) -> bool:
        return any(hour.counts.logged(label) for hour in hours)

    newest_failed = activity.newest_with_label(tx, uid, Label.REJECTED_AUTH) if has_label(Label.REJECTED_AUTH) else None
    by_body_count, checked_count = 0, 0
    if has_label(Label.DUPLICATE):
        by_body_count, checked_count = activity.count_duplicates_by_body(
            tx, uid, hours[0].start, DUPLICATES_CHECKED_MAX
        )
    return WebhookActivity(
        hours=hours,
        newest=newest,
        newest_failed_authentication=newest_failed,
        duplicates_by_body=by_body_count,
        duplicates_checked=checked_count,
    )
