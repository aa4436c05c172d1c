"""Checks of the identities, by which a retry is recognized as a Duplicate."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from hookmill.domain.delivery import IdentityKind, Label
from hookmill.domain.ids import delivery_id, time_of
from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_DAYS_KEPT
from hookmill.store import bloom
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Row
from hookmill.store.identity_segments import FIRST_SEGMENT
from hookmill.store.verification.snapshot import CLOCK_TOLERANCE_US, RESTORE, DatabaseProblem, DatabaseSnapshot

DAY_US: Final = 86_400_000_000
ROWS_PER_PAGE: Final = 500
_DELIVERIES: Final = RowStatement(
    "SELECT id, label, webhook_no, identity_digest FROM deliveries WHERE id IN ({rows})", ("bytea",)
)


@dataclass(frozen=True, slots=True)
class _Identity:
    webhook_no: int
    digest: bytes
    segment: int
    delivery: bytes
    kind: int

    def __lt__(self, other: "_Identity") -> bool:
        return (self.webhook_no, self.digest) < (other.webhook_no, other.digest)


def missing_identities(snapshot: DatabaseSnapshot, accepted: Sequence[Row]) -> Mapping[bytes, str]:
    """Why an identity does not protect these Accepted deliveries, by their keys. Omits those that are protected, and
    those whose identity may have been forgotten."""
    oldest = snapshot.now - IDENTITIES_KEPT_DAYS * DAY_US + CLOCK_TOLERANCE_US
    expected = {
        (row["webhook_no"], bytes(row["identity_digest"])): bytes(row["key"])
        for row in accepted
        if row["identity_digest"] is not None
        and (row["identity_kind"] == IdentityKind.BODY_SHA256 or row["received_at"] > oldest)
    }
    if not expected:
        return {}
    segments = snapshot.tx.all("SELECT no, opened_at, closed_at FROM identity_segments")
    first, last = min(row["received_at"] for row in accepted), max(row["received_at"] for row in accepted)
    likely = {
        row["no"]
        for row in segments
        if row["opened_at"] <= last + CLOCK_TOLERANCE_US
        and (row["closed_at"] is None or row["closed_at"] >= first - CLOCK_TOLERANCE_US)
    }
    every = {FIRST_SEGMENT, *(row["no"] for row in segments)}
    claimed = _claims(snapshot, likely or every, list(expected))
    # An identity moves to a later segment if it is kept for longer.
    if remaining := [identity for identity in expected if identity not in claimed]:
        claimed |= _claims(snapshot, every, remaining)
    return {
        key: (
            "It has no identity."
            if identity not in claimed
            else f"Its identity belongs to {delivery_id(claimed[identity])}."
        )
        for identity, key in expected.items()
        if claimed.get(identity) != key
    }


def _claims(
    snapshot: DatabaseSnapshot, segments: set[int], identities: Sequence[tuple[int, bytes]]
) -> dict[tuple[int, bytes], bytes]:
    """The deliveries that have these identities, which are pairs of a webhook number and a digest."""
    statement = RowStatement(
        f"""
        WITH expected (digest, webhook_no) AS ({{rows}})
        SELECT i.webhook_no, i.digest, i.delivery_id
        FROM expected
        JOIN identities i ON i.webhook_no = expected.webhook_no AND i.digest = expected.digest
        WHERE i.segment IN ({", ".join(map(str, sorted(segments)))})
        """,
        ("bytea", "int"),
    )
    rows = statement.select(snapshot.tx, [(digest, webhook_no) for webhook_no, digest in identities])
    return {(row[0], bytes(row[1])): bytes(row[2]) for row in rows}


def check_identities(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether each identity belongs to an Accepted delivery, exists once, and is found by admission."""
    title = "checking identities"
    total = snapshot.count("identities")
    snapshot.report(title, 0, total)
    segments = {row["no"]: row["filter_no"] for row in snapshot.tx.all("SELECT no, filter_no FROM identity_segments")}
    numbers = [row["segment"] for row in snapshot.tx.all(_SEGMENTS_WITH_ROWS)]
    filters: dict[int, bytes] = {}
    for no in {filter_no for filter_no in segments.values() if filter_no is not None}:
        row = snapshot.tx.one("SELECT bits FROM identity_filters WHERE no = :no", no=no)
        if row is not None:
            filters[no] = bytes(row["bits"])
    for no, filter_no in segments.items():
        if filter_no is not None and filter_no not in filters:
            yield _segment_problem(no, "Its filter does not exist.")
    for no in numbers:
        if no not in segments and no != FIRST_SEGMENT:
            yield _segment_problem(no, "It is not listed, so admission never searches it.")
    merged = heapq.merge(*(_of_segment(snapshot, no) for no in numbers))
    previous: _Identity | None = None
    while batch := list(islice(merged, ROWS_PER_PAGE)):
        snapshot.check()
        rows = _DELIVERIES.select(snapshot.tx, [(identity.delivery,) for identity in batch])
        deliveries = {bytes(row[0]): row for row in rows}
        for identity in batch:
            name = f"identity {identity.digest.hex()} of {_webhook_name(snapshot, identity.webhook_no)}"
            if previous is not None and not previous < identity:
                yield DatabaseProblem(
                    kind="identity_twice",
                    row=name,
                    text=f"Two deliveries have it: {delivery_id(previous.delivery)}, {delivery_id(identity.delivery)}.",
                    advice="The event was accepted twice. Check what its second runs have done.",
                )
            previous = identity
            bits = filters.get(segments.get(identity.segment) or 0)
            if bits is not None and not bloom.may_contain(bits, int.from_bytes(identity.digest, "little")):
                yield DatabaseProblem(
                    kind="identity_filter",
                    row=name,
                    text="The filter of its segment lacks it, so a retry of its event would be accepted again.",
                    advice=RESTORE,
                )
            if reason := _wrong_delivery(snapshot, identity, deliveries.get(identity.delivery)):
                yield DatabaseProblem(kind="identity_delivery", row=name, text=reason, advice=RESTORE)
        snapshot.advance(title, len(batch), total)


_SEGMENTS_WITH_ROWS: Final = """
    WITH RECURSIVE used (segment) AS (
        SELECT MIN(segment) FROM identities
        UNION ALL
        SELECT (SELECT MIN(i.segment) FROM identities i WHERE i.segment > used.segment)
        FROM used WHERE used.segment IS NOT NULL
    )
    SELECT segment FROM used WHERE segment IS NOT NULL
"""


def _of_segment(snapshot: DatabaseSnapshot, segment: int) -> Iterator[_Identity]:
    webhook_no, digest = -1, b""
    while rows := snapshot.tx.all(
        """
        SELECT webhook_no, digest, delivery_id, kind
        FROM identities
        WHERE segment = :segment AND (webhook_no, digest) > (:webhook, :digest)
        ORDER BY webhook_no, digest
        LIMIT :limit
        """,
        segment=segment,
        webhook=webhook_no,
        digest=digest,
        limit=ROWS_PER_PAGE,
    ):
        for row in rows:
            webhook_no, digest = row["webhook_no"], bytes(row["digest"])
            yield _Identity(webhook_no, digest, segment, bytes(row["delivery_id"]), row["kind"])


def _wrong_delivery(snapshot: DatabaseSnapshot, identity: _Identity, delivery: Any) -> str | None:
    """The problem of the identity's delivery; None if there is none, or if the log no longer keeps the delivery."""
    name = delivery_id(identity.delivery)
    if delivery is None:
        if time_of(identity.delivery) > snapshot.now - LOG_DAYS_KEPT * DAY_US + CLOCK_TOLERANCE_US:
            return f"The log has lost its delivery {name}: it is too young to have been pruned."
        return None
    _, label, webhook_no, digest = delivery
    if label != Label.ACCEPTED or webhook_no != identity.webhook_no:
        return f"Its delivery {name} is no Accepted delivery of this webhook, so a new event may count as a Duplicate."
    if identity.kind != IdentityKind.SIGNED_CONTENT and digest is not None and bytes(digest) != identity.digest:
        return f"Its delivery {name} has another identity, so a new event may count as a Duplicate."
    return None


def _webhook_name(snapshot: DatabaseSnapshot, webhook_no: int) -> str:
    return str(snapshot.uid(webhook_no)) if webhook_no in snapshot.webhooks else f"webhook number {webhook_no}"


def _segment_problem(no: int, text: str) -> DatabaseProblem:
    return DatabaseProblem(
        kind="identity_segment",
        row=f"identity segment {no}",
        text=f"{text} So retries of its events would be accepted again.",
        advice=RESTORE,
    )
