"""Verifies the stored data while the service runs."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.app import now_us, open_store
from hookmill.app.snapshot_limits import SnapshotLimits
from hookmill.domain.errors import StoreUnavailable
from hookmill.settings import Settings
from hookmill.store.migrate import refuse_other_revision
from hookmill.store.verification.checks import all_problems
from hookmill.store.verification.schema import FILE_DAMAGED
from hookmill.store.verification.snapshot import DatabaseProblem, DatabaseSnapshot

CONNECTIONS: Final = 2
IDLE_SECONDS: Final = 600
PROBLEMS_MAX: Final = 50
"""How many problems of each kind are listed. Further ones are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """Every problem, or `PROBLEMS_MAX` of each kind. `rows` is how many rows were checked."""

    rows: int
    problems: Sequence[DatabaseProblem]
    counts: Counter[str]
    """The number of all problems, by kind."""
    seconds: float

    @property
    def omitted(self) -> int:
        return self.counts.total() - len(self.problems)


def verify(settings: Settings, report: Callable[[str, int, int], None]) -> VerifyResult:
    """Check one snapshot of the database. `report` gets a title, the rows since its last call, and the total.

    Raises `WrongKey` without the master keys, `Conflict` for a database of another version, `SnapshotStopped` if the
    verification takes too long, and `StoreUnavailable`.
    """
    began_at = time.monotonic()
    store = open_store(settings, connections=CONNECTIONS, idle_seconds=IDLE_SECONDS)
    problems: list[DatabaseProblem] = []
    counts: Counter[str] = Counter()
    rows = 0

    try:
        limits = SnapshotLimits(store.database, "verification", "Nothing was changed.")
        with store.database.read() as tx:
            refuse_other_revision(tx)
            snapshot = DatabaseSnapshot(tx, store.master_keys, now_us(), report, limits.check)
            for problem in all_problems(snapshot):
                counts[problem.kind] += 1
                if counts[problem.kind] <= PROBLEMS_MAX:
                    problems.append(problem)
            rows = snapshot.rows
    except StoreUnavailable:
        # SQLite can't even end a transaction on a damaged file.
        if FILE_DAMAGED not in counts:
            raise
    finally:
        store.close()
    return VerifyResult(rows=rows, problems=problems, counts=counts, seconds=time.monotonic() - began_at)
