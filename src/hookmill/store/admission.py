"""The transaction in which deliveries are admitted: state, rate, identity, log row and runs, for many at once.

Everything asked of the database here is asked for the exceptions: which webhooks have changed, which budgets would
overflow, which identities were taken. Nearly always the answer is "none", and nothing but the inserts costs anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec

from hookmill.domain.delivery import (
    Accepted,
    Budget,
    Duplicate,
    IdentityKind,
    Label,
    RateLimited,
    Rejected,
    Unavailable,
    rate_limited,
)
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId
from hookmill.domain.limits import WINDOW_SECONDS
from hookmill.domain.run import RunState
from hookmill.store.bulk import RowStatement
from hookmill.store.database import Transaction

WINDOW_US: Final = WINDOW_SECONDS * 1_000_000

Row = tuple[Any, ...]


class RunToStart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: bytes
    automation_id: AutomationId
    automation_version: int


class Plan(msgspec.Struct, kw_only=True, array_like=True, gc=False):
    """What should be written about one attempt, if the webhook is still the one it was judged by.

    `label` is the verdict before identity and rate; only `ACCEPTED` has an identity, a body and runs. Plans travel
    between processes, so they hold plain values.
    """

    delivery: DeliveryKey
    webhook_no: int
    factory_id: FactoryId
    revision: int
    received_at: int
    label: Label
    budget: int
    """The number of a `Budget`."""
    budget_size: int
    size: int
    identity_kind: int | None = None
    """The number of an `IdentityKind`."""
    identity_digest: bytes | None = None
    identity_shown: str | None = None
    replay_digest: bytes | None = None
    """What a replay of the same signed request has again, under whatever id. None where old signatures count."""
    body: bytes | None = None
    runs: tuple[RunToStart, ...] = ()
    reason: str | None = None
    client: str | None = None
    """The address that a refused attempt came from."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The webhook has changed since it was judged. Nothing was written: judge again."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another process is writing at this webhook. Nothing was written: try again in a moment."""


Admission = Accepted | Duplicate | Rejected | RateLimited | Unavailable | Stale
Attempted = Admission | Held

_STALE: Final = Stale()
_HELD: Final = Held()

# Postgres takes the webhooks' places here, and passes by those that somebody else holds: one webhook's wait is not
# everybody's. SQLite already holds the only writer's place.
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
    WITH judged (no, revision) AS ({rows})
    SELECT judged.no, judged.revision
    FROM judged
    LEFT JOIN webhooks w ON w.no = judged.no AND w.revision = judged.revision
    WHERE w.no IS NULL
    """,
    ("int", "bigint"),
)

# Rows from further ahead than a window are from before the clock was set back; they must not close the webhook.
_OVERFLOWING: Final = RowStatement(
    """
    WITH asked (webhook_no, budget, room, since, until) AS ({rows})
    SELECT asked.webhook_no, asked.budget
    FROM asked
    WHERE (
        SELECT COUNT(*)
        FROM deliveries d
        WHERE d.webhook_no = asked.webhook_no AND d.received_at > asked.since AND d.received_at <= asked.until
          AND d.budget = asked.budget
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
    INSERT INTO deliveries (id, webhook_no, received_at, label, budget, size,
                            identity_kind, identity, identity_digest)
    SELECT id, webhook_no, received_at, {Label.ACCEPTED:d}, {Budget.DELIVERIES:d}, size,
           identity_kind, NULLIF(identity, ''), digest
    FROM accepted
    """,
    ("bytea", "int", "bigint", "int", "smallint", "text", "bytea"),
)

_LOG_OTHERS: Final = RowStatement(
    """
    INSERT INTO deliveries (id, webhook_no, received_at, label, budget, size,
                            identity_kind, identity, identity_digest, duplicate_of, reason, client)
    {rows}
    """,
    ("bytea", "int", "bigint", "smallint", "smallint", "int", "smallint", "text", "bytea", "bytea", "text", "text"),
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


def admit(tx: Transaction, plans: Sequence[Plan]) -> list[Attempted]:
    """What became of each plan, in their order. True only once the transaction has committed."""
    outcomes: dict[int, Attempted] = {}
    standing = _judged_by_what_stands(tx, plans, outcomes)
    within = _within_budget(tx, standing, outcomes)
    replayed = _claim_signed_contents(tx, within)
    owners = _claim_identities(tx, [plan for plan in within if id(plan) not in replayed] if replayed else within)

    accepted: list[Row] = []
    bodies: list[Row] = []
    others: list[Row] = []
    runs: list[Row] = []
    for plan in within:
        outcome, duplicate_of = _settle(plan, owners, replayed)
        outcomes[id(plan)] = outcome
        if not isinstance(outcome, Accepted):
            others.append(_other_row(plan, duplicate_of))
            continue
        key = bytearray(plan.delivery)
        accepted.append(
            (
                key,
                plan.webhook_no,
                plan.received_at,
                plan.size,
                plan.identity_kind,
                plan.identity_shown or "",
                bytearray(plan.identity_digest or b""),
            )
        )
        bodies.append((key, bytearray(plan.body or b"")))
        runs += [_run_row(plan, run) for run in plan.runs]
    for statement, rows in (
        (_LOG_ACCEPTED, accepted),
        (_KEEP_BODIES, bodies),
        (_LOG_OTHERS, others),
        (_START_RUNS, runs),
    ):
        if rows:
            statement.execute(tx, rows)
    return [outcomes[id(plan)] for plan in plans]


def _other_row(plan: Plan, duplicate_of: bytes | None) -> Row:
    label = Label.DUPLICATE if duplicate_of else plan.label
    return (
        plan.delivery,
        plan.webhook_no,
        plan.received_at,
        int(label),
        plan.budget,
        plan.size,
        plan.identity_kind,
        plan.identity_shown,
        plan.identity_digest,
        duplicate_of,
        plan.reason,
        plan.client,
    )


def _run_row(plan: Plan, run: RunToStart) -> Row:
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


def _judged_by_what_stands(tx: Transaction, plans: Sequence[Plan], outcomes: dict[int, Attempted]) -> list[Plan]:
    judged = {(plan.webhook_no, plan.revision) for plan in plans}
    held: set[int] = set()
    if not tx.on_sqlite:
        wanted = {no for no, _ in judged}
        held = wanted - {row[0] for row in _LOCK.select(tx, [(no,) for no in sorted(wanted)])}
    changed = {(row[0], row[1]) for row in _CHANGED.select(tx, sorted(judged))}
    standing = []
    for plan in plans:
        if plan.webhook_no in held:
            outcomes[id(plan)] = _HELD
        elif (plan.webhook_no, plan.revision) in changed:
            outcomes[id(plan)] = _STALE
        else:
            standing.append(plan)
    return standing


def _within_budget(tx: Transaction, plans: Sequence[Plan], outcomes: dict[int, Attempted]) -> list[Plan]:
    """The plans that their webhook's window has room for. The log is the limiter: what is counted is what was
    written."""
    asking: dict[tuple[int, int], list[Plan]] = defaultdict(list)
    for plan in plans:
        asking[plan.webhook_no, plan.budget].append(plan)
    asked = []
    for (webhook_no, budget), group in asking.items():
        earliest = min(plan.received_at for plan in group)
        latest = max(plan.received_at for plan in group)
        room = min(plan.budget_size for plan in group) - len(group)
        asked.append((webhook_no, budget, room, earliest - WINDOW_US, latest + WINDOW_US))
    if not asked:
        return []
    overflowing = {(row[0], row[1]) for row in _OVERFLOWING.select(tx, asked)}
    if not overflowing:
        return list(plans)
    for key in overflowing:
        _judge_window(_window(tx, *key, asking[key]), asking[key], outcomes)
    return [plan for plan in plans if id(plan) not in outcomes]


def _window(tx: Transaction, webhook_no: int, budget: int, plans: Sequence[Plan]) -> list[int]:
    rows = tx.all(
        """
        SELECT received_at
        FROM deliveries
        WHERE webhook_no = :webhook AND budget = :budget AND received_at > :since AND received_at <= :until
        ORDER BY received_at
        """,
        webhook=webhook_no,
        budget=budget,
        since=min(plan.received_at for plan in plans) - WINDOW_US,
        until=max(plan.received_at for plan in plans) + WINDOW_US,
    )
    return [row["received_at"] for row in rows]


def _judge_window(counted: list[int], plans: Sequence[Plan], outcomes: dict[int, Attempted]) -> None:
    for plan in plans:
        live = sorted(at for at in counted if abs(plan.received_at - at) < WINDOW_US or at == plan.received_at)
        if len(live) < plan.budget_size:
            counted.append(plan.received_at)
            continue
        # The window has room again when as many have left it as stand above the limit, this one included.
        opens_at = live[len(live) - plan.budget_size] + WINDOW_US
        outcomes[id(plan)] = rate_limited(plan.received_at, opens_at)


def _claim_identities(tx: Transaction, plans: Sequence[Plan]) -> dict[tuple[int, bytes], bytes]:
    """Which delivery owns each identity. The constraint lets the first in; the losers read who won."""
    return _claim(
        tx,
        [
            (plan, plan.identity_digest, plan.identity_kind)
            for plan in plans
            if plan.identity_digest is not None and plan.identity_kind is not None
        ],
    )


def _claim_signed_contents(tx: Transaction, plans: Sequence[Plan]) -> dict[int, bytes]:
    """The plans that replay a signed request, each with the delivery that it replays.

    Their own ids count for nothing: whoever captured a request can change every header that isn't signed.
    """
    signed = [(plan, plan.replay_digest) for plan in plans if plan.replay_digest is not None]
    if not signed:
        return {}
    owners = _claim(tx, [(plan, digest, int(IdentityKind.SIGNED_CONTENT)) for plan, digest in signed])
    return {id(plan): owner for plan, digest in signed if (owner := owners[plan.webhook_no, digest]) != plan.delivery}


def _claim(tx: Transaction, wanted: Sequence[tuple[Plan, bytes, int]]) -> dict[tuple[int, bytes], bytes]:
    """The owner of each digest that a plan wants for its own, as an identity of that kind."""
    claims: dict[tuple[int, bytes], Row] = {}
    for plan, digest, kind in wanted:
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


def _settle(
    plan: Plan, owners: dict[tuple[int, bytes], bytes], replayed: dict[int, bytes]
) -> tuple[Admission, bytes | None]:
    match plan.label:
        case Label.ACCEPTED | Label.DUPLICATE:
            assert plan.identity_digest is not None
            owner = replayed.get(id(plan)) or owners[plan.webhook_no, plan.identity_digest]
            if owner == plan.delivery:
                return Accepted(plan.delivery), None
            return Duplicate(plan.delivery, DeliveryKey(owner)), owner
        case Label.REJECTED_AUTH | Label.REJECTED_INVALID_JSON | Label.REJECTED_TOO_LARGE:
            return Rejected(plan.label), None
        case _:
            assert_never(plan.label)


def add_refusals(tx: Transaction, counts: Iterable[tuple[int, int, str, int]]) -> None:
    """Add to the counters of attempts without a log row: (webhook, start of the minute, kind, how many)."""
    # PostgreSQL adds to a row once in a statement.
    totals: dict[tuple[int, int, str], int] = defaultdict(int)
    for webhook_no, minute, kind, count in counts:
        totals[webhook_no, minute, kind] += count
    if totals:
        _COUNT_REFUSALS.execute(tx, sorted((*key, count) for key, count in totals.items()))


_COUNT_REFUSALS: Final = RowStatement(
    """
    INSERT INTO refusals (webhook_no, minute, kind, count)
    {rows}
    ON CONFLICT (webhook_no, minute, kind) DO UPDATE SET count = refusals.count + excluded.count
    """,
    ("int", "bigint", "text", "int"),
)
