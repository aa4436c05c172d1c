"""Runs as rows: the truth about each, whoever performs it.

An unfinished run is either in the backlog (`claimed_at` is empty) or in the hands of the one executor that its row
names. Only that executor begins an attempt, and only the latest attempt ends it: what a stale worker writes has no
effect.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain, islice, product, zip_longest
from typing import Final, NewType

from hookmill.domain.automation import Automation
from hookmill.domain.event import EventType
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId, RunKey, WebhookUid
from hookmill.domain.run import Ended, Run, RunState
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction

ExecutorId = NewType("ExecutorId", str)
"""One life of a process that performs runs. A restarted process is another executor."""

_RUN: Final = """
    SELECT
        runs.id, runs.delivery_id, runs.factory_id, runs.automation_id, runs.automation_version, runs.state,
        runs.attempt, runs.created_at, runs.claimed_at, runs.started_at, runs.finished_at,
        runs.cancel_requested_at, runs.exit_status, runs.output_tail, runs.reason, runs.replay,
        webhooks.uid AS webhook_uid, webhooks.name AS webhook_name, deliveries.event, deliveries.event_signed,
        automation_versions.name AS automation_name, automation_versions.prompt, automation_versions.runner
    FROM runs
    JOIN webhooks ON webhooks.no = runs.webhook_no
    JOIN automation_versions
        ON automation_versions.automation_id = runs.automation_id
        AND automation_versions.version = runs.automation_version
    LEFT JOIN deliveries ON deliveries.id = runs.delivery_id
"""


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def run_of(tx: Transaction, key: RunKey, *, factory: FactoryId | None = None) -> Run | None:
    """The run, or None when there is none; with `factory`, also when it is another factory's."""
    row = tx.one(_RUN + "WHERE runs.id = :id", id=key)
    if row is None or (factory is not None and row["factory_id"] != factory):
        return None
    return _run(row)


def page_of_runs(
    tx: Transaction,
    *,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    automation: AutomationId | None = None,
    delivery: DeliveryKey | None = None,
    state: RunState | None = None,
    before: RunKey | None = None,
    limit: int = 50,
) -> list[Run]:
    """A factory's runs, newest first; of one webhook, automation, delivery or state if asked. `before`: the last seen.

    Each walk through an index finds `limit` at most: a page takes as long among millions of runs as among few.
    """
    walks = [
        f"SELECT id FROM (SELECT id FROM runs WHERE {place.where} AND {condition} AND id < :before "
        f"ORDER BY {place.order} LIMIT :limit) AS walk_{number}"
        for number, (place, condition) in enumerate(
            product(
                _places(tx, factory, webhook, automation, delivery, state),
                _CONDITIONS[state] if state is not None else ["1 = 1"],
            )
        )
    ]
    found: list[Run] = []
    dialect.plan_for_values(tx)
    for start in range(0, len(walks), _WALKS_AT_ONCE):
        rows = tx.all(
            f"""
            {_RUN}
            JOIN (
                SELECT id FROM ({" UNION ".join(walks[start : start + _WALKS_AT_ONCE])}) AS found
                ORDER BY id DESC LIMIT :limit
            ) AS page ON page.id = runs.id
            ORDER BY runs.id DESC
            """,
            before=before or b"\xff" * 16,
            limit=limit,
            **({"factory": factory} if delivery is None and state in _UNFINISHED else {}),
            **({"automation": automation} if automation is not None else {}),
            **({"delivery": delivery} if delivery is not None else {}),
        )
        found += map(_run, rows)
    return sorted(found, key=lambda run: run.id, reverse=True)[:limit]


_WALKS_AT_ONCE: Final = 100
_UNFINISHED: Final = (RunState.QUEUED, RunState.RUNNING)
_CONDITIONS: Final[dict[RunState, list[str]]] = {
    # In the words of the indexes: those of the waiting, of those in hand, and of those that ended otherwise than well.
    **{
        state: [
            f"state = '{state}' AND finished_at IS NULL AND claimed_at IS NULL",
            f"state = '{state}' AND id IN (SELECT id FROM runs WHERE finished_at IS NULL AND executor IS NOT NULL)",
        ]
        for state in _UNFINISHED
    },
    RunState.SUCCEEDED: ["state = 'succeeded'"],
    **{
        state: [f"state = '{state}' AND state IN ('failed', 'cancelled', 'interrupted')"]
        for state in (RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED)
    },
}


@dataclass(frozen=True, slots=True)
class _Place:
    """A stretch of an index to walk through, newest first."""

    where: str
    order: str = "id DESC"


def _places(
    tx: Transaction,
    factory: FactoryId,
    webhook: WebhookUid | None,
    automation: AutomationId | None,
    delivery: DeliveryKey | None,
    state: RunState | None,
) -> list[_Place]:
    """Where to walk: through one delivery's runs, the factory's unfinished ones, or those of each webhook, or of each
    webhook and one automation."""
    rows = tx.all("SELECT no, uid FROM webhooks WHERE factory_id = :factory ORDER BY no", factory=factory)
    numbers = [row["no"] for row in rows if webhook in (None, row["uid"])]
    if delivery is None and state not in _UNFINISHED:
        if automation is not None:
            return [_of_automation(tx, no, state) for no in numbers]
        return [_Place(f"webhook_no = {no:d}") for no in numbers]
    place = "delivery_id = :delivery" if delivery is not None else "factory_id = :factory"
    # The plus, and the empty text, keep SQLite from walking through every run of a webhook or an automation instead.
    by_automation = "automation_id || '' = :automation AND " if automation is not None else ""
    if not numbers:
        return []
    return [_Place(f"{place} AND {by_automation}+webhook_no IN ({', '.join(map(str, numbers))})")]


def _of_automation(tx: Transaction, no: int, state: RunState | None) -> _Place:
    """The runs that one webhook gave one automation."""
    prefix = {"automation_id": ":automation", "webhook_no": str(int(no))}
    if state not in (None, RunState.SUCCEEDED):
        prefix["state"] = f"'{state}'"
    return _Place(*dialect.index_range(tx, prefix, "id", ":before"))


def newest_by_automation(tx: Transaction, factory: FactoryId) -> dict[AutomationId, Run]:
    """The newest run of each of the factory's automations that has one."""
    # For each automation from one webhook to the next through the index, and there to the last entry alone.
    rows = tx.all(
        """
        WITH RECURSIVE heard (automation_id, webhook_no) AS (
            SELECT a.id, (SELECT MIN(r.webhook_no) FROM runs r WHERE r.automation_id = a.id)
            FROM automations a
            WHERE a.factory_id = :factory AND a.deleted_at IS NULL
            UNION ALL
            SELECT h.automation_id, (
                SELECT MIN(r.webhook_no) FROM runs r
                WHERE r.automation_id = h.automation_id AND r.webhook_no > h.webhook_no
            )
            FROM heard h
            WHERE h.webhook_no IS NOT NULL
        )
        SELECT h.automation_id, (
            SELECT r.id FROM runs r
            WHERE (r.automation_id, r.webhook_no) <= (h.automation_id, h.webhook_no)
            ORDER BY r.automation_id DESC, r.webhook_no DESC, r.id DESC
            LIMIT 1
        ) AS id
        FROM heard h
        WHERE h.webhook_no IS NOT NULL
        """,
        factory=factory,
    )
    newest: dict[str, bytes] = {}
    for row in rows:
        newest[row["automation_id"]] = max(bytes(row["id"]), newest.get(row["automation_id"], b""))
    if not newest:
        return {}
    wanted = {f"run_{number}": key for number, key in enumerate(newest.values())}
    found = tx.all(f"{_RUN} WHERE runs.id IN ({', '.join(f':{name}' for name in wanted)})", **wanted)
    return {run.automation_id: run for run in map(_run, found)}


def oldest_runs(
    tx: Transaction,
    *,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    after: RunKey | None = None,
    limit: int = 1000,
) -> list[Run]:
    """A factory's runs, oldest first, of one webhook if asked; `after` is the last of the page before."""
    rows = tx.all(
        _RUN
        + f"""
        WHERE runs.factory_id = :factory AND runs.id > :after
            {"AND webhooks.uid = :webhook" if webhook is not None else ""}
        ORDER BY runs.id
        LIMIT :limit
        """,
        factory=factory,
        after=after or b"",
        limit=limit,
        **({"webhook": webhook} if webhook is not None else {}),
    )
    return [_run(row) for row in rows]


def counts_by_delivery(
    tx: Transaction, deliveries: Collection[DeliveryKey], *, factory: FactoryId
) -> dict[DeliveryKey, int]:
    """How many runs each of these deliveries has, replays too. One that has none is not among them."""
    if not deliveries:
        return {}
    wanted = {f"delivery_{number}": key for number, key in enumerate(deliveries)}
    rows = tx.all(
        f"""
        SELECT delivery_id, COUNT(*) AS runs
        FROM runs
        WHERE delivery_id IN ({", ".join(f":{name}" for name in wanted)}) AND factory_id = :factory
        GROUP BY delivery_id
        """,
        factory=factory,
        **wanted,
    )
    return {DeliveryKey(bytes(row["delivery_id"])): row["runs"] for row in rows}


def payload_of(tx: Transaction, delivery: DeliveryKey) -> bytes | None:
    """The body exactly as it was received, or None when retention has taken it."""
    row = tx.one("SELECT body FROM payloads WHERE delivery_id = :delivery", delivery=delivery)
    return None if row is None else bytes(row["body"])


def _run(row: Row) -> Run:
    return Run(
        id=RunKey(bytes(row["id"])),
        delivery_id=DeliveryKey(bytes(row["delivery_id"])),
        webhook_uid=WebhookUid(row["webhook_uid"]),
        webhook_name=row["webhook_name"],
        factory_id=FactoryId(row["factory_id"]),
        automation_id=AutomationId(row["automation_id"]),
        automation_name=row["automation_name"],
        automation_version=row["automation_version"],
        prompt=row["prompt"],
        runner=row["runner"],
        state=RunState(row["state"]),
        attempt=row["attempt"],
        created_at=row["created_at"],
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        cancel_requested_at=row["cancel_requested_at"],
        exit_status=row["exit_status"],
        output_tail=row["output_tail"],
        reason=row["reason"],
        replay=row["replay"],
        event=EventType(row["event"], bool(row["event_signed"])) if row["event"] is not None else None,
    )


def add_replay(
    tx: Transaction, key: RunKey, *, delivery: DeliveryKey, factory: FactoryId, automation: Automation, now: int
) -> None:
    """A run that the delivery's owner starts, beside the one that the delivery started or did not start."""
    tx.run(
        """
        INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                          state, attempt, created_at, replay)
        SELECT :id, d.id, d.webhook_no, :factory, :automation, :version, :queued, 0, :now,
               (SELECT COALESCE(MAX(r.replay), 0) + 1 FROM runs r
                WHERE r.delivery_id = d.id AND r.automation_id = :automation)
        FROM deliveries d
        WHERE d.id = :delivery
        """,
        id=key,
        delivery=delivery,
        factory=factory,
        automation=automation.id,
        version=automation.version,
        queued=RunState.QUEUED.value,
        now=now,
    )


# ── The backlog ──────────────────────────────────────────────────────────────────────────────────────────────

_WAITING: Final = "finished_at IS NULL AND claimed_at IS NULL"
FACTORIES_MAX: Final = 1_000
"""Of which the backlog is looked through at a time for runs whose runner is not skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A run that was in the backlog and is now in this executor's hands."""

    run: RunKey
    factory: FactoryId


def is_anything_waiting(tx: Transaction, *, skipped: Collection[str] = ()) -> bool:
    """Whether there are runs in the backlog for other runners than the `skipped` ones."""
    condition, runners = _for_other_runners(skipped)
    return tx.one(f"SELECT 1 FROM runs WHERE {_WAITING} {condition} LIMIT 1", **runners) is not None


def claim(
    tx: Transaction,
    *,
    executor: ExecutorId,
    most: int,
    after: FactoryId,
    now: int,
    skipped: Collection[str] = (),
) -> list[Claimed]:
    """Up to `most` runs out of the backlog into this executor's hands: a factory's oldest first, factories in turn.

    `after` is the factory that was served last: the next one in the alphabet is served first. Runs for the `skipped`
    runners stay where they are.
    """
    # All that waits for a factory may be for runners that are skipped, and then others have its turn.
    factories = _factories_waiting(tx, after=after, most=FACTORIES_MAX if skipped else most)
    turns = list(islice(filter(None, (_oldest_waiting(tx, factory, most, skipped) for factory in factories)), most))
    in_turn = [taken for taken in chain.from_iterable(zip_longest(*turns)) if taken is not None]
    for taken in in_turn[:most]:
        tx.run(
            "UPDATE runs SET claimed_at = :now, executor = :executor WHERE id = :id",
            id=taken.run,
            executor=executor,
            now=now,
        )
    return in_turn[:most]


def _factories_waiting(tx: Transaction, *, after: FactoryId, most: int) -> list[FactoryId]:
    # From one factory to the next through the index: a factory with 100,000 runs waiting costs one look.
    walk = f"""
        WITH RECURSIVE waiting (factory_id) AS (
            SELECT min(factory_id) FROM runs WHERE {_WAITING} AND factory_id > :after
            UNION ALL
            SELECT (
                SELECT min(factory_id) FROM runs WHERE {_WAITING} AND factory_id > waiting.factory_id
            )
            FROM waiting
            WHERE waiting.factory_id IS NOT NULL
        )
        SELECT factory_id FROM waiting WHERE factory_id IS NOT NULL LIMIT :most
    """
    ahead = [FactoryId(row["factory_id"]) for row in tx.all(walk, after=after, most=most)]
    if len(ahead) == most:
        return ahead
    around = [FactoryId(row["factory_id"]) for row in tx.all(walk, after="", most=most - len(ahead))]
    return ahead + [factory for factory in around if factory <= after]


def _for_other_runners(skipped: Collection[str]) -> tuple[str, dict[str, str]]:
    """A condition on runs, and the values in it."""
    if not skipped:
        return "", {}
    runners = {f"skipped_{number}": runner for number, runner in enumerate(skipped)}
    condition = f"""
        AND NOT EXISTS (
            SELECT 1 FROM automation_versions
            WHERE automation_versions.automation_id = runs.automation_id
                AND automation_versions.version = runs.automation_version
                AND automation_versions.runner IN ({", ".join(f":{name}" for name in runners)})
        )
    """
    return condition, runners


def _oldest_waiting(tx: Transaction, factory: FactoryId, most: int, skipped: Collection[str]) -> list[Claimed]:
    condition, runners = _for_other_runners(skipped)
    rows = tx.all(
        f"""
        SELECT id
        FROM runs
        WHERE {_WAITING} AND factory_id = :factory {condition}
        ORDER BY id
        LIMIT :most
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """,
        factory=factory,
        most=most,
        **runners,
    )
    return [Claimed(run=RunKey(bytes(row["id"])), factory=factory) for row in rows]


# ── One attempt ──────────────────────────────────────────────────────────────────────────────────────────────


class Standing(Enum):
    """What the row says to whoever performs an attempt."""

    OURS = auto()
    CANCEL_REQUESTED = auto()
    LOST = auto()
    """It ended, or it is in other hands, or a later attempt runs: nothing we write counts any more."""


def begin_attempt(tx: Transaction, key: RunKey, *, executor: ExecutorId, now: int) -> int | None:
    """The number of the attempt that begins now, or None when this run is not this executor's to begin."""
    row = tx.one(
        """
        UPDATE runs
        SET state = 'running', attempt = attempt + 1, started_at = :now, reason = NULL
        WHERE id = :id AND executor = :executor AND state = 'queued' AND finished_at IS NULL
        RETURNING attempt
        """,
        id=key,
        executor=executor,
        now=now,
    )
    return None if row is None else int(row["attempt"])


def standing_of(tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int) -> Standing:
    row = tx.one(
        """
        SELECT cancel_requested_at
        FROM runs
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
    )
    if row is None:
        return Standing.LOST
    return Standing.OURS if row["cancel_requested_at"] is None else Standing.CANCEL_REQUESTED


def finish(tx: Transaction, key: RunKey, ended: Ended, *, executor: ExecutorId, attempt: int, now: int) -> bool:
    """Record the end. False, and nothing is written, when the attempt is no longer the one that counts."""
    touched = tx.run(
        """
        UPDATE runs
        SET state = :state, finished_at = :now, exit_status = :exit_status, output_tail = :output_tail,
            reason = :reason
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        now=now,
        state=ended.state,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=ended.reason,
    )
    return touched == 1


def give_back(tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int, counts: bool, now: int) -> bool:
    """Back into the backlog, as the executor's host can't perform it. Cancelled, if somebody wants that.

    An attempt that does not count leaves no mark. Only whoever holds the latest attempt lowers the number, and holds it
    no longer then, so no two attempts in progress ever have the same executor and number. False, and nothing is
    written, when the attempt is no longer the latest.
    """
    return tx.run(
        """
        UPDATE runs
        SET state = CASE WHEN cancel_requested_at IS NULL THEN 'queued' ELSE 'cancelled' END,
            finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE :now END,
            reason = CASE
                WHEN cancel_requested_at IS NULL THEN NULL ELSE 'It was cancelled while nobody performed it.'
            END,
            attempt = CASE WHEN :counts THEN attempt ELSE attempt - 1 END,
            started_at = CASE WHEN :counts OR attempt > 1 THEN started_at END,
            claimed_at = NULL,
            executor = NULL
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND state = 'running' AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        counts=counts,
        now=now,
    ) == 1  # fmt: skip


def request_cancel(tx: Transaction, key: RunKey, *, factory: FactoryId | None = None, now: int) -> RunState | None:
    """The run's state from now on, or None when there is no such run (of that factory).

    A queued run is cancelled at once. A running one stays `running` until whoever performs it has stopped it.
    """
    run = run_of(tx, key, factory=factory)
    if run is None:
        return None
    cancelled = tx.run(
        """
        UPDATE runs
        SET state = 'cancelled', finished_at = :now, cancel_requested_at = :now,
            reason = 'It was cancelled before it began.'
        WHERE id = :id AND state = 'queued' AND finished_at IS NULL
        """,
        id=key,
        now=now,
    )
    if cancelled:
        return RunState.CANCELLED
    tx.run(
        """
        UPDATE runs
        SET cancel_requested_at = :now
        WHERE id = :id AND state = 'running' AND finished_at IS NULL AND cancel_requested_at IS NULL
        """,
        id=key,
        now=now,
    )
    row = tx.one("SELECT state FROM runs WHERE id = :id", id=key)
    return None if row is None else RunState(row["state"])


# ── Executors ────────────────────────────────────────────────────────────────────────────────────────────────


def heartbeat(tx: Transaction, executor: ExecutorId, now: int) -> None:
    """This executor lives."""
    tx.run(
        """
        INSERT INTO executors (id, started_at, last_seen_at)
        VALUES (:id, :now, :now)
        ON CONFLICT (id) DO UPDATE SET last_seen_at = :now
        """,
        id=executor,
        now=now,
    )


def last_heartbeats(tx: Transaction) -> dict[ExecutorId, int]:
    """When each executor last said that it lives, by its own clock."""
    return {ExecutorId(row["id"]): row["last_seen_at"] for row in tx.all("SELECT * FROM executors")}


def deregister(tx: Transaction, executor: ExecutorId, *, last_beat: int | None = None) -> bool:
    """It lives no more, and its runs may be taken back. With `last_beat`, only if it has not been heard since."""
    return tx.run(
        """
        DELETE FROM executors
        WHERE id = :id AND (last_seen_at = :last_beat OR :any_beat)
        """,
        id=executor,
        last_beat=last_beat if last_beat is not None else 0,
        any_beat=last_beat is None,
    ) == 1  # fmt: skip


def runs_of_dead_executors(tx: Transaction) -> list[RunKey]:
    """Unfinished runs of executors that live no more. They stay locked until the transaction ends."""
    rows = tx.all(
        f"""
        SELECT id
        FROM runs
        WHERE finished_at IS NULL AND executor IS NOT NULL AND executor NOT IN (SELECT id FROM executors)
        ORDER BY id
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """
    )
    return [RunKey(bytes(row["id"])) for row in rows]


def runs_claimed_by(tx: Transaction, executor: ExecutorId) -> list[RunKey]:
    """Unfinished runs that this executor has."""
    rows = tx.all(
        """
        SELECT id
        FROM runs
        WHERE finished_at IS NULL AND executor = :executor
        ORDER BY id
        """,
        executor=executor,
    )
    return [RunKey(bytes(row["id"])) for row in rows]


def requeue(tx: Transaction, keys: Sequence[RunKey], *, attempts_max: int | None, now: int) -> list[RunKey]:
    """Back into the backlog. A run that someone wants cancelled ends here, and so does one that was lost too often:
    those that end are returned, as something of them may still run.

    `attempts_max` is for attempts that died with their worker; None for those that were stopped in good order:
    however often the service is restarted, that alone never ends a run.
    """
    ended = []
    for key in keys:
        has_ended = tx.run(
            """
            UPDATE runs
            SET state = 'cancelled', finished_at = :now, reason = 'It was cancelled while nobody performed it.'
            WHERE id = :id AND finished_at IS NULL AND cancel_requested_at IS NOT NULL
            """,
            id=key,
            now=now,
        )
        if attempts_max is not None:
            has_ended += tx.run(
                """
                UPDATE runs
                SET state = 'interrupted', finished_at = :now, reason = :reason
                WHERE id = :id AND finished_at IS NULL AND state = 'running' AND attempt >= :attempts_max
                """,
                id=key,
                now=now,
                attempts_max=attempts_max,
                reason=f"Its worker was lost while it ran. After {attempts_max} attempts it is not tried again.",
            )
        if has_ended:
            ended.append(key)
            continue
        tx.run(
            """
            UPDATE runs
            SET state = 'queued', claimed_at = NULL, executor = NULL
            WHERE id = :id AND finished_at IS NULL
            """,
            id=key,
        )
    return ended
