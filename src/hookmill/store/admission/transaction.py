"""The transaction in which deliveries are admitted: revision, rate limit, identity, log row and runs, for many plans.

Every question to the database here is about exceptions: which webhooks have changed, which rate limits would be
exceeded, which identities are taken. Nearly always the answer is "none", and only the inserts cost anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, assert_never

import msgspec

from hookmill.domain.delivery import (
    Accepted,
    Duplicate,
    IdentityKind,
    Label,
    RateLimit,
    RateLimited,
    Recorded,
    Rejected,
    Unavailable,
    rate_limited,
)
from hookmill.domain.ids import DeliveryKey
from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.domain.run import RunState
from hookmill.store import dialect
from hookmill.store.admission.plan import Acceptance, Plan, Rejection, RunToStart
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Transaction

WINDOW_US: Final = WINDOW_SECONDS * 1_000_000

_COLUMN_TYPES: Final[dict[Any, str]] = {str | None: "text", bool | None: "boolean"}
RECORDED: Final = {field.name: _COLUMN_TYPES[field.type] for field in msgspec.structs.fields(Recorded)}
"""The columns of what is recorded beside, each with PostgreSQL's type."""
_NOTHING_RECORDED: Final = msgspec.structs.astuple(Recorded())

Row = tuple[Any, ...]


class Stale(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The webhook has changed since the attempt was evaluated. Nothing was written: evaluate again."""


class LockContended(msgspec.Struct, frozen=True, gc=False):
    """Another process is writing at this webhook. Nothing was written: try again in a moment."""


Admission = Accepted | Duplicate | Rejected | RateLimited | Unavailable | Stale
Tried = Admission | LockContended

_STALE: Final = Stale()
_LOCK_CONTENDED: Final = LockContended()

# PostgreSQL locks the webhooks' rows here, and skips those that another process has locked: others don't wait for them.
# SQLite has one writer.
_LOCK: Final = RowStatement(
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

# Rows from further ahead than a window are from before the clock was set back; they must not close the webhook.
_EXCEEDED: Final = RowStatement(
    """
    WITH asked (webhook_no, rate_limit, room, since, until) AS ({rows})
    SELECT asked.webhook_no, asked.rate_limit
    FROM asked
    WHERE (
        SELECT COUNT(*)
        FROM deliveries d
        WHERE d.webhook_no = asked.webhook_no AND d.received_at > asked.since AND d.received_at <= asked.until
          AND d.rate_limit = asked.rate_limit
    ) > asked.room
    """,
    ("int", "smallint", "int", "bigint", "bigint"),
)

_CLAIM: Final = RowStatement(
    """
    INSERT INTO identities (webhook_no, digest, delivery_id, kind, claimed_at)
    {rows}
    ON CONFLICT (webhook_no, digest) DO NOTHING
    """,
    ("int", "bytea", "bytea", "smallint", "bigint"),
)

_OWNERS: Final = RowStatement(
    """
    WITH asked (webhook_no, digest) AS ({rows})
    SELECT i.webhook_no, i.digest, i.delivery_id
    FROM asked
    JOIN identities i ON i.webhook_no = asked.webhook_no AND i.digest = asked.digest
    """,
    ("int", "bytea"),
)

_LOG_ACCEPTED: Final = RowStatement(
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

_LOG_OTHERS: Final = RowStatement(
    f"""
    INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size,
                            identity_kind, identity, identity_digest, duplicate_of, {", ".join(RECORDED)})
    {{rows}}
    """,
    (
        *("bytea", "int", "bigint", "smallint", "smallint", "int", "smallint", "text", "bytea", "bytea"),
        *RECORDED.values(),
    ),
)

_KEEP_BODIES: Final = RowStatement(
    "INSERT INTO payloads (delivery_id, body) {rows}",
    ("bytea", "bytea"),
)

_START_RUNS: Final = RowStatement(
    """
    INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                      state, attempt, created_at)
    {rows}
    """,
    ("bytea", "bytea", "int", "text", "text", "int", "text", "int", "bigint"),
)


def admit(tx: Transaction, plans: Sequence[Plan]) -> list[Tried]:
    """The outcome of each plan, in their order. It holds once the transaction has committed."""
    outcomes: list[Tried | None] = [None] * len(plans)
    _revalidate(tx, plans, outcomes)
    _limit_rates(tx, plans, outcomes)
    acceptances = [(position, plan) for position, plan in _undecided(plans, outcomes) if isinstance(plan, Acceptance)]
    originals = _claim_identities(tx, acceptances)

    accepted: list[Row] = []
    bodies: list[Row] = []
    others: list[Row] = []
    runs: list[Row] = []
    for position, plan in _undecided(plans, outcomes):
        match plan:
            case Rejection():
                outcomes[position] = Rejected(plan.label)
                others.append(_rejected_row(plan))
            case Acceptance() if (original := originals.get(position)) is not None:
                outcomes[position] = Duplicate(plan.delivery, DeliveryKey(original))
                others.append(_identified_row(plan, Label.DUPLICATE, original))
            case Acceptance():
                outcomes[position] = Accepted(plan.delivery)
                key = bytearray(plan.delivery)
                if plan.recorded is None:
                    accepted.append(_accepted_row(key, plan))
                else:
                    others.append(_identified_row(plan, Label.ACCEPTED, None))
                bodies.append((key, bytearray(plan.body)))
                runs += [_run_row(plan, run) for run in plan.runs]
            case _:
                assert_never(plan)
    for statement, rows in (
        (_LOG_ACCEPTED, accepted),
        (_KEEP_BODIES, bodies),
        (_LOG_OTHERS, others),
        (_START_RUNS, runs),
    ):
        if rows:
            statement.execute(tx, rows)
    return [outcome for outcome in outcomes if outcome is not None]


def _undecided(plans: Sequence[Plan], outcomes: Sequence[Tried | None]) -> Iterator[tuple[int, Plan]]:
    """The plans without an outcome, each with its position."""
    for position, plan in enumerate(plans):
        if outcomes[position] is None:
            yield position, plan


def _accepted_row(key: bytearray, plan: Acceptance) -> Row:
    kind, digest, shown = plan.identity
    return key, plan.webhook_no, plan.received_at, plan.size, int(kind), shown or "", bytearray(digest)


def _identified_row(plan: Acceptance, label: Label, duplicate_of: bytes | None) -> Row:
    kind, digest, shown = plan.identity
    return (
        plan.delivery,
        plan.webhook_no,
        plan.received_at,
        int(label),
        plan.rate_limit,
        plan.size,
        int(kind),
        shown,
        digest,
        duplicate_of,
        *_recorded_values(plan),
    )


def _rejected_row(plan: Rejection) -> Row:
    return (
        plan.delivery,
        plan.webhook_no,
        plan.received_at,
        int(plan.label),
        plan.rate_limit,
        plan.size,
        None,
        None,
        None,
        None,
        *_recorded_values(plan),
    )


def _recorded_values(plan: Plan) -> Row:
    return msgspec.structs.astuple(plan.recorded) if plan.recorded is not None else _NOTHING_RECORDED


def _run_row(plan: Acceptance, run: RunToStart) -> Row:
    return (
        run.key,
        plan.delivery,
        plan.webhook_no,
        plan.factory_id,
        run.automation_id,
        run.automation_version,
        RunState.QUEUED.value,
        0,
        plan.received_at,
    )


def _revalidate(tx: Transaction, plans: Sequence[Plan], outcomes: list[Tried | None]) -> None:
    """Decide the plans whose webhook has changed, or is locked by another process."""
    evaluated = {(plan.webhook_no, plan.revision) for plan in plans}
    contended: set[int] = set()
    if dialect.has_row_locks(tx):
        wanted = {no for no, _ in evaluated}
        contended = wanted - {row[0] for row in _LOCK.select(tx, [(no,) for no in sorted(wanted)])}
    changed = {(row[0], row[1]) for row in _CHANGED.select(tx, sorted(evaluated))}
    if not contended and not changed:
        return
    for position, plan in enumerate(plans):
        if plan.webhook_no in contended:
            outcomes[position] = _LOCK_CONTENDED
        elif (plan.webhook_no, plan.revision) in changed:
            outcomes[position] = _STALE


def _limit_rates(tx: Transaction, plans: Sequence[Plan], outcomes: list[Tried | None]) -> None:
    """Decide the plans for which a webhook's sliding window has no room. The log is the limiter: the rows count."""
    groups: dict[tuple[int, int], list[tuple[int, Plan]]] = defaultdict(list)
    for position, plan in _undecided(plans, outcomes):
        groups[plan.webhook_no, plan.rate_limit].append((position, plan))
    windows = []
    for (webhook_no, limit), group in groups.items():
        earliest = min(plan.received_at for _, plan in group)
        latest = max(plan.received_at for _, plan in group)
        room = min(plan.per_minute for _, plan in group) - len(group)
        windows.append((webhook_no, limit, room, earliest - WINDOW_US, latest + WINDOW_US))
    if not windows:
        return
    for row in _EXCEEDED.select(tx, windows):
        group = groups[row[0], row[1]]
        _limit_one_by_one(_received_in_window(tx, row[0], row[1], group), group, outcomes)


def _received_in_window(tx: Transaction, webhook_no: int, limit: int, group: Sequence[tuple[int, Plan]]) -> list[int]:
    rows = tx.all(
        """
        SELECT received_at
        FROM deliveries
        WHERE webhook_no = :webhook AND rate_limit = :limit AND received_at > :since AND received_at <= :until
        ORDER BY received_at
        """,
        webhook=webhook_no,
        limit=limit,
        since=min(plan.received_at for _, plan in group) - WINDOW_US,
        until=max(plan.received_at for _, plan in group) + WINDOW_US,
    )
    return [row["received_at"] for row in rows]


def _limit_one_by_one(counted: list[int], group: Sequence[tuple[int, Plan]], outcomes: list[Tried | None]) -> None:
    for position, plan in group:
        live = sorted(at for at in counted if abs(plan.received_at - at) < WINDOW_US or at == plan.received_at)
        if len(live) < plan.per_minute:
            counted.append(plan.received_at)
            continue
        # The window has room again when as many have left it as stand above the limit, this one included.
        opens_at = live[len(live) - plan.per_minute] + WINDOW_US
        outcomes[position] = rate_limited(plan.received_at, opens_at)


def _claim_identities(tx: Transaction, acceptances: Sequence[tuple[int, Acceptance]]) -> dict[int, bytes]:
    """The plans that are duplicates, by position, each with the delivery that was accepted before.

    The constraint lets the first in; the others read which one it was. A replay of a signed request claims nothing
    under its own id: an attacker who captured a request can change every header that isn't signed.
    """
    originals: dict[int, bytes] = {}
    signed = [(position, plan, digest) for position, plan in acceptances if (digest := plan.replay_digest) is not None]
    owners = _claim(tx, [(plan, digest, int(IdentityKind.SIGNED_CONTENT)) for _, plan, digest in signed])
    for position, plan, digest in signed:
        if (owner := owners[plan.webhook_no, digest]) != plan.delivery:
            originals[position] = owner
    claiming = [(position, plan) for position, plan in acceptances if position not in originals]
    owners = _claim(tx, [(plan, plan.identity.digest, int(plan.identity.kind)) for _, plan in claiming])
    for position, plan in claiming:
        if (owner := owners[plan.webhook_no, plan.identity.digest]) != plan.delivery:
            originals[position] = owner
    return originals


def _claim(tx: Transaction, claimed: Sequence[tuple[Acceptance, bytes, int]]) -> dict[tuple[int, bytes], bytes]:
    """The delivery that owns each digest, of those that plans claim as an identity of that kind."""
    claims: dict[tuple[int, bytes], Row] = {}
    for plan, digest, kind in claimed:
        key = (plan.webhook_no, digest)
        if key not in claims:
            claims[key] = (key[0], bytearray(digest), bytearray(plan.delivery), kind, plan.received_at)
    if not claims:
        return {}
    owners = {key: bytes(claim[2]) for key, claim in claims.items()}
    if _CLAIM.execute(tx, list(claims.values())) == len(claims):
        return owners
    for webhook_no, digest, delivery in _OWNERS.select(tx, list(claims)):
        owners[webhook_no, bytes(digest)] = bytes(delivery)
    return owners


def add_dropped(tx: Transaction, counts: Iterable[tuple[int, int, str, int]]) -> None:
    """Add to the counters of dropped attempts, which have no log row: (webhook, start of the minute, kind, count)."""
    # PostgreSQL adds to a row once in a statement.
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
