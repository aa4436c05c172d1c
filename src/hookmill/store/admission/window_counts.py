"""Counts log rows by webhook, rate limit and period, for rate limits that are too high to count the rows themselves.

The sliding window of a rate limit of 100,000 a minute holds 100,000 rows, which every transaction would count again.
The sum of a few counts may cover one period more than the window, so it can be too high. If even this sum permits a
plan, no row is counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Transaction

ROWS_COUNTED_MAX: Final = 1_000
"""Up to this limit in attempts per minute, rows are counted, and no counts are kept."""
PERIOD_US: Final = 4_000_000
_SLOTS: Final = 40
"""The periods for which a webhook has counts: 160 s, more than two windows. A new period replaces the oldest."""
COMPLETE_AFTER_SECONDS: Final = WINDOW_SECONDS + PERIOD_US / 1_000_000
"""A process that keeps counts can rely on them after this time. Before, the log may contain rows without a count: a
process whose configured limit is at most `ROWS_COUNTED_MAX` has written them."""

Window = tuple[int, int, int, int, int]
"""The webhook's number, the number of the `RateLimit`, the stored rows that are allowed, and the time range (exclusive,
inclusive)."""

# A count of a later period means that the clock was set back, and that counts of this window may have been replaced.
_MAY_EXCEED: Final = RowStatement(
    f"""
    WITH windows (webhook_no, rate_limit, stored_rows_allowed, since, until) AS ({{rows}})
    SELECT windows.webhook_no, windows.rate_limit
    FROM windows
    WHERE (
        SELECT COALESCE(SUM(c.count), 0)
        FROM window_counts c
        WHERE c.webhook_no = windows.webhook_no AND c.rate_limit = windows.rate_limit
          AND c.period >= windows.since / {PERIOD_US}
    ) > windows.stored_rows_allowed
    OR EXISTS (
        SELECT 1
        FROM window_counts c
        WHERE c.webhook_no = windows.webhook_no AND c.rate_limit = windows.rate_limit
          AND c.period > windows.until / {PERIOD_US}
    )
    """,
    ("int", "smallint", "int", "bigint", "bigint"),
)

_ADD: Final = RowStatement(
    """
    INSERT INTO window_counts (webhook_no, rate_limit, slot, period, count)
    {rows}
    ON CONFLICT (webhook_no, rate_limit, slot) DO UPDATE
    SET period = excluded.period,
        count = excluded.count + CASE WHEN window_counts.period = excluded.period THEN window_counts.count ELSE 0 END
    WHERE window_counts.period <= excluded.period
    """,
    ("int", "smallint", "smallint", "bigint", "int"),
)


def windows_to_count(tx: Transaction, windows: Sequence[Window]) -> list[Window]:
    """The windows whose rows must be counted: according to the counts, they may exceed their rate limit."""
    may_exceed = {(row[0], row[1]) for row in _MAY_EXCEED.select(tx, windows)} if windows else set()
    return [window for window in windows if window[:2] in may_exceed]


def remove_of_webhook(tx: Transaction, webhook_no: int) -> None:
    tx.run("DELETE FROM window_counts WHERE webhook_no = :webhook", webhook=webhook_no)


def add(tx: Transaction, rows: Iterable[tuple[int, int, int]]) -> None:
    """Count new log rows: the webhook's number, the number of the `RateLimit`, and the time in µs since 1970."""
    counts: dict[tuple[int, int, int], int] = defaultdict(int)
    for webhook_no, rate_limit, received_at in rows:
        counts[webhook_no, rate_limit, received_at // PERIOD_US] += 1
    # A statement can't update a slot twice. If two periods have the same slot, the clock was changed, and the later one
    # stays. Until the clock has reached it, `windows_to_count` returns every window of the webhook.
    by_slot = {
        (webhook_no, rate_limit, period % _SLOTS): (webhook_no, rate_limit, period % _SLOTS, period, count)
        for (webhook_no, rate_limit, period), count in sorted(counts.items())
    }
    if by_slot:
        _ADD.execute(tx, list(by_slot.values()))
