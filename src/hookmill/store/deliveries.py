"""The delivery log, as it is read and as it is thinned out. Only admission writes to it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain import ids
from hookmill.domain.delivery import Delivery, DroppedAttempts, IdentityKind, Label, RateLimit, Recorded
from hookmill.domain.ids import DeliveryKey, FactoryId, WebhookUid
from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_KEEPS_DAYS, LOG_KEEPS_ROWS
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction

DAY_US: Final = 86_400_000_000
MINUTE_US: Final = 60_000_000
REFUSALS_MAX: Final = 1_000


_RECORDED: Final = Recorded.__struct_fields__
_COLUMNS: Final = f"""
    d.id, d.label, d.size, d.received_at, d.identity_kind, d.identity, d.identity_digest, d.duplicate_of,
    {", ".join(f"d.{name}" for name in _RECORDED)}, w.uid AS webhook_uid, w.name AS webhook_name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """A part of the log: from `since` until before `until`, in µs since 1970, and before the row `before`."""

    since: int | None = None
    until: int | None = None
    before: DeliveryKey | None = None

    @property
    def first_key(self) -> bytes:
        return _key_at(self.since) if self.since is not None else b""

    @property
    def end_key(self) -> bytes:
        """Keys are ordered as the log is, so a time is as good as a row."""
        ends = [self.before] if self.before is not None else []
        if self.until is not None:
            ends.append(DeliveryKey(_key_at(self.until)))
        return min(ends, default=b"\xff" * 16)

    def conditions(self) -> tuple[str, dict[str, Any]]:
        """As SQL on a row of the log, which an index by time and one by key both can use."""
        asked: dict[str, Any] = {"first": self.first_key, "end": self.end_key}
        sql = "id >= :first AND id < :end"
        if self.since is not None:
            sql += " AND received_at >= :since"
            asked["since"] = self.since
        if self.before is not None or self.until is not None:
            sql += " AND received_at <= :latest"
            asked["latest"] = ids.time_of(self.end_key)
        return sql, asked


WHOLE_LOG: Final = LogRange()
_AUTHENTICATED: Final = frozenset(Label) - {Label.REJECTED_AUTH}
"""Only what an authenticated sender reports has an event type."""
_TIME_MAX: Final = (1 << 48) * 1000 - 1
_WALKS_AT_ONCE: Final = 100


def _key_at(at: int) -> bytes:
    """Where rows of that time begin. A key has no place for times before 1970 or after the year 10889."""
    return ids.time_ordered(min(max(at, 0), _TIME_MAX), bytes(8))


def newest(
    tx: Transaction,
    factory: FactoryId,
    *,
    webhooks: Collection[WebhookUid] | None = None,
    label: Label | None = None,
    event: str | None = None,
    log_range: LogRange = WHOLE_LOG,
    limit: int = 50,
) -> Sequence[Delivery]:
    """A page of the log, newest first; `event`: only deliveries of this event type."""
    conditions, asked = log_range.conditions()
    if event is not None:
        # A label is part of the index by event: each has its own range.
        labels = _AUTHENTICATED if label is None else _AUTHENTICATED & {label}
        walks = [
            f"SELECT id FROM deliveries WHERE webhook_no = {no:d} AND event = :event AND label = {each:d} "
            f"AND {conditions} ORDER BY received_at DESC, id DESC LIMIT :limit"
            for no in _numbers(tx, factory, webhooks)
            for each in sorted(labels)
        ]
        return _newest_of(tx, walks, asked | {"event": event}, limit)
    if label is not None:
        # Words of the statement, not parameters: only so does a partial index serve it.
        conditions += f" AND label = {label:d}"
        conditions += f" AND rate_limit = {RateLimit.DELIVERIES:d}" if label is Label.ACCEPTED else " AND label <> 1"
    walks = [
        f"SELECT id FROM deliveries WHERE webhook_no = {no:d} AND {conditions} "
        "ORDER BY received_at DESC, id DESC LIMIT :limit"
        for no in _numbers(tx, factory, webhooks)
    ]
    return _newest_of(tx, walks, asked, limit)


def of_identities(
    tx: Transaction,
    factory: FactoryId,
    identities: Collection[bytes],
    *,
    now: int,
    webhooks: Collection[WebhookUid] | None = None,
    label: Label | None = None,
    event: str | None = None,
    log_range: LogRange = WHOLE_LOG,
    limit: int = 50,
) -> Sequence[Delivery]:
    """As `newest`, of the deliveries whose identity has one of these digests."""
    conditions, asked = log_range.conditions()
    if event is not None:
        conditions += " AND event = :event"
        asked["event"] = event
    digests = {f"digest_{number}": digest for number, digest in enumerate(identities)}
    numbers = _numbers(tx, factory, webhooks)
    if not numbers or not digests:
        return []
    dialect.plan_for_values(tx)
    of_ours = f"webhook_no IN ({', '.join(map(str, numbers))})"
    any_digest = ", ".join(f":{digest}" for digest in digests)
    walks = []
    if label in (None, Label.DUPLICATE):
        # Most webhooks have none, and a plan for each of them would take longer than the looking.
        with_some = tx.all(
            " UNION ALL ".join(
                f"""
                SELECT no, '{digest}' AS digest FROM webhooks w
                WHERE no IN ({", ".join(map(str, numbers))}) AND EXISTS (
                    SELECT 1 FROM deliveries d
                    WHERE d.label = {Label.DUPLICATE:d} AND d.webhook_no = w.no AND d.identity_digest = :{digest}
                )
                """
                for digest in digests
            ),
            **digests,
        )
        walks += [
            f"SELECT id FROM deliveries WHERE label = {Label.DUPLICATE:d} AND webhook_no = {row['no']:d} "
            f"AND identity_digest = :{row['digest']} AND {conditions} ORDER BY id DESC LIMIT :limit"
            for row in with_some
        ]
    if label in (None, Label.ACCEPTED):
        walks.append(
            f"""
            SELECT id FROM deliveries
            WHERE id IN (SELECT delivery_id FROM identities WHERE {of_ours} AND digest IN ({any_digest}))
                AND label = {Label.ACCEPTED:d} AND {conditions}
            """
        )
        # Retention leaves few rows that are older than the memory of identities.
        walks.append(
            f"""
            SELECT id FROM deliveries
            WHERE {of_ours} AND received_at < :forgotten AND label = {Label.ACCEPTED:d}
                AND identity_digest IN ({any_digest}) AND {conditions}
            """
        )
        asked["forgotten"] = now - IDENTITIES_KEPT_DAYS * DAY_US
    return _newest_of(tx, walks, asked | digests, limit)


def newest_key(tx: Transaction) -> DeliveryKey | None:
    row = tx.one("SELECT id FROM deliveries ORDER BY id DESC LIMIT 1")
    return DeliveryKey(bytes(row["id"])) if row else None


def _numbers(tx: Transaction, factory: FactoryId, webhooks: Collection[WebhookUid] | None) -> list[int]:
    """The numbers of the factory's webhooks, deleted ones too, or of those among the given ones."""
    rows = tx.all("SELECT no, uid FROM webhooks WHERE factory_id = :factory ORDER BY no", factory=factory)
    return [row["no"] for row in rows if webhooks is None or row["uid"] in webhooks]


def _newest_of(tx: Transaction, walks: Sequence[str], asked: dict[str, Any], limit: int) -> list[Delivery]:
    """The newest rows among those that the walks find, each once. Every walk finds `limit` keys at most, so that a
    page takes as long in a log of millions as in a short one."""
    found: dict[DeliveryKey, Delivery] = {}
    dialect.plan_for_values(tx)
    for start in range(0, len(walks), _WALKS_AT_ONCE):
        some = walks[start : start + _WALKS_AT_ONCE]
        united = " UNION ".join(f"SELECT id FROM ({walk}) AS walk_{number}" for number, walk in enumerate(some))
        rows = tx.all(
            f"""
            SELECT {_COLUMNS}
            FROM (SELECT id FROM ({united}) AS found ORDER BY id DESC LIMIT :limit) AS page
            JOIN deliveries d ON d.id = page.id
            JOIN webhooks w ON w.no = d.webhook_no
            ORDER BY d.id DESC
            """,
            limit=limit,
            **asked,
        )
        found.update((delivery.key, delivery) for delivery in map(_delivery, rows))
    return sorted(found.values(), key=lambda delivery: delivery.key, reverse=True)[:limit]


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


def keep_from_retention(tx: Transaction, key: DeliveryKey) -> None:
    """Keep retention from removing this row until the transaction ends."""
    dialect.lock_row(tx, "deliveries", key, "FOR KEY SHARE")


def dropped_attempts(
    tx: Transaction,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    *,
    since: int | None = None,
    until: int | None = None,
) -> Sequence[DroppedAttempts]:
    """The counters of attempts without a row, newest minute first, for the log's days: of the minutes that end after
    `since` and not after `until`, the newest thousand."""
    walks = [
        f"""
        SELECT * FROM (
            SELECT webhook_no, minute, kind, count FROM dropped_attempts
            WHERE webhook_no = {no:d} AND minute > :since AND minute <= :until
            ORDER BY minute DESC, kind LIMIT :limit
        ) AS walk_{no:d}
        """
        for no in _numbers(tx, factory, [webhook] if webhook is not None else None)
    ]
    asked = {
        "since": since - MINUTE_US if since is not None else -1,
        "until": until - MINUTE_US if until is not None else _TIME_MAX,
        "limit": REFUSALS_MAX,
    }
    found: list[Row] = []
    dialect.plan_for_values(tx)
    for start in range(0, len(walks), _WALKS_AT_ONCE):
        found += tx.all(
            f"""
            SELECT w.uid, r.minute, r.kind, r.count
            FROM ({" UNION ALL ".join(walks[start : start + _WALKS_AT_ONCE])}) AS r
            JOIN webhooks w ON w.no = r.webhook_no
            ORDER BY r.minute DESC, r.kind
            LIMIT :limit
            """,
            **asked,
        )
    found.sort(key=lambda row: (-row["minute"], row["kind"]))
    return [
        DroppedAttempts(
            webhook_uid=WebhookUid(row["uid"]),
            kind=row["kind"],
            since=row["minute"],
            until=row["minute"] + MINUTE_US,
            count=row["count"],
        )
        for row in found[:REFUSALS_MAX]
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


def prune(tx: Transaction, webhook_no: int, now: int, at_most: int) -> int:
    """Remove up to `at_most` rows of one webhook that nothing promises any more. Returns how many went.

    Kept: whatever is younger than the log's days; the newest rows; the newest Accepted rows, counted by themselves,
    so that a burst of rejections can't push payloads out; and every delivery with an unfinished run.
    """
    newest_kept = _nth_newest(tx, webhook_no, accepted_only=False)
    newest_accepted_kept = _nth_newest(tx, webhook_no, accepted_only=True)
    # A transaction that replays one of them right now has locked it: it stays.
    chosen = tx.all(
        f"""
        SELECT d.id, d.label, d.identity_kind, d.identity_digest
        FROM deliveries d
        WHERE d.webhook_no = :webhook
          AND d.received_at < :cutoff
          AND d.received_at < CASE WHEN d.label = :accepted THEN :accepted_kept ELSE :kept END
          AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.delivery_id = d.id AND r.finished_at IS NULL)
        ORDER BY d.received_at
        LIMIT :at_most
        {dialect.lock_clause(tx, "FOR UPDATE", of="d", skip_locked=True)}
        """,
        webhook=webhook_no,
        cutoff=now - LOG_KEEPS_DAYS * DAY_US,
        accepted=int(Label.ACCEPTED),
        accepted_kept=newest_accepted_kept,
        kept=newest_kept,
        at_most=at_most,
    )
    removed = 0
    for row in chosen:
        # Asked once more, now that nobody else can replay it: a replay may have come since the first look.
        gone = tx.run(
            """
            DELETE FROM deliveries
            WHERE id = :id
              AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.delivery_id = :id AND r.finished_at IS NULL)
            """,
            id=row["id"],
        )
        removed += gone
        if not gone or row["label"] != Label.ACCEPTED:
            continue
        tx.run("DELETE FROM payloads WHERE delivery_id = :id", id=row["id"])
        tx.run("DELETE FROM runs WHERE delivery_id = :id", id=row["id"])
        if row["identity_kind"] == IdentityKind.BODY_SHA256:
            tx.run(
                "DELETE FROM identities WHERE webhook_no = :webhook AND digest = :digest",
                webhook=webhook_no,
                digest=row["identity_digest"],
            )
    return removed


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
    """Forget identities that senders chose long ago, a part of the table at a time.

    Returns where the next part begins, None at the end of the table. Body digests go with their delivery, not here.
    """
    part = tx.all(
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
    for row in part:
        if row["kind"] != IdentityKind.BODY_SHA256 and row["claimed_at"] < now - IDENTITIES_KEPT_DAYS * DAY_US:
            tx.run(
                "DELETE FROM identities WHERE webhook_no = :webhook AND digest = :digest",
                webhook=row["webhook_no"],
                digest=row["digest"],
            )
    return (part[-1]["webhook_no"], bytes(part[-1]["digest"])) if len(part) == at_most else None


def forget_dropped_attempts(tx: Transaction, now: int) -> int:
    return tx.run("DELETE FROM dropped_attempts WHERE minute < :cutoff", cutoff=now - LOG_KEEPS_DAYS * DAY_US)


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
        **{name: row[name] for name in _RECORDED},
        identity_digest=bytes(row["identity_digest"]) if row["identity_digest"] is not None else None,
    )
