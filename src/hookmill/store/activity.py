"""Counts the recent attempts of a factory's webhooks.

Logged attempts are counted in two indexes, without reading rows: one of all attempts, and one of attempts with a label
other than Accepted.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hookmill.domain.activity import FAILED_AUTHENTICATIONS, NOT_FOUND, RATE_LIMITED, AttemptCounts, NewestAttempt
from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.store.database import Row, Transaction, from_row

_OTHER_LABELS: Final = tuple(label for label in Label if label is not Label.ACCEPTED)
_DROPPED_KINDS: Final = (RATE_LIMITED, FAILED_AUTHENTICATIONS, NOT_FOUND)


def counts(tx: Transaction, factory: FactoryId, since: int, until: int) -> Mapping[WebhookUid, AttemptCounts]:
    """The attempts of each webhook that is not deleted, from `since` until before `until`, in µs since 1970."""
    # `label <> 1` (not Accepted) repeats the condition of the partial index, and labels are SQL literals. Otherwise,
    # the planner can't use this index.
    label_columns = ", ".join(
        f"""(
            SELECT COUNT(*) FROM deliveries d
            WHERE d.webhook_no = w.no AND d.label <> 1 AND d.label = {label:d}
              AND d.received_at >= :since AND d.received_at < :until
        ) AS label_{label:d}"""
        for label in _OTHER_LABELS
    )
    dropped_columns = ", ".join(
        f"""(
            SELECT COALESCE(SUM(r.count), 0) FROM dropped_attempts r
            WHERE r.webhook_no = w.no AND r.minute >= :since AND r.minute < :until AND r.kind = '{kind}'
        ) AS {kind}"""
        for kind in _DROPPED_KINDS
    )
    rows = tx.all(
        f"""
        SELECT w.uid, {label_columns}, {dropped_columns}, (
            SELECT COUNT(*) FROM deliveries d
            WHERE d.webhook_no = w.no AND d.received_at >= :since AND d.received_at < :until
        ) AS total
        FROM webhooks w
        WHERE w.factory_id = :factory AND w.state <> 'deleted'
        """,
        factory=factory,
        since=since,
        until=until,
    )
    counts_by_webhook = {}
    for row in rows:
        other_counts: dict[Label, int] = {label: row[f"label_{label:d}"] for label in _OTHER_LABELS}
        counts_by_webhook[row["uid"]] = AttemptCounts(
            {Label.ACCEPTED: row["total"] - sum(other_counts.values()), **other_counts},
            {kind: int(row[kind]) for kind in _DROPPED_KINDS},
        )
    return counts_by_webhook


def newest(tx: Transaction, factory: FactoryId) -> Mapping[WebhookUid, NewestAttempt]:
    """The newest attempt at each webhook that is not deleted. Webhooks without attempts are omitted."""
    rows = tx.all(
        """
        SELECT w.uid, d.id, d.label, d.received_at, d.reason
        FROM webhooks w
        JOIN deliveries d ON d.id = (
            SELECT l.id FROM deliveries l WHERE l.webhook_no = w.no ORDER BY l.received_at DESC, l.id DESC LIMIT 1
        )
        WHERE w.factory_id = :factory AND w.state <> 'deleted'
        """,
        factory=factory,
    )
    return {row["uid"]: _newest_attempt(row) for row in rows}


def newest_with_label(tx: Transaction, webhook: WebhookUid, label: Label) -> NewestAttempt | None:
    """The newest attempt at the webhook with this label, which must not be Accepted; None if there is none."""
    rows = _newest_with_label(tx, webhook, label, 1)
    return rows[0][0] if rows else None


def count_duplicates_by_body(tx: Transaction, webhook: WebhookUid, since: int, at_most: int) -> tuple[int, int]:
    """Count the webhook's newest Duplicates: at most `at_most`, received at or after `since`.

    Returns the number of those that had no event id and were detected by body hash only, and the number of all.
    """
    rows = [row for row in _newest_with_label(tx, webhook, Label.DUPLICATE, at_most) if row[0].received_at >= since]
    return sum(kind is IdentityKind.BODY_SHA256 for _, kind in rows), len(rows)


def _newest_with_label(
    tx: Transaction, webhook: WebhookUid, label: Label, at_most: int
) -> Sequence[tuple[NewestAttempt, IdentityKind | None]]:
    assert label is not Label.ACCEPTED, "the index leaves Accepted rows out"
    rows = tx.all(
        f"""
        SELECT d.id, d.label, d.received_at, d.reason, d.identity_kind
        FROM deliveries d
        WHERE d.webhook_no = (SELECT no FROM webhooks WHERE uid = :uid) AND d.label <> 1 AND d.label = {label:d}
        ORDER BY d.received_at DESC
        LIMIT :at_most
        """,
        uid=webhook,
        at_most=at_most,
    )
    return [
        (
            _newest_attempt(row),
            IdentityKind(row["identity_kind"]) if row["identity_kind"] is not None else None,
        )
        for row in rows
    ]


def _newest_attempt(row: Row) -> NewestAttempt:
    return from_row(NewestAttempt, row, key=row["id"], label=Label(row["label"]))
