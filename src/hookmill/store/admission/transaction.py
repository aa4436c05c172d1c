"""The transaction that admits plans: it checks revisions, rate limits and identities, and inserts log rows and runs.

Each query returns only the problem cases: webhooks that have changed, rate limits that would be exceeded, identities
that are taken. Its result is nearly always empty.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, assert_never

import msgspec

from hookmill.domain.delivery import (
    Accepted,
    Duplicate,
    Label,
    LogDetails,
    RateLimit,
    RateLimited,
    Rejected,
    Unavailable,
    rate_limited,
)
from hookmill.domain.ids import DeliveryKey
from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.domain.run import Hold, RunState
from hookmill.domain.run_policy import Priority
from hookmill.store import dialect
from hookmill.store.admission import window_counts
from hookmill.store.admission.claims import claim_identities
from hookmill.store.admission.plan import Acceptance, Plan, Rejection, RunToStart
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Transaction
from hookmill.store.identity_segments import SegmentCache

WINDOW_US: Final = WINDOW_SECONDS * 1_000_000

_POSTGRES_TYPES: Final[dict[Any, str]] = {str | None: "text", bool | None: "boolean"}
LOG_DETAIL_COLUMNS: Final = {field.name: _POSTGRES_TYPES[field.type] for field in msgspec.structs.fields(LogDetails)}
"""The columns of `LogDetails`, each with its type in PostgreSQL."""
_NO_LOG_DETAILS: Final = msgspec.structs.astuple(LogDetails())

RowValues = tuple[Any, ...]


class Stale(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The webhook has changed since the attempt was evaluated. Nothing was written; evaluate the attempt again."""


class LockContended(msgspec.Struct, frozen=True, gc=False):
    """Another process has locked the webhook. Nothing was written; the writer retries the plan."""


AdmissionOutcome = Accepted | Duplicate | Rejected | RateLimited | Unavailable | Stale
PlanOutcome = AdmissionOutcome | LockContended

_STALE: Final = Stale()
_LOCK_CONTENDED: Final = LockContended()

# PostgreSQL skips rows that another process has locked, so that other webhooks don't wait for them. SQLite has one
# writer, and needs no locks.
_LOCK_WEBHOOKS: Final = RowStatement(
    """
    SELECT no
    FROM webhooks
    WHERE no IN ({rows})
    FOR NO KEY UPDATE SKIP LOCKED
    """,
    ("int",),
)

_CHANGED: Final = RowStatement(
    """
    WITH evaluated (no, revision) AS ({rows})
    SELECT evaluated.no, evaluated.revision
    FROM evaluated
    LEFT JOIN webhooks w ON w.no = evaluated.no AND w.revision = evaluated.revision
    WHERE w.no IS NULL
    """,
    ("int", "bigint"),
)

# If the log has at most `stored_rows_allowed` rows from `since` to `until`, no plan exceeds the rate limit. `since` is
# 60 s before the oldest plan, and `until` 60 s after the newest one. Later rows exist only if the clock was set back.
_EXCEEDED: Final = RowStatement(
    """
    WITH windows (webhook_no, rate_limit, stored_rows_allowed, since, until) AS ({rows})
    SELECT windows.webhook_no, windows.rate_limit
    FROM windows
    WHERE (
        SELECT COUNT(*)
        FROM deliveries d
        WHERE d.webhook_no = windows.webhook_no AND d.received_at > windows.since AND d.received_at <= windows.until
          AND d.rate_limit = windows.rate_limit
    ) > windows.stored_rows_allowed
    """,
    ("int", "smallint", "int", "bigint", "bigint"),
)

_INSERT_PLAIN_LOG_ROWS: Final = RowStatement(
    f"""
    WITH accepted (id, webhook_no, received_at, size, identity_kind, identity, digest) AS ({{rows}})
    INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size,
                            identity_kind, identity, identity_digest)
    SELECT id, webhook_no, received_at, {Label.ACCEPTED:d}, {RateLimit.DELIVERIES:d}, size,
           identity_kind, NULLIF(identity, ''), digest
    FROM accepted
    """,
    ("bytea", "int", "bigint", "int", "smallint", "text", "bytea"),
)

_INSERT_LOG_ROWS: Final = RowStatement(
    f"""
    INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size,
                            identity_kind, identity, identity_digest, duplicate_of, {", ".join(LOG_DETAIL_COLUMNS)})
    {{rows}}
    """,
    (
        *("bytea", "int", "bigint", "smallint", "smallint", "int", "smallint", "text", "bytea", "bytea"),
        *LOG_DETAIL_COLUMNS.values(),
    ),
)

_INSERT_BODIES: Final = RowStatement(
    "INSERT INTO payloads (delivery_id, body) {rows}",
    ("bytea", "bytea"),
)

_RUN_TYPES: Final = ("bytea", "bytea", "int", "text", "text", "int", "text", "int", "bigint")

_INSERT_RUNS: Final = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                      state, attempt, created_at)
    {rows}
    """,
    _RUN_TYPES,
)


_INSERT_RUNS_WITH_POLICY: Final = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                      state, attempt, created_at, priority, policy_key, hold)
    {rows}
    """,
    (*_RUN_TYPES, "smallint", "bytea", "smallint"),
)

_INSERT_INTERRUPTED_RUNS: Final = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                      state, attempt, created_at, finished_at, reason)
    {rows}
    """,
    (*_RUN_TYPES, "bigint", "text"),
)


def admit(
    tx: Transaction,
    plans: Sequence[Plan],
    *,
    segments: SegmentCache | None = None,
    has_window_counts: bool = False,
) -> list[PlanOutcome]:
    """The outcome of each plan, in the same order. An outcome is final once the transaction has committed.

    `segments`: what this process knows about the segments of the identities; without it, it is read anew.
    `has_window_counts`: whether `window_counts` is complete for the present windows of high rate limits.
    """
    outcomes: list[PlanOutcome | None] = [None] * len(plans)
    _revalidate(tx, plans, outcomes)
    _limit_rates(tx, plans, outcomes, has_window_counts)
    acceptances = [(position, plan) for position, plan in _undecided(plans, outcomes) if isinstance(plan, Acceptance)]
    originals_by_position = claim_identities(tx, acceptances, segments or SegmentCache())

    plain_log_rows: list[RowValues] = []
    """Accepted deliveries without log details. Most rows are of this kind, so they have a shorter statement."""
    log_rows: list[RowValues] = []
    body_rows: list[RowValues] = []
    run_rows: list[RowValues] = []
    run_rows_with_policy: list[RowValues] = []
    """The rows of runs with a policy key, or with another priority than normal."""
    interrupted_run_rows: list[RowValues] = []
    counted_rows: list[tuple[int, int, int]] = []
    for position, plan in _undecided(plans, outcomes):
        if plan.per_minute > window_counts.ROWS_COUNTED_MAX:
            counted_rows.append((plan.webhook_no, plan.rate_limit, plan.received_at))
        match plan:
            case Rejection():
                outcomes[position] = Rejected(plan.label)
                log_rows.append(_rejected_log_row(plan))
            case Acceptance() if (original := originals_by_position.get(position)) is not None:
                outcomes[position] = Duplicate(plan.delivery_key, DeliveryKey(original))
                log_rows.append(_identified_log_row(plan, Label.DUPLICATE, original))
            case Acceptance():
                outcomes[position] = Accepted(plan.delivery_key)
                key = bytearray(plan.delivery_key)  # A bytearray is bound faster than bytes: see `store/bulk.py`.
                if plan.log_details is None:
                    plain_log_rows.append(_plain_log_row(key, plan))
                else:
                    log_rows.append(_identified_log_row(plan, Label.ACCEPTED, None))
                body_rows.append((key, bytearray(plan.body)))
                for run in plan.runs:
                    if run.interrupted_because is not None:
                        row = _run_row(plan, run, RunState.INTERRUPTED)
                        interrupted_run_rows.append((*row, plan.received_at, run.interrupted_because))
                    elif run.policy_key is None and run.priority == Priority.NORMAL.rank:
                        run_rows.append(_run_row(plan, run))
                    else:
                        run_rows_with_policy.append((*_run_row(plan, run), *_policy_values(run)))
            case _:
                assert_never(plan)
    for statement, rows in (
        (_INSERT_PLAIN_LOG_ROWS, plain_log_rows),
        (_INSERT_BODIES, body_rows),
        (_INSERT_LOG_ROWS, log_rows),
        (_INSERT_RUNS, run_rows),
        (_INSERT_RUNS_WITH_POLICY, run_rows_with_policy),
        (_INSERT_INTERRUPTED_RUNS, interrupted_run_rows),
    ):
        if rows:
            statement.execute(tx, rows)
    window_counts.add(tx, counted_rows)
    return [outcome for outcome in outcomes if outcome is not None]


def _undecided(plans: Sequence[Plan], outcomes: Sequence[PlanOutcome | None]) -> Iterator[tuple[int, Plan]]:
    """The plans without an outcome, each with its position."""
    for position, plan in enumerate(plans):
        if outcomes[position] is None:
            yield position, plan


def _plain_log_row(key: bytearray, plan: Acceptance) -> RowValues:
    kind, digest, display_text = plan.identity
    return key, plan.webhook_no, plan.received_at, plan.size, int(kind), display_text or "", bytearray(digest)


def _identified_log_row(plan: Acceptance, label: Label, duplicate_of: bytes | None) -> RowValues:
    kind, digest, display_text = plan.identity
    return (
        plan.delivery_key,
        plan.webhook_no,
        plan.received_at,
        int(label),
        plan.rate_limit,
        plan.size,
        int(kind),
        display_text,
        digest,
        duplicate_of,
        *_log_detail_values(plan),
    )


def _rejected_log_row(plan: Rejection) -> RowValues:
    return (
        plan.delivery_key,
        plan.webhook_no,
        plan.received_at,
        int(plan.label),
        plan.rate_limit,
        plan.size,
        None,  # identity_kind
        None,  # identity
        None,  # identity_digest
        None,  # duplicate_of
        *_log_detail_values(plan),
    )


def _log_detail_values(plan: Plan) -> RowValues:
    return msgspec.structs.astuple(plan.log_details) if plan.log_details is not None else _NO_LOG_DETAILS


def _run_row(plan: Acceptance, run: RunToStart, state: RunState = RunState.QUEUED) -> RowValues:
    return (
        run.key,
        plan.delivery_key,
        plan.webhook_no,
        plan.factory_id,
        run.automation_id,
        run.automation_version,
        state.value,
        0,
        plan.received_at,
    )


def _policy_values(run: RunToStart) -> RowValues:
    return run.priority, run.policy_key, int(Hold.NEW) if run.policy_key is not None else None


def _revalidate(tx: Transaction, plans: Sequence[Plan], outcomes: list[PlanOutcome | None]) -> None:
    """Set the outcomes of plans whose webhook has changed, or is locked by another process."""
    evaluated = {(plan.webhook_no, plan.revision) for plan in plans}
    contended: set[int] = set()
    if dialect.has_row_locks(tx):
        webhook_numbers = {no for no, _ in evaluated}
        contended = webhook_numbers - {
            row[0] for row in _LOCK_WEBHOOKS.select(tx, [(no,) for no in sorted(webhook_numbers)])
        }
    changed_revisions = {(row[0], row[1]) for row in _CHANGED.select(tx, sorted(evaluated))}
    if not contended and not changed_revisions:
        return
    for position, plan in enumerate(plans):
        if plan.webhook_no in contended:
            outcomes[position] = _LOCK_CONTENDED
        elif (plan.webhook_no, plan.revision) in changed_revisions:
            outcomes[position] = _STALE


def _limit_rates(
    tx: Transaction, plans: Sequence[Plan], outcomes: list[PlanOutcome | None], has_window_counts: bool
) -> None:
    """Set the outcomes of plans that exceed a rate limit, which counts the log rows in a sliding window.

    `plan.rate_limit` is the number of the `RateLimit`, and `plan.per_minute` is the limit itself.
    """
    groups_by_limit: dict[tuple[int, int], list[tuple[int, Plan]]] = defaultdict(list)
    for position, plan in _undecided(plans, outcomes):
        groups_by_limit[plan.webhook_no, plan.rate_limit].append((position, plan))
    windows: list[window_counts.Window] = []
    large_windows: list[window_counts.Window] = []
    for (webhook_no, rate_limit), group in groups_by_limit.items():
        earliest = min(plan.received_at for _, plan in group)
        latest = max(plan.received_at for _, plan in group)
        lowest_limit = min(plan.per_minute for _, plan in group)
        window = (webhook_no, rate_limit, lowest_limit - len(group), earliest - WINDOW_US, latest + WINDOW_US)
        if has_window_counts and lowest_limit > window_counts.ROWS_COUNTED_MAX:
            large_windows.append(window)
        else:
            windows.append(window)
    windows += window_counts.windows_to_count(tx, large_windows)
    if not windows:
        return
    for row in _EXCEEDED.select(tx, windows):
        group = groups_by_limit[row[0], row[1]]
        _refuse_excess(_times_received_near(tx, row[0], row[1], group), group, outcomes)


def _times_received_near(
    tx: Transaction, webhook_no: int, rate_limit: int, group: Sequence[tuple[int, Plan]]
) -> list[int]:
    """The times of the log rows that can be in the sliding window of a plan of the group, oldest first."""
    return tx.scalars(
        """
        SELECT received_at
        FROM deliveries
        WHERE webhook_no = :webhook AND rate_limit = :rate_limit AND received_at > :since AND received_at <= :until
        ORDER BY received_at
        """,
        webhook=webhook_no,
        rate_limit=rate_limit,
        since=min(plan.received_at for _, plan in group) - WINDOW_US,
        until=max(plan.received_at for _, plan in group) + WINDOW_US,
    )


def _refuse_excess(
    received_times: list[int], group: Sequence[tuple[int, Plan]], outcomes: list[PlanOutcome | None]
) -> None:
    """Set the outcomes of the group's plans above the rate limit.

    `received_times` are the times of the counted log rows. The times of admitted plans are added to it.
    """
    for position, plan in group:
        in_window = sorted(at for at in received_times if abs(plan.received_at - at) < WINDOW_US)
        if len(in_window) < plan.per_minute:
            received_times.append(plan.received_at)
            continue
        row_that_opens_the_limit = in_window[len(in_window) - plan.per_minute]
        # When this row leaves the window, only `per_minute - 1` of these rows remain, so the limit admits a delivery
        # again.
        outcomes[position] = rate_limited(plan.received_at, row_that_opens_the_limit + WINDOW_US)


def add_dropped_counts(tx: Transaction, counts: Iterable[tuple[int, int, str, int]]) -> None:
    """Add to the counters of dropped attempts: (webhook number, start of the minute in µs, kind, count)."""
    # PostgreSQL rejects a statement that updates the same row twice.
    totals: dict[tuple[int, int, str], int] = defaultdict(int)
    for webhook_no, minute, kind, count in counts:
        totals[webhook_no, minute, kind] += count
    if totals:
        _COUNT_DROPPED.execute(tx, sorted((*key, count) for key, count in totals.items()))


_COUNT_DROPPED: Final = RowStatement(
    """
    INSERT INTO dropped_attempts (webhook_no, minute, kind, count)
    {rows}
    ON CONFLICT (webhook_no, minute, kind) DO UPDATE SET count = dropped_attempts.count + excluded.count
    """,
    ("int", "bigint", "text", "int"),
)
