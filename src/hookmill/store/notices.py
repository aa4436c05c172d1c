"""The outbox of alarms: one row for each message to a destination.

`enqueue` adds the rows in the transaction that changes the alarm. A process claims a message, sends it, and then
finishes it. If the process dies in between, the claim expires, and the message is sent again with the same id. Messages
to one destination are sent one after the other, so that a resolved alarm never arrives before the raised one.
"""

import json
import os
from dataclasses import dataclass
from typing import Any, Final

from hookmill.domain import ids
from hookmill.domain.alarm import AlarmEvent, AlarmKind, AlarmNotice
from hookmill.domain.alarm_message import AlarmMessage
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction

WAITING_MAX: Final = 100
"""How many messages may wait for one destination. Further notices are only counted in the newest of them."""
MESSAGES_PER_MINUTE: Final = 6
"""How many messages a destination gets in any 60 seconds. The last of them stands for all notices that wait."""
ATTEMPTS_MAX: Final = 10
"""After this many attempts, which take about three hours, a message is given up."""
RETRY_US_MIN: Final = 30_000_000
RETRY_US_MAX: Final = 3_600_000_000
"""The time between two attempts doubles from the minimum to the maximum."""
CLAIM_US: Final = 120_000_000
"""After this time without a result, a claim has expired. It exceeds every deadline of a sender."""
SKEW_US: Final = 120_000_000
"""How much later than `now` another thread or process may have written a time. Its clock may differ, and `now` is read
before the wait for the database."""
MINUTE_US: Final = 60_000_000
SENT_KEPT_US: Final = 7 * 86_400_000_000
FAILED_KEPT_US: Final = 30 * 86_400_000_000
PROBLEM_CHARACTERS_MAX: Final = 500
DIED: Final = "The process that sent the message ended each time before it knew the result."
RESTORED: Final = "Not sent, because the installation was restored from a backup."
_CLAIM_LOCK: Final = 0x616C6D73
"""The number of PostgreSQL's advisory lock for claims. Every version must use the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedMessage:
    """A message that this process may send now."""

    key: bytes
    destination_id: str
    shown_target: str
    message: AlarmMessage
    attempt: int
    """1 for the first attempt."""

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= ATTEMPTS_MAX


def enqueue(tx: Transaction, notice: AlarmNotice) -> int:
    """Add the notice to the outbox, for each destination that wants it. Returns how many want it.

    A factory's notice also goes to those destinations of the installation that include factories.
    """
    # No destination can be deleted before the transaction ends.
    lock = dialect.lock_clause(tx, "FOR KEY SHARE", of="d")
    if notice.factory is None:
        rows = tx.all(f"SELECT id, alarm_kinds FROM alarm_destinations d WHERE factory_id IS NULL ORDER BY id {lock}")
    else:
        rows = tx.all(
            f"""
            SELECT d.id, d.alarm_kinds
            FROM alarm_destinations d JOIN factories f ON f.team_id = d.team_id
            WHERE f.name = :factory AND (d.factory_id = f.id OR (d.factory_id IS NULL AND d.includes_factories))
            ORDER BY d.id
            {lock}
            """,
            factory=notice.factory,
        )
    destinations = [row["id"] for row in rows if _is_wanted(notice.kind, json.loads(row["alarm_kinds"]))]
    for destination in destinations:
        _add(tx, destination, notice)
    return len(destinations)


def may_have_due(tx: Transaction, now: int) -> bool:
    """Whether a message may be due, so that `claim` is worth a write transaction."""
    return any(_is_due(head, now) for head in _heads(tx))


def claim(tx: Transaction, now: int) -> ClaimedMessage | None:
    """Claim a message; None if none can be sent. `now` is in µs since 1970.

    It is the one that has been due for the longest time, among the first of their destinations.
    """
    dialect.lock(tx, _CLAIM_LOCK)
    for head in _heads(tx):
        if not _is_due(head, now):
            continue
        if head["attempts"] >= ATTEMPTS_MAX:
            _give_up(tx, "id = :id", head["failure"] or DIED, now, id=bytes(head["id"]))
            continue
        recent = _messages_in_last_minute(tx, head, now)
        if recent >= MESSAGES_PER_MINUTE:
            continue
        more = head["more"]
        if head["attempts"] == 0 and (recent == MESSAGES_PER_MINUTE - 1 or _has_given_up(tx, head["destination_id"])):
            more += _absorb_others(tx, head)
        key = bytes(head["id"])
        claimed_rows = tx.run(
            """
            UPDATE alarm_notices
            SET more = :more, attempts = attempts + 1, attempted_at = :now, claimed_until = :until
            WHERE id = :id AND state = 'waiting'
            """,
            more=more,
            now=now,
            until=now + CLAIM_US,
            id=key,
        )
        if not claimed_rows:
            # A slow process has finished it, or its destination was deleted.
            continue
        return ClaimedMessage(
            key=key,
            destination_id=head["destination_id"],
            shown_target=head["shown_target"],
            message=AlarmMessage(id=ids.notice_id(key), notice=_notice_from_json(head["notice"]), more=more),
            attempt=head["attempts"] + 1,
        )
    return None


def finish(tx: Transaction, claimed: ClaimedMessage, now: int, problem: str | None = None) -> bool:
    """Record the result of the attempt. `problem`: why it failed; None if the destination accepted the message.

    Returns False, and changes nothing, if the claim had expired and another process has claimed the message.
    """
    # Like `alarm_destinations.delete`, it locks the destination first. Another order could cause a deadlock.
    dialect.lock_row(tx, "alarm_destinations", claimed.destination_id, "FOR NO KEY UPDATE")
    state = "sent" if problem is None else "failed" if claimed.is_last_attempt else "waiting"
    finished_rows = tx.run(
        """
        UPDATE alarm_notices
        SET state = :state, due_at = :due_at, finished_at = :finished_at, claimed_until = NULL, failure = :failure
        WHERE id = :id AND state = 'waiting' AND attempts = :attempt
        """,
        state=state,
        due_at=now + retry_us(claimed.attempt),
        finished_at=now if state != "waiting" else None,
        failure=problem[:PROBLEM_CHARACTERS_MAX] if problem is not None else None,
        id=claimed.key,
        attempt=claimed.attempt,
    )
    if finished_rows and problem is None:
        tx.run("UPDATE alarm_destinations SET last_sent_at = :now WHERE id = :id", now=now, id=claimed.destination_id)
    return finished_rows == 1


def retry_us(attempt: int) -> int:
    """The time after this attempt to the next one, in µs."""
    return min(RETRY_US_MIN << (attempt - 1), RETRY_US_MAX)


def discard_waiting(tx: Transaction, now: int) -> int:
    """Send none of the messages that wait in a restored backup, because the original may have sent them. Returns their
    number."""
    return _give_up(tx, "state = 'waiting'", RESTORED, now)


def _give_up(tx: Transaction, condition: str, problem: str, now: int, **values: object) -> int:
    return tx.run(
        f"""
        UPDATE alarm_notices
        SET state = 'failed', finished_at = :now, claimed_until = NULL, failure = :failure
        WHERE {condition}
        """,
        now=now,
        failure=problem,
        **values,
    )


def forget_old(tx: Transaction, now: int) -> None:
    """Remove old messages that were sent or given up."""
    for state, kept_us in (("sent", SENT_KEPT_US), ("failed", FAILED_KEPT_US)):
        tx.run(
            "DELETE FROM alarm_notices WHERE state = :state AND finished_at < :before",
            state=state,
            before=now - kept_us,
        )


def _is_wanted(kind: AlarmKind | None, wanted_kinds: list[str]) -> bool:
    return kind is None or not wanted_kinds or kind.value in wanted_kinds


def _add(tx: Transaction, destination: str, notice: AlarmNotice) -> None:
    row = tx.one(
        "SELECT COUNT(*) AS number FROM alarm_notices WHERE destination_id = :id AND state = 'waiting'", id=destination
    )
    if row is not None and row["number"] >= WAITING_MAX:
        # A message that was attempted must stay as it is, because its receiver may know its id.
        tx.run(
            """
            UPDATE alarm_notices SET more = more + 1
            WHERE id = (
                SELECT id FROM alarm_notices
                WHERE destination_id = :id AND state = 'waiting' AND attempts = 0
                ORDER BY id DESC LIMIT 1
            )
            """,
            id=destination,
        )
        return
    tx.run(
        """
        INSERT INTO alarm_notices (id, destination_id, notice, more, state, attempts, due_at)
        VALUES (:id, :destination, :notice, 0, 'waiting', 0, :now)
        """,
        id=_next_key(tx, destination, notice.at),
        destination=destination,
        notice=json.dumps(_notice_to_json(notice)),
        now=notice.at,
    )


def _next_key(tx: Transaction, destination: str, now: int) -> bytes:
    """The key of a new message, which follows those of the destination's other messages, even if the clock was set
    back."""
    key = ids.time_ordered_key(now, os.urandom(8))
    row = tx.one(
        "SELECT id FROM alarm_notices WHERE destination_id = :destination ORDER BY id DESC LIMIT 1",
        destination=destination,
    )
    if row is None or key > bytes(row["id"]):
        return key
    # The distance is random, because another destination could have the next key.
    distance = 1 + int.from_bytes(os.urandom(4))
    return (int.from_bytes(bytes(row["id"])) + distance).to_bytes(len(key))


def _heads(tx: Transaction) -> list[Row]:
    """The first message that waits for each destination; the one that has been due for the longest time first."""
    rows = tx.all(
        """
        SELECT n.*, d.shown_target
        FROM alarm_destinations d JOIN alarm_notices n ON n.id = (
            SELECT m.id FROM alarm_notices m
            WHERE m.destination_id = d.id AND m.state = 'waiting'
            ORDER BY m.id LIMIT 1
        )
        ORDER BY n.due_at, n.id
        """
    )
    return list(rows)


def _is_due(head: Row, now: int) -> bool:
    """Whether the message may be claimed. Times that are too far in the future come from a clock that was wrong."""
    waits = now < head["due_at"] <= now + RETRY_US_MAX + SKEW_US
    is_claimed = head["claimed_until"] is not None and now < head["claimed_until"] <= now + CLAIM_US + SKEW_US
    return not waits and not is_claimed


def _messages_in_last_minute(tx: Transaction, head: Row, now: int) -> int:
    row = tx.one(
        """
        SELECT COUNT(*) AS number FROM alarm_notices
        WHERE destination_id = :destination AND attempted_at > :since AND attempted_at <= :now AND id <> :id
        """,
        destination=head["destination_id"],
        since=now - MINUTE_US,
        now=now,
        id=bytes(head["id"]),
    )
    return int(row["number"]) if row is not None else 0


def _has_given_up(tx: Transaction, destination: str) -> bool:
    """Whether the destination's latest message that ended was given up. Then its backlog becomes one message.

    A message that was not sent because of a restore says nothing about the destination.
    """
    row = tx.one(
        """
        SELECT state, failure FROM alarm_notices
        WHERE destination_id = :id AND state IN ('sent', 'failed')
        ORDER BY finished_at DESC, id DESC LIMIT 1
        """,
        id=destination,
    )
    return row is not None and row["state"] == "failed" and row["failure"] != RESTORED


def _absorb_others(tx: Transaction, head: Row) -> int:
    """Remove the destination's other messages that wait. Returns how many notices they stood for."""
    values = {"destination": head["destination_id"], "id": bytes(head["id"])}
    others = "destination_id = :destination AND state = 'waiting' AND id <> :id"
    row = tx.one(f"SELECT COALESCE(SUM(1 + more), 0) AS number FROM alarm_notices WHERE {others}", **values)
    tx.run(f"DELETE FROM alarm_notices WHERE {others}", **values)
    return int(row["number"]) if row is not None else 0


def _notice_to_json(notice: AlarmNotice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "kind": notice.kind.value if notice.kind is not None else None,
        "event": notice.event.value,
        "factory": notice.factory,
        "subject": notice.subject,
        "summary": notice.summary,
        "action": notice.action,
        "at": notice.at,
        "url": notice.url,
    }


def _notice_from_json(text: str) -> AlarmNotice:
    fields = json.loads(text)
    kind = AlarmKind(fields["kind"]) if fields["kind"] is not None else None
    return AlarmNotice(**(fields | {"kind": kind, "event": AlarmEvent(fields["event"])}))
