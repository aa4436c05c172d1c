"""Compares the answers that senders got with the rows in the database."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_key, run_id
from hookmill.domain.run import RunState
from hookmill.store.database import Row, Transaction, open_database
from tests.faults.senders import Event
from tests.support.waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """Counts. All except `accepted` are violations, and must be 0."""

    accepted: int
    lost: int
    """202s without their row, Duplicates without their original, and events without a 202 or an Accepted row."""
    accepted_twice: int
    payload_wrong: int
    """202s whose stored body differs from the body that was sent."""
    never_sent: int
    """Other Accepted rows that belong to no event."""
    identities_mismatched: int
    """Identities without their Accepted delivery, and Accepted deliveries without their identity."""
    run_missing: int
    run_doubled: int
    run_unexpected: int
    """Runs of an automation that does not match the delivery, or of a delivery that was not accepted."""
    run_open: int

    def counts(self) -> dict[str, int]:
        """All counts except `accepted`, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "accepted"}

    def violations(self) -> dict[str, int]:
        """The counts that should be 0 and are not."""
        return {name: count for name, count in self.counts().items() if count}

    def summary(self, title: str, *, kills: int, seed: int) -> str:
        return (
            f"{title}: accepted {self.accepted}, kills {kills}, lost {self.lost}, accepted twice "
            f"{self.accepted_twice}, run missing {self.run_missing}, run doubled {self.run_doubled}, seed {seed}"
        )


def wait_until_runs_have_ended(url: str, *, seconds: float = 90):
    # Workers have a lower priority than everything else on the machine.
    with open_database(url) as database:

        def have_ended() -> bool:
            with database.read() as tx:
                return tx.one("SELECT 1 FROM runs WHERE finished_at IS NULL LIMIT 1") is None

        until(have_ended, "every run has ended", seconds=seconds)


def audit(url: str, events: Sequence[Event]) -> AuditResult:
    """Compare every event with the rows of its webhook. These webhooks must not have got other deliveries."""
    webhooks = ", ".join(str(no) for no in sorted({event.webhook.webhook.no for event in events}))
    with open_database(url) as database, database.read() as tx:
        rows = tx.all(
            f"SELECT id, webhook_no, label, size, duplicate_of FROM deliveries WHERE webhook_no IN ({webhooks})"
        )
        log = {bytes(row["id"]): row for row in rows}
        bodies = _bodies(tx)
        identified = {
            bytes(row["delivery_id"])
            for row in tx.all(f"SELECT delivery_id FROM identities WHERE webhook_no IN ({webhooks})")
        }
        runs = tx.all(
            f"SELECT delivery_id, automation_id, state, finished_at FROM runs WHERE webhook_no IN ({webhooks})"
        )

    events_by_body = {event.body: event for event in events}
    assert len(events_by_body) == len(events), "no two events have the same body"
    answered = {delivery_key(delivery) for event in events for delivery in event.delivery_ids}
    accepted_keys: defaultdict[int, list[bytes]] = defaultdict(list)
    payload_wrong = never_sent = 0
    for key, row in log.items():
        if row["label"] != Label.ACCEPTED:
            continue
        event = events_by_body.get(bodies.get(key, b""))
        if event is not None and event.webhook.webhook.no == row["webhook_no"] and row["size"] == len(event.body):
            accepted_keys[id(event)].append(key)
        elif key in answered:
            payload_wrong += 1
        else:
            never_sent += 1

    started = Counter((bytes(run["delivery_id"]), run["automation_id"]) for run in runs)
    expected = {
        (key, automation) for event in events for key in accepted_keys[id(event)] for automation in event.automations
    }
    accepted = {key for keys in accepted_keys.values() for key in keys}
    return AuditResult(
        accepted=len(accepted),
        lost=sum(_count_lost(event, log, accepted_keys[id(event)]) for event in events),
        accepted_twice=sum(len(keys) - 1 for keys in accepted_keys.values() if len(keys) > 1),
        payload_wrong=payload_wrong,
        never_sent=never_sent,
        identities_mismatched=len(identified ^ accepted),
        run_missing=len(expected - started.keys()),
        run_doubled=sum(count - 1 for count in started.values()),
        run_unexpected=len(started.keys() - expected),
        run_open=sum(1 for run in runs if run["finished_at"] is None or not RunState(run["state"]).is_final),
    )


def audit_attempts(url: str, notes: Path, automations: Set[str]) -> tuple[int, Mapping[str, int]]:
    """The number of all runs, and counts of violations, by name. Only the runs of these automations add notes.

    Each performed attempt has added a line to the file `notes`: the run's id and the attempt's number.
    """
    lines = [line.split() for line in notes.read_text().splitlines()]
    performed = Counter((name, int(attempt)) for name, attempt in lines)
    with open_database(url) as database, database.read() as tx:
        rows = tx.all("SELECT id, automation_id, attempt, state FROM runs")
    last_attempts = {run_id(row["id"]): row["attempt"] for row in rows}
    return len(rows), {
        "attempts_unrecorded": sum(attempt > last_attempts.get(name, 0) for name, attempt in performed),
        "attempts_performed_twice": sum(count - 1 for count in performed.values()),
        "runs_never_performed": sum(
            (run_id(row["id"]), row["attempt"]) not in performed
            for row in rows
            if row["automation_id"] in automations and row["state"] == RunState.SUCCEEDED
        ),
        "runs_not_succeeded": sum(row["state"] != RunState.SUCCEEDED for row in rows),
    }


def _bodies(tx: Transaction) -> dict[bytes, bytes]:
    """Every stored body, by the key of its delivery. A single query for all of them could exceed its time limit."""
    bodies: dict[bytes, bytes] = {}
    last_key = b""
    while page := tx.all(
        "SELECT delivery_id, body FROM payloads WHERE delivery_id > :last ORDER BY delivery_id LIMIT 10000",
        last=last_key,
    ):
        bodies |= {bytes(row["delivery_id"]): bytes(row["body"]) for row in page}
        last_key = bytes(page[-1]["delivery_id"])
    return bodies


def count_rows(url: str, webhook_no: int) -> tuple[int, ...]:
    """The rows of a webhook by kind: Accepted, Duplicate, other labels, identities, payloads, runs."""
    with open_database(url) as database, database.read() as tx:
        row = tx.one(
            """
            SELECT
                COUNT(CASE WHEN label = 1 THEN 1 END) AS accepted,
                COUNT(CASE WHEN label = 2 THEN 1 END) AS duplicate,
                COUNT(CASE WHEN label NOT IN (1, 2) THEN 1 END) AS other,
                (SELECT COUNT(*) FROM identities WHERE webhook_no = :no) AS identities,
                (SELECT COUNT(*) FROM payloads WHERE delivery_id IN
                    (SELECT id FROM deliveries WHERE webhook_no = :no)) AS payloads,
                (SELECT COUNT(*) FROM runs WHERE webhook_no = :no) AS runs
            FROM deliveries
            WHERE webhook_no = :no
            """,
            no=webhook_no,
        )
    assert row is not None
    return tuple(dict(row).values())


def _count_lost(event: Event, log: dict[bytes, Row], accepted: Sequence[bytes]) -> int:
    lost = 0 if event.delivery_ids and accepted else 1
    for delivery in event.delivery_ids:
        row = log.get(delivery_key(delivery))
        if row is None:
            lost += 1
        elif row["label"] == Label.DUPLICATE:
            lost += bytes(row["duplicate_of"]) not in accepted
        else:
            lost += delivery_key(delivery) not in accepted
    return lost


def is_intact(path: Path) -> bool:
    """Whether SQLite finds no damage in this file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
