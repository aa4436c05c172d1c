"""Checks of the runs: the objects that they refer to, and the consistency of their states, attempts and times."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from hookmill.domain.ids import run_id, time_of
from hookmill.domain.limits import LOG_DAYS_KEPT
from hookmill.domain.run import Hold, RunState
from hookmill.store.database import Row
from hookmill.store.runs.parts import WITHOUT_DELIVERY
from hookmill.store.verification.snapshot import (
    CLOCK_TOLERANCE_US,
    RESTORE,
    DatabaseProblem,
    DatabaseSnapshot,
    key_bytes,
)

DAY_US: Final = 86_400_000_000
ROWS_PER_PAGE: Final = 1_000
_CANCEL: Final = "If it is not finished, cancel it: hookmill run cancel RUN."
_RUNS: Final = """
    SELECT r.id AS key, r.delivery_id, r.webhook_no, r.factory_id, r.automation_id, r.automation_version, r.state,
           r.attempt, r.failures, r.stopped_attempts, r.created_at, r.claimed_at, r.started_at, r.finished_at,
           r.executor, r.hold, r.policy_key, r.replaced_by, d.id AS delivery, v.version, other.id AS other,
           (SELECT COUNT(*) FROM failed_attempts f WHERE f.run_id = r.id) AS failed_attempts
    FROM runs r
    LEFT JOIN deliveries d ON d.id = r.delivery_id
    LEFT JOIN automation_versions v ON v.automation_id = r.automation_id AND v.version = r.automation_version
    LEFT JOIN runs other ON other.id = r.replaced_by
    WHERE r.id > :last
    ORDER BY r.id
    LIMIT :limit
"""


def check_runs(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    for page in snapshot.pages("checking runs", "runs", _RUNS, rows_per_page=ROWS_PER_PAGE):
        for row in page:
            name = f"run {run_id(bytes(row['key']))}"
            yield from _check_references(snapshot, name, row)
            if row["state"] not in list(RunState):
                yield DatabaseProblem(kind="run_state", row=name, text="Its state does not exist.", advice=_CANCEL)
                continue
            contradictions = [*_state_contradictions(row), *_attempt_contradictions(row)]
            for text in contradictions:
                yield DatabaseProblem(kind="run_state", row=name, text=text, advice=_CANCEL)
            for text in _time_contradictions(row):
                yield DatabaseProblem(kind="run_times", row=name, text=text)


def _check_references(snapshot: DatabaseSnapshot, name: str, row: Row) -> Iterator[DatabaseProblem]:
    has_delivery = row["webhook_no"] != WITHOUT_DELIVERY
    if has_delivery and row["delivery"] is None:
        text = "Its delivery does not exist, so it has no payload."
        yield DatabaseProblem(kind="run_delivery", row=name, text=text, advice=RESTORE)
    elif not has_delivery and bytes(row["delivery_id"]) != bytes(row["key"]):
        yield DatabaseProblem(kind="run_delivery", row=name, text="No delivery started it, but it names one.")
    automation = snapshot.automations.get(row["automation_id"])
    if automation is None or row["version"] is None:
        yield DatabaseProblem(
            kind="run_automation",
            row=name,
            text=f"Version {row['automation_version']} of its automation {row['automation_id']} does not exist, so its "
            "prompt is lost.",
            advice=RESTORE,
        )
    elif automation["factory_id"] != row["factory_id"]:
        yield DatabaseProblem(kind="run_automation", row=name, text="Its automation belongs to another factory.")
    other = key_bytes(row["replaced_by"])
    if (
        other is not None
        and row["other"] is None
        and time_of(other) > snapshot.now - LOG_DAYS_KEPT * DAY_US + CLOCK_TOLERANCE_US
    ):
        yield DatabaseProblem(
            kind="run_replaced", row=name, text=f"It was replaced by {run_id(other)}, which does not exist."
        )


def _state_contradictions(row: Row) -> Iterator[str]:
    state = RunState(row["state"])
    is_claimed = row["executor"] is not None and row["claimed_at"] is not None
    if state.is_final != (row["finished_at"] is not None):
        yield f"It is {state.value}, which contradicts the time of its end."
    if state is RunState.RUNNING and not is_claimed:
        yield "It is running, but no worker has claimed it, so no worker ends it."
    if state is RunState.QUEUED and is_claimed:
        yield "It is queued, but a worker has claimed it, so it never starts."
    if row["hold"] is not None and (state is not RunState.QUEUED or row["hold"] not in list(Hold)):
        yield f"It is {state.value}, but has the hold {row['hold']}."
    if row["policy_key"] is not None and len(row["policy_key"]) != 16:
        yield "Its policy key was altered, so the limits of its policy do not apply."


def _attempt_contradictions(row: Row) -> Iterator[str]:
    state = RunState(row["state"])
    if row["attempt"] < row["failures"] or row["failures"] < 0:
        yield f"{row['failures']} of its {row['attempt']} attempts have failed."
    if row["stopped_attempts"] < 0 or row["attempt"] < row["failures"] + row["stopped_attempts"]:
        yield f"It counts {row['stopped_attempts']} stopped attempts of {row['attempt']}."
    if row["failures"] != row["failed_attempts"]:
        yield f"It counts {row['failures']} failed attempts, and {row['failed_attempts']} are stored."
    if state in (RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED) and row["attempt"] < 1:
        yield f"It is {state.value}, but no attempt of it has begun."


def _time_contradictions(row: Row) -> Iterator[str]:
    times = [(name, row[name]) for name in ("created_at", "started_at", "finished_at") if row[name] is not None]
    for (earlier, first), (later, second) in pairwise(times):
        if second < first - CLOCK_TOLERANCE_US:
            yield f"Its {later} is before its {earlier}."
    if abs(time_of(bytes(row["key"])) - row["created_at"]) > CLOCK_TOLERANCE_US:
        yield "Its created_at is not the time of its id."


def check_parts_of_runs(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether attempts, reports and files belong to runs."""
    for table, owners in (
        ("failed_attempts", ("runs.id",)),
        ("attempt_reports", ("runs.id",)),
        ("run_outputs", ("runs.id",)),
        ("run_results", ("runs.id",)),
        ("platform_attempts", ("runs.id",)),
        ("run_files", ("runs.id", "removed_runs.run_id")),
    ):
        has_owner = " OR ".join(
            f"EXISTS (SELECT 1 FROM {owner.split('.')[0]} WHERE {owner} = p.run_id)" for owner in owners
        )
        for page in snapshot.pages(
            f"checking {table}",
            f"(SELECT DISTINCT run_id FROM {table}) AS runs_with_rows",
            f"""
            SELECT p.run_id AS key, {has_owner} AS has_run
            FROM (SELECT DISTINCT run_id FROM {table} WHERE run_id > :last ORDER BY run_id LIMIT :limit) AS p
            ORDER BY p.run_id
            """,
            rows_per_page=ROWS_PER_PAGE,
        ):
            for row in page:
                if not row["has_run"]:
                    yield DatabaseProblem(
                        kind="part_without_run",
                        row=f"{table} of {run_id(bytes(row['key']))}",
                        text="The run does not exist.",
                        advice=RESTORE,
                    )
