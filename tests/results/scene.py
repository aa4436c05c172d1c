"""Runs with results, as the worker performs them, and an outbox that tests send by hand."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.domain.filters.globs import read_glob
from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.result_message import ResultMessage
from hookmill.domain.results import (
    DestinationRules,
    ResultDestinationKind,
    plan_results,
)
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_options import RunOptions
from hookmill.domain.spec import read
from hookmill.store import results
from hookmill.store.results import ClaimedResult, Outcome, Sent
from hookmill.store.runs import attempts, claims
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog

WORKER: Final = ExecutorId("worker")
SHA: Final = "a" * 39 + "1"
STATUS: Final = {"kind": "github_status", "destination": "github"}
CHECK: Final = {"kind": "github_check", "destination": "github"}
COMMENT: Final = {"kind": "github_comment", "destination": "github"}
REVIEW: Final = {"kind": "github_review", "destination": "github"}
WEBHOOK: Final = {"kind": "webhook", "destination": "ci"}
SLACK: Final = {"kind": "slack", "destination": "team"}
PULL_REQUEST: Final = {
    "action": "opened",
    "repository": {"full_name": "acme/shop"},
    "pull_request": {"number": 7, "head": {"sha": SHA}},
}
_GLOB: Final = read_glob("acme/*")
assert _GLOB is not None
RULES: Final = {
    "github": DestinationRules(kind=ResultDestinationKind.GITHUB, repositories=(_GLOB,), has_app=True),
    "ci": DestinationRules(kind=ResultDestinationKind.WEBHOOK),
    "team": DestinationRules(kind=ResultDestinationKind.SLACK),
}


@dataclass
class Scene:
    backlog: Backlog
    now: int = 2_000_000_000_000_000
    """The time in µs since 1970."""
    sent: list[tuple[str, str]] = field(default_factory=list)
    """The kind of each message that was sent, and what it is about."""

    def advance(self, seconds: float):
        self.now += int(seconds * 1_000_000)

    def queue(self, *declared: Any, payload: Any = PULL_REQUEST, **automation: Any) -> RunKey:
        options = read(RunOptions, {"results": list(declared)})
        return self.backlog.queue(
            self.backlog.automation(options=options, **automation), payload=json.dumps(payload).encode()
        )

    def begin(self, key: RunKey, executor: ExecutorId = WORKER):
        """Claim the run, and begin its attempt as a performer does."""
        with self.backlog.database.write() as tx:
            claims.claim(tx, executor=executor, at_most=9, after=FactoryId(""), now=self.now)
        assert self.begin_results(key, executor)

    def begin_results(self, key: RunKey, executor: ExecutorId = WORKER) -> bool:
        run = self.backlog.run(key)
        planned = plan_results(run.options.results, json.dumps(PULL_REQUEST).encode(), run.automation_name, RULES)
        with self.backlog.database.write() as tx:
            return results.begin(tx, run, planned, executor=executor, now=self.now)

    def started(self, *declared: Any) -> RunKey:
        key = self.queue(*declared)
        self.begin(key)
        return key

    def finish(self, key: RunKey, state: RunState = RunState.SUCCEEDED):
        with self.backlog.database.write() as tx:
            result = Ended(state=state)
            attempt = self.backlog.run(key).attempt
            assert attempts.finish(tx, key, result, executor=WORKER, attempt=attempt, now=self.now)

    def claim(self, executor: ExecutorId | None = None) -> ClaimedResult | None:
        with self.backlog.database.read() as tx:
            may_have_due = results.may_have_due(tx, self.now)
        with self.backlog.database.write() as tx:
            claimed = results.claim(tx, self.now, public_url="https://hooks.test", executor=executor)
        assert may_have_due or claimed is None
        return claimed

    def record(self, claimed: ClaimedResult, outcome: Outcome) -> bool:
        with self.backlog.database.write() as tx:
            return results.finish(tx, claimed, outcome, self.now)

    def send_all(self) -> list[tuple[str, str]]:
        """Send all messages that are due. Returns the kind of each, and what it is about."""
        sent = []
        while (claimed := self.claim()) is not None:
            sent.append((claimed.kind.value, claimed.result.state.value if claimed.result.has_ended else "started"))
            remote_id = 7 if claimed.target.repository is not None and claimed.kind != STATUS["kind"] else None
            assert self.record(claimed, Sent(status=201, remote_id=remote_id))
            self.now += 1
        return sent

    def deliveries(self, key: RunKey) -> list[ResultMessage]:
        with self.backlog.database.read() as tx:
            return results.of_run(tx, key)

    def states(self, key: RunKey) -> list[str]:
        return [each.state for each in self.deliveries(key)]
