"""Checks between rows, each of them a statement that selects the rows with a problem."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hookmill.domain.delivery import IdentityKind
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_DAYS_KEPT
from hookmill.store.admission.window_counts import PERIOD_US
from hookmill.store.database import Row
from hookmill.store.identity_segments import FIRST_SEGMENT
from hookmill.store.verification.snapshot import (
    CLOCK_TOLERANCE_US,
    DAY_US,
    REPORT,
    RESTORE,
    DatabaseProblem,
    DatabaseSnapshot,
)

ROWS_MAX: Final = 1_000
"""How many rows one statement names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`sql` selects `key` of each row that contradicts others. It may have parameters, by name."""

    kind: str
    row: str
    """The kind of the row. The key of a `delivery` or `run` is shown as its id."""
    sql: str
    text: str
    advice: str = RESTORE


def _part_without_run(table: str, *, or_exists: str = "") -> Relation:
    return Relation(
        kind="part_without_run",
        row=f"{table} of run",
        sql=f"""
            SELECT DISTINCT p.run_id AS key FROM {table} p
            WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = p.run_id) {or_exists}
            """,
        text="The run does not exist.",
    )


RELATIONS: Final = (
    Relation(
        kind="delivery_webhook",
        row="delivery",
        sql="""
            SELECT d.id AS key FROM deliveries d WHERE NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.no = d.webhook_no)
            """,
        text="Its webhook does not exist, so no page shows it.",
        advice=REPORT,
    ),
    Relation(
        kind="duplicate_original",
        row="delivery",
        sql="""
            SELECT d.id AS key FROM deliveries d LEFT JOIN deliveries o ON o.id = d.duplicate_of
            WHERE d.label = 2 AND ((o.id IS NULL AND d.duplicate_of > :kept_since) OR o.label <> 1
                OR o.webhook_no <> d.webhook_no)
            """,
        text="Its original is lost, or is no Accepted delivery of the same webhook.",
    ),
    Relation(
        kind="payload_without_delivery",
        row="payload of delivery",
        sql="""
            SELECT p.delivery_id AS key FROM payloads p
            WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = p.delivery_id AND d.label = 1)
                AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = p.delivery_id)
            """,
        text="The log has lost its delivery, or the delivery was not accepted.",
    ),
    Relation(
        kind="identity_missing",
        row="delivery",
        # EXCEPT needs no index of the identities by delivery.
        sql=f"""
            SELECT missing.id AS key FROM (
                SELECT id, webhook_no, identity_digest FROM deliveries
                WHERE label = 1 AND identity_digest IS NOT NULL
                    AND (identity_kind = {IdentityKind.BODY_SHA256:d} OR received_at > :identities_since)
                EXCEPT SELECT delivery_id, webhook_no, digest FROM identities
            ) AS missing
            """,
        text="Its identity is lost, or belongs to another delivery. So a retry of its event would be accepted again.",
    ),
    Relation(
        kind="identity_delivery",
        row="identity of delivery",
        sql=f"""
            SELECT i.delivery_id AS key FROM identities i LEFT JOIN deliveries d ON d.id = i.delivery_id
            WHERE (d.id IS NULL AND i.delivery_id > :kept_since) OR d.label <> 1 OR d.webhook_no <> i.webhook_no
                OR (i.kind <> {IdentityKind.SIGNED_CONTENT:d} AND d.identity_digest <> i.digest)
            """,
        text="The delivery is lost, or has another identity. So a new event may count as a Duplicate.",
    ),
    Relation(
        kind="identity_twice",
        row="identity of delivery",
        sql="""
            SELECT i.delivery_id AS key FROM identities i JOIN (
                SELECT webhook_no, digest FROM identities GROUP BY webhook_no, digest HAVING COUNT(*) > 1
            ) AS twice ON twice.webhook_no = i.webhook_no AND twice.digest = i.digest
            """,
        text="Another delivery has it, too.",
        advice="The event was accepted twice. Check what its second runs have done.",
    ),
    Relation(
        kind="rows_lost",
        row="webhook",
        # A process may count for a deleted webhook after `hookmill doctor` has removed its rows.
        sql=f"""
            SELECT w.uid AS key FROM window_counts c JOIN webhooks w ON w.no = c.webhook_no
            WHERE c.period > :periods_since AND w.deleted_at IS NULL AND c.count > (
                SELECT COUNT(*) FROM deliveries d
                WHERE d.webhook_no = c.webhook_no AND d.rate_limit = c.rate_limit
                    AND d.received_at >= c.period * {PERIOD_US} AND d.received_at < (c.period + 1) * {PERIOD_US}
            )
            """,
        text="The log has fewer deliveries of one period than admission has counted.",
    ),
    Relation(
        kind="run_delivery",
        row="run",
        sql="""
            SELECT r.id AS key FROM runs r LEFT JOIN deliveries d ON d.id = r.delivery_id
            WHERE r.webhook_no <> 0 AND (d.id IS NULL OR d.label <> 1 OR d.webhook_no <> r.webhook_no)
            """,
        text="Its delivery is lost, was not accepted, or belongs to another webhook.",
    ),
    Relation(
        kind="run_automation",
        row="run",
        sql="""
            SELECT r.id AS key FROM runs r
            LEFT JOIN automations a ON a.id = r.automation_id
            LEFT JOIN automation_versions v ON v.automation_id = r.automation_id AND v.version = r.automation_version
            WHERE v.version IS NULL OR a.factory_id <> r.factory_id
            """,
        text="The version of its automation does not exist, so its prompt is lost, or belongs to another factory.",
    ),
    Relation(
        kind="run_replaced",
        row="run",
        sql="""
            SELECT r.id AS key FROM runs r
            WHERE r.replaced_by > :kept_since AND NOT EXISTS (SELECT 1 FROM runs o WHERE o.id = r.replaced_by)
            """,
        text="It was replaced by a run that does not exist.",
    ),
    Relation(
        kind="run_attempts",
        row="run",
        sql="""
            SELECT r.id AS key FROM runs r
            WHERE r.failures <> (SELECT COUNT(*) FROM failed_attempts f WHERE f.run_id = r.id)
                OR (r.state IN ('running', 'succeeded', 'failed') AND r.attempt < 1)
            """,
        text="It counts another number of failed attempts than are stored, or no attempt although it was performed.",
        advice=REPORT,
    ),
    Relation(
        kind="run_times",
        row="run",
        sql=f"""
            SELECT r.id AS key FROM runs r
            WHERE COALESCE(r.started_at, r.finished_at) < r.created_at - {CLOCK_TOLERANCE_US}
                OR r.finished_at < COALESCE(r.started_at, r.created_at) - {CLOCK_TOLERANCE_US}
            """,
        text="It has started or ended before it was created.",
        advice=REPORT,
    ),
    *map(
        _part_without_run,
        ("failed_attempts", "attempt_reports", "run_outputs", "run_results", "platform_attempts"),
    ),
    _part_without_run("run_files", or_exists="AND NOT EXISTS (SELECT 1 FROM removed_runs x WHERE x.run_id = p.run_id)"),
    Relation(
        kind="automation_version",
        row="automation",
        sql="""
            SELECT a.id AS key FROM automations a
            WHERE a.version <> COALESCE(
                (SELECT MAX(v.version) FROM automation_versions v WHERE v.automation_id = a.id), 0
            )
            """,
        text="Its version is not the newest stored one, so its instructions are lost.",
    ),
    Relation(
        kind="identity_segment",
        row="identity segment",
        sql=f"""
            SELECT s.no AS key FROM identity_segments s
            WHERE s.filter_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM identity_filters f WHERE f.no = s.filter_no)
            UNION SELECT i.segment FROM identities i
            WHERE i.segment <> {FIRST_SEGMENT}
                AND NOT EXISTS (SELECT 1 FROM identity_segments s WHERE s.no = i.segment)
            """,
        text="It is not listed, or its filter does not exist. So retries of its events would be accepted again.",
    ),
)


def check_relations(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    parameters = {
        "kept_since": snapshot.kept_since,
        "identities_since": snapshot.now - IDENTITIES_KEPT_DAYS * DAY_US + CLOCK_TOLERANCE_US,
        "periods_since": (snapshot.now - (LOG_DAYS_KEPT - 1) * DAY_US) // PERIOD_US,
    }
    title = "checking relations"
    snapshot.report(title, 0, len(RELATIONS))
    for relation in RELATIONS:
        snapshot.check()
        for row in snapshot.tx.all(f"{relation.sql} LIMIT {ROWS_MAX}", **parameters):
            yield DatabaseProblem(relation.kind, _name(relation.row, row), relation.text, relation.advice)
        snapshot.report(title, 1, len(RELATIONS))


def _name(kind: str, row: Row) -> str:
    key = row["key"]
    if isinstance(key, bytes):
        key = (run_id if kind.endswith("run") else delivery_id)(key)
    return f"{kind} {key}"
