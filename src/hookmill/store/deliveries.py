"""The delivery log, as it is read and as it is thinned out. Only admission writes to it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.ids import DeliveryKey, FactoryId, WebhookUid
from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_KEEPS_DAYS, LOG_KEEPS_ROWS
from hookmill.store.database import Row, Transaction

DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One row of the log. `received_at` is in µs since 1970."""

    key: DeliveryKey
    webhook_uid: WebhookUid
    webhook_name: str
    label: Label
    size: int
    received_at: int
    identity_kind: IdentityKind | None
    identity: str | None
    duplicate_of: DeliveryKey | None
    reason: str | None
    client: str | None
    """The address that a refused attempt came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Attempts of one minute that have no row: how many, of which kind."""

    webhook_uid: WebhookUid
    minute: int
    kind: str
    count: int


_COLUMNS = """
    d.id, d.label, d.size, d.received_at, d.identity_kind, d.identity, d.duplicate_of, d.reason, d.client,
    w.uid AS webhook_uid, w.name AS webhook_name
"""


def newest(
    tx: Transaction,
    factory: FactoryId,
    *,
    webhooks: Collection[WebhookUid] | None = None,
    label: Label | None = None,
    since: int | None = None,
    until: int | None = None,
    identities: Collection[bytes] | None = None,
    before: DeliveryKey | None = None,
    limit: int = 50,
) -> Sequence[Delivery]:
    """A page of the log, newest first. `before` is the last row of the page before.

    `since` and `until` are µs since 1970, the first inclusive; `identities` are digests, one of which a row must have.
    """
    asked: dict[str, dict[str, Any]] = {"w.factory_id = :factory": {"factory": factory}}
    if webhooks is not None:
        asked.update(_one_of("w.uid", "webhook", webhooks))
    if label is not None:
        asked["d.label = :label"] = {"label": int(label)}
    if since is not None:
        asked["d.received_at >= :since"] = {"since": since}
    if until is not None:
        asked["d.received_at < :until"] = {"until": until}
    if identities is not None:
        asked.update(_one_of("d.identity_digest", "identity", identities))
    if before is not None:
        asked["d.id < :before"] = {"before": before}
    rows = tx.all(
        f"""
        SELECT {_COLUMNS}
        FROM deliveries d JOIN webhooks w ON w.no = d.webhook_no
        WHERE {" AND ".join(asked)}
        ORDER BY d.id DESC
        LIMIT :limit
        """,
        limit=limit,
        **{name: value for values in asked.values() for name, value in values.items()},
    )
    return [_delivery(row) for row in rows]


def _one_of(column: str, name: str, values: Collection[Any]) -> dict[str, dict[str, Any]]:
    """The condition that the column holds one of the values, and its parameters."""
    if not values:
        return {"1 = 0": {}}
    numbered = {f"{name}_{number}": value for number, value in enumerate(values)}
    return {f"{column} IN ({', '.join(f':{parameter}' for parameter in numbered)})": numbered}


def oldest(
    tx: Transaction,
    factory: FactoryId,
    *,
    webhook: WebhookUid | None = None,
    after: DeliveryKey | None = None,
    limit: int = 1000,
) -> Sequence[Delivery]:
    """A page of the log, oldest first. `after` is the last row of the page before."""
    rows = tx.all(
        f"""
        SELECT {_COLUMNS}
        FROM deliveries d JOIN webhooks w ON w.no = d.webhook_no
        WHERE w.factory_id = :factory AND d.id > :after {"AND w.uid = :webhook" if webhook is not None else ""}
        ORDER BY d.id
        LIMIT :limit
        """,
        factory=factory,
        after=after or b"",
        limit=limit,
        **({"webhook": webhook} if webhook is not None else {}),
    )
    return [_delivery(row) for row in rows]


def by_key(tx: Transaction, factory: FactoryId, key: DeliveryKey) -> Delivery | None:
    row = tx.one(
        f"""
        SELECT {_COLUMNS}
        FROM deliveries d JOIN webhooks w ON w.no = d.webhook_no
        WHERE d.id = :id AND w.factory_id = :factory
        """,
        id=key,
        factory=factory,
    )
    return _delivery(row) if row else None


def payload(tx: Transaction, key: DeliveryKey) -> bytes | None:
    """The body as received; None where none is kept."""
    row = tx.one("SELECT body FROM payloads WHERE delivery_id = :id", id=key)
    return bytes(row["body"]) if row else None


def refusals(tx: Transaction, factory: FactoryId, webhook: WebhookUid | None = None) -> Sequence[Refusals]:
    """The counters of attempts without a row, newest minute first, for the log's days."""
    rows = tx.all(
        f"""
        SELECT w.uid, r.minute, r.kind, r.count
        FROM refusals r JOIN webhooks w ON w.no = r.webhook_no
        WHERE w.factory_id = :factory {"AND w.uid = :webhook" if webhook is not None else ""}
        ORDER BY r.minute DESC, r.kind
        LIMIT 1000
        """,
        factory=factory,
        **({"webhook": webhook} if webhook is not None else {}),
    )
    return [
        Refusals(webhook_uid=WebhookUid(row["uid"]), minute=row["minute"], kind=row["kind"], count=row["count"])
        for row in rows
    ]


def webhooks_with_old_rows(tx: Transaction, now: int) -> list[int]:
    """Numbers of the webhooks that have rows older than the log promises to keep."""
    rows = tx.all(
        """
        SELECT w.no
        FROM webhooks w
        WHERE EXISTS (
            SELECT 1 FROM deliveries d WHERE d.webhook_no = w.no AND d.received_at < :cutoff
        )
        ORDER BY w.no
        """,
        cutoff=now - LOG_KEEPS_DAYS * DAY_US,
    )
    return [row["no"] for row in rows]


def thin_out(tx: Transaction, webhook_no: int, now: int, at_most: int) -> int:
    """Remove up to `at_most` rows of one webhook that nothing promises any more. Returns how many went.

    Kept: whatever is younger than the log's days; the newest rows; the newest Accepted rows, counted by themselves,
    so that a burst of refusals can't push payloads out; and every delivery with an unfinished run.
    """
    newest_kept = _nth_newest(tx, webhook_no, accepted_only=False)
    newest_accepted_kept = _nth_newest(tx, webhook_no, accepted_only=True)
    gone = tx.all(
        """
        SELECT d.id, d.label, d.identity_kind, d.identity_digest
        FROM deliveries d
        WHERE d.webhook_no = :webhook
          AND d.received_at < :cutoff
          AND d.received_at < CASE WHEN d.label = :accepted THEN :accepted_kept ELSE :kept END
          AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.delivery_id = d.id AND r.finished_at IS NULL)
        ORDER BY d.received_at
        LIMIT :at_most
        """,
        webhook=webhook_no,
        cutoff=now - LOG_KEEPS_DAYS * DAY_US,
        accepted=int(Label.ACCEPTED),
        accepted_kept=newest_accepted_kept,
        kept=newest_kept,
        at_most=at_most,
    )
    for row in gone:
        tx.run("DELETE FROM deliveries WHERE id = :id", id=row["id"])
        if row["label"] != Label.ACCEPTED:
            continue
        tx.run("DELETE FROM payloads WHERE delivery_id = :id", id=row["id"])
        tx.run("DELETE FROM runs WHERE delivery_id = :id", id=row["id"])
        if row["identity_kind"] == IdentityKind.BODY_SHA256:
            tx.run(
                "DELETE FROM identities WHERE webhook_no = :webhook AND digest = :digest",
                webhook=webhook_no,
                digest=row["identity_digest"],
            )
    return len(gone)


def _nth_newest(tx: Transaction, webhook_no: int, *, accepted_only: bool) -> int:
    """When the last row that is kept for its place among the newest was received; 0 when there are not that many."""
    row = tx.one(
        f"""
        SELECT received_at
        FROM deliveries
        WHERE webhook_no = :webhook {"AND label = :accepted" if accepted_only else ""}
        ORDER BY received_at DESC
        LIMIT 1 OFFSET :place
        """,
        webhook=webhook_no,
        place=LOG_KEEPS_ROWS - 1,
        **({"accepted": int(Label.ACCEPTED)} if accepted_only else {}),
    )
    return row["received_at"] if row else 0


def forget_identities(tx: Transaction, after: tuple[int, bytes], now: int, at_most: int) -> tuple[int, bytes] | None:
    """Forget identities that senders chose long ago, a stretch of the table at a time.

    Returns where the next stretch begins, None at the end of the table. Body digests go with their delivery, not here.
    """
    stretch = tx.all(
        """
        SELECT webhook_no, digest, kind, claimed_at
        FROM identities
        WHERE webhook_no > :webhook OR (webhook_no = :webhook AND digest > :digest)
        ORDER BY webhook_no, digest
        LIMIT :at_most
        """,
        webhook=after[0],
        digest=after[1],
        at_most=at_most,
    )
    for row in stretch:
        if row["kind"] != IdentityKind.BODY_SHA256 and row["claimed_at"] < now - IDENTITIES_KEPT_DAYS * DAY_US:
            tx.run(
                "DELETE FROM identities WHERE webhook_no = :webhook AND digest = :digest",
                webhook=row["webhook_no"],
                digest=row["digest"],
            )
    return (stretch[-1]["webhook_no"], bytes(stretch[-1]["digest"])) if len(stretch) == at_most else None


def forget_refusals(tx: Transaction, now: int) -> int:
    return tx.run("DELETE FROM refusals WHERE minute < :cutoff", cutoff=now - LOG_KEEPS_DAYS * DAY_US)


def _delivery(row: Row) -> Delivery:
    return Delivery(
        key=DeliveryKey(bytes(row["id"])),
        webhook_uid=WebhookUid(row["webhook_uid"]),
        webhook_name=row["webhook_name"],
        label=Label(row["label"]),
        size=row["size"],
        received_at=row["received_at"],
        identity_kind=IdentityKind(row["identity_kind"]) if row["identity_kind"] is not None else None,
        identity=row["identity"],
        duplicate_of=DeliveryKey(bytes(row["duplicate_of"])) if row["duplicate_of"] is not None else None,
        reason=row["reason"],
        client=row["client"],
    )
