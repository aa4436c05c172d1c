"""Retention of the delivery log: which rows it keeps, and the removal of others.

Rows are removed in the order of their keys, not webhook by webhook. Keys are ordered by time, so these rows and their
payloads are next to each other, and removing them writes few pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.delivery import Label
from hookmill.domain.ids import time_ordered_key
from hookmill.domain.limits import LOG_DAYS_KEPT, LOG_ROWS_KEPT
from hookmill.store.database import Database, Row, Transaction
from hookmill.store.runs.removal import remove_runs_and_payloads

DAY_US: Final = 86_400_000_000
ROWS_PER_SCAN: Final = 1_000
"""The rows that one transaction reads."""
WEBHOOKS_PER_READ: Final = 100
"""On SQLite, no checkpoint can complete during a read transaction, so each reads few webhooks."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The rows of one webhook that the log keeps: those since these times, in µs since 1970.

    The newest `LOG_ROWS_KEPT` Accepted rows are counted separately, so that rejections can't displace payloads.
    """

    since: int
    accepted_since: int

    def includes(self, row: Row) -> bool:
        since = self.accepted_since if row["label"] == Label.ACCEPTED else self.since
        return int(row["received_at"]) >= since


def removable(database: Database, now: int, *, at_most: int) -> Iterator[Sequence[bytes]]:
    """The keys of the rows that the log does not keep, oldest first, in batches of up to `at_most`.

    The log keeps rows younger than `LOG_DAYS_KEPT`, each webhook's newest `LOG_ROWS_KEPT` rows, and deliveries with an
    unfinished run. Of a webhook that was deleted `LOG_DAYS_KEPT` ago, it keeps only the last of these.

    `now` is in microseconds since 1970. A batch is empty if a part of the log has no removable rows. Between two
    batches, no transaction is open.
    """
    cutoff = max(now - LOG_DAYS_KEPT * DAY_US, 0)
    kept, last_key = _webhooks_to_prune(database, cutoff)
    end_key = time_ordered_key(cutoff, bytes(8))
    while last_key < end_key:
        with database.read() as tx:
            rows = tx.all(
                """
                SELECT id, webhook_no, received_at, label, EXISTS (
                    SELECT 1 FROM runs r WHERE r.delivery_id = d.id AND r.finished_at IS NULL
                ) AS has_unfinished_run
                FROM deliveries d
                WHERE id > :last AND id < :end
                ORDER BY id
                LIMIT :at_most
                """,
                last=last_key,
                end=end_key,
                at_most=ROWS_PER_SCAN,
            )
        keys = [
            row["id"]
            for row in rows
            if not row["has_unfinished_run"] and row["webhook_no"] in kept and not kept[row["webhook_no"]].includes(row)
        ]
        if not keys:
            yield []
        for start in range(0, len(keys), at_most):
            yield keys[start : start + at_most]
        last_key = rows[-1]["id"] if len(rows) == ROWS_PER_SCAN else end_key


def keys_of_webhook(tx: Transaction, webhook_no: int, *, at_most: int) -> Sequence[bytes]:
    """The keys of up to `at_most` rows of one webhook."""
    return tx.scalars(
        "SELECT id FROM deliveries WHERE webhook_no = :webhook LIMIT :at_most", webhook=webhook_no, at_most=at_most
    )


def remove(tx: Transaction, keys: Sequence[bytes]) -> int:
    """Remove these rows with their payloads and runs, and return how many were removed.

    A row stays if it has got an unfinished run, or if a replay is adding one.
    """
    if not tx.on_sqlite:
        keys = _locked(tx, keys)
    if not keys:
        return 0
    # The runs are checked after the rows are locked, because a replay may have added one before.
    removed = tx.all(
        """
        DELETE FROM deliveries
        WHERE id IN :keys
          AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.delivery_id = deliveries.id AND r.finished_at IS NULL)
        RETURNING id, label
        """,
        keys=list(keys),
    )
    remove_runs_and_payloads(tx, [row["id"] for row in removed if row["label"] == Label.ACCEPTED])
    return len(removed)


def _locked(tx: Transaction, keys: Sequence[bytes]) -> Sequence[bytes]:
    """Those of the keys whose rows this transaction could lock. A replay keeps its delivery's row locked."""
    return tx.scalars("SELECT id FROM deliveries WHERE id IN :keys FOR UPDATE SKIP LOCKED", keys=list(keys))


def _webhooks_to_prune(database: Database, cutoff: int) -> tuple[dict[int, _Kept], bytes]:
    """What the log keeps of each webhook that has rows to remove, by the webhook's number, and a key before the first
    of these rows."""
    with database.read() as tx:
        webhooks = tx.all(
            """
            SELECT no, deleted_at, oldest
            FROM (
                SELECT w.no, w.deleted_at,
                       (SELECT MIN(d.received_at) FROM deliveries d WHERE d.webhook_no = w.no) AS oldest
                FROM webhooks w
            ) AS webhooks_with_oldest
            WHERE oldest < :cutoff
            """,
            cutoff=cutoff,
        )
    kept: dict[int, _Kept] = {}
    first = cutoff
    for start in range(0, len(webhooks), WEBHOOKS_PER_READ):
        with database.read() as tx:
            for webhook in webhooks[start : start + WEBHOOKS_PER_READ]:
                if webhook["deleted_at"] is not None and webhook["deleted_at"] < cutoff:
                    kept[webhook["no"]] = _Kept(cutoff, cutoff)
                    first = min(first, webhook["oldest"])
                    continue
                since = min(_oldest_kept_at(tx, webhook["no"], only_accepted=False), cutoff)
                if webhook["oldest"] >= since:
                    continue
                accepted_since = min(_oldest_kept_at(tx, webhook["no"], only_accepted=True), cutoff)
                kept[webhook["no"]] = _Kept(since, accepted_since)
                first = min(first, webhook["oldest"])
    return kept, time_ordered_key(max(first, 0), bytes(8))


def _oldest_kept_at(tx: Transaction, webhook_no: int, *, only_accepted: bool) -> int:
    """When the oldest of the newest `LOG_ROWS_KEPT` rows was received, in µs; 0 if there are fewer rows."""
    received_at = tx.scalar(
        f"""
        SELECT received_at
        FROM deliveries
        WHERE webhook_no = :webhook {"AND label = :accepted" if only_accepted else ""}
        ORDER BY received_at DESC
        LIMIT 1 OFFSET :newer_rows
        """,
        webhook=webhook_no,
        newer_rows=LOG_ROWS_KEPT - 1,
        accepted=int(Label.ACCEPTED),
    )
    return received_at or 0
