"""What the last day was like, webhook by webhook and hour by hour, and what of it an owner should know."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.activity import Counts, Newest
from hookmill.domain.delivery import Label
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.permission import MayView
from hookmill.store import activity
from hookmill.store.database import Transaction

HOURS: Final = 24
HOUR_US: Final = 3_600_000_000
_SETTLED_AFTER_US: Final = 300_000_000
"""A delivery is written a moment after the time that its row says. This long after an hour, its numbers stay."""
DUPLICATES_LOOKED_AT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One hour of a webhook's day. The last one has only begun."""

    start: int
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookActivity:
    """One webhook's last day, and its last delivery, whenever that was."""

    hours: tuple[Hour, ...]
    """Whole hours in UTC, the oldest first, the present one last."""
    newest: Newest | None
    newest_failed_authentication: Newest | None
    """None where there was none in these hours."""
    duplicates_by_body: int
    """Of the newest Duplicates in these hours, those that had no event id: their body was all that told them."""
    duplicates_looked_at: int

    def count(self, label: Label) -> int:
        return sum(hour.counts.of(label) for hour in self.hours)

    def refused(self, kind: str) -> int:
        return sum(hour.counts.refused_for(kind) for hour in self.hours)

    @property
    def deliveries(self) -> int:
        return sum(self.count(label) for label in Label)


class Days:
    """Counts days. Hours that are over are counted once: nothing comes to them any more."""

    def __init__(self) -> None:
        self._settled: dict[tuple[FactoryId, int], Mapping[WebhookUid, Counts]] = {}
        self._lock = threading.Lock()

    def day(self, tx: Transaction, may: MayView, now: int) -> Mapping[WebhookUid, WebhookActivity]:
        """The factory's live webhooks."""
        starts = _starts(now)
        hours = [(start, self._hour(tx, may.factory.id, start, now)) for start in starts]
        newest = activity.newest(tx, may.factory.id)
        # The present hour is counted anew each time, so it knows every live webhook.
        live = hours[-1][1]
        return {
            uid: _of_webhook(
                tx,
                uid,
                tuple(Hour(start=start, counts=counted.get(uid, Counts())) for start, counted in hours),
                newest.get(uid),
            )
            for uid in live
        }

    def _hour(self, tx: Transaction, factory: FactoryId, start: int, now: int) -> Mapping[WebhookUid, Counts]:
        known = self._settled.get((factory, start))
        if known is not None:
            return known
        counted = activity.counts(tx, factory, start, start + HOUR_US)
        if start + HOUR_US + _SETTLED_AFTER_US <= now:
            with self._lock:
                gone = [key for key in self._settled if key[1] < start - HOURS * HOUR_US]
                for key in gone:
                    del self._settled[key]
                self._settled[factory, start] = counted
        return counted


def _starts(now: int) -> Sequence[int]:
    present = now - now % HOUR_US
    return range(present - (HOURS - 1) * HOUR_US, present + 1, HOUR_US)


def _of_webhook(tx: Transaction, uid: WebhookUid, hours: tuple[Hour, ...], newest: Newest | None) -> WebhookActivity:
    def came(label: Label) -> bool:
        return any(hour.counts.of(label) for hour in hours)

    failed = activity.newest_of(tx, uid, Label.REJECTED_AUTH) if came(Label.REJECTED_AUTH) else None
    by_body, looked_at = 0, 0
    if came(Label.DUPLICATE):
        by_body, looked_at = activity.duplicates_by_body(tx, uid, hours[0].start, DUPLICATES_LOOKED_AT)
    return WebhookActivity(
        hours=hours,
        newest=newest,
        newest_failed_authentication=failed,
        duplicates_by_body=by_body,
        duplicates_looked_at=looked_at,
    )
