"""Reads the delivery log. Admission adds rows to it, and `store.log_retention` removes them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain import ids
from hookmill.domain.delivery import Delivery, DroppedAttempts, IdentityKind, Label, LogDetails, RateLimit
from hookmill.domain.ids import DeliveryKey, FactoryId, WebhookUid
from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_DAYS_KEPT
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.identity_segments import FIRST_SEGMENT

DAY_US: Final = 86_400_000_000
MINUTE_US: Final = 60_000_000
DROPPED_COUNTERS_MAX: Final = 1_000

_LOG_DETAILS: Final = LogDetails.__struct_fields__
_COLUMNS: Final = f"""
    d.id, d.label, d.size, d.received_at, d.identity_kind, d.identity, d.identity_digest, d.duplicate_of,
    {", ".join(f"d.{name}" for name in _LOG_DETAILS)}, w.uid AS webhook_uid, w.name AS webhook_name
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
        """The exclusive upper bound of the keys, which are ordered by time as the log is."""
        ends = [self.before] if self.before is not None else []
        if self.until is not None:
            ends.append(DeliveryKey(_key_at(self.until)))
        return min(ends, default=b"\xff" * 16)

    def conditions(self) -> tuple[str, dict[str, Any]]:
        """An SQL condition on a row, with its parameters. An index by time and one by key can both use it."""
        parameters: dict[str, Any] = {"first": self.first_key, "end": self.end_key}
        sql = "id >= :first AND id < :end"
        if self.since is not None:
            sql += " AND received_at >= :since"
            parameters["since"] = self.since
        if self.before is not None or self.until is not None:
            sql += " AND received_at <= :latest"
            parameters["latest"] = ids.time_of(self.end_key)
        return sql, parameters


WHOLE_LOG: Final = LogRange()
_AUTHENTICATED_LABELS: Final = frozenset(Label) - {Label.REJECTED_AUTH}
"""The labels whose deliveries can have an event type."""
_TIME_MAX: Final = (1 << 48) * 1000 - 1
_SCANS_PER_QUERY: Final = 100


def _key_at(at: int) -> bytes:
    """The lowest key of this time in µs. Times that a key can't contain are clamped: before 1970, after year 10889."""
    return ids.time_ordered_key(min(max(at, 0), _TIME_MAX), bytes(8))


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
    """A page of the log, newest first. `webhooks`, `label`, `event` and `log_range` restrict it."""
    conditions, parameters = log_range.conditions()
    if event is not None:
        # The index by event contains the label, so each label needs its own index scan.
        labels = _AUTHENTICATED_LABELS if label is None else _AUTHENTICATED_LABELS & {label}
        scans = [
            f"SELECT id FROM deliveries WHERE webhook_no = {no:d} AND event = :event AND label = {indexed_label:d} "
            f"AND {conditions} ORDER BY received_at DESC, id DESC LIMIT :limit"
            for no in _webhook_numbers(tx, factory, webhooks)
            for indexed_label in sorted(labels)
        ]
        return _newest_in_scans(tx, scans, parameters | {"event": event}, limit)
    if label is not None:
        # The label is an SQL literal: with a parameter, the planner can't use a partial index.
        conditions += f" AND label = {label:d}"
        # An Accepted delivery always counts against the rate limit of deliveries, which is a column of the log's index.
        # For other labels, the condition of the partial index is repeated, so that the planner uses this index.
        conditions += (
            f" AND rate_limit = {RateLimit.DELIVERIES:d}"
            if label is Label.ACCEPTED
            else f" AND label <> {Label.ACCEPTED:d}"
        )
    scans = [
        f"SELECT id FROM deliveries WHERE webhook_no = {no:d} AND {conditions} "
        "ORDER BY received_at DESC, id DESC LIMIT :limit"
        for no in _webhook_numbers(tx, factory, webhooks)
    ]
    return _newest_in_scans(tx, scans, parameters, limit)


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
    """Like `newest`, but only deliveries whose identity is one of these digests. `now` is in µs since 1970."""
    conditions, parameters = log_range.conditions()
    if event is not None:
        conditions += " AND event = :event"
        parameters["event"] = event
    digest_parameters = {f"digest_{number}": digest for number, digest in enumerate(identities)}
    webhook_numbers = _webhook_numbers(tx, factory, webhooks)
    if not webhook_numbers or not digest_parameters:
        return []
    dialect.force_custom_query_plans(tx)
    in_webhooks = f"webhook_no IN ({', '.join(map(str, webhook_numbers))})"
    digest_list = ", ".join(f":{name}" for name in digest_parameters)
    scans = []
    if label in (None, Label.DUPLICATE):
        # Most webhooks have no duplicates with these digests. This query takes less time than planning a
        # scan for each webhook.
        webhooks_with_duplicates = tx.all(
            " UNION ALL ".join(
                f"""
                SELECT no, '{name}' AS digest_name FROM webhooks w
                WHERE no IN ({", ".join(map(str, webhook_numbers))}) AND EXISTS (
                    SELECT 1 FROM deliveries d
                    WHERE d.label = {Label.DUPLICATE:d} AND d.webhook_no = w.no AND d.identity_digest = :{name}
                )
                """
                for name in digest_parameters
            ),
            **digest_parameters,
        )
        scans += [
            f"SELECT id FROM deliveries WHERE label = {Label.DUPLICATE:d} AND webhook_no = {row['no']:d} "
            f"AND identity_digest = :{row['digest_name']} AND {conditions} ORDER BY id DESC LIMIT :limit"
            for row in webhooks_with_duplicates
        ]
    if label in (None, Label.ACCEPTED):
        scans.append(
            f"""
            SELECT id FROM deliveries
            WHERE id IN (
                    SELECT i.delivery_id
                    FROM (SELECT no FROM identity_segments UNION SELECT {FIRST_SEGMENT:d}) segments
                    JOIN identities i ON i.segment = segments.no AND {in_webhooks} AND digest IN ({digest_list})
                )
                AND label = {Label.ACCEPTED:d} AND {conditions}
            """
        )
        # After `IDENTITIES_KEPT_DAYS`, `identities` no longer has the ids from senders. Older log rows are searched
        # directly, because retention leaves only a few.
        scans.append(
            f"""
            SELECT id FROM deliveries
            WHERE {in_webhooks} AND received_at < :forgotten_before AND label = {Label.ACCEPTED:d}
                AND identity_digest IN ({digest_list}) AND {conditions}
            """
        )
        parameters["forgotten_before"] = now - IDENTITIES_KEPT_DAYS * DAY_US
    return _newest_in_scans(tx, scans, parameters | digest_parameters, limit)


def newest_key(tx: Transaction) -> DeliveryKey | None:
    """The key of the newest delivery of all factories; None if the log is empty."""
    return tx.scalar("SELECT id FROM deliveries ORDER BY id DESC LIMIT 1")


def _webhook_numbers(tx: Transaction, factory: FactoryId, webhooks: Collection[WebhookUid] | None) -> list[int]:
    """The numbers of the factory's webhooks, including deleted ones. `webhooks` restricts them."""
    rows = tx.all("SELECT no, uid FROM webhooks WHERE factory_id = :factory ORDER BY no", factory=factory)
    return [row["no"] for row in rows if webhooks is None or row["uid"] in webhooks]


def _newest_in_scans(tx: Transaction, scans: Sequence[str], parameters: dict[str, Any], limit: int) -> list[Delivery]:
    """The newest distinct rows of several index scans, which are SQL queries for at most `limit` keys each.

    The time for a page does not depend on the size of the log, because each scan has a limit.
    """
    deliveries: dict[DeliveryKey, Delivery] = {}
    dialect.force_custom_query_plans(tx)
    for start in range(0, len(scans), _SCANS_PER_QUERY):
        batch = scans[start : start + _SCANS_PER_QUERY]
        union = " UNION ".join(f"SELECT id FROM ({scan}) AS scan_{number}" for number, scan in enumerate(batch))
        rows = tx.all(
            f"""
            SELECT {_COLUMNS}
            FROM (SELECT id FROM ({union}) AS scanned ORDER BY id DESC LIMIT :limit) AS page
            JOIN deliveries d ON d.id = page.id
            JOIN webhooks w ON w.no = d.webhook_no
            ORDER BY d.id DESC
            """,
            limit=limit,
            **parameters,
        )
        deliveries.update((delivery.key, delivery) for delivery in map(_delivery, rows))
    return sorted(deliveries.values(), key=lambda delivery: delivery.key, reverse=True)[:limit]


def oldest(
    tx: Transaction,
    factory: FactoryId,
    *,
    webhook: WebhookUid | None = None,
    after: DeliveryKey | None = None,
    limit: int = 1000,
) -> Sequence[Delivery]:
    """A page of the log, oldest first. `after` is the last row of the previous page."""
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
        webhook=webhook,
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


def by_keys(tx: Transaction, factory: FactoryId, keys: Sequence[DeliveryKey]) -> Sequence[Delivery]:
    """The deliveries of the factory that have these keys."""
    if not keys:
        return []
    rows = tx.all(
        f"""
        SELECT {_COLUMNS}
        FROM deliveries d JOIN webhooks w ON w.no = d.webhook_no
        WHERE w.factory_id = :factory AND d.id IN :keys
        """,
        factory=factory,
        keys=list(keys),
    )
    return [_delivery(row) for row in rows]


def payload(tx: Transaction, key: DeliveryKey) -> bytes | None:
    """The body, byte for byte; None if it is not stored."""
    return tx.scalar("SELECT body FROM payloads WHERE delivery_id = :id", id=key)


def lock_against_pruning(tx: Transaction, key: DeliveryKey) -> None:
    """Lock the delivery's row, so that retention skips it until this transaction ends."""
    dialect.lock_row(tx, "deliveries", key, "FOR KEY SHARE")


def dropped_attempts(
    tx: Transaction,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    *,
    since: int | None = None,
    until: int | None = None,
) -> Sequence[DroppedAttempts]:
    """The newest thousand counters of dropped attempts, newest minute first.

    `since` and `until` are in µs since 1970. They select the minutes whose end is later than `since` and at most
    `until`.
    """
    scans = [
        f"""
        SELECT * FROM (
            SELECT webhook_no, minute, kind, count FROM dropped_attempts
            WHERE webhook_no = {no:d} AND minute > :since AND minute <= :until
            ORDER BY minute DESC, kind LIMIT :limit
        ) AS scan_{no:d}
        """
        for no in _webhook_numbers(tx, factory, [webhook] if webhook is not None else None)
    ]
    parameters = {
        "since": since - MINUTE_US if since is not None else -1,
        "until": until - MINUTE_US if until is not None else _TIME_MAX,
        "limit": DROPPED_COUNTERS_MAX,
    }
    counters: list[Row] = []
    dialect.force_custom_query_plans(tx)
    for start in range(0, len(scans), _SCANS_PER_QUERY):
        counters += tx.all(
            f"""
            SELECT w.uid, r.minute, r.kind, r.count
            FROM ({" UNION ALL ".join(scans[start : start + _SCANS_PER_QUERY])}) AS r
            JOIN webhooks w ON w.no = r.webhook_no
            ORDER BY r.minute DESC, r.kind
            LIMIT :limit
            """,
            **parameters,
        )
    counters.sort(key=lambda row: (-row["minute"], row["kind"]))
    return [
        DroppedAttempts(
            webhook_uid=row["uid"],
            kind=row["kind"],
            since=row["minute"],
            until=row["minute"] + MINUTE_US,
            count=row["count"],
        )
        for row in counters[:DROPPED_COUNTERS_MAX]
    ]


def forget_dropped_attempts(tx: Transaction, now: int) -> int:
    return tx.run("DELETE FROM dropped_attempts WHERE minute < :cutoff", cutoff=now - LOG_DAYS_KEPT * DAY_US)


def _delivery(row: Row) -> Delivery:
    return Delivery(
        key=row["id"],
        webhook_uid=row["webhook_uid"],
        webhook_name=row["webhook_name"],
        label=Label(row["label"]),
        size=row["size"],
        received_at=row["received_at"],
        identity_kind=IdentityKind(row["identity_kind"]) if row["identity_kind"] is not None else None,
        identity=row["identity"],
        duplicate_of=row["duplicate_of"],
        **{name: row[name] for name in _LOG_DETAILS},
        identity_digest=row["identity_digest"],
    )
