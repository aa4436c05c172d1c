"""The outbox of results: one row for each message about a run.

An attempt of a run inserts the rows if there are none yet. A row about the end is `open` unless it is refused, and is
due as soon as the row of the run has `finished_at`. So whatever ends a run executes no statement for its messages. A
sender claims a message, sends it, and finishes it. If the sender dies in between, its claim is released or expires, and
the message is sent again, unless that was the last attempt.

Messages with the same lane are claimed in their order. A newer commit status replaces an older one that still waits.
Each run has its own check run, so the message about a run's end replaces only that run's message about its start.

All runs of an automation for one pull request have the same lane for the comment that they update, and one for their
reviews. There, the order is that in which the runs were created, whichever of them ends first.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, assert_never
from urllib.parse import quote

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import RunKey, delivery_id, run_id
from hookmill.domain.result_message import MessageState, ResultMessage, SendAttempt
from hookmill.domain.result_text import RunResult
from hookmill.domain.results import DISCUSSION_KINDS, STATE_KINDS, PlannedResult, ResultKind, ResultTarget
from hookmill.domain.run import Run, RunState
from hookmill.domain.run_outputs import ANNOTATIONS_FILE
from hookmill.store import dialect
from hookmill.store.database import Row, Transaction
from hookmill.store.notices import ATTEMPTS_MAX, CLAIM_US, RESTORED, RETRY_US_MAX, SKEW_US, retry_us
from hookmill.store.runs import outputs, reading
from hookmill.store.runs.executors import ExecutorId

START: Final = 1
END: Final = 2
"""The phases of a run about which messages are sent."""
QUEUED_AT_ONCE: Final = 100
EARLIER_REVIEWS_MAX: Final = 20
"""With how many earlier reviews a new one is compared."""
PROBLEM_CHARACTERS_MAX: Final = 500
DIED: Final = "The worker ended before it knew the result. The message may have arrived."
_THIS_ROW: Final = "run_id = :run AND number = :number AND phase = :phase"
_CLAIM_LOCK: Final = 0x72736C74
"""The number of PostgreSQL's advisory lock for claims. Every version must use the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedResult:
    """A message that this process may send now."""

    result: RunResult
    kind: ResultKind
    destination: str
    target: ResultTarget
    phase: int
    attempt: int
    """1 for the first attempt."""
    run_started_at: int
    may_have_arrived: bool
    """Whether an earlier attempt may have arrived."""
    remote_id: int | None = None
    """The number of what an earlier message has created, and this one changes: a check run or a comment."""
    may_have_check_run: bool = False
    """Whether GitHub may have a check run although its number is unknown."""
    automation_id: str
    reports: Sequence[AgentReport] = ()
    """What the run's agent has reported about its attempts, for a comment."""
    earlier_annotations: Sequence[str] = ()
    """The files with the annotations of earlier runs of which reviews were sent, for a review."""
    log: Sequence[SendAttempt]
    claimed_at: int

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= ATTEMPTS_MAX

    @property
    def row(self) -> dict[str, Any]:
        """The parameters of `_THIS_ROW`."""
        return {"run": self.result.run, "number": self.result.number, "phase": self.phase}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    status: int | None
    url: str | None = None
    note: str | None = None
    remote_id: int | None = None
    """The number of the check run, comment or review that was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """The attempt failed. `is_final`: another attempt would fail, too.

    `may_have_arrived`: there was no response, or one that does not exclude that the request was performed.
    """

    problem: str
    status: int | None = None
    is_final: bool = False
    may_have_arrived: bool = False
    retry_after_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToSend:
    """The run wrote nothing that this result could deliver, or the comment is already of a newer run."""

    reason: str


Outcome = Sent | NotSent | NothingToSend


def begin(tx: Transaction, run: Run, planned: Sequence[PlannedResult], *, executor: ExecutorId, now: int) -> bool:
    """Add the messages of a run whose attempt begins, unless an earlier attempt has.

    Returns False, and writes nothing, if the attempt is outdated.
    """
    row = tx.one(
        f"""
        SELECT 1 AS one
        FROM runs
        WHERE id = :run AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
        """,
        run=run.id,
        executor=executor,
        attempt=run.attempt,
    )
    if row is None:
        return False
    if tx.one("SELECT 1 AS one FROM run_results WHERE run_id = :run LIMIT 1", run=run.id) is not None:
        return True
    for result in planned:
        lane = _lane(run, result)
        if result.refusal is None and result.reports_start:
            _supersede(tx, result.kind, lane)
            _insert(tx, run, result, START, MessageState.WAITING, lane, now)
        state = MessageState.REFUSED if result.refusal is not None else MessageState.OPEN
        _insert(tx, run, result, END, state, lane, now)
    return True


def _insert(
    tx: Transaction, run: Run, result: PlannedResult, phase: int, state: MessageState, lane: str, now: int
) -> None:
    tx.run(
        """
        INSERT INTO run_results (
            run_id, number, phase, kind, destination, target, lane, state, attempts, log, is_uncertain, queued_at,
            due_at, finished_at, failure
        )
        VALUES (
            :run, :number, :phase, :kind, :destination, :target, :lane, :state, 0, '[]', FALSE, :queued_at,
            :due_at, :finished_at, :failure
        )
        """,
        run=run.id,
        number=result.number,
        phase=phase,
        kind=result.kind,
        destination=result.destination,
        target=json.dumps(asdict(result.target)),
        lane=lane,
        state=state,
        queued_at=run.created_at if result.kind in DISCUSSION_KINDS else now,
        due_at=now if state is MessageState.WAITING else None,
        finished_at=now if state is MessageState.REFUSED else None,
        failure=result.refusal,
    )


def _lane(run: Run, result: PlannedResult) -> str:
    target = result.target
    repository = f"{result.destination} {(target.repository or '').lower()}"
    if result.refusal is None and result.kind is ResultKind.GITHUB_STATUS:
        return f"{repository} {target.commit} {(target.context or '').lower()}"
    if result.refusal is None and (target.is_updated or result.kind is ResultKind.GITHUB_REVIEW):
        return f"{repository}#{target.number} {result.kind} {run.automation_id}"
    return f"{run.id.hex()} {result.number}"


def _supersede(tx: Transaction, kind: ResultKind, lane: str) -> None:
    """Give up messages about a state that wait, because a newer one replaces them. A claimed one stays."""
    if kind in STATE_KINDS:
        tx.run(
            """
            UPDATE run_results
            SET state = 'superseded', due_at = NULL
            WHERE lane = :lane AND state = 'waiting' AND claimed_until IS NULL
            """,
            lane=lane,
        )


def may_have_due(tx: Transaction, now: int) -> bool:
    """Whether a message may be due, so that `claim` is worth a write transaction."""
    return (
        tx.one(
            f"""
            SELECT 1 AS one FROM run_results WHERE state = 'waiting' AND {_IS_DUE}
            UNION ALL
            SELECT 1 AS one FROM run_results o JOIN runs r ON r.id = o.run_id
            WHERE o.state = 'open' AND r.finished_at IS NOT NULL
            LIMIT 1
            """,
            **_times(now),
        )
        is not None
    )


# Times that are too far in the future come from a clock that was wrong.
_IS_DUE: Final = """
    (due_at <= :now OR due_at > :due_max) AND (claimed_until IS NULL OR claimed_until <= :now OR claimed_until > :until)
"""


def _times(now: int) -> dict[str, int]:
    return {"now": now, "due_max": now + RETRY_US_MAX + SKEW_US, "until": now + CLAIM_US + SKEW_US}


def claim(tx: Transaction, now: int, *, public_url: str, executor: ExecutorId | None = None) -> ClaimedResult | None:
    """Claim a message; None if none can be sent. `now` is in µs since 1970.

    It is the one that has been due for the longest time, among the first of their lanes whose destination is free.

    `executor` is the worker that claims it, for `release`.
    """
    dialect.lock(tx, _CLAIM_LOCK)
    _queue_messages_about_ended_runs(tx, now)
    while True:
        row = tx.one(
            f"""
            SELECT *
            FROM run_results m
            WHERE state = 'waiting' AND {_IS_DUE}
                AND NOT EXISTS (
                    SELECT 1 FROM run_results o
                    WHERE o.lane = m.lane AND o.state = 'waiting'
                        AND (o.queued_at, o.run_id, o.phase) < (m.queued_at, m.run_id, m.phase)
                )
                AND NOT EXISTS (
                    SELECT 1 FROM run_results o
                    WHERE o.state = 'waiting' AND o.destination = m.destination
                        AND o.claimed_until > :now AND o.claimed_until <= :until
                )
            ORDER BY due_at, run_id, number, phase
            LIMIT 1
            """,
            **_times(now),
        )
        if row is None:
            return None
        log = _log(row)
        has_expired = row["claimed_until"] is not None
        if has_expired:
            log.append(SendAttempt(at=row["claimed_until"] - CLAIM_US, problem=DIED))
        is_given_up = row["attempts"] >= ATTEMPTS_MAX
        may_have_arrived = bool(row["is_uncertain"]) or has_expired
        tx.run(
            f"""
            UPDATE run_results
            SET state = :state, attempts = :attempts, claimed_until = :claimed_until, claimed_by = :executor,
                log = :log, is_uncertain = :is_uncertain, finished_at = :finished_at, failure = :failure
            WHERE {_THIS_ROW}
            """,
            state=MessageState.FAILED if is_given_up else MessageState.WAITING,
            attempts=row["attempts"] + (0 if is_given_up else 1),
            claimed_until=None if is_given_up else now + CLAIM_US,
            executor=None if is_given_up else executor,
            log=_log_json(log),
            is_uncertain=may_have_arrived,
            finished_at=now if is_given_up else None,
            failure=log[-1].problem if log else None,
            **_key(row),
        )
        if not is_given_up:
            return _claimed(tx, row, log, now, public_url, may_have_arrived=may_have_arrived)


def release(tx: Transaction, executor: ExecutorId) -> None:
    """Release the claims of a worker that has ended or counts as dead. Its messages may have arrived."""
    dialect.lock(tx, _CLAIM_LOCK)
    rows = tx.all(
        "SELECT * FROM run_results WHERE state = 'waiting' AND claimed_by = :executor AND claimed_until IS NOT NULL",
        executor=executor,
    )
    for row in rows:
        # A worker that lives after all may have finished the message meanwhile.
        tx.run(
            f"""
            UPDATE run_results
            SET claimed_until = NULL, log = :log, is_uncertain = TRUE, failure = :failure
            WHERE {_THIS_ROW} AND state = 'waiting' AND attempts = :attempts AND claimed_until IS NOT NULL
            """,
            log=_log_json([*_log(row), SendAttempt(at=row["claimed_until"] - CLAIM_US, problem=DIED)]),
            failure=DIED,
            attempts=row["attempts"],
            **_key(row),
        )


def _queue_messages_about_ended_runs(tx: Transaction, now: int) -> None:
    """Let the messages about runs that have ended wait to be sent.

    A status is superseded instead if another run has begun for its commit and name since then, and has not ended. A
    comment or a review is superseded if that of a newer run waits or was sent.
    """
    rows = tx.all(
        f"""
        SELECT o.run_id, o.number, o.phase, o.kind, o.lane, o.queued_at, r.finished_at,
            EXISTS (
                SELECT 1 FROM run_results n JOIN runs newer ON newer.id = n.run_id
                WHERE n.lane = o.lane AND n.state = 'open' AND n.run_id <> o.run_id
                    AND n.queued_at >= r.finished_at AND newer.finished_at IS NULL
            ) AS is_outdated
        FROM run_results o JOIN runs r ON r.id = o.run_id
        WHERE o.state = 'open' AND r.finished_at IS NOT NULL
        ORDER BY r.finished_at, o.run_id, o.number
        LIMIT {QUEUED_AT_ONCE}
        """
    )
    for row in rows:
        kind = ResultKind(row["kind"])
        is_outdated = _has_newer(tx, row) if kind in DISCUSSION_KINDS else row["is_outdated"]
        if not is_outdated:
            _supersede(tx, kind, row["lane"])
        tx.run(
            f"UPDATE run_results SET state = :state, queued_at = :queued_at, due_at = :due_at WHERE {_THIS_ROW}",
            state=MessageState.SUPERSEDED if is_outdated else MessageState.WAITING,
            # Messages are sent in this order. By another clock, or one that was corrected, the run may seem to end
            # before it started.
            queued_at=row["queued_at"] if kind in DISCUSSION_KINDS else max(now, row["finished_at"], row["queued_at"]),
            due_at=None if is_outdated else now,
            **_key(row),
        )


def _has_newer(tx: Transaction, row: Row) -> bool:
    """Whether a message of a newer run waits in the same lane, or was sent."""
    newer = tx.one(
        """
        SELECT 1 AS one FROM run_results
        WHERE lane = :lane AND state = 'waiting' AND (queued_at, run_id) > (:queued_at, :run)
        UNION ALL
        SELECT 1 AS one FROM run_results
        WHERE lane = :lane AND state = 'sent' AND remote_id IS NOT NULL AND (queued_at, run_id) > (:queued_at, :run)
        LIMIT 1
        """,
        lane=row["lane"],
        queued_at=row["queued_at"],
        run=bytes(row["run_id"]),
    )
    return newer is not None


def _claimed(
    tx: Transaction, row: Row, log: Sequence[SendAttempt], now: int, public_url: str, *, may_have_arrived: bool
) -> ClaimedResult:
    run = tx.one(
        """
        SELECT r.state, r.attempt, r.started_at, r.finished_at, r.exit_status, r.delivery_id, r.webhook_no,
            r.automation_id, v.name AS automation, f.name AS factory
        FROM runs r
        JOIN automation_versions v ON v.automation_id = r.automation_id AND v.version = r.automation_version
        JOIN factories f ON f.id = r.factory_id
        WHERE r.id = :run
        """,
        run=bytes(row["run_id"]),
    )
    assert run is not None, "retention removes a run with its results"
    key = RunKey(bytes(row["run_id"]))
    has_ended = row["phase"] == END
    kind, target = ResultKind(row["kind"]), ResultTarget(**json.loads(row["target"]))
    remote_id, may_have_check_run = None, False
    if kind is ResultKind.GITHUB_CHECK:
        remote_id, may_have_check_run = _check_run_at_start(tx, row) if has_ended else (None, False)
        may_have_check_run |= may_have_arrived
    elif target.is_updated:
        remote_id = _comment_of_lane(tx, row["lane"])
    return ClaimedResult(
        result=RunResult(
            run=key,
            number=row["number"],
            has_ended=has_ended,
            state=RunState(run["state"]),
            attempt=run["attempt"],
            automation=run["automation"],
            factory=run["factory"],
            delivery_id=delivery_id(bytes(run["delivery_id"])) if run["webhook_no"] else None,
            at=run["finished_at"] if has_ended else row["queued_at"],
            exit_status=run["exit_status"],
            outputs=outputs.of_run(tx, key) if has_ended else {},
            url=f"{public_url}/f/{quote(run['factory'], safe='')}/runs/{run_id(key)}",
        ),
        kind=kind,
        destination=row["destination"],
        target=target,
        phase=row["phase"],
        attempt=row["attempts"] + 1,
        run_started_at=run["started_at"] or now,
        may_have_arrived=may_have_arrived,
        remote_id=remote_id,
        may_have_check_run=may_have_check_run,
        automation_id=run["automation_id"],
        reports=list(reading.attempt_reports(tx, key).values()) if kind is ResultKind.GITHUB_COMMENT else (),
        earlier_annotations=_earlier_annotations(tx, row) if kind is ResultKind.GITHUB_REVIEW else (),
        log=log,
        claimed_at=now,
    )


def _comment_of_lane(tx: Transaction, lane: str) -> int | None:
    """The number of the comment that the newest message has created or updated."""
    newest = tx.one(
        """
        SELECT remote_id FROM run_results
        WHERE lane = :lane AND remote_id IS NOT NULL
        ORDER BY queued_at DESC, run_id DESC
        LIMIT 1
        """,
        lane=lane,
    )
    return newest["remote_id"] if newest is not None else None


def _earlier_annotations(tx: Transaction, row: Row) -> list[str]:
    """The annotations of the newest runs whose reviews were sent in the same lane."""
    rows = tx.all(
        f"""
        SELECT o.content
        FROM run_results m JOIN run_outputs o ON o.run_id = m.run_id
        WHERE m.lane = :lane AND m.remote_id IS NOT NULL AND m.run_id <> :run AND o.name = '{ANNOTATIONS_FILE}'
        ORDER BY m.queued_at DESC
        LIMIT {EARLIER_REVIEWS_MAX}
        """,
        lane=row["lane"],
        run=bytes(row["run_id"]),
    )
    return [each["content"] for each in rows]


def _check_run_at_start(tx: Transaction, row: Row) -> tuple[int | None, bool]:
    """The number of the check run that the message about the start has created, and whether there may be one."""
    start = tx.one(
        f"SELECT remote_id, state, attempts FROM run_results WHERE {_THIS_ROW}", **(_key(row) | {"phase": START})
    )
    assert start is not None, "`begin` adds it with the message about the end"
    # A restore marks waiting messages `failed`, and the original may have sent them. So only `superseded` without
    # attempts proves that there is no check run.
    was_never_sent = start["state"] == MessageState.SUPERSEDED and start["attempts"] == 0
    return start["remote_id"], not was_never_sent


def finish(tx: Transaction, claimed: ClaimedResult, outcome: Outcome, now: int) -> bool:
    """Record the outcome of the attempt.

    Returns False, and does not change its state, if the claim had expired and the state was decided without this
    attempt. Then the newest state of its lane is sent again.
    """
    log = list(claimed.log)
    problem: str | None = None
    due_at: int | None = None
    match outcome:
        case Sent():
            state = MessageState.SENT
            log.append(SendAttempt(at=claimed.claimed_at, status=outcome.status, problem=outcome.note))
        case NothingToSend(reason=problem):
            state = MessageState.OMITTED
        case NotSent():
            problem = outcome.problem[:PROBLEM_CHARACTERS_MAX]
            log.append(SendAttempt(at=claimed.claimed_at, status=outcome.status, problem=problem))
            if outcome.is_final:
                state = MessageState.REFUSED
            elif claimed.is_last_attempt:
                state = MessageState.FAILED
            else:
                state = MessageState.WAITING
                pause_us = max(retry_us(claimed.attempt), outcome.retry_after_seconds * 1_000_000)
                due_at = now + min(pause_us, RETRY_US_MAX)
        case _:
            assert_never(outcome)
    own_claim = {**claimed.row, "attempt": claimed.attempt}
    finished_rows = tx.run(
        f"""
        UPDATE run_results
        SET state = :state, finished_at = :finished_at, failure = :failure, url = :url,
            remote_id = COALESCE(:remote_id, remote_id), log = :log, claimed_until = NULL, due_at = :due_at,
            is_uncertain = :is_uncertain
        WHERE {_THIS_ROW} AND state = 'waiting' AND attempts = :attempt
        """,
        state=state,
        finished_at=now if due_at is None else None,
        failure=problem,
        url=outcome.url if isinstance(outcome, Sent) else None,
        remote_id=outcome.remote_id if isinstance(outcome, Sent) else None,
        log=_log_json(log),
        due_at=due_at,
        is_uncertain=claimed.may_have_arrived or _may_have_arrived(outcome),
        **own_claim,
    )
    is_late = finished_rows == 0
    if is_late and claimed.kind in STATE_KINDS and (isinstance(outcome, Sent) or _may_have_arrived(outcome)):
        _send_newer_state_again(tx, claimed, outcome, now)
    if claimed.kind in STATE_KINDS and state is MessageState.WAITING:
        # A newer state must not wait until this one has been sent.
        tx.run(
            f"""
            UPDATE run_results
            SET state = 'superseded', due_at = NULL
            WHERE {_THIS_ROW} AND state = 'waiting' AND attempts = :attempt
                AND EXISTS (
                    SELECT 1 FROM run_results n
                    WHERE n.lane = run_results.lane AND n.state = 'waiting'
                        AND (n.queued_at, n.run_id, n.phase)
                            > (run_results.queued_at, run_results.run_id, run_results.phase)
                )
            """,
            **own_claim,
        )
    return not is_late


def _may_have_arrived(outcome: Outcome) -> bool:
    return isinstance(outcome, NotSent) and outcome.may_have_arrived


def _send_newer_state_again(tx: Transaction, claimed: ClaimedResult, outcome: Outcome, now: int) -> None:
    """Send the newest state of the lane again, because this older one may have arrived after it.

    Its sender was frozen. Another worker has meanwhile sent the older message and a newer one. The older one may also
    have created a second check run, which the newest state must complete, or overwritten a newer comment.
    """
    if isinstance(outcome, Sent) and outcome.remote_id is not None:
        tx.run(
            f"UPDATE run_results SET remote_id = :remote_id WHERE {_THIS_ROW}",
            remote_id=outcome.remote_id,
            **claimed.row,
        )
    tx.run(
        """
        UPDATE run_results
        SET state = 'waiting', due_at = :now, finished_at = NULL, is_uncertain = TRUE,
            attempts = CASE WHEN attempts < :attempts_max THEN attempts ELSE :attempts_max - 1 END
        WHERE state = 'sent'
            AND EXISTS (
                SELECT 1 FROM run_results late
                WHERE late.run_id = :run AND late.number = :number AND late.phase = :phase
                    AND late.lane = run_results.lane
                    AND (late.queued_at, late.run_id, late.phase)
                        < (run_results.queued_at, run_results.run_id, run_results.phase)
            )
            AND NOT EXISTS (
                SELECT 1 FROM run_results newer
                WHERE newer.lane = run_results.lane AND newer.state IN ('waiting', 'sent')
                    AND (newer.queued_at, newer.run_id, newer.phase)
                        > (run_results.queued_at, run_results.run_id, run_results.phase)
            )
        """,
        now=now,
        attempts_max=ATTEMPTS_MAX,
        **claimed.row,
    )


def _key(row: Row) -> dict[str, Any]:
    """The parameters of `_THIS_ROW`."""
    return {"run": bytes(row["run_id"]), "number": row["number"], "phase": row["phase"]}


def _log(row: Row) -> list[SendAttempt]:
    return [SendAttempt(**each) for each in json.loads(row["log"])]


def _log_json(log: Sequence[SendAttempt]) -> str:
    return json.dumps([asdict(each) for each in log])


def discard_waiting(tx: Transaction, now: int) -> int:
    """Send none of the messages that wait in a restored backup, because the original may have sent them. Returns their
    number.

    A message about the end of a run that has not ended stays open, because the copy performs this run.
    """
    return tx.run(
        """
        UPDATE run_results
        SET state = 'failed', finished_at = :now, due_at = NULL, claimed_until = NULL, failure = :failure
        WHERE state = 'waiting' OR (
            state = 'open'
            AND EXISTS (SELECT 1 FROM runs r WHERE r.id = run_results.run_id AND r.finished_at IS NOT NULL)
        )
        """,
        now=now,
        failure=RESTORED,
    )


def of_run(tx: Transaction, key: RunKey) -> list[ResultMessage]:
    """The messages about a run, in the order of the automation's list."""
    rows = tx.all("SELECT * FROM run_results WHERE run_id = :run ORDER BY number, phase", run=key)
    return [
        ResultMessage(
            number=row["number"],
            kind=ResultKind(row["kind"]),
            destination=row["destination"],
            target=ResultTarget(**json.loads(row["target"])),
            is_about_end=row["phase"] == END,
            state=MessageState(row["state"]),
            attempts=_log(row),
            due_at=row["due_at"],
            finished_at=row["finished_at"],
            problem=row["failure"],
            url=row["url"],
            is_uncertain=bool(row["is_uncertain"]),
        )
        for row in rows
    ]
