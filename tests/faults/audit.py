"""What the senders were told, held against what the store has."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_key
from hookmill.domain.run import RunState
from hookmill.store.database import Row, open_database
from tests.faults.senders import Event
from tests.support.waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Counts, all but `accepted` of what must never be."""

    accepted: int
    lost: int
    """202s without their row, and Duplicates of nothing."""
    accepted_twice: int
    never_sent: int
    """Accepted rows that are no event of ours, or whose payload is not what was sent."""
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


def wait_until_runs_have_ended(url: str) -> None:
    """They are performed beside everything else that has the machine, with less of a right to it."""
    with open_database(url) as database:

        def none_open() -> bool:
            with database.read() as tx:
                return tx.one("SELECT 1 FROM runs WHERE finished_at IS NULL LIMIT 1") is None

        until(none_open, "every run came to its end", seconds=90)


def audit(url: str, events: Sequence[Event]) -> Findings:
    """Every event of ours must have been taken; nobody else has sent anything to this store."""
    with open_database(url) as database, database.read() as tx:
        log = {bytes(row["id"]): row for row in tx.all("SELECT * FROM deliveries")}
        bodies = {bytes(row["delivery_id"]): bytes(row["body"]) for row in tx.all("SELECT * FROM payloads")}
        claims = {bytes(row["delivery_id"]) for row in tx.all("SELECT delivery_id FROM identities")}
        runs = tx.all("SELECT delivery_id, automation_id, state, finished_at FROM runs")

    # No two events have the same body, so a body names its event.
    by_body = {event.body: event for event in events}
    assert len(by_body) == len(events)
    accepted_for: defaultdict[int, list[bytes]] = defaultdict(list)
    never_sent = 0
    for key, row in log.items():
        if row["label"] != Label.ACCEPTED:
            continue
        event = by_body.get(bodies.get(key, b""))
        if event is None or event.made.webhook.no != row["webhook_no"] or row["size"] != len(event.body):
            never_sent += 1
        else:
            accepted_for[id(event)].append(key)

    started = Counter((bytes(run["delivery_id"]), run["automation_id"]) for run in runs)
    wanted = {(key, automation) for event in events for key in accepted_for[id(event)] for automation in event.starts}
    accepted = {key for keys in accepted_for.values() for key in keys}
    return Findings(
        accepted=len(accepted),
        lost=sum(_lost(event, log, accepted_for[id(event)]) for event in events),
        accepted_twice=sum(len(keys) - 1 for keys in accepted_for.values() if len(keys) > 1),
        never_sent=never_sent,
        identities_astray=len(claims ^ accepted),
        run_missing=len(wanted - started.keys()),
        run_doubled=sum(count - 1 for count in started.values()),
        run_astray=len(started.keys() - wanted),
        run_open=sum(1 for run in runs if run["finished_at"] is None or not RunState(run["state"]).is_final),
    )


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
