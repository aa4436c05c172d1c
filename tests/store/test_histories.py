"""Random histories of deliveries, dying workers and cancellations: every run ends as its policy allows."""

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, Run, RunState
from hookmill.domain.run_policy import Concurrency, Debounce, Retry, RunPolicy, WhenBusy
from hookmill.store.runs import attempts, cancellation, claims, executors, held
from hookmill.store.runs.attempts import AttemptStatus
from hookmill.store.runs.executors import ExecutorId
from tests.runs.backlog import Backlog
from tests.runs.worker import microseconds
from tests.support.counts import ON_POSTGRES_IN_PROOF, count, only_in_proof

SECOND: Final = 1_000_000
ATTEMPTS_MAX: Final = 3
RETRY: Final = Retry(attempts=2, backoff_seconds=5)
DEBOUNCE: Final = Debounce(seconds=3, max_seconds=9)


def policies_with_limit(limit: int) -> list[RunPolicy]:
    return [
        RunPolicy(
            concurrency=Concurrency(key=("/key",), limit=limit, when_busy=when_busy),
            debounce=debounce,
            retry=retry,
        )
        for when_busy in WhenBusy
        for debounce, retry in ((None, None), (DEBOUNCE, None), (None, RETRY))
    ]


POLICIES: Final = [
    RunPolicy(),
    RunPolicy(retry=RETRY),
    RunPolicy(max_running=1),
    RunPolicy(debounce=DEBOUNCE),
    *policies_with_limit(1),
]
POLICIES_WITH_LIMIT_2: Final = policies_with_limit(2)
ENDED_UNSTARTED: Final = (RunState.SKIPPED, RunState.SUPERSEDED)
ENDED_BY_ANOTHER_RUN: Final = (*ENDED_UNSTARTED, RunState.REPLACED)

ROUNDS_MIN: Final = 20
ROUNDS_PER_RUN_MAX: Final = 6
"""After so many rounds of both workers, every run must have ended."""

_worker_numbers = itertools.count(1)


@pytest.fixture
def backlog(store_url, tmp_path):
    with Backlog(store_url, tmp_path / "data") as backlog:
        yield backlog


@dataclass(slots=True)
class Attempt:
    run: RunKey
    number: int


@dataclass(slots=True)
class History:
    """Runs of one automation, and two workers that perform the steps of real ones in random order."""

    backlog: Backlog
    policy: RunPolicy
    automation: str = field(init=False)
    now: int = field(init=False)
    keys: list[RunKey] = field(default_factory=list)
    workers: list[ExecutorId] = field(default_factory=list)
    current_attempts: dict[ExecutorId, list[Attempt]] = field(default_factory=dict)
    lost_attempts: list[tuple[ExecutorId, Attempt]] = field(default_factory=list)
    """The attempts of dead workers."""
    claim_counts: Counter[RunKey] = field(default_factory=Counter)
    cancelled: set[RunKey] = field(default_factory=set)

    def __post_init__(self):
        self.automation = self.backlog.automation(policy=self.policy)
        self.now = microseconds()
        for _ in range(2):
            self._start_worker()

    def _start_worker(self):
        worker = ExecutorId(f"worker-{next(_worker_numbers)}")
        self.workers.append(worker)
        self.current_attempts[worker] = []
        with self.backlog.database.write() as tx:
            executors.heartbeat(tx, worker, self.now)

    # Events. Each takes a random number, with which it chooses.

    def arrive(self, choice: int):
        body = json.dumps({"key": choice % 2}).encode()
        # Keys begin with the time, and are unordered within one microsecond.
        self.now += 1
        self.keys.append(self.backlog.queue(self.automation, payload=body, now=self.now))

    def wait(self, choice: int):
        self.now += (1 + choice % 6) * SECOND

    def decide(self, _: int):
        with self.backlog.database.write() as tx:
            held.decide(tx, self.now)

    def reconsider(self, _: int):
        with self.backlog.database.write() as tx:
            held.reconsider_all(tx)

    def claim(self, choice: int):
        self._claim(self.workers[choice % len(self.workers)], at_most=1 + choice % 3)

    def _claim(self, worker: ExecutorId, *, at_most: int):
        with self.backlog.database.write() as tx:
            claimed = claims.claim(
                tx, executor=worker, at_most=at_most, after=FactoryId(""), now=self.now, skipped_runners=()
            )
        self.current_attempts[worker] += [Attempt(claimed_run.run, claimed_run.attempt) for claimed_run in claimed]
        self.claim_counts.update(claimed_run.run for claimed_run in claimed)
        self._require_limits()

    def succeed(self, choice: int):
        self._end(choice, Ended(state=RunState.SUCCEEDED))

    def fail(self, choice: int):
        self._end(choice, Ended(state=RunState.FAILED, exit_status=1))

    def release(self, choice: int):
        """The host can't perform the run, and requeues it."""
        if (current := self._next_attempt(choice)) is None:
            return
        worker, attempt = current
        with self.backlog.database.write() as tx:
            attempts.release(
                tx,
                attempt.run,
                executor=worker,
                attempt=attempt.number,
                counts_as_attempt=bool(choice % 2),
                now=self.now,
            )

    def die(self, choice: int):
        """A worker is killed, and another one requeues its runs."""
        worker = self.workers.pop(choice % len(self.workers))
        self.lost_attempts += [(worker, attempt) for attempt in self.current_attempts.pop(worker)]
        with self.backlog.database.write() as tx:
            executors.deregister(tx, worker)
            keys = executors.runs_of_dead_executors(tx)
            executors.requeue(tx, keys, attempts_max=ATTEMPTS_MAX, now=self.now)
        self._start_worker()

    def write_late(self, _: int):
        """A worker that was only frozen reports the result of an attempt whose run was requeued."""
        if not self.lost_attempts:
            return
        worker, attempt = self.lost_attempts.pop()
        before = self.backlog.run(attempt.run)
        with self.backlog.database.write() as tx:
            is_recorded = attempts.finish(
                tx,
                attempt.run,
                Ended(state=RunState.SUCCEEDED, output_tail="late"),
                executor=worker,
                attempt=attempt.number,
                now=self.now,
                policy_key=before.policy_key,
            )
        assert not is_recorded
        assert self.backlog.run(attempt.run) == before

    def cancel(self, choice: int):
        if self.keys:
            key = self.keys[choice % len(self.keys)]
            with self.backlog.database.write() as tx:
                cancellation.request_cancel(tx, key, now=self.now)
            self.cancelled.add(key)

    # The end of an attempt

    def _next_attempt(self, choice: int) -> tuple[ExecutorId, Attempt] | None:
        """The oldest current attempt of one of the workers, with this worker. It is no longer current."""
        worker = self.workers[choice % len(self.workers)]
        return (worker, self.current_attempts[worker].pop(0)) if self.current_attempts[worker] else None

    def _end(self, choice: int, ended: Ended):
        if (current := self._next_attempt(choice)) is None:
            return
        worker, attempt = current
        run = self.backlog.run(attempt.run)
        with self.backlog.database.write() as tx:
            status = attempts.status(tx, run.id, executor=worker, attempt=attempt.number)
            assert status is not AttemptStatus.OUTDATED, "no other executor claims the runs of a live worker"
            if status is AttemptStatus.CANCEL_REQUESTED:
                ended = Ended(state=RunState.CANCELLED)
            retry = run.options.retry
            delay = retry.delay_after(run.failures + 1, 1) if retry is not None else None
            if ended.state is RunState.FAILED and retry is not None and delay is not None:
                due_at = self.now + delay * SECOND
                if attempts.retry(
                    tx, run, ended, executor=worker, now=self.now, due_at=due_at, rule_attempts=retry.attempts
                ):
                    return
            assert attempts.finish(
                tx,
                run.id,
                ended,
                executor=worker,
                attempt=attempt.number,
                now=self.now,
                policy_key=run.policy_key,
            )

    # Assertions

    def runs(self) -> list[Run]:
        return [self.backlog.run(key) for key in self.keys]

    def _require_limits(self):
        running_by_key = Counter(
            self.backlog.run(attempt.run).policy_key
            for of_worker in self.current_attempts.values()
            for attempt in of_worker
        )
        if (concurrency := self.policy.concurrency) is not None:
            assert max(running_by_key.values(), default=0) <= concurrency.limit
        if self.policy.max_running is not None:
            assert running_by_key.total() <= self.policy.max_running

    def drain(self):
        """Let the workers perform all runs that have not ended."""
        for _ in range(ROUNDS_MIN + ROUNDS_PER_RUN_MAX * len(self.keys)):
            if all(run.state.is_final for run in self.runs()):
                return
            self.wait(5)
            self.decide(0)
            for number, worker in enumerate(self.workers):
                self._claim(worker, at_most=2)
                while self.current_attempts[worker]:
                    self.succeed(number)
        raise AssertionError([(run.state, run.hold, run.attempt) for run in self.runs()])

    def check(self):
        runs = self.runs()
        for run in runs:
            assert run.state.is_final
            assert run.hold is None
            if run.state in ENDED_BY_ANOTHER_RUN:
                assert run.replaced_by is not None
            if run.state in ENDED_UNSTARTED:
                assert self.claim_counts[run.id] == 0
            if run.state is RunState.CANCELLED:
                assert run.id in self.cancelled
            if run.state is RunState.SUCCEEDED:
                assert self.claim_counts[run.id] > 0
            if run.state is RunState.INTERRUPTED:
                assert run.attempt >= ATTEMPTS_MAX
        states = {run.state for run in runs}
        when_busy = self.policy.concurrency.when_busy if self.policy.concurrency is not None else None
        if when_busy is not WhenBusy.SKIP:
            assert RunState.SKIPPED not in states
        if when_busy is not WhenBusy.REPLACE:
            assert RunState.REPLACED not in states
        if self.policy.debounce is None:
            assert RunState.SUPERSEDED not in states
        for key in {run.policy_key for run in runs}:
            newest = [run for run in runs if run.policy_key == key][-1]
            # Only an older run is replaced or superseded, and only by a newer one.
            assert newest.state not in (RunState.REPLACED, RunState.SUPERSEDED)
        for run in runs:
            if run.state in (RunState.REPLACED, RunState.SUPERSEDED):
                assert run.replaced_by is not None
                assert run.replaced_by > run.id
        with self.backlog.database.read() as tx:
            assert not claims.has_backlog(tx)
            assert not held.needs_decision(tx, self.now + 3_600 * SECOND)


EVENTS_OF_A_HISTORY: Final = 120
EVENTS: Final = [
    *["arrive"] * 4,
    *["decide", "claim"] * 2,
    "wait",
    "succeed",
    "fail",
    "release",
    "die",
    "write_late",
    "cancel",
    "reconsider",
]
EXAMPLES: Final = count(12, usually=1)
"""The number of histories of each policy on each database."""


@ON_POSTGRES_IN_PROOF
@pytest.mark.parametrize(
    "policy", [*POLICIES, *map(only_in_proof, POLICIES_WITH_LIMIT_2)], ids=lambda policy: json.dumps(policy.as_json())
)
# A history of 120 random events does not shrink to a readable one, so hypothesis only generates.
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture], phases=[Phase.generate])
@given(chance=st.randoms(use_true_random=True))
def test_every_run_ends_as_its_policy_allows(backlog, policy, chance):
    history = History(backlog, policy)

    with patch.object(held, "DECISIONS_MAX", chance.choice([3, held.DECISIONS_MAX])):
        for _ in range(EVENTS_OF_A_HISTORY):
            getattr(history, chance.choice(EVENTS))(chance.randrange(12))
        history.drain()

    history.check()
