"""Sends the messages about results of runs."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from hookmill.domain.errors import ReportFailure, StoreUnavailable
from hookmill.domain.ids import run_id
from hookmill.outbox import OutboxSender
from hookmill.store import results
from hookmill.store.database import Database, Transaction
from hookmill.store.results import ClaimedResult, NotSent, Outcome
from hookmill.store.runs.executors import ExecutorId


class SendResult(Protocol):
    def __call__(self, claimed: ClaimedResult) -> Outcome: ...


class ResultSender(OutboxSender[ClaimedResult]):
    def __init__(
        self,
        database: Database,
        send: SendResult,
        now_us: Callable[[], int],
        *,
        public_url: str,
        report_failure: ReportFailure,
    ) -> None:
        super().__init__("results", database, now_us, report_failure)
        self._send_result = send
        self._public_url = public_url
        self.executor: ExecutorId | None = None
        """The worker that claims messages. Its claims are released when it is dead."""

    def close(self, seconds: float) -> bool:
        is_idle = super().close(seconds)
        if not is_idle and self.executor is not None:
            with suppress(StoreUnavailable), self._database.write() as tx:
                results.release(tx, self.executor)
        return is_idle

    def _may_have_due(self, tx: Transaction, now: int) -> bool:
        return results.may_have_due(tx, now)

    def _claim(self, tx: Transaction, now: int) -> ClaimedResult | None:
        return results.claim(tx, now, public_url=self._public_url, executor=self.executor)

    def _attempt(self, claimed: ClaimedResult) -> str | None:
        outcome = self._send_result(claimed)
        with self._database.write() as tx:
            is_recorded = results.finish(tx, claimed, outcome, self._now_us())
        if not is_recorded or not isinstance(outcome, NotSent) or not (outcome.is_final or claimed.is_last_attempt):
            return None
        return (
            f"The {claimed.kind.value} of {run_id(claimed.result.run)} for the destination "
            f"{claimed.destination!r} was given up: {outcome.problem}"
        )
