"""Evaluates the conditions of alarms every minute, and raises and resolves alarms.

One worker evaluates for the installation, and each worker for its host. They only read what the service stores anyway,
so deliveries and runs take no part in it. If no worker is left, an ingress process raises the alarm about that.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from hookmill.alarm_watch.automations import WaitingRuns, failing_conditions
from hookmill.alarm_watch.installation import (
    CertificateWatch,
    clock_condition,
    clock_subject,
    disk_condition,
    disk_subject,
    worker_condition,
)
from hookmill.alarm_watch.webhooks import webhook_conditions
from hookmill.domain import ids
from hookmill.domain.alarm import (
    EVALUATION_SECONDS,
    Alarm,
    AlarmCondition,
    AlarmEvent,
    AlarmKind,
    AlarmNotice,
    AlarmStep,
    AlarmThresholds,
    FreeSpace,
    needs_notice,
    next_step,
)
from hookmill.domain.errors import ReportFailure, reporting_once
from hookmill.store import alarms, factories, notices
from hookmill.store.database import Database, Transaction

FIRST_EVALUATION_SECONDS: Final = 20.0
"""The time between the start and the first evaluation."""
PAUSE_FACTOR: Final = 20
"""The pause after an evaluation is at least this multiple of its duration, so that many webhooks cost little. But it is
never longer than `PAUSE_SECONDS_MAX`."""
PAUSE_SECONDS_MAX: Final = 120.0
"""It is shorter than the time after which another process evaluates."""
CHANGES_PER_STEP: Final = 100
"""The alarms that one transaction changes."""
REMOVAL_SECONDS: Final = 3_600.0
"""The time between two removals of old alarms."""
TIMES: Final = alarms.EvaluationTimes(takeover_us=180_000_000, interruption_us=600_000_000)
EVALUATED_ON_EACH_HOST: Final = frozenset({AlarmKind.DISK_LOW, AlarmKind.CLOCK_WRONG})
EVALUATED_BY_ONE_PROCESS: Final = frozenset(AlarmKind) - EVALUATED_ON_EACH_HOST
"""The kinds that one process evaluates for the whole installation. `report_stopped_worker` raises `WORKER_STOPPED`. A
worker that evaluates is not stopped, so it resolves this alarm."""
UNCHECKED_AFTER_US: Final = 3_600_000_000
"""An alarm about a host is resolved if no worker has run there for this time."""

_Key = tuple[AlarmKind, str]
"""The kind of an alarm, and the id of its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmConfig:
    """The settings that alarms depend on."""

    public_url: str
    thresholds: AlarmThresholds = field(default_factory=AlarmThresholds)
    base_url: str | None = None
    """The URL whose certificate is watched, if it is https."""
    host: str = field(default_factory=socket.gethostname)
    """The name of this host."""
    read_free_space: Callable[[], FreeSpace] | None = None
    """Reads the free space for the data directory. May raise `OSError`. None: there is no alarm about the disk."""


class AlarmEvaluator:
    """Evaluates the conditions once for each call. It belongs to one thread."""

    def __init__(
        self,
        database: Database,
        config: AlarmConfig,
        now_us: Callable[[], int],
        *,
        pause: Callable[[], bool] = lambda: False,
    ) -> None:
        """`pause` is called between two read transactions; if it returns True, the evaluation ends early."""
        self._database = database
        self._config = config
        self._now_us = now_us
        self._pause = pause
        self._id = os.urandom(8).hex()
        self._waiting_runs = WaitingRuns()
        self._certificate = CertificateWatch(config.base_url, config.thresholds)

    def evaluate(self) -> bool:
        """Evaluate the conditions of the installation, unless another process does. Returns whether it did."""
        now = self._now_us()
        with self._database.write() as tx:
            watched_from = alarms.claim_evaluation(tx, self._id, now, TIMES)
        if watched_from is None:
            return False
        conditions: list[AlarmCondition] = []
        undecided: set[_Key] = set()
        for page in webhook_conditions(self._database, self._config.thresholds, now, watched_from):
            conditions += page.conditions
            undecided |= page.undecided
            if self._pause():
                return True
        with self._database.read() as tx:
            conditions += failing_conditions(tx, self._config.thresholds)
        conditions += self._waiting_runs.conditions(self._database, self._config.thresholds, now)
        if (certificate := self._certificate.condition(now)) is not None:
            conditions.append(certificate)
        elif (subject := self._certificate.unknown_subject) is not None:
            undecided.add((AlarmKind.CERTIFICATE_EXPIRING, subject.id))
        with self._database.read() as tx:
            open_by_key = {_key_of(alarm): alarm for alarm in alarms.open_alarms(tx, EVALUATED_BY_ONE_PROCESS)}
            unchecked = alarms.unchecked(tx, EVALUATED_ON_EACH_HOST, now - UNCHECKED_AFTER_US)
        open_by_key |= {_key_of(alarm): alarm for alarm in unchecked}
        self._apply(open_by_key, conditions, undecided, now)
        return True

    def release(self) -> None:
        """Let another process evaluate the conditions of the installation next, without waiting for this one."""
        with self._database.write() as tx:
            alarms.release_evaluation(tx, self._id)

    def evaluate_host(self) -> None:
        """Evaluate the conditions of this host, which only its own processes can."""
        now, host = self._now_us(), self._config.host
        disk_key = (AlarmKind.DISK_LOW, disk_subject(host).id)
        clock_key = (AlarmKind.CLOCK_WRONG, clock_subject(host).id)
        with self._database.read() as tx:
            alarms_by_key = {key: alarms.open_alarm(tx, *key) for key in (disk_key, clock_key)}
        open_by_key = {key: alarm for key, alarm in alarms_by_key.items() if alarm is not None}
        conditions = [clock_condition(host, self._database, self._now_us)]
        undecided: set[_Key] = set()
        if self._config.read_free_space is not None:
            try:
                space = self._config.read_free_space()
            except OSError:
                undecided.add(disk_key)
            else:
                conditions.append(disk_condition(host, space, self._config.thresholds, is_open=disk_key in open_by_key))
        self._apply(open_by_key, [each for each in conditions if each is not None], undecided, now)
        if open_by_key:
            with self._database.write() as tx:
                for alarm in open_by_key.values():
                    alarms.set_checked(tx, alarm.key, now)

    def report_stopped_worker(self) -> None:
        """Raise the alarm that no worker is left. The next evaluation of a worker resolves it."""
        condition = worker_condition()
        with self._database.read() as tx:
            alarm = alarms.open_alarm(tx, condition.kind, condition.subject.id)
        open_by_key = {_key_of(alarm): alarm} if alarm is not None else {}
        self._apply(open_by_key, [condition], (), self._now_us())

    def remove_old(self) -> None:
        """Remove resolved alarms that are too old."""
        with self._database.write() as tx:
            alarms.remove_old(tx, self._now_us())

    def _apply(
        self,
        open_by_key: Mapping[_Key, Alarm],
        conditions: Sequence[AlarmCondition],
        undecided: Collection[_Key],
        now: int,
    ) -> None:
        """Raise, announce and resolve alarms.

        `conditions` are all that hold. An open alarm without one of them is over, also if its subject no longer exists.
        Alarms in `undecided` stay as they are.
        """
        holding = {(condition.kind, condition.subject.id): condition for condition in conditions}
        changed = [
            key
            for key in sorted(open_by_key.keys() | holding.keys())
            if key not in undecided and _needs_change(open_by_key.get(key), key[0], holding.get(key), now)
        ]
        for start in range(0, len(changed), CHANGES_PER_STEP):
            with self._database.write() as tx:
                alarms.lock_changes(tx)
                for key in changed[start : start + CHANGES_PER_STEP]:
                    self._change(tx, key, holding.get(key), now)
            if self._pause():
                return

    def _change(self, tx: Transaction, key: _Key, condition: AlarmCondition | None, now: int) -> None:
        # It is read again, because a person may have snoozed it, and another process may have changed it.
        alarm = alarms.open_alarm(tx, *key)
        match next_step(alarm, key[0], now, holds=condition is not None):
            case AlarmStep.RAISE:
                assert condition is not None
                alarm = alarms.add(tx, ids.time_ordered_key(now, os.urandom(8)), condition, now)
            case AlarmStep.BEGIN_TO_SETTLE:
                assert alarm is not None
                alarms.set_clear_since(tx, alarm.key, now)
                return
            case AlarmStep.HOLD_AGAIN:
                assert alarm is not None
                alarms.set_clear_since(tx, alarm.key, None)
                alarm = alarms.open_alarm(tx, *key)
            case AlarmStep.RESOLVE:
                assert alarm is not None
                alarms.set_resolved(tx, alarm.key, now)
                if alarm.announced_at is not None:
                    notices.enqueue(tx, self._notice(tx, alarm, AlarmEvent.RESOLVED, now))
                return
            case AlarmStep.NONE:
                pass
        if alarm is None:
            return
        if condition is not None and _is_described_otherwise(alarm, condition):
            alarms.describe(tx, alarm.key, condition)
            alarm = alarms.open_alarm(tx, *key)
            assert alarm is not None, "the transaction holds the lock"
        if needs_notice(alarm, now):
            alarms.set_announced(tx, alarm.key, now)
            notices.enqueue(tx, self._notice(tx, alarm, AlarmEvent.RAISED, now))

    def _notice(self, tx: Transaction, alarm: Alarm, event: AlarmEvent, now: int) -> AlarmNotice:
        factory = factories.by_id(tx, alarm.subject.factory_id) if alarm.subject.factory_id is not None else None
        alarm_id = ids.alarm_id(alarm.key)
        path = (
            f"/f/{quote(factory.name, safe='')}/alarms/{alarm_id}"
            if factory is not None
            else f"/team/alarms/{alarm_id}"
        )
        return AlarmNotice(
            id=alarm_id,
            kind=alarm.kind,
            event=event,
            factory=factory.name if factory is not None else None,
            subject=alarm.subject.name,
            summary=alarm.summary,
            action=alarm.rule.action,
            at=now,
            url=self._config.public_url + path,
        )


def _key_of(alarm: Alarm) -> _Key:
    return alarm.kind, alarm.subject.id


def _needs_change(alarm: Alarm | None, kind: AlarmKind, condition: AlarmCondition | None, now: int) -> bool:
    """Whether an evaluation changes something, so that it must write."""
    if next_step(alarm, kind, now, holds=condition is not None) is not AlarmStep.NONE:
        return True
    if alarm is None:
        return False
    return needs_notice(alarm, now) or (condition is not None and _is_described_otherwise(alarm, condition))


def _is_described_otherwise(alarm: Alarm, condition: AlarmCondition) -> bool:
    return (alarm.subject.name, alarm.summary) != (condition.subject.name, condition.summary)


class AlarmWatch:
    """Evaluates the conditions of alarms in a thread, until `close`. `report_failure` is called once for each error."""

    def __init__(
        self,
        database: Database,
        config: AlarmConfig,
        now_us: Callable[[], int],
        *,
        report_failure: ReportFailure = lambda _component, _error: None,
    ) -> None:
        self._stop = threading.Event()
        self._evaluator = AlarmEvaluator(database, config, now_us, pause=self._stop.is_set)
        self._report_failure = reporting_once(report_failure)
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        seconds_to_next = FIRST_EVALUATION_SECONDS
        last_removal_at = time.monotonic()
        is_evaluator = False
        while not self._stop.wait(seconds_to_next):
            began_at = time.monotonic()
            try:
                self._evaluator.evaluate_host()
                is_evaluator = self._evaluator.evaluate()
                if is_evaluator and time.monotonic() - last_removal_at > REMOVAL_SECONDS:
                    last_removal_at = time.monotonic()
                    self._evaluator.remove_old()
            except Exception as error:
                # Later evaluations must run even if one fails.
                self._report_failure("alarms", error)
            long_pause = min(PAUSE_FACTOR * (time.monotonic() - began_at), PAUSE_SECONDS_MAX)
            seconds_to_next = max(float(EVALUATION_SECONDS), long_pause)
        if is_evaluator:
            try:
                self._evaluator.release()
            except Exception as error:
                # Another process takes over later.
                self._report_failure("alarms", error)
