"""What came to a factory's webhooks lately, as numbers.

They are counted in indexes alone: all rows in the log's order, and those that are rarer in an index without the
Accepted ones.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hookmill.domain.activity import FAILED_AUTHENTICATIONS, NOT_FOUND, RATE_LIMITED, Counts, Newest
from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.ids import DeliveryKey, FactoryId, WebhookUid
from hookmill.store.database import Transaction

_RARER: Final = tuple(label for label in Label if label is not Label.ACCEPTED)
_REFUSED: Final = (RATE_LIMITED, FAILED_AUTHENTICATIONS, NOT_FOUND)


def counts(tx: Transaction, factory: FactoryId, since: int, until: int) -> Mapping[WebhookUid, Counts]:
    """How many attempts each live webhook had from `since` until before `until`, both µs since 1970."""
    # Labels and kinds are words of the statement, not parameters: only so does a partial index serve it.
    labels = ", ".join(
        f"""(
            SELECT COUNT(*) FROM deliveries d
            WHERE d.webhook_no = w.no AND d.label <> 1 AND d.label = {label:d}
              AND d.received_at >= :since AND d.received_at < :until
        ) AS label_{label:d}"""
        for label in _RARER
    )
    refused = ", ".join(
        f"""(
            SELECT COALESCE(SUM(r.count), 0) FROM dropped_attempts r
            WHERE r.webhook_no = w.no AND r.minute >= :since AND r.minute < :until AND r.kind = '{kind}'
        ) AS {kind}"""
        for kind in _REFUSED
    )
    rows = tx.all(
        f"""
        SELECT w.uid, {labels}, {refused}, (
            SELECT COUNT(*) FROM deliveries d
            WHERE d.webhook_no = w.no AND d.received_at >= :since AND d.received_at < :until
        ) AS every
        FROM webhooks w
        WHERE w.factory_id = :factory AND w.state <> 'deleted'
        """,
        factory=factory,
        since=since,
        until=until,
    )
    found = {}
    for row in rows:
        rarer: dict[Label, int] = {label: row[f"label_{label:d}"] for label in _RARER}
        found[WebhookUid(row["uid"])] = Counts(
            {Label.ACCEPTED: row["every"] - sum(rarer.values()), **rarer},
            {kind: int(row[kind]) for kind in _REFUSED},
        )
    return found


def newest(tx: Transaction, factory: FactoryId) -> Mapping[WebhookUid, Newest]:
    """The last delivery of each live webhook that has one."""
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
    return {
        WebhookUid(row["uid"]): Newest(
            key=DeliveryKey(bytes(row["id"])),
            label=Label(row["label"]),
            received_at=row["received_at"],
            reason=row["reason"],
        )
        for row in rows
    }


def newest_of(tx: Transaction, webhook: WebhookUid, label: Label) -> Newest | None:
    """The webhook's last delivery with a label other than Accepted."""
    rows = _newest_of(tx, webhook, label, 1)
    return rows[0][0] if rows else None


def duplicates_by_body(tx: Transaction, webhook: WebhookUid, since: int, at_most: int) -> tuple[int, int]:
    """Of the webhook's newest Duplicates since then: how many had no event id, and were told by their body alone; and
    how many were looked at."""
    rows = [row for row in _newest_of(tx, webhook, Label.DUPLICATE, at_most) if row[0].received_at >= since]
    return sum(kind is IdentityKind.BODY_SHA256 for _, kind in rows), len(rows)


def _newest_of(
    tx: Transaction, webhook: WebhookUid, label: Label, at_most: int
) -> Sequence[tuple[Newest, IdentityKind | None]]:
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
            Newest(
                key=DeliveryKey(bytes(row["id"])),
                label=Label(row["label"]),
                received_at=row["received_at"],
                reason=row["reason"],
            ),
            IdentityKind(row["identity_kind"]) if row["identity_kind"] is not None else None,
        )
        for row in rows
    ]
