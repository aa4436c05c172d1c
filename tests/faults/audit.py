"""What the senders were told, held against what the store has."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_key, run_id
from hookmill.domain.run import RunState
from hookmill.store.database import Row, Transaction, open_database
from tests.faults.senders import Event
from tests.support.waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Counts, all but `accepted` of what must never be."""

    accepted: int
    lost: int
    """202s without their row, and Duplicates of nothing."""
    accepted_twice: int
    payload_wrong: int
    """202s whose stored body is not the body that was sent."""
    never_sent: int
    """Other Accepted rows that belong to no event."""
    identities_astray: int
    run_missing: int
    run_doubled: int
    run_astray: int
    """Runs of an automation that the delivery does not match, or of a delivery that was not accepted."""
    run_open: int

    def troubles(self) -> dict[str, int]:
        found = {name: getattr(self, name) for name in self.__slots__ if name != "accepted"}
        return {name: count for name, count in found.items() if count}

    def line(self, where: str, *, kills: int, seed: int) -> str:
        return (
            f"{where}: accepted {self.accepted}, kills {kills}, lost {self.lost}, accepted twice "
            f"{self.accepted_twice}, run missing {self.run_missing}, run doubled {self.run_doubled}, seed {seed}"
        )


def wait_until_runs_have_ended(url: str, *, seconds: float = 90) -> None:
    """They are performed beside everything else that has the machine, with less of a right to it."""
    with open_database(url) as database:

        def none_open() -> bool:
            with database.read() as tx:
                return tx.one("SELECT 1 FROM runs WHERE finished_at IS NULL LIMIT 1") is None

        until(none_open, "every run came to its end", seconds=seconds)


def audit(url: str, events: Sequence[Event]) -> Findings:
    """Compare every event with the rows of its webhook. Nobody else may have sent anything to these webhooks."""
    webhooks = ", ".join(str(no) for no in sorted({event.made.webhook.no for event in events}))
    with open_database(url) as database, database.read() as tx:
        rows = tx.all(
            f"SELECT id, webhook_no, label, size, duplicate_of FROM deliveries WHERE webhook_no IN ({webhooks})"
        )
        log = {bytes(row["id"]): row for row in rows}
        bodies = _bodies(tx)
        claims = {
            bytes(row["delivery_id"])
            for row in tx.all(f"SELECT delivery_id FROM identities WHERE webhook_no IN ({webhooks})")
        }
        runs = tx.all(
            f"SELECT delivery_id, automation_id, state, finished_at FROM runs WHERE webhook_no IN ({webhooks})"
        )

    # No two events have the same body, so a body names its event.
    by_body = {event.body: event for event in events}
    assert len(by_body) == len(events)
    answered = {delivery_key(delivery) for event in events for delivery in event.taken_as}
    accepted_for: defaultdict[int, list[bytes]] = defaultdict(list)
    payload_wrong = never_sent = 0
    for key, row in log.items():
        if row["label"] != Label.ACCEPTED:
            continue
        event = by_body.get(bodies.get(key, b""))
        if event is not None and event.made.webhook.no == row["webhook_no"] and row["size"] == len(event.body):
            accepted_for[id(event)].append(key)
        elif key in answered:
            payload_wrong += 1
        else:
            never_sent += 1

    started = Counter((bytes(run["delivery_id"]), run["automation_id"]) for run in runs)
    wanted = {(key, automation) for event in events for key in accepted_for[id(event)] for automation in event.starts}
    accepted = {key for keys in accepted_for.values() for key in keys}
    return Findings(
        accepted=len(accepted),
        lost=sum(_lost(event, log, accepted_for[id(event)]) for event in events),
        accepted_twice=sum(len(keys) - 1 for keys in accepted_for.values() if len(keys) > 1),
        payload_wrong=payload_wrong,
        never_sent=never_sent,
        identities_astray=len(claims ^ accepted),
        run_missing=len(wanted - started.keys()),
        run_doubled=sum(count - 1 for count in started.values()),
        run_astray=len(started.keys() - wanted),
        run_open=sum(1 for run in runs if run["finished_at"] is None or not RunState(run["state"]).is_final),
    )


def audit_attempts(url: str, notes: Path, automations: Set[str]) -> tuple[int, Mapping[str, int]]:
    """The number of all runs, and what is wrong with the attempts at those of these automations.

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
    """Every stored body, by the key of its delivery. One query for all of them could take longer than it may."""
    bodies: dict[bytes, bytes] = {}
    last = b""
    while page := tx.all(
        "SELECT delivery_id, body FROM payloads WHERE delivery_id > :last ORDER BY delivery_id LIMIT 10000", last=last
    ):
        bodies |= {bytes(row["delivery_id"]): bytes(row["body"]) for row in page}
        last = bytes(page[-1]["delivery_id"])
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


def _lost(event: Event, log: dict[bytes, Row], accepted: Sequence[bytes]) -> int:
    lost = 0 if event.taken_as and accepted else 1
    for told in event.taken_as:
        row = log.get(delivery_key(told))
        if row is None:
            lost += 1
        elif row["label"] == Label.DUPLICATE:
            lost += bytes(row["duplicate_of"]) not in accepted
        else:
            lost += delivery_key(told) not in accepted
    return lost


def sqlite_is_whole(path: Path) -> bool:
    with sqlite3.connect(path) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return verdict == [("ok",)]
