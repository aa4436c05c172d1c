"""The work of workers that is due now and next. A single query reads all of it, because workers read it often."""

from dataclasses import dataclass

from hookmill.store import schedules
from hookmill.store.database import Transaction
from hookmill.store.runs import held
from hookmill.store.runs.parts import READY


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The work that a worker can claim or decide about. Times are in µs since 1970; None means that there is none."""

    has_backlog: bool
    needs_decision: bool
    """Whether `held.decide` has work."""
    run_due_at: int | None
    """When the next held run is due."""
    schedule_due_at: int | None
    """When the next schedule is due, as `schedules.next_due_at` returns it."""


def outlook(tx: Transaction, now: int) -> Outlook:
    """The work of the present. `now` is in µs since 1970."""
    row = tx.one(
        f"""
        SELECT
            EXISTS (SELECT 1 FROM runs WHERE {READY}) AS has_backlog,
            EXISTS ({held.NEEDS_DECISION_QUERY}) AS needs_decision,
            ({held.NEXT_DUE_QUERY}) AS run_due_at,
            {schedules.DUE_COLUMNS}
        """,
        now=now,
    )
    assert row is not None
    return Outlook(
        has_backlog=bool(row["has_backlog"]),
        needs_decision=bool(row["needs_decision"]),
        run_due_at=row["run_due_at"],
        schedule_due_at=schedules.due_at_of(row, now),
    )
