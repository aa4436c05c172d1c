"""Segments of the identities: deduplication that stays fast as the log grows.

An identity's digest is random. In one large index, each new identity would write another page of it, and later pages
would no longer fit in memory. So the identities are divided by time: new ones go to the open segment, which is small.
When it is full, the next one is opened. Closed segments are only searched, and after `IDENTITIES_KEPT_DAYS` a whole
segment is removed.

A closed segment gets no new identities, so a Bloom filter can describe it. Each writer process has the filters in
memory (`SegmentCache`), and searches a closed segment only if its filter may contain the digest, or if it has no filter
yet. One filter describes several segments.

Only one process at a time changes segments, but deliveries are admitted meanwhile. Three rules keep this exact:

- On PostgreSQL, an admission locks its webhooks before it reads the segments. So it sees every identity of an earlier
  admission of the same webhook, in whichever segment.
- A filter is made when no transaction is left that could still add an identity to its segment.
- A process that moves identities to another segment locks their webhooks too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain.delivery import IdentityKind
from hookmill.domain.limits import IDENTITIES_KEPT_DAYS
from hookmill.store import bloom, dialect
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Database, Transaction

DAY_US: Final = 86_400_000_000
SEGMENT_ROWS: Final = 1 << 16
"""A segment with this many identities is closed at the next check. So it can get more, also while closed ones wait for
filters. On PostgreSQL, a filter waits for all open transactions of the server that write, including those of other
programs."""
SEGMENT_DAYS: Final = 1
"""A segment that is so old is closed, unless it is empty."""
UNFILTERED_MAX: Final = 4
"""Each delivery searches the closed segments without a filter. While there are so many, the open one stays open."""
FILTER_DIGESTS_MIN: Final = 1 << 13
FILTER_DIGESTS_MAX: Final = 1 << 21
"""The capacity of a filter, in digests: 4 MiB. Each filter has twice the capacity of the one before it."""
FILTER_BYTES_MAX: Final = 128 * 1024 * 1024
"""The memory for filters in one process. Segments without a filter in memory are searched for each delivery."""
_DIGESTS_PER_QUERY: Final = 8_192
_SECONDS_MAX: Final = 600
"""The time for a statement about a large segment."""
FIRST_SEGMENT: Final = 1
"""The open segment of a database that has no row about it yet."""
_SEGMENTS_LOCK: Final = 0x6964656E
"""The number of PostgreSQL's advisory lock for changes of segments."""
_UNFILTERED: Final = "SELECT no, opened_at, closed_at FROM identity_segments WHERE filter_no IS NULL ORDER BY no"


@dataclass(slots=True)
class _Filter:
    bits: bytes
    identity_count: int
    """The number of identities in the filter, which grows with each segment that is added."""
    segments: list[tuple[int, int]]
    """The number and `closed_at` of each segment."""


class SegmentCache:
    """The segments and their filters, as one process has last read them. For one thread."""

    def __init__(self) -> None:
        self.open_segment = FIRST_SEGMENT
        self._unfiltered: list[tuple[int, int, int | None]] | None = None
        """The segments that had no filter at the last refresh: the number, `opened_at` and `closed_at` of each one.

        Numbers only grow, and a closed segment leaves this list only when it gets a filter. So while the list is
        unchanged, no segment has got a filter. After a failover that lost changes, or a restored backup, other segments
        can have the same numbers; their times differ.
        """
        self._searched: tuple[int, ...] = ()
        """The closed segments without a filter in memory."""
        self._filters: dict[int, _Filter] = {}

    def refresh(self, tx: Transaction) -> None:
        """Read what has changed. Call it in each transaction, after locking the webhooks."""
        rows: Sequence[Any] = tx.bulk(_UNFILTERED, ()).fetchall()
        unfiltered = [(row[0], row[1], row[2]) for row in rows]
        if unfiltered == self._unfiltered:
            return
        segments_by_filter: dict[int, list[tuple[int, int]]] = {}
        for row in tx.all(
            "SELECT no, closed_at, filter_no FROM identity_segments WHERE filter_no IS NOT NULL ORDER BY no"
        ):
            segments_by_filter.setdefault(row["filter_no"], []).append((row["no"], row["closed_at"]))
        filters: dict[int, _Filter] = {}
        searched = [no for no, _, closed_at in unfiltered if closed_at is not None]
        free_bytes = FILTER_BYTES_MAX
        # The newest first: most late copies of an event arrive within minutes or hours.
        for filter_no in sorted(segments_by_filter, reverse=True):
            segments = segments_by_filter[filter_no]
            filter_ = self._read_filter(tx, filter_no, segments) if free_bytes > 0 else None
            if filter_ is not None:
                free_bytes -= len(filter_.bits)
            # There is no filter if its last segment was removed after the query above.
            if filter_ is not None and free_bytes >= 0:
                filters[filter_no] = filter_
            else:
                searched += [no for no, _ in segments]
        self._filters, self._searched = filters, tuple(searched)
        self.open_segment = next((no for no, _, closed_at in unfiltered if closed_at is None), FIRST_SEGMENT)
        self._unfiltered = unfiltered

    def segments_to_search(self, digest: bytes) -> list[int]:
        """The closed segments that may contain the digest."""
        segments = list(self._searched)
        if self._filters:
            digest_number = int.from_bytes(digest, "little")
            for filter_ in self._filters.values():
                if bloom.may_contain(filter_.bits, digest_number):
                    segments += [no for no, _ in filter_.segments]
        return segments

    def _read_filter(self, tx: Transaction, filter_no: int, segments: list[tuple[int, int]]) -> _Filter | None:
        row = tx.one("SELECT identity_count FROM identity_filters WHERE no = :no", no=filter_no)
        kept = self._filters.get(filter_no)
        is_same = row is not None and kept is not None and kept.identity_count == row["identity_count"]
        if is_same and kept is not None and set(segments) <= set(kept.segments):
            return _Filter(kept.bits, kept.identity_count, segments)
        row = tx.one("SELECT identity_count, bits FROM identity_filters WHERE no = :no", no=filter_no)
        return _Filter(row["bits"], row["identity_count"], segments) if row is not None else None


def close_full_segment(database: Database, now: int) -> int:
    """Close the open segment if it is full or old, unless too many have no filter yet. Returns how many identities the
    open segment has, up to `SEGMENT_ROWS`. `now` is in microseconds since 1970.
    """
    with database.read() as tx:
        segment = tx.one("SELECT no, opened_at FROM identity_segments WHERE closed_at IS NULL")
        open_no = segment["no"] if segment is not None else FIRST_SEGMENT
        identities = tx.integer(
            "SELECT COUNT(*) FROM (SELECT 1 FROM identities WHERE segment = :no LIMIT :at_most) AS counted",
            no=open_no,
            at_most=SEGMENT_ROWS,
        )
        unfiltered = tx.all("SELECT no FROM identity_segments WHERE filter_no IS NULL AND closed_at IS NOT NULL")
    is_old = segment is not None and now >= segment["opened_at"] + SEGMENT_DAYS * DAY_US
    is_due = identities >= SEGMENT_ROWS or (is_old and identities > 0)
    if segment is not None and (not is_due or len(unfiltered) >= UNFILTERED_MAX):
        return identities
    with database.read() as tx:
        newest_claim = tx.scalar("SELECT MAX(claimed_at) FROM identities WHERE segment = :no", no=open_no)
    with database.write() as tx:
        if not dialect.try_lock(tx, _SEGMENTS_LOCK):
            return identities
        if segment is None:
            _open_segment(tx, FIRST_SEGMENT, now)
            return identities
        is_closed = tx.run(
            "UPDATE identity_segments SET closed_at = :closed_at WHERE no = :no AND closed_at IS NULL",
            # If the clock was set back since, identities of before must not look older than they are.
            closed_at=max(now, newest_claim or 0),
            no=open_no,
        )
        # Otherwise, another process has closed it meanwhile.
        if is_closed:
            _open_segment(tx, open_no + 1, now)
    return 0


def _open_segment(tx: Transaction, no: int, now: int) -> None:
    tx.run(
        "INSERT INTO identity_segments (no, opened_at) VALUES (:no, :now) ON CONFLICT (no) DO NOTHING", no=no, now=now
    )


def note_transactions(database: Database) -> None:
    """Note for each new closed segment the transactions that may still add identities to it.

    This must not be the transaction that closes the segment: others begin before that one commits.
    """
    with database.read() as tx:
        row = tx.one(
            """
            SELECT 1 AS one
            FROM identity_segments
            WHERE closed_at IS NOT NULL AND filter_no IS NULL
              AND (writable_before IS NULL OR writable_before > :last_ended)
            """,
            last_ended=dialect.last_ended_transaction(tx),
        )
    if row is None:
        return
    with database.write() as tx:
        if dialect.try_lock(tx, _SEGMENTS_LOCK):
            # A backup that was restored to another PostgreSQL server can contain numbers from the future.
            tx.run(
                """
                UPDATE identity_segments
                SET writable_before = :number
                WHERE closed_at IS NOT NULL AND filter_no IS NULL
                  AND (writable_before IS NULL OR writable_before > :number)
                """,
                number=dialect.transaction_number(tx),
            )


def add_filter(database: Database) -> bool:
    """Add the oldest closed segment without a filter to a filter. Returns False if there is none, or not yet."""
    with database.read() as tx:
        segment = tx.one(
            """
            SELECT no, writable_before
            FROM identity_segments
            WHERE closed_at IS NOT NULL AND filter_no IS NULL
            ORDER BY no
            LIMIT 1
            """
        )
        if (
            segment is None
            or segment["writable_before"] is None
            or not dialect.has_ended_before(tx, segment["writable_before"])
        ):
            return False
    # A later transaction, so that it sees what the transactions before `writable_before` have committed.
    with database.read() as tx:
        dialect.allow_long_statements(tx, _SECONDS_MAX)
        identity_count = tx.integer("SELECT COUNT(*) FROM identities WHERE segment = :no", no=segment["no"])
        last = tx.one("SELECT no, capacity, identity_count, bits FROM identity_filters ORDER BY no DESC LIMIT 1")
    if last is not None and last["identity_count"] + identity_count <= last["capacity"]:
        filter_no, capacity, bits = last["no"], last["capacity"], bytearray(last["bits"])
        identity_count += last["identity_count"]
    else:
        filter_no = last["no"] + 1 if last is not None else 1
        grown = min(2 * last["capacity"], FILTER_DIGESTS_MAX) if last is not None else FILTER_DIGESTS_MIN
        capacity = max(grown, identity_count)
        bits = bytearray(min(bloom.size_bytes(capacity), FILTER_BYTES_MAX))
    for digests in _digests(database, segment["no"]):
        bloom.add(bits, digests)
    with database.write() as tx:
        dialect.allow_long_statements(tx, _SECONDS_MAX)
        if not dialect.try_lock(tx, _SEGMENTS_LOCK):
            return False
        latest = tx.one("SELECT no, identity_count FROM identity_filters ORDER BY no DESC LIMIT 1")
        has_changed = (latest and (latest["no"], latest["identity_count"])) != (
            last and (last["no"], last["identity_count"])
        )
        # Another process may have done the same meanwhile.
        if has_changed or not tx.run(
            "UPDATE identity_segments SET filter_no = :filter WHERE no = :no AND filter_no IS NULL",
            filter=filter_no,
            no=segment["no"],
        ):
            return False
        tx.run(
            """
            INSERT INTO identity_filters (no, capacity, identity_count, bits)
            VALUES (:no, :capacity, :identity_count, :bits)
            ON CONFLICT (no) DO UPDATE SET identity_count = :identity_count, bits = :bits
            """,
            no=filter_no,
            capacity=capacity,
            identity_count=identity_count,
            bits=bytes(bits),
        )
    return True


def _digests(database: Database, segment: int) -> Iterator[Iterable[bytes]]:
    """The digests of a closed segment, in parts with a transaction each."""
    webhook_no, digest = 0, b""
    while True:
        with database.read() as tx:
            rows = tx.all(
                """
                SELECT webhook_no, digest
                FROM identities
                WHERE segment = :segment AND (webhook_no, digest) > (:webhook, :digest)
                ORDER BY webhook_no, digest
                LIMIT :at_most
                """,
                segment=segment,
                webhook=webhook_no,
                digest=digest,
                at_most=_DIGESTS_PER_QUERY,
            )
        yield (row["digest"] for row in rows)
        if len(rows) < _DIGESTS_PER_QUERY:
            return
        webhook_no, digest = rows[-1]["webhook_no"], rows[-1]["digest"]


def remove_of_webhook(tx: Transaction, webhook_no: int) -> None:
    """Remove the few identities of a temporary webhook, which the transaction has deleted."""
    tx.run(
        """
        DELETE FROM identities
        WHERE webhook_no = :webhook AND segment IN (SELECT no FROM identity_segments UNION SELECT :first)
        """,
        webhook=webhook_no,
        first=FIRST_SEGMENT,
    )


def forget_old(tx: Transaction, now: int, at_most: int) -> int:
    """Remove up to `at_most` identities of the oldest segment that was closed `IDENTITIES_KEPT_DAYS` ago, or that
    segment if it is empty. Returns how many rows were removed; 0 if there is no such segment.

    The digest of a body is kept as long as its delivery: it moves to the open segment. `now` is in microseconds since
    1970.
    """
    if not dialect.try_lock(tx, _SEGMENTS_LOCK):
        return 0
    segment = tx.one(
        """
        SELECT no, filter_no
        FROM identity_segments
        WHERE closed_at < :cutoff
        ORDER BY no
        LIMIT 1
        """,
        cutoff=now - IDENTITIES_KEPT_DAYS * DAY_US,
    )
    if segment is None:
        return 0
    rows = tx.all(
        "SELECT webhook_no, digest FROM identities WHERE segment = :no ORDER BY webhook_no, digest LIMIT :at_most",
        no=segment["no"],
        at_most=at_most,
    )
    if not rows:
        _remove_segment(tx, segment["no"], segment["filter_no"])
        return 1
    _lock_webhooks(tx, sorted({row["webhook_no"] for row in rows}))
    open_segment = tx.scalar("SELECT no FROM identity_segments WHERE closed_at IS NULL")
    removed = {
        "segment": segment["no"],
        "webhook": rows[-1]["webhook_no"],
        "digest": rows[-1]["digest"],
    }
    tx.run(
        """
        INSERT INTO identities (segment, webhook_no, digest, delivery_id, kind, claimed_at)
        SELECT CAST(:open AS INTEGER), i.webhook_no, i.digest, i.delivery_id, i.kind, i.claimed_at
        FROM identities i
        JOIN deliveries d ON d.id = i.delivery_id
        WHERE i.segment = :segment AND (i.webhook_no, i.digest) <= (:webhook, :digest) AND i.kind = :body
        ON CONFLICT DO NOTHING
        """,
        open=open_segment if open_segment is not None else FIRST_SEGMENT,
        body=int(IdentityKind.BODY_SHA256),
        **removed,
    )
    return tx.run(
        "DELETE FROM identities WHERE segment = :segment AND (webhook_no, digest) <= (:webhook, :digest)", **removed
    )


def _remove_segment(tx: Transaction, no: int, filter_no: int | None) -> None:
    """Remove an empty segment, and its filter if no other segment has it. The newest filter stays, so that its number
    is not used again: a `SegmentCache` may still have it."""
    tx.run("DELETE FROM identity_segments WHERE no = :no", no=no)
    tx.run(
        """
        DELETE FROM identity_filters
        WHERE no = :filter AND no < (SELECT MAX(no) FROM identity_filters)
          AND NOT EXISTS (SELECT 1 FROM identity_segments WHERE filter_no = :filter)
        """,
        filter=filter_no,
    )


_WAIT_FOR_WEBHOOKS: Final = RowStatement(
    "SELECT no FROM webhooks WHERE no IN ({rows}) ORDER BY no FOR NO KEY UPDATE", ("int",)
)


def _lock_webhooks(tx: Transaction, numbers: Sequence[int]) -> None:
    if dialect.has_row_locks(tx):
        _WAIT_FOR_WEBHOOKS.select(tx, [(no,) for no in numbers])
