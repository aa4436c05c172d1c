"""Reads and updates alarms. At most one alarm of each kind is open for each subject."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.alarm import Alarm, AlarmCondition, AlarmKind, AlarmSubject
from hookmill.domain.ids import FactoryId
from hookmill.store import dialect, metadata
from hookmill.store.database import Row, Transaction, from_row

OPEN_MAX: Final = 10_000
"""The maximum number of open alarms that an evaluation reads."""
KEPT_US: Final = 90 * 86_400_000_000
"""How long resolved alarms are kept, counted from when they were raised."""
REMOVED_MAX: Final = 1_000
"""How many old alarms one transaction removes."""
_LOCK: Final = 0x616C726D
"""The number of PostgreSQL's advisory lock for changes by evaluations: "alrm" in ASCII."""
_EVALUATION: Final = "alarm evaluation"
_COLUMNS: Final = (
    "id, factory_id, kind, subject_id, subject_name, summary, raised_at, clear_since, resolved_at, snoozed_until, "
    "announced_at, last_announced_at"
)
_KINDS: Final = ", ".join(f"'{kind}'" for kind in AlarmKind)
"""Alarms of other kinds are omitted."""


# Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTimes:
    """When conditions are evaluated. Times are in µs since 1970."""

    takeover_us: int
    """After this time without an evaluation, another process evaluates."""
    interruption_us: int
    """After this time without an evaluation, the service counts as interrupted."""


def claim_evaluation(tx: Transaction, evaluator: str, now: int, times: EvaluationTimes) -> int | None:
    """Let this process evaluate the conditions of the installation now, if no other process does so.

    Returns since when conditions have been evaluated without an interruption, in µs since 1970; None if another process
    evaluates them. `evaluator` identifies this process.
    """
    if not dialect.try_lock(tx, _LOCK):
        return None
    stored = metadata.value(tx, _EVALUATION)
    since = now
    if stored is not None:
        last = json.loads(stored)
        # If the clock was set back, the last time is in the future.
        elapsed = abs(now - last["at"])
        if last["by"] not in (evaluator, None) and elapsed < times.takeover_us:
            return None
        if elapsed < times.interruption_us:
            since = min(last["since"], now)
    metadata.set_value(tx, _EVALUATION, json.dumps({"by": evaluator, "at": now, "since": since}))
    return since


def release_evaluation(tx: Transaction, evaluator: str) -> None:
    """Let any process evaluate next, if this process was the last one."""
    dialect.lock(tx, _LOCK)
    stored = metadata.value(tx, _EVALUATION)
    last = json.loads(stored) if stored is not None else None
    if last is not None and last["by"] == evaluator:
        metadata.set_value(tx, _EVALUATION, json.dumps({**last, "by": None}))


def last_evaluation(tx: Transaction) -> str | None:
    """Identifies the last evaluation by a worker: each evaluation stores another value. None before the first one."""
    return metadata.value(tx, _EVALUATION)


def lock_changes(tx: Transaction) -> None:
    """Let no other evaluation change alarms until this transaction ends."""
    dialect.lock(tx, _LOCK)


def open_alarms(tx: Transaction, kinds: Collection[AlarmKind]) -> Sequence[Alarm]:
    """The open alarms of these kinds, oldest first."""
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM alarms WHERE resolved_at IS NULL AND kind IN :kinds ORDER BY id LIMIT {OPEN_MAX}",
        kinds=sorted(kinds),
    )
    return [_alarm(row) for row in rows]


def open_alarm(tx: Transaction, kind: AlarmKind, subject_id: str) -> Alarm | None:
    row = tx.one(
        f"SELECT {_COLUMNS} FROM alarms WHERE resolved_at IS NULL AND kind = :kind AND subject_id = :subject",
        kind=kind.value,
        subject=subject_id,
    )
    return _alarm(row) if row is not None else None


def add(tx: Transaction, key: bytes, condition: AlarmCondition, now: int) -> Alarm | None:
    """Add an open alarm, with the snooze of the subject's last alarm. Returns None if the subject has an open alarm."""
    last = tx.one(
        """
        SELECT snoozed_until, last_announced_at FROM alarms
        WHERE subject_id = :subject AND kind = :kind
        ORDER BY id DESC
        LIMIT 1
        """,
        subject=condition.subject.id,
        kind=condition.kind.value,
    )
    snoozed_until = last["snoozed_until"] if last is not None else None
    added_rows = tx.run(
        """
        INSERT INTO alarms (id, factory_id, kind, subject_id, subject_name, summary, raised_at, checked_at,
                            snoozed_until, last_announced_at)
        VALUES (:id, :factory, :kind, :subject, :name, :summary, :now, :now, :snoozed_until, :last_announced_at)
        ON CONFLICT (kind, subject_id) WHERE resolved_at IS NULL DO NOTHING
        """,
        id=key,
        factory=condition.subject.factory_id,
        kind=condition.kind.value,
        subject=condition.subject.id,
        name=condition.subject.name,
        summary=condition.summary,
        now=now,
        snoozed_until=snoozed_until if snoozed_until is not None and snoozed_until > now else None,
        last_announced_at=last["last_announced_at"] if last is not None else None,
    )
    return open_alarm(tx, condition.kind, condition.subject.id) if added_rows else None


def set_clear_since(tx: Transaction, key: bytes, clear_since: int | None) -> None:
    tx.run("UPDATE alarms SET clear_since = :since WHERE id = :id", id=key, since=clear_since)


def set_resolved(tx: Transaction, key: bytes, now: int) -> None:
    tx.run("UPDATE alarms SET resolved_at = :now WHERE id = :id", id=key, now=now)


def set_announced(tx: Transaction, key: bytes, now: int) -> None:
    tx.run("UPDATE alarms SET announced_at = :now, last_announced_at = :now WHERE id = :id", id=key, now=now)


def set_checked(tx: Transaction, key: bytes, now: int) -> None:
    """Store that the condition of an alarm about a host was evaluated there."""
    tx.run("UPDATE alarms SET checked_at = :now WHERE id = :id", id=key, now=now)


def unchecked(tx: Transaction, kinds: Collection[AlarmKind], before: int) -> Sequence[Alarm]:
    """The open alarms of these kinds whose condition no host has evaluated since `before`, in µs since 1970."""
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM alarms WHERE resolved_at IS NULL AND kind IN :kinds AND checked_at < :before "
        f"ORDER BY id LIMIT {OPEN_MAX}",
        kinds=sorted(kinds),
        before=before,
    )
    return [_alarm(row) for row in rows]


def describe(tx: Transaction, key: bytes, condition: AlarmCondition) -> None:
    """Store the present name of the subject, and the present summary."""
    tx.run(
        "UPDATE alarms SET subject_name = :name, summary = :summary WHERE id = :id",
        id=key,
        name=condition.subject.name,
        summary=condition.summary,
    )


def remove_old(tx: Transaction, now: int) -> int:
    """Remove resolved alarms that are older than `KEPT_US`, up to `REMOVED_MAX`. Returns their number."""
    # The keys are ordered by time.
    before = max(now - KEPT_US, 0) // 1000 << 80
    return tx.run(
        f"""
        DELETE FROM alarms
        WHERE id IN (
            SELECT id FROM alarms WHERE id < :before AND resolved_at IS NOT NULL ORDER BY id LIMIT {REMOVED_MAX}
        )
        """,
        before=before.to_bytes(16, "big"),
    )


# Lists


def page(
    tx: Transaction,
    factory: FactoryId | None,
    *,
    is_open: bool | None = None,
    before: bytes | None = None,
    limit: int = 50,
) -> Sequence[Alarm]:
    """A page of a factory's alarms, or of those of the installation, newest first.

    `before` is the key of the previous page's last alarm.
    """
    conditions = [f"kind IN ({_KINDS})", _in_factory(factory)]
    if is_open is not None:
        conditions.append(f"resolved_at IS {'' if is_open else 'NOT '}NULL")
    if before is not None:
        conditions.append("id < :before")
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM alarms WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT :limit",
        limit=limit,
        factory=factory,
        before=before,
    )
    return [_alarm(row) for row in rows]


def by_key(tx: Transaction, factory: FactoryId | None, key: bytes) -> Alarm | None:
    """The alarm of this factory, or of the installation if `factory` is None."""
    row = tx.one(
        f"SELECT {_COLUMNS} FROM alarms WHERE id = :id AND kind IN ({_KINDS}) AND {_in_factory(factory)}",
        id=key,
        factory=factory,
    )
    return _alarm(row) if row is not None else None


def has_open(tx: Transaction, factory: FactoryId | None, now: int) -> bool:
    """Whether an alarm of the factory, or of the installation, is open and not snoozed."""
    row = tx.one(
        f"""
        SELECT 1 FROM alarms
        WHERE resolved_at IS NULL AND {_in_factory(factory)} AND (snoozed_until IS NULL OR snoozed_until <= :now)
        LIMIT 1
        """,
        now=now,
        factory=factory,
    )
    return row is not None


def snooze(tx: Transaction, key: bytes, until: int | None) -> None:
    """Snooze the alarm until this time in µs since 1970; if it is None, end the snooze."""
    tx.run("UPDATE alarms SET snoozed_until = :until WHERE id = :id", id=key, until=until)


def count_open(tx: Transaction) -> Mapping[AlarmKind, int]:
    """The number of open alarms of each kind, also of snoozed ones. At most `OPEN_MAX` are counted."""
    rows = tx.all(
        f"""
        SELECT kind, COUNT(*) AS alarms
        FROM (SELECT kind FROM alarms WHERE resolved_at IS NULL LIMIT {OPEN_MAX}) AS open_alarms
        GROUP BY kind
        """
    )
    counts = {row["kind"]: int(row["alarms"]) for row in rows}
    return {kind: counts.get(kind.value, 0) for kind in AlarmKind}


def _in_factory(factory: FactoryId | None) -> str:
    return "factory_id = :factory" if factory is not None else "factory_id IS NULL"


def _alarm(row: Row) -> Alarm:
    return from_row(
        Alarm,
        row,
        key=row["id"],
        kind=AlarmKind(row["kind"]),
        subject=AlarmSubject(
            id=row["subject_id"],
            name=row["subject_name"],
            factory_id=row["factory_id"],
        ),
    )
